/* The index of names: what was added is found, what was not is not, names are there once. */
#include "support/support.h"

#include "base/name_index.h"

#include <stdio.h>

typedef struct item {
    uint64_t before; /* the name is not the first member here */
    text_view name;
} item;

enum { ITEMS = 5000 };

static char texts[ITEMS][8];
static item items[ITEMS];

static void fill(void) {
    for (size_t i = 0; i < ITEMS; i++) {
        int bytes = snprintf(texts[i], sizeof(texts[i]), "%zu", i);
        items[i].name = (text_view){texts[i], (size_t)bytes};
    }
}

static void test_all_are_found(void **state) {
    (void)state;
    static const size_t counts[] = {1, 7, 8, 9, 1000, ITEMS};
    fill();
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        arena arena;
        arena_init(&arena, NULL, SIZE_MAX);
        name_index index;
        assert_ok(name_index_open(&index, &arena, counts[c]));
        assert_true(index.size >= 2 * counts[c]);
        name_column names = NAME_COLUMN(items, item, name);
        for (size_t i = 0; i < counts[c]; i++)
            assert_true(name_index_add(&index, names, i));
        for (size_t i = 0; i < ITEMS; i++) {
            size_t place = name_index_find(&index, names, items[i].name);
            assert_true(place == (i < counts[c] ? i : NAME_INDEX_NONE));
        }
        arena_free(&arena);
    }
}

static void test_names_are_there_once(void **state) {
    (void)state;
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    static char same[] = "a";
    const item twins[] = {{0, {"a", 1}}, {0, {same, 1}}, {0, {"", 0}}, {0, {"a\0b", 3}}};
    name_index index;
    assert_ok(name_index_open(&index, &arena, 4));
    name_column names = NAME_COLUMN(twins, item, name);
    assert_true(name_index_add(&index, names, 0));
    assert_false(name_index_add(&index, names, 1));
    assert_true(name_index_add(&index, names, 2)); /* an empty name is a name */
    assert_true(name_index_add(&index, names, 3)); /* and so is one with a zero in it */
    assert_int_equal(name_index_find(&index, names, (text_view){same, 1}), 0);
    assert_int_equal(name_index_find(&index, names, (text_view){NULL, 0}), 2);
    assert_int_equal(name_index_find(&index, names, (text_view){"a\0b", 3}), 3);
    assert_true(name_index_find(&index, names, (text_view){"a\0c", 3}) == NAME_INDEX_NONE);
    arena_free(&arena);
}

static void test_nothing(void **state) {
    (void)state;
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    name_index index = {0};
    assert_true(name_index_find(&index, NAME_COLUMN(NULL, item, name), (text_view){"a", 1}) ==
                NAME_INDEX_NONE);
    assert_ok(name_index_open(&index, &arena, 0));
    assert_true(name_index_find(&index, NAME_COLUMN(NULL, item, name), (text_view){"a", 1}) ==
                NAME_INDEX_NONE);
    assert_int_equal(name_index_open(&index, &arena, (size_t)NAME_INDEX_NAMES_MAX + 1),
                     AVO_ERROR_LIMIT);
    arena_free(&arena);
    arena_init(&arena, NULL, 64);
    assert_int_equal(name_index_open(&index, &arena, 1 << 20), AVO_ERROR_MEMORY);
    assert_int_equal(index.size, 0);
    arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_found),
        cmocka_unit_test(test_names_are_there_once),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
