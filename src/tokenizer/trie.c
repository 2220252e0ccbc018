/* Building the trie of tokens: decode all, sort by bytes, and walk the sorted list. */
#include "tokenizer/trie.h"

#include "base/arena.h"
#include "tokenizer/encode_int.h"
#include "tokenizer/trie_int.h"

#include <pthread.h>

struct trie_keeper {
    pthread_mutex_t mutex;
    arena arena;
    bool built;
    token_trie trie;
};

trie_keeper *trie_keeper_open(const avo_allocator *allocator) {
    trie_keeper *keeper = allocator_take_array(allocator, 1, sizeof(*keeper));
    if (keeper == NULL)
        return NULL;
    arena_init(&keeper->arena, allocator, SIZE_MAX);
    pthread_mutex_init(&keeper->mutex, NULL);
    return keeper;
}

void trie_keeper_close(trie_keeper *keeper) {
    if (keeper == NULL)
        return;
    const avo_allocator *allocator = keeper->arena.allocator;
    arena_free(&keeper->arena);
    pthread_mutex_destroy(&keeper->mutex);
    allocator_give(allocator, keeper, sizeof(*keeper));
}

/* ---- Texts ---- */

typedef struct trie_work {
    token_trie *trie;
    uint32_t *order; /* ids with a text, in order of their texts */
    uint32_t count;
    const avo_allocator *allocator;
} trie_work;

static avo_status decode_all(const tokenizer *tokenizer, arena *arena, trie_work *work,
                             avo_error *error) {
    token_trie *trie = work->trie;
    uint32_t *places = arena_take_array(arena, (size_t)trie->vocabulary + 1, sizeof(*places));
    if (places == NULL)
        return status_no_memory(error, "the trie of tokens", trie->vocabulary * sizeof(*places));
    buffer texts;
    buffer_init(&texts, tokenizer->allocator, (size_t)1 << 30);
    avo_status status = AVO_OK;
    for (uint32_t id = 0; id < trie->vocabulary && status == AVO_OK; id++) {
        decode_stream stream;
        decode_stream_init(&stream, tokenizer, false);
        decode_stream_continue(&stream);
        stream.lossless = true;
        places[id] = (uint32_t)texts.size;
        status = decode_stream_push(&stream, (int32_t)id, &texts, error);
        if (texts.size - places[id] > UINT16_MAX)
            texts.size = places[id]; /* nobody will ask for it */
        if (texts.size > places[id])
            work->order[work->count++] = id;
    }
    places[trie->vocabulary] = (uint32_t)texts.size;
    char *bytes = arena_copy_text(arena, texts.size == 0 ? "" : texts.data, texts.size);
    buffer_free(&texts);
    if (status == AVO_OK && bytes == NULL)
        status = status_no_memory(error, "the trie of tokens", places[trie->vocabulary]);
    trie->places = places;
    trie->bytes = bytes;
    return status;
}

/* ---- Order: a radix sort from the front, as strings are compared ---- */

static inline uint32_t byte_at(const token_trie *trie, uint32_t id, uint32_t depth) {
    uint32_t begin = trie->places[id] + depth;
    return begin < trie->places[id + 1] ? 1u + (uint8_t)trie->bytes[begin] : 0;
}

typedef struct sort_part {
    uint32_t begin, end, depth;
} sort_part;

static void sort_few(const token_trie *trie, uint32_t *ids, uint32_t count, uint32_t depth) {
    for (uint32_t i = 1; i < count; i++) {
        uint32_t id = ids[i];
        text_view text = trie_token(trie, (int32_t)id);
        uint32_t at = i;
        for (; at > 0; at--) {
            text_view other = trie_token(trie, (int32_t)ids[at - 1]);
            size_t least = text.size < other.size ? text.size : other.size;
            int order = memcmp(other.data + depth, text.data + depth, least - depth);
            if (order < 0 || (order == 0 && other.size <= text.size))
                break;
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
    }
}

/* Parts wait on a stack; each has at least two ids, so there are never more than ids. */
static void sort_ids(const token_trie *trie, uint32_t *ids, uint32_t count, uint32_t *room,
                     sort_part *parts) {
    uint32_t waiting = 0;
    parts[waiting++] = (sort_part){0, count, 0};
    while (waiting > 0) {
        sort_part part = parts[--waiting];
        uint32_t *here = ids + part.begin;
        uint32_t size = part.end - part.begin;
        if (size <= 12) {
            sort_few(trie, here, size, part.depth);
            continue;
        }
        uint32_t starts[258] = {0};
        for (uint32_t i = 0; i < size; i++)
            starts[byte_at(trie, here[i], part.depth) + 1]++;
        for (uint32_t b = 0; b < 257; b++)
            starts[b + 1] += starts[b];
        uint32_t next[257];
        memcpy(next, starts, sizeof(next));
        for (uint32_t i = 0; i < size; i++)
            room[next[byte_at(trie, here[i], part.depth)]++] = here[i];
        memcpy(here, room, size * sizeof(*here));
        for (uint32_t b = 1; b < 257; b++)
            if (starts[b + 1] - starts[b] > 1)
                parts[waiting++] =
                    (sort_part){part.begin + starts[b], part.begin + starts[b + 1], part.depth + 1};
    }
}

/* ---- Nodes ---- */

static size_t common_bytes(text_view a, text_view b) {
    size_t least = a.size < b.size ? a.size : b.size;
    size_t at = 0;
    while (at < least && a.data[at] == b.data[at])
        at++;
    return at;
}

static avo_status make_nodes(arena *arena, trie_work *work, avo_error *error) {
    token_trie *trie = work->trie;
    text_view before = {"", 0};
    size_t count = 1;
    for (uint32_t i = 0; i < work->count; i++) {
        text_view text = trie_token(trie, (int32_t)work->order[i]);
        count += text.size - common_bytes(before, text);
        trie->depth_max = text.size > trie->depth_max ? (uint32_t)text.size : trie->depth_max;
        before = text;
    }
    trie_node *nodes =
        count > UINT32_MAX / 2 ? NULL : arena_take_array(arena, count + 1, sizeof(*nodes));
    int32_t *ids = arena_take_array(arena, (size_t)work->count + 1, sizeof(*ids));
    uint32_t *path = arena_take_array(arena, (size_t)trie->depth_max + 1, sizeof(*path));
    if (nodes == NULL || ids == NULL || path == NULL)
        return status_no_memory(error, "the trie of tokens", count * sizeof(*nodes));
    uint32_t at = 1;
    size_t depth = 0;
    before = (text_view){"", 0};
    for (uint32_t i = 0; i < work->count; i++) {
        text_view text = trie_token(trie, (int32_t)work->order[i]);
        size_t common = common_bytes(before, text);
        for (; depth > common; depth--)
            nodes[path[depth]].end = at;
        for (; depth < text.size; depth++, at++) {
            path[depth + 1] = at;
            nodes[at] = (trie_node){
                .tokens = i, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)text.data[depth]};
        }
        ids[i] = (int32_t)work->order[i];
        before = text;
    }
    for (; depth > 0; depth--)
        nodes[path[depth]].end = at;
    nodes[0].end = at;
    nodes[at] = (trie_node){.end = at + 1, .tokens = work->count};
    trie->nodes = nodes;
    trie->count = at;
    trie->ids = ids;
    trie->token_count = work->count;
    return AVO_OK;
}

static avo_status build(const tokenizer *tokenizer, arena *arena, token_trie *trie,
                        avo_error *error) {
    struct arena scratch;
    *trie = (token_trie){.vocabulary = tokenizer->image.header->vocabulary};
    size_t most = (size_t)trie->vocabulary + 1;
    arena_init(&scratch, tokenizer->allocator, SIZE_MAX);
    trie_work work = {.trie = trie, .order = arena_take_array(&scratch, most, sizeof(uint32_t))};
    uint32_t *room = arena_take_array(&scratch, most, sizeof(*room));
    sort_part *parts = arena_take_array(&scratch, most, sizeof(*parts));
    avo_status status = AVO_OK;
    if (work.order == NULL || room == NULL || parts == NULL)
        status = status_no_memory(error, "the trie of tokens", most * sizeof(*parts));
    AVO_THEN(status, decode_all(tokenizer, arena, &work, error));
    if (status == AVO_OK) {
        sort_ids(trie, work.order, work.count, room, parts);
        status = make_nodes(arena, &work, error);
    }
    arena_free(&scratch);
    return status;
}

avo_status tokenizer_trie(const tokenizer *tokenizer, const token_trie **out, avo_error *error) {
    trie_keeper *keeper = tokenizer->trie;
    avo_status status = AVO_OK;
    *out = NULL;
    pthread_mutex_lock(&keeper->mutex);
    if (!keeper->built) {
        status = build(tokenizer, &keeper->arena, &keeper->trie, error);
        keeper->built = status == AVO_OK;
        if (status != AVO_OK)
            arena_free(&keeper->arena);
    }
    if (keeper->built)
        *out = &keeper->trie;
    pthread_mutex_unlock(&keeper->mutex);
    return status;
}
