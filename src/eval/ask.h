/* Asks a scheduler all queries of a task, a few hundred at a time, and hands the responses of each
 * item over as soon as it is complete, in any order. The responses are the same for any batch,
 * number of threads and prefix cache, because the engine's are.
 *
 * The caller owns scheduler and items, and no other thread may submit meanwhile. Fails when a
 * request fails, when the callbacks do, and for lack of memory; then all requests have ended. */
#ifndef AVO_EVAL_ASK_H
#define AVO_EVAL_ASK_H

#include "eval/items.h"

typedef struct eval_response {
    double logprob;  /* of the continuation: the sum over its tokens, first to last */
    bool greedy;     /* each of its tokens was the most likely one */
    text_view text;  /* TASK_GENERATE: the answer, without the stop string */
    uint32_t tokens; /* of the answer */
} eval_response;

typedef struct ask_options {
    avo_scheduler *scheduler;
    const avo_adapter_use *adapters;
    size_t adapter_count;
    const bool *done; /* [items.count] items that are not asked; NULL: none */
    /* Gets the item's responses, one for each of its queries; called by the thread that called
     * eval_ask. What they point to is valid during the call. */
    avo_status (*take)(void *context, uint32_t item, const eval_response *responses,
                       avo_error *error);
    void *take_context;
    avo_progress_function progress; /* in items; called several times a second; NULL: none */
    void *progress_context;
} ask_options;

AVO_MUST_USE avo_status eval_ask(const eval_task *task, const eval_items *items,
                                 const ask_options *options, const avo_allocator *allocator,
                                 avo_error *error);

/* Sets the sizes of an engine that computes `batch` queries at a time; leaves fields alone that the
 * caller has set. */
void eval_ask_engine(const eval_task *task, const eval_items *items, uint32_t batch,
                     avo_engine_options *options);

#endif
