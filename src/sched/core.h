/* The scheduler itself: who computes what in the next step. No threads, no clock, no kernels, no
 * allocation after opening: time comes in as an argument, work goes out as a plan, and KV pages are
 * asked for through a table of functions. The engine's driver and the simulation run this very
 * code.
 *
 * A request's life:  waiting → running (prefill, then decode) → done
 *                       ↑________ preempted: its pages are taken away, it will be computed again
 *
 * One step:
 *   1. every running sequence that decodes gets its row (decode first), where adapters_max lets it:
 *      adapters of running sequences take turns, the one that has waited longest first;
 *   2. the rest of the step's row budget goes to prefill chunks, first of running, then of waiting
 *      requests, in order of precedence. The budget is what the cost model says fits into the
 *      target for the time between tokens; at least chunk_min rows when nothing decodes, and after
 *      PREFILL_SKIPS_MAX steps in a row that had no room for a chunk;
 *   3. where pages run out, the running sequence with the lowest rank is preempted. Admission never
 *      preempts: a request begins when its whole timeline has pages;
 *   4. draft tokens of sequences that decode get the rows, logits, pages and time that nothing else
 *      wanted. An entry with drafts draws 1 … 1 + drafts tokens, of which the pair pays for those
 *      that were accepted.
 *
 * Precedence of waiting requests: priority class first. Requests of one (tenant, adapter) pair and
 * class are a queue, first come first served; a queue is raised by one class for every `ageing_ns`
 * in which none of it was begun, up to class 0, so that nobody starves and a long queue is no
 * advantage. Within a class, the pair with the smallest counter: tokens computed over the tenant's
 * weight, which its pairs with work share (VTC). A pair that comes back begins where those are that
 * wait. Then order of submission.
 *
 * Rank of running and preempted ones: arrival + priority × ageing_ns, fixed for life. The first of
 * all is never preempted and so finishes, and everyone becomes the first: no livelock.
 *
 * Budgets: the running requests of a tenant may be limited in the pages that they need together at
 * their longest. A tenant whose next request does not fit waits, and others pass (budget.c).
 *
 * Deadlines: a request is refused when the cost model says that its first token cannot come in
 * time even if everybody else stands back, and ended when a deadline has passed. After
 * REFUSALS_MAX such refusals without a step between them one is tried all the same: a model that is
 * wrong must not keep away what would put it right. Everything waiting
 * is bounded in requests and tokens; a full queue answers with the time after which trying again
 * makes sense.
 *
 * Two sides: where decoding and prompts have dedicated cores, a plan holds rows of one kind
 * (sched_plan_side), and one prefill plan may be in flight while decode plans are made and done.
 * Its requests are neither ended nor preempted before it is done. A decoding sequence that needs a
 * page of one in flight waits, and no other prefill plan starts until it has the page.
 *
 * Costs: submission and cancellation are O(log n), with n waiting requests. Admission, preemption
 * and the end of a running request are O(log n + running): the adapter's group is searched among
 * the running ones, and ranks are kept in an array; admission also calls memory.begin, which looks
 * up a prefix page by page. A step is O(running) on top. docs/scheduler.md has the bounds and the
 * proofs.
 */
#ifndef AVO_SCHED_CORE_H
#define AVO_SCHED_CORE_H

#include "base/allocator.h"
#include "base/status.h"
#include "spec/choose.h"

/* ---- Limits ---- */
#define SCHED_PRIORITIES   16      /* 0 is served first */
#define SCHED_PAIRS_MAX    65536   /* (tenant, adapter) pairs with work */
#define SCHED_REQUESTS_MAX 1048576 /* waiting */
#define SCHED_RUNNING_MAX  4096
#define SCHED_WEIGHT_MIN   1e-3f /* of a tenant: its counters stay numbers that differ */
#define SCHED_WEIGHT_MAX   1e9f
#define REFUSALS_MAX       16
#define PREFILL_SKIPS_MAX  8 /* steps in which prefill may get nothing while others decode */

typedef struct sched sched;

/* ---- How fast a queue moves ---- */

/* Running means over those that began; 0: nothing known. Time in which nobody waited says nothing
 * about it and does not count. */
typedef struct sched_pace {
    double interval_ns, tokens; /* between two that begin; of one */
    uint64_t last_ns;           /* when the last one began */
    bool waited;                /* somebody has waited ever since */
} sched_pace;
/* One of `tokens` tokens has begun; `waiting`: others wait on. */
void sched_pace_begin(sched_pace *pace, uint64_t now_ns, uint64_t tokens, bool waiting);

/* What waits, and what may at most. */
typedef struct sched_crowd {
    uint32_t waiting, waiting_max;
    uint64_t tokens, tokens_max;
} sched_crowd;
/* Nanoseconds until a request of `tokens` tokens should find room; `first_ns`: the interval where
 * none is known. */
double sched_pace_retry(const sched_pace *pace, const sched_crowd *crowd, uint64_t tokens,
                        uint64_t now_ns, double first_ns);

/* ---- Memory and draft tokens, behind functions ---- */

/* Draft tokens behind the timeline of a sequence that decodes. */
typedef struct sched_wish {
    uint32_t sequence;
    uint32_t most;         /* that would fit */
    uint32_t count;        /* that there are; 0 when asked */
    const float *survival; /* [count] probability that a draft and all before it are right; lives
                              until the next call */
    bool always;           /* verify as many as fit, whatever they are worth */
} sched_wish;

/* Nanoseconds that drafts compete with. */
typedef struct sched_time {
    double token_ns; /* what a token of the step takes without drafts */
    double row_ns;   /* what one more row adds to the step */
    double left_ns;  /* of the target, beside the step; 0: there is no target */
    bool hopeless; /* no draft would pay, however sure: only those count that are always verified */
} sched_time;

/* Running sequences are numbered 0…running_max − 1; a number is used again when its sequence ends.
 */
typedef struct sched_memory {
    void *context;
    /* A sequence begins (again): returns how many leading tokens of its timeline (prompt and, after
     * preemption, what was generated) need not be computed. */
    uint32_t (*begin)(void *context, uint32_t sequence, uint64_t request);
    /* Room for `length` tokens; false: no pages. */
    bool (*reserve)(void *context, uint32_t sequence, uint32_t length);
    /* The sequence ends or is preempted; its pages are free (and may stay cached). */
    void (*end)(void *context, uint32_t sequence);
    /* Pages that could be had now, and tokens per page. */
    uint32_t (*available)(void *context);
    uint32_t page_tokens;
    /* Fills the wishes of all sequences of a step that may have drafts. NULL: there are never any.
     */
    void (*drafts)(void *context, sched_wish *wishes, uint32_t count, const sched_time *time);
} sched_memory;

typedef struct sched_options {
    uint32_t running_max;        /* sequences */
    uint32_t rows_max;           /* of a step; at least running_max */
    uint32_t logits_max;         /* rows of a step that are drawn from; 0: no limit of its own */
    uint32_t drafts_max;         /* draft tokens of a sequence in one step; 0: none */
    uint32_t waiting_max;        /* requests */
    uint64_t waiting_tokens_max; /* prompt and answer */
    uint32_t pages;              /* of the pool */
    uint32_t context_max;
    uint64_t target_ns;    /* wanted time between tokens; 0: throughput first, rows_max a step */
    uint64_t ageing_ns;    /* waiting that raises a request by one class */
    uint32_t chunk_min;    /* rows of a prefill chunk unless less is left */
    uint32_t adapters_max; /* distinct adapters in one step; 0: no limit */
    bool apart;            /* prompts are always computed by their own side: its cost decides which
                              deadlines can be met */
    uint32_t trust_steps;  /* done before `cost` is believed where it would refuse something: a
                              driver that begins with a guess must not refuse what would teach it */
    step_cost cost;
} sched_options;

AVO_MUST_USE avo_status sched_open(const sched_options *options, const sched_memory *memory,
                                   const avo_allocator *allocator, sched **out, avo_error *error);
void sched_close(sched *sched);

/* Which rows a plan holds. */
typedef enum sched_side { SCHED_BOTH, SCHED_DECODE, SCHED_PREFILL, SCHED_SIDES } sched_side;
/* To be taught by the driver: each side has its own. */
step_cost *sched_cost_model(sched *sched, sched_side side);

/* ---- Requests ---- */

typedef struct sched_request {
    uint64_t id;               /* unique, the caller's */
    uint64_t tenant;           /* any number; 0: nobody in particular */
    uint64_t adapter;          /* identifies the set of adapters; 0: none */
    uint32_t adapters;         /* how many adapters that is */
    uint32_t priority;         /* 0…SCHED_PRIORITIES − 1, 0 is served first */
    float weight;              /* of the tenant, SCHED_WEIGHT_MIN to SCHED_WEIGHT_MAX */
    uint64_t tenant_pages_max; /* that its running requests may need together; 0: no limit */
    uint32_t prompt_tokens;
    uint32_t new_tokens_max;
    uint64_t arrival_ns;
    uint64_t first_deadline_ns; /* absolute; 0: none */
    uint64_t deadline_ns;
    uint32_t reusable_tokens; /* of the prompt, believed to be cached: for deadlines only */
    bool no_answer; /* ends when its prompt is computed; new_tokens_max is 0 then, and only then */
    bool scored;    /* every row of its prompt has logits */
} sched_request;

typedef enum sched_outcome {
    SCHED_FINISHED,  /* the driver said so, or new_tokens_max is reached */
    SCHED_CANCELLED, /* by sched_cancel */
    SCHED_EXPIRED,   /* a deadline has passed */
    SCHED_REFUSED,   /* a deadline cannot be met, or the request fits into no pool */
    SCHED_FAILED     /* the driver said so */
} sched_outcome;

/* AVO_ERROR_FULL when the queue is: *retry_ns is the time after which it should have room.
 * AVO_ERROR_CONTEXT when it never fits the pool or its tenant's budget, AVO_ERROR_DEADLINE when its
 * deadline cannot be met, AVO_ERROR_LIMIT when it has more adapters than a step takes or more
 * tokens than may wait, AVO_ERROR_ARGUMENT for an id that lives and for numbers out of range. A
 * request that is not taken has no end to be told of. */
AVO_MUST_USE avo_status sched_submit(sched *sched, const sched_request *request, uint64_t now_ns,
                                     uint64_t *retry_ns, avo_error *error);
/* Takes effect with the next plan; false: no such request. */
bool sched_cancel(sched *sched, uint64_t id);

/* ---- Steps ---- */

typedef struct sched_entry {
    uint64_t request;
    uint32_t sequence;
    uint32_t first, rows; /* of the request's timeline: what is computed now */
    uint32_t drafts;      /* of these rows, the last ones: behind the timeline, to be verified */
    bool draws;           /* the last row before the drafts gives the next token */
} sched_entry;

typedef struct sched_end {
    uint64_t request;
    sched_outcome outcome;
} sched_end;

/* What to do now. Arrays live until the next plan, those of sched_step_done until its next call.
 * memory.end has been called for preempted and ended requests before this returns. */
typedef struct sched_plan {
    sched_side side;
    const sched_entry *entries; /* entries of one adapter stand together */
    uint32_t entry_count;
    const sched_end *ends; /* requests that ended without a step: cancelled, expired, refused */
    uint32_t end_count;
    const uint64_t *preempted;
    uint32_t preempted_count;
    step_load load;
    double predicted_ns;
} sched_plan;

/* A plan with entries must be done (sched_step_done) before the next one is asked for; requests may
 * come and be cancelled meanwhile. A plan without entries while something waits: there is nothing
 * to do before something arrives, or pages that others hold come free.
 * Of one side: a plan of SCHED_PREFILL may be in flight, its entries valid, while plans
 * of SCHED_DECODE are made and done; else nothing may be. Requests are admitted by plans that hold
 * prompts. */
void sched_plan_side(sched *sched, sched_side side, uint64_t now_ns, sched_plan *plan);

/* What there is to compute now, besides a prefill plan in flight. */
typedef struct sched_demand {
    uint32_t decoding;    /* sequences that would decode */
    uint32_t prompts;     /* running ones with rows of a prompt before them */
    uint64_t prompt_rows; /* of these, and of the first that waits where one more may run */
    uint32_t waiting;     /* and could run */
} sched_demand;
sched_demand sched_demands(const sched *sched);
/* What came of an entry. A request that has reached new_tokens_max ends by itself. */
typedef struct sched_result {
    uint32_t accepted; /* tokens of the answer: 1 … 1 + drafts of an entry that draws, unless it
                          failed; the timeline is computed up to the last of them */
    bool finished;     /* the last of them ends the answer (a stop) */
    bool failed;
} sched_result;
/* The planned step is done; results[i] is that of entry i. Returns those that ended. */
void sched_step_done(sched *sched, const sched_plan *plan, const sched_result *results,
                     uint64_t now_ns, const sched_end **ends, uint32_t *end_count);
bool sched_idle(const sched *sched);

typedef struct sched_counts {
    uint32_t waiting, running; /* waiting: preempted ones, too */
    uint64_t waiting_tokens;
    uint64_t submitted, finished, cancelled, expired, refused, failed, preemptions;
    uint64_t prompt_tokens, reused_tokens, new_tokens, recomputed_tokens;
    uint64_t resumed_tokens; /* found again after preemption: neither reused nor recomputed */
    uint64_t draft_tokens, accepted_drafts; /* verified, and of these right */
} sched_counts;
sched_counts sched_count(const sched *sched);
/* Every invariant, for tests and simulation; NULL or what is wrong. */
const char *sched_check(const sched *sched);

#endif
