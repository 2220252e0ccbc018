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

/* 1 … 4; the default is the last of them. */
#define WITH_COUNT_4(count, name, call)                                                            \
    switch (count) {                                                                               \
        COUNT_CASE(case 1, 1, name, call)                                                          \
        COUNT_CASE(case 2, 2, name, call)                                                          \
        COUNT_CASE(case 3, 3, name, call)                                                          \
        COUNT_CASE(default, 4, name, call)                                                         \
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

/* The sizes of tiles of AVX-512: tile_compiled (avx512/tile.h). */
#define WITH_COUNT_TILE(count, name, call)                                                         \
    switch (count) {                                                                               \
        COUNT_CASE(case 1, 1, name, call)                                                          \
        COUNT_CASE(case 2, 2, name, call)                                                          \
        COUNT_CASE(case 3, 3, name, call)                                                          \
        COUNT_CASE(case 4, 4, name, call)                                                          \
        COUNT_CASE(case 6, 6, name, call)                                                          \
        COUNT_CASE(case 8, 8, name, call)                                                          \
        COUNT_CASE(case 10, 10, name, call)                                                        \
        COUNT_CASE(case 12, 12, name, call)                                                        \
        COUNT_CASE(case 14, 14, name, call)                                                        \
        COUNT_CASE(default, 16, name, call)                                                        \
    }

#endif
