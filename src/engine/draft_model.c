/* A smaller model that proposes. */
#include "engine/draft_model.h"

#include "base/clock.h"
#include "engine/draft_text.h"
#include "engine/engine_int.h"

#include <math.h>
#include <string.h>

#define CATCH_UP_MAX 256 /* tokens of a timeline that are read before one step of the target */

struct draft_model {
    const avo_allocator *allocator;
    avo_engine *engine;
    avo_batch *batch;
    draft_text *text;       /* NULL: both models have the same tokens */
    avo_session **sessions; /* [drafters] NULL: not used yet */
    uint32_t drafters;
    double assumed_ns; /* of a step; 0: learned */
};

/* ---- Opening ---- */

bool draft_model_by_text(const avo_model *target, const avo_model *model) {
    const tokenizer *ours = model->tokenizer, *theirs = target->tokenizer;
    uint32_t count = model->view.vocabulary;
    if (count != target->view.vocabulary)
        return true;
    if (ours == NULL || theirs == NULL || ours == theirs)
        return false;
    for (int32_t id = 0; id < (int32_t)count; id++) {
        text_view a = tokenizer_piece(ours, id), b = tokenizer_piece(theirs, id);
        if (a.size != b.size || (a.size > 0 && memcmp(a.data, b.data, a.size) != 0))
            return true;
    }
    return false;
}

/* Other tokens need text to get from one model to the other. */
static avo_status check_vocabulary(const avo_model *target, const avo_model *model,
                                   avo_error *error) {
    if ((model->tokenizer != NULL && target->tokenizer != NULL) ||
        !draft_model_by_text(target, model))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "%s: the draft model has %u tokens, the model has %u; they must have the "
                       "same vocabulary, or both a tokenizer",
                       model->source->path, model->view.vocabulary, target->view.vocabulary);
}

avo_engine_options draft_model_engine(const avo_engine_options *target, const avo_model *model,
                                      uint32_t context_max, uint64_t kv_tokens, uint32_t drafters) {
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    uint32_t longest = model->source->config.context;
    engine.threads = target->threads;
    engine.device = target->device;
    engine.kv_type = target->kv_type;
    engine.huge_pages = target->huge_pages;
    engine.numa = target->numa;
    engine.pin = target->pin;
    engine.lock = target->lock;
    engine.sessions_max = drafters;
    engine.context_max = context_max < longest ? context_max : longest; /* beyond it, no drafts */
    engine.kv_tokens = kv_tokens;
    engine.speculate = "off";
    return engine;
}

static avo_status open_parts(const draft_model_options *options, draft_model *own,
                             avo_error *error) {
    avo_engine_options engine =
        draft_model_engine(options->engine, options->model, options->context_max,
                           options->kv_tokens, options->drafters);
    AVO_TRY(engine_open_beside(options->model, &engine, options->beside, &own->engine, error));
    AVO_TRY(avo_batch_open(own->engine, &own->batch, error));
    if (draft_model_by_text(options->target, options->model))
        AVO_TRY(draft_text_open(options->target->tokenizer, options->model->tokenizer,
                                own->drafters, own->engine->plan.context_max, own->allocator,
                                &own->text, error));
    own->sessions = allocator_take_array(own->allocator, own->drafters, sizeof(avo_session *));
    if (own->sessions == NULL)
        return status_no_memory(error, "sessions of a draft model",
                                own->drafters * sizeof(avo_session *));
    return AVO_OK;
}

avo_status draft_model_open(const draft_model_options *options, draft_model **out,
                            avo_error *error) {
    *out = NULL;
    AVO_TRY(check_vocabulary(options->target, options->model, error));
    const avo_allocator *allocator = options->target->allocator;
    draft_model *own = allocator_take_array(allocator, 1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "a draft model", sizeof(*own));
    own->allocator = allocator;
    own->drafters = options->drafters;
    avo_status status = open_parts(options, own, error);
    if (status != AVO_OK) {
        draft_model_close(own);
        return status_prefix(error, status, "draft model");
    }
    *out = own;
    return AVO_OK;
}

void draft_model_close(draft_model *own) {
    if (own == NULL)
        return;
    avo_batch_close(own->batch);
    for (uint32_t i = 0; own->sessions != NULL && i < own->drafters; i++)
        avo_session_close(own->sessions[i]);
    avo_engine_close(own->engine);
    draft_text_close(own->text);
    allocator_give(own->allocator, own->sessions, own->drafters * sizeof(avo_session *));
    allocator_give(own->allocator, own, sizeof(*own));
}

void draft_model_forget(draft_model *own, const drafter *drafter) {
    avo_session **session = &own->sessions[drafter_number(drafter)];
    avo_session_close(*session);
    *session = NULL;
    if (own->text != NULL)
        draft_text_clear(own->text, drafter_number(drafter));
}

/* ---- Following a timeline ---- */

/* Leading tokens that both have. What was common once stays so, hence from the end, unless text is
 * tokenized again. */
static uint32_t common(const draft_model *own, const avo_session *session,
                       const draft_timeline *timeline) {
    uint32_t length = session->count < timeline->count ? session->count : timeline->count;
    uint32_t same = length > DRAFTS_MAX + 1 && own->text == NULL ? length - DRAFTS_MAX - 1 : 0;
    while (same < length && session->tokens[same] == timeline->tokens[same])
        same++;
    /* The newest token gives the logits, so it is computed in any case. */
    return same == timeline->count ? same - 1 : same;
}

/* What the next step keeps of a request's logits. Samplers know the target's tokens alone, so from
 * text the likeliest token is taken. */
static void want(draft_model *own, const draft_request *request) {
    if (own->text == NULL)
        sequence_want(request->sequence, own->batch);
    else if (own->batch->top == 0)
        own->batch->top = 1;
}

/* The session of a request with the tokens that it lacks in the batch; false: no drafts this time.
 */
static bool follow(draft_model *own, draft_request *request) {
    avo_error error;
    avo_session **session = &own->sessions[drafter_number(request->drafter)];
    draft_timeline followed = request->timeline;
    const draft_timeline *timeline = &followed;
    size_t reused;
    if (own->text != NULL)
        followed = draft_text_follow(own->text, drafter_number(request->drafter), timeline);
    if (followed.count == 0)
        return false;
    if (*session == NULL) {
        if (avo_session_open(own->engine, NULL, session, &error) != AVO_OK)
            return false;
        /* Pages are shared as the target's are: adapters and salts keep them apart. */
        (*session)->root = request->sequence->session->root;
        if (!request->no_reuse && avo_session_reuse(*session, timeline->tokens, timeline->count,
                                                    &reused, &error) != AVO_OK)
            return false;
    }
    uint32_t same = common(own, *session, timeline);
    if (avo_session_truncate(*session, same, &error) != AVO_OK)
        return false;
    uint32_t missing = timeline->count - same;
    bool all = missing <= CATCH_UP_MAX;
    avo_status status = avo_batch_add_scored(own->batch, *session, timeline->tokens + same,
                                             all ? missing : CATCH_UP_MAX, all ? 1 : 0);
    if (status == AVO_OK && all)
        want(own, request);
    if (status == AVO_OK && !all)
        drafter_model_behind(request->drafter);
    return status == AVO_OK && all;
}

/* ---- Proposing ---- */

/* Computes the batch and learns what steps of this model take. */
static bool compute(draft_model *own, uint32_t rows) {
    uint64_t begin = clock_now_ns();
    if (avo_step(own->engine, own->batch) != AVO_OK)
        return false;
    step_load load = {.decode_rows = rows};
    step_cost_learn(&own->engine->cost, &load, (double)(clock_now_ns() - begin));
    return true;
}

/* Whether a draft behind those that there are would pay. */
static bool pays(const draft_request *request, double least) {
    const struct draft *out = request->draft;
    return drafter_decides(request->drafter) || out->count == 0 ||
           (double)out->survival[out->count - 1] > least;
}

/* The same by text: a guess of the draft model, and the drafts that it makes of all so far. */
static void take_text(const draft_model *own, draft_request *request, double least) {
    uint32_t number = drafter_number(request->drafter);
    struct draft *out = request->draft;
    const logit_top *top;
    avo_error error;
    request->going = false;
    if (batch_top(own->batch, own->sessions[number], 0, &top, &error) != AVO_OK)
        return;
    bool more = draft_text_guess(own->text, number, top->token[0], (float)exp(-top->log_sum),
                                 request->most, out);
    drafter_rate(request->drafter, out);
    request->going = more && pays(request, least);
}

/* A draft for one more token; going: there may be another behind it. */
static void take(const draft_model *own, draft_request *request, double least) {
    draft_timeline *timeline = &request->timeline;
    struct draft *out = request->draft;
    sample_choice choice;
    avo_error error;
    if (own->text != NULL) {
        take_text(own, request, least);
        return;
    }
    request->going = false;
    if (sequence_sample(request->sequence, own->sessions[drafter_number(request->drafter)],
                        own->batch, 0, timeline->position + out->count, &choice, &error) != AVO_OK)
        return;
    out->tokens[out->count] = choice.token;
    out->grade[out->count] = draft_grade(expf(choice.logprob));
    out->count++;
    drafter_rate(request->drafter, out);
    request->going = out->count < request->most && pays(request, least);
}

/* One row for each that goes on; false: none does. */
static bool add_next(draft_model *own, draft_request *requests, uint32_t count, uint32_t *rows) {
    *rows = 0;
    avo_batch_clear(own->batch);
    batch_want_nothing(own->batch);
    for (uint32_t i = 0; i < count; i++) {
        draft_request *request = &requests[i];
        if (!request->going)
            continue;
        avo_session *session = own->sessions[drafter_number(request->drafter)];
        const struct draft *out = request->draft;
        int32_t last;
        if (own->text != NULL)
            (void)draft_text_guesses(own->text, drafter_number(request->drafter), &last);
        else
            last = out->tokens[out->count - 1];
        request->going = avo_batch_add(own->batch, session, &last, 1) == AVO_OK;
        if (request->going)
            want(own, request);
        *rows += request->going;
    }
    return *rows > 0;
}

static double step_ns(const draft_model *own, uint32_t rows) {
    return own->assumed_ns > 0 ? own->assumed_ns : step_cost_step(&own->engine->cost, rows);
}

/* Those that will draft, with the tokens that they lack in the batch; their number. */
static uint32_t begin(draft_model *own, draft_request *requests, uint32_t count, double least) {
    uint32_t wanted = 0;
    avo_batch_clear(own->batch);
    batch_want_nothing(own->batch);
    for (uint32_t i = 0; i < count; i++) {
        draft_request *request = &requests[i];
        request->going = false;
        if (request->most == 0 || request->draft->count > 0 ||
            !drafter_uses(request->drafter, DRAFT_MODEL) ||
            !drafter_try_model(request->drafter, least))
            continue;
        *request->draft = (struct draft){.kind = DRAFT_MODEL, .graded = true};
        request->going = follow(own, request);
        wanted++;
    }
    return wanted;
}

void draft_model_propose(draft_model *own, draft_request *requests, uint32_t count,
                         const draft_time *time) {
    /* Survival that the token before a draft must have for the draft to pay. All of them share the
     * steps of this model, as they share those of the target. */
    double least = draft_time_least(time, step_ns(own, count), count);
    uint64_t end = clock_now_ns() + (uint64_t)time->left_ns;
    uint32_t rows = begin(own, requests, count, least) > 0 ? own->batch->rows : 0;
    while (rows > 0 &&
           (time->left_ns == 0 || (double)clock_now_ns() + step_ns(own, rows) < (double)end) &&
           compute(own, rows)) {
        for (uint32_t i = 0; i < count; i++)
            if (requests[i].going)
                take(own, &requests[i], least);
        if (!add_next(own, requests, count, &rows))
            return;
    }
}

void draft_model_resize(draft_model *own, uint32_t threads) {
    engine_stream_resize(own->engine, 0, threads);
}

void draft_model_assume(draft_model *own, double step_ns) {
    own->assumed_ns = step_ns;
}

uint64_t draft_model_hits(const draft_model *own) {
    avo_kv_info info = AVO_KV_INFO_INIT;
    avo_engine_kv(own->engine, &info);
    return info.prefix_hit_tokens;
}
