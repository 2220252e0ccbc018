/* Inside the scheduler's driver: its threads, its requests, and which thread may touch what.
 *
 *   caller ─submit─▶ pending ─tokenizer threads─▶ inbox ─engine thread─▶ ready ─delivery─▶ events
 *                                  ▲        │
 *                               resumed   parked      (those whose adapter must be opened first)
 *                                  ▲        │
 *                                 opener threads
 *
 * A request lives from submission to its last event. There are a few lists of requests and one
 * lock, which no thread holds while it works. Tokens do not travel through a queue: the engine
 * thread appends them to the request's own timeline, which was allocated for as many as there can
 * be, and publishes the count. So a slow listener delays deliveries but never the engine, and
 * nothing is unbounded.
 *
 * Who writes a request's fields: submission before it is in a list; a tokenizer thread while it is
 * REQUEST_PREPARING; the engine thread while it is REQUEST_TAKEN; the delivery thread its own part;
 * fields marked "under the lock" any thread that holds it.
 *
 * Stop strings decide whether the next step has a row for the request, so the sequence matches them
 * on the engine thread: the answer ends with the same token as in avo_generate, and no row is
 * computed in vain. That costs a fraction of a microsecond per token, and only where stop strings
 * were asked for. The sequence notes how many bytes of text each token releases; the delivery
 * thread decodes and shows that much.
 *
 * Only requests that name an adapter wait until it is opened: they are parked, opener threads open
 * it, and no thread holds the requests meanwhile. So a pending or parked request can end at once:
 * cancelled by the caller, or expired by the watch thread, which sleeps until the next deadline.
 *
 * Where prompts have dedicated cores, one more thread computes and does nothing else: the engine
 * thread plans a chunk of prompts, fills the batch of the engine's second stream and starts it; it
 * decodes meanwhile, and draws from the chunk when it is computed. So sessions, pages, plans and
 * draws stay with the engine thread, and a session moves between streams without being touched.
 */
#ifndef AVO_SCHED_SCHEDULER_INT_H
#define AVO_SCHED_SCHEDULER_INT_H

#include "adapters/adapters.h"
#include "base/arena.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "model/model.h"
#include "sched/core.h"
#include "sched/cores.h"

#include <pthread.h>

/* ---- Limits ---- */
#define SCHEDULER_WAITING_DEFAULT  1024u
#define SCHEDULER_TOKENIZERS       2u /* one may be compiling a grammar */
#define SCHEDULER_OPENERS          2u /* of adapters: one may be slow */
#define SCHEDULER_OPENING_BUCKETS  256u
#define SCHEDULER_WATCH_NS         1000000u /* between two checks of deadlines */
#define SCHEDULER_TOKENIZERS_MAX   64u
#define SCHEDULER_ENCODINGS_BYTES  ((size_t)16 << 20)
#define SCHEDULER_REJECTED_MAX     64u /* requests of batches that were rejected and not told yet */
#define SCHEDULER_BYTES_PER_TOKEN  4   /* of a text that is not tokenised yet */
#define SCHEDULER_CHUNK_MIN        16u
#define SCHEDULER_TOKEN_SECONDS    0.2
#define SCHEDULER_AGEING_SECONDS   2.0
#define SCHEDULER_SECONDS_MAX      REQUEST_SECONDS_MAX
#define SCHEDULER_TENANT_BYTES_MAX 1024u
#define SCHEDULER_TEXT_MIN         ((size_t)64 << 10) /* bytes that are looked at in any case */
/* Steps before anything is refused by what steps are thought to cost. */
#define SCHEDULER_TRUST_STEPS 8

typedef enum request_state {
    REQUEST_PENDING,   /* waits for a tokenizer thread */
    REQUEST_PREPARING, /* one has it */
    REQUEST_PARKED,    /* waits for an adapter that is being opened */
    REQUEST_INBOX,     /* waits for the engine thread */
    REQUEST_TAKEN,     /* the engine thread has it */
    REQUEST_OVER       /* only its last events are left */
} request_state;

typedef enum request_ending { ENDED_FINISHED, ENDED_FAILED, ENDED_REFUSED } request_ending;

typedef struct request_list {
    struct request *first, *last;
} request_list;

typedef struct request {
    avo_scheduler *scheduler;
    uint64_t number;
    size_t index; /* in a batch */
    avo_event_function on_event;
    void *on_event_context;
    uint64_t submitted_ns;

    /* Given; what is pointed at lies in the arenas. */
    arena texts; /* the prompt before it is tokenised */
    arena arena;
    avo_request given;
    avo_chat_options chat;
    avo_sampling sampling;
    avo_adapter_use uses[AVO_ADAPTERS_MAX]; /* references */
    size_t use_count;

    /* Prepared. */
    int32_t *timeline; /* [capacity] prompt and answer */
    uint32_t prompt_tokens, capacity;
    float *logprobs;   /* [capacity − prompt_tokens] */
    avo_logprob *tops; /* [capacity − prompt_tokens][top_stride]; NULL: not asked for */
    uint32_t top_stride;
    float *prompt_logprobs;   /* [prompt_tokens] where they are wanted; NULL: not */
    avo_logprob *prompt_tops; /* [prompt_tokens][top_stride] */
    double *pooled;           /* [width] sum over the rows so far; NULL: no mean is wanted */
    float *embedding;         /* [width]; NULL: not wanted */
    uint32_t *released;   /* [capacity − prompt_tokens] bytes of text; NULL: no stop strings */
    bool *drafted_at;     /* [capacity − prompt_tokens] the token was a draft; NULL: no drafts */
    uint64_t adapter_key; /* identifies the set of adapters */
    uint32_t label;       /* of telemetry, for that set */
    bool noted_waiting;   /* telemetry counts it among those that wait */
    size_t named_taken;   /* leading named adapters that are in uses */
    uint64_t prepare_ns;  /* of work before it was parked */

    /* Of the engine thread. */
    sequence sequence;
    uint32_t looked; /* leading rows of the prompt that were scored and pooled; none is twice */
    uint32_t reused_tokens, preemptions;
    uint32_t drafted, accepted;       /* draft tokens */
    uint32_t step_drafts, step_drawn; /* while a step is drawn from: its drafts, tokens before it */
    uint64_t begun_ns, first_ns, over_ns;
    uint64_t last_ns; /* of its newest token */
    bool begun;       /* it was in a step */
    avo_finish finish;
    avo_error error;

    /* Under the lock. */
    request_state state;
    bool cancelled;
    bool rejected;      /* at submission, in a batch: counts against no limit but its own */
    bool counted;       /* among those that wait */
    uint64_t charge;    /* tokens that it counts for there */
    request_list *list; /* that it is in: pending, resumed, an opening's, inbox; or NULL */
    struct request *next, *previous; /* there */
    struct request *next_ready;      /* among those with something to deliver */
    bool ready;                      /* it is there */
    struct request *chain;           /* of its number's bucket */
    uint32_t produced;               /* tokens drawn and to be delivered */
    uint32_t scored;                 /* tokens of the prompt to be delivered */
    request_ending end;              /* how, when REQUEST_OVER */

    /* Of the delivery thread. */
    sequence_text text;
    decode_stream prompt_text;
    uint32_t prompt_delivered;
    uint32_t delivered;
    bool unwanted;           /* the listener said so */
    avo_error deliver_error; /* what broke there */
} request;

/* An adapter that somebody opens, and who waits for it. Those who come while it is being opened get
 * what the name means after that: it may have been replaced meanwhile. */
typedef struct opening {
    request_list requests, late;
    bool runs;             /* one of the threads has it; else it is in the queue */
    struct opening *next;  /* in the queue */
    struct opening *chain; /* of its bucket */
    size_t bytes;          /* as taken */
    char name[];
} opening;

/* One running sequence. */
typedef struct running_request {
    request *request; /* NULL: free */
    avo_session *session;
    drafter *drafter; /* NULL: no drafts */
    draft draft;      /* for the step that is being planned */
    bool broken;      /* it could not begin; request->error says why */
} running_request;

/* What a step is computed with: in stream 0 by the engine thread, in stream 1 by the prefill
 * thread.
 */
typedef struct serve_stream {
    avo_batch *batch;      /* NULL: there is no such stream */
    sched_result *results; /* [running_max] of a plan's entries */
    bool *scored;          /* [running_max] */
    sched_plan plan;       /* stream 1: in flight */
} serve_stream;

typedef enum prefill_state {
    PREFILL_NONE,
    PREFILL_COMPUTING, /* by its thread */
    PREFILL_COMPUTED   /* to be finished by the engine thread */
} prefill_state;

struct avo_scheduler {
    avo_engine *engine;
    engine_limits engine_limits;
    const avo_allocator *allocator;
    avo_scheduler_options options; /* every 0 replaced */
    uint32_t live_max;
    uint32_t context; /* tokens one request can have: context or pool, whichever is smaller */
    size_t text_max;  /* bytes that its prompt can have */

    pthread_mutex_t lock;
    pthread_cond_t pending_cond, engine_cond, ready_cond;
    pthread_cond_t gone_cond;    /* a request has gone, or begun: room, or the end of a drain; or a
                                    call   has ended after closing began */
    pthread_cond_t prefill_cond; /* a prefill step starts, or none will any more */
    pthread_cond_t opening_cond, watch_cond;
    pthread_cond_t
        corpus_cond; /* a copy of the corpus is there, or the next one may be asked for */
    pthread_t engine_thread, delivery_thread, prefill_thread, watch_thread;
    pthread_t opener_thread[SCHEDULER_OPENERS];
    uint32_t opener_threads;
    pthread_t tokenizer_thread[SCHEDULER_TOKENIZERS_MAX];
    uint32_t tokenizer_threads;
    bool engine_started, delivery_started, prefill_started, watch_started;
    encode_cache *encodings; /* NULL: the model has no tokenizer */

    /* Telemetry; all NULL where the engine has none. That of requests is written under the lock. */
    telemetry_source *source;
    telemetry_track *requests_track, *delivery_track;
    telemetry_track *tokenizer_track[SCHEDULER_TOKENIZERS_MAX];
    uint32_t tokenizers_begun; /* under the lock: threads that have taken theirs */

    /* Under the lock. */
    request_list pending, inbox;
    request_list resumed; /* pending ones whose adapter is there now: they go first */
    opening *opening_first, *opening_last;              /* to be opened */
    opening *opening_bucket[SCHEDULER_OPENING_BUCKETS]; /* all of them by name */
    uint64_t due_ns; /* no pending or parked request has a deadline before it; 0: none has one */
    request *ready_first, *ready_last;
    request **buckets; /* [bucket_count] by number */
    uint32_t bucket_count;
    uint64_t *cancels; /* [live_max] numbers of taken requests to cancel */
    uint32_t cancel_count;
    uint64_t serial;
    uint32_t live;     /* requests */
    uint32_t rejected; /* of these, rejected ones */
    uint32_t waiting;  /* of these, those that were in no step yet */
    uint64_t waiting_tokens;
    uint32_t inside; /* calls of the interface that have not returned; closing waits for them */
    /* In this order: nothing new is taken, and all that lives ends; no call is inside any more, so
     * that the threads may end, one kind after the other. */
    bool draining, closing, ending, tokenizers_done, openers_done, engine_done;
    avo_scheduler_info info;
    sched_pace pace;     /* of first steps */
    buffer *corpus_copy; /* the engine thread shall encode the corpus into it; NULL: nobody asks */
    avo_status corpus_status; /* of that */
    uint64_t corpus_digest;   /* of the model, for it */
    prefill_state prefill;
    uint64_t prefill_ns; /* that the last one took */
    bool prefill_failed; /* the device did; the batch's error says why */

    /* Of the engine thread. */
    sched *core;
    cores cores;
    serve_stream stream[2];
    sampler_room *sampler_room;
    buffer stop_buffer;            /* text in which stop strings are looked for */
    running_request *running;      /* [running_max] */
    draft_request *draft_requests; /* [running_max] of the step that is being planned */
    bool prefill_in_flight;        /* a prefill step has started and is not finished */
    uint64_t steps, step_ns, busy_ns;
    uint64_t prefill_steps, prefill_steps_ns;
    uint64_t device_failures; /* requests that the device failed since a step succeeded */

    /* Of the delivery thread. */
    buffer text_buffer;
};

/* ---- scheduler.c: requests and lists; the lock is held ---- */

request *requests_find(avo_scheduler *s, uint64_t number);
void list_append(request_list *list, request *request);
request *list_take(request_list *list);
/* Out of the list that it is in. */
void list_remove(request *request);
/* The delivery thread shall look at it. */
void request_ready(request *request);
/* No more tokens will come. `end` and finish or error are the last event. */
void request_over(request *request, request_ending end);
/* It waits no longer. */
void request_uncount(request *request);
/* A deadline has passed: its last event says so. */
void request_expire(request *request);
/* Its deadlines on the clock, 0: none; and whether one of them has passed before its first token.
 */
uint64_t request_first_deadline_ns(const request *request);
uint64_t request_deadline_ns(const request *request);
/* Pages that its tenant's running requests may need together; 0: no limit. */
uint64_t request_budget(const request *request);
/* The earlier of both; 0: none. */
uint64_t request_due_ns(const request *request);
bool request_late(const request *request);
/* Without the lock: what the prompt was before it was tokenised. */
void request_forget_prompt(request *request);
/* Without the lock: gives everything back. */
void request_free(request *request);

/* How the KV pool stands, into s->info. Only while nobody else uses the engine. */
void scheduler_count_pages(avo_scheduler *s);
/* Around the functions of the interface that let the lock go before they are done: submission,
 * batches, draining. The others hold it all the while, and closing waits for nobody but these. */
void scheduler_enter(avo_scheduler *s);
void scheduler_leave(avo_scheduler *s);

/* ---- scheduler_submit.c ---- */
/* Tokens of prompt and answer, as far as they can be known before the text is tokenised. */
uint64_t scheduler_charge(const avo_scheduler *s, const avo_request *request);

typedef struct submission {
    const avo_request *request;
    const avo_sampling *shared; /* NULL: greedy */
    size_t index;
    avo_event_function on_event; /* instead of the request's own, where `takes_events` */
    void *on_event_context;
    bool takes_events;
    bool waits; /* for room, as long as there may be some */
} submission;
/* A prompt of `count` tokens, with one more for the answer where there is one, has its place. */
AVO_MUST_USE avo_status request_check_length(const avo_scheduler *s, size_t count, bool no_answer,
                                             avo_error *error);
AVO_MUST_USE avo_status scheduler_submit(avo_scheduler *s, const submission *submission,
                                         uint64_t *number, double *retry_seconds, avo_error *error);
/* A request that has failed already, so that its listener is told like all others: as cancelled
 * where there is no room because the scheduler is being closed. */
AVO_MUST_USE avo_status scheduler_submit_failed(avo_scheduler *s, const submission *submission,
                                                const avo_error *why);

/* ---- scheduler_score.c: what is wanted of a prompt, beside an answer ---- */

/* Its rows are looked at: none may come from the prefix cache before it was. */
bool request_looks(const request *request);
/* Memory for what is wanted. */
AVO_MUST_USE avo_status request_allocate_scores(request *request, avo_error *error);
/* Behind a step, and behind its draws: logprobs and hidden states of the entry's rows. */
AVO_MUST_USE avo_status request_score(request *request, avo_batch *batch,
                                      const avo_session *session, const sched_entry *entry);
/* Tokens of the prompt that may be delivered. */
uint32_t request_scored(const request *request);

/* ---- scheduler_openings.c: adapters that must be opened first; the lock is held ---- */

/* The request waits until `name` was opened. */
AVO_MUST_USE avo_status opening_park(request *request, const char *name, avo_error *error);
/* A request that nobody works on ends at once: pending or parked. */
bool request_waits(const request *request);
void request_drop(request *request);
/* Closing: those that are parked end. */
void openings_cancel(avo_scheduler *s);
/* It has begun to wait: its deadlines are watched until it is taken. */
void request_watch(const request *request);

/* ---- scheduler_corpus.c: earlier answers to draft from, and their file ---- */

/* Before threads start: reads options.draft_corpus. */
AVO_MUST_USE avo_status scheduler_corpus_open(avo_scheduler *s, avo_error *error);
/* By the engine thread: makes the copy that somebody waits for. */
void scheduler_corpus_copy(avo_scheduler *s);

/* ---- Threads ---- */

void *tokenizer_main(void *scheduler);
void *engine_main(void *scheduler);
void *delivery_main(void *scheduler);
void *opener_main(void *scheduler);
void *watch_main(void *scheduler);
void *prefill_main(void *scheduler);

/* ---- scheduler_engine.c: from a plan to tokens; on the engine thread ---- */

/* Lays a plan into the stream's batch; false: there is nothing in it to compute. */
bool step_build(avo_scheduler *s, serve_stream *stream, const sched_plan *plan, uint64_t now);
/* It is computed, so the device works: time is learned from, tokens are drawn, the core is told,
 * then everybody else. */
void step_learn(avo_scheduler *s, const sched_plan *plan, uint64_t ns);
void step_draw(avo_scheduler *s, serve_stream *stream, const sched_plan *plan);
/* After everybody has drawn: looking at rows takes the logits that draws need. */
void step_score(avo_scheduler *s, serve_stream *stream, const sched_plan *plan);
void step_done(avo_scheduler *s, serve_stream *stream, const sched_plan *plan);
/* A step that breaks takes those with it that were in it, and nobody else. */
void step_fail(avo_scheduler *s, serve_stream *stream, const sched_plan *plan);
/* What a plan says besides its entries: who has ended, who was preempted. */
void plan_publish(avo_scheduler *s, const sched_plan *plan);

/* ---- scheduler_prefill.c: prompts beside decoding; on the engine thread ---- */

/* Finishes a prefill step that is computed; starts the next one, where there shall be one. */
void prefill_advance(avo_scheduler *s);
/* Which rows the next step of stream 0 holds; its threads are set. */
sched_side prefill_side(avo_scheduler *s);

/* ---- scheduler_telemetry.c ---- */

/* Names of the request's adapters joined by "+", "" for none; cut where they are too long. */
#define REQUEST_ADAPTERS_TEXT 256
void request_adapters_text(const request *request, char text[static REQUEST_ADAPTERS_TEXT]);

/* All of these do nothing where the engine has no telemetry. */

AVO_MUST_USE avo_status scheduler_telemetry_open(avo_scheduler *s, avo_error *error);
void scheduler_telemetry_close(avo_scheduler *s);
/* By a tokenizer thread: the request has its tokens and adapters. */
void note_tokenised(request *request, telemetry_track *track, uint64_t begin_ns);
/* The lock is held: it is in its first step; it has drawn; it is over. */
void note_begun(request *request);
void note_token(request *request, uint64_t now);
void note_over(request *request);
/* By the engine thread: what it did since `begin_ns`. */
void note_stage(avo_scheduler *s, span_kind kind, uint64_t begin_ns, uint32_t tokens);
/* By the delivery thread. */
void note_delivered(avo_scheduler *s, uint64_t number, uint64_t begin_ns, uint32_t tokens);
/* Of `drafted` tokens that were verified `accepted` were right. */
void note_drafts(const avo_scheduler *s, uint32_t drafted, uint32_t accepted);
/* Before s->info has these counts. */
void note_rates(avo_scheduler *s, const sched_counts *counts);

/* ---- scheduler_memory.c: memory for the core, and what each running holds ---- */

sched_memory scheduler_memory(avo_scheduler *s);
/* Of the session that computes it. */
avo_session_options request_session_options(const request *request);
/* What the running's request draws with; failing, the running is broken. */
bool running_prepare(running_request *running);

#endif
