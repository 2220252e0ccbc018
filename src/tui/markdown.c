/* Markdown to styled lines, over md4c: a parser that many tools rest on and that fuzzing has seen.
 * It is given text that is still being written, so a fence without an end, or half a table, is
 * shown as what it will most likely be. */
#include "tui/layout.h"

#include "base/cursor.h"
#include "tui/glyphs.h"

#include <md4c.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX      24u /* containers within each other; deeper ones are not indented any more */
#define TABLE_COLUMNS  16u
#define MARK_BYTES_MAX 24u

typedef struct container {
    bool quote, ordered;
    unsigned number; /* of the next item */
    char mark[MARK_BYTES_MAX];
    bool marked; /* the item's first line has been made */
} container;

typedef struct writer {
    layout *out;
    size_t columns;
    buffer text;  /* of the block that is being read */
    buffer spans; /* styled_span each */
    unsigned style;
    container stack[DEPTH_MAX];
    container lost;   /* deeper than the stack: written and never read */
    size_t depth;     /* may count further than the stack holds */
    bool code, begun; /* inside a code block; something has been written */
    bool loose;       /* a blank line goes before the next block */
    buffer cells;     /* of a table: text of each cell, ended by a zero byte */
    unsigned cell_count, row_columns, head_rows, rows;
    avo_status status;
} writer;

static avo_status append(writer *w, text_view text, unsigned style) {
    if (text.size == 0)
        return AVO_OK;
    AVO_TRY(buffer_append(&w->text, text.data, text.size));
    styled_span span = {w->text.size, style};
    size_t count = w->spans.size / sizeof(span);
    styled_span *last = (styled_span *)(void *)w->spans.data + (count > 0 ? count - 1 : 0);
    if (count > 0 && last->style == style) {
        last->end = w->text.size;
        return AVO_OK;
    }
    return buffer_append(&w->spans, &span, sizeof(span));
}

/* What stands before a line: bars of quotes, marks of items or the room they take. */
static avo_status write_prefix(writer *w, buffer *prefix, bool first) {
    size_t depth = w->depth < DEPTH_MAX ? w->depth : DEPTH_MAX;
    for (size_t i = 0; i < depth; i++) {
        container *container = &w->stack[i];
        if (container->quote) {
            AVO_TRY(buffer_append_text(prefix, "│ "));
        } else if (container->mark[0] == '\0') {
            continue; /* a list whose item has not begun */
        } else if (first && !container->marked) {
            AVO_TRY(buffer_append_text(prefix, container->mark));
            container->marked = true;
        } else {
            size_t columns = glyph_columns(text_from(container->mark));
            for (size_t n = 0; n < columns; n++)
                AVO_TRY(buffer_append_text(prefix, " "));
        }
    }
    return AVO_OK;
}

static avo_status flush_with(writer *w, bool verbatim, text_view behind) {
    buffer first, next;
    buffer_init(&first, NULL, LAYOUT_BYTES_MAX);
    buffer_init(&next, NULL, LAYOUT_BYTES_MAX);
    avo_status status = write_prefix(w, &first, true);
    AVO_THEN(status, buffer_append(&first, behind.data, behind.size));
    AVO_THEN(status, write_prefix(w, &next, false));
    AVO_THEN(status, buffer_append(&next, behind.data, behind.size));
    if (status == AVO_OK) {
        styled_text styled = {buffer_text(&w->text), (const styled_span *)(void *)w->spans.data,
                              w->spans.size / sizeof(styled_span)};
        status = layout_paragraph(w->out, &styled, buffer_text(&first), buffer_text(&next),
                                  w->columns, verbatim);
    }
    w->text.size = w->spans.size = 0;
    buffer_free(&first);
    buffer_free(&next);
    return status;
}

static avo_status flush(writer *w) {
    return w->text.size == 0 ? AVO_OK : flush_with(w, false, (text_view){"", 0});
}

/* A line between two blocks. */
static avo_status separate(writer *w) {
    bool wanted = w->loose && w->begun;
    w->begun = true;
    w->loose = true;
    if (!wanted)
        return AVO_OK;
    buffer prefix;
    buffer_init(&prefix, NULL, LAYOUT_BYTES_MAX);
    avo_status status = AVO_OK;
    for (size_t i = 0; i < w->depth && i < DEPTH_MAX && status == AVO_OK; i++)
        if (w->stack[i].quote)
            status = buffer_append_text(&prefix, "│ ");
    AVO_THEN(status, layout_add(w->out, buffer_text(&prefix), STYLE_DIM));
    buffer_free(&prefix);
    AVO_TRY(status);
    return layout_end_line(w->out);
}

/* ---- Tables ---- */

static text_view cell_at(const writer *w, const char **at) {
    text_view cell = {*at, 0};
    const char *end = w->cells.data + w->cells.size;
    while (*at + cell.size < end && (*at)[cell.size] != '\0')
        cell.size++;
    *at += cell.size + 1;
    return cell;
}

static void table_widths(const writer *w, size_t *width) {
    const char *at = w->cells.data;
    for (unsigned i = 0; i < w->cell_count; i++) {
        size_t columns = glyph_columns(cell_at(w, &at));
        if (columns > width[i % w->row_columns])
            width[i % w->row_columns] = columns;
    }
    /* Too wide for the screen: the widest give way. */
    for (;;) {
        size_t sum = 3 * (size_t)(w->row_columns - 1);
        unsigned widest = 0;
        for (unsigned i = 0; i < w->row_columns; i++) {
            sum += width[i];
            widest = width[i] > width[widest] ? i : widest;
        }
        if (sum <= w->columns || width[widest] <= 4)
            return;
        size_t over = sum - w->columns;
        width[widest] -= over < width[widest] - 4 ? (over + 3) / 4 : width[widest] - 4;
    }
}

/* A cell, cut to its column, and spaces up to it. */
static avo_status write_cell(writer *w, text_view cell, size_t columns, unsigned style) {
    size_t used = 0;
    for (size_t at = 0; at < cell.size;) {
        glyph glyph = glyph_at(cell, at);
        bool last = at + glyph.bytes == cell.size;
        if (used + glyph.columns > columns - (last ? 0 : 1)) {
            AVO_TRY(layout_add(w->out, text_from("…"), STYLE_DIM));
            used++;
            break;
        }
        AVO_TRY(layout_add(w->out, glyph.shown, style));
        used += glyph.columns;
        at += glyph.bytes;
    }
    for (; used < columns; used++)
        AVO_TRY(layout_add(w->out, text_from(" "), STYLE_PLAIN));
    return AVO_OK;
}

static avo_status write_rule(writer *w, const size_t *width) {
    for (unsigned i = 0; i < w->row_columns; i++) {
        for (size_t n = 0; n < width[i]; n++)
            AVO_TRY(layout_add(w->out, text_from("─"), STYLE_DIM));
        if (i + 1 < w->row_columns)
            AVO_TRY(layout_add(w->out, text_from("─┼─"), STYLE_DIM));
    }
    return layout_end_line(w->out);
}

static avo_status write_table(writer *w) {
    size_t width[TABLE_COLUMNS] = {0};
    if (w->row_columns == 0 || w->cell_count == 0)
        return AVO_OK;
    table_widths(w, width);
    const char *at = w->cells.data;
    for (unsigned i = 0; i < w->cell_count; i++) {
        unsigned column = i % w->row_columns, row = i / w->row_columns;
        AVO_TRY(write_cell(w, cell_at(w, &at), width[column],
                           row < w->head_rows ? STYLE_BOLD : STYLE_PLAIN));
        if (column + 1 < w->row_columns) {
            AVO_TRY(layout_add(w->out, text_from(" │ "), STYLE_DIM));
            continue;
        }
        AVO_TRY(layout_end_line(w->out));
        if (row + 1 == w->head_rows)
            AVO_TRY(write_rule(w, width));
    }
    w->cells.size = 0;
    return AVO_OK;
}

/* ---- What md4c calls ---- */

static container *push(writer *w, bool quote, bool ordered, unsigned number) {
    container *at = w->depth < DEPTH_MAX ? &w->stack[w->depth] : &w->lost;
    w->depth++;
    *at = (container){.quote = quote, .ordered = ordered, .number = number};
    return at;
}

static avo_status enter_item(writer *w, const MD_BLOCK_LI_DETAIL *detail) {
    AVO_TRY(flush(w));
    if (w->depth == 0 || w->depth > DEPTH_MAX)
        return AVO_OK;
    container *list = &w->stack[w->depth - 1];
    if (detail->is_task)
        snprintf(list->mark, sizeof(list->mark), "[%c] ", detail->task_mark == ' ' ? ' ' : 'x');
    else if (list->ordered)
        snprintf(list->mark, sizeof(list->mark), "%u. ", list->number++);
    else
        snprintf(list->mark, sizeof(list->mark), "• ");
    list->marked = false;
    return AVO_OK;
}

static avo_status enter(writer *w, MD_BLOCKTYPE type, const void *detail) {
    switch (type) {
    case MD_BLOCK_QUOTE:
        AVO_TRY(flush(w));
        AVO_TRY(separate(w));
        w->loose = false;
        push(w, true, false, 0);
        return AVO_OK;
    case MD_BLOCK_UL:
    case MD_BLOCK_OL:
        AVO_TRY(flush(w));
        if (w->depth == 0)
            AVO_TRY(separate(w));
        w->loose = false;
        push(w, false, type == MD_BLOCK_OL,
             type == MD_BLOCK_OL ? ((const MD_BLOCK_OL_DETAIL *)detail)->start : 0);
        return AVO_OK;
    case MD_BLOCK_LI:
        return enter_item(w, detail);
    case MD_BLOCK_H:
        AVO_TRY(separate(w));
        w->style = STYLE_HEADING | STYLE_BOLD;
        return AVO_OK;
    case MD_BLOCK_CODE:
        AVO_TRY(flush(w));
        AVO_TRY(separate(w));
        w->code = true;
        return AVO_OK;
    case MD_BLOCK_HR:
        AVO_TRY(separate(w));
        AVO_TRY(append(w, text_from("────────"), STYLE_DIM));
        return flush(w);
    case MD_BLOCK_P:
        return separate(w);
    case MD_BLOCK_TABLE:
        AVO_TRY(separate(w));
        w->row_columns = ((const MD_BLOCK_TABLE_DETAIL *)detail)->col_count;
        w->row_columns = w->row_columns < TABLE_COLUMNS ? w->row_columns : TABLE_COLUMNS;
        w->head_rows = ((const MD_BLOCK_TABLE_DETAIL *)detail)->head_row_count;
        w->cell_count = 0;
        return AVO_OK;
    default:
        return AVO_OK;
    }
}

/* A cell's text is kept without styles; of a row with too many, the last ones are dropped. */
static avo_status leave_cell(writer *w) {
    AVO_TRY(buffer_append(&w->cells, w->text.data, w->text.size));
    AVO_TRY(buffer_append(&w->cells, "", 1));
    w->text.size = w->spans.size = 0;
    w->cell_count++;
    return AVO_OK;
}

static avo_status leave(writer *w, MD_BLOCKTYPE type) {
    switch (type) {
    case MD_BLOCK_QUOTE:
    case MD_BLOCK_UL:
    case MD_BLOCK_OL:
        AVO_TRY(flush(w));
        w->depth -= w->depth > 0;
        w->loose = w->depth == 0;
        return AVO_OK;
    case MD_BLOCK_LI:
        AVO_TRY(flush(w));
        if (w->depth > 0 && w->depth <= DEPTH_MAX && !w->stack[w->depth - 1].marked)
            AVO_TRY(flush_with(w, false, (text_view){"", 0})); /* an empty item shows its mark */
        w->loose = false;
        return AVO_OK;
    case MD_BLOCK_H:
        w->style = STYLE_PLAIN;
        return flush(w);
    case MD_BLOCK_CODE:
        w->code = false;
        if (w->text.size > 0 && w->text.data[w->text.size - 1] == '\n')
            w->text.size--;
        return flush_with(w, true, text_from("  "));
    case MD_BLOCK_TH:
    case MD_BLOCK_TD:
        return w->row_columns > 0 ? leave_cell(w) : AVO_OK;
    case MD_BLOCK_TABLE:
        return write_table(w);
    case MD_BLOCK_P:
        return flush(w);
    default:
        return AVO_OK;
    }
}

static int on_enter_block(MD_BLOCKTYPE type, void *detail, void *user) {
    writer *w = user;
    w->status = enter(w, type, detail);
    return w->status != AVO_OK;
}

static int on_leave_block(MD_BLOCKTYPE type, void *detail, void *user) {
    (void)detail;
    writer *w = user;
    w->status = leave(w, type);
    return w->status != AVO_OK;
}

static unsigned span_style(MD_SPANTYPE type) {
    switch (type) {
    case MD_SPAN_EM:
    case MD_SPAN_U:
        return STYLE_ITALIC;
    case MD_SPAN_STRONG:
        return STYLE_BOLD;
    case MD_SPAN_CODE:
    case MD_SPAN_LATEXMATH:
    case MD_SPAN_LATEXMATH_DISPLAY:
        return STYLE_CODE;
    case MD_SPAN_A:
    case MD_SPAN_IMG:
    case MD_SPAN_WIKILINK:
        return STYLE_LINK;
    case MD_SPAN_DEL:
        return STYLE_DIM;
    }
    return STYLE_PLAIN;
}

static int on_enter_span(MD_SPANTYPE type, void *detail, void *user) {
    (void)detail;
    writer *w = user;
    w->style |= span_style(type);
    return 0;
}

static int on_leave_span(MD_SPANTYPE type, void *detail, void *user) {
    writer *w = user;
    w->style &= ~span_style(type);
    if (type != MD_SPAN_A)
        return 0;
    const MD_SPAN_A_DETAIL *link = detail;
    text_view target = {link->href.text, link->href.size};
    bool named = target.size > 0 && w->text.size >= target.size &&
                 memcmp(w->text.data + w->text.size - target.size, target.data, target.size) == 0;
    if (named || target.size == 0)
        return 0; /* the text is the address */
    w->status = append(w, text_from(" ("), STYLE_DIM);
    if (w->status == AVO_OK)
        w->status = append(w, target, STYLE_DIM);
    if (w->status == AVO_OK)
        w->status = append(w, text_from(")"), STYLE_DIM);
    return w->status != AVO_OK;
}

/* The few entities that models write; others stay as they are. */
static text_view entity_text(text_view entity) {
    static const char *const known[][2] = {{"&amp;", "&"},   {"&lt;", "<"},    {"&gt;", ">"},
                                           {"&quot;", "\""}, {"&apos;", "'"},  {"&nbsp;", " "},
                                           {"&mdash;", "—"}, {"&ndash;", "–"}, {"&hellip;", "…"}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (text_equal(entity, text_from(known[i][0])))
            return text_from(known[i][1]);
    return entity;
}

static int on_text(MD_TEXTTYPE type, const MD_CHAR *data, MD_SIZE size, void *user) {
    writer *w = user;
    text_view text = {data, size};
    unsigned style = w->code || type == MD_TEXT_CODE ? w->style | STYLE_CODE : w->style;
    if (type == MD_TEXT_BR)
        text = text_from("\n");
    else if (type == MD_TEXT_SOFTBR)
        text = text_from(" ");
    else if (type == MD_TEXT_NULLCHAR)
        text = text_from("\xEF\xBF\xBD");
    else if (type == MD_TEXT_ENTITY)
        text = entity_text(text);
    w->status = append(w, text, style);
    return w->status != AVO_OK;
}

avo_status layout_markdown(layout *layout, text_view text, size_t columns) {
    static const MD_PARSER parser = {
        .flags = MD_FLAG_TABLES | MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS | MD_FLAG_NOHTML |
                 MD_FLAG_PERMISSIVEURLAUTOLINKS,
        .enter_block = on_enter_block,
        .leave_block = on_leave_block,
        .enter_span = on_enter_span,
        .leave_span = on_leave_span,
        .text = on_text,
    };
    if (text.size > LAYOUT_BYTES_MAX / 8)
        return layout_plain(layout, text, STYLE_PLAIN, columns);
    writer *w = &(writer){.out = layout, .columns = columns};
    buffer_init(&w->text, NULL, LAYOUT_BYTES_MAX);
    buffer_init(&w->spans, NULL, LAYOUT_BYTES_MAX);
    buffer_init(&w->cells, NULL, LAYOUT_BYTES_MAX);
    int result = md_parse(text.data, (MD_SIZE)text.size, &parser, w);
    avo_status status = w->status != AVO_OK ? w->status : result != 0 ? AVO_ERROR_MEMORY : AVO_OK;
    AVO_THEN(status, flush(w));
    buffer_free(&w->text);
    buffer_free(&w->spans);
    buffer_free(&w->cells);
    return status;
}
