/* Wrapping and the lines that come of it. */
#include "tui/layout.h"

#include "tui/glyphs.h"

#include <string.h>

#define COLUMNS_MIN 4u

void layout_init(layout *layout) {
    buffer_init(&layout->text, NULL, LAYOUT_BYTES_MAX);
    buffer_init(&layout->runs, NULL, LAYOUT_BYTES_MAX);
    buffer_init(&layout->lines, NULL, LAYOUT_BYTES_MAX);
    layout_clear(layout);
}

void layout_free(layout *layout) {
    buffer_free(&layout->text);
    buffer_free(&layout->runs);
    buffer_free(&layout->lines);
}

void layout_clear(layout *layout) {
    layout->text.size = layout->runs.size = layout->lines.size = 0;
}

size_t layout_line_count(const layout *layout) {
    return layout->lines.size / sizeof(layout_line);
}

const layout_line *layout_line_at(const layout *layout, size_t index) {
    return (const layout_line *)(const void *)layout->lines.data + index;
}

const layout_run *layout_run_at(const layout *layout, size_t index) {
    return (const layout_run *)(const void *)layout->runs.data + index;
}

/* Runs that no line has yet are those of the line that is being made. */
static size_t first_open_run(const layout *layout) {
    size_t count = layout_line_count(layout);
    if (count == 0)
        return 0;
    const layout_line *last = layout_line_at(layout, count - 1);
    return last->first_run + last->run_count;
}

avo_status layout_add(layout *layout, text_view text, unsigned style) {
    if (text.size == 0)
        return AVO_OK;
    size_t runs = layout->runs.size / sizeof(layout_run);
    size_t begin = layout->text.size;
    AVO_TRY(buffer_append(&layout->text, text.data, text.size));
    if (runs > first_open_run(layout)) {
        layout_run *last = (layout_run *)(void *)layout->runs.data + runs - 1;
        if (last->style == style) {
            last->bytes += text.size;
            return AVO_OK;
        }
    }
    layout_run run = {begin, text.size, style};
    return buffer_append(&layout->runs, &run, sizeof(run));
}

avo_status layout_end_line(layout *layout) {
    size_t first = first_open_run(layout);
    layout_line line = {first, layout->runs.size / sizeof(layout_run) - first};
    return buffer_append(&layout->lines, &line, sizeof(line));
}

/* Where the line that begins at `at` ends, and where the next one begins. */
typedef struct line_end {
    size_t end, next;
} line_end;

static line_end find_line(text_view text, size_t at, size_t columns, bool verbatim) {
    size_t used = 0;
    size_t space_end = 0, space_next = 0; /* the last place to break at, if any */
    while (at < text.size) {
        glyph glyph = glyph_at(text, at);
        if (glyph.newline)
            return (line_end){at, at + 1};
        if (glyph.space && !verbatim) {
            if (space_next != at)
                space_end = at;
            space_next = at + glyph.bytes;
        }
        if (used + glyph.columns > columns && !(glyph.space && !verbatim)) {
            if (space_next > 0)
                return (line_end){space_end, space_next};
            return used == 0 ? (line_end){at + glyph.bytes, at + glyph.bytes} : (line_end){at, at};
        }
        used += glyph.columns;
        at += glyph.bytes;
    }
    /* Spaces that hang over the edge are not shown. */
    if (used > columns && space_next == text.size)
        return (line_end){space_end, text.size};
    return (line_end){text.size, text.size};
}

/* [begin, end) of a styled text, made safe. */
static avo_status add_styled(layout *layout, const styled_text *text, size_t begin, size_t end) {
    size_t span = 0;
    text_view cut = {text->text.data, end};
    while (begin < end) {
        while (span < text->span_count && text->spans[span].end <= begin)
            span++;
        glyph glyph = glyph_at(cut, begin);
        AVO_TRY(layout_add(layout, glyph.shown,
                           span < text->span_count ? text->spans[span].style : STYLE_PLAIN));
        begin += glyph.bytes;
    }
    return AVO_OK;
}

avo_status layout_paragraph(layout *layout, const styled_text *text, text_view first,
                            text_view next, size_t columns, bool verbatim) {
    size_t at = 0;
    bool begun = false;
    do {
        text_view prefix = begun ? next : first;
        size_t taken = glyph_columns(prefix);
        size_t room = columns > taken + COLUMNS_MIN ? columns - taken : COLUMNS_MIN;
        line_end line = find_line(text->text, at, room, verbatim);
        AVO_TRY(layout_add(layout, prefix, STYLE_DIM));
        AVO_TRY(add_styled(layout, text, at, line.end));
        AVO_TRY(layout_end_line(layout));
        at = line.next;
        begun = true;
    } while (at < text->text.size);
    return AVO_OK;
}

avo_status layout_plain(layout *layout, text_view text, unsigned style, size_t columns) {
    styled_span all = {text.size, style};
    styled_text styled = {text, &all, 1};
    return layout_paragraph(layout, &styled, (text_view){"", 0}, (text_view){"", 0}, columns,
                            false);
}

/* ---- Answers ---- */

avo_status layout_answer(layout *layout, const chat_format *format, text_view answer,
                         size_t width) {
    const chat_parser_options options = {.reasoning = true};
    chat_parser *parser = NULL;
    chat_delta delta = {{"", 0}, {"", 0}};
    buffer reasoning, text;
    buffer_init(&reasoning, NULL, LAYOUT_BYTES_MAX);
    buffer_init(&text, NULL, LAYOUT_BYTES_MAX);
    avo_status status = chat_parser_open(format, &options, &parser, NULL);
    for (int i = 0; i < 2 && status == AVO_OK; i++) {
        status = i == 0 ? chat_parser_push(parser, -1, answer, &delta, NULL)
                        : chat_parser_finish(parser, &delta, NULL);
        AVO_THEN(status, buffer_append(&reasoning, delta.reasoning.data, delta.reasoning.size));
        AVO_THEN(status, buffer_append(&text, delta.text.data, delta.text.size));
    }
    if (status == AVO_OK && reasoning.size > 0)
        status = layout_plain(layout, buffer_text(&reasoning), STYLE_DIM, width);
    if (status == AVO_OK && reasoning.size > 0 && text.size > 0)
        status = layout_end_line(layout);
    AVO_THEN(status, layout_markdown(layout, buffer_text(&text), width));
    chat_parser_close(parser);
    buffer_free(&reasoning);
    buffer_free(&text);
    return status;
}
