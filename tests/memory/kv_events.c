/* memory/kv_events: what the prefix index tells of its blocks, and what happens when nobody reads.
 * AVO_TEST_THREADS */
#include "support/support.h"

#include "memory/pages.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PAGES = 4, LENGTH = 3 * KV_PAGE_TOKENS };

static kv_events *open_log(uint32_t capacity) {
    kv_events *log;
    assert_ok(kv_events_open(capacity, NULL, &log, NULL));
    return log;
}

static bool is_woken(const kv_events *log) {
    struct pollfd one = {.fd = kv_events_descriptor(log), .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

/* One timeline after the other; the index knows three pages of each. */
static void compute(kv_pages *pages, uint64_t root_number, int32_t first, uint32_t length) {
    uint32_t numbers[4];
    int32_t tokens[LENGTH];
    kv_table table = {numbers, 0, 4, 0};
    prefix_root root = prefix_root_of(&root_number, sizeof(root_number));
    for (int32_t i = 0; i < LENGTH; i++)
        tokens[i] = first + i;
    uint32_t found = pages_find(pages, root, tokens, length, &table);
    assert_ok(pages_grow(pages, &table, length));
    assert_true(found <= length);
    pages_index(pages, root, tokens, length, &table);
    pages_shrink(pages, &table, 0);
}

static void blocks_form_chains_and_are_removed(void **state) {
    (void)state;
    kv_pages *pages;
    kv_event events[32], again[32];
    kv_events *log = open_log(64);
    assert_ok(pages_open(PAGES, NULL, &pages, NULL));
    pages_tell(pages, log);
    kv_events_use_label(log, kv_events_label(log, "pirate"));
    compute(pages, 1, 1000, LENGTH);
    assert_int_equal(kv_events_take(log, events, 32), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(events[i].kind, KV_EVENT_STORED);
        assert_int_equal(events[i].has_parent, i > 0);
        assert_true(i == 0 || events[i].parent == events[i - 1].block);
        assert_int_equal(events[i].tokens[0], 1000 + i * KV_PAGE_TOKENS);
        assert_string_equal(kv_events_label_text(log, events[i].label), "pirate");
    }
    compute(pages, 1, 1000, LENGTH); /* known already: nothing to tell */
    assert_int_equal(kv_events_take(log, again, 32), 0);
    compute(pages, 2, 1000, LENGTH); /* another root, and one page is free: two must go */
    assert_int_equal(kv_events_take(log, again, 32), 5);
    uint32_t removed = 0;
    for (int i = 0; i < 5; i++) {
        if (again[i].kind == KV_EVENT_REMOVED)
            assert_int_equal(again[i].block, events[2 - removed++].block); /* the last one first */
        else
            assert_true(again[i].block != events[0].block && again[i].block != events[1].block);
    }
    assert_int_equal(removed, 2);
    pages_drop_cache(pages);
    assert_int_equal(kv_events_take(log, again, 32), 4);
    compute(pages, 1, 1000, LENGTH); /* equal prefixes have equal names */
    assert_int_equal(kv_events_take(log, again, 32), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(again[i].block, events[i].block);
    assert_null(pages_check(pages));
    pages_close(pages);
    kv_events_close(log);
}

static bool move(void *context, uint32_t from, uint32_t to) {
    (void)context;
    (void)from;
    (void)to;
    return true;
}

/* What a gateway believes: the names of all blocks that were told and not taken back. */
typedef struct believed {
    uint64_t names[64];
    uint32_t count, stored, removed;
} believed;

static void follow(believed *b, kv_events *log) {
    kv_event events[64];
    uint32_t count = kv_events_take(log, events, 64);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = 0;
        while (at < b->count && b->names[at] != events[i].block)
            at++;
        if (events[i].kind == KV_EVENT_STORED) {
            assert_int_equal(at, b->count); /* not twice */
            b->names[b->count++] = events[i].block;
            b->stored++;
        } else {
            assert_int_equal(events[i].kind, KV_EVENT_REMOVED);
            assert_true(at < b->count); /* one that was told */
            b->names[at] = b->names[--b->count];
            b->removed++;
        }
    }
}

/* A page in the host's memory is still known: it keeps its name there and on the way back. */
static void names_stay_with_pages_that_move(void **state) {
    (void)state;
    enum { HOST = 3 };
    const pages_host host = {.pages = HOST, .out = move, .in = move};
    kv_pages *pages;
    kv_events *log = open_log(64);
    believed b = {0};
    assert_ok(pages_open_with_host(PAGES, &host, NULL, &pages, NULL));
    pages_tell(pages, log);
    compute(pages, 1, 1000, LENGTH);
    compute(pages, 2, 1000, LENGTH); /* two pages of the first timeline move out … */
    follow(&b, log);
    assert_int_equal(b.stored, 6);
    assert_int_equal(b.removed, 0);
    compute(pages, 1, 1000, LENGTH); /* … and come back: nothing is new, nothing forgotten */
    follow(&b, log);
    assert_int_equal(b.stored + b.removed, 6);
    for (uint64_t root = 3; root < 12; root++) { /* seven places: pages are forgotten */
        compute(pages, root, 1000, LENGTH);
        follow(&b, log);
    }
    assert_int_equal(b.stored - b.removed, b.count);
    assert_true(b.removed > 0 && b.count <= PAGES + HOST);
    assert_null(pages_check(pages));
    pages_close(pages);
    kv_events_close(log);
}

static void a_full_log_drops_and_says_so_once(void **state) {
    (void)state;
    kv_event events[16];
    int32_t tokens[KV_PAGE_TOKENS] = {7};
    kv_events *log = open_log(4);
    for (uint64_t i = 0; i < 9; i++)
        kv_events_stored(log, i, i > 0 ? &(uint64_t){i - 1} : NULL, tokens);
    assert_int_equal(kv_events_dropped(log), 5);
    assert_int_equal(kv_events_take(log, events, 4), 4); /* no room for what comes behind */
    kv_events_removed(log, 3);                           /* dropped, too: the gap is not told yet */
    assert_int_equal(kv_events_take(log, events, 16), 1);
    assert_int_equal(events[0].kind, KV_EVENT_CLEARED);
    kv_events_stored(log, 20, NULL, tokens);
    assert_int_equal(kv_events_take(log, events, 16), 1);
    assert_int_equal(events[0].kind, KV_EVENT_STORED);
    assert_int_equal(events[0].block, 20);
    assert_int_equal(kv_events_dropped(log), 6);
    kv_events_close(log);
}

static void the_reader_is_woken_only_where_it_sleeps(void **state) {
    (void)state;
    kv_event event;
    kv_events *log = open_log(4);
    kv_events_removed(log, 1);
    kv_events_flush(log);
    assert_false(is_woken(log));
    assert_false(kv_events_sleep(log)); /* there is something */
    assert_int_equal(kv_events_take(log, &event, 1), 1);
    assert_true(kv_events_sleep(log));
    kv_events_flush(log);
    assert_true(is_woken(log));
    kv_events_close(log);
}

static void labels_are_kept_and_bounded(void **state) {
    (void)state;
    char text[KV_EVENT_LABEL_MAX + 1];
    kv_events *log = open_log(1);
    assert_int_equal(kv_events_label(log, ""), 0);
    for (unsigned i = 1; i < KV_EVENT_LABELS_MAX; i++) {
        snprintf(text, sizeof(text), "adapter-%u", i);
        assert_int_equal(kv_events_label(log, text), i);
        assert_int_equal(kv_events_label(log, text), i);
    }
    assert_int_equal(kv_events_label(log, "one more"), 0);
    assert_string_equal(kv_events_label_text(log, 255), "adapter-255");
    kv_events_close(log);
    log = open_log(1);
    memset(text, 'x', sizeof(text) - 1);
    text[KV_EVENT_LABEL_MAX] = '\0';
    assert_int_equal(kv_events_label(log, text), 0); /* no room for its end */
    text[KV_EVENT_LABEL_MAX - 1] = '\0';
    assert_int_equal(kv_events_label(log, text), 1);
    kv_events_close(log);
}

enum { WRITTEN = 20000 };

static void *write_many(void *context) {
    kv_events *log = context;
    int32_t tokens[KV_PAGE_TOKENS];
    for (uint64_t i = 1; i <= WRITTEN; i++) {
        for (int t = 0; t < KV_PAGE_TOKENS; t++)
            tokens[t] = (int32_t)i;
        kv_events_stored(log, i, NULL, tokens);
        kv_events_flush(log);
    }
    return NULL;
}

/* Blocks come in order and whole; where some are missing, KV_EVENT_CLEARED stands in the gap. */
static void a_reader_beside_the_writer_misses_nothing_unsaid(void **state) {
    (void)state;
    pthread_t writer;
    kv_event events[8];
    uint64_t last = 0, got = 0;
    bool cleared = false;
    kv_events *log = open_log(32);
    assert_int_equal(pthread_create(&writer, NULL, write_many, log), 0);
    while (got + kv_events_dropped(log) < WRITTEN || !kv_events_sleep(log)) {
        uint32_t count = kv_events_take(log, events, 8);
        for (uint32_t i = 0; i < count; i++) {
            if (events[i].kind == KV_EVENT_CLEARED) {
                cleared = true;
                continue;
            }
            assert_true(events[i].block == last + 1 || (cleared && events[i].block > last));
            assert_int_equal(events[i].tokens[KV_PAGE_TOKENS - 1], events[i].block);
            last = events[i].block;
            cleared = false;
            got++;
        }
    }
    pthread_join(writer, NULL);
    assert_int_equal(got + kv_events_dropped(log), WRITTEN);
    kv_events_close(log);
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    test_allocator allocator;
    kv_events *log = NULL;
    avo_error error = {0};
    for (size_t at = 1; at <= 3; at++) {
        test_allocator_init(&allocator);
        allocator.fail_at = at;
        assert_refused(kv_events_open(8, &allocator.allocator, &log, &error), AVO_ERROR_MEMORY,
                       &error, "KV events");
        assert_null(log);
        assert_int_equal(allocator.live, 0);
    }
    test_allocator_init(&allocator);
    assert_ok(kv_events_open(8, &allocator.allocator, &log, &error));
    kv_events_close(log);
    assert_int_equal(allocator.live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_form_chains_and_are_removed),
        cmocka_unit_test(names_stay_with_pages_that_move),
        cmocka_unit_test(a_full_log_drops_and_says_so_once),
        cmocka_unit_test(the_reader_is_woken_only_where_it_sleeps),
        cmocka_unit_test(labels_are_kept_and_bounded),
        cmocka_unit_test(a_reader_beside_the_writer_misses_nothing_unsaid),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
