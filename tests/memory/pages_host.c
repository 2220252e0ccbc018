/* memory/pages_host: cached pages that leave the pool come back with their contents, whatever is
 * written, found, forked and forgotten in between, and where copies fail. */
#include "support/support.h"

#include "base/random.h"
#include "memory/pages.h"

#include <string.h>

#define PAGES  12
#define HOST   7
#define TABLES 3
#define LENGTH (5 * KV_PAGE_TOKENS)

typedef struct timeline {
    kv_table table;
    uint32_t pages[5];
    int32_t tokens[LENGTH];
    uint32_t computed;
} timeline;

typedef struct world {
    kv_pages *pages;
    uint64_t content[PAGES][KV_PAGE_TOKENS], kept[HOST][KV_PAGE_TOKENS];
    timeline line[TABLES];
    uint64_t draws;
    uint32_t fails_of; /* every so many copies; 0: none */
    uint32_t copies, failed, found;
} world;

static uint32_t draw(world *w, uint32_t below) {
    return random_at(11, 3, w->draws++).words[0] % below;
}

static bool copy(world *w, void *to, const void *from) {
    if (w->fails_of > 0 && ++w->copies % w->fails_of == 0) {
        w->failed++;
        return false;
    }
    memcpy(to, from, sizeof(w->kept[0]));
    return true;
}

static bool move_out(void *context, uint32_t page, uint32_t place) {
    world *w = context;
    assert_true(page < PAGES && place < HOST);
    return copy(w, w->kept[place], w->content[page]);
}

static bool move_in(void *context, uint32_t place, uint32_t page) {
    world *w = context;
    assert_true(page < PAGES && place < HOST);
    return copy(w, w->content[page], w->kept[place]);
}

/* What K and V of a position depend on: all tokens up to it. */
static uint64_t number_at(const timeline *line, uint32_t position) {
    uint64_t number = 1;
    for (uint32_t i = 0; i <= position; i++)
        number = (number ^ (uint32_t)line->tokens[i]) * 0x9e3779b97f4a7c15u + 1;
    return number;
}

static void check_contents(const world *w, const timeline *line) {
    for (uint32_t i = 0; i < line->computed; i++)
        if (w->content[line->pages[i / KV_PAGE_TOKENS]][i % KV_PAGE_TOKENS] != number_at(line, i))
            fail_msg("another timeline's page at position %u", i);
}

/* One of six texts, which begin alike in pairs. */
static void choose_tokens(world *w, timeline *line) {
    uint32_t text = draw(w, 6);
    for (uint32_t i = 0; i < LENGTH; i++)
        line->tokens[i] = (int32_t)(i < 2 * KV_PAGE_TOKENS ? text / 2 : text);
}

static void extend(world *w, timeline *line) {
    uint32_t length = line->computed + 1 + draw(w, LENGTH - line->computed), from;
    if (pages_write(w->pages, &line->table, line->computed, length, &from) != AVO_OK)
        return;
    if (from != PAGE_NONE)
        memcpy(w->content[line->pages[line->computed / KV_PAGE_TOKENS]], w->content[from],
               sizeof(w->content[0]));
    for (uint32_t i = line->computed; i < length; i++)
        w->content[line->pages[i / KV_PAGE_TOKENS]][i % KV_PAGE_TOKENS] = number_at(line, i);
    line->computed = length;
    pages_index(w->pages, (prefix_root){{7, 7}}, line->tokens, length, &line->table);
}

static void turn(world *w) {
    timeline *line = &w->line[draw(w, TABLES)];
    uint32_t what = draw(w, 20);
    if (what == 0) {
        pages_drop_cache(w->pages);
    } else if (line->computed == 0) {
        choose_tokens(w, line);
        uint32_t peeked = pages_peek(w->pages, (prefix_root){{7, 7}}, line->tokens, LENGTH);
        line->computed =
            pages_find(w->pages, (prefix_root){{7, 7}}, line->tokens, LENGTH, &line->table);
        assert_true(line->computed <= peeked);
        assert_true(line->computed == peeked || w->fails_of > 0 || pages_available(w->pages) == 0 ||
                    pages_count(w->pages).host_cached > 0);
        w->found += line->computed / KV_PAGE_TOKENS;
        check_contents(w, line);
        extend(w, line);
    } else if (what < 8 || line->computed == LENGTH) {
        line->computed = what % 2 == 0 ? 0 : draw(w, line->computed + 1);
        pages_shrink(w->pages, &line->table, line->computed);
    } else {
        extend(w, line);
    }
    const char *wrong = pages_check(w->pages);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    for (int i = 0; i < TABLES; i++)
        check_contents(w, &w->line[i]);
}

static void random_work(uint32_t fails_of) {
    static world w;
    memset(&w, 0, sizeof(w));
    w.fails_of = fails_of;
    pages_host host = {.pages = HOST, .out = move_out, .in = move_in, .context = &w};
    assert_ok(pages_open_with_host(PAGES, &host, NULL, &w.pages, NULL));
    for (int i = 0; i < TABLES; i++)
        w.line[i].table = (kv_table){w.line[i].pages, 0, 5, 0};
    for (int i = 0; i < 4000; i++)
        turn(&w);
    pages_counts counts = pages_count(w.pages);
    print_message("  %llu pages out, %llu back, %u found, %u copies failed\n",
                  (unsigned long long)counts.moved_out, (unsigned long long)counts.moved_in,
                  w.found, w.failed);
    assert_int_equal(counts.host, HOST);
    assert_true(counts.moved_out > 100 && counts.moved_in > 50 && w.found > 200);
    assert_int_equal(w.failed > 0, fails_of > 0);
    pages_drop_cache(w.pages);
    assert_int_equal(pages_count(w.pages).host_cached, 0);
    pages_close(w.pages);
}

static void pages_come_back_with_their_contents(void **state) {
    (void)state;
    random_work(0);
}

static void copies_that_fail_lose_pages_alone(void **state) {
    (void)state;
    random_work(5);
}

static void too_many_are_refused(void **state) {
    (void)state;
    avo_error error = {0};
    kv_pages *pages;
    pages_host host = {.pages = PAGES_MAX + 1};
    assert_refused(pages_open_with_host(4, &host, NULL, &pages, &error), AVO_ERROR_LIMIT, &error,
                   "the host's memory has 1073741825 KV pages");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_back_with_their_contents),
        cmocka_unit_test(copies_that_fail_lose_pages_alone),
        cmocka_unit_test(too_many_are_refused),
    };
    return cmocka_run_group_tests_name("memory/pages_host", tests, NULL, NULL);
}
