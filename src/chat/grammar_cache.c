/* A small table under one lock; compiling happens outside of it. */
#include "chat/grammar_cache.h"

#include "base/hash.h"
#include "model/model.h"

#include <pthread.h>
#include <string.h>

typedef struct entry {
    uint64_t key[2]; /* digest of owner, kind, trigger and text */
    avo_grammar *grammar;
    bool building; /* somebody compiles it */
    uint64_t used; /* when last */
} entry;

struct grammar_cache {
    const avo_model *model;
    uint64_t bytes_max;
    pthread_mutex_t lock;
    pthread_cond_t built;
    entry entries[GRAMMAR_CACHE_ENTRIES];
    uint64_t clock, compiled, found, dropped;
};

avo_status grammar_cache_open(const avo_model *model, uint64_t bytes_max, grammar_cache **out,
                              avo_error *error) {
    *out = NULL;
    grammar_cache *cache = allocator_take_array(model->allocator, 1, sizeof(*cache));
    if (cache == NULL)
        return status_no_memory(error, "grammars", sizeof(*cache));
    cache->model = model;
    cache->bytes_max = bytes_max;
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->built, NULL);
    *out = cache;
    return AVO_OK;
}

void grammar_cache_close(grammar_cache *cache) {
    if (cache == NULL)
        return;
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        avo_grammar_close(cache->entries[i].grammar);
    pthread_cond_destroy(&cache->built);
    pthread_mutex_destroy(&cache->lock);
    allocator_give(cache->model->allocator, cache, sizeof(*cache));
}

/* What it stands for is not kept, so the digest has 128 bits and differs between processes. */
static avo_status make_key(const grammar_cache *cache, const char *owner, avo_grammar_kind kind,
                           const char *text, const avo_grammar_options *options, uint64_t key[2],
                           avo_error *error) {
    const avo_allocator *allocator = cache->model->allocator;
    const char *trigger = options == NULL ? NULL : options->trigger;
    size_t trigger_bytes = trigger == NULL ? 0 : strlen(trigger) + 1;
    size_t text_bytes = text == NULL ? 0 : strlen(text) + 1;
    size_t owner_bytes = owner == NULL ? 0 : strlen(owner) + 1;
    size_t bytes = 2 + owner_bytes + trigger_bytes + text_bytes;
    char *all = allocator_take(allocator, bytes);
    if (all == NULL)
        return status_no_memory(error, "the digest of a grammar", bytes);
    all[0] = (char)kind;
    all[1] = (char)((trigger != NULL) + 2 * (text != NULL) +
                    4 * (options != NULL && options->json_or_text) + 8 * (owner != NULL));
    if (owner != NULL)
        memcpy(all + 2, owner, owner_bytes);
    if (trigger != NULL)
        memcpy(all + 2 + owner_bytes, trigger, trigger_bytes);
    if (text != NULL)
        memcpy(all + 2 + owner_bytes + trigger_bytes, text, text_bytes);
    hash_key_wide(all, bytes, key);
    allocator_give(allocator, all, bytes);
    return AVO_OK;
}

/* ---- Under the lock ---- */

static entry *find(grammar_cache *cache, const uint64_t key[2]) {
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++) {
        entry *e = &cache->entries[i];
        if ((e->building || e->grammar != NULL) && e->key[0] == key[0] && e->key[1] == key[1])
            return e;
    }
    return NULL;
}

static void drop(grammar_cache *cache, entry *e) {
    cache->dropped++;
    avo_grammar_close(e->grammar);
    *e = (entry){0};
}

/* The one that was used longest ago, and where nothing is left, none. */
static entry *oldest(grammar_cache *cache) {
    entry *found = NULL;
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++) {
        entry *e = &cache->entries[i];
        if (e->grammar != NULL && (found == NULL || e->used < found->used))
            found = e;
    }
    return found;
}

static entry *free_entry(grammar_cache *cache) {
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++)
        if (cache->entries[i].grammar == NULL && !cache->entries[i].building)
            return &cache->entries[i];
    entry *e = oldest(cache);
    if (e != NULL)
        drop(cache, e);
    return e;
}

static uint64_t kept_bytes(const grammar_cache *cache, uint32_t *count) {
    uint64_t bytes = 0;
    *count = 0;
    for (size_t i = 0; i < GRAMMAR_CACHE_ENTRIES; i++) {
        if (cache->entries[i].grammar == NULL)
            continue;
        avo_grammar_info info = AVO_GRAMMAR_INFO_INIT;
        avo_grammar_describe(cache->entries[i].grammar, &info);
        bytes += info.memory_bytes;
        ++*count;
    }
    return bytes;
}

/* Masks grow while answers are written, so this is looked at whenever one is asked for. */
static void trim(grammar_cache *cache) {
    uint32_t count;
    while (kept_bytes(cache, &count) > cache->bytes_max && count > 0)
        drop(cache, oldest(cache));
}

/* ---- Taking ---- */

static avo_status build(grammar_cache *cache, entry *e, avo_grammar_kind kind, const char *text,
                        const avo_grammar_options *options, avo_grammar **out, avo_error *error) {
    pthread_mutex_unlock(&cache->lock);
    avo_status status = avo_grammar_open(cache->model, kind, text, options, out, error);
    pthread_mutex_lock(&cache->lock);
    cache->compiled++;
    if (e == NULL) /* all places are being compiled in: it is not kept */
        return status;
    e->building = false;
    e->used = ++cache->clock;
    if (status == AVO_OK)
        e->grammar = avo_grammar_share(*out);
    pthread_cond_broadcast(&cache->built);
    trim(cache);
    return status;
}

avo_status grammar_cache_take(grammar_cache *cache, const char *owner, avo_grammar_kind kind,
                              const char *text, const avo_grammar_options *options,
                              avo_grammar **out, avo_error *error) {
    uint64_t key[2];
    *out = NULL;
    AVO_TRY(make_key(cache, owner, kind, text, options, key, error));
    avo_status status = AVO_OK;
    pthread_mutex_lock(&cache->lock);
    entry *e = find(cache, key);
    while (e != NULL && e->building) {
        pthread_cond_wait(&cache->built, &cache->lock);
        e = find(cache, key);
    }
    if (e != NULL) {
        e->used = ++cache->clock;
        cache->found++;
        *out = avo_grammar_share(e->grammar);
        trim(cache);
    } else {
        e = free_entry(cache);
        if (e != NULL)
            *e = (entry){.key = {key[0], key[1]}, .building = true};
        status = build(cache, e, kind, text, options, out, error);
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

grammar_cache_counts grammar_cache_count(grammar_cache *cache) {
    grammar_cache_counts counts = {0};
    pthread_mutex_lock(&cache->lock);
    counts.compiled = cache->compiled;
    counts.found = cache->found;
    counts.dropped = cache->dropped;
    counts.bytes = kept_bytes(cache, &counts.kept);
    pthread_mutex_unlock(&cache->lock);
    return counts;
}
