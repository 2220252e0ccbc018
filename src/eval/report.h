/* What a run of one or more tasks found, as lm-eval's results file has it and as a table. */
#ifndef AVO_EVAL_REPORT_H
#define AVO_EVAL_REPORT_H

#include "eval/pairs.h"
#include "eval/run.h"

typedef struct report_task {
    const eval_run *run;
    const double *other; /* [items][scores] of the model compared with; NULL: none */
} report_task;

typedef struct eval_report {
    const report_task *task;
    size_t tasks;
    const char *model, *against; /* names; NULL: not compared */
    uint32_t limit;
    bool chat;
    double seconds;
} eval_report;

/* The pairs of one score; of all tasks' headline scores together, perplexities left out. */
eval_pairs report_pairs(const report_task *task, uint32_t score);
eval_pairs report_pooled(const eval_report *report);

AVO_MUST_USE avo_status report_json(const eval_report *report, buffer *out);
AVO_MUST_USE avo_status report_table(const eval_report *report, buffer *out);

#endif
