/* avo_generate: prefill in chunks, then steps of one sequence, told token by token. */
#include "engine/draft_notes.h"
#include "engine/drafting.h"
#include "engine/engine_int.h"
#include "engine/request.h"
#include "engine/sequence.h"

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "spec/choose.h"

typedef struct generate_call {
    avo_engine *engine;
    avo_session *session;
    avo_request request;
    avo_sampling sampling;
    id_list encoded; /* the prompt's tokens, where it is text or messages */
    const int32_t *tokens;
    size_t token_count;
    avo_batch *batch;
    sequence sequence;
    drafter *drafter; /* NULL: no drafts */
    /* Of the step that is being drawn from: its drafts, and the tokens drawn before it. */
    const int32_t *drafts;
    uint32_t draft_count, drawn_before;
    sequence_text text;
    buffer text_buffer, stop_buffer;
    char held[STOP_STRING_BYTES_MAX]; /* text that may become a stop string */
    size_t prompt_count; /* tokens of the request that are not part of the timeline already */
    uint64_t begin_ns, prefill_ns, first_ns;
    uint64_t stage_ns; /* when drawing the next token began */
    avo_result result;
    answer_notes notes;
    draft_note note;   /* of the step at hand, where the engine is observed */
    avo_status status; /* of a token's text */
    avo_error *error;
} generate_call;

static avo_status from_batch(const generate_call *g, avo_status status) {
    if (status == AVO_OK)
        return status;
    return status_fail(g->error, status, "%s", avo_batch_error(g->batch)->text);
}

/* ---- Prefill ---- */

/* The next chunk of the prompt, behind whatever the timeline still owes. */
static avo_status prefill_chunk(generate_call *g, size_t done, size_t *count) {
    size_t owed = g->session->count - g->session->computed;
    size_t left = g->prompt_count - done;
    size_t room = owed < g->engine->plan.rows_max ? g->engine->plan.rows_max - owed : 0;
    *count = left < room ? left : room;
    avo_batch_clear(g->batch);
    AVO_TRY(from_batch(g, avo_batch_add_scored(g->batch, g->session, g->tokens + done, *count,
                                               *count == left ? 1 : 0)));
    return from_batch(g, avo_step(g->engine, g->batch));
}

static bool tell_prefill(const generate_call *g, uint64_t done, uint64_t total) {
    avo_event event = {
        .size = sizeof(event), .kind = AVO_EVENT_PREFILL, .done = done, .total = total};
    return g->request.on_event == NULL || g->request.on_event(g->request.on_event_context, &event);
}

/* Without the tokens of the timeline that only a ring can owe: more than a step has rows. */
static avo_status catch_up(generate_call *g, bool *more) {
    const avo_session *session = g->session;
    while (*more && session->count - session->computed > g->engine->plan.rows_max) {
        AVO_TRY(session_catch_up(g->session, UINT32_MAX, g->error));
        *more = tell_prefill(g, session->computed, session->count);
    }
    return AVO_OK;
}

/* False in `more` when the caller wants no more. */
static avo_status prefill(generate_call *g, bool *more) {
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

/* ---- Decoding ---- */

static bool tell(const generate_call *g, const sample_choice *choice, text_view text,
                 bool drafted) {
    if (g->request.on_event == NULL)
        return true;
    avo_token_event token = {.token = choice->token,
                             .index = g->sequence.drawn - 1,
                             .text = text.size == 0 ? "" : text.data,
                             .text_bytes = text.size,
                             .logprob = choice->logprob,
                             .top = choice->top,
                             .top_count = choice->top_count,
                             .drafted = drafted};
    avo_event event = {.size = sizeof(event), .kind = AVO_EVENT_TOKEN, .token = &token};
    return g->request.on_event(g->request.on_event_context, &event);
}

/* Whether the token just drawn was the draft for its row. */
static bool was_drafted(const generate_call *g, int32_t token) {
    uint32_t row = g->sequence.drawn - 1 - g->drawn_before;
    return row < g->draft_count && g->drafts[row] == token;
}

/* A token was accepted: its text goes to the listener. */
static bool take_token(void *context, const sample_choice *choice, uint32_t released) {
    generate_call *g = context;
    text_view text;
    answer_notes_stage(&g->notes, SPAN_SAMPLE, g->stage_ns);
    answer_notes_token(&g->notes);
    uint64_t begin = clock_now_ns();
    if (g->first_ns == 0)
        g->first_ns = begin;
    bool ends = sequence_stops_at(&g->sequence, choice->token);
    g->status = sequence_text_push(&g->text, choice->token, ends, released, &text, g->error);
    bool more = g->status == AVO_OK && tell(g, choice, text, was_drafted(g, choice->token));
    answer_notes_stage(&g->notes, SPAN_DELIVER, begin);
    g->stage_ns = clock_now_ns();
    return more;
}

/* Draws from the step just done, which verifies `count` drafts. */
static avo_status accept(generate_call *g, const int32_t *drafts, uint32_t count, bool *finished) {
    sequence_step step = {.batch = g->batch,
                          .drafts = drafts,
                          .draft_count = count,
                          .take = take_token,
                          .context = g,
                          .policy = g->engine->draft_policy};
    sequence_outcome outcome;
    g->stage_ns = clock_now_ns();
    g->drafts = drafts;
    g->draft_count = count;
    g->drawn_before = g->sequence.drawn;
    AVO_TRY(sequence_accept(&g->sequence, &step, &outcome, g->error));
    *finished = outcome.finished;
    g->result.drafted_tokens += count;
    g->result.accepted_tokens += outcome.accepted - 1;
    telemetry_drafts_add(g->notes.telemetry, count, outcome.accepted - 1);
    if (g->drafter != NULL)
        drafter_verified(g->drafter, count, outcome.accepted - 1);
    return g->status;
}

/* Text that was held back comes in events of its own, with token −1. */
static void show_rest(void *context, text_view text) {
    const sample_choice none = {.token = -1};
    (void)tell(context, &none, text, false);
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Drafts that the next step has room for: rows and logits, places in the timeline before its end or
 * before a ring turns, and tokens that the answer may still have behind the one that is sampled
 * anyway. */
static uint32_t drafts_max(const generate_call *g) {
    const engine_plan *plan = &g->engine->plan;
    const avo_session *session = g->session;
    uint32_t end = session->ring_window > 0 ? session->ring_window : plan->context_max;
    uint32_t most = smaller(DRAFTS_MAX, end - session->count);
    most = smaller(most, smaller(plan->rows_max, plan->logits_max) - 1);
    if (g->request.max_new_tokens > 0)
        most = smaller(most, g->request.max_new_tokens - g->sequence.drawn - 1);
    return most;
}

/* The step that computes what the timeline owes, without drafts. */
static step_load plain_load(const generate_call *g) {
    return (step_load){.decode_rows = 1,
                       .adapters = g->session->adapter_count,
                       .context_tokens = g->session->count};
}

/* Drafts for the next step: those that are worth their rows. */
static void propose(const generate_call *g, draft *draft) {
    const avo_session *session = g->session;
    draft->count = 0;
    if (g->drafter == NULL || session->count - session->computed != 1)
        return;
    step_load load = plain_load(g);
    draft_request request = {
        .sequence = &g->sequence,
        .drafter = g->drafter,
        .timeline = {session->tokens, session->count, session->count + session->forgotten},
        .most = drafts_max(g),
        .draft = draft};
    step_load more = load;
    more.draft_rows++;
    double plain_ns = step_cost_of(&g->engine->cost, &load);
    choose_limits limits = {.rows = request.most, .tokens = 1.0};
    draft_time time = {.token_ns = plain_ns,
                       .row_ns = step_cost_of(&g->engine->cost, &more) - plain_ns,
                       .hopeless = !choose_may_pay(&limits, &g->engine->cost, &load)};
    draft_sources sources = engine_drafts(g->engine);
    if (session->ring_window > 0)
        sources = (draft_sources){NULL, NULL};
    drafting_propose(&sources, &request, 1, &time);
    choose_item item = {.survival = draft->survival,
                        .most = draft->count,
                        .context = session->count,
                        .always = draft->always};
    limits.rows = draft->count;
    choose_drafts(&item, 1, &limits, &g->engine->cost, &load);
    draft->count = item.chosen;
}

/* A step that lacks pages for its drafts is made without them. */
static avo_status add_rows(generate_call *g, const int32_t *drafts, uint32_t *count) {
    avo_batch_clear(g->batch);
    avo_status status = engine_batch_add_drafts(g->batch, g->session, drafts, *count, *count);
    if (status == AVO_ERROR_FULL && *count > 0) {
        *count = 0;
        return add_rows(g, drafts, count);
    }
    return from_batch(g, status);
}

/* One step, and what it teaches about the cost of steps. */
static avo_status decode_step(generate_call *g, const draft *draft, uint32_t *count) {
    step_load load = plain_load(g);
    for (uint32_t i = 0; i < *count; i++)
        choose_load(&load, g->session->count, i);
    uint32_t planned = *count;
    AVO_TRY(add_rows(g, draft->tokens, count));
    uint64_t begin = clock_now_ns();
    AVO_TRY(from_batch(g, avo_step(g->engine, g->batch)));
    uint64_t taken = clock_now_ns() - begin;
    if (g->engine->draft_observer != NULL)
        g->note = (draft_note){.kind = draft->kind,
                               .drafted = *count,
                               .rows = *count + 1,
                               .context = g->session->count,
                               .predicted_ns = step_cost_of(&g->engine->cost, &load),
                               .verify_ns = taken};
    if (g->engine->speculation == NULL || *count != planned)
        return AVO_OK;
    step_cost_learn(&g->engine->cost, &load, (double)taken);
    step_cost_hope(&g->engine->cost, step_load_rows(&load));
    return AVO_OK;
}

/* When a part of a step begins or ends; 0: nobody asks. */
static uint64_t note_time(const generate_call *g) {
    return g->engine->draft_observer != NULL ? clock_now_ns() : 0;
}

static void note_step(generate_call *g, uint64_t begin_ns, uint64_t drafted_ns, uint32_t accepted) {
    const draft_observer *observer = g->engine->draft_observer;
    if (observer == NULL)
        return;
    g->note.accepted = accepted;
    g->note.draft_ns = drafted_ns - begin_ns;
    g->note.host_ns = clock_now_ns() - drafted_ns - g->note.verify_ns;
    observer->step(observer->context, &g->note);
}

/* As much of the answer as is left of it in the timeline, and some of the prompt. */
static void learn_answer(const generate_call *g) {
    const avo_session *session = g->session;
    uint32_t count =
        smaller(g->sequence.drawn + DRAFT_PROMPT_TOKENS, session->count - session->ring_keep);
    if (g->drafter != NULL)
        drafter_learn(g->drafter, session->tokens + session->count - count, count);
}

static avo_status decode_tokens(generate_call *g) {
    bool finished = false;
    draft draft = {.count = 0};
    AVO_TRY(accept(g, NULL, 0, &finished));
    while (!finished) {
        uint64_t begin = note_time(g);
        uint32_t before = g->result.accepted_tokens;
        propose(g, &draft);
        uint64_t drafted = note_time(g);
        uint32_t count = draft.count;
        AVO_TRY(decode_step(g, &draft, &count));
        AVO_TRY(accept(g, draft.tokens, count, &finished));
        note_step(g, begin, drafted, g->result.accepted_tokens - before);
    }
    learn_answer(g);
    g->result.finish = g->sequence.finish;
    AVO_TRY(sequence_text_finish(&g->text, g->sequence.stops, &g->result.finish, show_rest, g,
                                 g->error));
    sequence_name_stop(&g->sequence, &g->result);
    if (g->result.finish == AVO_FINISH_STOP_STRING)
        g->result.stop_string = g->request.stop[g->result.stop_index];
    return AVO_OK;
}

/* ---- The whole ---- */

/* The prompt's tokens, where there is a prompt. */
static avo_status take_prompt(generate_call *g, bool has_prompt) {
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

static avo_status check_request(generate_call *g) {
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
        return status_fail(
            g->error, AVO_ERROR_CONTEXT,
            "the prompt needs %llu tokens including one for the answer, the context is %u",
            (unsigned long long)needed, g->engine->plan.context_max);
    return AVO_OK;
}

/* A prompt for which the ring turns becomes part of the timeline at once, so that nothing is
 * computed that it will forget. */
static avo_status turn_ring(generate_call *g) {
    const avo_session *session = g->session;
    g->prompt_count = g->token_count;
    if (session->ring_window == 0 || g->prompt_count <= session->ring_window - session->count)
        return AVO_OK;
    AVO_TRY(from_batch(g, batch_check_tokens(g->batch, g->tokens, g->token_count)));
    session_append(g->session, g->tokens, g->token_count);
    g->prompt_count = 0;
    return AVO_OK;
}

static avo_status open_sequence(generate_call *g) {
    avo_engine *engine = g->engine;
    bool ring = g->session->ring_window > 0;
    sequence_options options = {.model = engine->model,
                                .allocator = engine->allocator,
                                .request = &g->request,
                                .sampling = &g->sampling,
                                .context_max = ring ? UINT32_MAX : engine->plan.context_max,
                                .text_buffer = &g->stop_buffer};
    bool stops = g->request.stop_count > 0;
    if (buffer_reserve(&g->text_buffer, SEQUENCE_TEXT_FIRST) != AVO_OK ||
        (stops && buffer_reserve(&g->stop_buffer, SEQUENCE_TEXT_FIRST) != AVO_OK))
        return status_no_memory(g->error, "text", SEQUENCE_TEXT_FIRST);
    sequence_text_open(&g->text, engine->model, &g->text_buffer, stops ? g->held : NULL);
    return sequence_open(&g->sequence, &options, g->error);
}

static avo_status call_open(generate_call *g) {
    AVO_TRY(avo_batch_open(g->engine, &g->batch, g->error));
    AVO_TRY(open_sequence(g));
    AVO_TRY(sequence_begin(&g->sequence, g->session, g->session->tokens, 0, g->error));
    draft_sources sources = engine_drafts(g->engine);
    g->drafter =
        drafting_take(g->engine->speculation, &sources, &g->request, &g->sampling, g->session);
    AVO_TRY(turn_ring(g)); /* the last thing that can fail: it changes the session */
    sequence_see_prompt(&g->sequence, g->session->tokens, g->session->count);
    sequence_see_prompt(&g->sequence, g->tokens, g->prompt_count);
    sequence_want(&g->sequence, g->batch);
    g->batch->whole = g->batch->whole || g->engine->draft_policy != NULL;
    return AVO_OK;
}

static avo_status call_run(generate_call *g) {
    AVO_TRY(call_open(g));
    bool more;
    AVO_TRY(prefill(g, &more));
    g->prefill_ns = clock_now_ns();
    return more ? decode_tokens(g) : AVO_OK;
}

static void call_close(generate_call *g) {
    draft_sources sources = engine_drafts(g->engine);
    drafting_give(&sources, g->drafter);
    sequence_close(&g->sequence);
    buffer_free(&g->text_buffer);
    buffer_free(&g->stop_buffer);
    id_list_free(&g->encoded);
    avo_batch_close(g->batch);
}

static void measure(generate_call *g) {
    uint64_t end_ns = clock_now_ns();
    g->result.prompt_tokens = (uint32_t)g->token_count;
    g->result.new_tokens = g->sequence.drawn;
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
    generate_call g = {.engine = engine,
                       .session = session,
                       .begin_ns = clock_now_ns(),
                       .result = AVO_RESULT_INIT,
                       .error = error};
    buffer_init(&g.text_buffer, engine->allocator, SEQUENCE_TEXT_MAX);
    buffer_init(&g.stop_buffer, engine->allocator, SEQUENCE_TEXT_MAX);
    id_list_init(&g.encoded, engine->allocator);
    float_mode mode;
    float_mode_enter(&mode);
    avo_status status = request_take(request, NULL, &g.request, &g.sampling, error);
    if (status == AVO_OK)
        status = check_request(&g);
    answer_notes_begin(&g.notes, session, g.token_count);
    if (status == AVO_OK)
        status = call_run(&g);
    measure(&g);
    answer_notes_end(&g.notes, g.result.finish, status != AVO_OK);
    call_close(&g);
    float_mode_leave(&mode);
    if (result != NULL)
        options_give(result, &g.result, sizeof(g.result));
    return status;
}
