/* The published vectors of five tokenizers: texts and the ids they must give. */
#include "support/support.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATOR "\n__ggml_vocab_test__\n"

static text_view next_text(text_view *left, text_view separator) {
    const char *found =
        left->size == 0 ? NULL : memmem(left->data, left->size, separator.data, separator.size);
    size_t size = found == NULL ? left->size : (size_t)(found - left->data);
    text_view text = {left->data, size};
    size_t taken = found == NULL ? size : size + separator.size;
    left->data += taken;
    left->size -= taken;
    return text;
}

static void expect_ids(const char *name, size_t index, const id_list *ids, text_view line) {
    char text[4096];
    assert_true(line.size < sizeof(text));
    memcpy(text, line.data, line.size);
    text[line.size] = '\0';
    char *at = text;
    for (size_t i = 0; i <= ids->count; i++) {
        char *end;
        long wanted = strtol(at, &end, 10);
        if ((end == at) != (i == ids->count) || (i < ids->count && wanted != ids->ids[i]))
            fail_msg("%s: text %zu differs at id %zu", name, index, i);
        at = end;
    }
}

static void check(const char *name, const char *file) {
    char relative[128];
    char path[3][4096];
    const char *const files[3] = {file, "vectors.inp", "vectors.out"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(relative, sizeof(relative), "tokenizers/%s/%s", name, files[i]);
        const char *found = test_data_path(relative);
        skip_without(found, relative);
        snprintf(path[i], sizeof(path[i]), "%s", found == NULL ? "" : found);
    }
    avo_error error = {0};
    tokenizer *tokenizer;
    file_map texts;
    file_map wanted;
    assert_ok_error(tokenizer_open_file(path[0], NULL, &tokenizer, &error), &error);
    assert_ok_error(file_map_open(path[1], &texts, &error), &error);
    assert_ok_error(file_map_open(path[2], &wanted, &error), &error);
    text_view input = {(const char *)texts.bytes.data, texts.bytes.size};
    text_view output = {(const char *)wanted.bytes.data, wanted.bytes.size};
    id_list ids;
    id_list_init(&ids, NULL);
    encode_options options = {0};
    size_t count = 0;
    while (output.size > 0) {
        text_view text = next_text(&input, TEXT_LITERAL(SEPARATOR));
        text_view line = next_text(&output, TEXT_LITERAL("\n"));
        ids.count = 0;
        assert_ok_error(tokenizer_encode(tokenizer, text, &options, &ids, &error), &error);
        expect_ids(name, count++, &ids, line);
        buffer back;
        buffer_init(&back, NULL, SIZE_MAX);
        assert_ok_error(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back, &error),
                        &error);
        assert_true(text_equal(buffer_text(&back), text));
        buffer_free(&back);
    }
    assert_true(count > 40);
    id_list_free(&ids);
    file_map_close(&texts);
    file_map_close(&wanted);
    tokenizer_close(tokenizer);
}

static void gpt2(void **state) {
    (void)state;
    check("gpt2", "tokenizer.json");
}

static void llama2(void **state) {
    (void)state;
    check("llama2", "tokenizer.model");
}

static void llama3(void **state) {
    (void)state;
    check("llama3", "tokenizer.json");
}

static void phi3(void **state) {
    (void)state;
    check("phi3", "tokenizer.json");
}

static void qwen2(void **state) {
    (void)state;
    check("qwen2_5", "tokenizer.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gpt2), cmocka_unit_test(llama2),
                                       cmocka_unit_test(llama3), cmocka_unit_test(phi3),
                                       cmocka_unit_test(qwen2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
