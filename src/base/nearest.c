/* Which known name a mistyped one was probably meant to be. */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

#define NEAREST_LENGTH_MAX 64

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Damerau-Levenshtein in its "optimal string alignment" form, three rows of the table at a time. */
size_t nearest_distance(const char *a, const char *b) {
    size_t a_length = strlen(a);
    size_t b_length = strlen(b);
    if (a_length > NEAREST_LENGTH_MAX || b_length > NEAREST_LENGTH_MAX)
        return SIZE_MAX;
    size_t rows[3][NEAREST_LENGTH_MAX + 1];
    size_t *before = rows[0];
    size_t *above = rows[1];
    size_t *row = rows[2];
    for (size_t j = 0; j <= b_length; j++) {
        before[j] = 0;
        above[j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = smaller(smaller(above[j] + 1, row[j - 1] + 1), above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = above;
        above = row;
        row = free_row;
    }
    return above[b_length];
}

void nearest_consider(nearest *nearest, const char *candidate) {
    size_t length = strlen(nearest->wanted);
    size_t distance = nearest_distance(nearest->wanted, candidate);
    /* Somebody who stops typing early ("--temp") means the name that goes on. */
    if (length >= 3 && strncmp(nearest->wanted, candidate, length) == 0)
        distance = 1;
    if (distance > 1 + length / 4)
        return;
    if (nearest->best == NULL || distance < nearest->distance) {
        nearest->best = candidate;
        nearest->distance = distance;
    }
}
