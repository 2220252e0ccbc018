/* Generation: prefill in chunks, then draw, decode to text, look for stops, step. */
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "sample/sample.h"

#include <string.h>

#define EVENT_TEXT_MAX   ((size_t)1 << 20) /* text released by one token: held text and its own */
#define EVENT_TEXT_FIRST ((size_t)4096)

typedef struct generation {
    avo_engine *engine;
    avo_session *session;
    const avo_generate_request *request;
    avo_batch *batch;
    sampler *sampler;
    stop_matcher *stops; /* NULL: none asked for */
    bool has_text;       /* the model has a tokenizer */
    decode_stream stream;
    buffer text;
    uint32_t drawn;
    uint64_t begin_ns, prefill_ns, first_ns;
    avo_generate_result *result;
    avo_error *error;
} generation;

static avo_status from_batch(const generation *g, avo_status status) {
    if (status == AVO_OK)
        return status;
    return status_fail(g->error, status, "%s", avo_batch_error(g->batch)->text);
}

/* ---- Prefill ---- */

static avo_status prefill_chunk(generation *g, const int32_t *tokens, size_t count, bool last) {
    avo_batch_clear(g->batch);
    AVO_TRY(from_batch(g, avo_batch_add_scored(g->batch, g->session, tokens, count, last ? 1 : 0)));
    return from_batch(g, avo_step(g->engine, g->batch));
}

static avo_status prefill(generation *g) {
    const int32_t *tokens = g->request->tokens;
    size_t left = g->request->token_count;
    if (g->session->carried >= 0) {
        /* The last token of the answer before: drawn, but not yet computed. */
        int32_t carried = g->session->carried;
        AVO_TRY(prefill_chunk(g, &carried, 1, false));
        g->session->carried = -1;
    }
    while (left > 0) {
        size_t count = left < g->engine->plan.rows_max ? left : g->engine->plan.rows_max;
        AVO_TRY(prefill_chunk(g, tokens, count, count == left));
        tokens += count;
        left -= count;
    }
    return AVO_OK;
}

/* ---- One token ---- */

static bool is_stop_token(const generation *g, int32_t token) {
    for (size_t i = 0; i < g->request->stop_token_count; i++)
        if (g->request->stop_tokens[i] == token)
            return true;
    return !g->request->ignore_end && avo_model_token_ends(g->engine->model, token);
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
    if (g->request->on_token == NULL)
        return true;
    avo_token_event event = {.token = choice->token,
                             .index = g->drawn - 1,
                             .text = bytes == 0 ? "" : text,
                             .text_bytes = bytes,
                             .logprob = choice->logprob,
                             .top = choice->top,
                             .top_count = choice->top_count};
    return g->request->on_token(g->request->on_token_context, &event);
}

/* The first reason to end, or `more`. */
static bool decide_finish(generation *g, bool ended, bool stopped, bool wanted) {
    if (ended)
        g->result->finish = AVO_FINISH_STOP_TOKEN;
    else if (stopped)
        g->result->finish = AVO_FINISH_STOP_STRING;
    else if (!wanted)
        g->result->finish = AVO_FINISH_CANCELLED;
    else if (g->request->max_new_tokens > 0 && g->drawn >= g->request->max_new_tokens)
        g->result->finish = AVO_FINISH_LENGTH;
    else if (g->session->length >= g->engine->plan.context_max)
        g->result->finish = AVO_FINISH_CONTEXT;
    else
        return true;
    return false;
}

/* Draws, delivers, and says whether to go on. */
static avo_status one_token(generation *g, bool *more) {
    sample_choice choice;
    const float *logits = avo_batch_logits(g->batch, g->session, 0);
    AVO_TRY(sampler_draw(g->sampler, logits, g->drawn, &choice, g->error));
    if (g->drawn++ == 0)
        g->first_ns = clock_now_ns();
    g->session->carried = choice.token;
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
    if (!g->has_text || g->result->finish == AVO_FINISH_STOP_STRING ||
        g->result->finish == AVO_FINISH_CANCELLED)
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
        g->result->finish = AVO_FINISH_STOP_STRING;
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
        int32_t token = g->session->carried;
        avo_batch_clear(g->batch);
        AVO_TRY(from_batch(g, avo_batch_add(g->batch, g->session, &token, 1)));
        AVO_TRY(from_batch(g, avo_step(g->engine, g->batch)));
        g->session->carried = -1;
        AVO_TRY(one_token(g, &more));
    }
    return deliver_rest(g);
}

/* ---- The whole ---- */

static avo_status check_request(const generation *g) {
    const avo_generate_request *request = g->request;
    if (request->tokens == NULL || request->token_count == 0)
        return status_fail(g->error, AVO_ERROR_ARGUMENT, "the prompt is empty");
    uint64_t held = g->session->length + (g->session->carried >= 0 ? 1u : 0u);
    uint64_t needed = held + request->token_count + 1;
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
    const avo_generate_request *request = g->request;
    AVO_TRY(check_request(g));
    AVO_TRY(avo_batch_open(g->engine, &g->batch, g->error));
    AVO_TRY(sampler_open(&request->sampling, g->engine->view.vocabulary, allocator, &g->sampler,
                         g->error));
    if (request->stop_count > 0)
        AVO_TRY(
            stop_matcher_open(request->stop, request->stop_count, allocator, &g->stops, g->error));
    if (g->has_text)
        decode_stream_init(&g->stream, g->engine->model->tokenizer, false);
    /* Room for any token's text now, so that nothing is allocated between tokens. */
    if (buffer_reserve(&g->text, EVENT_TEXT_FIRST) != AVO_OK)
        return status_no_memory(g->error, "text", EVENT_TEXT_FIRST);
    sampler_see_prompt(g->sampler, request->tokens, request->token_count);
    return AVO_OK;
}

static avo_status generation_run(generation *g) {
    AVO_TRY(generation_open(g));
    AVO_TRY(prefill(g));
    g->prefill_ns = clock_now_ns();
    return decode_tokens(g);
}

avo_status avo_generate(avo_engine *engine, avo_session *session,
                        const avo_generate_request *request, avo_generate_result *result,
                        avo_error *error) {
    memset(result, 0, sizeof(*result));
    generation g = {.engine = engine,
                    .session = session,
                    .request = request,
                    .has_text = engine->model->tokenizer != NULL,
                    .begin_ns = clock_now_ns(),
                    .result = result,
                    .error = error};
    buffer_init(&g.text, engine->allocator, EVENT_TEXT_MAX);
    avo_status status = generation_run(&g);
    uint64_t end_ns = clock_now_ns();
    result->prompt_tokens = (uint32_t)request->token_count;
    result->new_tokens = g.drawn;
    if (g.prefill_ns > 0)
        result->prefill_seconds = clock_seconds(g.begin_ns, g.prefill_ns);
    if (g.first_ns > 0) {
        result->first_token_seconds = clock_seconds(g.begin_ns, g.first_ns);
        result->decode_seconds = clock_seconds(g.first_ns, end_ns);
    }
    buffer_free(&g.text);
    stop_matcher_close(g.stops);
    sampler_close(g.sampler);
    avo_batch_close(g.batch);
    return status;
}
