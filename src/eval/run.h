/* Evaluates one task with one model: documents in, scores of every item out, with the samples file
 * that makes a run resumable.
 *
 * eval_run_open prepares items and reads what an earlier run has left; the caller then opens an
 * engine and a scheduler for the rest (eval_run_remaining, eval_ask_engine) and calls eval_run_ask.
 * The run owns items, scores and file; model, task and documents must outlive it. */
#ifndef AVO_EVAL_RUN_H
#define AVO_EVAL_RUN_H

#include "eval/ask.h"
#include "eval/code_run.h"

typedef struct eval_run_options {
    items_options items;
    const eval_documents *documents;
    const eval_documents *shots; /* NULL: the task has its own, or none */
    const avo_adapter_use *adapters;
    size_t adapter_count;
    const char *kv_type;      /* for the digest; NULL: the default */
    const char *samples_path; /* NULL: none */
    bool resume;              /* continue the samples file; else it must be new or empty */
    code_run_options code;    /* pass@1 */
    avo_progress_function progress;
    void *progress_context;
} eval_run_options;

typedef struct eval_run {
    const avo_allocator *allocator;
    const eval_task *task;
    const eval_documents *documents;
    eval_run_options options;
    eval_items items;
    uint32_t scores;   /* of an item: task_scores */
    double *score;     /* [items.count][scores]: 0 or 1, or the log-likelihood (perplexity) */
    bool *have;        /* [items.count] items with scores */
    uint32_t restored; /* of these, those that the samples file had */
    uint32_t done;     /* how many */
    uint64_t settings; /* digest of what all items depend on */
    uint32_t timeouts; /* pass@1: programs that were ended for taking too long */
    int samples;       /* file descriptor; −1: none */
    buffer line;
} eval_run;

AVO_MUST_USE avo_status eval_run_open(const eval_task *task, const eval_run_options *options,
                                      const avo_allocator *allocator, eval_run *run,
                                      avo_error *error);
void eval_run_close(eval_run *run);
static inline uint32_t eval_run_remaining(const eval_run *run) {
    return run->items.count - run->done;
}
/* Asks for the items that are not done. What is done stays done when it fails. */
AVO_MUST_USE avo_status eval_run_ask(eval_run *run, avo_scheduler *scheduler, avo_error *error);

/* Mean and standard error of a score over all items; of perplexity exp(−mean), with the error
 * carried through the exponential. One item has the error NaN. */
typedef struct eval_figure {
    double value, error;
} eval_figure;
eval_figure eval_run_figure(const eval_run *run, uint32_t score);

/* ---- score.c ---- */

/* The scores of an item. `passed` (−1: unknown) is what running the program gave before. */
AVO_MUST_USE avo_status eval_score(eval_run *run, uint32_t item, const eval_response *responses,
                                   const double *passed, double *scores, avo_error *error);

/* ---- samples.c: one line for each item and filter ---- */

/* Reads complete items of an earlier run into the scores and cuts an incomplete end off. */
AVO_MUST_USE avo_status samples_open(eval_run *run, avo_error *error);
AVO_MUST_USE avo_status samples_write(eval_run *run, uint32_t item, const eval_response *responses,
                                      avo_error *error);
AVO_MUST_USE avo_status samples_close(eval_run *run, avo_error *error);
/* The same for a complete run: the lines are then in the order of the documents. */
AVO_MUST_USE avo_status samples_finish(eval_run *run, avo_error *error);
/* The scores, [items][scores], that another run's samples file has for the same documents and
 * prompts, whatever its model. */
AVO_MUST_USE avo_status samples_compare(const eval_run *run, text_view text, const char *label,
                                        double *scores, avo_error *error);

#endif
