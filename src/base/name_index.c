/* Open addressing with a keyed hash: nobody can make a file whose names all fall into one slot. */
#include "base/name_index.h"

#include "base/hash.h"

static const text_view *name_at(name_column names, size_t place) {
    const char *item = (const char *)names.items + place * names.stride;
    return (const text_view *)(const void *)(item + names.offset);
}

avo_status name_index_open(name_index *index, arena *arena, size_t count) {
    if (count > NAME_INDEX_NAMES_MAX)
        return AVO_ERROR_LIMIT;
    size_t size = 16;
    while (size < count * 2)
        size *= 2;
    index->slots = arena_take_array(arena, size, sizeof(*index->slots));
    index->size = index->slots == NULL ? 0 : size;
    return index->slots == NULL ? AVO_ERROR_MEMORY : AVO_OK;
}

/* The slot that holds the name, or the free one where it belongs. At least half are free. */
static uint32_t *slot_of(const name_index *index, name_column names, text_view name) {
    size_t mask = index->size - 1;
    size_t slot = (size_t)hash_key(name.data, name.size) & mask;
    while (index->slots[slot] != 0 && !text_equal(*name_at(names, index->slots[slot] - 1), name))
        slot = (slot + 1) & mask;
    return &index->slots[slot];
}

bool name_index_add(name_index *index, name_column names, size_t place) {
    uint32_t *slot = slot_of(index, names, *name_at(names, place));
    if (*slot != 0)
        return false;
    *slot = (uint32_t)place + 1;
    return true;
}

size_t name_index_find(const name_index *index, name_column names, text_view name) {
    if (index->size == 0)
        return NAME_INDEX_NONE;
    uint32_t slot = *slot_of(index, names, name);
    return slot == 0 ? NAME_INDEX_NONE : slot - 1;
}
