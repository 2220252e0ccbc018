/* An index of names that come from files: from a name to its place in an array, in O(1). The array
 * and its names stay their owner's; the index keeps numbers only.
 */
#ifndef AVO_BASE_NAME_INDEX_H
#define AVO_BASE_NAME_INDEX_H

#include "base/arena.h"
#include "base/cursor.h"

#include <stddef.h>

/* Zeroed, it is empty and finds nothing. */
typedef struct name_index {
    uint32_t *slots; /* [size] 0: free, else place + 1 */
    size_t size;     /* a power of two, at least twice the names */
} name_index;

/* Where the names lie: in an array of items, at `offset` of each. */
typedef struct name_column {
    const void *items;
    size_t stride, offset;
} name_column;
/* NAME_COLUMN(tensors, source_tensor, name): the names tensors[0].name, tensors[1].name, … */
#define NAME_COLUMN(items, type, member)                                                           \
    ((name_column){(items), sizeof(type), offsetof(type, member)})

#define NAME_INDEX_NAMES_MAX (UINT32_MAX / 4)
#define NAME_INDEX_NONE      SIZE_MAX

/* Room for `count` names. AVO_ERROR_LIMIT past NAME_INDEX_NAMES_MAX, AVO_ERROR_MEMORY. */
AVO_MUST_USE avo_status name_index_open(name_index *index, arena *arena, size_t count);
/* Adds the name of item `place`, of no more items than there is room for; false: it is there. */
bool name_index_add(name_index *index, name_column names, size_t place);
/* The place of a name, or NAME_INDEX_NONE. */
size_t name_index_find(const name_index *index, name_column names, text_view name);

#endif
