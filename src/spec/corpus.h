/* Earlier answers to draft from, kept apart by key: one index of contexts (suffix.h) holds the
 * texts of all keys, every context belongs to one key, and no key ever matches the text of another.
 * The oldest tokens are forgotten first, whichever key they have; past keys_max the least recently
 * used key is forgotten with all of its text.
 *
 * The key must stand for everything that another user must not learn: the tenant and the salt of
 * its prefix cache; and the adapters, whose answers differ. prefix_root (memory/pages.h) is no such
 * key, because its hash changes with every process: give corpus_key_of what prefix_root is made of.
 *
 * All memory is taken when it opens; adding and proposing neither allocate nor fail. Not for
 * several threads. corpus_file.h describes the file; save it beside the model, not in a shared
 * folder: it holds what users were told, and is readable by its owner only.
 */
#ifndef AVO_SPEC_CORPUS_H
#define AVO_SPEC_CORPUS_H

#include "base/buffer.h"
#include "spec/suffix.h"

#define CORPUS_KEYS_MAX ((uint32_t)1 << 16)

typedef struct corpus_options {
    uint32_t tokens_max;   /* of all keys together; 1 … SUFFIX_TOKENS_MAX */
    uint32_t keys_max;     /* 1 … CORPUS_KEYS_MAX */
    uint32_t vocabulary;   /* ids of tokens are below this */
    uint64_t model_digest; /* files of other models are refused */
} corpus_options;

typedef struct corpus_key {
    uint64_t words[2];
} corpus_key;

typedef struct corpus corpus;

/* Bytes of a corpus with valid options. */
size_t corpus_bytes(const corpus_options *options);
AVO_MUST_USE avo_status corpus_open(const corpus_options *options, const avo_allocator *allocator,
                                    corpus **out, avo_error *error);
/* NULL is ignored. */
void corpus_close(corpus *corpus);
/* Forgets all texts and keys. */
void corpus_clear(corpus *corpus);

/* The key for tenant, salt and adapters, written into `data` one behind the other without doubt
 * where each ends. The hash is seeded per corpus, and the file carries the seed: keys stay the same
 * across restarts, but ask again after corpus_load. */
corpus_key corpus_key_of(const corpus *corpus, const void *data, size_t bytes);

/* An answer that ended; the last tokens of its prompt in front of it let its first tokens be
 * drafted, too. */
void corpus_add(corpus *corpus, corpus_key key, const int32_t *tokens, size_t count);
/* Drafts what follows a sequence of this key, of which `tokens` are the newest `count`; the last
 * SUFFIX_LENGTH_MAX are enough. The key then counts as used. */
suffix_match corpus_propose(corpus *corpus, corpus_key key, const int32_t *tokens, size_t count,
                            uint32_t most, int32_t *drafts);

typedef struct corpus_counts {
    uint32_t keys;
    uint32_t tokens; /* in the window, breaks between texts and text of forgotten keys included */
} corpus_counts;
corpus_counts corpus_count(const corpus *corpus);

/* Which model its texts are of, where that was not known when it opened. */
void corpus_set_model(corpus *corpus, uint64_t digest);

/* The file as bytes. A buffer with corpus_encoded_max bytes to spare grows no more. */
size_t corpus_encoded_max(const corpus *corpus);
AVO_MUST_USE avo_status corpus_encode(corpus *corpus, buffer *out);
/* Writes such bytes to a temporary and renames it; may be called by any thread. */
AVO_MUST_USE avo_status corpus_write(bytes_view bytes, const char *path, avo_error *error);
/* Both. */
AVO_MUST_USE avo_status corpus_save(corpus *corpus, const char *path, avo_error *error);
/* Into a corpus without texts. A file of another model or a damaged one is refused, and then
 * nothing has changed. Of more keys or tokens than there is space for, the newest are taken. */
AVO_MUST_USE avo_status corpus_load(corpus *corpus, const char *path, avo_error *error);
/* The same of bytes in memory; `path` is for texts of errors. */
AVO_MUST_USE avo_status corpus_load_bytes(corpus *corpus, bytes_view bytes, const char *path,
                                          avo_error *error);

#endif
