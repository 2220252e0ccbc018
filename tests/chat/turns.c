/* Conversations in the three forms that clients write them, as the turns that templates get. */
#include "support/support.h"

#include "chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The turns as the template gets them; NULL: refused. */
static const char *turns_of(chat_dialect dialect, const char *text, chat_fault *fault) {
    static char out[4096];
    arena arena;
    json_value root;
    *fault = (chat_fault){0};
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok(json_parse(&arena, text_from(text), &root, NULL));
    chat_turns turns = {.arena = &arena, .arguments_left = SIZE_MAX};
    bool read = chat_turns_read(&turns, dialect, &root, fault);
    out[0] = '\0';
    for (size_t i = 0; read && i < turns.count; i++) {
        const chat_turn *turn = &turns.items[i];
        json_value calls = {.kind = JSON_ARRAY, .array = {turn->calls, turn->call_count}};
        buffer written;
        buffer_init(&written, NULL, SIZE_MAX);
        assert_ok(turn->call_count == 0 ? AVO_OK : json_write_value(&written, &calls));
        snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s:%.*s%s%.*s%s%.*s;", turn->role,
                 TEXT_ARGUMENT(turn->content), turn->call_count == 0 ? "" : "!", (int)written.size,
                 buffer_text(&written).data, turn->call_id.data == NULL ? "" : "#",
                 TEXT_ARGUMENT(turn->call_id));
        buffer_free(&written);
    }
    arena_free(&arena);
    return read ? out : NULL;
}

static void same_turns(chat_dialect dialect, const char *text, const char *wanted) {
    chat_fault fault;
    const char *got = turns_of(dialect, text, &fault);
    if (got == NULL)
        fail_msg("%s: %s", text, fault.text);
    assert_string_equal(got, wanted);
}

static void no_turns(chat_dialect dialect, const char *text, const char *param) {
    chat_fault fault;
    if (turns_of(dialect, text, &fault) != NULL)
        fail_msg("%s was taken", text);
    assert_int_equal(fault.status, AVO_ERROR_ARGUMENT);
    assert_string_equal(fault.param, param);
    assert_non_null(fault.code);
}

static void test_chat_messages(void **state) {
    (void)state;
    same_turns(CHAT_COMPLETIONS,
               "[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{"
               "\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]",
               "system:s;user:ab;");
    same_turns(CHAT_COMPLETIONS,
               "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"
               "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},{"
               "\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"7\"}]",
               "assistant:![{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
               "\"arguments\":{\"x\":1}}}];tool:7#c1;");
    no_turns(CHAT_COMPLETIONS, "[]", "messages");
    no_turns(CHAT_COMPLETIONS, "{}", "messages");
    no_turns(CHAT_COMPLETIONS, "[3]", "messages[0]");
    no_turns(CHAT_COMPLETIONS, "[{\"content\":\"a\"}]", "messages[0]");
    no_turns(CHAT_COMPLETIONS, "[{\"role\":\"alien\",\"content\":\"a\"}]", "messages[0]");
    no_turns(CHAT_COMPLETIONS, "[{\"role\":\"user\"}]", "messages[0]");
    no_turns(CHAT_COMPLETIONS, "[{\"role\":\"user\",\"content\":3}]", "messages[0]");
    no_turns(CHAT_COMPLETIONS,
             "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":"
             "\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]",
             "messages[1]");
    no_turns(CHAT_COMPLETIONS, "[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}]",
             "messages[0]");
    no_turns(CHAT_COMPLETIONS,
             "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
             "\"arguments\":\"no json\"}}]}]",
             "messages[0]");
    no_turns(CHAT_COMPLETIONS,
             "[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[{\"function\":{\"name\":"
             "\"f\"}}]}]",
             "messages[0]");
}

static void test_anthropic_messages(void **state) {
    (void)state;
    same_turns(CHAT_MESSAGES,
               "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{"
               "\"type\":\"text\",\"text\":\"t\"},{\"type\":\"tool_use\",\"id\":\"u1\",\"name\":"
               "\"f\",\"input\":{\"a\":2}},{\"type\":\"tool_use\",\"id\":\"u2\",\"name\":\"g\","
               "\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
               "\"tool_use_id\":\"u1\",\"content\":[{\"type\":\"text\",\"text\":\"r\"}]},{\"type\":"
               "\"text\",\"text\":\"and\"}]}]",
               "user:q;assistant:t![{\"id\":\"u1\",\"type\":\"function\",\"function\":{\"name\":"
               "\"f\",\"arguments\":{\"a\":2}}},{\"id\":\"u2\",\"type\":\"function\",\"function\":{"
               "\"name\":\"g\",\"arguments\":{}}}];tool:r#u1;user:and;");
    no_turns(CHAT_MESSAGES, "[]", "messages");
    no_turns(CHAT_MESSAGES, "[{\"role\":\"system\",\"content\":\"a\"}]", "messages[0]");
    no_turns(CHAT_MESSAGES, "[{\"role\":\"user\",\"content\":[]}]", "messages[0]");
    no_turns(CHAT_MESSAGES, "[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]",
             "messages[0]");
    no_turns(CHAT_MESSAGES, "[{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\"}]}]",
             "messages[0]");
}

static void test_response_items(void **state) {
    (void)state;
    same_turns(CHAT_RESPONSES, "\"hello\"", "user:hello;");
    same_turns(
        CHAT_RESPONSES,
        "[{\"role\":\"developer\",\"content\":\"d\"},{\"type\":\"message\",\"role\":\"user\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"q\"}]},{\"type\":\"function_call\","
        "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
        "\"function_call_output\",\"call_id\":\"c\",\"output\":\"9\"}]",
        "system:d;user:q;assistant:![{\"id\":\"c\",\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"arguments\":{}}}];tool:9#c;");
    no_turns(CHAT_RESPONSES, "[]", "input");
    no_turns(CHAT_RESPONSES, "5", "input");
    no_turns(CHAT_RESPONSES, "[{\"type\":\"item_reference\",\"id\":\"x\"}]", "input[0]");
    no_turns(CHAT_RESPONSES, "[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]",
             "input[0]");
    no_turns(CHAT_RESPONSES, "[{\"type\":\"function_call\",\"arguments\":\"{}\"}]", "input[0]");
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
        chat_dialect dialect = anthropic ? CHAT_MESSAGES : CHAT_RESPONSES;
        char *text = list_of_calls(anthropic, CHAT_CALLS_MAX + 1, 1);
        no_turns(dialect, text, anthropic ? "messages[0]" : "input[128]");
        free(text);
        /* As many as there may be, and large ones: what is kept follows from their size. */
        text = list_of_calls(anthropic, CHAT_CALLS_MAX, 4096);
        arena tree, kept;
        json_value root;
        chat_fault fault = {0};
        arena_init(&tree, NULL, SIZE_MAX);
        arena_init(&kept, NULL, SIZE_MAX);
        assert_ok(json_parse(&tree, text_from(text), &root, NULL));
        chat_turns turns = {.arena = &kept, .arguments_left = SIZE_MAX};
        assert_true(chat_turns_read(&turns, dialect, &root, &fault));
        assert_int_equal(turns.count, 1);
        assert_true(kept.used_bytes < strlen(text));
        assert_int_equal(turns.items[0].call_count, CHAT_CALLS_MAX);
        for (size_t i = 0; i < CHAT_CALLS_MAX; i++) {
            char id[24];
            snprintf(id, sizeof(id), "c%zu", i);
            assert_true(text_is(json_find(&turns.items[0].calls[i], "id")->string, id));
        }
        arena_free(&kept);
        arena_free(&tree);
        free(text);
    }
}

/* Arguments that come as text are parsed only as far as a context could hold them. */
static void test_long_arguments(void **state) {
    (void)state;
    static const char text[] = "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
                               "\"f\",\"arguments\":\"{\\\"x\\\":123}\"}}]}]";
    for (size_t most = 8; most < 10; most++) {
        arena arena;
        json_value root;
        chat_fault fault = {0};
        arena_init(&arena, NULL, SIZE_MAX);
        assert_ok(json_parse(&arena, text_from(text), &root, NULL));
        chat_turns turns = {.arena = &arena, .arguments_left = most};
        assert_int_equal(chat_turns_read(&turns, CHAT_COMPLETIONS, &root, &fault), most == 9);
        if (most == 8)
            assert_string_equal(fault.code, "context_length_exceeded");
        arena_free(&arena);
    }
}

static void test_roles(void **state) {
    (void)state;
    static const struct {
        const char *text, *role; /* NULL: refused */
    } cases[] = {{"[{\"role\":\"developer\",\"content\":\"a\"}]", "system"},
                 {"[{\"role\":\"tool\",\"content\":\"a\"}]", "tool"},
                 {"[{\"role\":\"usr\",\"content\":\"a\"}]", NULL},
                 {"[{\"role\":\"User\",\"content\":\"a\"}]", NULL},
                 {"[{\"role\":\"\",\"content\":\"a\"}]", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        arena arena;
        json_value root;
        chat_fault fault = {0};
        arena_init(&arena, NULL, SIZE_MAX);
        assert_ok(json_parse(&arena, text_from(cases[i].text), &root, NULL));
        chat_turns turns = {.arena = &arena};
        assert_int_equal(chat_turns_read(&turns, CHAT_COMPLETIONS, &root, &fault),
                         cases[i].role != NULL);
        if (cases[i].role != NULL)
            assert_string_equal(turns.items[0].role, cases[i].role);
        else
            assert_non_null(strstr(fault.text, "must be system, developer, user, assistant or"));
        arena_free(&arena);
    }
}

static void test_too_many_turns(void **state) {
    (void)state;
    arena arena;
    chat_fault fault = {0};
    arena_init(&arena, NULL, SIZE_MAX);
    chat_turns turns = {.arena = &arena};
    for (size_t i = 0; i < CHAT_TURNS_MAX; i++)
        assert_true(chat_turn_add(&turns, (chat_turn){.role = "user"}, &fault));
    assert_false(chat_turn_add(&turns, (chat_turn){.role = "user"}, &fault));
    assert_string_equal(fault.param, "messages");
    arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_messages),  cmocka_unit_test(test_anthropic_messages),
        cmocka_unit_test(test_response_items), cmocka_unit_test(test_many_calls_in_one_turn),
        cmocka_unit_test(test_long_arguments), cmocka_unit_test(test_too_many_turns),
        cmocka_unit_test(test_roles),
    };
    return cmocka_run_group_tests_name("chat/turns", tests, NULL, NULL);
}
