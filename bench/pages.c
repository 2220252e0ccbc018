/* What the books of the KV pages cost: a page found, a page told to the index, a page given away
 * and taken, and the bookkeeping of one sequence in a step, with a pool far larger than the caches.
 *
 *     ninja -C build bench_pages && build/bench/bench_pages [PAGES]
 */
#include "memory/pages.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define LINE_PAGES 64 /* of one timeline */
#define REPEATS    7

typedef struct lines {
    uint32_t count;
    kv_pages *pages;
    kv_table *table;
    int32_t *tokens; /* [count][LINE_PAGES · KV_PAGE_TOKENS] */
} lines;

static const int32_t *tokens_of(const lines *l, uint32_t line) {
    return l->tokens + (size_t)line * LINE_PAGES * KV_PAGE_TOKENS;
}

static double per_page(uint64_t begin_ns, const lines *l) {
    return (double)(clock_now_ns() - begin_ns) / ((double)l->count * LINE_PAGES);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_median(const char *what, double *times) {
    qsort(times, REPEATS, sizeof(*times), compare);
    printf("%-34s %8.1f ns\n", what, times[REPEATS / 2]);
}

static void open_lines(lines *l, uint32_t pages) {
    l->count = pages / LINE_PAGES;
    l->table = calloc(l->count, sizeof(*l->table));
    l->tokens = calloc((size_t)l->count * LINE_PAGES * KV_PAGE_TOKENS, sizeof(*l->tokens));
    uint32_t *numbers = calloc((size_t)l->count * LINE_PAGES, sizeof(*numbers));
    if (l->table == NULL || l->tokens == NULL || numbers == NULL ||
        pages_open(pages, NULL, &l->pages, NULL) != AVO_OK)
        exit(1);
    for (uint32_t i = 0; i < l->count; i++)
        l->table[i] = (kv_table){numbers + (size_t)i * LINE_PAGES, 0, LINE_PAGES, 0};
    for (size_t i = 0; i < (size_t)l->count * LINE_PAGES * KV_PAGE_TOKENS; i++)
        l->tokens[i] = (int32_t)(i * 2654435761u >> 8);
}

/* Decoding: every sequence gets a position, and each 32nd a page that is then told to the index. */
static double step_cost(lines *l, prefix_root root) {
    uint32_t steps = LINE_PAGES * KV_PAGE_TOKENS;
    uint32_t running = l->count < 64 ? l->count : 64;
    uint64_t begin = clock_now_ns();
    for (uint32_t step = 1; step <= steps; step++)
        for (uint32_t i = 0; i < running; i++) {
            uint32_t copy;
            if (pages_write(l->pages, &l->table[i], step - 1, step, &copy) != AVO_OK)
                exit(1);
            pages_index(l->pages, root, tokens_of(l, i), step, &l->table[i]);
        }
    return (double)(clock_now_ns() - begin) / ((double)steps * running);
}

static void grow_all(lines *l) {
    for (uint32_t i = 0; i < l->count; i++)
        if (pages_grow(l->pages, &l->table[i], LINE_PAGES * KV_PAGE_TOKENS) != AVO_OK)
            exit(1);
}

int main(int argc, char **argv) {
    uint32_t pages = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 65536;
    lines l;
    prefix_root root = prefix_root_of("", 0);
    double found[REPEATS], told[REPEATS], taken[REPEATS], evicted[REPEATS], given[REPEATS],
        step[REPEATS];
    uint32_t length = LINE_PAGES * KV_PAGE_TOKENS;
    open_lines(&l, pages);
    printf("%u pages of %d tokens, timelines of %d pages; per page:\n", pages, KV_PAGE_TOKENS,
           LINE_PAGES);
    for (int r = 0; r < REPEATS; r++) {
        uint64_t begin = clock_now_ns();
        grow_all(&l);
        taken[r] = per_page(begin, &l);
        begin = clock_now_ns();
        for (uint32_t i = 0; i < l.count; i++)
            pages_index(l.pages, root, tokens_of(&l, i), length, &l.table[i]);
        told[r] = per_page(begin, &l);
        begin = clock_now_ns();
        for (uint32_t i = 0; i < l.count; i++)
            pages_shrink(l.pages, &l.table[i], 0);
        given[r] = per_page(begin, &l);
        begin = clock_now_ns();
        for (uint32_t i = 0; i < l.count; i++)
            if (pages_find(l.pages, root, tokens_of(&l, i), length, &l.table[i]) + KV_PAGE_TOKENS !=
                length)
                exit(1);
        found[r] = per_page(begin, &l);
        for (uint32_t i = 0; i < l.count; i++)
            pages_shrink(l.pages, &l.table[i], 0);
        begin = clock_now_ns(); /* nothing is free: whoever takes evicts */
        grow_all(&l);
        evicted[r] = per_page(begin, &l);
        for (uint32_t i = 0; i < l.count; i++)
            pages_shrink(l.pages, &l.table[i], 0);
        step[r] = step_cost(&l, root);
        for (uint32_t i = 0; i < l.count; i++)
            pages_shrink(l.pages, &l.table[i], 0);
        pages_drop_cache(l.pages);
        if (pages_check(l.pages) != NULL)
            exit(1);
    }
    print_median("taken, free", taken);
    print_median("taken, cached before", evicted);
    print_median("told to the index", told);
    print_median("given back", given);
    print_median("found", found);
    print_median("one sequence in a step", step);
    return 0;
}
