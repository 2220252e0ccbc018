/* device/store: forms of the weights are shared, counted, released through their owner, and
 * limited. AVO_TEST_THREADS */
#include "support/support.h"

#include "device/store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Memory that forms are built in. */
typedef struct owner {
    int values[2 * STORE_FORMS_MAX];
    int built, released;
    bool fails;
} owner;

static avo_status build(void *context, void **value, avo_error *error) {
    owner *o = context;
    if (o->fails)
        return status_fail(error, AVO_ERROR_DEVICE, "the upload failed");
    *value = &o->values[o->built++];
    return AVO_OK;
}

static void release(void *context, void *value) {
    owner *o = context;
    assert_true((int *)value >= o->values && (int *)value < o->values + o->built);
    o->released++;
}

static weights_form form_of(owner *o, const char *key, bool kept) {
    return (weights_form){
        .key = key, .build = build, .context = o, .release = release, .owner = o, .kept = kept};
}

static void the_last_user_releases(void **state) {
    (void)state;
    weights_store *store;
    avo_error error = {0};
    owner one = {0}, two = {0};
    weights_entry *a, *b, *c, *found;
    char key[16] = "card:0";
    assert_ok(weights_store_open(NULL, &store, &error));
    weights_form form = form_of(&one, key, false);
    assert_null(weights_store_find(store, "card:0"));
    assert_ok_error(weights_store_take(store, &form, &a, &error), &error);
    memcpy(key, "card:1", 7); /* keys are copied: this is another device */
    form = form_of(&two, key, false);
    assert_ok_error(weights_store_take(store, &form, &c, &error), &error);
    assert_ptr_not_equal(weights_entry_value(a), weights_entry_value(c));
    form = form_of(&two, "card:0", false);
    assert_ok_error(weights_store_take(store, &form, &b, &error), &error);
    assert_ptr_equal(weights_entry_value(a), weights_entry_value(b));
    assert_int_equal(one.built + two.built, 2);
    found = weights_store_find(store, "card:0");
    assert_ptr_equal(weights_entry_value(found), weights_entry_value(a));
    weights_store_give(store, a);
    weights_store_give(store, found);
    assert_int_equal(one.released, 0);
    weights_store_give(store, b);
    assert_int_equal(one.released, 1); /* by its own owner, while the store is open */
    assert_int_equal(two.released, 0);
    assert_null(weights_store_find(store, "card:0"));
    weights_store_give(store, c);
    weights_store_give(store, NULL);
    assert_int_equal(two.released, 1);
    weights_store_close(store);
    weights_store_close(NULL);
}

static void what_is_kept_waits_for_the_next(void **state) {
    (void)state;
    weights_store *store;
    owner o = {0};
    weights_entry *entry;
    assert_ok(weights_store_open(NULL, &store, NULL));
    weights_form form = form_of(&o, "host", true);
    for (int i = 0; i < 3; i++) {
        assert_ok(weights_store_take(store, &form, &entry, NULL));
        weights_store_give(store, entry);
    }
    assert_int_equal(o.built, 1);
    assert_int_equal(o.released, 0);
    weights_store_close(store);
    assert_int_equal(o.released, 1);
}

/* A model that was closed before its engines. */
static void references_may_outlive_the_store(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    weights_store *store;
    owner o = {0};
    weights_entry *used, *left, *unused;
    assert_ok(weights_store_open(&counter.allocator, &store, NULL));
    weights_form forms[3] = {form_of(&o, "used", true), form_of(&o, "left", false),
                             form_of(&o, "unused", true)};
    assert_ok(weights_store_take(store, &forms[0], &used, NULL));
    assert_ok(weights_store_take(store, &forms[1], &left, NULL));
    assert_ok(weights_store_take(store, &forms[2], &unused, NULL));
    weights_store_give(store, unused);
    weights_store_close(store);
    assert_int_equal(o.released, 1);
    assert_true(counter.live > 0);
    weights_store_give(store, used); /* nothing is kept any more */
    assert_int_equal(o.released, 2);
    weights_store_give(store, left);
    assert_int_equal(o.released, 3);
    assert_int_equal(counter.live, 0);
}

static void there_may_be_no_store(void **state) {
    (void)state;
    owner o = {0};
    weights_entry *a, *b;
    weights_form form = form_of(&o, "host", true);
    assert_null(weights_store_find(NULL, "host"));
    assert_ok(weights_store_take(NULL, &form, &a, NULL));
    assert_ok(weights_store_take(NULL, &form, &b, NULL));
    assert_int_equal(o.built, 2); /* nobody finds the other's */
    weights_store_give(NULL, a);
    weights_store_give(NULL, b);
    weights_store_give(NULL, NULL);
    assert_int_equal(o.released, 2);
}

static void limits_are_errors(void **state) {
    (void)state;
    weights_store *store;
    avo_error error = {0};
    owner o = {0};
    weights_entry *entry[STORE_FORMS_MAX], *more;
    char key[STORE_KEY_MAX + 1];
    assert_ok(weights_store_open(NULL, &store, &error));
    for (int i = 0; i < STORE_FORMS_MAX; i++) {
        snprintf(key, sizeof(key), "card:%d", i);
        weights_form form = form_of(&o, key, false);
        assert_ok_error(weights_store_take(store, &form, &entry[i], &error), &error);
    }
    weights_form form = form_of(&o, "one more", false);
    assert_refused(weights_store_take(store, &form, &more, &error), AVO_ERROR_LIMIT, &error,
                   "'one more' would be one too many");
    assert_null(more);
    weights_store_give(store, entry[3]);
    assert_ok_error(weights_store_take(store, &form, &entry[3], &error), &error);
    memset(key, 'k', sizeof(key));
    key[STORE_KEY_MAX] = '\0';
    form = form_of(&o, key, false);
    weights_store_give(store, entry[4]);
    assert_refused(weights_store_take(store, &form, &more, &error), AVO_ERROR_LIMIT, &error,
                   "the name has 64 characters, must have at most 63");
    key[STORE_KEY_MAX - 1] = '\0';
    assert_ok_error(weights_store_take(store, &form, &entry[4], &error), &error);
    for (int i = 0; i < STORE_FORMS_MAX; i++)
        weights_store_give(store, entry[i]);
    assert_int_equal(o.released, o.built);
    weights_store_close(store);
}

static void a_failure_leaves_nothing(void **state) {
    (void)state;
    weights_store *store;
    avo_error error = {0};
    owner o = {.fails = true};
    weights_entry *entry;
    assert_ok(weights_store_open(NULL, &store, &error));
    weights_form form = form_of(&o, "card:0", true);
    assert_refused(weights_store_take(store, &form, &entry, &error), AVO_ERROR_DEVICE, &error,
                   "the upload failed");
    assert_null(entry);
    assert_null(weights_store_find(store, "card:0"));
    o.fails = false;
    assert_ok_error(weights_store_take(store, &form, &entry, &error), &error);
    weights_store_give(store, entry);
    weights_store_close(store);
    assert_int_equal(o.released, 1);
}

static weights_store *shared;

static void *take_and_give(void *context) {
    weights_form form = form_of(context, "card:0", false);
    for (int i = 0; i < 8; i++) {
        weights_entry *entry;
        assert_ok(weights_store_take(shared, &form, &entry, NULL));
        assert_non_null(weights_entry_value(entry));
        weights_store_give(shared, entry);
    }
    return NULL;
}

static void threads_share_them(void **state) {
    (void)state;
    owner o = {0};
    pthread_t threads[4];
    assert_ok(weights_store_open(NULL, &shared, NULL));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &o), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(o.built > 0 && o.built <= 32 && o.released == o.built);
    weights_store_close(shared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_user_releases),
        cmocka_unit_test(what_is_kept_waits_for_the_next),
        cmocka_unit_test(references_may_outlive_the_store),
        cmocka_unit_test(there_may_be_no_store),
        cmocka_unit_test(limits_are_errors),
        cmocka_unit_test(a_failure_leaves_nothing),
        cmocka_unit_test(threads_share_them),
    };
    return cmocka_run_group_tests_name("device/store", tests, NULL, NULL);
}
