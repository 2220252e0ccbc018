/* `avocet eval TASK`: its flags and what it holds, between its files. */
#ifndef AVO_CLI_EVAL_TASK_H
#define AVO_CLI_EVAL_TASK_H

#include "cli/engine_flags.h"
#include "eval/report.h"

#define EVAL_TASKS_MAX 16

typedef struct eval_flags {
    const char *data, *shots, *samples, *against;
    const char *adapter_type, *python;
    option_list adapters;
    uint32_t limit, batch, context, max_tokens;
    bool json, resume, chat, no_begin, unsafe;
    avo_engine_options engine;
} eval_flags;

/* One task: what was read for it, its run, and the scores of the model compared with. */
typedef struct eval_job {
    eval_task *task;
    buffer text, shot_text;
    eval_documents documents, shots;
    eval_run run;
    bool opened; /* the run */
    double *other;
} eval_job;

typedef struct eval_jobs {
    const eval_flags *flags;
    eval_job job[EVAL_TASKS_MAX];
    size_t count;
    uint64_t begin_ns;
} eval_jobs;

/* Evaluates all tasks with a model; the first one's runs stay in the jobs, of the second the scores
 * are kept as `other`. */
AVO_MUST_USE avo_status eval_jobs_run(eval_jobs *jobs, const char *model_name, bool second,
                                      avo_error *error);

#endif
