/* Training data: files become samples of token ids with the tokens that count. Reads JSONL, JSON,
 * CSV and plain text, finds the keys by itself, applies the model's chat template and masks
 * everything but the assistant's text. Called by the training loop and by --dry-run. A file that
 * cannot be used is refused with its name, line and key; lines are never skipped silently.
 *
 * Files are read item by item; tokens and masks of all samples stay in memory (5 bytes a token), up
 * to memory_max. docs/train-data.md lists formats, keys and masks. */
#ifndef AVO_TRAIN_DATA_H
#define AVO_TRAIN_DATA_H

#include "base/json.h"

typedef struct train_data train_data;

#define TRAIN_DATA_SAMPLES_MAX ((uint64_t)1 << 28)
#define TRAIN_DATA_MEMORY_MAX  ((uint64_t)16 << 30)
#define TRAIN_DATA_ITEM_MAX    ((size_t)64 << 20) /* bytes of one item of a file */
#define TRAIN_DATA_LENGTHS     25                 /* 2^24: the longest context */

typedef enum train_data_kind {
    TRAIN_DATA_TEXT,       /* the whole text counts: pre-training, or "text" samples */
    TRAIN_DATA_CHAT,       /* messages (tools): what the assistant says counts */
    TRAIN_DATA_COMPLETION, /* prompt, completion: the completion counts */
    TRAIN_DATA_PREFERENCE, /* prompt, chosen, rejected */
    TRAIN_DATA_PROMPT      /* prompt or messages, and any other fields, for rewards */
} train_data_kind;

typedef enum train_data_use {
    TRAIN_FOR_SFT,   /* TEXT, CHAT, COMPLETION */
    TRAIN_FOR_DPO,   /* PREFERENCE */
    TRAIN_FOR_RL,    /* PROMPT */
    TRAIN_FOR_HEADS, /* as SFT where items have answers, else PROMPT */
    /* TEXT, CHAT, COMPLETION, all of which become one text each: everything in it counts. Texts are
     * joined with the end token between them and divided into samples of context_max tokens, the
     * first of which is the last of the sample before, so that every token counts once. */
    TRAIN_FOR_PRETRAIN
} train_data_use;

typedef struct train_data_options {
    const avo_allocator *allocator;
    train_data_use use;   /* which kinds are accepted */
    uint32_t context_max; /* longer samples: refused, or cut at the end where `cut`; at least 2 */
    bool cut;
    const char *const *more; /* further files or folders, whose samples follow */
    uint32_t more_count;
    bool no_template;    /* prompt and completion are joined as they are, also for chat models */
    const char *system;  /* put before conversations that have no system message; NULL: nothing */
    int64_t now;         /* Unix time that templates see; 0: 2026-01-01, so that tokens do not
                            depend on the day */
    uint64_t memory_max; /* bytes of all samples; 0: TRAIN_DATA_MEMORY_MAX */
    avo_progress_function progress;
    void *progress_context;
} train_data_options;

/* A file, or a folder with train.jsonl (.ndjson, .json, .csv, .txt) and perhaps valid.jsonl.
 * `split`: "train" or "valid"; a file is its own "train". AVO_ERROR_NOT_FOUND where a folder has no
 * such split. The model must outlive the data only during the call. */
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
    uint64_t samples, tokens, wanted_tokens; /* tokens: of `rejected`, too */
    uint32_t longest, shortest;              /* of a sequence */
    uint64_t cut;                            /* samples that were too long */
    uint64_t dropped; /* … and had nothing that counts within context_max: not among `samples` */
    uint32_t lengths[TRAIN_DATA_LENGTHS]; /* samples of up to 2^i tokens */
    uint64_t digest[2]; /* of the tokens and masks: a checkpoint continues on the same data only */
    const char *keys;   /* which keys were found: "messages", "prompt, completion" */
    const char *path;   /* of the file */
    const char *mask;   /* how the tokens that count were found: "generation blocks", … */
} train_data_info;
train_data_info train_data_describe(const train_data *data);
const char *train_data_kind_name(train_data_kind kind);
/* Valid as long as the data. */
train_sample train_data_at(const train_data *data, uint64_t index);

/* Appends a sequence as text in which tokens that count stand between `open` and `close` (such as
 * "[" and "]", or escape sequences of a terminal); special tokens are shown. For --dry-run. */
AVO_MUST_USE avo_status train_data_show(const avo_model *model, train_tokens tokens,
                                        const char *open, const char *close, buffer *out,
                                        avo_error *error);

/* The order of samples in an epoch: a permutation that depends on seed, epoch and the number of
 * samples alone. `index` < samples. */
uint64_t train_data_order(uint64_t samples, uint64_t seed, uint64_t epoch, uint64_t index);

#endif
