/* The metrics of a run as a page draws them: metrics.jsonl as it is read while the run goes on, by
 * a server that does not know who wrote it. Lines that are no metrics are counted and left out;
 * memory and output have limits. Called by runs.c. */
#ifndef AVO_TRAIN_HISTORY_H
#define AVO_TRAIN_HISTORY_H

#include "base/json_writer.h"

#define HISTORY_SERIES_MAX 24   /* metrics with a curve; further ones are left out */
#define HISTORY_POINTS_MAX 400u /* of a curve; more become means of neighbours */
#define HISTORY_NAME_BYTES 96

typedef struct history_facts {
    uint64_t lines, skipped; /* good ones, others */
    uint64_t step;           /* of the last line; 0: none */
    double step_time;        /* mean of the last steps in seconds; 0: not known */
} history_facts;

/* `text` is the file or, with `cut`, its last part, whose first line may be half of one. A last
 * line without its newline is being written and not counted. Adds "latest" (the newest value of
 * every metric) and "series" (name: [[step, value], …], in the order in which they first appeared)
 * to the open object of `w`. Fails without memory only. */
AVO_MUST_USE avo_status history_write(const avo_allocator *allocator, text_view text, bool cut,
                                      json_writer *w, history_facts *facts, avo_error *error);
/* The facts alone, of the last lines: cheap. */
AVO_MUST_USE avo_status history_look(const avo_allocator *allocator, text_view text, bool cut,
                                     history_facts *facts, avo_error *error);

#endif
