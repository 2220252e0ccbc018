/* memory/kv: pages are conserved, growth is all or nothing and touches no memory. */
#include "support/support.h"

#include "base/random.h"
#include "memory/kv.h"

#include <string.h>

static const layer_view layers[2] = {{.kv_heads = 2, .head_size = 5},
                                     {.kv_heads = 1, .head_size = 20}};
static const model_view model = {.layers = 2, .layer = layers};

static device *open_device(const avo_allocator *allocator) {
    device_options options = {.allocator = allocator, .name = "ref", .huge_pages = "off"};
    device *device;
    assert_ok(device_open(&options, &device, NULL));
    return device;
}

static device *shared;

static int open_shared(void **state) {
    (void)state;
    shared = open_device(NULL);
    return 0;
}

static int close_shared(void **state) {
    (void)state;
    device_close(shared);
    return 0;
}

static void sizes_add_up(void **state) {
    (void)state;
    uint64_t bytes;
    assert_true(kv_pool_bytes(shared, &model, KV_F32, 3, &bytes));
    size_t page = 2 * (KV_PAGE_TOKENS * (5 + 16)) + KV_PAGE_TOKENS * (20 + 32);
    uint64_t rounded;
    assert_true(device_memory_round(shared, 3 * page * sizeof(float), &rounded));
    assert_int_equal(bytes, rounded);
}

static void growth_is_all_or_nothing(void **state) {
    (void)state;
    kv_pool *pool;
    assert_ok(kv_pool_open(shared, &model, KV_F32, 4, &pool, NULL));
    uint32_t a_pages[8];
    uint32_t b_pages[2];
    kv_table a = {a_pages, 0, 8, 0};
    kv_table b = {b_pages, 0, 2, 0};
    assert_ok(pages_grow(kv_pool_pages(pool), &a, 3 * KV_PAGE_TOKENS));
    assert_int_equal(a.count, 3);
    assert_int_equal(pages_grow(kv_pool_pages(pool), &b, 2 * KV_PAGE_TOKENS), AVO_ERROR_FULL);
    assert_int_equal(b.count, 0);
    assert_int_equal(pages_available(kv_pool_pages(pool)), 1);
    pages_shrink(kv_pool_pages(pool), &a, 1);
    assert_int_equal(pages_available(kv_pool_pages(pool)), 3);
    assert_int_equal(pages_grow(kv_pool_pages(pool), &b, 2 * KV_PAGE_TOKENS + 1),
                     AVO_ERROR_FULL); /* its table */
    assert_ok(pages_grow(kv_pool_pages(pool), &b, 2 * KV_PAGE_TOKENS));
    assert_int_not_equal(a.pages[0], b.pages[0]);
    kv_pool_close(pool);
}

/* Memory is left to those who write it: a page that comes back is as it was given away. */
static void growth_touches_no_page(void **state) {
    (void)state;
    kv_pool *pool;
    assert_ok(kv_pool_open(shared, &model, KV_F32, 1, &pool, NULL));
    size_t bytes = kv_pool_view(pool)->page_bytes;
    uint8_t contents[65536];
    uint32_t pages[1];
    kv_table table = {pages, 0, 1, 0};
    assert_true(bytes <= sizeof(contents));
    memset(contents, 0x7f, bytes);
    assert_ok(kv_pool_page_write(pool, 0, contents, NULL));
    for (int round = 0; round < 2; round++) {
        assert_ok(pages_grow(kv_pool_pages(pool), &table, 1));
        memset(contents, 0, bytes);
        assert_ok(kv_pool_page_read(pool, table.pages[0], KV_PAGE_TOKENS, contents, NULL));
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(contents[i], 0x7f);
        pages_shrink(kv_pool_pages(pool), &table, 0);
    }
    kv_pool_close(pool);
}

/* Random growing and shrinking of many tables: no page is lost, none is in two tables. */
static void pages_are_conserved(void **state) {
    (void)state;
    enum { TABLES = 5, PAGES = 16 };
    kv_pool *pool;
    assert_ok(kv_pool_open(shared, &model, KV_F32, PAGES, &pool, NULL));
    uint32_t pages[TABLES][PAGES];
    kv_table tables[TABLES];
    for (int t = 0; t < TABLES; t++)
        tables[t] = (kv_table){pages[t], 0, PAGES, 0};
    for (uint64_t turn = 0; turn < 5000; turn++) {
        random_block draw = random_at(1, 2, turn);
        kv_table *table = &tables[draw.words[0] % TABLES];
        uint32_t length = draw.words[1] % (PAGES * KV_PAGE_TOKENS);
        if (draw.words[2] % 2 == 0)
            (void)!pages_grow(kv_pool_pages(pool), table, length);
        else
            pages_shrink(kv_pool_pages(pool), table, length);
        uint32_t owned = 0;
        uint8_t seen[PAGES] = {0};
        for (int t = 0; t < TABLES; t++) {
            owned += tables[t].count;
            for (uint32_t i = 0; i < tables[t].count; i++)
                assert_int_equal(seen[tables[t].pages[i]]++, 0);
        }
        assert_int_equal(owned + pages_available(kv_pool_pages(pool)), PAGES);
    }
    kv_pool_close(pool);
}

/* A page that somebody else holds, or that the index knows, is copied before it is written. */
static void shared_pages_are_copied(void **state) {
    (void)state;
    kv_pool *pool;
    assert_ok(kv_pool_open(shared, &model, KV_F16, 3, &pool, NULL));
    size_t bytes = kv_pool_view(pool)->page_bytes;
    uint32_t a_pages[2], b_pages[2];
    kv_table a = {a_pages, 0, 2, 0}, b = {b_pages, 0, 2, 0};
    assert_ok(kv_pool_write(pool, &a, 0, 5, NULL));
    uint8_t first[65536], copy[65536];
    assert_true(bytes <= sizeof(first));
    for (size_t i = 0; i < bytes; i++)
        first[i] = (uint8_t)(i * 7);
    assert_ok(kv_pool_page_write(pool, a.pages[0], first, NULL));
    pages_fork(kv_pool_pages(pool), &a, 5, &b);
    assert_int_equal(a.pages[0], b.pages[0]);
    assert_ok(kv_pool_write(pool, &b, 5, 6, NULL));
    assert_int_not_equal(a.pages[0], b.pages[0]);
    assert_ok(kv_pool_page_read(pool, b.pages[0], KV_PAGE_TOKENS, copy, NULL));
    assert_memory_equal(copy, first, bytes);
    uint32_t kept = a.pages[0];
    assert_ok(kv_pool_write(pool, &a, 5, 6, NULL)); /* nobody else has it any more */
    assert_int_equal(a.pages[0], kept);
    kv_pool_close(pool);
}

/* Writes NaN into every page, as other timelines may leave them. */
static void soil(kv_pool *pool, uint32_t pages) {
    uint8_t contents[65536];
    assert_true(kv_pool_view(pool)->page_bytes <= sizeof(contents));
    memset(contents, 0xff, sizeof(contents));
    for (uint32_t i = 0; i < pages; i++)
        assert_ok(kv_pool_page_write(pool, i, contents, NULL));
}

static bool is_filled(kv_pool *pool, uint32_t page, uint8_t byte) {
    uint8_t contents[65536];
    size_t bytes = kv_pool_view(pool)->page_bytes, same = 0;
    assert_ok(kv_pool_page_read(pool, page, KV_PAGE_TOKENS, contents, NULL));
    while (same < bytes && contents[same] == byte)
        same++;
    return same == bytes;
}

/* A device that reads whole pages finds zeros where no token was written; what a table held stays.
 */
static void new_pages_are_zeroed(void **state) {
    (void)state;
    static const char *const names[] = {"remote:ref", "ref"};
    for (int host = 0; host < 2; host++) {
        device_options options = {.name = names[host], .huge_pages = "off"};
        device *device;
        kv_pool *pool;
        assert_ok(device_open(&options, &device, NULL));
        assert_int_equal(device_describe(device)->whole_pages, !host);
        assert_ok(kv_pool_open(device, &model, KV_F16, 6, &pool, NULL));
        uint32_t a_pages[4], b_pages[4];
        kv_table a = {a_pages, 0, 4, 0}, b = {b_pages, 0, 4, 0};
        soil(pool, 6);
        assert_ok(kv_pool_write(pool, &a, 0, KV_PAGE_TOKENS + 5, NULL));
        assert_int_equal(is_filled(pool, a.pages[0], 0), !host);
        assert_int_equal(is_filled(pool, a.pages[1], 0), !host);
        soil(pool, 6);
        pages_fork(kv_pool_pages(pool), &a, KV_PAGE_TOKENS + 5, &b);
        /* A copy of the shared page, and a new one. */
        assert_ok(kv_pool_write(pool, &b, KV_PAGE_TOKENS + 5, 2 * KV_PAGE_TOKENS + 1, NULL));
        assert_int_not_equal(a.pages[1], b.pages[1]);
        assert_true(is_filled(pool, b.pages[0], 0xff) && is_filled(pool, b.pages[1], 0xff));
        assert_int_equal(is_filled(pool, b.pages[2], 0), !host);
        kv_pool_close(pool);
        device_close(device);
    }
}

/* Where zeroing fails, the table is as it was. */
static void a_page_that_cannot_be_zeroed_is_not_taken(void **state) {
    (void)state;
    device_options options = {.name = "remote:ref,fail=3", .huge_pages = "off"};
    device *device;
    kv_pool *pool;
    avo_error error = {0};
    assert_ok(device_open(&options, &device, NULL));
    assert_ok(kv_pool_open(device, &model, KV_F16, 6, &pool, NULL));
    uint32_t pages[4];
    kv_table table = {pages, 0, 4, 0};
    assert_ok(kv_pool_write(pool, &table, 0, 5, NULL));
    assert_refused(kv_pool_write(pool, &table, 5, 3 * KV_PAGE_TOKENS, &error), AVO_ERROR_DEVICE,
                   &error, "clearing memory failed");
    assert_int_equal(table.count, 1);
    assert_int_equal(pages_available(kv_pool_pages(pool)), 5);
    assert_ok(kv_pool_write(pool, &table, 5, 3 * KV_PAGE_TOKENS, &error));
    assert_int_equal(table.count, 3);
    kv_pool_close(pool);
    device_close(device);
}

static void survives_allocation_failure(void **state) {
    (void)state;
    avo_status status = AVO_ERROR_MEMORY;
    for (size_t fail_at = 1; status != AVO_OK; fail_at++) {
        test_allocator counter;
        test_allocator_init(&counter);
        device *device = open_device(&counter.allocator);
        counter.fail_at = counter.allocations + fail_at;
        kv_pool *pool;
        status = kv_pool_open(device, &model, KV_F32, 4, &pool, NULL);
        assert_true(status == AVO_OK || status == AVO_ERROR_MEMORY);
        assert_true(fail_at < 20);
        kv_pool_close(pool);
        device_close(device);
        assert_int_equal(counter.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_add_up),
        cmocka_unit_test(growth_is_all_or_nothing),
        cmocka_unit_test(growth_touches_no_page),
        cmocka_unit_test(pages_are_conserved),
        cmocka_unit_test(shared_pages_are_copied),
        cmocka_unit_test(new_pages_are_zeroed),
        cmocka_unit_test(a_page_that_cannot_be_zeroed_is_not_taken),
        cmocka_unit_test(survives_allocation_failure),
    };
    return cmocka_run_group_tests_name("memory/kv", tests, open_shared, close_shared);
}
