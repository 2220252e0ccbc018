/* tokenizer/encode_cache: segments seen before give the same ids, whatever stands around them, from
 * several threads, within the bound. AVO_TEST_THREADS */
#include "tokenizer/fixtures.h"

#include <pthread.h>

static const char *const names[] = {"gpt2.json",  "llama2.json",    "llama3.json", "gemma.json",
                                    "qwen2.json", "smollm.json",    "words.json",  "splits.json",
                                    "bpe.model",  "metaspace.json", "gpt2.gguf",   "llama3.gguf",
                                    "qwen2.gguf"};
#define NAMES (sizeof(names) / sizeof(names[0]))

/* A conversation that grows: turns framed by a special token where the tokenizer has one. */
typedef struct talk {
    buffer text;
    char border[64];
} talk;

static void talk_begin(talk *talk, const tokenizer *tokenizer) {
    buffer_init(&talk->text, NULL, SIZE_MAX);
    tokenizer_info info = tokenizer_describe(tokenizer);
    talk->border[0] = '\0';
    for (int32_t id = 0; id < (int32_t)info.vocabulary && talk->border[0] == '\0'; id++) {
        text_view piece = tokenizer_piece(tokenizer, id);
        if (tokenizer_is_special(tokenizer, id) && piece.size > 3 && piece.size < 60)
            snprintf(talk->border, sizeof(talk->border), "%.*s", (int)piece.size, piece.data);
    }
}

static void talk_turn(talk *talk, int turn) {
    assert_ok(buffer_format(
        &talk->text,
        "%s user\nTurn %d: why is the sky blue,  and what's with the \xF0\x9F\x8C\x99 "
        "at night? 12345 tokens  of   spaces\t and a line\n",
        talk->border, turn / 2));
    if (turn % 3 == 2) /* the same segment once more, and once at the front of a text */
        assert_ok(buffer_format(&talk->text, "%s%s", talk->border,
                                "a part that comes again and again, long enough to be kept by it"));
}

static void compare(const tokenizer *tokenizer, encoder *encoder, text_view text, bool special,
                    id_list *fresh, id_list *kept) {
    encode_options options = {.special = special, .add_begin = special};
    fresh->count = kept->count = 0;
    assert_ok(tokenizer_encode(tokenizer, text, &options, fresh, NULL));
    assert_ok(encoder_run(encoder, text, &options, kept, NULL));
    assert_int_equal(fresh->count, kept->count);
    assert_memory_equal(fresh->ids, kept->ids, fresh->count * sizeof(int32_t));
}

/* Conversations and texts that begin with what others have inside. */
static void walk(const tokenizer *tokenizer, encode_cache *cache) {
    encoder *encoder;
    assert_ok(encoder_open(tokenizer, &encoder, NULL));
    encoder_use(encoder, cache);
    id_list fresh, kept;
    id_list_init(&fresh, NULL);
    id_list_init(&kept, NULL);
    talk talk;
    talk_begin(&talk, tokenizer);
    for (int turn = 0; turn < 9; turn++) {
        talk_turn(&talk, turn);
        for (int special = 0; special < 2; special++)
            compare(tokenizer, encoder, buffer_text(&talk.text), special == 1, &fresh, &kept);
        compare(tokenizer, encoder,
                TEXT_LITERAL("a part that comes again and again, long enough to be kept by it"),
                true, &fresh, &kept);
        compare(tokenizer, encoder,
                TEXT_LITERAL("a part that comes again and again, long \xFF enough to be kept by "
                             "it, with a byte that is no text and much behind it as well"),
                true, &fresh, &kept);
    }
    buffer_free(&talk.text);
    id_list_free(&fresh);
    id_list_free(&kept);
    encoder_close(encoder);
}

static void the_same_ids(void **state) {
    (void)state;
    uint64_t found = 0;
    for (size_t n = 0; n < NAMES; n++) {
        fixture fixture;
        fixture_named(&fixture, names[n]);
        encode_cache *cache;
        assert_ok(encode_cache_open(fixture.tokenizer, 1 << 20, &cache, NULL));
        walk(fixture.tokenizer, cache);
        walk(fixture.tokenizer, cache);
        found += encode_cache_count(cache).found_bytes;
        encode_cache_close(cache);
        fixture_close(&fixture);
    }
    assert_true(found > 10000);
}

/* Only what is new of a conversation is encoded. */
static void turns_are_found_again(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "smollm.json");
    encode_cache *cache;
    assert_ok(encode_cache_open(fixture.tokenizer, 1 << 20, &cache, NULL));
    walk(fixture.tokenizer, cache);
    encode_cache_counts first = encode_cache_count(cache);
    assert_true(first.found_bytes * 10 > first.asked_bytes * 3); /* as plain text it is one piece */
    walk(fixture.tokenizer, cache);
    encode_cache_counts second = encode_cache_count(cache);
    assert_int_equal(second.found_bytes - first.found_bytes,
                     second.asked_bytes - first.asked_bytes);
    assert_int_equal(second.entries, first.entries);
    encode_cache_close(cache);
    fixture_close(&fixture);
}

static void stays_within_its_bound(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "smollm.json");
    encode_cache *cache;
    assert_ok(encode_cache_open(fixture.tokenizer, 4000, &cache, NULL));
    for (int i = 0; i < 3; i++) {
        walk(fixture.tokenizer, cache);
        encode_cache_counts counts = encode_cache_count(cache);
        assert_true(counts.bytes <= 4000 && counts.entries > 0);
    }
    encode_cache_close(cache);
    encode_cache_close(NULL);
    fixture_close(&fixture);
}

typedef struct walker {
    const tokenizer *tokenizer;
    encode_cache *cache;
} walker;

static void *walk_thread(void *context) {
    walker *w = context;
    for (int i = 0; i < 3; i++)
        walk(w->tokenizer, w->cache);
    return NULL;
}

static void threads_share_it(void **state) {
    (void)state;
    fixture fixture;
    fixture_named(&fixture, "smollm.json");
    encode_cache *cache;
    assert_ok(encode_cache_open(fixture.tokenizer, 6000, &cache, NULL));
    walker w = {fixture.tokenizer, cache};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, walk_thread, &w), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    encode_cache_close(cache);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_ids), cmocka_unit_test(turns_are_found_again),
        cmocka_unit_test(stays_within_its_bound), cmocka_unit_test(threads_share_it)};
    return cmocka_run_group_tests_name("tokenizer/encode_cache", tests, NULL, NULL);
}
