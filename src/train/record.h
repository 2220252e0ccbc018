/* What a training run writes about itself: metrics.jsonl (a line for every step, appended as it
 * happens), trainer_state.json (the same lines as "log_history", with the keys of transformers'
 * Trainer) and curves.svg. Owned by the loop. A file that cannot be written fails the run. */
#ifndef AVO_TRAIN_RECORD_H
#define AVO_TRAIN_RECORD_H

#include "base/json_writer.h"

#define RECORD_HISTORY_MAX ((size_t)1 << 30) /* bytes of all lines */

typedef struct train_record {
    const avo_allocator *allocator;
    char path[4096]; /* of metrics.jsonl */
    int descriptor;  /* of metrics.jsonl; −1: not open */
    buffer history;  /* the lines, with commas between them */
    buffer line;     /* the one that is being written */
    json_writer writer;
    double best; /* of eval_loss; NAN: none yet */
    uint64_t best_step;
} train_record;

/* Starts metrics.jsonl in `folder` anew, with the lines of `log_history` (NULL: none), which a
 * checkpoint kept: lines of steps that will be repeated disappear. */
AVO_MUST_USE avo_status train_record_open(const avo_allocator *allocator, const char *folder,
                                          const json_value *log_history, train_record *record,
                                          avo_error *error);
void train_record_close(train_record *record);

/* An open object to add members to; train_record_end closes and appends it. `*line` (may be NULL)
 * is terminated and valid until the next one. */
json_writer *train_record_begin(train_record *record);
AVO_MUST_USE avo_status train_record_end(train_record *record, const char **line, avo_error *error);

typedef struct record_state {
    uint64_t step, steps;
    double epoch, epochs;
    uint64_t tokens; /* seen so far */
    uint32_t batch, eval_every, save_every;
} record_state;
/* trainer_state.json in `folder`, replaced at once. */
AVO_MUST_USE avo_status train_record_write_state(const train_record *record, const char *folder,
                                                 const record_state *state, avo_error *error);

/* curves.svg in `folder`: a panel for each of the metrics that people look at. */
AVO_MUST_USE avo_status train_record_write_curves(const train_record *record, const char *folder,
                                                  avo_error *error);
/* The same of lines that a program has: an array of objects (curves.c). */
AVO_MUST_USE avo_status curves_draw(const json_value *lines, buffer *svg, avo_error *error);

#endif
