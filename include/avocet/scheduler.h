/* Part of avocet.h, which includes it: the scheduler. The rules at the head of avocet.h hold here,
 * too. */
#ifndef AVO_AVOCET_SCHEDULER_H
#define AVO_AVOCET_SCHEDULER_H

#ifndef AVOCET_H
#error "include avocet.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Runs many requests on one engine. The scheduler's own thread drives the engine; no other thread
 * may use the engine until the scheduler is closed. Any thread can submit and cancel requests.
 * Engine and registry must outlive the scheduler. */
typedef struct avo_scheduler avo_scheduler;

typedef struct avo_scheduler_options {
    size_t size;                 /* sizeof(avo_scheduler_options) */
    uint32_t running_max;        /* requests running at a time; 0: the engine's sessions_max */
    uint32_t waiting_max;        /* requests that may wait; 0: 1024 */
    uint64_t waiting_tokens_max; /* tokens of their prompts and answers; 0: 16 times the KV pool */
    double token_seconds;  /* target time between two tokens of a request during prefill of others;
                              0: 0.2; negative: maximise throughput */
    double ageing_seconds; /* waiting time that raises a request by one priority; 0: 2 */
    uint32_t tokenizer_threads; /* these also open adapters; 0: 2 */
    bool no_prefix_cache;
    avo_registry *registry; /* for adapters by name; NULL: requests point to their adapters */
    uint32_t adapters_max;  /* distinct adapters per step, served round robin; 0: no limit */
    /* How decode and prefill share the threads. "mixed" (NULL): one step contains both. "static":
     * prefill_threads of the engine's threads prefill in parallel with decode. "adaptive": prefill
     * in parallel with decode if both kinds of work are waiting and a common step would delay
     * decode, with a number of threads that follows the load; otherwise all threads do the same
     * step. The last two need an engine with two streams. Answers are the same bytes. */
    const char *cores;
    uint32_t prefill_threads; /* static: prefill threads, 0: half; adaptive: their maximum, 0: all
                                 but one */
    /* A file of earlier answers to draft from (source "corpus"), read when the scheduler opens; a
     * file that does not exist is an empty one. AVO_ERROR_ARGUMENT: it is of another model, or the
     * engine has no such source or has used it already. AVO_ERROR_FORMAT: it is damaged.
     * avo_scheduler_save_corpus writes it. NULL: none. */
    const char *draft_corpus;
} avo_scheduler_options;
#define AVO_SCHEDULER_OPTIONS_INIT                                                                 \
    { sizeof(avo_scheduler_options), 0, 0, 0, 0.0, 0.0, 0, false, NULL, 0, NULL, 0, NULL }

/* AVO_ERROR_ARGUMENT if the engine has open sessions or batches or another scheduler. None can be
 * opened until the scheduler is closed. */
AVO_API AVO_MUST_USE avo_status avo_scheduler_open(avo_engine *engine,
                                                   const avo_scheduler_options *options,
                                                   avo_scheduler **scheduler, avo_error *error);
/* Cancels running and waiting requests (AVO_FINISH_CANCELLED), delivers their last events and
 * returns. Calls of other threads that have already begun return first: a batch with its requests
 * cancelled, a drain with the requests that are left. No call may begin after this one, because the
 * handle becomes invalid. */
AVO_API void avo_scheduler_close(avo_scheduler *scheduler);
/* Accepts no new requests (AVO_ERROR_FULL) and returns when all have finished or after `seconds`.
 * True if none is left. */
AVO_API bool avo_scheduler_drain(avo_scheduler *scheduler, double seconds);

/* AVO_ERROR_FULL: the queue is full, in requests or tokens; *retry_seconds (may be NULL) says when
 * to try again. This is checked before tokenizing. AVO_ERROR_CONTEXT: the text or the messages have
 * more bytes than the context could hold even with the longest tokens (64 KiB are always accepted);
 * nothing is copied then. Other errors of the request are returned here if they can be detected
 * immediately, else sent as AVO_EVENT_FAILED. */
AVO_API AVO_MUST_USE avo_status avo_scheduler_submit(avo_scheduler *scheduler,
                                                     const avo_request *request, uint64_t *number,
                                                     double *retry_seconds, avo_error *error);
/* Ends the request with AVO_FINISH_CANCELLED within a step. False if it is unknown or has ended. */
AVO_API bool avo_scheduler_cancel(avo_scheduler *scheduler, uint64_t number);

/* Submits many requests and returns when all have ended. Events carry the index of the request and
 * are sent as they occur. `shared` is the sampling (NULL: greedy) of requests that have none. A
 * request that fails does not affect the others. */
AVO_API AVO_MUST_USE avo_status avo_scheduler_batch(avo_scheduler *scheduler,
                                                    const avo_request *requests, size_t count,
                                                    const avo_sampling *shared,
                                                    avo_event_function on_event,
                                                    void *on_event_context, avo_error *error);

/* Writes the earlier answers that requests draft from to a file, which replaces one of that name at
 * once and which only its owner can read: it holds what users were told. Any thread; the engine
 * thread only copies them in memory, between two steps. The file goes with the model: it is read
 * again by avo_scheduler_options.draft_corpus. AVO_ERROR_ARGUMENT: the engine has no such source.
 */
AVO_API AVO_MUST_USE avo_status avo_scheduler_save_corpus(avo_scheduler *scheduler,
                                                          const char *path, avo_error *error);

typedef struct avo_scheduler_info {
    size_t size; /* sizeof(avo_scheduler_info), set by the caller */
    uint32_t waiting, running;
    uint64_t waiting_tokens;
    uint64_t submitted, finished, cancelled, expired, refused, failed, preemptions;
    uint64_t prompt_tokens, reused_tokens, new_tokens, recomputed_tokens;
    uint64_t steps;
    double step_seconds; /* time spent in steps */
    double busy_seconds; /* time of the engine thread outside steps: sampling, planning */
    /* CPU time of the tokenizer threads and of delivery, including callbacks. */
    double tokenizer_seconds, delivery_seconds;
    /* KV pages, and tokens looked up and found in the prefix cache, after the last step. */
    uint32_t pages_free, pages_cached, pages_used;
    uint64_t prefix_queried_tokens, prefix_hit_tokens;
    /* With `cores`: prefill steps in parallel with decode (included in steps), the time spent in
     * them (not included in step_seconds), and the threads of the last one. */
    uint64_t prefill_steps;
    double prefill_seconds;
    uint32_t prefill_threads;
    /* Tokens that preempted requests found in the cache when they resumed (not included in
     * reused_tokens). Tokens they had to compute again are recomputed_tokens. */
    uint64_t resumed_tokens;
    uint64_t drafted_tokens, accepted_tokens; /* draft tokens verified, and of these accepted */
    /* Requests that failed with AVO_ERROR_DEVICE since a step last succeeded. A device that fails
     * for good fails every further request; opening the engine again may help. */
    uint64_t device_failures;
} avo_scheduler_info;
#define AVO_SCHEDULER_INFO_INIT                                                                    \
    {                                                                                              \
        sizeof(avo_scheduler_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0,    \
            0.0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0                                              \
    }
AVO_API void avo_scheduler_describe(avo_scheduler *scheduler, avo_scheduler_info *info);

#ifdef __cplusplus
}
#endif

#endif
