/* Training a byte-level BPE vocabulary: texts to a tokenizer.json that this engine and Hugging Face
 * `tokenizers` load with equal ids. Called by train/init.h and by tools.
 *
 *   add texts (their words are counted) → run (the most frequent pair becomes a token, again and
 *   again) → write
 *
 * Ids: special tokens, the 256 bytes in the order of their characters, merges. Of pairs with the
 * same count the one with the smaller ids comes first, so the same texts give the same file. Memory
 * grows with the number of different words. Fails for lack of memory, and for texts that are not
 * UTF-8. */
#ifndef AVO_TRAIN_BPE_H
#define AVO_TRAIN_BPE_H

#include "base/buffer.h"
#include "tokenizer/words.h"

typedef struct train_bpe train_bpe;

#define TRAIN_BPE_SPECIAL_MAX    256
#define TRAIN_BPE_TOKEN_MAX      256 /* bytes of one token */
#define TRAIN_BPE_VOCABULARY_MAX ((uint32_t)1 << 20)

typedef struct train_bpe_options {
    const avo_allocator *allocator;
    uint32_t vocabulary;        /* tokens in all; at least 256 and the special ones */
    word_pattern pattern;       /* how texts are divided into words */
    uint64_t count_min;         /* pairs that are seen less often are not merged; 0: 1 */
    const char *const *special; /* [special_count] texts of special tokens */
    size_t special_count;
    avo_progress_function progress;
    void *progress_context;
} train_bpe_options;

/* The special tokens' texts must live as long as the object. */
AVO_MUST_USE avo_status train_bpe_open(const train_bpe_options *options, train_bpe **out,
                                       avo_error *error);
void train_bpe_close(train_bpe *bpe);

AVO_MUST_USE avo_status train_bpe_add(train_bpe *bpe, text_view text, avo_error *error);
/* All texts of a data file (train/data.h): texts, the contents of messages, prompts and answers. */
AVO_MUST_USE avo_status train_bpe_add_file(train_bpe *bpe, const char *path, avo_error *error);
/* Once, after all texts. With few texts there are fewer tokens than asked for. */
AVO_MUST_USE avo_status train_bpe_run(train_bpe *bpe, avo_error *error);

typedef struct train_bpe_info {
    uint64_t bytes; /* of all texts */
    uint64_t words; /* different ones */
    uint32_t merges;
    uint32_t vocabulary;
} train_bpe_info;
train_bpe_info train_bpe_describe(const train_bpe *bpe);

/* tokenizer.json, appended. */
AVO_MUST_USE avo_status train_bpe_json(const train_bpe *bpe, buffer *out, avo_error *error);

#endif
