/* Texts by key: the table of keys and their order of use. */
#include "spec/corpus_int.h"

#include "base/allocator.h"
#include "base/hash.h"

#include <assert.h>
#include <string.h>

static uint32_t buckets_for(uint32_t keys_max) {
    uint32_t buckets = 1;
    while (buckets < keys_max)
        buckets *= 2;
    return buckets;
}

static size_t table_bytes(const corpus_options *options) {
    return sizeof(corpus) + options->keys_max * sizeof(corpus_entry) +
           buckets_for(options->keys_max) * sizeof(uint32_t);
}

static suffix_options index_options(const corpus_options *options) {
    return (suffix_options){
        .tokens_max = options->tokens_max, .length_max = SUFFIX_LENGTH_MAX, .owners = true};
}

size_t corpus_bytes(const corpus_options *options) {
    suffix_options index = index_options(options);
    return table_bytes(options) + suffix_options_bytes(&index);
}

static void forget_keys(corpus *corpus) {
    corpus->key_count = 0;
    corpus->newest = corpus->oldest = CORPUS_NONE;
    memset(corpus->buckets, 0xff, ((size_t)corpus->bucket_mask + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < corpus->options.keys_max; i++)
        corpus->entries[i] = (corpus_entry){.owner = i};
}

avo_status corpus_open(const corpus_options *options, const avo_allocator *allocator, corpus **out,
                       avo_error *error) {
    if (options->keys_max == 0 || options->keys_max > CORPUS_KEYS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "corpus: keys_max is %u, must be 1 to %u",
                           options->keys_max, CORPUS_KEYS_MAX);
    if (options->vocabulary == 0 || options->vocabulary > INT32_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "corpus: vocabulary is %u, must be 1 to %d",
                           options->vocabulary, INT32_MAX);
    suffix_index *index;
    suffix_options wanted = index_options(options);
    AVO_TRY(suffix_options_open(&wanted, allocator, &index, error));
    size_t bytes = table_bytes(options);
    corpus *opened = allocator_take(allocator, bytes);
    if (opened == NULL) {
        suffix_index_close(index);
        return status_no_memory(error, "the keys of the corpus", bytes);
    }
    *opened = (corpus){.allocator = allocator,
                       .options = *options,
                       .key_seed = hash_key_seed(),
                       .index = index,
                       .bytes = bytes,
                       .bucket_mask = buckets_for(options->keys_max) - 1,
                       .entries = (corpus_entry *)(void *)(opened + 1)};
    opened->buckets = (uint32_t *)(void *)(opened->entries + options->keys_max);
    forget_keys(opened);
    *out = opened;
    return AVO_OK;
}

void corpus_close(corpus *corpus) {
    if (corpus == NULL)
        return;
    suffix_index_close(corpus->index);
    allocator_give(corpus->allocator, corpus, corpus->bytes);
}

void corpus_clear(corpus *corpus) {
    suffix_index_clear(corpus->index);
    forget_keys(corpus);
}

void corpus_set_model(corpus *corpus, uint64_t digest) {
    corpus->options.model_digest = digest;
}

corpus_key corpus_key_of(const corpus *corpus, const void *data, size_t bytes) {
    corpus_key key;
    hash_key_wide_seeded(data, bytes, corpus->key_seed, key.words);
    return key;
}

/* ---- Keys ---- */

static bool is_key(const corpus_entry *entry, corpus_key key) {
    return entry->key.words[0] == key.words[0] && entry->key.words[1] == key.words[1];
}

/* The link to the entry of this key, or to the end of its chain. */
static uint32_t *find_link(corpus *corpus, corpus_key key) {
    /* Keys of a file may be anything: they are hashed again. */
    uint64_t hash = hash_key_seeded(&key, sizeof(key), corpus->key_seed);
    uint32_t *link = &corpus->buckets[hash & corpus->bucket_mask];
    while (*link != CORPUS_NONE && !is_key(&corpus->entries[*link], key))
        link = &corpus->entries[*link].next;
    return link;
}

static void take_from_order(corpus *corpus, uint32_t number) {
    const corpus_entry *entry = &corpus->entries[number];
    *(entry->newer == CORPUS_NONE ? &corpus->newest : &corpus->entries[entry->newer].older) =
        entry->older;
    *(entry->older == CORPUS_NONE ? &corpus->oldest : &corpus->entries[entry->older].newer) =
        entry->newer;
}

static void put_newest(corpus *corpus, uint32_t number) {
    corpus_entry *entry = &corpus->entries[number];
    entry->newer = CORPUS_NONE;
    entry->older = corpus->newest;
    *(corpus->newest == CORPUS_NONE ? &corpus->oldest : &corpus->entries[corpus->newest].newer) =
        number;
    corpus->newest = number;
}

uint32_t corpus_use(corpus *corpus, corpus_key key) {
    uint32_t number = *find_link(corpus, key);
    if (number != CORPUS_NONE && number != corpus->newest) {
        take_from_order(corpus, number);
        put_newest(corpus, number);
    }
    return number;
}

uint32_t corpus_make(corpus *corpus, corpus_key key) {
    uint32_t number = corpus_use(corpus, key);
    if (number != CORPUS_NONE)
        return number;
    if (corpus->key_count < corpus->options.keys_max) {
        number = corpus->key_count++;
    } else {
        number = corpus->oldest;
        corpus_entry *entry = &corpus->entries[number];
        if (entry->owner > UINT32_MAX - 2 * corpus->options.keys_max) {
            corpus_clear(corpus); /* owners come to their end: their numbers start anew */
            return corpus_make(corpus, key);
        }
        *find_link(corpus, entry->key) = entry->next;
        take_from_order(corpus, number);
    }
    corpus_entry *entry = &corpus->entries[number];
    entry->key = key;
    entry->owner += corpus->options.keys_max; /* never used before: it has no text */
    entry->next = CORPUS_NONE;
    *find_link(corpus, key) = number;
    put_newest(corpus, number);
    return number;
}

/* ---- Texts ---- */

void corpus_add(corpus *corpus, corpus_key key, const int32_t *tokens, size_t count) {
    if (count == 0)
        return;
    uint32_t owner = corpus->entries[corpus_make(corpus, key)].owner;
    suffix_index_begin(corpus->index, owner);
    for (size_t i = 0; i < count; i++) {
        assert(tokens[i] >= 0 && (uint32_t)tokens[i] < corpus->options.vocabulary);
        suffix_index_push(corpus->index, tokens[i]);
    }
}

suffix_match corpus_propose(corpus *corpus, corpus_key key, const int32_t *tokens, size_t count,
                            uint32_t most, int32_t *drafts) {
    uint32_t number = corpus_use(corpus, key);
    if (number == CORPUS_NONE)
        return (suffix_match){0};
    return suffix_index_propose_of(corpus->index, corpus->entries[number].owner, tokens, count,
                                   most, drafts);
}

corpus_counts corpus_count(const corpus *corpus) {
    return (corpus_counts){.keys = corpus->key_count, .tokens = suffix_index_length(corpus->index)};
}
