/* The input line and conversations on disk. */
#include "support/support.h"

#include "tui/conversation.h"
#include "tui/editor.h"
#include "tui/glyphs.h"

#include <stdio.h>
#include <string.h>

static void expect(const editor *editor, const char *text, size_t cursor) {
    assert_true(text_equal(buffer_text(&editor->text), text_from(text)));
    assert_int_equal(editor->cursor, cursor);
}

static void editing(void **state) {
    (void)state;
    editor editor;
    editor_init(&editor);
    assert_true(editor_insert(&editor, text_from("hello wörld 👩‍👩‍👧")));
    editor_delete(&editor, EDITOR_LEFT);
    expect(&editor, "hello wörld ", 13);
    editor_go(&editor, EDITOR_WORD_LEFT);
    expect(&editor, "hello wörld ", 6);
    editor_delete(&editor, EDITOR_LINE_BEGIN);
    expect(&editor, "wörld ", 0);
    assert_true(editor_put_back(&editor));
    expect(&editor, "hello wörld ", 6);
    editor_go(&editor, EDITOR_RIGHT);
    editor_go(&editor, EDITOR_RIGHT);
    expect(&editor, "hello wörld ", 9);
    editor_delete(&editor, EDITOR_LINE_END);
    expect(&editor, "hello wö", 9);
    editor_delete(&editor, EDITOR_RIGHT);
    expect(&editor, "hello wö", 9);
    editor_free(&editor);
}

static void lines_and_history(void **state) {
    (void)state;
    editor editor;
    buffer taken;
    editor_init(&editor);
    buffer_init(&taken, NULL, SIZE_MAX);
    const char *const sent[] = {"first", "second\nline", "second\nline"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(editor_insert(&editor, text_from(sent[i])));
        assert_true(editor_take(&editor, &taken));
        assert_string_equal(taken.data, sent[i]);
    }
    assert_int_equal(editor.history_count, 2); /* not twice in a row */
    assert_true(editor_insert(&editor, text_from("draft")));
    editor_go(&editor, EDITOR_UP);
    expect(&editor, "second\nline", 11);
    editor_go(&editor, EDITOR_UP); /* within the text first */
    expect(&editor, "second\nline", 4);
    editor_go(&editor, EDITOR_UP);
    expect(&editor, "first", 5);
    editor_go(&editor, EDITOR_UP);
    expect(&editor, "first", 5);
    editor_go(&editor, EDITOR_DOWN);
    expect(&editor, "second\nline", 11);
    editor_go(&editor, EDITOR_DOWN);
    expect(&editor, "draft", 5);
    for (size_t i = 0; i < 2 * EDITOR_HISTORY_MAX; i++) {
        char text[32];
        snprintf(text, sizeof(text), "number %zu", i);
        assert_true(editor_set(&editor, text_from(text)));
        assert_true(editor_take(&editor, &taken));
    }
    assert_int_equal(editor.history_count, EDITOR_HISTORY_MAX);
    buffer_free(&taken);
    editor_free(&editor);
}

static void say(conversation *conversation, speaker speaker, const char *text) {
    message *message = conversation_add(conversation, speaker);
    assert_non_null(message);
    assert_ok(message_append(message, text_from(text)));
}

static void saved_and_loaded(void **state) {
    (void)state;
    char path[512];
    avo_error error = {0};
    conversation said, read;
    snprintf(path, sizeof(path), "%s/conversation.json", test_scratch_folder());
    conversation_init(&said);
    conversation_init(&read);
    assert_ok(conversation_set_system(&said, text_from("Be \"brief\".")));
    say(&said, SPEAKER_USER, "Hello\n\"there\" é");
    say(&said, SPEAKER_NOTE, "only for the reader");
    say(&said, SPEAKER_ASSISTANT, "Hi.");
    assert_ok_error(conversation_save(&said, path, "tiny", &error), &error);
    assert_ok_error(conversation_load(&read, path, &error), &error);
    assert_int_equal(read.count, 2);
    assert_string_equal(read.system.data, "Be \"brief\".");
    assert_string_equal(read.messages[0].text.data, "Hello\n\"there\" é");
    /* What is wrong is said, and nothing is lost. */
    const char *const broken[][2] = {
        {"", "json"},
        {"{}", "messages"},
        {"{\"messages\":[1]}", "messages[0]"},
        {"{\"messages\":[{\"role\":\"alien\"}]}", "alien"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":1}]}", "a string or a list of parts"}};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(broken[i][0], file);
        fclose(file);
        assert_int_not_equal(conversation_load(&read, path, &error), AVO_OK);
        if (strstr(error.text, broken[i][1]) == NULL)
            fail_msg("%s: %s", broken[i][0], error.text);
        assert_int_equal(read.count, 2);
    }
    remove(path);
    assert_int_not_equal(conversation_load(&read, path, &error), AVO_OK);
    assert_int_not_equal(conversation_save(&said, "/proc/nowhere/x.json", "m", &error), AVO_OK);
    conversation_free(&said);
    conversation_free(&read);
}

int main(void) {
    if (!glyphs_locale()) {
        print_message("skipped: no UTF-8 locale\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(editing),
                                       cmocka_unit_test(lines_and_history),
                                       cmocka_unit_test(saved_and_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
