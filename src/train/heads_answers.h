/* What the model says to the prompts of training data for draft heads: heads learn to guess the
 * model's own words. Answers are kept in a file of the output folder, a line for each, so that a
 * run that is resumed has them already:
 *
 *   {"avocet_answers": 1, "key": "0123456789abcdef"}
 *   {"tokens": [5, 17, 2]}                              of sample 0, and so on
 *
 * The key is a digest of model, data and the settings that answers depend on. A file of others is
 * replaced. Answers do not depend on how many are computed together. */
#ifndef AVO_TRAIN_HEADS_ANSWERS_H
#define AVO_TRAIN_HEADS_ANSWERS_H

#include "base/arena.h"
#include "train/run_int.h"

typedef struct train_answers {
    const train_data *data;
    train_data_info info;
    const char *file; /* its name */
    /* Private: */
    arena arena;
    train_tokens *items; /* [info.samples] prompts with answers */
    uint64_t count;      /* of them that are there */
    uint64_t key;
    int descriptor;
    char path[4400];
} train_answers;

/* With data, info and file filled in: reads the file and lets the model answer what is missing. An
 * answer takes at most context_max − prompt tokens. */
AVO_MUST_USE avo_status answers_open(train_run_state *run, train_answers *answers);
void answers_close(train_answers *answers);
static inline train_tokens answers_at(const train_answers *answers, uint64_t index) {
    return answers->items[index];
}

/* ---- The file (fuzz/fuzz_train_answers.c) ---- */

/* A line after the first: 1 to `most` tokens below `vocabulary`. False: it is no such line. */
bool answers_read_line(arena *arena, text_view line, uint32_t vocabulary, uint32_t most,
                       int32_t *tokens, uint32_t *count);
/* The first line. */
bool answers_read_key(arena *arena, text_view line, uint64_t key);

#endif
