/* chat/format over real chat templates: each is rendered with a tool and a call of it, and
 * shows the form that it must; what it rendered is then read back as that call. Skipped without the
 * shared data. */
#include "support/template_cases.h"

#include "chat/tool_int.h"

#include <stdio.h>
#include <string.h>

#define VALUE "oXq7Zk2"

typedef struct expectation {
    const char *name, *form; /* NULL: none that is known, so that tools are refused */
} expectation;

static const expectation expected[] = {
    {"Apertus-8B-Instruct", "apertus"},
    {"Bielik-11B-v3.0-Instruct", "hermes"},
    {"Cohere2MoE", "command"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command"},
    {"GLM-4.7-Flash", "glm"},
    {"GigaChat3.1-10B-A1.8B", "gigachat"},
    {"Kimi-K2-Instruct", "described"}, /* it appends to a list, which the sandbox refuses */
    {"Kimi-K3", NULL},
    {"LFM2.5-8B-A1B", "lfm"},
    {"MiMo-VL", "hermes"},
    {"MiniMax-M2", "minimax"},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"},
    {"NVIDIA-Nemotron-Nano-v2", "nemotron"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
    {"Qwen3-Coder", "qwen3_coder"},
    {"Reka-Edge", "hermes"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "described"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek"},
    {"deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek_dsml"},
    {"fireworks-ai-llama-3-firefunction-v2", "described"}, /* it wants `functions`, not tools */
    {"google-gemma-4-31B-it-interleaved", "gemma4"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
    {"ibm-granite-granite-4.1", "hermes"},
    {"llama-cpp-rwkv-world", "described"},
    {"meetkai-functionary-medium-v3.2", "functionary"},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
    {"microsoft-Phi-3.5-mini-instruct", "described"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
    {"muse-glimmer", "atem"},
    {"openbmb-MiniCPM5-1B", "minicpm"},
    {"poolside-Laguna-XS-2.1", "glm"},
    {"tencent-Hy3", "hunyuan"},
    {"unsloth-mistral-Devstral-Small-2507", "mistral"},
};
#define TEMPLATES (sizeof(expected) / sizeof(expected[0]))

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"description\":\"Looks up.\","    \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"what\":{\"type\":\"string\","           \
    "\"description\":\"What.\"},\"n\":{\"type\":\"integer\",\"description\":\"How many.\"}},"      \
    "\"required\":[\"what\"]}}}]"
#define CONVERSATION(arguments)                                                                    \
    "{\"tools\":" TOOLS ",\"messages\":[{\"role\":\"user\",\"content\":\"Look.\"},{\"role\":"      \
    "\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","  \
    "\"function\":{\"name\":\"look_up\",\"arguments\":" arguments "}}]}]}"

/* As an object, and where the template cannot, as text. */
static const char *const conversations[] = {
    CONVERSATION("{\"what\":\"" VALUE "\",\"n\":42}"),
    CONVERSATION("\"{\\\"what\\\":\\\"" VALUE "\\\",\\\"n\\\":42}\"")};

typedef struct rendering {
    chat_template_output output;
    bool good;
} rendering;

static void render(const char *path, const char *conversation, rendering *r) {
    arena arena;
    json_value variables;
    chat_template *chat;
    avo_error error;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok(json_parse(&arena, text_from(conversation), &variables, NULL));
    assert_ok_error(chat_template_open(cases_read_file(path), NULL, &chat, &error), &error);
    chat_template_input input = {.variables = &variables,
                                 .begin_token = TEXT_LITERAL("<s>"),
                                 .end_token = TEXT_LITERAL("</s>"),
                                 .now = CASES_NOW};
    chat_template_output_init(&r->output, NULL);
    r->good = chat_template_render(chat, &input, &r->output, &error) == AVO_OK;
    chat_template_close(chat);
    arena_free(&arena);
}

/* What the template wrote for the call, read as an answer: the call. Texts around it do not matter
 * here; instructions before the user's turn do not count. */
static void read_back(const expectation *e, text_view text) {
    chat_format *format;
    chat_parser *parser;
    arena arena;
    json_value tools;
    const char *look = memmem(text.data, text.size, "Look.", 5);
    for (const char *next = look; next != NULL;) {
        look = next;
        size_t left = text.size - (size_t)(next + 1 - text.data);
        next = memmem(next + 1, left, "Look.", 5);
    }
    assert_non_null(look);
    text_view rest = {look + 5, text.size - (size_t)(look + 5 - text.data)};
    /* Calls without an opener, and those behind an implied one, stand at an answer's beginning. */
    const char *begin = NULL;
    if (strcmp(e->form, "llama3") == 0)
        begin = memmem(rest.data, rest.size, "{\"name\"", 7);
    else if (strcmp(e->form, "functionary") == 0)
        begin = (const char *)memmem(rest.data, rest.size, ">>>", 3) + 3;
    if (begin != NULL)
        rest = (text_view){begin, rest.size - (size_t)(begin - rest.data)};
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok(json_parse(&arena, text_from(TOOLS), &tools, NULL));
    chat_parser_options options = {.calls = true, .tools = &tools};
    assert_ok(chat_format_named(e->form, &format, NULL));
    assert_ok(chat_parser_open(format, &options, &parser, NULL));
    chat_delta shown;
    assert_ok(chat_parser_push(parser, -1, rest, &shown, NULL));
    assert_ok(chat_parser_finish(parser, &shown, NULL));
    if (chat_parser_count(parser) != 1)
        fail_msg("%s: %zu calls in %.*s", e->name, chat_parser_count(parser), (int)rest.size,
                 rest.data);
    const tool_call *call = chat_parser_call(parser, 0);
    json_value arguments;
    assert_true(text_is(call->name, "look_up"));
    assert_ok(json_parse(&arena, call->arguments, &arguments, NULL));
    const json_value *what = json_find(&arguments, "what"), *n = json_find(&arguments, "n");
    if (what == NULL || what->kind != JSON_STRING || !text_is(what->string, VALUE) || n == NULL ||
        n->kind != JSON_INTEGER || n->integer != 42)
        fail_msg("%s: %.*s", e->name, TEXT_ARGUMENT(call->arguments));
    chat_parser_close(parser);
    chat_format_close(format);
    arena_free(&arena);
}

static bool check(const expectation *e) {
    char relative[256];
    snprintf(relative, sizeof(relative), "templates/%s.jinja", e->name);
    const char *path = test_data_path(relative), *form = NULL;
    bool listed = false, called = false;
    if (path == NULL)
        fail_msg("%s is not there", relative);
    rendering r[2];
    for (size_t i = 0; i < 2; i++) {
        render(path, conversations[i], &r[i]);
        text_view text = buffer_text(&r[i].output.text);
        if (!r[i].good || form != NULL)
            continue;
        listed = listed || memmem(text.data, text.size, "look_up", 7) != NULL;
        form = tool_form_seen(text, VALUE, NULL);
        called = form != NULL && memmem(text.data, text.size, VALUE, strlen(VALUE)) != NULL;
        if (called)
            read_back(&(expectation){e->name, form}, text);
    }
    for (size_t i = 0; i < 2; i++)
        chat_template_output_free(&r[i].output);
    if (form == NULL && !listed)
        form = "described"; /* as chat_format_open does */
    print_message("%-48s %s%s\n", e->name, form == NULL ? "not known" : form,
                  called ? ", read back" : "");
    bool same = e->form == NULL ? form == NULL : form != NULL && strcmp(form, e->form) == 0;
    if (!same)
        print_error("%s: expected %s\n", e->name, e->form == NULL ? "none" : e->form);
    return same;
}

static void every_template_shows_its_form(void **state) {
    (void)state;
    skip_without(test_data_path("templates"), "the shared data's templates");
    size_t wrong = 0;
    for (size_t i = 0; i < TEMPLATES; i++)
        wrong += !check(&expected[i]);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_template_shows_its_form)};
    return cmocka_run_group_tests_name("chat/tool_templates", tests, NULL, NULL);
}
