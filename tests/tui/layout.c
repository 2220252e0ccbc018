/* Text laid out for a terminal: widths, wrapping, markdown, and nothing that harms a terminal. */
#include "support/support.h"

#include "tui/glyphs.h"
#include "tui/layout.h"

#include <stdlib.h>
#include <string.h>

/* The lines with '|' between, styles as letters in braces: {b}bold{}. */
static void render(const layout *layout, buffer *out) {
    out->size = 0;
    for (size_t i = 0; i < layout_line_count(layout); i++) {
        const layout_line *line = layout_line_at(layout, i);
        if (i > 0)
            assert_ok(buffer_append_text(out, "|"));
        for (size_t n = 0; n < line->run_count; n++) {
            const layout_run *run = layout_run_at(layout, line->first_run + n);
            for (unsigned bit = 0; bit < 6; bit++)
                if (run->style & (1u << bit))
                    assert_ok(buffer_format(out, "{%c}", "biclhd"[bit]));
            assert_ok(buffer_append(out, layout->text.data + run->begin, run->bytes));
            if (run->style != STYLE_PLAIN)
                assert_ok(buffer_append_text(out, "{}"));
        }
    }
    assert_ok(buffer_terminate(out));
}

static void expect(bool markdown, const char *text, size_t columns, const char *wanted) {
    layout layout;
    buffer out;
    layout_init(&layout);
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(markdown ? layout_markdown(&layout, text_from(text), columns)
                       : layout_plain(&layout, text_from(text), STYLE_PLAIN, columns));
    render(&layout, &out);
    assert_string_equal(out.data, wanted);
    buffer_free(&out);
    layout_free(&layout);
}

/* Whatever pieces it comes in: characters that a terminal obeys are replaced, others stay. */
static void printed(void **state) {
    (void)state;
    static const char *const harmful[] = {"\x1B",         "\r",           "\x08",
                                          "\x7F",         "\xC2\x80",     "\xC2\x9B",
                                          "\xC2\x9F",     "\xE2\x80\xAE", "\xF3\xA0\x81\x81",
                                          "\xEF\xBB\xBF", "\x9B",         "\xE2\x80"};
    static const char *const harmless[] = {"a", "\n", "\t",   "\xC2\xA0",
                                           "é", "日", "🙂", "\xCC\x81"};
    text_view shown;
    for (size_t i = 0; i < sizeof(harmful) / sizeof(harmful[0]); i++) {
        text_view text = text_from(harmful[i]);
        assert_int_equal(glyph_printed(text, 0, &shown), text.size);
        assert_true(text_is(shown, "\xEF\xBF\xBD"));
    }
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
        text_view text = text_from(harmless[i]);
        assert_int_equal(glyph_printed(text, 0, &shown), text.size);
        assert_true(text_is(shown, harmless[i]));
    }
}

static void widths(void **state) {
    (void)state;
    assert_int_equal(glyph_columns(text_from("abc")), 3);
    assert_int_equal(glyph_columns(text_from("日本")), 4);
    assert_int_equal(glyph_columns(text_from("e\xCC\x81x")), 2);
    assert_int_equal(glyph_columns(text_from("🙂")), 2);
    assert_int_equal(glyph_columns(text_from("a\tb")), 2 + GLYPH_TAB_COLUMNS);
    text_view family = text_from("👩‍👩‍👧x");
    assert_int_equal(glyph_at(family, 0).bytes, family.size - 1); /* one key deletes it */
    assert_int_equal(glyph_before(family, family.size), family.size - 1);
    assert_int_equal(glyph_before(family, family.size - 1), 0);
    /* What terminals draw differently is not drawn: the width is the same everywhere. */
    assert_int_equal(glyph_columns(family), 3);
    assert_int_equal(glyph_at(family, 0).shown.size, strlen("👩"));
    assert_int_equal(glyph_columns(text_from("\xE2\x9D\xA4\xEF\xB8\x8Fx")), 2); /* a heart, red */
    assert_int_equal(glyph_columns(text_from("👍🏽x")), 3);
    text_view lines = text_from("ab\ncd");
    assert_int_equal(glyph_before(lines, 3), 2);
}

/* Escapes, controls, turned writing and broken bytes never come out. */
static void hostile_text(void **state) {
    (void)state;
    static const char text[] = "a\033[31mb\x9B"
                               "c\xC2\x9B\xE2\x80\xAE"
                               "d\xFF\x07\r\x7F z\xCC\x81";
    layout layout;
    for (int markdown = 0; markdown < 2; markdown++) {
        layout_init(&layout);
        text_view view = {text, sizeof(text) - 1};
        assert_ok(markdown ? layout_markdown(&layout, view, 40)
                           : layout_plain(&layout, view, STYLE_PLAIN, 40));
        for (size_t i = 0; i < layout.text.size; i++) {
            uint8_t c = (uint8_t)layout.text.data[i];
            assert_true(c >= 0x20 && c != 0x7F);
        }
        assert_null(memmem(layout.text.data, layout.text.size, "\xC2\x9B", 2));
        assert_null(memmem(layout.text.data, layout.text.size, "\xE2\x80\xAE", 3));
        layout_free(&layout);
    }
}

static void wrapping(void **state) {
    (void)state;
    expect(false, "", 10, "");
    expect(false, "one two three", 7, "one two|three");
    expect(false, "one two  three", 7, "one two|three");
    expect(false, "one two three", 8, "one two|three");
    expect(false, "abcdefghij", 4, "abcd|efgh|ij");
    expect(false, "日本語です", 5, "日本|語で|す");
    expect(false, "a\n\nb", 10, "a||b");
    expect(false, "ab cdefghij k", 5, "ab|cdefg|hij k");
}

static void markdown(void **state) {
    (void)state;
    expect(true, "plain **bold** and *it* `code`", 40, "plain {b}bold{} and {i}it{} {c}code{}");
    expect(true, "# Title\ntext", 40, "{b}{h}Title{}||text");
    expect(true, "* one\n* two\n  three", 40, "{d}• {}one|{d}• {}two three");
    expect(true, "3. one\n4. two", 40, "{d}3. {}one|{d}4. {}two");
    expect(true, "- a\n  - b\n- c", 40, "{d}• {}a|{d}  • {}b|{d}• {}c");
    expect(true, "> quoted text", 9, "{d}│ {}quoted|{d}│ {}text");
    expect(true, "a\n\nb", 40, "a||b");
    expect(true, "```c\nint x;\n  y\n```\nz", 40, "{d}  {}{c}int x;{}|{d}  {}{c}  y{}||z");
    expect(true, "```\nunfinished", 40, "{d}  {}{c}unfinished{}");
    expect(true, "[text](http://x.y)", 40, "{l}text{}{d} (http://x.y){}");
    expect(true, "|a|b|\n|---|---|\n|1|22|", 40, "{b}a{}{d} │ {}{b}b{} |{d}──┼───{}|1{d} │ {}22");
    expect(true, "1 &lt; 2 &amp; <b>3</b>", 40, "1 < 2 & <b>3</b>");
    expect(true, "- [x] done", 40, "{d}[x] {}done");
}

/* Any bytes, any width: no line is wider than the screen, nothing crashes. */
static void random_texts(void **state) {
    (void)state;
    static const char *const pieces[] = {"word ", "\n",      "\n\n",        "* ",   "> ",
                                         "```\n", "|a|b|\n", "|---|---|\n", "**",   "_",
                                         "`",     "日本",    "🙂",        "\xFF", "1. ",
                                         "# ",    "    ",    "[x](y)",      "\t",   "e\xCC\x81"};
    char text[600];
    uint64_t seed = 1;
    for (size_t turn = 0; turn < 3000; turn++) {
        size_t size = 0;
        for (size_t n = 0; n < 40; n++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const char *piece = pieces[(seed >> 33) % (sizeof(pieces) / sizeof(pieces[0]))];
            size_t bytes = strlen(piece);
            memcpy(text + size, piece, bytes);
            size += bytes;
        }
        size_t columns = 20 + turn % 50;
        layout layout;
        layout_init(&layout);
        assert_ok(layout_markdown(&layout, (text_view){text, size}, columns));
        for (size_t i = 0; i < layout_line_count(&layout); i++) {
            const layout_line *line = layout_line_at(&layout, i);
            size_t used = 0;
            for (size_t n = 0; n < line->run_count; n++) {
                const layout_run *run = layout_run_at(&layout, line->first_run + n);
                used += glyph_columns((text_view){layout.text.data + run->begin, run->bytes});
            }
            size_t deep = 2 * 24 + 8; /* containers within containers leave a little room always */
            assert_true(used <= columns || used <= deep);
        }
        layout_free(&layout);
    }
}

/* Reasoning is dim and as it is; the rest is markdown. */
static void answers(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"<think>\n*why* not\n</think>\n\n**Yes**", "{d}*why* not{}||{b}Yes{}"},
        {"<think>still", "{d}still{}"},
        {"**Yes** <think>", "{b}Yes{} <think>"},
        {"", ""}};
    chat_format *format;
    assert_ok(chat_format_named("hermes", &format, NULL));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        layout layout;
        buffer out;
        layout_init(&layout);
        buffer_init(&out, NULL, SIZE_MAX);
        assert_ok(layout_answer(&layout, format, text_from(cases[i][0]), 40));
        render(&layout, &out);
        assert_string_equal(out.data, cases[i][1]);
        buffer_free(&out);
        layout_free(&layout);
    }
    chat_format_close(format);
}

int main(void) {
    if (!glyphs_locale()) {
        print_message("skipped: no UTF-8 locale\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed),  cmocka_unit_test(widths),   cmocka_unit_test(hostile_text),
        cmocka_unit_test(wrapping), cmocka_unit_test(markdown), cmocka_unit_test(random_texts),
        cmocka_unit_test(answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
