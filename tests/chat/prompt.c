/* chat/tools, constraint, describe and tool_grammar: what the template gets, what the answer may
 * be, and what is refused. Every allocation fails once. */
#include "support/support.h"

#include "chat/chat_int.h"
#include "chat/tool_int.h"

#include <stdio.h>
#include <string.h>

/* A request as /v1/chat/completions would have it, and what became of it. */
typedef struct desk {
    arena arena;
    chat_prompt prompt;
    chat_fault fault;
    buffer written; /* the template's variables */
} desk;

static void desk_open(desk *d, const avo_allocator *allocator) {
    memset(d, 0, sizeof(*d));
    arena_init(&d->arena, allocator, SIZE_MAX);
    buffer_init(&d->written, NULL, SIZE_MAX);
}

static void desk_close(desk *d) {
    arena_free(&d->arena);
    buffer_free(&d->written);
}

static bool read_request(desk *d, chat_dialect dialect, const chat_format *format,
                         const char *text) {
    json_value root;
    chat_turns turns = {.arena = &d->arena, .arguments_left = SIZE_MAX};
    if (json_parse(&d->arena, text_from(text), &root, NULL) != AVO_OK)
        return chat_fail_memory(&d->fault);
    chat_settings settings = {.dialect = dialect,
                              .tools = json_find(&root, "tools"),
                              .tool_choice = json_find(&root, "tool_choice"),
                              .variables = json_find(&root, "chat_template_kwargs"),
                              .parallel_calls = true};
    const json_value *grammar = json_find(&root, "grammar"), *given = json_find(&root, "messages");
    const chat_constraint_source source = {.format = json_find(&root, "response_format"),
                                           .param = "response_format",
                                           .grammar = grammar == NULL ? NULL : "root ::= \"a\""};
    if (!chat_constraint_read(&source, &d->arena, &settings.constraint, &d->fault))
        return false;
    return (given == NULL || chat_turns_read(&turns, dialect, given, &d->fault)) &&
           chat_prompt_read(format, &turns, &settings, &d->arena, &d->prompt, &d->fault);
}

#define SAID "\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"

static void renders(const char *form, chat_dialect dialect, const char *text, const char *wanted) {
    desk d;
    chat_format *format;
    desk_open(&d, NULL);
    assert_ok(chat_format_named(form, &format, NULL));
    if (!read_request(&d, dialect, format, text))
        fail_msg("%s: %s", text, d.fault.text);
    assert_ok(json_write_value(&d.written, &d.prompt.variables));
    assert_ok(buffer_terminate(&d.written));
    assert_string_equal(d.written.data, wanted);
    chat_format_close(format);
    desk_close(&d);
}

static void variables_are_what_templates_expect(void **state) {
    (void)state;
    renders("hermes", CHAT_COMPLETIONS, "{" SAID "}", "{" SAID "}");
    renders("hermes", CHAT_COMPLETIONS,
            "{" SAID ",\"chat_template_kwargs\":{\"enable_thinking\":false,\"messages\":3,"
            "\"tools\":3,\"add_generation_prompt\":3},\"tools\":[{\"function\":{\"name\":\"f\","
            "\"description\":\"d\",\"strict\":false}}]}",
            "{" SAID ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}],"
            "\"enable_thinking\":false}");
    renders("hermes", CHAT_MESSAGES,
            "{" SAID ",\"tools\":[{\"name\":\"f\",\"input_schema\":{\"x\":1},\"strict\":true}]}",
            "{" SAID ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"parameters\":{\"x\":1},\"strict\":true}}]}");
    renders("hermes", CHAT_COMPLETIONS,
            "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{"
            "\"name\":\"f\",\"arguments\":\"\"}}]},{\"role\":\"tool\",\"name\":\"f\","
            "\"tool_call_id\":\"1\",\"content\":\"r\"}]}",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\","
            "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},{\"role\":"
            "\"tool\",\"content\":\"r\",\"name\":\"f\",\"tool_call_id\":\"1\"}]}");
    /* Tools that are not to be called are not shown. */
    renders("hermes", CHAT_COMPLETIONS,
            "{" SAID ",\"tool_choice\":\"none\",\"tools\":[{\"function\":{\"name\":\"f\"}}]}",
            "{" SAID "}");
}

static void described_tools_are_text(void **state) {
    (void)state;
    renders(
        "described", CHAT_COMPLETIONS,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
        "\"content\":\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":-0.0}"
        "}},{\"function\":{\"name\":\"g\",\"arguments\":{}}}]},{\"role\":\"tool\",\"name\":\"f\","
        "\"content\":\"r\"},{\"role\":\"tool\",\"content\":\"\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
        "\"content\":\"t\\n<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
        "{\\\"a\\\":-0.0}}\\n</tool_call>\\n<tool_call>\\n{\\\"name\\\": \\\"g\\\", "
        "\\\"arguments\\\": {}}\\n</tool_call>\"},{\"role\":\"user\",\"content\":"
        "\"<tool_response>\\nr\\n</tool_response>\"},{\"role\":\"user\",\"content\":"
        "\"<tool_response>\\n</tool_response>\"}]}");
    chat_format *format;
    assert_ok(chat_format_named("described", &format, NULL));
    static const char *const systems[] = {"", "{\"role\":\"system\",\"content\":\"s\"},",
                                          "{\"role\":\"system\",\"content\":\"\"},"};
    for (size_t i = 0; i < 3; i++) {
        char text[512];
        desk d;
        desk_open(&d, NULL);
        snprintf(text, sizeof(text),
                 "{\"messages\":[%s{\"role\":\"user\",\"content\":\"q\"}],\"tools\":[{\"function\":"
                 "{\"name\":\"f\"}}]}",
                 systems[i]);
        assert_true(read_request(&d, CHAT_COMPLETIONS, format, text));
        const json_value *messages = json_find(&d.prompt.variables, "messages");
        assert_int_equal(messages->array.count, 2);
        text_view system = json_find(&messages->array.items[0], "content")->string;
        assert_true(text_starts(system, text_from(i == 1 ? "s\n\nYou can call functions."
                                                         : "You can call functions.")));
        assert_non_null(memmem(system.data, system.size, "\"name\":\"f\"", 10));
        assert_null(json_find(&d.prompt.variables, "tools"));
        assert_true(d.prompt.calls && d.prompt.tools != NULL);
        desk_close(&d);
    }
    chat_format_close(format);
}

/* What is written is what is read. */
static void described_calls_are_read_back(void **state) {
    (void)state;
    arena arena;
    chat_fault fault = {0};
    chat_turns turns = {.arena = &arena, .arguments_left = SIZE_MAX};
    json_value arguments = json_object_of(NULL, 0);
    arena_init(&arena, NULL, SIZE_MAX);
    assert_true(chat_turn_add(&turns, (chat_turn){.role = "assistant", .content = TEXT_LITERAL("")},
                              &fault));
    for (int i = 0; i < 3; i++)
        assert_true(turns_add_call(&turns, &turns.items[0], TEXT_LITERAL("1"), TEXT_LITERAL("f"),
                                   &arguments, "p", &fault));
    assert_true(turns_describe(&turns, NULL, &fault));
    chat_format *format;
    chat_parser *parser;
    chat_delta delta;
    chat_parser_options options = {.calls = true};
    assert_ok(chat_format_named("described", &format, NULL));
    assert_ok(chat_parser_open(format, &options, &parser, NULL));
    assert_ok(chat_parser_push(parser, -1, turns.items[0].content, &delta, NULL));
    assert_int_equal(delta.text.size, 0);
    assert_int_equal(chat_parser_count(parser), 3);
    chat_parser_close(parser);
    chat_format_close(format);
    arena_free(&arena);
}

static void wrong_requests_name_their_field(void **state) {
    (void)state;
    static const struct {
        const char *text, *param, *code;
    } cases[] = {
        {"{}", "messages", "invalid_value"},
        {"{" SAID ",\"chat_template_kwargs\":3}", "chat_template_kwargs", "invalid_type"},
        {"{" SAID ",\"tools\":3}", "tools", "invalid_type"},
        {"{" SAID ",\"tools\":[3]}", "tools[0]", "invalid_type"},
        {"{" SAID ",\"tools\":[{\"type\":\"web\"}]}", "tools[0]", "unsupported_parameter"},
        {"{" SAID ",\"tools\":[{\"type\":\"function\"}]}", "tools[0]", "invalid_value"},
        {"{" SAID ",\"tools\":[{\"name\":\"a b\"}]}", "tools[0]", "invalid_value"},
        {"{" SAID ",\"tools\":[{\"name\":\"a\"},{\"name\":\"b\",\"description\":1}]}", "tools[1]",
         "invalid_type"},
        {"{" SAID ",\"tools\":[{\"name\":\"a\",\"parameters\":1}]}", "tools[0]", "invalid_type"},
        {"{" SAID ",\"tools\":[{\"name\":\"a\",\"strict\":1}]}", "tools[0]", "invalid_type"},
        {"{" SAID ",\"tool_choice\":\"required\"}", "tool_choice", "invalid_value"},
        {"{" SAID ",\"tool_choice\":\"never\"}", "tool_choice", "invalid_value"},
        {"{" SAID ",\"tool_choice\":3}", "tool_choice", "invalid_type"},
        {"{" SAID ",\"tools\":[{\"name\":\"a\"}],\"tool_choice\":{\"type\":\"function\"}}",
         "tool_choice", "missing_required_parameter"},
        {"{" SAID ",\"tools\":[{\"name\":\"a\"}],\"tool_choice\":{\"type\":\"tool\",\"name\":"
         "\"b\"}}",
         "tool_choice", "invalid_value"},
        {"{" SAID ",\"tools\":[{\"name\":\"a\"}],\"tool_choice\":\"any\",\"response_format\":{"
         "\"type\":\"json_object\"}}",
         "tool_choice", "invalid_value"},
        {"{" SAID ",\"response_format\":3}", "response_format", "invalid_type"},
        {"{" SAID ",\"response_format\":{\"type\":\"xml\"}}", "response_format", "invalid_value"},
        {"{" SAID ",\"response_format\":{\"type\":\"json_schema\"}}", "response_format",
         "missing_required_parameter"},
        {"{" SAID ",\"response_format\":{\"type\":\"json_object\"},\"grammar\":\"\"}", "grammar",
         "invalid_value"},
    };
    chat_format *format;
    assert_ok(chat_format_named("hermes", &format, NULL));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        desk d;
        desk_open(&d, NULL);
        if (read_request(&d, CHAT_COMPLETIONS, format, cases[i].text))
            fail_msg("%s was taken", cases[i].text);
        assert_int_equal(d.fault.status, AVO_ERROR_ARGUMENT);
        if (strcmp(d.fault.param, cases[i].param) != 0 || strcmp(d.fault.code, cases[i].code) != 0)
            fail_msg("%s: param %s, code %s", cases[i].text, d.fault.param, d.fault.code);
        desk_close(&d);
    }
    chat_format_close(format);
}

static void constraints_follow_from_fields(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *param; /* NULL: no constraint */
        avo_grammar_kind kind;
        const char *trigger, *only;
        bool calls;
    } cases[] = {
        {"{" SAID "}", NULL, AVO_GRAMMAR_GBNF, NULL, NULL, false},
        {"{" SAID ",\"response_format\":{\"type\":\"text\"}}", NULL, AVO_GRAMMAR_GBNF, NULL, NULL,
         false},
        {"{" SAID ",\"response_format\":{\"type\":\"json_object\"}}", "response_format",
         AVO_GRAMMAR_JSON, NULL, NULL, false},
        {"{" SAID ",\"response_format\":{\"type\":\"json_object\",\"schema\":{}}}",
         "response_format", AVO_GRAMMAR_JSON_SCHEMA, NULL, NULL, false},
        {"{" SAID
         ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}}",
         "response_format", AVO_GRAMMAR_JSON_SCHEMA, NULL, NULL, false},
        {"{" SAID ",\"grammar\":\"\"}", "grammar", AVO_GRAMMAR_GBNF, NULL, NULL, false},
        {"{" SAID ",\"tools\":[{\"name\":\"f\"}]}", NULL, AVO_GRAMMAR_GBNF, NULL, NULL, true},
        {"{" SAID ",\"tools\":[{\"name\":\"f\",\"strict\":true}]}", "tools",
         AVO_GRAMMAR_JSON_SCHEMA, "<tool_call>", "<tool_call>", true},
        {"{" SAID ",\"tools\":[{\"name\":\"f\"}],\"tool_choice\":\"required\"}", "tools",
         AVO_GRAMMAR_JSON_SCHEMA, NULL, NULL, true},
        /* The format decides: there is no room for calls. */
        {"{" SAID ",\"tools\":[{\"name\":\"f\"}],\"grammar\":\"\"}", "grammar", AVO_GRAMMAR_GBNF,
         NULL, NULL, false},
    };
    chat_format *format;
    assert_ok(chat_format_named("hermes", &format, NULL));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        desk d;
        desk_open(&d, NULL);
        if (!read_request(&d, CHAT_COMPLETIONS, format, cases[i].text))
            fail_msg("%s: %s", cases[i].text, d.fault.text);
        const chat_constraint *c = &d.prompt.constraint;
        assert_int_equal(c->param != NULL, cases[i].param != NULL);
        if (c->param != NULL) {
            assert_string_equal(c->param, cases[i].param);
            assert_int_equal(c->kind, cases[i].kind);
            assert_int_equal(c->trigger != NULL, cases[i].trigger != NULL);
        }
        assert_int_equal(d.prompt.calls, cases[i].calls);
        assert_int_equal(d.prompt.only_opener != NULL, cases[i].only != NULL);
        desk_close(&d);
    }
    chat_format_close(format);
}

static void long_grammars_are_refused(void **state) {
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        arena arena;
        chat_constraint constraint;
        chat_fault fault = {0};
        arena_init(&arena, NULL, SIZE_MAX);
        char *text = arena_take(&arena, CHAT_GRAMMAR_BYTES_MAX + 2);
        memset(text, ' ', CHAT_GRAMMAR_BYTES_MAX + more);
        assert_int_equal(chat_constraint_read(&(chat_constraint_source){.grammar = text}, &arena,
                                              &constraint, &fault),
                         more == 0);
        if (more > 0)
            assert_string_equal(fault.code, "invalid_grammar");
        arena_free(&arena);
    }
}

/* A model whose template writes calls in no known form, or that has none. */
static void without_a_form_tools_are_refused(void **state) {
    (void)state;
    chat_format *format;
    desk d;
    assert_ok(chat_format_named("hermes", &format, NULL));
    format->form = NULL;
    (void)!status_fail(&format->why_not, AVO_ERROR_UNSUPPORTED, "it speaks in riddles");
    desk_open(&d, NULL);
    assert_false(
        read_request(&d, CHAT_COMPLETIONS, format, "{" SAID ",\"tools\":[{\"name\":\"f\"}]}"));
    assert_string_equal(d.fault.code, "unsupported_parameter");
    assert_non_null(strstr(d.fault.text, "riddles"));
    desk_close(&d);
    desk_open(&d, NULL);
    assert_true(read_request(&d, CHAT_COMPLETIONS, format, "{" SAID "}"));
    desk_close(&d);
    chat_format_close(format);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    static const char text[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
        "\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":\"tool\",\"content\":\"r\"}]"
        ",\"tools\":[{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"object\"}}]}";
    chat_format *format;
    assert_ok(chat_format_named("described", &format, NULL));
    for (size_t at = 1;; at++) {
        test_allocator counter;
        desk d;
        test_allocator_init(&counter);
        counter.fail_at = at;
        desk_open(&d, &counter.allocator);
        bool good = read_request(&d, CHAT_COMPLETIONS, format, text);
        if (!good)
            assert_int_equal(d.fault.status, AVO_ERROR_MEMORY);
        desk_close(&d);
        assert_int_equal(counter.live, 0);
        if (good)
            break;
    }
    chat_format_close(format);
}

/* ---- Grammars of calls ---- */

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}," \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true}}]"
#define LIKE "{\"$ref\":\"#/like\"}"

static avo_status write_grammar(const char *form, const char *tools, const char *function,
                                bool required, arena *arena, chat_constraint *grammar,
                                avo_error *error) {
    json_value value;
    chat_format *format;
    tool_choice choice = {text_from(function), required, true};
    assert_ok(json_parse(arena, text_from(tools), &value, NULL));
    assert_ok(chat_format_named(form, &format, NULL));
    avo_status status = tool_grammar_write(format, &value, &choice, arena, grammar, error);
    chat_format_close(format);
    return status;
}

static void grammars_ask_for_calls(void **state) {
    (void)state;
    static const struct {
        const char *form, *tools, *function;
        bool required;
        const char *trigger;
        const char *parts[4];
    } cases[] = {
        {"llama3",
         TOOLS,
         "f",
         true,
         NULL,
         {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"f\"},"
          "\"parameters\":{\"type\":\"object\"}},\"required\":[\"name\",\"parameters\"],"
          "\"additionalProperties\":false}]}"}},
        {"hermes", TOOLS, NULL, true, NULL, {"\"const\":\"g\""}},
        {"hermes", TOOLS, NULL, false, "<tool_call>", {"\"const\":\"g\""}},
        {"mistral",
         TOOLS,
         NULL,
         false,
         "[TOOL_CALLS]",
         {"{\"type\":\"array\",\"minItems\":1,\"items\":"}},
        {"llama3", TOOLS, NULL, false, NULL, {"\"const\":\"g\""}},
        /* References of a function's schema stay its own. */
        {"hermes",
         "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"n\":{\"$ref\":"
         "\"#/$defs/whole\"}},\"$defs\":{\"whole\":{\"type\":\"integer\"}}}}}]",
         "f",
         true,
         NULL,
         {"{\"$ref\":\"#/anyOf/0/properties/arguments/$defs/whole\"}"}},
        /* Values that look like one are none; properties named like keywords are schemas. */
        {"hermes",
         "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
         "\"properties\":{\"const\":{\"$ref\":\"#/$defs/enum\"},\"a\":{\"const\":" LIKE
         "},\"b\":{\"enum\":[[" LIKE "]],\"default\":" LIKE ",\"examples\":[" LIKE
         "]}},\"$defs\":{\"enum\":{\"anyOf\":[{\"$ref\":\"#/properties/a\"}]}}}}}]",
         "f",
         true,
         NULL,
         {"\"a\":{\"const\":" LIKE "}",
          "\"b\":{\"enum\":[[" LIKE "]],\"default\":" LIKE ",\"examples\":[" LIKE "]}",
          "\"const\":{\"$ref\":\"#/anyOf/0/properties/arguments/$defs/enum\"}",
          "\"enum\":{\"anyOf\":[{\"$ref\":\"#/anyOf/0/properties/arguments/properties/a\"}]}"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        arena arena;
        chat_constraint grammar;
        avo_error error = {0};
        arena_init(&arena, NULL, SIZE_MAX);
        assert_ok_error(write_grammar(cases[i].form, cases[i].tools, cases[i].function,
                                      cases[i].required, &arena, &grammar, &error),
                        &error);
        assert_int_equal(grammar.kind, AVO_GRAMMAR_JSON_SCHEMA);
        assert_int_equal(grammar.trigger != NULL, cases[i].trigger != NULL);
        if (grammar.trigger != NULL)
            assert_string_equal(grammar.trigger, cases[i].trigger);
        assert_int_equal(grammar.json_or_text, !cases[i].required && grammar.trigger == NULL);
        for (size_t n = 0; n < 4 && cases[i].parts[n] != NULL; n++)
            if (strstr(grammar.text, cases[i].parts[n]) == NULL)
                fail_msg("%s has no %s", grammar.text, cases[i].parts[n]);
        arena_free(&arena);
    }
}

static void what_cannot_be_a_grammar(void **state) {
    (void)state;
    arena arena;
    chat_constraint grammar;
    avo_error error = {0};
    arena_init(&arena, NULL, SIZE_MAX);
    assert_refused(write_grammar("hermes", TOOLS, "h", true, &arena, &grammar, &error),
                   AVO_ERROR_ARGUMENT, &error, "no tool is named h");
    assert_refused(write_grammar("hermes", "[]", NULL, true, &arena, &grammar, &error),
                   AVO_ERROR_ARGUMENT, &error, "there are no tools");
    assert_refused(write_grammar("mistral", "[{\"function\":{\"name\":\"f\"}}]", NULL, false,
                                 &arena, &grammar, &error),
                   AVO_ERROR_UNSUPPORTED, &error, "not constrained");
    arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(variables_are_what_templates_expect),
                                       cmocka_unit_test(described_tools_are_text),
                                       cmocka_unit_test(described_calls_are_read_back),
                                       cmocka_unit_test(wrong_requests_name_their_field),
                                       cmocka_unit_test(constraints_follow_from_fields),
                                       cmocka_unit_test(long_grammars_are_refused),
                                       cmocka_unit_test(without_a_form_tools_are_refused),
                                       cmocka_unit_test(every_allocation_fails_once),
                                       cmocka_unit_test(grammars_ask_for_calls),
                                       cmocka_unit_test(what_cannot_be_a_grammar)};
    return cmocka_run_group_tests_name("chat/prompt", tests, NULL, NULL);
}
