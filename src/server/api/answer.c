/* Submission, events, ends. */
#include "server/api/answer.h"

#include "base/clock.h"
#include "base/value.h"
#include "engine/request.h"
#include "server/api/helpers.h"
#include "server/keys.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define ROOM_TICK_NS 5000000 /* between two questions whether there is room */

/* ---- References ---- */

static void choice_close(choice *c) {
    buffer_free(&c->text);
    buffer_free(&c->reasoning);
    buffer_free(&c->prompt_entries);
    for (size_t i = 0; i < 4; i++)
        buffer_free(&c->entries[i]);
    chat_parser_close(c->parser);
}

static void answer_release(answer *a) {
    if (atomic_fetch_sub(&a->references, 1) != 1)
        return;
    for (uint32_t i = 0; i < a->choice_count; i++)
        choice_close(&a->choices[i]);
    free(a->choices);
    free(a->segments);
    buffer_free(&a->entries);
    buffer_free(&a->out);
    api_request_free(a->request);
    exchange_release(a->exchange);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* ---- Clients that go ---- */

static void cancel_all(answer *a) {
    for (uint32_t i = 0; i < a->choice_count; i++) {
        unsigned long long number = atomic_load(&a->choices[i].number);
        if (number != 0)
            (void)avo_scheduler_cancel(a->api->scheduler, number);
    }
}

/* Where the client is still there its requests end as cancelled, and that is told (on_finished). */
static void on_gone(void *context) {
    answer *a = context;
    if (exchange_gone(a->exchange))
        atomic_store(&a->gone, true);
    cancel_all(a);
}

/* ---- Ends ---- */

static void tell_usage(answer *a) {
    answer_usage usage = usage_of(a);
    exchange_usage told = {.model = a->request->model,
                           .prompt_tokens = (uint32_t)usage.prompt_tokens,
                           .reused_tokens = (uint32_t)usage.cached_tokens,
                           .new_tokens = (uint32_t)usage.new_tokens,
                           .queue_seconds = usage.queue_seconds,
                           .first_token_seconds = usage.first_token_seconds};
    exchange_set_usage(a->exchange, &told);
}

static void send_fault(answer *a) {
    api_fault *fault = &a->fault;
    if (a->streaming) {
        a->out.size = 0;
        exchange_set_failed(a->exchange, fault->status, fault->text);
        if (a->writer->error(a, fault, &a->out) == AVO_OK)
            (void)exchange_write(a->exchange, buffer_text(&a->out));
        exchange_end(a->exchange);
    } else if (a->retry_seconds > 0.0) {
        exchange_refuse(a->exchange, fault->status, a->retry_seconds, fault->text);
    } else {
        api_fail(a->exchange, fault);
    }
}

static bool is_late(const choice *c) {
    return c->result.finish == AVO_FINISH_DEADLINE && c->tokens_seen == 0;
}

/* Deadlines that passed before there was anything to tell. What other choices have is told; of a
 * list of embeddings none may miss. */
static void look_at_deadline(answer *a) {
    uint32_t late = 0;
    for (uint32_t i = 0; i < a->choice_count; i++)
        late += is_late(&a->choices[i]);
    bool nothing =
        late == a->choice_count || (late > 0 && a->request->submit.pooling != AVO_POOLING_NONE);
    if (nothing && a->fault.status == 0)
        (void)fault_set(&a->fault, 504,
                        a->request->submit.first_token_deadline > 0.0 ? "first_token_deadline_ms"
                                                                      : "deadline_ms",
                        "deadline_exceeded", "the deadline passed before the first token");
}

static avo_status close_choice(choice *c);

/* Every choice has its end, those too that had no time. */
static avo_status close_all(answer *a) {
    for (uint32_t i = 0; i < a->choice_count; i++)
        AVO_TRY(close_choice(&a->choices[i]));
    return AVO_OK;
}

static void finish_all(answer *a) {
    a->done = true;
    look_at_deadline(a);
    tell_usage(a);
    if (atomic_load(&a->gone) && a->fault.status == 0)
        (void)fault_set(&a->fault, 499, NULL, "client_gone", "the client closed the connection");
    if (a->fault.status == 0) {
        a->out.size = 0;
        avo_status status = close_all(a);
        if (!a->streaming)
            a->out.size = 0;
        if (status == AVO_OK)
            status = a->streaming ? a->writer->end(a, &a->out) : a->writer->whole(a, &a->out);
        if (status != AVO_OK)
            (void)fault_no_memory(&a->fault);
    }
    if (a->fault.status != 0) {
        send_fault(a);
    } else if (a->streaming) {
        (void)exchange_write(a->exchange, buffer_text(&a->out));
        exchange_end(a->exchange);
    } else {
        exchange_send(a->exchange, 200, "application/json", buffer_text(&a->out));
    }
}

/* The lock is held. The first fault is the one that is told; everything else is called off. */
static void answer_fail(answer *a) {
    for (uint32_t i = 0; i < a->choice_count; i++)
        if (a->choices[i].state == CHOICE_HELD) {
            a->choices[i].state = CHOICE_OVER;
            a->over++;
        }
    cancel_all(a);
}

/* ---- Submission ---- */

static bool on_event(void *context, const avo_event *event);

/* On a tokenizer thread of the scheduler, which has room for the request. */
static avo_status open_grammar(void *context, avo_grammar **grammar, avo_error *error) {
    answer *a = ((choice *)context)->answer;
    const chat_constraint *constraint = &a->request->constraint;
    avo_status status = chat_constraint_open(a->api->grammars, constraint, grammar, error);
    if (status == AVO_OK)
        return AVO_OK;
    pthread_mutex_lock(&a->lock);
    if (a->fault.status == 0 && status == AVO_ERROR_MEMORY)
        (void)fault_no_memory(&a->fault);
    else if (a->fault.status == 0)
        (void)fault_set(&a->fault, 400, constraint->param, "invalid_grammar", "%s", error->text);
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* What is left of a deadline, which counts from when the request came, for whichever of its
 * choices; false: it has passed. */
static bool time_left(const answer *a, double deadline, double *left) {
    *left = 0.0;
    if (deadline <= 0.0)
        return true;
    *left = deadline - clock_seconds(a->arrived_ns, clock_now_ns());
    return *left > 0.0;
}

typedef struct answer_deadlines {
    double first_token, whole;
} answer_deadlines;

static bool deadlines_hold(const answer *a, answer_deadlines *left) {
    double first = a->spoken ? 0.0 : a->request->submit.first_token_deadline;
    return time_left(a, first, &left->first_token) &&
           time_left(a, a->request->submit.deadline, &left->whole);
}

static avo_status submit(choice *c, answer_deadlines left, double *retry_seconds,
                         avo_error *error) {
    answer *a = c->answer;
    const api_request *r = a->request;
    avo_request request = r->submit;
    avo_sampling sampling = r->sampling;
    sampling.seed += c->index % r->best_of;
    request.sampling = &sampling;
    bool first = c->index % r->best_of == 0; /* whose prompt_logprobs the others have, too */
    request.prompt_logprobs = r->submit.prompt_logprobs && (first || (r->echo && r->logprobs));
    if (r->prompts == NULL) {
        request.chat = &r->chat;
    } else {
        const api_prompt *prompt = &r->prompts[c->prompt];
        request.tokens = prompt->tokens;
        request.token_count = prompt->token_count;
        request.text = prompt->text;
        request.text_flags = r->text_flags;
    }
    request.first_token_deadline = left.first_token;
    request.deadline = left.whole;
    if (r->constraint.param != NULL) {
        request.open_grammar = open_grammar;
        request.open_grammar_context = c;
    }
    request.on_event = on_event;
    request.on_event_context = c;
    uint64_t number = 0;
    AVO_TRY(avo_scheduler_submit(a->api->scheduler, &request, &number, retry_seconds, error));
    atomic_store(&c->number, number);
    if (atomic_load(&a->gone))
        (void)avo_scheduler_cancel(a->api->scheduler, number);
    return AVO_OK;
}

/* Choices of one prompt wait until the first has it computed and find its pages: four answers of
 * 32 tokens to 521 take 1.03 s, four requests at once 1.30 s (smollm2, two Zen 4 cores). */
static bool may_submit(const answer *a, const choice *c) {
    return c->state == CHOICE_HELD && (c->index % a->request->best_of == 0 ||
                                       a->choices[c->index - c->index % a->request->best_of].begun);
}

/* There is no time for it: it ends without having been begun. The lock is held. */
static void choice_miss(choice *c) {
    c->result.finish = AVO_FINISH_DEADLINE;
    c->state = CHOICE_OVER;
    c->begun = true; /* nobody waits for it */
    c->answer->over++;
}

static bool wait_for_room(answer *a);

/* The lock is held. What there is no room for waits for the end of another of ours; where all of
 * those have ended, for room: what was computed is not thrown away. A scheduler that is being
 * closed is full, too, but names no time to come again. */
static void pump(answer *a) {
    for (uint32_t i = 0; i < a->choice_count && a->fault.status == 0; i++) {
        choice *c = &a->choices[i];
        if (!may_submit(a, c))
            continue;
        if (a->in_flight >= API_IN_FLIGHT_MAX)
            return;
        if (atomic_load(&a->gone)) { /* those that wait for this one would wait for ever */
            answer_fail(a);
            return;
        }
        avo_error error = {0};
        double retry = 0.0;
        answer_deadlines left;
        if (!deadlines_hold(a, &left)) {
            choice_miss(c);
            continue;
        }
        avo_status status = submit(c, left, &retry, &error);
        if (status == AVO_OK) {
            c->state = CHOICE_SUBMITTED;
            a->in_flight++;
        } else if (status == AVO_ERROR_FULL &&
                   (a->in_flight > 0 || (a->over > 0 && retry > 0.0 && wait_for_room(a)))) {
            return;
        } else {
            fault_from_error(&a->fault, &error, body_prompt(a->request));
            a->retry_seconds = status == AVO_ERROR_FULL ? fmax(retry, 0.01) : 0.0;
            answer_fail(a);
        }
    }
}

/* ---- Events ---- */

static avo_status begin_stream(answer *a) {
    if (!a->request->stream || a->streaming)
        return AVO_OK;
    exchange_set_header(a->exchange, "Cache-Control", "no-cache");
    exchange_set_header(a->exchange, "X-Accel-Buffering", "no");
    exchange_stream(a->exchange, 200,
                    a->writer->stream_type != NULL ? a->writer->stream_type
                                                   : "text/event-stream; charset=utf-8");
    a->streaming = true;
    return a->writer->begin(a, &a->out);
}

static bool in_pieces(const answer *a) {
    return a->streaming || a->writer->in_order;
}

/* Where calls are looked for, entries wait for the text that they stand for: a token without one
 * may be part of a call. */
static avo_status add_text(choice *c, text_view text) {
    answer *a = c->answer;
    AVO_TRY(buffer_append(&c->text, text.data, text.size));
    if (!in_pieces(a))
        return AVO_OK;
    bool entries = c->entries[0].size > 0 && c->parser == NULL;
    if (text.size == 0 && !entries)
        return AVO_OK;
    AVO_TRY(a->writer->piece(a, c, text, &a->out));
    for (size_t i = 0; i < 4; i++)
        c->entries[i].size = 0;
    return AVO_OK;
}

/* What has come of calls since the last time: of the one that is being told, or of all. */
static avo_status tell_calls(choice *c, bool all) {
    answer *a = c->answer;
    size_t most = a->request->parallel_calls ? SIZE_MAX : 1;
    while (in_pieces(a) && (all || c->call_open) && c->calls_told < most) {
        const tool_call *call = choice_call(c, c->calls_told);
        if (call == NULL)
            return AVO_OK;
        if (!c->call_open)
            AVO_TRY(a->writer->call_begin(a, c, c->calls_told, call, &a->out));
        c->call_open = true;
        text_view more = {call->arguments.data + c->arguments_told,
                          call->arguments.size - c->arguments_told};
        if (more.size > 0)
            AVO_TRY(a->writer->call_piece(a, c, c->calls_told, more, &a->out));
        c->arguments_told = call->arguments.size;
        if (!call->complete)
            return AVO_OK;
        AVO_TRY(a->writer->call_end(a, c, c->calls_told, call, &a->out));
        c->calls_told++;
        c->call_open = false;
        c->arguments_told = 0;
    }
    return AVO_OK;
}

/* Reasoning comes first; text stands behind a call that was begun before it, and before those that
 * begin now. */
static avo_status tell(choice *c, chat_delta delta) {
    answer *a = c->answer;
    AVO_TRY(buffer_append(&c->reasoning, delta.reasoning.data, delta.reasoning.size));
    if (delta.reasoning.size > 0 && a->streaming)
        AVO_TRY(a->writer->reasoning(a, c, delta.reasoning, &a->out));
    AVO_TRY(tell_calls(c, false));
    AVO_TRY(add_text(c, delta.text));
    return tell_calls(c, true);
}

/* Text through the parser, where there is one. */
static avo_status take_text(choice *c, int32_t token, text_view text) {
    if (c->parser == NULL)
        return add_text(c, text);
    chat_delta delta;
    AVO_TRY(chat_parser_push(c->parser, token, text, &delta, NULL));
    c->reasoning_tokens +=
        token >= 0 && (delta.reasoning.size > 0 || chat_parser_reasons(c->parser));
    return tell(c, delta);
}

avo_status choice_prompt(const choice *c, uint32_t flags, buffer *text) {
    const answer *a = c->answer;
    const api_prompt *prompt = &a->request->prompts[c->prompt];
    if (prompt->text != NULL)
        return buffer_append_text(text, prompt->text);
    size_t bytes = 0;
    avo_status status = avo_detokenize(a->api->model, prompt->tokens, prompt->token_count, flags,
                                       NULL, 0, &bytes, NULL);
    if (bytes == 0)
        return status;
    AVO_TRY(buffer_reserve(text, bytes));
    return avo_detokenize(a->api->model, prompt->tokens, prompt->token_count, flags, text->data,
                          bytes, &text->size, NULL);
}

/* The prompt in front of the answer. */
static avo_status echo_prompt(choice *c) {
    if (!c->answer->request->echo || c->echoed)
        return AVO_OK;
    c->echoed = true;
    buffer text;
    buffer_init(&text, NULL, API_ANSWER_BYTES_MAX);
    avo_status status = choice_prompt(c, AVO_TOKENIZE_PLAIN, &text);
    if (status == AVO_OK)
        status = add_text(c, buffer_text(&text));
    buffer_free(&text);
    return status;
}

/* With as many alternatives as were asked for: prompt_logprobs may have asked for more. */
static avo_status tell_token(choice *c, const avo_token_event *token) {
    answer *a = c->answer;
    avo_token_event told = *token;
    if (told.top_count > a->request->told_tops)
        told.top_count = a->request->told_tops;
    return a->writer->token(a, c, &told);
}

static avo_status on_prompt(choice *c, const avo_token_event *token) {
    const api_request *r = c->answer->request;
    if (r->prompt_tops != PROMPT_TOPS_NONE && c->index % r->best_of == 0)
        AVO_TRY(write_prompt_entry(c, token));
    return r->logprobs && r->echo ? tell_token(c, token) : AVO_OK;
}

static avo_status on_token(choice *c, const avo_token_event *token) {
    answer *a = c->answer;
    a->spoken = true;
    AVO_TRY(begin_stream(a));
    AVO_TRY(echo_prompt(c));
    if (token->token >= 0) {
        c->tokens_seen++;
        if (isfinite(token->logprob))
            c->logprob_sum += (double)token->logprob;
        if (a->request->logprobs || a->writer->all_tokens)
            AVO_TRY(tell_token(c, token));
    }
    return take_text(c, token->token, (text_view){token->text, token->text_bytes});
}

static avo_status close_choice(choice *c) {
    answer *a = c->answer;
    if (c->closed || a->request->submit.pooling != AVO_POOLING_NONE)
        return AVO_OK;
    c->closed = true;
    AVO_TRY(begin_stream(a));
    AVO_TRY(echo_prompt(c));
    if (c->parser != NULL) {
        chat_delta rest;
        AVO_TRY(chat_parser_finish(c->parser, &rest, NULL));
        AVO_TRY(tell(c, rest));
    }
    return in_pieces(a) ? a->writer->finish(a, c, &a->out) : AVO_OK;
}

static avo_status on_finished(choice *c, const avo_result *result) {
    answer *a = c->answer;
    if (result->finish == AVO_FINISH_CANCELLED) {
        if (!atomic_load(&a->gone) && a->fault.status == 0)
            (void)fault_set(&a->fault, 503, NULL, "shutting_down", "the server is shutting down");
        return AVO_OK;
    }
    if (is_late(c) && !a->streaming) /* whether there will be a stream is not known yet */
        return AVO_OK;
    if (a->request->submit.pooling != AVO_POOLING_NONE)
        return a->writer->vector(a, c, result);
    return close_choice(c);
}

static avo_status take_event(choice *c, const avo_event *event) {
    answer *a = c->answer;
    switch (event->kind) {
    case AVO_EVENT_PROMPT:
        return on_prompt(c, event->token);
    case AVO_EVENT_TOKEN:
        return on_token(c, event->token);
    case AVO_EVENT_FINISHED:
        return on_finished(c, event->result);
    case AVO_EVENT_FAILED:
        if (event->error->status == AVO_ERROR_DEADLINE) {
            c->result.finish = AVO_FINISH_DEADLINE;
            return a->streaming ? close_choice(c) : AVO_OK;
        }
        if (a->fault.status == 0)
            fault_from_error(&a->fault, event->error, body_prompt(a->request));
        break;
    case AVO_EVENT_PREFILL: /* avo_generate's alone */
        break;
    }
    return AVO_OK;
}

static bool on_event(void *context, const avo_event *event) {
    choice *c = context;
    answer *a = c->answer;
    bool last = event->kind == AVO_EVENT_FINISHED || event->kind == AVO_EVENT_FAILED;
    pthread_mutex_lock(&a->lock);
    a->out.size = 0;
    if (event->kind == AVO_EVENT_FINISHED) { /* counts, whether anybody still reads it or not */
        c->result = *event->result;
        c->result.embedding = NULL;
        c->result.stop_string = NULL;
    }
    bool sound = a->fault.status == 0 && !atomic_load(&a->gone);
    if (sound && take_event(c, event) != AVO_OK && a->fault.status == 0)
        (void)fault_no_memory(&a->fault);
    if (a->streaming && a->out.size > 0 && sound && a->fault.status == 0 &&
        !exchange_write(a->exchange, buffer_text(&a->out)))
        atomic_store(&a->gone, true);
    if (a->fault.status != 0 || atomic_load(&a->gone))
        answer_fail(a);
    bool fresh = !c->begun && event->kind != AVO_EVENT_PROMPT;
    c->begun = c->begun || fresh;
    if (last) {
        c->state = CHOICE_OVER;
        atomic_store(&c->number, 0);
        a->over++;
        a->in_flight--;
    }
    if (last || (fresh && a->request->best_of > 1))
        pump(a);
    bool finished = a->over == a->choice_count && !a->done;
    if (finished)
        finish_all(a);
    bool go_on = a->fault.status == 0 && !atomic_load(&a->gone);
    pthread_mutex_unlock(&a->lock);
    if (finished)
        answer_release(a);
    return go_on;
}

/* ---- Room ---- */

/* True: that was the end. */
static bool ask_again(answer *a) {
    pthread_mutex_lock(&a->lock);
    a->waits = false;
    a->out.size = 0;
    pump(a);
    bool finished = a->over == a->choice_count && !a->done;
    if (finished)
        finish_all(a);
    pthread_mutex_unlock(&a->lock);
    return finished;
}

/* Until nobody waits any more. */
static void *room_main(void *context) {
    api *api = context;
    const struct timespec tick = {0, ROOM_TICK_NS};
    for (;;) {
        nanosleep(&tick, NULL);
        pthread_mutex_lock(&api->lock);
        answer *list = api->room_first;
        api->room_first = NULL;
        if (list == NULL) {
            api->room_runs = false;
            pthread_cond_broadcast(&api->idle);
        }
        pthread_mutex_unlock(&api->lock);
        if (list == NULL)
            return NULL;
        while (list != NULL) {
            answer *a = list;
            list = a->room_next;
            if (ask_again(a))
                answer_release(a);
            answer_release(a);
        }
    }
}

/* The answer's lock is held. False: nobody could ask again, or there will be no room. */
static bool wait_for_room(answer *a) {
    api *api = a->api;
    if (a->waits)
        return true;
    if (api->host.draining(api->host.context))
        return false;
    pthread_mutex_lock(&api->lock);
    if (!api->room_runs)
        api->room_runs = thread_start(room_main, api);
    bool waits = api->room_runs;
    if (waits) {
        a->waits = true;
        atomic_fetch_add(&a->references, 1);
        a->room_next = api->room_first;
        api->room_first = a;
    }
    pthread_mutex_unlock(&api->lock);
    return waits;
}

/* ---- Start ---- */

static bool open_choice(answer *a, uint32_t index) {
    choice *c = &a->choices[index];
    const api_request *r = a->request;
    c->answer = a;
    c->index = index;
    c->prompt = index / r->best_of;
    atomic_init(&c->number, 0);
    buffer_init(&c->text, NULL, API_ANSWER_BYTES_MAX);
    buffer_init(&c->reasoning, NULL, API_ANSWER_BYTES_MAX);
    buffer_init(&c->prompt_entries, NULL, API_ANSWER_BYTES_MAX);
    for (size_t i = 0; i < 4; i++)
        buffer_init(&c->entries[i], NULL, API_ANSWER_BYTES_MAX);
    chat_parser_options parsing = {.calls = r->calls,
                                   .reasoning = r->reasoning,
                                   .tools = r->tools == NULL ? NULL : value_tree(r->tools),
                                   .eager = r->stream || a->writer->in_order,
                                   .only = r->only_opener};
    return (!r->calls && !r->reasoning) ||
           chat_parser_open(a->api->format, &parsing, &c->parser, NULL) == AVO_OK;
}

static answer *answer_open(api *api, exchange *exchange, api_request *r,
                           const answer_writer *writer) {
    size_t count = r->prompt_count * r->best_of;
    answer *a = calloc(1, sizeof(*a));
    choice *choices = calloc(count, sizeof(*choices));
    if (a == NULL || choices == NULL) {
        free(a);
        free(choices);
        api_request_free(r);
        return NULL;
    }
    a->api = api;
    a->exchange = exchange_share(exchange);
    a->request = r;
    a->writer = writer;
    a->choices = choices;
    atomic_init(&a->references, 2); /* whoever starts it, and whoever ends it */
    atomic_init(&a->gone, false);
    pthread_mutex_init(&a->lock, NULL);
    buffer_init(&a->out, NULL, API_ANSWER_BYTES_MAX);
    buffer_init(&a->entries, NULL, API_ANSWER_BYTES_MAX);
    if (writer->in_order)
        a->segments = calloc(SEGMENTS_MAX, sizeof(*a->segments));
    a->created = api_now();
    a->arrived_ns = exchange_asked(exchange)->arrived_ns;
    if (a->arrived_ns == 0)
        a->arrived_ns = clock_now_ns();
    a->number = api_random(api);
    api_make_id(api, writer->id_prefix, a->id, sizeof(a->id));
    bool good = !writer->in_order || a->segments != NULL;
    for (; good && a->choice_count < count; a->choice_count++)
        good = open_choice(a, a->choice_count);
    if (good)
        return a;
    answer_release(a);
    answer_release(a);
    return NULL;
}

static void log_prompt(exchange *exchange, const api_request *r) {
    const char *text = NULL;
    if (r->chat.variables != NULL)
        text = r->last_text;
    else if (r->prompt_count > 0)
        text = r->prompts[0].text;
    if (text != NULL)
        exchange_set_prompt(exchange, text_from(text));
}

static void answer_start(api *api, exchange *exchange, api_request *r,
                         const answer_writer *writer) {
    log_prompt(exchange, r);
    answer *a = answer_open(api, exchange, r, writer);
    if (a == NULL) {
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
        return;
    }
    exchange_on_gone(exchange, on_gone, a);
    pthread_mutex_lock(&a->lock);
    pump(a);
    bool finished = a->over == a->choice_count && !a->done;
    if (finished)
        finish_all(a);
    pthread_mutex_unlock(&a->lock);
    if (finished)
        answer_release(a);
    answer_release(a);
}

void answer_request(api *api, exchange *exchange, api_request *r, const answer_writer *writer) {
    if (exchange_asked(exchange)->background)
        r->submit.priority = REQUEST_PRIORITY_MAX;
    answer_start(api, exchange, r, writer);
}

void answer_body(api *api, exchange *exchange, api_body body, const answer_writer *writer) {
    const exchange_request *asked = exchange_asked(exchange);
    api_request *r = NULL;
    api_fault fault = {0};
    if (!api_request_read(api, body, asked->key, asked->body, &r, &fault)) {
        api_fail(exchange, &fault);
        return;
    }
    answer_request(api, exchange, r, writer);
}
