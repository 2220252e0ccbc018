/* The 34 chat templates of the shared data over many conversations: the text that jinja2 renders,
 * compared by hash, and its errors. Special tokens in what users wrote are never trusted. */
#include "support/template_cases.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    arena arena;
    json_value conversations; /* {chats, options, pairs: [[chat, option], …]} */
    json_value table;         /* {template: [hash or "error", one per pair]} */
    const json_value *pairs;
} fixture;

static void fixture_open(fixture *f) {
    avo_error error;
    arena_init(&f->arena, NULL, SIZE_MAX);
    assert_ok_error(json_parse(&f->arena,
                               cases_read_file(test_fixture_path("template/conversations.json")),
                               &f->conversations, &error),
                    &error);
    assert_ok_error(json_parse(&f->arena,
                               cases_read_file(test_fixture_path("template/models.json")),
                               &f->table, &error),
                    &error);
    f->pairs = json_find(&f->conversations, "pairs");
    assert_non_null(f->pairs);
}

static text_view chat_name(const fixture *f, size_t pair) {
    return json_item(json_item(f->pairs, pair), 0)->string;
}

static text_view option_name(const fixture *f, size_t pair) {
    return json_item(json_item(f->pairs, pair), 1)->string;
}

/* The chat's messages with the options beside them. */
static json_value variables_of(fixture *f, size_t pair) {
    const json_value *chat =
        json_find_text(json_find(&f->conversations, "chats"), chat_name(f, pair));
    const json_value *options =
        json_find_text(json_find(&f->conversations, "options"), option_name(f, pair));
    assert_non_null(chat);
    assert_non_null(options);
    size_t count = options->object.count + 1;
    json_member *members = arena_take_array(&f->arena, count, sizeof(*members));
    assert_non_null(members);
    members[0] = (json_member){TEXT_LITERAL("messages"), *chat};
    for (size_t i = 1; i < count; i++)
        members[i] = options->object.members[i - 1];
    return (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = count}};
}

static const char *template_path(text_view name) {
    char relative[256];
    snprintf(relative, sizeof(relative), "templates/%.*s.jinja", (int)name.size, name.data);
    return test_data_path(relative);
}

static chat_template_input input_for(const json_value *variables) {
    return (chat_template_input){.variables = variables,
                                 .begin_token = TEXT_LITERAL("<s>"),
                                 .end_token = TEXT_LITERAL("</s>"),
                                 .now = CASES_NOW};
}

/* One conversation; prints and returns false when it differs. */
static bool check_one(fixture *f, const chat_template *chat, text_view template_name, size_t pair,
                      text_view expected) {
    chat_template_output output;
    avo_error error;
    chat_template_output_init(&output, NULL);
    json_value variables = variables_of(f, pair);
    chat_template_input input = input_for(&variables);
    avo_status status = chat_template_render(chat, &input, &output, &error);
    char hash[24] = "error";
    if (status == AVO_OK)
        snprintf(hash, sizeof(hash), "%08llx",
                 (unsigned long long)(cases_hash(buffer_text(&output.text)) >> 32));
    /* Python's RecursionError is our limit. */
    bool good = text_is(expected, hash) &&
                (status == AVO_OK || status == AVO_ERROR_TEMPLATE || status == AVO_ERROR_LIMIT);
    if (!good)
        print_error("%.*s, %.*s%.*s: %s\n", TEXT_ARGUMENT(template_name),
                    TEXT_ARGUMENT(chat_name(f, pair)), TEXT_ARGUMENT(option_name(f, pair)),
                    status == AVO_OK ? "another text than jinja2's" : error.text);
    if (!good && status == AVO_OK && getenv("AVO_SHOW") != NULL)
        print_error("<<<%.*s>>>\n", (int)output.text.size, output.text.data);
    chat_template_output_free(&output);
    return good;
}

static void every_template_renders_every_conversation(void **state) {
    (void)state;
    skip_without(test_data_path("templates"), "the shared data's templates");
    fixture f;
    fixture_open(&f);
    assert_int_equal(f.table.object.count, 34);
    size_t failed = 0;
    size_t checked = 0;
    for (size_t t = 0; t < f.table.object.count; t++) {
        const json_member *row = &f.table.object.members[t];
        const char *path = template_path(row->key);
        assert_non_null(path);
        chat_template *chat;
        avo_error error;
        avo_status status = chat_template_open(cases_read_file(path), NULL, &chat, &error);
        if (status != AVO_OK)
            fail_msg("%.*s: %s", TEXT_ARGUMENT(row->key), error.text);
        assert_int_equal(row->value.array.count, f.pairs->array.count);
        for (size_t c = 0; c < f.pairs->array.count; c++) {
            failed += !check_one(&f, chat, row->key, c, json_item(&row->value, c)->string);
            checked++;
        }
        chat_template_close(chat);
    }
    print_message("%zu renderings of 34 templates compared with jinja2\n", checked);
    assert_true(checked > 1000);
    assert_int_equal(failed, 0);
    arena_free(&f.arena);
}

/* A marker stands around everything a user wrote; no byte between two may be trusted. */
static void check_taint(const chat_template_output *output, text_view name, size_t *found) {
    static const char begin_mark[] = "\xE2\x9F\xA6";
    static const char end_mark[] = "\xE2\x9F\xA7";
    text_view text = buffer_text(&output->text);
    bool inside = false;
    size_t span = 0;
    for (size_t i = 0; i < text.size; i++) {
        text_view rest = {text.data + i, text.size - i};
        if (text_starts(rest, text_from(begin_mark))) {
            inside = true;
            (*found)++;
        }
        while (span < output->trusted_count && output->trusted[span].end <= i)
            span++;
        bool trusted = span < output->trusted_count && output->trusted[span].begin <= i;
        if (inside && trusted)
            fail_msg("%.*s: byte %zu of what a user wrote is trusted: %.*s", TEXT_ARGUMENT(name), i,
                     TEXT_ARGUMENT(rest));
        if (text_starts(rest, text_from(end_mark)))
            inside = false;
    }
}

/* The chats whose texts carry the markers are those named "taint…". */
static void what_users_write_is_never_trusted(void **state) {
    (void)state;
    skip_without(test_data_path("templates"), "the shared data's templates");
    fixture f;
    fixture_open(&f);
    for (size_t t = 0; t < f.table.object.count; t++) {
        const json_member *row = &f.table.object.members[t];
        chat_template *chat;
        avo_error error;
        size_t found = 0;
        size_t trusted = 0;
        assert_ok_error(
            chat_template_open(cases_read_file(template_path(row->key)), NULL, &chat, &error),
            &error);
        for (size_t c = 0; c < f.pairs->array.count; c++) {
            if (!text_starts(chat_name(&f, c), TEXT_LITERAL("taint")))
                continue;
            json_value variables = variables_of(&f, c);
            chat_template_output output;
            chat_template_output_init(&output, NULL);
            chat_template_input input = input_for(&variables);
            if (chat_template_render(chat, &input, &output, &error) == AVO_OK) {
                check_taint(&output, row->key, &found);
                trusted += output.trusted_count;
            }
            chat_template_output_free(&output);
        }
        if (found < 3 || trusted == 0)
            fail_msg("%.*s: %zu user texts and %zu trusted spans seen", TEXT_ARGUMENT(row->key),
                     found, trusted);
        chat_template_close(chat);
    }
    arena_free(&f.arena);
}

static void fifty_messages_take_less_than_a_millisecond(void **state) {
    (void)state;
    skip_without(test_data_path("templates"), "the shared data's templates");
    fixture f;
    fixture_open(&f);
    avo_message messages[50];
    for (size_t i = 0; i < 50; i++)
        messages[i] = (avo_message){i % 2 == 0 ? "user" : "assistant",
                                    "A message of some length, as people write them in a chat: "
                                    "one or two sentences, a question, and a <tag> or so."};
    json_value variables;
    avo_error error;
    assert_ok(chat_template_messages(&f.arena, messages, 50, true, &variables, &error));
    chat_template_input input = input_for(&variables);
    double worst = 0;
    for (size_t t = 0; t < f.table.object.count; t++) {
        const json_member *row = &f.table.object.members[t];
        chat_template *chat;
        assert_ok(
            chat_template_open(cases_read_file(template_path(row->key)), NULL, &chat, &error));
        double best = 1;
        for (int round = 0; round < 5; round++) {
            chat_template_output output;
            chat_template_output_init(&output, NULL);
            uint64_t begin = clock_thread_ns();
            avo_status status = chat_template_render(chat, &input, &output, &error);
            double seconds = clock_seconds(begin, clock_thread_ns());
            (void)status; /* some templates refuse such a chat: that is measured as well */
            best = seconds < best ? seconds : best;
            chat_template_output_free(&output);
        }
        worst = best > worst ? best : worst;
        if (getenv("AVO_SHOW") != NULL)
            print_message("%8.1f us %.*s\n", best * 1e6, TEXT_ARGUMENT(row->key));
        chat_template_close(chat);
    }
    print_message("slowest template: %.0f us for 50 messages\n", worst * 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(worst < 0.02); /* of this thread's work; 1 ms is the aim */
#endif
    arena_free(&f.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template_renders_every_conversation),
        cmocka_unit_test(what_users_write_is_never_trusted),
        cmocka_unit_test(fifty_messages_take_less_than_a_millisecond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
