/* What the template engine refuses, and where it says so; its limits; which bytes it trusts; and
 * that memory that runs out at any point is an error and nothing more. */
#include "support/template_cases.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static avo_status render_json(const char *source, const char *variables, test_allocator *allocator,
                              uint64_t steps_max, chat_template_output *output, avo_error *error) {
    const avo_allocator *use = allocator == NULL ? NULL : &allocator->allocator;
    arena arena;
    json_value root;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok(json_parse(&arena, text_from(variables), &root, error));
    chat_template *chat = NULL;
    chat_template_output_init(output, use);
    chat_template_input input = {.variables = &root,
                                 .begin_token = TEXT_LITERAL("<s>"),
                                 .now = CASES_NOW,
                                 .steps_max = steps_max};
    avo_status status = chat_template_open(text_from(source), use, &chat, error);
    if (status == AVO_OK)
        status = chat_template_render(chat, &input, output, error);
    chat_template_close(chat);
    arena_free(&arena);
    return status;
}

static void refuses(const char *source, avo_status wanted, const char *part) {
    chat_template_output output;
    avo_error error = {0};
    avo_status status = render_json(source, "{\"x\": 1, \"l\": [1]}", NULL, 0, &output, &error);
    if (status != wanted || strstr(error.text, part) == NULL)
        fail_msg("%.60s: expected \"%s\", got %s: %s", source, part, avo_status_text(status),
                 error.text);
    assert_int_equal(output.text.size, 0);
    chat_template_output_free(&output);
}

/* Of what is printed only: an undefined value may be tested, and has a default. */
static void strict_templates_print_nothing_undefined(void **state) {
    (void)state;
    static const struct {
        const char *source, *text, *part; /* the text, or what the error says */
    } cases[] = {{"{{ x }}", "1", NULL},
                 {"{{ y }}", NULL, "'y' is undefined"},
                 {"{{ 'a' ~ y }}", NULL, "'y' is undefined"},
                 {"{{ x.y }}", NULL, "has no 'y'"},
                 {"{{ y if y is defined else x }}", "1", NULL},
                 {"{{ y | default('z') }}", "z", NULL}};
    json_member member = {TEXT_LITERAL("x"), {.kind = JSON_INTEGER, .integer = 1}};
    json_value root = {.kind = JSON_OBJECT, .object = {.members = &member, .count = 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        chat_template *chat = NULL;
        chat_template_output output;
        avo_error error = {0};
        chat_template_output_init(&output, NULL);
        assert_ok(chat_template_open(text_from(cases[i].source), NULL, &chat, &error));
        chat_template_input input = {.variables = &root, .now = CASES_NOW, .strict = true};
        avo_status status = chat_template_render(chat, &input, &output, &error);
        if (cases[i].text != NULL)
            assert_true(status == AVO_OK && text_is(buffer_text(&output.text), cases[i].text));
        else
            assert_refused(status, AVO_ERROR_TEMPLATE, &error, cases[i].part);
        input.strict = false;
        assert_ok(chat_template_render(chat, &input, &output, &error));
        chat_template_output_free(&output);
        chat_template_close(chat);
    }
}

static void errors_name_line_and_column(void **state) {
    (void)state;
    refuses("a\nb {{ 1 + 'x' }}", AVO_ERROR_TEMPLATE, "line 2, column 8");
    refuses("{% frob %}", AVO_ERROR_TEMPLATE, "line 1, column 4: unknown tag 'frob'");
    refuses("\n\n  {% include 'x' %}", AVO_ERROR_TEMPLATE,
            "line 3, column 6: {% include %} is not");
    refuses("é{{ 'x'|frob }}", AVO_ERROR_TEMPLATE, "line 1, column 9: no filter named 'frob'");
    refuses("{{ x|urlize }}", AVO_ERROR_TEMPLATE, "the filter 'urlize' is not supported");
    refuses("{{ x is frob }}", AVO_ERROR_TEMPLATE, "no test named 'frob'");
    refuses("{{ cycler(1) }}", AVO_ERROR_TEMPLATE, "column 10: cycler is not supported");
    refuses("{{ joiner() }}", AVO_ERROR_TEMPLATE, "joiner is not supported");
    refuses("{{ lipsum() }}", AVO_ERROR_TEMPLATE, "lipsum is not supported");
    refuses("{% for a in l %}", AVO_ERROR_TEMPLATE, "{% endfor %} is missing");
    refuses("{{ nothing.more }}", AVO_ERROR_TEMPLATE, "'nothing' is undefined");
    refuses("{{ l.append(2) }}", AVO_ERROR_TEMPLATE, "the sandbox allows no method");
    refuses("{{ 'abc'.encode() }}", AVO_ERROR_TEMPLATE, "'encode' of str is not supported");
    refuses("{{ 9223372036854775808 }}", AVO_ERROR_TEMPLATE, "more than 64 bits");
    refuses("{{ 9223372036854775807 + 1 }}", AVO_ERROR_TEMPLATE, "more than 64 bits");
    refuses("{{ 3 ** 99 }}", AVO_ERROR_TEMPLATE, "more than 64 bits");
    refuses("{{ l|map('abs') }}", AVO_ERROR_TEMPLATE, "generator cannot be printed");
    refuses("{{ '\xFF' }}", AVO_ERROR_TEMPLATE, "invalid UTF-8");
    refuses("{{ strftime_now('%Q') }}", AVO_ERROR_TEMPLATE, "directive %Q");
    refuses("{{ range(100001) }}", AVO_ERROR_TEMPLATE, "more than 100000 items");
    refuses("\n{{ raise_exception('Only user and tool: ' + 'x') }}", AVO_ERROR_TEMPLATE,
            "line 2, column 19: Only user and tool: x");
}

/* "open" `depth` times, then "middle", then "close" as often. */
static char *nested(const char *open, const char *middle, const char *close, size_t depth) {
    size_t size = depth * (strlen(open) + strlen(close)) + strlen(middle) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    char *at = text;
    for (size_t i = 0; i < depth; i++)
        at += snprintf(at, size - (size_t)(at - text), "%s", open);
    at += snprintf(at, size - (size_t)(at - text), "%s", middle);
    for (size_t i = 0; i < depth; i++)
        at += snprintf(at, size - (size_t)(at - text), "%s", close);
    return text;
}

static void depth_is_limited(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"{{ (", "1", ") }}"},
        {"{% if x %}", "", "{% endif %}"},
        {"{% for i in l %}", "", "{% endfor %}"},
        {"{{ not ", "x", "}}"},
        {"{{ -", "x", "}}"},
        {"{{ [", "x", "] }}"},
        {"{{ {1:", "x", "} }}"},
        {"{{ x[", "x", "] }}"},
        {"{{ f(", "x", ") }}"},
        {"{% set a %}", "x", "{% endset %}"},
        {"{% macro m() %}", "x", "{% endmacro %}"},
        {"{{ 1 if x else ", "x", "}}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        bool expression = cases[i][0][1] == '{';
        char *text = nested(expression ? cases[i][0] + 3 : cases[i][0], cases[i][1],
                            expression ? "" : cases[i][2], 20000);
        char *whole = nested(expression ? "{{ " : "", text, "", 1);
        refuses(whole, AVO_ERROR_LIMIT, "deep");
        free(text);
        free(whole);
    }
    /* Long is not deep. */
    char *sum = nested("x + ", "x", "", 50000);
    char *source = nested("{{ ", sum, " }}", 1);
    chat_template_output output;
    avo_error error;
    assert_ok_error(render_json(source, "{\"x\": 1}", NULL, 0, &output, &error), &error);
    assert_true(text_is(buffer_text(&output.text), "50001"));
    chat_template_output_free(&output);
    free(sum);
    free(source);
    char *branches = nested("{% elif no %}a", "{% else %}b{% endif %}", "", 20000);
    source = nested("{% if no %}", branches, "", 1);
    assert_ok_error(render_json(source, "{}", NULL, 0, &output, &error), &error);
    assert_true(text_is(buffer_text(&output.text), "b"));
    chat_template_output_free(&output);
    free(branches);
    free(source);
}

static void filters_pile_up_only_so_high(void **state) {
    (void)state;
    /* A hundred parentheses, each with as many filters as still fit: as deep as a tree can be. */
    size_t capacity = (size_t)1 << 20;
    char *text = malloc(capacity);
    assert_non_null(text);
    size_t size = 0;
    for (int i = 0; i < 95; i++)
        text[size++] = '(';
    text[size++] = 'x';
    for (int i = 0; i < 95; i++) {
        text[size++] = ')';
        for (int j = 0; j < i; j++)
            size += (size_t)snprintf(text + size, capacity - size, "|abs");
    }
    text[size] = '\0';
    char *source = nested("{{ ", text, " }}", 1);
    chat_template_output output;
    avo_error error = {0};
    avo_status status = render_json(source, "{\"x\": 1}", NULL, 0, &output, &error);
    assert_int_equal(status, AVO_ERROR_LIMIT);
    chat_template_output_free(&output);
    free(text);
    free(source);
}

/* Templates that ask for more than they may have. */
static const char *const hungry[] = {
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 1000 }}{% endfor %}{% "
    "endfor %}",
    "{{ 'x' * 99999999999 }}",
    "{{ 'x' * 70000000 }}",
    "{{ ([1] * 99999999999)|length }}",
    "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s "
    "+ "
    "ns.s %}{% endfor %}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
    "endfor %}",
    "{% set ns = namespace(s=[]) %}{% for i in range(999) %}{% set ns.s = [ns.s] %}{% endfor "
    "%}{{ ns.s }}",
    "{% set ns = namespace(s=[]) %}{% for i in range(999) %}{% set ns.s = [ns.s] %}{% endfor "
    "%}{{ ns.s|tojson }}",
    "{% set ns = namespace(s=[], t=[]) %}{% for i in range(999) %}{% set ns.s = [ns.s] %}{% "
    "set "
    "ns.t = [ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = ns.s|map('abs') "
    "%}{% "
    "endfor %}{{ ns.s|list }}",
    "{{ 'x'.center(999999999999) }}",
    "{{ '%999999999d' % 5 }}",
    "{{ '{:999999999}'.format(5) }}",
    "{{ [1]|batch(99999999999, 1)|list }}",
    "{{ 'x'|indent(99999999999) }}",
    "{{ [1]|tojson(indent=99999999999) }}",
    "{{ ('a' * 1000000)|replace('a', 'a' * 1000) }}",
    "{{ ('a' * 1000000)|replace('', 'a' * 1000) }}",
    "{{ ('a' * 9000000)|list|sort|length }}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% set s = 'é' * 9000000 %}{% for i in range(99999) %}{{ s[8000000] }}{% endfor %}",
    "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s.count('a') }}{% endfor %}",
    "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s.upper()|length }}{% endfor %}",
    "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s.rfind('ab') }}{% endfor %}",
};

static void work_and_memory_are_limited(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(hungry) / sizeof(*hungry); i++) {
        uint64_t begin = clock_now_ns();
        test_allocator allocator;
        test_allocator_init(&allocator);
        chat_template_output output;
        avo_error error = {0};
        avo_status status = render_json(hungry[i], "{}", &allocator, 0, &output, &error);
        chat_template_output_free(&output);
        double seconds = clock_seconds(begin, clock_now_ns());
        if (status != AVO_ERROR_LIMIT || strstr(error.text, "line") == NULL)
            fail_msg("%s: %s: %s", hungry[i], avo_status_text(status), error.text);
        if (allocator.peak_bytes > TEMPLATE_MEMORY_MAX + TEMPLATE_OUTPUT_MAX + 1000000)
            fail_msg("%s: took %zu bytes", hungry[i], allocator.peak_bytes);
        assert_int_equal(allocator.live, 0);
        if (getenv("AVO_SHOW") != NULL)
            print_message("%6.3f s %4zu MB %s: %s\n", seconds, allocator.peak_bytes >> 20,
                          hungry[i], error.text);
    }
    char *large = malloc(TEMPLATE_SOURCE_MAX + 2);
    assert_non_null(large);
    memset(large, 'x', TEMPLATE_SOURCE_MAX + 1);
    large[TEMPLATE_SOURCE_MAX + 1] = '\0';
    chat_template_output output;
    avo_error error = {0};
    assert_int_equal(render_json(large, "{}", NULL, 0, &output, &error), AVO_ERROR_LIMIT);
    chat_template_output_free(&output);
    free(large);
    assert_int_equal(
        render_json("{% for i in range(99) %}{{ i }}{% endfor %}", "{}", NULL, 50, &output, &error),
        AVO_ERROR_LIMIT);
    chat_template_output_free(&output);
}

/* A string that grows at its end a piece at a time takes memory in proportion, not squared. */
static void growing_strings_are_linear(void **state) {
    (void)state;
    test_allocator allocator;
    test_allocator_init(&allocator);
    chat_template_output output;
    avo_error error;
    assert_ok_error(
        render_json("{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s + "
                    "x + '<|end|>' %}{% endfor %}{{ ns.s }}",
                    "{\"x\": \"some text of a user, again and again and again\"}", &allocator, 0,
                    &output, &error),
        &error);
    assert_int_equal(output.text.size, 20000 * 53);
    assert_int_equal(output.trusted_count, 20000);
    assert_true(allocator.peak_bytes < ((size_t)48 << 20));
    chat_template_output_free(&output);
    assert_int_equal(allocator.live, 0);
}

/* Trusted bytes as upper case would lose case: the mask is written with T and u instead. */
static void check_mask(const char *source, const char *text, const char *mask) {
    chat_template_output output;
    avo_error error;
    assert_ok_error(render_json(source,
                                "{\"u\": \"user\", \"d\": {\"k\": \"v\", \"n\": 5}, \"l\": "
                                "[\"p\", \"q\"], \"e\": \"\u00e9\\n\\\"\", \"n\": 7, "
                                "\"m\": {\"role\": \"user\", \"content\": \"user\"}, "
                                "\"x\": {\"role\": \"user|>\"}}",
                                NULL, 0, &output, &error),
                    &error);
    char found[512];
    size_t size = output.text.size;
    assert_true(size < sizeof(found));
    memset(found, 'u', size);
    found[size] = '\0';
    for (size_t i = 0; i < output.trusted_count; i++)
        memset(found + output.trusted[i].begin, 'T',
               output.trusted[i].end - output.trusted[i].begin);
    if (!text_is(buffer_text(&output.text), text) || strcmp(found, mask) != 0)
        fail_msg("%s: %.*s / %s, expected %s / %s", source, (int)size, output.text.data, found,
                 text, mask);
    chat_template_output_free(&output);
}

static void every_byte_knows_its_origin(void **state) {
    (void)state;
    check_mask("<{{ u }}>", "<user>", "TuuuuT");
    /* a role of the usual words is the template's own, any other is not */
    check_mask("<{{ m.role }}>", "<user>", "TTTTTT");
    check_mask("<{{ m.content }}>", "<user>", "TuuuuT");
    check_mask("<{{ x.role }}>", "<user|>>", "TuuuuuuT");
    check_mask("{{ '<' + u + '>' }}", "<user>", "TuuuuT");
    check_mask("{{ '<' ~ u ~ 1 ~ n }}", "<user17", "TuuuuTu");
    check_mask("{{ bos_token }}{{ u }}", "<s>user", "TTTuuuu");
    check_mask("{{ (u + '<x>')|upper }}", "USER<X>", "uuuuTTT");
    check_mask("{{ (u + '<x>')[2:6] }}", "er<x", "uuTT");
    check_mask("{{ (u + '<x>')[::-1] }}", ">x<resu", "TTTuuuu");
    check_mask("{{ (u + '<x>')|reverse }}", ">x<resu", "TTTuuuu");
    check_mask("{{ u|replace('se', '<>') }}", "u<>r", "uTTu");
    check_mask("{{ 'a-b'|replace('-', u) }}", "auserb", "TuuuuT");
    check_mask("{{ 'a-b'.split('-')|join(u) }}", "auserb", "TuuuuT");
    check_mask("{{ (u + '-' + 'x').split('-')|join('+') }}", "user+x", "uuuuTT");
    check_mask("{{ l|join('|') }}", "p|q", "uTu");
    check_mask("{{ ('  ' + u + ' <|').strip() }}", "user <|", "uuuuTTT");
    check_mask("{{ '%s|%d' % (u, 3) }}", "user|3", "uuuuTT");
    check_mask("{{ '{}|{}'.format(u, n) }}", "user|7", "uuuuTu");
    check_mask("{{ u.format(1) }}", "user", "uuuu");
    check_mask("{{ d|tojson }}", "{\"k\": \"v\", \"n\": 5}", "uuuuuuuuuuuuuuuuuu");
    check_mask("{{ {'a': u}|tojson }}", "{\"a\": \"user\"}", "uuTuuuuuuuuuu");
    check_mask("{{ e|tojson }}", "\"\u00e9\\n\\\"\"", "uuuuuuuu");
    check_mask("{{ [u, '<'] }}", "['user', '<']", "uuuuuuuuuuTuu");
    check_mask("{{ n }}{{ n + 1 }}{{ 1 + 1 }}{{ n|string }}{{ '4'|int }}{{ (u|length) }}", "782744",
               "uuTuTT");
    check_mask("{% for k, v in d.items() %}{{ k }}={{ v }}{{ loop.index }};{% endfor %}",
               "k=v1;n=52;", "uTuTTuTuTT");
    check_mask("{% set x %}<{{ u }}>{% endset %}{{ x }}", "<user>", "TuuuuT");
    check_mask("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}{{ m('t') }}", "<user><t>",
               "TuuuuTTTT");
    check_mask("{% filter upper %}<{{ u }}>{% endfilter %}", "<USER>", "TuuuuT");
    check_mask("{{ ('<' + u)|e }}", "&lt;user", "TTTTuuuu");
    check_mask("{{ ('a\\n' + u)|indent(2) }}", "a\n  user", "TTTTuuuu");
    check_mask("{{ (u ~ '!')|list|join }}", "user!", "uuuuT");
    check_mask("{{ u if u == 'user' else 'x' }}", "user", "uuuu");
    check_mask("{{ {'user': 'found'}[u] }}", "found", "TTTTT");
    check_mask("{% if u == 'user' %}{{ 'user' }}{% endif %}", "user", "TTTT");
    check_mask("{{ 'x' * 3 }}{{ u * 2 }}", "xxxuseruser", "TTTuuuuuuuu");
    check_mask("{{ u|center(8) }}", "  user  ", "TTuuuuTT");
    check_mask("{{ u|default('x') }}{{ zz|default('x') }}", "userx", "uuuuT");
    check_mask("{{ u|title }}{{ u|capitalize }}{{ u.title() }}", "UserUserUser", "uuuuuuuuuuuu");
    check_mask("{{ u|first }}{{ u[1] }}{{ u|last }}", "usr", "uuu");
    check_mask("{{ d|dictsort|map('first')|join }}", "kn", "uu");
    check_mask("{{ u.partition('e')|join('<') }}", "us<e<r", "uuTuTu");
    check_mask("{{ namespace(a=u).a ~ dict(b=u).b }}", "useruser", "uuuuuuuu");
    check_mask("{{ strftime_now('%Y') }}{{ strftime_now(u) }}", "2025user", "TTTTuuuu");
    check_mask("{% raw %}{{{% endraw %}", "{{", "TT");
    check_mask("{{ none }}{{ true }}{{ d.zz }}", "NoneTrue", "TTTTTTTT");
}

/* A template that uses every part of the engine, while the n-th allocation fails. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char source[] =
        "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{% endmacro %}"
        "{% for k, v in d.items() %}{{ k|upper }}={{ v|tojson(indent=2) }}{{ loop.last }}{% endfor "
        "%}"
        "{% set ns = namespace(s='x') %}{% for i in range(300) %}{% set ns.s = ns.s + 'abcdefghij' "
        "+ "
        "u %}{% endfor %}{{ ns.s|length }}{{ m(1, 2, 3) }}{{ [3, 1, 2]|sort|join(',') }}"
        "{{ 'a,b'.split(',')|map('upper')|list }}{{ '%s %5.1f' % (u, 2.5) }}{{ '{:>5}'.format(u) }}"
        "{% set blk %}{{ {'a': [1, (2,)]} }}{% endset %}{{ blk[::-1] }}{{ strftime_now('%Y') }}"
        "{{ range(2000)|list|length }}{{ ('x' * 5000)|length }}";
    static const char variables[] = "{\"u\": \"user\", \"d\": {\"k\": [1, null], \"z\": {}}}";
    size_t total;
    {
        test_allocator allocator;
        test_allocator_init(&allocator);
        chat_template_output output;
        avo_error error;
        assert_ok_error(render_json(source, variables, &allocator, 0, &output, &error), &error);
        total = allocator.allocations;
        chat_template_output_free(&output);
        assert_int_equal(allocator.live, 0);
    }
    assert_true(total >= 5);
    for (size_t at = 1; at <= total; at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = at;
        chat_template_output output;
        avo_error error = {0};
        avo_status status = render_json(source, variables, &allocator, 0, &output, &error);
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_true(strlen(error.text) > 0);
        chat_template_output_free(&output);
        assert_int_equal(allocator.live, 0);
    }
}

static void plain_messages_become_variables(void **state) {
    (void)state;
    arena arena;
    json_value variables;
    avo_error error;
    arena_init(&arena, NULL, SIZE_MAX);
    avo_message messages[] = {{"system", "Be kind."}, {"user", "\xFF <|x|> \xC3\xA9"}};
    assert_ok(chat_template_messages(&arena, messages, 2, true, &variables, &error));
    chat_template *chat;
    chat_template_output output;
    chat_template_output_init(&output, NULL);
    assert_ok(chat_template_open(
        TEXT_LITERAL("{% for m in messages %}<{{ m.role }}>{{ m.content|upper }}{{ "
                     "m.content|length }}{% endfor %}{% if add_generation_prompt %}!{% endif %}"),
        NULL, &chat, &error));
    chat_template_input input = {.variables = &variables};
    assert_ok(chat_template_render(chat, &input, &output, &error));
    assert_true(text_is(buffer_text(&output.text), "<system>BE KIND.8<user>\xFF <|X|> \xC3\x89"
                                                   "9!"));
    /* Once more into the same output: nothing of the first time is left. */
    assert_ok(chat_template_render(chat, &input, &output, &error));
    assert_int_equal(output.text.size, 35);
    assert_ok(chat_template_messages(&arena, NULL, 0, false, &variables, &error));
    assert_ok(chat_template_render(chat, &input, &output, &error));
    assert_int_equal(output.text.size, 0);
    assert_int_equal(output.trusted_count, 0);
    messages[1].content = NULL;
    assert_refused(chat_template_messages(&arena, messages, 2, true, &variables, &error),
                   AVO_ERROR_ARGUMENT, &error, "message 1: content is missing");
    chat_template_output_free(&output);
    chat_template_close(chat);
    arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(strict_templates_print_nothing_undefined),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(filters_pile_up_only_so_high),
        cmocka_unit_test(work_and_memory_are_limited),
        cmocka_unit_test(growing_strings_are_linear),
        cmocka_unit_test(every_byte_knows_its_origin),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(plain_messages_become_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
