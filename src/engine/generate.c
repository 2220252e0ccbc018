/* Generation: prefill in chunks, then draw, decode to text, look for stops, step. */
#include "engine/answer.h"
#include "engine/engine_int.h"
#include "engine/request.h"

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/options.h"

typedef struct generation {
    avo_engine *engine;
    avo_session *session;
    avo_request request;
    avo_sampling sampling;
    id_list encoded; /* the prompt's tokens, where it is text or messages */
    const int32_t *tokens;
    size_t token_count;
    avo_batch *batch;
    sampler *sampler;
    grammar_matcher *matcher; /* NULL: any answer */
    answer_limits limits;
    answer_text text;
    buffer text_room;
    size_t prompt_count; /* tokens of the request that are not part of the timeline already */
    uint32_t drawn;
    uint64_t answer_from; /* place of the first token drawn, among all that the timeline ever had */
    uint64_t begin_ns, prefill_ns, first_ns;
    avo_result result;
    answer_notes notes;
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
    size_t left = g->prompt_count - done;
    size_t room = owed < g->engine->plan.rows_max ? g->engine->plan.rows_max - owed : 0;
    *count = left < room ? left : room;
    avo_batch_clear(g->batch);
    AVO_TRY(from_batch(g, avo_batch_add_scored(g->batch, g->session, g->tokens + done, *count,
                                               *count == left ? 1 : 0)));
    return from_batch(g, avo_step(g->engine, g->batch));
}

static bool tell_prefill(const generation *g, uint64_t done, uint64_t total) {
    avo_event event = {
        .size = sizeof(event), .kind = AVO_EVENT_PREFILL, .done = done, .total = total};
    return g->request.on_event == NULL || g->request.on_event(g->request.on_event_context, &event);
}

/* Without the tokens of the timeline that only a ring can owe: more than a step has rows. */
static avo_status catch_up(generation *g, bool *more) {
    const avo_session *session = g->session;
    while (*more && session->count - session->computed > g->engine->plan.rows_max) {
        AVO_TRY(session_catch_up(g->session, UINT32_MAX, g->error));
        *more = tell_prefill(g, session->computed, session->count);
    }
    return AVO_OK;
}

/* False in `more` when the caller wants no more. */
static avo_status prefill(generation *g, bool *more) {
    *more = true;
    size_t done = 0;
    AVO_TRY(catch_up(g, more));
    while (*more) {
        size_t count;
        AVO_TRY(prefill_chunk(g, done, &count));
        done += count;
        *more = tell_prefill(g, done, g->prompt_count);
        if (done >= g->prompt_count)
            break;
    }
    if (!*more)
        g->result.finish = AVO_FINISH_CANCELLED;
    return AVO_OK;
}

/* ---- One token ---- */

static bool tell(generation *g, const sample_choice *choice, text_view text) {
    if (g->request.on_event == NULL)
        return true;
    avo_token_event token = {.token = choice->token,
                             .index = g->drawn - 1,
                             .text = text.size == 0 ? "" : text.data,
                             .text_bytes = text.size,
                             .logprob = choice->logprob,
                             .top = choice->top,
                             .top_count = choice->top_count};
    avo_event event = {.size = sizeof(event), .kind = AVO_EVENT_TOKEN, .token = &token};
    return g->request.on_event(g->request.on_event_context, &event);
}

/* A ring has turned: penalties see what is left of the timeline, and of the answer in it. */
static void see_again(generation *g) {
    const avo_session *session = g->session;
    sampler_see_nothing(g->sampler);
    for (uint32_t i = 0; i < session->count; i++) {
        uint64_t place = i < session->ring_keep ? i : i + session->forgotten;
        if (place < g->answer_from)
            sampler_see_prompt(g->sampler, &session->tokens[i], 1);
        else
            sampler_see_output(g->sampler, session->tokens[i]);
    }
}

/* Draws, delivers, and says whether to go on. The place that keys a draw never comes again, however
 * often a ring turns. */
static avo_status one_token(generation *g, bool *more) {
    sample_choice choice;
    uint64_t begin = clock_now_ns();
    uint64_t forgotten = g->session->forgotten, place = g->session->count + forgotten;
    AVO_TRY(answer_constrain(g->matcher, g->sampler, g->error));
    AVO_TRY(batch_draw(g->batch, g->session, g->sampler, place, &choice, g->error));
    answer_notes_stage(&g->notes, SPAN_SAMPLE, begin);
    answer_notes_token(&g->notes);
    if (g->drawn++ == 0) {
        g->first_ns = clock_now_ns();
        g->answer_from = place;
    }
    if (g->session->count < g->limits.context_max)
        session_append(g->session, &choice.token, 1);
    if (g->session->forgotten == forgotten)
        sampler_see_output(g->sampler, choice.token);
    else
        see_again(g);
    bool stops = answer_token_stops(&g->limits, choice.token);
    answer_state state = {.ended = stops, .drawn = g->drawn, .computed = g->session->computed};
    text_view text;
    begin = clock_now_ns();
    AVO_TRY(answer_text_push(&g->text, choice.token, state.ended, &text, &state.stopped, g->error));
    AVO_TRY(answer_follow(g->matcher, choice.token, &state, g->error));
    state.unwanted = !tell(g, &choice, text);
    answer_notes_stage(&g->notes, SPAN_DELIVER, begin);
    *more = !answer_ends(&g->limits, &state, &g->result.finish);
    g->result.stop_token = stops ? choice.token : -1;
    return AVO_OK;
}

/* What was held back comes in events of its own, with token −1. */
static avo_status deliver_rest(generation *g) {
    if (g->result.finish == AVO_FINISH_STOP_STRING || g->result.finish == AVO_FINISH_CANCELLED)
        return AVO_OK;
    text_view text;
    bool stopped;
    sample_choice none = {.token = -1};
    AVO_TRY(answer_text_finish(&g->text, &text, &stopped, g->error));
    if (text.size > 0)
        (void)tell(g, &none, text);
    if (stopped) {
        g->result.finish = AVO_FINISH_STOP_STRING;
        return AVO_OK;
    }
    text = answer_text_rest(&g->text);
    if (text.size > 0)
        (void)tell(g, &none, text);
    return AVO_OK;
}

static void name_stop_string(generation *g) {
    size_t index = 0;
    if (g->text.stops == NULL || stop_matcher_found(g->text.stops, &index) == NULL)
        return;
    g->result.stop_index = (int32_t)index;
    g->result.stop_string = g->request.stop[index];
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
    AVO_TRY(deliver_rest(g));
    name_stop_string(g);
    return AVO_OK;
}

/* ---- The whole ---- */

/* The prompt's tokens, where there is a prompt. */
static avo_status take_prompt(generation *g, bool has_prompt) {
    const avo_request *request = &g->request;
    g->tokens = request->tokens;
    g->token_count = request->token_count;
    if (!has_prompt || g->token_count > 0)
        return AVO_OK;
    avo_chat_options chat;
    AVO_TRY(request_chat(request, &chat, g->error));
    AVO_TRY(request_encode(request, &chat, g->engine->model, NULL, &g->encoded, g->error));
    g->tokens = g->encoded.ids;
    g->token_count = g->encoded.count;
    return AVO_OK;
}

static avo_status check_request(generation *g) {
    bool has_prompt = false;
    AVO_TRY(request_check_alone(&g->request, g->error));
    AVO_TRY(request_check(&g->request, &g->sampling, g->engine->model, &has_prompt, g->error));
    AVO_TRY(session_check_idle(g->session, g->error));
    AVO_TRY(take_prompt(g, has_prompt));
    bool owed = g->session->count > g->session->computed;
    if (g->token_count == 0 && !owed)
        return status_fail(g->error, AVO_ERROR_ARGUMENT, "the prompt is empty");
    uint64_t needed = (uint64_t)g->session->count + g->token_count + 1;
    if (g->session->ring_window > 0)
        return AVO_OK;
    if (needed > g->engine->plan.context_max)
        return status_fail(g->error, AVO_ERROR_CONTEXT,
                           "the prompt needs %llu tokens with one for the answer, the context has "
                           "%u",
                           (unsigned long long)needed, g->engine->plan.context_max);
    return AVO_OK;
}

/* A prompt for which the ring turns becomes part of the timeline at once, so that nothing is
 * computed that it will forget. */
static avo_status turn_ring(generation *g) {
    const avo_session *session = g->session;
    g->prompt_count = g->token_count;
    if (session->ring_window == 0 || g->prompt_count <= session->ring_window - session->count)
        return AVO_OK;
    AVO_TRY(from_batch(g, batch_check_tokens(g->batch, g->tokens, g->token_count)));
    session_append(g->session, g->tokens, g->token_count);
    g->prompt_count = 0;
    return AVO_OK;
}

static avo_status generation_open(generation *g) {
    const avo_allocator *allocator = g->engine->allocator;
    const avo_request *request = &g->request;
    AVO_TRY(avo_batch_open(g->engine, &g->batch, g->error));
    AVO_TRY(
        sampler_open(&g->sampling, g->engine->view.vocabulary, allocator, &g->sampler, g->error));
    if (request->grammar != NULL) {
        AVO_TRY(grammar_matcher_open(request->grammar, request->stop_tokens,
                                     request->stop_token_count, allocator, &g->matcher, g->error));
        sampler_constrain(g->sampler);
    }
    batch_want(g->batch, g->sampler);
    if (buffer_reserve(&g->text_room, ANSWER_TEXT_FIRST) != AVO_OK)
        return status_no_memory(g->error, "text", ANSWER_TEXT_FIRST);
    AVO_TRY(answer_text_open(&g->text, g->engine->model, request->stop, request->stop_count,
                             &g->text_room, allocator, g->error));
    AVO_TRY(turn_ring(g));
    sampler_see_prompt(g->sampler, g->session->tokens, g->session->count);
    sampler_see_prompt(g->sampler, g->tokens, g->prompt_count);
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
    answer_text_close(&g->text);
    buffer_free(&g->text_room);
    id_list_free(&g->encoded);
    grammar_matcher_close(g->matcher);
    sampler_close(g->sampler);
    avo_batch_close(g->batch);
}

static avo_status take_request(generation *g, const avo_request *request) {
    AVO_TRY(request_take(request, NULL, &g->request, &g->sampling, g->error));
    g->limits = (answer_limits){
        .model = g->engine->model,
        .stop_tokens = g->request.stop_tokens,
        .stop_token_count = g->request.stop_token_count,
        .ignore_end = g->request.ignore_end,
        .max_new_tokens = g->request.max_new_tokens,
        .context_max = g->session->ring_window > 0 ? UINT32_MAX : g->engine->plan.context_max};
    return AVO_OK;
}

static void measure(generation *g) {
    uint64_t end_ns = clock_now_ns();
    g->result.prompt_tokens = (uint32_t)g->token_count;
    g->result.new_tokens = g->drawn;
    g->result.total_seconds = clock_seconds(g->begin_ns, end_ns);
    if (g->prefill_ns > 0)
        g->result.prefill_seconds = clock_seconds(g->begin_ns, g->prefill_ns);
    if (g->first_ns > 0) {
        g->result.first_token_seconds = clock_seconds(g->begin_ns, g->first_ns);
        g->result.decode_seconds = clock_seconds(g->first_ns, end_ns);
    }
}

avo_status avo_generate(avo_engine *engine, avo_session *session, const avo_request *request,
                        avo_result *result, avo_error *error) {
    generation g = {.engine = engine,
                    .session = session,
                    .begin_ns = clock_now_ns(),
                    .result = AVO_RESULT_INIT,
                    .error = error};
    buffer_init(&g.text_room, engine->allocator, ANSWER_TEXT_MAX);
    id_list_init(&g.encoded, engine->allocator);
    float_mode mode;
    float_mode_enter(&mode);
    avo_status status = take_request(&g, request);
    if (status == AVO_OK)
        status = check_request(&g);
    answer_notes_begin(&g.notes, session, g.token_count);
    if (status == AVO_OK)
        status = generation_run(&g);
    measure(&g);
    answer_notes_end(&g.notes, g.result.finish, status != AVO_OK);
    generation_close(&g);
    float_mode_leave(&mode);
    if (result != NULL)
        options_give(result, &g.result, sizeof(g.result));
    return status;
}
