/* Fixtures of numbers: lines "name number number …", as oracles write them. */
#ifndef AVO_TESTS_EXPECTED_H
#define AVO_TESTS_EXPECTED_H

#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECTED_MAX 512

/* The next line called `name`, from where the file is; false: there is none. */
static inline bool expected_next(FILE *file, const char *name, double *values, size_t *count) {
    static char line[16384];
    size_t length = strlen(name);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, length) != 0 || line[length] != ' ')
            continue;
        char *at = line + length, *end;
        for (*count = 0; *count < EXPECTED_MAX; (*count)++, at = end) {
            values[*count] = strtod(at, &end);
            if (end == at)
                break;
        }
        return true;
    }
    return false;
}

/* The first line called `name`, which must be there. */
static inline size_t expected_read(const char *path, const char *name, double *values) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = 0;
    if (!expected_next(file, name, values, &count))
        fail_msg("%s: %s is missing", path, name);
    (void)fclose(file);
    return count;
}

#endif
