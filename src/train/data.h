/* Training data: files become samples of token ids with the tokens that count. Reads JSONL, JSON
 * and CSV, finds the keys by itself, applies the model's chat template and masks everything but the
 * assistant's text. Called by the training loop and by --dry-run. A file that cannot be used is
 * refused with its name, line and key; lines are never skipped silently. */
#ifndef AVO_TRAIN_DATA_H
#define AVO_TRAIN_DATA_H

#include "avocet.h"
#include "base/json.h"

typedef struct train_data train_data;

#define TRAIN_DATA_SAMPLES_MAX ((uint64_t)1 << 28)

typedef enum train_data_kind {
    TRAIN_DATA_TEXT,       /* the whole text counts: pre-training, or "text" samples */
    TRAIN_DATA_CHAT,       /* messages (tools): what the assistant says counts */
    TRAIN_DATA_COMPLETION, /* prompt, completion: the completion counts */
    TRAIN_DATA_PREFERENCE, /* prompt, chosen, rejected */
    TRAIN_DATA_PROMPT      /* prompt or messages, and any other fields, for rewards */
} train_data_kind;

typedef enum train_data_use {
    TRAIN_FOR_SFT,
    TRAIN_FOR_DPO,
    TRAIN_FOR_RL,
    TRAIN_FOR_PRETRAIN
} train_data_use;

typedef struct train_data_options {
    const avo_allocator *allocator;
    train_data_use use;   /* which kinds are accepted */
    uint32_t context_max; /* longer samples: refused, or cut where `cut` */
    bool cut;
    /* Pre-training: texts are joined with the end token between them and divided into samples of
     * context_max tokens. */
    bool no_template;   /* prompt and completion are joined as they are, also for chat models */
    const char *system; /* put before conversations that have no system message; NULL: nothing */
    avo_progress_function progress;
    void *progress_context;
} train_data_options;

/* A file, or a folder with train.jsonl (.json, .csv, .txt) and perhaps valid.jsonl. `split`:
 * "train" or "valid". AVO_ERROR_NOT_FOUND where a folder has no such split. */
AVO_MUST_USE avo_status train_data_open(const avo_model *model, const char *path, const char *split,
                                        const train_data_options *options, train_data **out,
                                        avo_error *error);
void train_data_close(train_data *data);

typedef struct train_tokens {
    const int32_t *tokens;
    const uint8_t *wanted; /* [count] the token counts; the first is 0 */
    uint32_t count;
} train_tokens;

typedef struct train_sample {
    train_tokens text; /* PREFERENCE: prompt and chosen; PROMPT: the prompt alone, nothing counts */
    train_tokens rejected;    /* PREFERENCE: prompt and rejected; else count 0 */
    const json_value *fields; /* PROMPT: the item as it is in the file; else NULL */
    const char *prompt;       /* PROMPT: as text, rendered; else NULL */
} train_sample;

typedef struct train_data_info {
    train_data_kind kind;
    uint64_t samples, tokens, wanted_tokens;
    uint32_t longest, shortest;
    uint64_t cut;         /* samples that were too long */
    uint32_t lengths[16]; /* samples of up to 2^i tokens */
    uint64_t digest[2]; /* of the tokens and masks: a checkpoint continues on the same data only */
    const char *keys;   /* which keys were found: "messages", "prompt, completion" */
} train_data_info;
train_data_info train_data_describe(const train_data *data);
/* Valid as long as the data. */
train_sample train_data_at(const train_data *data, uint64_t index);

/* The order of samples in an epoch: a permutation that depends on seed, epoch and the number of
 * samples alone. */
uint64_t train_data_order(uint64_t samples, uint64_t seed, uint64_t epoch, uint64_t index);

#endif
