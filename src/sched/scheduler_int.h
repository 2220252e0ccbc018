/* Inside the scheduler's driver: threads, requests in flight (jobs), and who may touch what.
 *
 *   caller ──submit──▶ pending ──tokenizer threads──▶ inbox ──engine thread──▶ ready ──delivery──▶
 * events            resumed ◀──opener threads──┘ parked
 *
 * A job is one request from submission to its last event. A few lists of jobs, one lock; nobody
 * holds it while working. Tokens do not travel through a queue: the engine thread appends them to
 * the job's own timeline, which has room for all there can be, and says how many there are. So a
 * slow listener delays deliveries but never the engine, and nothing is unbounded.
 *
 * Who writes a job's fields: submission before it is in a list; a tokenizer thread while it is
 * JOB_PREPARING; the engine thread while it is JOB_TAKEN; the delivery thread its own part; and
 * what is marked (lock) whoever holds the lock.
 *
 * Stop strings decide whether the next step has a row for the request, so the sequence matches them
 * on the engine thread: the answer ends with the very same token as in avo_generate, and no row is
 * computed in vain. That costs a fraction of a microsecond per token, and only where stop strings
 * were asked for. The sequence notes how many bytes of text each token releases; the delivery
 * thread decodes and shows that much.
 *
 * Nobody waits for an adapter that must be opened but those who asked for it: their jobs are parked
 * at the opening, which threads of their own do, and no thread has them meanwhile. So whatever is
 * pending or parked can end at once: cancelled by the caller, or late by the watch thread, which
 * sleeps until the next deadline.
 *
 * Where prompts have cores of their own there is one thread more, which computes and does nothing
 * else: the engine thread plans a chunk of prompts, lays it into the batch of the engine's second
 * lane and lets it fly; it decodes meanwhile, and when the chunk has landed draws from it. So
 * sessions, pages, plans and draws stay the engine thread's alone, and a session that is handed
 * from one lane to the other is not even touched.
 */
#ifndef AVO_SCHED_SCHEDULER_INT_H
#define AVO_SCHED_SCHEDULER_INT_H

#include "adapters/adapters.h"
#include "base/arena.h"
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
#define SCHEDULER_WATCH_NS         1000000u /* deadlines of who waits are looked at this often */
#define SCHEDULER_TOKENIZERS_MAX   64u
#define SCHEDULER_ENCODINGS_BYTES  ((size_t)16 << 20)
#define SCHEDULER_UNBORN_MAX       64u /* requests of batches that failed and were not told yet */
#define SCHEDULER_BYTES_PER_TOKEN  4   /* of a text that is not tokenised yet */
#define SCHEDULER_CHUNK_MIN        16u
#define SCHEDULER_TOKEN_SECONDS    0.2
#define SCHEDULER_AGEING_SECONDS   2.0
#define SCHEDULER_SECONDS_MAX      1e9 /* of a deadline */
#define SCHEDULER_TENANT_BYTES_MAX 1024u
#define SCHEDULER_TEXT_MIN         ((size_t)64 << 10) /* bytes that are looked at in any case */
/* Steps before anything is refused by what steps are thought to cost. */
#define SCHEDULER_TRUST_STEPS 8

typedef enum job_state {
    JOB_PENDING,   /* waits for a tokenizer thread */
    JOB_PREPARING, /* one has it */
    JOB_PARKED,    /* waits for an adapter that is being opened */
    JOB_INBOX,     /* waits for the engine thread */
    JOB_TAKEN,     /* the engine thread has it */
    JOB_OVER       /* only its last events are left */
} job_state;

typedef enum job_end { JOB_ENDS_FINISHED, JOB_ENDS_FAILED, JOB_ENDS_REFUSED } job_end;

typedef struct job_list {
    struct job *first, *last;
} job_list;

typedef struct job {
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
    uint64_t adapter_key; /* identifies the set of adapters */
    uint32_t label;       /* of telemetry, for that set */
    bool noted_waiting;   /* telemetry counts it among those that wait */
    size_t named_taken;   /* leading named adapters that are in uses */
    uint64_t prepare_ns;  /* of work before it was parked */

    /* Of the engine thread. */
    sequence sequence;
    uint32_t looked; /* leading rows of the prompt that were scored and pooled; none is twice */
    uint32_t reused_tokens, preemptions;
    uint64_t begun_ns, first_ns, over_ns;
    uint64_t last_ns; /* of its newest token */
    bool begun;       /* it was in a step */
    avo_finish finish;
    avo_error error;

    /* Under the lock. */
    job_state state;
    bool cancelled;
    bool unborn;                 /* it had failed before it was one, and takes nobody's room */
    bool counted;                /* among those that wait */
    uint64_t charge;             /* tokens that it counts for there */
    job_list *list;              /* that it is in: pending, resumed, an opening's, inbox; or NULL */
    struct job *next, *previous; /* there */
    struct job *next_ready;      /* among those with something to deliver */
    bool ready;                  /* it is there */
    struct job *chain;           /* of its number's bucket */
    uint32_t produced;           /* tokens drawn and to be delivered */
    uint32_t scored;             /* tokens of the prompt to be delivered */
    job_end end;                 /* how, when JOB_OVER */

    /* Of the delivery thread. */
    sequence_text text;
    decode_stream prompt_text;
    uint32_t prompt_delivered;
    uint32_t delivered;
    bool unwanted;           /* the listener said so */
    avo_error deliver_error; /* what broke there */
} job;

/* An adapter that somebody opens, and who waits for it. Those who come while it is being opened get
 * what the name means after that: it may have been replaced meanwhile. */
typedef struct opening {
    job_list jobs, late;
    bool runs;             /* one of the threads has it; else it is in the queue */
    struct opening *next;  /* in the queue */
    struct opening *chain; /* of its bucket */
    size_t bytes;          /* as taken */
    char name[];
} opening;

/* One running sequence. */
typedef struct serve_slot {
    job *job; /* NULL: free */
    avo_session *session;
    bool broken; /* it could not begin; job->error says why */
} serve_slot;

/* What a step is computed with: lane 0 by the engine thread, lane 1 while it flies. */
typedef struct serve_lane {
    avo_batch *batch;      /* NULL: there is no such lane */
    sched_result *results; /* [running_max] of a plan's entries */
    bool *scored;          /* [running_max] */
    sched_plan plan;       /* lane 1: that flies */
} serve_lane;

typedef enum flight_state {
    FLIGHT_NONE,
    FLIGHT_COMPUTED, /* lane 1's thread computes */
    FLIGHT_LANDED    /* and has done so */
} flight_state;

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
    pthread_cond_t gone_cond;   /* a job has gone, or begun: room, or the end of a drain; or a call
                                   has ended after closing began */
    pthread_cond_t flight_cond; /* a flight begins, or no more will */
    pthread_cond_t opening_cond, watch_cond;
    pthread_t engine_thread, delivery_thread, flight_thread, watch_thread;
    pthread_t opener_thread[SCHEDULER_OPENERS];
    uint32_t opener_threads;
    pthread_t tokenizer_thread[SCHEDULER_TOKENIZERS_MAX];
    uint32_t tokenizer_threads;
    bool engine_started, delivery_started, flight_started, watch_started;
    encode_cache *encodings; /* NULL: the model has no tokenizer */

    /* Telemetry; all NULL where the engine has none. That of requests is written under the lock. */
    telemetry_source *source;
    telemetry_track *requests_track, *delivery_track;
    telemetry_track *tokenizer_track[SCHEDULER_TOKENIZERS_MAX];
    uint32_t tokenizers_begun; /* under the lock: threads that have taken theirs */

    /* Under the lock. */
    job_list pending, inbox;
    job_list resumed; /* pending ones whose adapter is there now: they go first */
    opening *opening_first, *opening_last;              /* to be opened */
    opening *opening_bucket[SCHEDULER_OPENING_BUCKETS]; /* all of them by name */
    uint64_t due_ns; /* no pending or parked job has a deadline before it; 0: none has one */
    job *ready_first, *ready_last;
    job **buckets; /* [bucket_count] by number */
    uint32_t bucket_count;
    uint64_t *cancels; /* [live_max] numbers of taken jobs to cancel */
    uint32_t cancel_count;
    uint64_t serial;
    uint32_t live;    /* jobs */
    uint32_t unborn;  /* of these, those that had failed before they were any */
    uint32_t waiting; /* of these, those that were in no step yet */
    uint64_t waiting_tokens;
    uint32_t inside; /* calls of the interface that have not returned; closing waits for them */
    /* In this order: nothing new is taken, and all that lives ends; no call is inside any more, so
     * that the threads may end, one kind after the other. */
    bool draining, closing, ending, tokenizers_done, openers_done, engine_done;
    avo_scheduler_info info;
    sched_pace pace; /* of first steps */
    flight_state flight;
    uint64_t flight_ns; /* that the last one took */
    bool flight_failed; /* the device did; the batch\'s error says why */

    /* Of the engine thread. */
    sched *core;
    cores cores;
    serve_lane lane[2];
    sampler_room *room;
    buffer stop_room;  /* text in which stop strings are looked for */
    serve_slot *slots; /* [running_max] */
    bool flying;       /* a flight has begun and was not landed */
    uint64_t steps, step_ns, busy_ns;
    uint64_t flights, flights_ns;

    /* Of the delivery thread. */
    buffer text_room;
};

/* ---- scheduler.c: jobs and lists; the lock is held ---- */

job *jobs_find(avo_scheduler *s, uint64_t number);
void list_append(job_list *list, job *job);
job *list_take(job_list *list);
/* Out of the list that it is in. */
void list_remove(job *job);
/* The delivery thread shall look at it. */
void job_ready(job *job);
/* No more tokens will come. `end` and finish or error are the last event. */
void job_over(job *job, job_end end);
/* It waits no longer. */
void job_uncount(job *job);
/* A deadline has passed: its last event says so. */
void job_expire(job *job);
/* Its deadlines on the clock, 0: none; and whether one of them has passed before its first token.
 */
uint64_t job_first_deadline_ns(const job *job);
uint64_t job_deadline_ns(const job *job);
/* The earlier of both; 0: none. */
uint64_t job_due_ns(const job *job);
bool job_late(const job *job);
/* Without the lock: what the prompt was before it was tokenised. */
void job_forget_prompt(job *job);
/* Without the lock: gives everything back. */
void job_free(job *job);

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
AVO_MUST_USE avo_status job_check_length(const avo_scheduler *s, size_t count, bool no_answer,
                                         avo_error *error);
AVO_MUST_USE avo_status scheduler_submit(avo_scheduler *s, const submission *submission,
                                         uint64_t *number, double *retry_seconds, avo_error *error);
/* A job that has failed already, so that its listener is told like all others: as cancelled where
 * there is no room because the scheduler is being closed. */
AVO_MUST_USE avo_status scheduler_submit_failed(avo_scheduler *s, const submission *submission,
                                                const avo_error *why);

/* ---- scheduler_score.c: what is wanted of a prompt, beside an answer ---- */

/* Its rows are looked at: none may come from the prefix cache before it was. */
bool job_looks(const job *job);
/* Memory for what is wanted. */
AVO_MUST_USE avo_status job_take_score_room(job *job, avo_error *error);
/* Behind a step, and behind its draws: logprobs and hidden states of the entry's rows. */
AVO_MUST_USE avo_status job_score(job *job, avo_batch *batch, const avo_session *session,
                                  const sched_entry *entry);
/* Tokens of the prompt that may be delivered. */
uint32_t job_scored(const job *job);

/* ---- scheduler_openings.c: adapters that must be opened first; the lock is held ---- */

/* The job waits until `name` was opened. */
AVO_MUST_USE avo_status opening_park(job *job, const char *name, avo_error *error);
/* A job that nobody works on ends at once: pending or parked. */
bool job_waits(const job *job);
void job_drop(job *job);
/* Closing: those that are parked end. */
void openings_cancel(avo_scheduler *s);
/* It has begun to wait: its deadlines are watched until it is taken. */
void job_watch(const job *job);

/* ---- Threads ---- */

void *tokenizer_main(void *scheduler);
void *engine_main(void *scheduler);
void *delivery_main(void *scheduler);
void *opener_main(void *scheduler);
void *watch_main(void *scheduler);
void *flight_main(void *scheduler);

/* ---- scheduler_engine.c: from a plan to tokens; on the engine thread ---- */

/* Lays a plan into the lane's batch; false: there is nothing in it to compute. */
bool step_build(avo_scheduler *s, serve_lane *lane, const sched_plan *plan, uint64_t now);
/* It is computed: time is learned from, tokens are drawn, the core is told, then everybody else. */
void step_learn(avo_scheduler *s, const sched_plan *plan, uint64_t ns);
void step_draw(avo_scheduler *s, serve_lane *lane, const sched_plan *plan);
/* After everybody has drawn: looking at rows takes the logits that draws need. */
void step_score(avo_scheduler *s, serve_lane *lane, const sched_plan *plan);
void step_done(avo_scheduler *s, serve_lane *lane, const sched_plan *plan);
/* A step that breaks takes those with it that were in it, and nobody else. */
void step_fail(avo_scheduler *s, serve_lane *lane, const sched_plan *plan);
/* What a plan says besides its entries: who has ended, who was preempted. */
void plan_publish(avo_scheduler *s, const sched_plan *plan);

/* ---- scheduler_flight.c: prompts beside decoding; on the engine thread ---- */

/* Draws from a flight that has landed; begins the next one, where there shall be one. */
void flight_turn(avo_scheduler *s);
/* Which rows the next step of lane 0 holds; its threads are set. */
sched_side flight_side(avo_scheduler *s);

/* ---- scheduler_telemetry.c; all of these do nothing where the engine has no telemetry ---- */

AVO_MUST_USE avo_status scheduler_telemetry_open(avo_scheduler *s, avo_error *error);
void scheduler_telemetry_close(avo_scheduler *s);
/* By a tokenizer thread: the request has its tokens and adapters. */
void note_tokenised(job *job, telemetry_track *track, uint64_t begin_ns);
/* The lock is held: it is in its first step; it has drawn; it is over. */
void note_begun(job *job);
void note_token(job *job, uint64_t now);
void note_over(job *job);
/* By the engine thread: what it did since `begin_ns`. */
void note_stage(avo_scheduler *s, span_kind kind, uint64_t begin_ns, uint32_t tokens);
/* By the delivery thread. */
void note_delivered(avo_scheduler *s, uint64_t number, uint64_t begin_ns, uint32_t tokens);
/* Before s->info has these counts. */
void note_rates(avo_scheduler *s, const sched_counts *counts);

/* ---- scheduler_slots.c: memory for the core, and what each slot holds ---- */

sched_memory slots_memory(avo_scheduler *s);
/* Of the session that computes it. */
avo_session_options slot_options(const job *job);
/* What the slot's request draws with; failing, the slot is broken. */
bool slot_prepare(serve_slot *slot);

#endif
