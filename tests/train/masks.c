/* Which tokens of conversations count: against transformers where templates have generation blocks
 * (tools/oracle/chat_masks.py), and without them against the same masks and by hand. */
#include "support/support.h"
#include "support/text_model.h"
#include "train/data_int.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 16384

static const char *const stops[] = {"qwen2", "<|im_end|>", "llama3", "</s>", "llama2", "</s>"};

static const char *stop_of(text_view tokenizer) {
    for (size_t i = 0; i < 6; i += 2)
        if (text_is(tokenizer, stops[i]))
            return stops[i + 1];
    return NULL;
}

/* `text` without what is between "{%" and "%}" around the word generation. */
static void drop_blocks(text_view text, char *out) {
    size_t at = 0;
    static const char *const blocks[] = {"{% generation %}", "{% endgeneration %}"};
    for (size_t i = 0; i < text.size; i++) {
        text_view rest = {text.data + i, text.size - i};
        for (size_t b = 0; b < 2; b++)
            if (text_starts(rest, text_from(blocks[b]))) {
                i += strlen(blocks[b]);
                rest = (text_view){text.data + i, text.size - i};
            }
        if (i < text.size)
            out[at++] = text.data[i];
    }
    out[at] = '\0';
}

static size_t count_differences(const data_encoder *encoder, const json_value *test) {
    const json_value *ids = json_find(test, "ids"), *mask = json_find(test, "mask");
    size_t different = ids->array.count != encoder->ids.count;
    for (size_t i = 0; i < ids->array.count && different == 0; i++) {
        if (ids->array.items[i].integer != encoder->ids.ids[i])
            different++;
        /* The first token is never predicted. */
        if (i > 0 && mask->array.items[i].integer != encoder->wanted.data[i])
            different++;
    }
    return different;
}

static void check_case(const json_value *root, const json_value *test, bool blocks) {
    text_model model;
    char tokenizer[64], source[4096], chat[4096];
    avo_error error = {0};
    text_view name = json_find(test, "tokenizer")->string;
    text_view text =
        json_find_text(json_find(root, "templates"), json_find(test, "template")->string)->string;
    snprintf(tokenizer, sizeof(tokenizer), "%.*s", TEXT_ARGUMENT(name));
    memcpy(source, text.data, text.size);
    source[text.size] = '\0';
    drop_blocks(text, chat);
    text_model_open(&model, tokenizer, blocks ? source : chat, stop_of(name));
    assert_int_equal(chat_template_has_generation(model.model.chat_template), blocks);
    data_encoder encoder;
    json_value none = {.kind = JSON_NULL};
    assert_ok_error(data_encoder_open(&encoder, &model.model, NULL, 0, &error), &error);
    assert_ok_error(data_encode_chat(&encoder, json_find(test, "messages"), &none, 0, &error),
                    &error);
    size_t different = count_differences(&encoder, test);
    if (different > 0) {
        for (size_t i = 0; i < encoder.ids.count; i++)
            print_message("%d:%d ", encoder.ids.ids[i], encoder.wanted.data[i]);
        fail_msg("%.*s, %s, line %u", TEXT_ARGUMENT(json_find(test, "template")->string), tokenizer,
                 test->line);
    }
    data_encoder_close(&encoder);
    text_model_close(&model);
}

static void open_cases(arena *arena, file_map *map, json_value *root) {
    avo_error error = {0};
    assert_ok_error(file_map_open(test_fixture_path("train/masks.json"), map, &error), &error);
    arena_init(arena, NULL, SIZE_MAX);
    assert_ok_error(json_parse(arena, (text_view){(const char *)map->bytes.data, map->bytes.size},
                               root, &error),
                    &error);
}

static void generation_blocks_give_the_masks_of_transformers(void **state) {
    (void)state;
    arena arena;
    file_map map;
    json_value root;
    open_cases(&arena, &map, &root);
    const json_value *cases = json_find(&root, "cases");
    assert_true(cases->array.count >= 30);
    for (size_t i = 0; i < cases->array.count; i++)
        check_case(&root, &cases->array.items[i], true);
    arena_free(&arena);
    file_map_close(&map);
}

/* Blocks that contain the end token mark what the comparison finds. */
static void comparing_prefixes_gives_the_same_masks(void **state) {
    (void)state;
    arena arena;
    file_map map;
    json_value root;
    open_cases(&arena, &map, &root);
    const json_value *cases = json_find(&root, "cases");
    size_t checked = 0;
    for (size_t i = 0; i < cases->array.count; i++)
        if (text_is(json_find(&cases->array.items[i], "template")->string, "chatml") ||
            (text_is(json_find(&cases->array.items[i], "template")->string, "instructions") &&
             text_is(json_find(&cases->array.items[i], "tokenizer")->string, "llama3"))) {
            check_case(&root, &cases->array.items[i], false);
            checked++;
        }
    assert_true(checked >= 12);
    arena_free(&arena);
    file_map_close(&map);
}

/* ---- By hand ---- */

/* Encodes a conversation given as JSON and compares the text with the counted tokens in [ ]. */
static avo_status show_between(const char *open, const char *close, const char *tokenizer,
                               const char *chat, const char *stop, const char *messages,
                               size_t first, char *out, avo_error *error) {
    text_model model;
    arena arena;
    json_value list, none = {.kind = JSON_NULL};
    text_model_open(&model, tokenizer, chat, stop);
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok(json_parse(&arena, text_from(messages), &list, error));
    data_encoder encoder;
    assert_ok(data_encoder_open(&encoder, &model.model, NULL, 0, error));
    avo_status status = data_encode_chat(&encoder, &list, &none, first, error);
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    train_tokens tokens = {encoder.ids.ids, (const uint8_t *)encoder.wanted.data,
                           (uint32_t)encoder.ids.count};
    if (status == AVO_OK)
        assert_ok(train_data_show(&model.model, tokens, open, close, &text, error));
    assert_true(text.size < SHOWN_MAX);
    snprintf(out, SHOWN_MAX, "%.*s", (int)text.size, text.data == NULL ? "" : text.data);
    buffer_free(&text);
    data_encoder_close(&encoder);
    arena_free(&arena);
    text_model_close(&model);
    return status;
}

static avo_status show(const char *tokenizer, const char *chat, const char *stop,
                       const char *messages, size_t first, char *out, avo_error *error) {
    return show_between("[", "]", tokenizer, chat, stop, messages, first, out, error);
}

static const char conversation[] = "[{\"role\":\"user\",\"content\":\"a\"},"
                                   "{\"role\":\"assistant\",\"content\":\"b c\"},"
                                   "{\"role\":\"user\",\"content\":\"d\"},"
                                   "{\"role\":\"assistant\",\"content\":\"e\"}]";

static const char long_conversation[] = "[{\"role\":\"user\",\"content\":\"one\"},"
                                        "{\"role\":\"assistant\",\"content\":\"First answer.\"},"
                                        "{\"role\":\"user\",\"content\":\"two\"},"
                                        "{\"role\":\"assistant\",\"content\":\"Second answer.\"}]";

static void the_end_of_a_turn_counts_and_the_line_end_behind_it_does_not(void **state) {
    (void)state;
    char text[SHOWN_MAX];
    avo_error error = {0};
    assert_ok_error(show("qwen2", text_model_chatml, "<|im_end|>", conversation, 0, text, &error),
                    &error);
    assert_string_equal(text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
                              "[b c<|im_end|>]\n<|im_start|>user\nd<|im_end|>\n"
                              "<|im_start|>assistant\n[e<|im_end|>]\n");
    assert_ok_error(show("qwen2", text_model_chatml, "<|im_end|>", conversation, 3, text, &error),
                    &error);
    assert_non_null(strstr(text, "\nb c<|im_end|>"));
    assert_non_null(strstr(text, "\n[e<|im_end|>]\n"));
}

static void special_tokens_in_messages_stay_text(void **state) {
    (void)state;
    text_model model;
    avo_error error = {0};
    arena arena;
    json_value list, none = {.kind = JSON_NULL};
    text_model_open(&model, "qwen2", text_model_chatml, "<|im_end|>");
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok(json_parse(&arena,
                         TEXT_LITERAL("[{\"role\":\"user\",\"content\":\"<|im_end|>\"},"
                                      "{\"role\":\"assistant\",\"content\":\"<|im_end|>x\"}]"),
                         &list, &error));
    data_encoder encoder;
    assert_ok(data_encoder_open(&encoder, &model.model, NULL, 0, &error));
    assert_ok_error(data_encode_chat(&encoder, &list, &none, 0, &error), &error);
    size_t ends = 0;
    for (size_t i = 0; i < encoder.ids.count; i++)
        ends += encoder.ids.ids[i] == 401;
    assert_int_equal(ends, 2);
    data_encoder_close(&encoder);
    arena_free(&arena);
    text_model_close(&model);
}

/* Qwen3 and its like: an answer that is the last has an empty block of reasoning, one that is not
 * has none. */
static void reasoning_of_the_last_answer_counts(void **state) {
    (void)state;
    static const char chat[] =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{% if m.role == 'assistant' and loop.last %}{{ '<think></think>' }}{% endif %}"
        "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    char text[SHOWN_MAX];
    avo_error error = {0};
    assert_ok_error(show("qwen2", chat, "<|im_end|>", conversation, 0, text, &error), &error);
    assert_string_equal(text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
                              "[b c<|im_end|>]\n<|im_start|>user\nd<|im_end|>\n"
                              "<|im_start|>assistant\n[<think></think>e<|im_end|>]\n");
}

/* The prompt opens a block of reasoning that the history does not have. */
static void an_answer_begins_where_the_prompt_and_the_history_part(void **state) {
    (void)state;
    static const char chat[] =
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>' }}"
        "{% endif %}";
    char text[SHOWN_MAX];
    avo_error error = {0};
    assert_ok_error(show("qwen2", chat, "<|im_end|>", conversation, 0, text, &error), &error);
    assert_non_null(strstr(text, "assistant\n[b c<|im_end|>]\n"));
}

static void a_template_that_rewrites_history_is_refused(void **state) {
    (void)state;
    static const char chat[] =
        "{{ messages | length }}{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    char text[SHOWN_MAX];
    avo_error error = {0};
    assert_refused(show("qwen2", chat, "<|im_end|>", conversation, 0, text, &error),
                   AVO_ERROR_TEMPLATE, &error, "{% generation %}");
}

/* Blocks inside a macro cannot be placed: prefixes are compared instead. */
static void blocks_inside_macros_fall_back(void **state) {
    (void)state;
    static const char chat[] =
        "{% macro say(m) %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endmacro "
        "%}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{% if m.role == 'assistant' %}{{ say(m) }}{% else %}{{ m.content + '<|im_end|>' }}"
        "{% endif %}{{ '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    char text[SHOWN_MAX];
    avo_error error = {0};
    assert_ok_error(show("qwen2", chat, "<|im_end|>", conversation, 0, text, &error), &error);
    assert_non_null(strstr(text, "assistant\n[b c<|im_end|>]\n"));
}

/* Between marks 1 and 2: both answers and none of the questions. */
static bool answers_are_marked(const char *text) {
    char marked[SHOWN_MAX];
    size_t count = 0;
    bool inside = false;
    for (; *text != '\0'; text++) {
        if (*text == 1 || *text == 2)
            inside = *text == 1;
        else if (inside)
            marked[count++] = *text;
    }
    marked[count] = '\0';
    return strstr(marked, "First answer.") != NULL && strstr(marked, "Second answer.") != NULL &&
           strstr(marked, "two") == NULL && strstr(marked, "one") == NULL;
}

/* Templates that models ship with: the answers are found, or the template is refused with the
 * reason: some want tools, or a begin token that this tokenizer does not have. */
static void templates_of_models_mark_the_answers(void **state) {
    (void)state;
    static const char *const names[] = {
        "Apertus-8B-Instruct",
        "Bielik-11B-v3.0-Instruct",
        "Cohere2MoE",
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "GLM-4.7-Flash",
        "GigaChat3.1-10B-A1.8B",
        "Kimi-K2-Instruct",
        "Kimi-K3",
        "LFM2.5-8B-A1B",
        "MiMo-VL",
        "MiniMax-M2",
        "Mistral-Small-3.2-24B-Instruct-2506",
        "NVIDIA-Nemotron-Nano-v2",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen3-Coder",
        "Reka-Edge",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-V3.1",
        "deepseek-ai-DeepSeek-V4-Flash-0731",
        "fireworks-ai-llama-3-firefunction-v2",
        "google-gemma-4-31B-it-interleaved",
        "ibm-granite-granite-3.3-2B-Instruct",
        "ibm-granite-granite-4.1",
        "llama-cpp-rwkv-world",
        "meetkai-functionary-medium-v3.2",
        "meta-llama-Llama-3.2-3B-Instruct",
        "microsoft-Phi-3.5-mini-instruct",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "muse-glimmer",
        "openbmb-MiniCPM5-1B",
        "poolside-Laguna-XS-2.1",
        "tencent-Hy3",
        "unsloth-mistral-Devstral-Small-2507",
    };
    size_t marked = 0;
    skip_without(test_data_path("templates"), "templates");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[128], text[SHOWN_MAX], source[65536];
        avo_error error = {0};
        file_map map;
        snprintf(path, sizeof(path), "templates/%s.jinja", names[i]);
        assert_non_null(test_data_path(path));
        assert_ok_error(file_map_open(test_data_path(path), &map, &error), &error);
        assert_true(map.bytes.size < sizeof(source));
        memcpy(source, map.bytes.data, map.bytes.size);
        source[map.bytes.size] = '\0';
        file_map_close(&map);
        avo_status status = show_between("\1", "\2", "qwen2", source, "<|im_end|>",
                                         long_conversation, 0, text, &error);
        if (status == AVO_OK && !answers_are_marked(text))
            fail_msg("%s: %s", names[i], text);
        if (status != AVO_OK)
            print_message("%s is refused: %s\n", names[i], error.text);
        marked += status == AVO_OK;
    }
    assert_true(marked >= 29);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generation_blocks_give_the_masks_of_transformers),
        cmocka_unit_test(comparing_prefixes_gives_the_same_masks),
        cmocka_unit_test(the_end_of_a_turn_counts_and_the_line_end_behind_it_does_not),
        cmocka_unit_test(special_tokens_in_messages_stay_text),
        cmocka_unit_test(reasoning_of_the_last_answer_counts),
        cmocka_unit_test(an_answer_begins_where_the_prompt_and_the_history_part),
        cmocka_unit_test(a_template_that_rewrites_history_is_refused),
        cmocka_unit_test(blocks_inside_macros_fall_back),
        cmocka_unit_test(templates_of_models_mark_the_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
