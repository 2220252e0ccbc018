/* Segments that were encoded before: a hash table with chains over entries in a list of use. One
 * lock, held for as long as ids are copied. */
#include "tokenizer/encode_int.h"

#include "base/allocator.h"
#include "base/hash.h"

#include <pthread.h>

#define BUCKETS         1024u
#define ENTRY_SHARE_MAX 4 /* an entry takes a fourth of the cache at most */

typedef struct entry {
    struct entry *chain;         /* of its bucket */
    struct entry *newer, *older; /* in order of use */
    uint64_t hash;
    size_t text_bytes, id_count;
    bool first; /* a text began with it */
    /* ids, then the text */
} entry;

struct encode_cache {
    const avo_allocator *allocator;
    pthread_mutex_t lock;
    size_t bytes_max;
    entry *newest, *oldest;
    encode_cache_counts counts;
    entry *buckets[BUCKETS];
};

static int32_t *entry_ids(entry *entry) {
    return (int32_t *)(void *)(entry + 1);
}

static char *entry_text(entry *entry) {
    return (char *)(entry_ids(entry) + entry->id_count);
}

static size_t bytes_of(size_t text_bytes, size_t id_count) {
    return sizeof(entry) + id_count * sizeof(int32_t) + text_bytes;
}

avo_status encode_cache_open(const tokenizer *tokenizer, size_t bytes_max, encode_cache **out,
                             avo_error *error) {
    *out = NULL;
    encode_cache *cache = allocator_take_array(tokenizer->allocator, 1, sizeof(*cache));
    if (cache == NULL)
        return status_no_memory(error, "a cache of encodings", sizeof(*cache));
    cache->allocator = tokenizer->allocator;
    cache->bytes_max = bytes_max;
    pthread_mutex_init(&cache->lock, NULL);
    *out = cache;
    return AVO_OK;
}

/* ---- The list of use ---- */

static void leave_list(encode_cache *cache, entry *entry) {
    *(entry->newer != NULL ? &entry->newer->older : &cache->newest) = entry->older;
    *(entry->older != NULL ? &entry->older->newer : &cache->oldest) = entry->newer;
}

static void become_newest(encode_cache *cache, entry *entry) {
    entry->newer = NULL;
    entry->older = cache->newest;
    *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
}

static void drop_oldest(encode_cache *cache) {
    entry *gone = cache->oldest;
    entry **at = &cache->buckets[gone->hash % BUCKETS];
    while (*at != gone)
        at = &(*at)->chain;
    *at = gone->chain;
    leave_list(cache, gone);
    size_t bytes = bytes_of(gone->text_bytes, gone->id_count);
    cache->counts.bytes -= bytes;
    cache->counts.entries--;
    allocator_give(cache->allocator, gone, bytes);
}

void encode_cache_close(encode_cache *cache) {
    if (cache == NULL)
        return;
    while (cache->oldest != NULL)
        drop_oldest(cache);
    pthread_mutex_destroy(&cache->lock);
    allocator_give(cache->allocator, cache, sizeof(*cache));
}

/* ---- Asking and keeping ---- */

static entry *find(encode_cache *cache, text_view segment, bool first, uint64_t hash) {
    entry *at = cache->buckets[hash % BUCKETS];
    while (at != NULL &&
           (at->hash != hash || at->first != first || at->text_bytes != segment.size ||
            memcmp(entry_text(at), segment.data, segment.size) != 0))
        at = at->chain;
    return at;
}

bool encode_cache_find(encode_cache *cache, text_view segment, bool first, id_list *ids) {
    uint64_t hash = hash_key(segment.data, segment.size);
    pthread_mutex_lock(&cache->lock);
    cache->counts.asked_bytes += segment.size;
    entry *found = find(cache, segment, first, hash);
    bool good = found != NULL && id_list_reserve(ids, found->id_count) == AVO_OK;
    if (good) {
        memcpy(ids->ids + ids->count, entry_ids(found), found->id_count * sizeof(int32_t));
        ids->count += found->id_count;
        cache->counts.found_bytes += segment.size;
        leave_list(cache, found);
        become_newest(cache, found);
    }
    pthread_mutex_unlock(&cache->lock);
    return good;
}

void encode_cache_keep(encode_cache *cache, text_view segment, bool first, const int32_t *ids,
                       size_t count) {
    size_t bytes = bytes_of(segment.size, count);
    if (count == 0 || bytes > cache->bytes_max / ENTRY_SHARE_MAX)
        return;
    entry *added = allocator_take(cache->allocator, bytes);
    if (added == NULL)
        return;
    *added = (entry){.hash = hash_key(segment.data, segment.size),
                     .text_bytes = segment.size,
                     .id_count = count,
                     .first = first};
    memcpy(entry_ids(added), ids, count * sizeof(*ids));
    memcpy(entry_text(added), segment.data, segment.size);
    pthread_mutex_lock(&cache->lock);
    bool known = find(cache, segment, first, added->hash) != NULL; /* another thread was faster */
    if (!known) {
        while (cache->counts.bytes + bytes > cache->bytes_max)
            drop_oldest(cache);
        added->chain = cache->buckets[added->hash % BUCKETS];
        cache->buckets[added->hash % BUCKETS] = added;
        become_newest(cache, added);
        cache->counts.bytes += bytes;
        cache->counts.entries++;
    }
    pthread_mutex_unlock(&cache->lock);
    if (known)
        allocator_give(cache->allocator, added, bytes);
}

encode_cache_counts encode_cache_count(encode_cache *cache) {
    pthread_mutex_lock(&cache->lock);
    encode_cache_counts counts = cache->counts;
    pthread_mutex_unlock(&cache->lock);
    return counts;
}
