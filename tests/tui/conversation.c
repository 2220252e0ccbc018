/* tui/conversation: files of other programs, with tool calls and content in parts; what the model
 * gets of them; saving and loading again. */
#include "support/support.h"

#include "base/file.h"
#include "base/value.h"
#include "tui/conversation.h"

#include <stdio.h>
#include <string.h>

static const char *write_file(const char *text) {
    static char path[512];
    avo_error error = {0};
    snprintf(path, sizeof(path), "%s/talk.json", test_scratch_folder());
    assert_ok_error(file_write(path, text, strlen(text), &error), &error);
    return path;
}

static void assert_variables(const conversation *said, const char *form, const char *wanted) {
    chat_format *format;
    avo_value *value;
    avo_error error = {0};
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(chat_format_named(form, &format, NULL));
    assert_ok_error(conversation_variables(said, format, &value, &error), &error);
    assert_ok(json_write_value(&out, value_tree(value)));
    assert_ok(buffer_terminate(&out));
    assert_string_equal(out.data, wanted);
    avo_value_close(value);
    chat_format_close(format);
    buffer_free(&out);
}

#define CALLS                                                                                      \
    "[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"n\":7}}}]"
#define TALK                                                                                       \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"       \
    "\"ab\"},{"                                                                                    \
    "\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":" CALLS                                \
    "},{\"role\":\"tool\",\"content\":"                                                            \
    "\"r\",\"tool_call_id\":\"1\"},{\"role\":\"user\",\"content\":\"q\"}]}"

static void tool_calls_are_kept(void **state) {
    (void)state;
    conversation said;
    avo_error error = {0};
    conversation_init(&said);
    const char *path = write_file(
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{"
        "\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":"
        "\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{\\\"n\\\": "
        "7}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":"
        "\"r\"}]}");
    assert_ok_error(conversation_load(&said, path, &error), &error);
    assert_string_equal(said.system.data, "s");
    assert_int_equal(said.count, 4); /* with a note about the call */
    assert_int_equal(said.messages[2].speaker, SPEAKER_NOTE);
    assert_string_equal(said.messages[2].text.data, "Calls f {\"n\":7}");
    assert_int_equal(said.messages[3].speaker, SPEAKER_TOOL);
    message *question = conversation_add(&said, SPEAKER_USER);
    assert_ok(message_append(question, text_from("q")));
    assert_variables(&said, "hermes", TALK);
    /* Where the template knows no tools, calls and results are text. */
    assert_variables(
        &said, "described",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
        "\"content\":\"ab\"},{\"role\":\"assistant\",\"content\":\"<tool_call>\\n{"
        "\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"n\\\":7}}\\n</tool_call>\"},{"
        "\"role\":\"user\",\"content\":\"<tool_response>\\nr\\n</tool_response>\"},{"
        "\"role\":\"user\",\"content\":\"q\"}]}");
    char saved[512];
    snprintf(saved, sizeof(saved), "%s/saved.json", test_scratch_folder());
    assert_ok_error(conversation_save(&said, saved, "m", &error), &error);
    assert_ok_error(conversation_load(&said, saved, &error), &error);
    assert_variables(&said, "hermes", TALK);
    conversation_free(&said);
}

static void what_is_wrong_changes_nothing(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"{", "line 1"},
        {"{}", "talk.json: has no array"},
        {"{\"messages\":[3]}", "messages[0]"},
        {"{\"messages\":[{\"role\":\"poet\",\"content\":\"x\"}]}", "poet"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":"
         "\"y\"}]}",
         "messages[1]: only the first"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000\"}]}", "zero byte"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}", "image"}};
    conversation said;
    avo_error error = {0};
    conversation_init(&said);
    assert_ok(message_append(conversation_add(&said, SPEAKER_USER), text_from("kept")));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_refused(conversation_load(&said, write_file(wrong[i][0]), &error), AVO_ERROR_FORMAT,
                       &error, wrong[i][1]);
        assert_int_equal(said.count, 1);
        assert_string_equal(said.messages[0].text.data, "kept");
    }
    assert_ok_error(conversation_load(&said, write_file("{\"messages\":[]}"), &error), &error);
    assert_int_equal(said.count, 0);
    conversation_free(&said);
}

/* Neighbours of one kind are one span, and tokens without text are none. */
static void spans_say_what_was_drafted(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool drafted;
    } tokens[] = {{"a", false}, {"b", false}, {"", true},    {"c", true},
                  {"", false},  {"d", true},  {"ef", false}, {"g", true}};
    static const message_span wanted[] = {{2, false}, {4, true}, {6, false}, {7, true}};
    conversation said;
    conversation_init(&said);
    message *message = conversation_add(&said, SPEAKER_ASSISTANT);
    assert_int_equal(message_span_count(message), 0);
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        assert_ok(message_append_tokens(message, text_from(tokens[i].text), tokens[i].drafted));
    assert_string_equal(message->text.data, "abcdefg");
    assert_int_equal(message_span_count(message), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(message_span_at(message, i)->end, wanted[i].end);
        assert_int_equal(message_span_at(message, i)->drafted, wanted[i].drafted);
    }
    conversation_free(&said);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tool_calls_are_kept),
                                       cmocka_unit_test(spans_say_what_was_drafted),
                                       cmocka_unit_test(what_is_wrong_changes_nothing)};
    return cmocka_run_group_tests_name("tui/conversation", tests, NULL, NULL);
}
