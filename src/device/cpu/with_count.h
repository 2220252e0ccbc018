/* Kernels are compiled for a few counts of rows each. These macros run `call`, an expression in
 * which `name` is a constant, for the count that is given: WITH_COUNT_4(rows, n, sum(x, n)). */
#ifndef AVO_DEVICE_CPU_WITH_COUNT_H
#define AVO_DEVICE_CPU_WITH_COUNT_H

#define COUNT_CASE(label, value, name, call)                                                       \
    label : {                                                                                      \
        enum { name = value };                                                                     \
        call;                                                                                      \
        break;                                                                                     \
    }

/* a, b, c or, by default, d */
#define WITH_COUNT_OF_4(count, a, b, c, d, name, call)                                             \
    switch (count) {                                                                               \
        COUNT_CASE(case a, a, name, call)                                                          \
        COUNT_CASE(case b, b, name, call)                                                          \
        COUNT_CASE(case c, c, name, call)                                                          \
        COUNT_CASE(default, d, name, call)                                                         \
    }
#define WITH_COUNT_4(count, name, call) WITH_COUNT_OF_4(count, 1, 2, 3, 4, name, call)

#define WITH_COUNT_OF_3(count, a, b, c, name, call)                                                \
    switch (count) {                                                                               \
        COUNT_CASE(case a, a, name, call)                                                          \
        COUNT_CASE(case b, b, name, call)                                                          \
        COUNT_CASE(default, c, name, call)                                                         \
    }

/* 1 … 6 */
#define WITH_COUNT_6(count, name, call)                                                            \
    switch (count) {                                                                               \
        COUNT_CASE(case 1, 1, name, call)                                                          \
        COUNT_CASE(case 2, 2, name, call)                                                          \
        COUNT_CASE(case 3, 3, name, call)                                                          \
        COUNT_CASE(case 4, 4, name, call)                                                          \
        COUNT_CASE(case 5, 5, name, call)                                                          \
        COUNT_CASE(default, 6, name, call)                                                         \
    }

/* 1 … 8 */
#define WITH_COUNT_8(count, name, call)                                                            \
    switch (count) {                                                                               \
        COUNT_CASE(case 1, 1, name, call)                                                          \
        COUNT_CASE(case 2, 2, name, call)                                                          \
        COUNT_CASE(case 3, 3, name, call)                                                          \
        COUNT_CASE(case 4, 4, name, call)                                                          \
        COUNT_CASE(case 5, 5, name, call)                                                          \
        COUNT_CASE(case 6, 6, name, call)                                                          \
        COUNT_CASE(case 7, 7, name, call)                                                          \
        COUNT_CASE(default, 8, name, call)                                                         \
    }

/* 3 … 8 */
#define WITH_COUNT_3_TO_8(count, name, call)                                                       \
    switch (count) {                                                                               \
        COUNT_CASE(case 3, 3, name, call)                                                          \
        COUNT_CASE(case 4, 4, name, call)                                                          \
        COUNT_CASE(case 5, 5, name, call)                                                          \
        COUNT_CASE(case 6, 6, name, call)                                                          \
        COUNT_CASE(case 7, 7, name, call)                                                          \
        COUNT_CASE(default, 8, name, call)                                                         \
    }

/* The sizes of tiles of AVX-512: tile_exact (avx512/tile.h). */
#define WITH_COUNT_TILE(count, name, call)                                                         \
    switch (count) {                                                                               \
        COUNT_CASE(case 1, 1, name, call)                                                          \
        COUNT_CASE(case 2, 2, name, call)                                                          \
        COUNT_CASE(case 3, 3, name, call)                                                          \
        COUNT_CASE(case 4, 4, name, call)                                                          \
        COUNT_CASE(case 5, 5, name, call)                                                          \
        COUNT_CASE(case 6, 6, name, call)                                                          \
        COUNT_CASE(case 7, 7, name, call)                                                          \
        COUNT_CASE(case 8, 8, name, call)                                                          \
        COUNT_CASE(case 10, 10, name, call)                                                        \
        COUNT_CASE(case 12, 12, name, call)                                                        \
        COUNT_CASE(case 14, 14, name, call)                                                        \
        COUNT_CASE(default, 16, name, call)                                                        \
    }

#endif
