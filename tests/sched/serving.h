/* A tiny model, an engine with a scheduler and another engine to compare with: every request of a
 * test is also generated alone, and what the scheduler's listener sees must be the same bytes. */
#ifndef AVO_TESTS_SCHED_SERVING_H
#define AVO_TESTS_SCHED_SERVING_H

#include "support/heads.h"
#include "support/support.h"

#include "base/random.h"
#include "engine/engine.h"
#include "sched/scheduler_int.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__)
#define FEWER(count) ((count) / 3)
#else
#define FEWER(count) (count)
#endif

#define EVENTS_MAX    256
#define PROMPT_MAX    96
#define EMBEDDING_MAX 128

/* ---- What a listener sees ---- */

typedef struct seen_token {
    int32_t token;
    uint32_t index;
    float logprob;
    uint32_t top_count;
    avo_logprob top[3];
    size_t text_bytes;
    char text[24];
} seen_token;

typedef struct seen {
    seen_token event[EVENTS_MAX];
    size_t count;
    uint32_t tokens;       /* with an id */
    uint32_t refuse_after; /* the listener says no with this many tokens; 0: never */
    avo_finish finish;
    uint32_t prompt_tokens, new_tokens;
    bool takes_prompt; /* it may be told of the prompt's tokens */
    seen_token prompt[PROMPT_MAX];
    size_t prompt_count, refuse_prompt_after;
    size_t prompt_from; /* index of the first that it is told of */
    float embedding[EMBEDDING_MAX];
    uint32_t embedding_width; /* 0: there was none */
    atomic_int prompt_now;
    /* Of the scheduler: */
    avo_result result;
    char stop[24]; /* the stop string */
    avo_error error;
    atomic_int ended; /* last events */
    atomic_int tokens_now;
} seen;

static inline void keep_token(seen_token *to, const avo_token_event *event) {
    memset(to, 0, sizeof(*to));
    to->token = event->token;
    to->index = event->index;
    to->logprob = event->token < 0 ? 0.0f : event->logprob;
    to->top_count = event->token < 0 ? 0 : event->top_count;
    for (uint32_t i = 0; i < to->top_count && i < 3; i++)
        to->top[i] = event->top[i];
    to->text_bytes = event->text_bytes;
    memcpy(to->text, event->text, event->text_bytes < 24 ? event->text_bytes : 24);
}

static inline bool see_token(seen *seen, const avo_token_event *event) {
    assert_true(seen->count < EVENTS_MAX);
    keep_token(&seen->event[seen->count++], event);
    seen->tokens += event->token >= 0;
    atomic_store(&seen->tokens_now, (int)seen->tokens);
    return seen->refuse_after == 0 || seen->tokens < seen->refuse_after;
}

/* The string that is named lives for the call alone. */
static inline void see_stop(seen *seen) {
    const avo_result *result = &seen->result;
    bool string = result->finish == AVO_FINISH_STOP_STRING;
    assert_true(string == (result->stop_string != NULL));
    assert_true(!string || result->stop_index >= 0);
    assert_true(result->stop_index < 0 || string || result->finish == AVO_FINISH_STOP_TOKEN);
    assert_true(result->stop_token < 0 || result->finish == AVO_FINISH_STOP_TOKEN);
    if (result->stop_string != NULL)
        snprintf(seen->stop, sizeof(seen->stop), "%s", result->stop_string);
    seen->result.stop_string = NULL;
}

/* In order, before the first token of the answer. */
static inline bool see_prompt(seen *seen, const avo_token_event *event) {
    assert_true(seen->prompt_count < PROMPT_MAX &&
                event->index == seen->prompt_from + seen->prompt_count);
    keep_token(&seen->prompt[seen->prompt_count++], event);
    atomic_store(&seen->prompt_now, (int)seen->prompt_count);
    return seen->refuse_prompt_after == 0 || seen->prompt_count < seen->refuse_prompt_after;
}

static inline bool on_event(void *context, const avo_event *event) {
    seen *seen = context;
    assert_int_equal(atomic_load(&seen->ended), 0);
    switch (event->kind) {
    case AVO_EVENT_TOKEN:
        return see_token(seen, event->token);
    case AVO_EVENT_PROMPT:
        assert_true(seen->takes_prompt && seen->count == 0);
        return see_prompt(seen, event->token);
    case AVO_EVENT_FINISHED:
        seen->result = *event->result;
        see_stop(seen);
        seen->embedding_width = event->result->embedding_width;
        assert_true(seen->embedding_width <= EMBEDDING_MAX);
        if (seen->embedding_width > 0)
            memcpy(seen->embedding, event->result->embedding,
                   seen->embedding_width * sizeof(float));
        seen->finish = event->result->finish;
        seen->prompt_tokens = event->result->prompt_tokens;
        seen->new_tokens = event->result->new_tokens;
        break;
    case AVO_EVENT_FAILED:
        seen->error = *event->error;
        break;
    case AVO_EVENT_PREFILL:
        fail_msg("a scheduler tells of a chunk");
    }
    atomic_fetch_add(&seen->ended, 1);
    return true;
}

static inline bool on_event_alone(void *context, const avo_event *event) {
    assert_true(event->kind == AVO_EVENT_TOKEN || event->kind == AVO_EVENT_PREFILL);
    return event->kind == AVO_EVENT_PREFILL || see_token(context, event->token);
}

/* The first `count` events are the same. */
static inline void same_events(const seen *a, const seen *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a->event[i], &b->event[i], sizeof(seen_token)) != 0)
            fail_msg("event %zu: token %d \"%.*s\" %a here, %d \"%.*s\" %a alone", i,
                     a->event[i].token, (int)a->event[i].text_bytes, a->event[i].text,
                     (double)a->event[i].logprob, b->event[i].token, (int)b->event[i].text_bytes,
                     b->event[i].text, (double)b->event[i].logprob);
}

static inline void same_answer(const seen *a, const seen *alone) {
    assert_int_equal(atomic_load(&a->ended), 1);
    if (a->error.status != AVO_OK)
        fail_msg("failed: %s", a->error.text);
    assert_int_equal(a->count, alone->count);
    same_events(a, alone, a->count);
    assert_int_equal(a->finish, alone->finish);
    assert_int_equal(a->prompt_tokens, alone->prompt_tokens);
    assert_int_equal(a->new_tokens, alone->new_tokens);
    assert_int_equal(a->result.stop_token, alone->result.stop_token);
    assert_int_equal(a->result.stop_index, alone->result.stop_index);
    assert_string_equal(a->stop, alone->stop);
}

/* ---- Requests out of a seed ---- */

typedef struct question {
    int32_t tokens[PROMPT_MAX];
    size_t token_count;
    uint32_t max_new_tokens;
    avo_sampling sampling;
    avo_logit_bias bias[2];
    const char *stop[2];
    size_t stop_count;
    int32_t stop_token;
    bool ignore_end;
    avo_adapter_use uses[2];
    size_t use_count;
    const char *salt;
    avo_grammar *grammar;
} question;

typedef struct dice {
    uint64_t seed, at;
} dice;

static inline uint32_t roll(dice *dice, uint32_t sides) {
    return random_at(dice->seed, 3, dice->at++).words[0] % sides;
}

static inline void roll_sampling(question *q, dice *dice) {
    avo_sampling *sampling = &q->sampling;
    *sampling = (avo_sampling)AVO_SAMPLING_INIT;
    sampling->seed = roll(dice, 1000);
    uint32_t kind = roll(dice, 6);
    if (kind >= 1)
        sampling->temperature = 0.5f + (float)roll(dice, 10) * 0.2f;
    if (kind == 2 || kind == 5)
        sampling->top_k = 1 + roll(dice, 70);
    if (kind == 3)
        sampling->top_p = 0.9f;
    if (kind == 4) {
        sampling->repetition_penalty = 1.2f;
        sampling->frequency_penalty = 0.3f;
    }
    if (roll(dice, 3) == 0)
        sampling->top_logprobs = 1 + roll(dice, 3);
    if (roll(dice, 4) == 0) {
        q->bias[0] = (avo_logit_bias){(int32_t)roll(dice, TINY_VOCABULARY), 3.0f};
        q->bias[1] = (avo_logit_bias){2, -4.0f};
        sampling->bias = q->bias;
        sampling->bias_count = 2;
    }
}

/* A prompt that may begin like others do. */
static inline void roll_question(question *q, dice *dice) {
    static const char *const stops[] = {"e", "th", " a", "in", "qz", "o ", "the of", "z"};
    memset(q, 0, sizeof(*q));
    uint32_t family = roll(dice, 4);
    q->token_count = 2 + roll(dice, PROMPT_MAX - 2);
    for (size_t i = 0; i < q->token_count; i++)
        q->tokens[i] = family < 3 && i < 70 ? (int32_t)(3 + (i * 7 + family * 31) % 340)
                                            : (int32_t)(3 + roll(dice, TINY_VOCABULARY - 3));
    q->max_new_tokens = roll(dice, 12) == 0 ? 0 : 1 + roll(dice, 40);
    roll_sampling(q, dice);
    q->stop_count = roll(dice, 2) == 0 ? 0 : 1 + roll(dice, 2);
    for (size_t i = 0; i < q->stop_count; i++)
        q->stop[i] = stops[roll(dice, 8)];
    q->stop_token = roll(dice, 3) == 0 ? (int32_t)roll(dice, TINY_VOCABULARY) : -1;
    q->ignore_end = roll(dice, 2) == 0;
    q->salt = roll(dice, 3) == 0 ? "pepper" : NULL;
}

static inline avo_request request_of(const question *q, seen *seen) {
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = q->tokens;
    request.token_count = q->token_count;
    request.max_new_tokens = q->max_new_tokens;
    request.sampling = &q->sampling;
    request.stop = q->stop_count > 0 ? q->stop : NULL;
    request.stop_count = q->stop_count;
    request.stop_tokens = q->stop_token >= 0 ? &q->stop_token : NULL;
    request.stop_token_count = q->stop_token >= 0;
    request.ignore_end = q->ignore_end;
    request.adapters = q->uses;
    request.adapter_count = q->use_count;
    request.cache_salt = q->salt;
    request.grammar = q->grammar;
    request.on_event = on_event;
    request.on_event_context = seen;
    return request;
}

/* ---- The world ---- */

static inline void pause_ms(long ms) {
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

/* Until somebody is inside avo_scheduler_close(), which does not return before the caller of this
 * has let go what it holds. */
static inline void wait_until_closing(avo_scheduler *scheduler) {
    for (bool closing = false; !closing; pause_ms(1)) {
        pthread_mutex_lock(&scheduler->lock);
        closing = scheduler->closing;
        pthread_mutex_unlock(&scheduler->lock);
    }
}

/* Allocations of this thread; and a scheduler whose closing the next one waits for, or NULL. */
static _Thread_local size_t own_allocations;
static _Thread_local avo_scheduler *closes_first;

/* Any thread may allocate. */
typedef struct counting {
    avo_allocator allocator;
    pthread_mutex_t lock;
    test_allocator counter;
    atomic_int held;          /* an allocation that waits for a closing has begun */
    atomic_size_t gate_bytes; /* allocations of that size wait at a gate; 0: there is none */
    atomic_int at_gate;       /* how many do */
} counting;

static inline void *counting_take(void *context, size_t size, size_t alignment) {
    counting *c = context;
    avo_scheduler *first = closes_first;
    closes_first = NULL;
    own_allocations++;
    if (first != NULL) {
        atomic_store(&c->held, 1);
        wait_until_closing(first);
    }
    if (atomic_load(&c->gate_bytes) == size) {
        atomic_fetch_add(&c->at_gate, 1);
        while (atomic_load(&c->gate_bytes) == size)
            pause_ms(1);
        atomic_fetch_sub(&c->at_gate, 1);
    }
    pthread_mutex_lock(&c->lock);
    void *memory = c->counter.allocator.allocate(&c->counter, size, alignment);
    pthread_mutex_unlock(&c->lock);
    return memory;
}

static inline void counting_give(void *context, void *memory, size_t size) {
    counting *c = context;
    pthread_mutex_lock(&c->lock);
    c->counter.allocator.release(&c->counter, memory, size);
    pthread_mutex_unlock(&c->lock);
}

typedef struct world {
    counting counting;
    avo_model *model;
    avo_model *draft; /* NULL: none, or the model itself */
    avo_heads *heads;
    avo_engine *alone;  /* one session, for comparing */
    avo_engine *engine; /* of the scheduler */
    avo_scheduler *scheduler;
    avo_error error;
    /* Where the world is crowded: no second token before all requests of the exam are there. */
    draft_source crowding;
    const draft_source *drafts;
    atomic_int submitted;
} world;

typedef struct world_options {
    uint32_t sessions, rows, threads;
    uint64_t kv_tokens; /* 0: enough for all */
    const char *isa;
    avo_scheduler_options scheduler;
    uint32_t logits;            /* 0: one for each session */
    const draft_source *drafts; /* of the scheduler's engine; NULL: none */
    bool crowded;               /* the requests of an exam meet, however slow their submitter is */
    const char *speculate;      /* NULL: off, or what `drafts` proposes */
    const char *controller;     /* NULL: cost */
    const char *kv_type;        /* NULL: the device's own */
    bool self_draft;            /* the model is its own draft model */
    const char *draft;          /* another draft model: "exit:N" or a path; NULL: none */
    uint32_t heads;             /* draft heads: kind + 1; 0: none */
} world_options;

#define WORLD_OPTIONS                                                                              \
    {                                                                                              \
        6, 64, 2, 0, NULL, AVO_SCHEDULER_OPTIONS_INIT, 0, NULL, false, NULL, NULL, NULL, false,    \
            NULL, 0                                                                                \
    }

/* How cores are shared where a test does not say so. */
static const char *world_cores;

static inline uint32_t propose_when_crowded(void *context, const int32_t *timeline, uint32_t count,
                                            uint32_t most, int32_t *drafts) {
    world *w = context;
    while (atomic_load(&w->submitted) == 0)
        pause_ms(1);
    return w->drafts == NULL
               ? 0
               : w->drafts->propose(w->drafts->context, timeline, count, most, drafts);
}

static inline void world_open(world *w, const world_options *options) {
    memset(w, 0, sizeof(*w));
    test_allocator_init(&w->counting.counter);
    pthread_mutex_init(&w->counting.lock, NULL);
    w->counting.allocator = (avo_allocator){&w->counting, counting_take, counting_give};
    avo_model_options model = AVO_MODEL_OPTIONS_INIT;
    model.allocator = &w->counting.allocator;
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, &model, &w->model, &w->error), &w->error);
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    engine.threads = 1;
    engine.device = test_device(options->isa);
    engine.context_max = TINY_CONTEXT;
    engine.kv_type = options->kv_type;
    engine.speculate = "off";
    assert_ok_error(avo_engine_open(w->model, &engine, &w->alone, &w->error), &w->error);
    if (options->speculate != NULL)
        engine.speculate = options->speculate;
    else if (options->drafts != NULL || options->crowded)
        engine.speculate = "custom";
    engine.draft_controller = options->controller;
    model.draft_of = w->model;
    if (options->draft != NULL)
        assert_ok_error(avo_model_open(options->draft, &model, &w->draft, &w->error), &w->error);
    engine.draft_model = options->self_draft ? w->model : w->draft;
    if (options->heads > 0)
        w->heads = test_heads_make(w->model, (heads_kind)(options->heads - 1), 1);
    const avo_heads *heads[] = {w->heads};
    engine.draft_heads = heads;
    engine.draft_heads_count = options->heads > 0;
    engine.threads = options->threads;
    engine.sessions_max = options->sessions;
    engine.rows_max = options->rows;
    engine.kv_tokens = options->kv_tokens;
    engine.logits_max = options->logits;
    avo_scheduler_options scheduler = options->scheduler;
    if (scheduler.waiting_tokens_max == 0) /* pools are small, and no test is refused by chance */
        scheduler.waiting_tokens_max = 1000000;
    if (scheduler.cores == NULL && options->threads > 1)
        scheduler.cores = world_cores;
    engine.streams = scheduler.cores != NULL ? 2 : 0;
    assert_ok_error(avo_engine_open(w->model, &engine, &w->engine, &w->error), &w->error);
    w->drafts = options->drafts;
    w->crowding = (draft_source){propose_when_crowded, w,
                                 options->drafts == NULL ? 1 : options->drafts->drafts_max};
    if (options->crowded || options->drafts != NULL)
        engine_draft_from(w->engine, options->crowded ? &w->crowding : options->drafts);
    assert_ok_error(avo_scheduler_open(w->engine, &scheduler, &w->scheduler, &w->error), &w->error);
}

static inline void world_close(world *w) {
    avo_scheduler_close(w->scheduler);
    avo_engine_close(w->engine);
    avo_engine_close(w->alone);
    avo_heads_close(w->heads);
    avo_model_close(w->draft);
    avo_model_close(w->model);
    assert_int_equal(w->counting.counter.live, 0);
    pthread_mutex_destroy(&w->counting.lock);
}

/* The request by itself. */
static inline void generate_alone(world *w, const question *q, seen *seen) {
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = q->uses;
    options.adapter_count = q->use_count;
    avo_session *session;
    assert_ok_error(avo_session_open(w->alone, &options, &session, &w->error), &w->error);
    avo_request request = request_of(q, seen);
    request.adapter_count = 0;
    request.cache_salt = NULL;
    request.on_event = on_event_alone;
    seen->result = (avo_result)AVO_RESULT_INIT;
    assert_ok_error(avo_generate(w->alone, session, &request, &seen->result, &w->error), &w->error);
    see_stop(seen);
    seen->finish = seen->result.finish;
    seen->prompt_tokens = seen->result.prompt_tokens;
    seen->new_tokens = seen->result.new_tokens;
    avo_session_close(session);
}

/* A set of questions, what each gives alone, and what the scheduler's listener has seen. */
typedef struct exam {
    size_t count;
    question *q;
    seen *alone, *seen;
    uint64_t *number;
} exam;

static inline exam exam_make(world *w, size_t count, uint64_t seed) {
    exam e = {count, calloc(count, sizeof(question)), calloc(count, sizeof(seen)),
              calloc(count, sizeof(seen)), calloc(count, sizeof(uint64_t))};
    assert_true(e.q != NULL && e.alone != NULL && e.seen != NULL && e.number != NULL);
    dice dice = {seed, 0};
    for (size_t i = 0; i < count; i++)
        roll_question(&e.q[i], &dice);
    (void)w;
    return e;
}

static inline void exam_alone(world *w, exam *e) {
    for (size_t i = 0; i < e->count; i++)
        generate_alone(w, &e->q[i], &e->alone[i]);
}

static inline void exam_submit(world *w, exam *e) {
    for (size_t i = 0; i < e->count; i++) {
        avo_request request = request_of(&e->q[i], &e->seen[i]);
        assert_ok_error(
            avo_scheduler_submit(w->scheduler, &request, &e->number[i], NULL, &w->error),
            &w->error);
    }
    atomic_store(&w->submitted, 1);
}

static inline void exam_free(exam *e) {
    free(e->q);
    free(e->alone);
    free(e->seen);
    free(e->number);
}

static inline avo_scheduler_info info_of(world *w) {
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w->scheduler, &info);
    return info;
}

/* A request that counts what is allocated between its tokens. */
typedef struct frugal {
    world *world;
    size_t second, last; /* allocations when these tokens came */
    uint32_t tokens;
} frugal;

static inline bool on_frugal_event(void *context, const avo_event *event) {
    frugal *f = context;
    if (event->kind != AVO_EVENT_TOKEN)
        return true;
    pthread_mutex_lock(&f->world->counting.lock);
    f->last = f->world->counting.counter.allocations;
    pthread_mutex_unlock(&f->world->counting.lock);
    f->tokens += event->token->token >= 0; /* not the rest of the text */
    if (f->tokens == 2)
        f->second = f->last;
    return true;
}

#endif
