/* chat/grammar_cache: compiled once whoever asks, bounded in entries and bytes, from many threads
 * at once. AVO_TEST_THREADS */
#include "support/support.h"

#include "chat/chat.h"
#include "support/tiny_model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static avo_model *model;

static int open_model(void **state) {
    (void)state;
    avo_error error = {0};
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    avo_model_close(model);
    return 0;
}

static void write_rule(char *text, size_t capacity, unsigned number) {
    snprintf(text, capacity, "root ::= \"answer %u\" [a-z]*", number);
}

static void compiled_once(void **state) {
    (void)state;
    grammar_cache *cache;
    avo_grammar *a, *b, *c;
    avo_error error = {0};
    avo_grammar_options options = AVO_GRAMMAR_OPTIONS_INIT;
    options.trigger = "x";
    assert_ok(grammar_cache_open(model, (uint64_t)1 << 30, &cache, &error));
    assert_ok(
        grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, "root ::= [a-z]", NULL, &a, &error));
    assert_ok(
        grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, "root ::= [a-z]", NULL, &b, &error));
    assert_ptr_equal(a, b);
    avo_grammar_close(b);
    assert_ok(
        grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, "root ::= [a-z]", &options, &b, &error));
    assert_ptr_not_equal(a, b);
    assert_ok(grammar_cache_take(cache, NULL, AVO_GRAMMAR_JSON, NULL, NULL, &c, &error));
    assert_int_equal(grammar_cache_count(cache).compiled, 3);
    assert_int_equal(grammar_cache_count(cache).found, 1);
    assert_true(grammar_cache_count(cache).bytes > 0);
    avo_grammar_close(a);
    avo_grammar_close(b);
    avo_grammar_close(c);
    /* What fails is not kept, and its place is free again. */
    for (int i = 0; i < 2 * GRAMMAR_CACHE_ENTRIES; i++) {
        assert_int_not_equal(
            grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, "root ::= other", NULL, &a, &error),
            AVO_OK);
        assert_null(a);
        assert_non_null(strstr(error.text, "other"));
    }
    assert_int_equal(grammar_cache_count(cache).kept, 3);
    grammar_cache_close(cache);
}

/* The time that compiling takes would tell what others ask for. */
static void owners_share_nothing(void **state) {
    (void)state;
    static const char *const owners[] = {NULL, "a", "b", "", "a"};
    grammar_cache *cache;
    avo_grammar *grammars[5];
    assert_ok(grammar_cache_open(model, (uint64_t)1 << 30, &cache, NULL));
    for (size_t i = 0; i < 5; i++)
        assert_ok(grammar_cache_take(cache, owners[i], AVO_GRAMMAR_GBNF, "root ::= [a-z]", NULL,
                                     &grammars[i], NULL));
    assert_int_equal(grammar_cache_count(cache).compiled, 4);
    assert_ptr_equal(grammars[1], grammars[4]);
    for (size_t i = 0; i < 5; i++)
        avo_grammar_close(grammars[i]);
    grammar_cache_close(cache);
}

static void the_oldest_goes_first(void **state) {
    (void)state;
    grammar_cache *cache;
    avo_grammar *grammar;
    char text[64];
    assert_ok(grammar_cache_open(model, (uint64_t)1 << 30, &cache, NULL));
    for (unsigned i = 0; i < GRAMMAR_CACHE_ENTRIES + 8; i++) {
        write_rule(text, sizeof(text), i);
        assert_ok(grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, text, NULL, &grammar, NULL));
        avo_grammar_close(grammar);
        write_rule(text, sizeof(text), 0); /* always in use */
        assert_ok(grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, text, NULL, &grammar, NULL));
        avo_grammar_close(grammar);
    }
    grammar_cache_counts counts = grammar_cache_count(cache);
    assert_int_equal(counts.kept, GRAMMAR_CACHE_ENTRIES);
    assert_int_equal(counts.compiled, GRAMMAR_CACHE_ENTRIES + 8);
    assert_int_equal(counts.dropped, 8);
    uint64_t each = counts.bytes / counts.kept;
    grammar_cache_close(cache);
    /* Room for about three. */
    assert_ok(grammar_cache_open(model, 3 * each + each / 2, &cache, NULL));
    for (unsigned i = 0; i < 12; i++) {
        write_rule(text, sizeof(text), i);
        assert_ok(grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, text, NULL, &grammar, NULL));
        avo_grammar_close(grammar);
        assert_true(grammar_cache_count(cache).bytes <= 3 * each + each / 2);
    }
    assert_in_range(grammar_cache_count(cache).kept, 2, 3);
    grammar_cache_close(cache);
    /* One that is larger than everything is given, and not kept. */
    assert_ok(grammar_cache_open(model, 1, &cache, NULL));
    assert_ok(grammar_cache_take(cache, NULL, AVO_GRAMMAR_GBNF, text, NULL, &grammar, NULL));
    assert_int_equal(grammar_cache_count(cache).kept, 0);
    avo_grammar_close(grammar);
    grammar_cache_close(cache);
}

/* Errors name the field that asked for the grammar. */
static void constraints_are_compiled(void **state) {
    (void)state;
    grammar_cache *cache;
    avo_grammar *grammar;
    avo_error error = {0};
    chat_constraint good = {.kind = AVO_GRAMMAR_JSON, .param = "response_format"};
    chat_constraint bad = {.kind = AVO_GRAMMAR_JSON_SCHEMA,
                           .text = "{\"type\":\"boolean\",\"x-mine\":1}",
                           .param = "tools"};
    assert_ok(grammar_cache_open(model, (uint64_t)1 << 30, &cache, NULL));
    assert_ok_error(chat_constraint_open(cache, &good, &grammar, &error), &error);
    avo_grammar_close(grammar);
    assert_int_not_equal(chat_constraint_open(cache, &bad, &grammar, &error), AVO_OK);
    assert_null(grammar);
    assert_int_equal(strncmp(error.text, "tools: ", 7), 0);
    assert_non_null(strstr(error.text, "\"x-mine\" is not supported"));
    grammar_cache_close(cache);
}

typedef struct asker {
    grammar_cache *cache;
    unsigned seed;
    atomic_uint *failed;
} asker;

static void *ask(void *context) {
    asker *asker = context;
    char text[64];
    for (unsigned i = 0; i < 40; i++) {
        unsigned number = (i * 7 + asker->seed * (i / 10)) % 12;
        avo_grammar *grammar = NULL;
        write_rule(text, sizeof(text), number);
        if (number == 11)
            snprintf(text, sizeof(text), "root ::= wrong");
        avo_status status =
            grammar_cache_take(asker->cache, NULL, AVO_GRAMMAR_GBNF, text, NULL, &grammar, NULL);
        if ((status == AVO_OK) != (number != 11) || (grammar != NULL) != (number != 11))
            atomic_fetch_add(asker->failed, 1);
        avo_grammar_close(grammar);
    }
    return NULL;
}

static void many_threads(void **state) {
    (void)state;
    enum { ASKERS = 6 };
    grammar_cache *cache;
    atomic_uint failed = 0;
    pthread_t threads[ASKERS];
    asker askers[ASKERS];
    assert_ok(grammar_cache_open(model, (uint64_t)1 << 30, &cache, NULL));
    for (unsigned i = 0; i < ASKERS; i++) {
        askers[i] = (asker){cache, i, &failed};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (unsigned i = 0; i < ASKERS; i++)
        pthread_join(threads[i], NULL);
    grammar_cache_counts counts = grammar_cache_count(cache);
    assert_int_equal(atomic_load(&failed), 0);
    assert_int_equal(counts.kept, 11);
    /* Each of the good ones once, however many wanted it at the same time. */
    unsigned wrong = 0;
    for (unsigned seed = 0; seed < ASKERS; seed++)
        for (unsigned i = 0; i < 40; i++)
            wrong += (i * 7 + seed * (i / 10)) % 12 == 11;
    assert_int_equal(counts.compiled, 11 + wrong);
    grammar_cache_close(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_once), cmocka_unit_test(owners_share_nothing),
        cmocka_unit_test(the_oldest_goes_first), cmocka_unit_test(constraints_are_compiled),
        cmocka_unit_test(many_threads)};
    return cmocka_run_group_tests_name("chat/grammar_cache", tests, open_model, close_model);
}
