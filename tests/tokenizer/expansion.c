/* Steps that make texts longer: what models need passes, what multiplies without end is refused by
 * the step's name, soon and without much memory. */
#include "tokenizer/fixtures.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2},\"merges\":[]}"
/* Far below what any of the bombs would need. */
#define PEAK_BYTES ((size_t)8 << 20)

static char json[1 << 18];
static size_t json_size;

static void add(const char *text) {
    size_t size = strlen(text);
    assert_true(json_size + size < sizeof(json));
    memcpy(json + json_size, text, size + 1);
    json_size += size;
}

static void add_times(const char *text, size_t times) {
    for (size_t i = 0; i < times; i++)
        add(text);
}

/* {"type":"Replace"} of `from` by `times` × `to`. */
static void add_replace(const char *from, const char *to, size_t times) {
    add("{\"type\":\"Replace\",\"pattern\":{\"String\":\"");
    add(from);
    add("\"},\"content\":\"");
    add_times(to, times);
    add("\"}");
}

static void begin_sequence(const char *part, const char *list) {
    json_size = 0;
    add("{\"");
    add(part);
    add("\":{\"type\":\"Sequence\",\"");
    add(list);
    add("\":[");
}

static avo_status open_json(const avo_allocator *allocator, tokenizer **tokenizer,
                            avo_error *error) {
    tokenizer_source source = {.kind = TOKENIZER_SOURCE_JSON,
                               .data = {(const uint8_t *)json, json_size},
                               .name = "bomb.json"};
    return tokenizer_open(&source, allocator, tokenizer, error);
}

/* The tokenizer opens, and refuses to encode the text. */
static void refuse_text(text_view text, const char *step) {
    test_allocator counter;
    test_allocator_init(&counter);
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_ok_error(open_json(&counter.allocator, &tokenizer, &error), &error);
    id_list ids;
    id_list_init(&ids, &counter.allocator);
    encode_options options = {0};
    assert_refused(tokenizer_encode(tokenizer, text, &options, &ids, &error), AVO_ERROR_LIMIT,
                   &error, step);
    assert_int_equal(ids.count, 0);
    id_list_free(&ids);
    tokenizer_close(tokenizer);
    assert_int_equal(counter.live, 0);
    assert_true(counter.peak_bytes < PEAK_BYTES);
}

static void replacements_in_a_row(void **state) {
    (void)state;
    begin_sequence("normalizer", "normalizers");
    for (size_t i = 0; i < 4; i++) {
        if (i > 0)
            add(",");
        add_replace("a", "a", 150);
    }
    add("]}," MODEL "}");
    refuse_text(TEXT_LITERAL("a"), "step Replace");
}

static void patterns_in_a_row(void **state) {
    (void)state;
    begin_sequence("normalizer", "normalizers");
    for (size_t i = 0; i < 32; i++) {
        if (i > 0)
            add(",");
        /* Matches nothing, everywhere. */
        add("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"aaaaaaaa\"}");
    }
    add("]}," MODEL "}");
    refuse_text(TEXT_LITERAL("a"), "step Replace");
}

/* A mark of spaces: each step multiplies those of the one before. */
static void marks_in_a_row(void **state) {
    (void)state;
    begin_sequence("pre_tokenizer", "pretokenizers");
    for (size_t i = 0; i < 16; i++) {
        if (i > 0)
            add(",");
        add("{\"type\":\"Metaspace\",\"replacement\":\"");
        add_times(" ", 40);
        add("\",\"prepend_scheme\":\"always\",\"split\":false}");
    }
    add("]}," MODEL "}");
    refuse_text(TEXT_LITERAL("a"), "step Metaspace");
}

/* What one part of a text has grown by is gone for the others, even if it shrinks again. */
static void many_parts(void **state) {
    (void)state;
    begin_sequence("normalizer", "normalizers");
    add_replace("a", "b", 40000);
    add(",");
    add_replace("b", "", 0);
    add("]},\"added_tokens\":[{\"id\":3,\"content\":\"z\",\"special\":false,\"normalized\":false}],"
        "" MODEL "}");
    static char text[4001];
    for (size_t i = 0; i < 4000; i++)
        text[i] = i % 2 == 0 ? 'a' : 'z';
    refuse_text((text_view){text, 4000}, "step Replace");
}

static void added_tokens(void **state) {
    (void)state;
    begin_sequence("normalizer", "normalizers");
    for (size_t i = 0; i < 8; i++) {
        if (i > 0)
            add(",");
        add_replace("a", "a", 150);
    }
    add("]},\"added_tokens\":[{\"id\":3,\"content\":\"aza\",\"special\":false,\"normalized\":"
        "true}]," MODEL "}");
    test_allocator counter;
    test_allocator_init(&counter);
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_refused(open_json(&counter.allocator, &tokenizer, &error), AVO_ERROR_LIMIT, &error,
                   "bomb.json: added token \"aza\"");
    assert_non_null(strstr(error.text, "step Replace"));
    assert_int_equal(counter.live, 0);
    assert_true(counter.peak_bytes < PEAK_BYTES);
}

static void decoding(void **state) {
    (void)state;
    begin_sequence("decoder", "decoders");
    for (size_t i = 0; i < 32; i++) {
        if (i > 0)
            add(",");
        add_replace("a", "a", 150);
    }
    add("]}," MODEL "}");
    test_allocator counter;
    test_allocator_init(&counter);
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_ok_error(open_json(&counter.allocator, &tokenizer, &error), &error);
    static const int32_t ids[] = {1, 0};
    buffer out;
    buffer_init(&out, &counter.allocator, SIZE_MAX);
    assert_refused(tokenizer_decode(tokenizer, ids, 2, true, &out, &error), AVO_ERROR_LIMIT, &error,
                   "step Replace");
    assert_true(text_is(buffer_text(&out), "b"));
    buffer_free(&out);
    tokenizer_close(tokenizer);
    assert_int_equal(counter.live, 0);
    assert_true(counter.peak_bytes < PEAK_BYTES);
}

/* U+FDFA, the character with the longest decomposition, through steps that models do have; and one
 * step alone that stays inside the fixed allowance. */
static void honest_growth_passes(void **state) {
    (void)state;
    begin_sequence("normalizer", "normalizers");
    add("{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"},{\"type\":\"Prepend\",\"prepend\":\" \"},");
    add_replace(" ", "\xE2\x96\x81", 1);
    add(",");
    add_replace("b", "a", 60000);
    add("]}," MODEL "}");
    tokenizer *tokenizer;
    avo_error error = {0};
    assert_ok_error(open_json(NULL, &tokenizer, &error), &error);
    static char text[3 << 16];
    for (size_t i = 0; i < sizeof(text); i += 3)
        memcpy(text + i, "\xEF\xB7\xBA", 3);
    id_list ids;
    id_list_init(&ids, NULL);
    encode_into(tokenizer, (text_view){text, sizeof(text)}, false, &ids);
    ids.count = 0;
    encode_into(tokenizer, TEXT_LITERAL("b"), false, &ids);
    assert_int_equal(ids.count, 60000);
    id_list_free(&ids);
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replacements_in_a_row), cmocka_unit_test(patterns_in_a_row),
        cmocka_unit_test(marks_in_a_row),        cmocka_unit_test(many_parts),
        cmocka_unit_test(added_tokens),          cmocka_unit_test(decoding),
        cmocka_unit_test(honest_growth_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
