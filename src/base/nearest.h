/* The known name that a mistyped one probably means, for error texts that suggest it. */
#ifndef AVO_BASE_NEAREST_H
#define AVO_BASE_NEAREST_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap neighbours) from one name to the other; SIZE_MAX if one of
 * them is longer than 64 bytes. */
size_t nearest_distance(const char *a, const char *b);
/* Keeps the best of several candidates; `best` starts as NULL. */
typedef struct nearest {
    const char *wanted;
    const char *best; /* NULL: none is near enough to suggest */
    size_t distance;
} nearest;
void nearest_consider(nearest *nearest, const char *candidate);

#endif
