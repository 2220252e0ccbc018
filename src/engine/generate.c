/* Generation: prefill in chunks, then draw, decode to text, look for stops, step. */
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "sample/sample.h"

#define EVENT_TEXT_MAX   ((size_t)1 << 20) /* text released by one token: held text and its own */
#define EVENT_TEXT_FIRST ((size_t)4096)

typedef struct generation {
    avo_engine *engine;
    avo_session *session;
    avo_generate_request request;
    avo_sampling sampling;
    avo_batch *batch;
    sampler *sampler;
    stop_matcher *stops; /* NULL: none asked for */
    bool has_text;       /* the model has a tokenizer */
    decode_stream stream;
    buffer text;
    uint32_t drawn;
    uint64_t begin_ns, prefill_ns, first_ns;
    avo_generate_result result;
    avo_error *error;
} generation;

static avo_status from_batch(const generation *g, avo_status status) {
    if (status == AVO_OK)
        return status;
    return status_fail(g->error, status, "%s", avo_batch_error(g->batch)->text);
}

/* ---- Prefill ---- */

/* The next chunk of the prompt, behind whatever the timeline still owes. */
static avo_status prefill_chunk(generation *g, size_t done, size_t *count) {
    size_t owed = g->session->count - g->session->computed;
    size_t left = g->request.token_count - done;
    size_t room = g->engine->plan.rows_max - owed;
    *count = left < room ? left : room;
    avo_batch_clear(g->batch);
    AVO_TRY(from_batch(g, avo_batch_add_scored(g->batch, g->session, g->request.tokens + done,
                                               *count, *count == left ? 1 : 0)));
    return from_batch(g, avo_step(g->engine, g->batch));
}

/* False in `more` when the caller wants no more. */
static avo_status prefill(generation *g, bool *more) {
    *more = true;
    size_t done = 0;
    do {
        size_t count;
        AVO_TRY(prefill_chunk(g, done, &count));
        done += count;
        if (g->request.on_prefill != NULL)
            *more = g->request.on_prefill(g->request.on_prefill_context, "prefill", done,
                                          g->request.token_count);
    } while (*more && done < g->request.token_count);
    if (!*more)
        g->result.finish = AVO_FINISH_CANCELLED;
    return AVO_OK;
}

/* ---- One token ---- */

static bool is_stop_token(const generation *g, int32_t token) {
    for (size_t i = 0; i < g->request.stop_token_count; i++)
        if (g->request.stop_tokens[i] == token)
            return true;
    return !g->request.ignore_end && avo_model_token_ends(g->engine->model, token);
}

/* What may be shown now: text that is complete and cannot become part of a stop string. */
static avo_status release_text(generation *g, const char **text, size_t *bytes, bool *stopped) {
    *stopped = false;
    *text = g->text.data;
    *bytes = g->text.size;
    if (g->stops == NULL)
        return AVO_OK;
    return stop_matcher_push(g->stops, g->text.data, g->text.size, text, bytes, stopped, g->error);
}

static bool tell(generation *g, const sample_choice *choice, const char *text, size_t bytes) {
    if (g->request.on_token == NULL)
        return true;
    avo_token_event event = {.token = choice->token,
                             .index = g->drawn - 1,
                             .text = bytes == 0 ? "" : text,
                             .text_bytes = bytes,
                             .logprob = choice->logprob,
                             .top = choice->top,
                             .top_count = choice->top_count};
    return g->request.on_token(g->request.on_token_context, &event);
}

/* The first reason to end, or `more`. */
static bool decide_finish(generation *g, bool ended, bool stopped, bool wanted) {
    if (ended)
        g->result.finish = AVO_FINISH_STOP_TOKEN;
    else if (stopped)
        g->result.finish = AVO_FINISH_STOP_STRING;
    else if (!wanted)
        g->result.finish = AVO_FINISH_CANCELLED;
    else if (g->request.max_new_tokens > 0 && g->drawn >= g->request.max_new_tokens)
        g->result.finish = AVO_FINISH_LENGTH;
    else if (g->session->computed >= g->engine->plan.context_max)
        g->result.finish = AVO_FINISH_CONTEXT;
    else
        return true;
    return false;
}

/* The draw is keyed by the place the token takes in the timeline. */
static avo_status draw(generation *g, sample_choice *choice) {
    if (g->batch->top > 0) {
        bool undecided;
        sampler_draw_top(g->sampler, batch_top(g->batch, g->session), g->session->count, choice,
                         &undecided);
        if (!undecided)
            return AVO_OK;
        batch_logits_again(g->batch);
    }
    return sampler_draw(g->sampler, avo_batch_logits(g->batch, g->session, 0), g->session->count,
                        choice, g->error);
}

/* Draws, delivers, and says whether to go on. */
static avo_status one_token(generation *g, bool *more) {
    sample_choice choice;
    AVO_TRY(draw(g, &choice));
    if (g->drawn++ == 0)
        g->first_ns = clock_now_ns();
    if (g->session->count < g->engine->plan.context_max)
        g->session->tokens[g->session->count++] = choice.token;
    sampler_see_output(g->sampler, choice.token);
    bool ended = is_stop_token(g, choice.token);
    g->text.size = 0;
    if (g->has_text && !ended)
        AVO_TRY(decode_stream_push(&g->stream, choice.token, &g->text, g->error));
    const char *text;
    size_t bytes;
    bool stopped;
    AVO_TRY(release_text(g, &text, &bytes, &stopped));
    bool wanted = tell(g, &choice, text, bytes);
    *more = decide_finish(g, ended, stopped, wanted);
    return AVO_OK;
}

/* Text that was held back and is text after all: half a character, a stop string that never came.
 * Delivered in events of their own, with token −1. */
static avo_status deliver_rest(generation *g) {
    if (!g->has_text || g->result.finish == AVO_FINISH_STOP_STRING ||
        g->result.finish == AVO_FINISH_CANCELLED)
        return AVO_OK;
    g->text.size = 0;
    AVO_TRY(decode_stream_finish(&g->stream, &g->text, g->error));
    const char *text;
    size_t bytes;
    bool stopped;
    AVO_TRY(release_text(g, &text, &bytes, &stopped));
    sample_choice none = {.token = -1};
    if (bytes > 0)
        (void)tell(g, &none, text, bytes);
    if (stopped) {
        g->result.finish = AVO_FINISH_STOP_STRING;
    } else if (g->stops != NULL) {
        stop_matcher_finish(g->stops, &text, &bytes);
        if (bytes > 0)
            (void)tell(g, &none, text, bytes);
    }
    return AVO_OK;
}

static avo_status decode_tokens(generation *g) {
    bool more;
    AVO_TRY(one_token(g, &more));
    while (more) {
        avo_batch_clear(g->batch);
        AVO_TRY(from_batch(g, avo_batch_add(g->batch, g->session, NULL, 0)));
        AVO_TRY(from_batch(g, avo_step(g->engine, g->batch)));
        AVO_TRY(one_token(g, &more));
    }
    return deliver_rest(g);
}

/* ---- The whole ---- */

static avo_status check_request(const generation *g) {
    const avo_generate_request *request = &g->request;
    bool owed = g->session->count > g->session->computed;
    if (request->token_count == 0 && !owed)
        return status_fail(g->error, AVO_ERROR_ARGUMENT, "the prompt is empty");
    uint64_t needed = (uint64_t)g->session->count + request->token_count + 1;
    if (needed > g->engine->plan.context_max)
        return status_fail(g->error, AVO_ERROR_CONTEXT,
                           "the prompt needs %llu tokens with one for the answer, the context has "
                           "%u",
                           (unsigned long long)needed, g->engine->plan.context_max);
    if (request->stop_count > 0 && !g->has_text)
        return status_fail(g->error, AVO_ERROR_UNSUPPORTED,
                           "stop strings need a tokenizer, the model has none");
    return AVO_OK;
}

static avo_status generation_open(generation *g) {
    const avo_allocator *allocator = g->engine->allocator;
    const avo_generate_request *request = &g->request;
    AVO_TRY(check_request(g));
    AVO_TRY(avo_batch_open(g->engine, &g->batch, g->error));
    AVO_TRY(
        sampler_open(&g->sampling, g->engine->view.vocabulary, allocator, &g->sampler, g->error));
    g->batch->top = sampler_top(g->sampler);
    if (request->stop_count > 0)
        AVO_TRY(
            stop_matcher_open(request->stop, request->stop_count, allocator, &g->stops, g->error));
    if (g->has_text) {
        decode_stream_init(&g->stream, g->engine->model->tokenizer, false);
        decode_stream_continue(&g->stream); /* the prompt came before */
    }
    /* Room for any token's text now, so that nothing is allocated between tokens. */
    if (buffer_reserve(&g->text, EVENT_TEXT_FIRST) != AVO_OK)
        return status_no_memory(g->error, "text", EVENT_TEXT_FIRST);
    sampler_see_prompt(g->sampler, g->session->tokens, g->session->count);
    sampler_see_prompt(g->sampler, request->tokens, request->token_count);
    return AVO_OK;
}

static avo_status generation_run(generation *g) {
    AVO_TRY(generation_open(g));
    bool more;
    AVO_TRY(prefill(g, &more));
    g->prefill_ns = clock_now_ns();
    return more ? decode_tokens(g) : AVO_OK;
}

static void generation_close(generation *g) {
    buffer_free(&g->text);
    stop_matcher_close(g->stops);
    sampler_close(g->sampler);
    avo_batch_close(g->batch);
}

/* What was asked for, over the defaults of this version. */
static avo_status take_request(generation *g, const avo_generate_request *request) {
    g->request = (avo_generate_request)AVO_GENERATE_REQUEST_INIT;
    g->sampling = (avo_sampling)AVO_SAMPLING_INIT;
    AVO_TRY(
        options_take(&g->request, sizeof(g->request), request, "avo_generate_request", g->error));
    return options_take(&g->sampling, sizeof(g->sampling), g->request.sampling, "avo_sampling",
                        g->error);
}

static void measure(generation *g) {
    uint64_t end_ns = clock_now_ns();
    g->result.prompt_tokens = (uint32_t)g->request.token_count;
    g->result.new_tokens = g->drawn;
    if (g->prefill_ns > 0)
        g->result.prefill_seconds = clock_seconds(g->begin_ns, g->prefill_ns);
    if (g->first_ns > 0) {
        g->result.first_token_seconds = clock_seconds(g->begin_ns, g->first_ns);
        g->result.decode_seconds = clock_seconds(g->first_ns, end_ns);
    }
}

avo_status avo_generate(avo_engine *engine, avo_session *session,
                        const avo_generate_request *request, avo_generate_result *result,
                        avo_error *error) {
    generation g = {.engine = engine,
                    .session = session,
                    .has_text = engine->model->tokenizer != NULL,
                    .begin_ns = clock_now_ns(),
                    .result = AVO_GENERATE_RESULT_INIT,
                    .error = error};
    buffer_init(&g.text, engine->allocator, EVENT_TEXT_MAX);
    float_mode mode;
    float_mode_enter(&mode);
    avo_status status = take_request(&g, request);
    if (status == AVO_OK)
        status = generation_run(&g);
    measure(&g);
    generation_close(&g);
    float_mode_leave(&mode);
    if (result != NULL)
        options_give(result, &g.result, sizeof(g.result));
    return status;
}
