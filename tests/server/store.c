/* server/store: files go when their time is over, to the second, and not while a batch needs them.
 * The time is an argument: nothing here waits. */
#include "support/support.h"

#include "server/store.h"

#include <stdio.h>
#include <string.h>

#define CREATED 1000000

static store *open_store(void) {
    char folder[512];
    uint32_t damaged = 0;
    store *opened = NULL;
    avo_error error = {0};
    snprintf(folder, sizeof(folder), "%s/store", test_scratch_folder());
    assert_ok_error(file_make_folder(folder, &error), &error);
    assert_ok_error(store_open(folder, 1 << 20, &opened, &damaged, &error), &error);
    assert_int_equal(damaged, 0);
    return opened;
}

static void add(store *store, const char *id, int64_t expires) {
    store_file file = {.created = CREATED, .expires = expires};
    avo_error error = {0};
    snprintf(file.id, sizeof(file.id), "file-%s", id);
    snprintf(file.owner, sizeof(file.owner), "one");
    snprintf(file.name, sizeof(file.name), "%s.jsonl", id);
    snprintf(file.purpose, sizeof(file.purpose), "batch");
    assert_ok_error(store_add(store, &file, TEXT_LITERAL("a line\n"), &error), &error);
}

static bool is_there(store *store, const char *id) {
    store_file found;
    char path[600];
    bool known = store_find(store, "one", id, &found);
    snprintf(path, sizeof(path), "%s/%s", store_folder(store), id);
    assert_int_equal(file_kind_of(path) != FILE_MISSING, known);
    snprintf(path, sizeof(path), "%s/%s.json", store_folder(store), id);
    assert_int_equal(file_kind_of(path) != FILE_MISSING, known);
    return known;
}

static bool keeps(void *context, const char *id) {
    return context != NULL && strcmp(context, id) == 0;
}

static void files_expire_to_the_second(void **state) {
    (void)state;
    char needed[] = "file-1a";
    store *store = open_store();
    add(store, "50", CREATED + STORE_SECONDS_MIN);
    add(store, "1a", CREATED + STORE_SECONDS);
    assert_int_equal(store_expire(store, CREATED, keeps, NULL), CREATED + STORE_SECONDS_MIN);
    assert_int_equal(store_expire(store, CREATED + STORE_SECONDS_MIN - 1, keeps, NULL),
                     CREATED + STORE_SECONDS_MIN);
    assert_true(is_there(store, "file-50"));
    assert_int_equal(store_expire(store, CREATED + STORE_SECONDS_MIN, keeps, NULL),
                     CREATED + STORE_SECONDS);
    assert_false(is_there(store, "file-50"));
    store_close(store);
    store = open_store(); /* a restart forgets no time */
    assert_false(is_there(store, "file-50"));
    assert_int_equal(store_expire(store, CREATED + STORE_SECONDS - 1, keeps, NULL),
                     CREATED + STORE_SECONDS);
    assert_int_equal(store_expire(store, CREATED + STORE_SECONDS + 5, keeps, needed), 0);
    assert_true(is_there(store, "file-1a")); /* a batch reads it */
    assert_int_equal(store_expire(store, CREATED + STORE_SECONDS + 6, keeps, NULL), 0);
    assert_false(is_there(store, "file-1a"));
    assert_int_equal(test_entries(store_folder(store)), 0);
    store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_expire_to_the_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
