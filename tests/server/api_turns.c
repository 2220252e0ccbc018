/* Conversations in the three forms that clients write them, as the turns that templates get. */
#include "support/support.h"

#include "server/api_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef bool (*form)(const json_value *value, turn_list *list, api_fault *fault);

static bool as_chat(const json_value *value, turn_list *list, api_fault *fault) {
    return chat_messages_read(value, "messages", list, fault);
}

static bool as_anthropic(const json_value *value, turn_list *list, api_fault *fault) {
    return anthropic_messages_read(value, NULL, list, fault);
}

/* The turns as the template gets them; NULL: refused. */
static const char *turns_of(form form, const char *text, api_fault *fault) {
    static char out[4096];
    arena arena;
    json_value root = {0};
    *fault = (api_fault){0};
    assert_true(api_parse_body(text_from(text), &arena, &root, fault));
    turn_list list = {.arena = &arena, .arguments_left = SIZE_MAX};
    bool read = form(&root, &list, fault);
    out[0] = '\0';
    for (size_t i = 0; read && i < list.count; i++) {
        const turn *turn = &list.turns[i];
        snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s:%s%s%s%s%s;", turn->role,
                 turn->content, turn->calls == NULL ? "" : "!",
                 turn->calls == NULL ? "" : turn->calls, turn->call_id == NULL ? "" : "#",
                 turn->call_id == NULL ? "" : turn->call_id);
    }
    arena_free(&arena);
    return read ? out : NULL;
}

static void same_turns(form form, const char *text, const char *wanted) {
    api_fault fault;
    const char *got = turns_of(form, text, &fault);
    if (got == NULL)
        fail_msg("%s: %s", text, fault.text);
    assert_string_equal(got, wanted);
}

static void no_turns(form form, const char *text, const char *param) {
    api_fault fault;
    if (turns_of(form, text, &fault) != NULL)
        fail_msg("%s was taken", text);
    assert_int_equal(fault.status, 400);
    assert_string_equal(fault.param, param);
}

static void test_chat_messages(void **state) {
    (void)state;
    same_turns(as_chat,
               "[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{"
               "\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]",
               "system:s;user:ab;");
    same_turns(as_chat,
               "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"
               "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},{"
               "\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"7\"}]",
               "assistant:![{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
               "\"arguments\":{\"x\":1}}}];tool:7#c1;");
    no_turns(as_chat, "[]", "messages");
    no_turns(as_chat, "{}", "messages");
    no_turns(as_chat, "[3]", "messages[0]");
    no_turns(as_chat, "[{\"content\":\"a\"}]", "messages[0]");
    no_turns(as_chat, "[{\"role\":\"alien\",\"content\":\"a\"}]", "messages[0]");
    no_turns(as_chat, "[{\"role\":\"user\"}]", "messages[0]");
    no_turns(as_chat, "[{\"role\":\"user\",\"content\":3}]", "messages[0]");
    no_turns(as_chat,
             "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":"
             "\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]",
             "messages[1]");
    no_turns(as_chat, "[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}]",
             "messages[0]");
    no_turns(as_chat,
             "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
             "\"arguments\":\"no json\"}}]}]",
             "messages[0]");
    no_turns(as_chat,
             "[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[{\"function\":{\"name\":"
             "\"f\"}}]}]",
             "messages[0]");
}

static void test_anthropic_messages(void **state) {
    (void)state;
    same_turns(as_anthropic,
               "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{"
               "\"type\":\"text\",\"text\":\"t\"},{\"type\":\"tool_use\",\"id\":\"u1\",\"name\":"
               "\"f\",\"input\":{\"a\":2}},{\"type\":\"tool_use\",\"id\":\"u2\",\"name\":\"g\","
               "\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
               "\"tool_use_id\":\"u1\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}]},{\"type\":"
               "\"text\",\"text\":\"and\"}]}]",
               "user:q;assistant:t![{\"id\":\"u1\",\"type\":\"function\",\"function\":{\"name\":"
               "\"f\",\"arguments\":{\"a\":2}}},{\"id\":\"u2\",\"type\":\"function\",\"function\":{"
               "\"name\":\"g\",\"arguments\":{}}}];tool:r#u1;user:and;");
    no_turns(as_anthropic, "[]", "messages");
    no_turns(as_anthropic, "[{\"role\":\"system\",\"content\":\"a\"}]", "messages[0]");
    no_turns(as_anthropic, "[{\"role\":\"user\",\"content\":[]}]", "messages[0]");
    no_turns(as_anthropic, "[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]",
             "messages[0]");
    no_turns(as_anthropic, "[{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\"}]}]",
             "messages[0]");
}

static void test_response_items(void **state) {
    (void)state;
    same_turns(response_input_read, "\"hello\"", "user:hello;");
    same_turns(
        response_input_read,
        "[{\"role\":\"developer\",\"content\":\"d\"},{\"type\":\"message\",\"role\":\"user\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"q\"}]},{\"type\":\"function_call\","
        "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
        "\"function_call_output\",\"call_id\":\"c\",\"output\":\"9\"}]",
        "system:d;user:q;assistant:![{\"id\":\"c\",\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"arguments\":{}}}];tool:9#c;");
    no_turns(response_input_read, "[]", "input");
    no_turns(response_input_read, "5", "input");
    no_turns(response_input_read, "[{\"type\":\"item_reference\",\"id\":\"x\"}]", "input[0]");
    no_turns(response_input_read, "[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]",
             "input[0]");
    no_turns(response_input_read, "[{\"type\":\"function_call\",\"arguments\":\"{}\"}]",
             "input[0]");
}

/* Calls one by one, all of one turn. */
static char *list_of_calls(bool anthropic, int count, size_t argument_bytes) {
    size_t capacity = (size_t)count * (argument_bytes + 128) + 128;
    char *text = malloc(capacity), *argument = calloc(1, argument_bytes + 1);
    assert_true(text != NULL && argument != NULL);
    memset(argument, 'x', argument_bytes);
    size_t used = (size_t)snprintf(text, capacity, "%s",
                                   anthropic ? "[{\"role\":\"assistant\",\"content\":[" : "[");
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(
            text + used, capacity - used,
            "%s{\"type\":\"%s\",\"%s\":\"c%d\",\"name\":\"f\",\"%s\":{\"x\":\"%s\"}}",
            i > 0 ? "," : "", anthropic ? "tool_use" : "function_call",
            anthropic ? "id" : "call_id", i, anthropic ? "input" : "arguments", argument);
    snprintf(text + used, capacity - used, "%s", anthropic ? "]}]" : "]");
    free(argument);
    return text;
}

static void test_many_calls_in_one_turn(void **state) {
    (void)state;
    for (int anthropic = 0; anthropic < 2; anthropic++) {
        form form = anthropic ? as_anthropic : response_input_read;
        char *text = list_of_calls(anthropic, TOOL_CALLS_MAX + 1, 1);
        no_turns(form, text, anthropic ? "messages[0]" : "input[128]");
        free(text);
        /* As many as there may be, and large ones: what is kept follows from their size. */
        text = list_of_calls(anthropic, TOOL_CALLS_MAX, 4096);
        arena tree, kept;
        json_value root = {0}, calls = {0};
        api_fault fault = {0};
        assert_true(api_parse_body(text_from(text), &tree, &root, &fault));
        arena_init(&kept, NULL, SIZE_MAX);
        turn_list list = {.arena = &kept, .arguments_left = SIZE_MAX};
        assert_true(form(&root, &list, &fault));
        assert_int_equal(list.count, 1);
        assert_true(kept.used_bytes < 8 * strlen(text));
        assert_ok(json_parse(&tree, text_from(list.turns[0].calls), &calls, NULL));
        assert_int_equal(calls.array.count, TOOL_CALLS_MAX);
        for (size_t i = 0; i < calls.array.count; i++) {
            char id[24];
            snprintf(id, sizeof(id), "c%zu", i);
            assert_true(text_is(json_find(&calls.array.items[i], "id")->string, id));
        }
        arena_free(&kept);
        arena_free(&tree);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_messages),
        cmocka_unit_test(test_anthropic_messages),
        cmocka_unit_test(test_response_items),
        cmocka_unit_test(test_many_calls_in_one_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
