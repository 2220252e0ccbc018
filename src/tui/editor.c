/* Editing, by what the reader sees as characters. */
#include "tui/editor.h"

#include "tui/glyphs.h"

#include <stdlib.h>
#include <string.h>

void editor_init(editor *editor) {
    memset(editor, 0, sizeof(*editor));
    buffer_init(&editor->text, NULL, EDITOR_BYTES_MAX);
    buffer_init(&editor->cut, NULL, EDITOR_BYTES_MAX);
    buffer_init(&editor->draft, NULL, EDITOR_BYTES_MAX);
}

void editor_free(editor *editor) {
    buffer_free(&editor->text);
    buffer_free(&editor->cut);
    buffer_free(&editor->draft);
    for (size_t i = 0; i < editor->history_count; i++)
        free(editor->history[i]);
    editor->history_count = 0;
}

bool editor_insert(editor *editor, text_view text) {
    size_t before = editor->text.size;
    if (text.size == 0)
        return true;
    if (buffer_append(&editor->text, text.data, text.size) != AVO_OK)
        return false;
    char *at = editor->text.data + editor->cursor;
    memmove(at + text.size, at, before - editor->cursor);
    memcpy(at, text.data, text.size);
    editor->cursor += text.size;
    return true;
}

bool editor_set(editor *editor, text_view text) {
    if (text.size > EDITOR_BYTES_MAX || buffer_reserve(&editor->text, text.size) != AVO_OK)
        return false;
    editor->text.size = editor->cursor = 0;
    return editor_insert(editor, text);
}

static bool is_word(const editor *editor, size_t at) {
    uint8_t c = (uint8_t)editor->text.data[at];
    return c >= 0x80 || c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z');
}

static size_t line_begin(const editor *editor, size_t at) {
    while (at > 0 && editor->text.data[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const editor *editor, size_t at) {
    while (at < editor->text.size && editor->text.data[at] != '\n')
        at++;
    return at;
}

/* The place in the line of [begin, …) that stands in this column, or the line's end. */
static size_t at_column(const editor *editor, size_t begin, size_t column) {
    text_view text = {editor->text.data, line_end(editor, begin)};
    size_t used = 0;
    while (begin < text.size && used < column) {
        glyph glyph = glyph_at(text, begin);
        used += glyph.columns;
        begin += glyph.bytes;
    }
    return begin;
}

/* Where a move within the text goes. */
static size_t target(const editor *editor, editor_move move) {
    text_view text = buffer_text(&editor->text);
    size_t at = editor->cursor;
    switch (move) {
    case EDITOR_LEFT:
        return at > 0 ? glyph_before(text, at) : 0;
    case EDITOR_RIGHT:
        return at < text.size ? at + glyph_at(text, at).bytes : at;
    case EDITOR_WORD_LEFT:
        while (at > 0 && !is_word(editor, at - 1))
            at--;
        while (at > 0 && is_word(editor, at - 1))
            at--;
        return at;
    case EDITOR_WORD_RIGHT:
        while (at < text.size && !is_word(editor, at))
            at++;
        while (at < text.size && is_word(editor, at))
            at++;
        return at;
    case EDITOR_LINE_BEGIN:
        return line_begin(editor, at);
    case EDITOR_LINE_END:
        return line_end(editor, at);
    case EDITOR_UP:
    case EDITOR_DOWN:
        break;
    }
    return at;
}

/* Another entry of the history; the text that was being written waits behind the newest. */
static void show_history(editor *editor, size_t index) {
    if (editor->history_at == editor->history_count) {
        editor->draft.size = 0;
        if (buffer_append(&editor->draft, editor->text.data, editor->text.size) != AVO_OK)
            return;
    }
    text_view text = index == editor->history_count ? buffer_text(&editor->draft)
                                                    : text_from(editor->history[index]);
    if (editor_set(editor, text))
        editor->history_at = index;
}

static void go_line(editor *editor, bool up) {
    size_t begin = line_begin(editor, editor->cursor);
    size_t end = line_end(editor, editor->cursor);
    size_t column = glyph_columns((text_view){editor->text.data + begin, editor->cursor - begin});
    if (up && begin > 0)
        editor->cursor = at_column(editor, line_begin(editor, begin - 1), column);
    else if (!up && end < editor->text.size)
        editor->cursor = at_column(editor, end + 1, column);
    else if (up && editor->history_at > 0)
        show_history(editor, editor->history_at - 1);
    else if (!up && editor->history_at < editor->history_count)
        show_history(editor, editor->history_at + 1);
}

void editor_go(editor *editor, editor_move move) {
    if (move == EDITOR_UP || move == EDITOR_DOWN)
        go_line(editor, move == EDITOR_UP);
    else
        editor->cursor = target(editor, move);
}

void editor_delete(editor *editor, editor_move move) {
    size_t other = target(editor, move);
    size_t begin = other < editor->cursor ? other : editor->cursor;
    size_t end = other < editor->cursor ? editor->cursor : other;
    if (move == EDITOR_LINE_END && begin == end && end < editor->text.size)
        end++; /* at the end of a line: joins the next */
    if (begin == end)
        return;
    if (move != EDITOR_LEFT && move != EDITOR_RIGHT) {
        editor->cut.size = 0;
        if (buffer_append(&editor->cut, editor->text.data + begin, end - begin) != AVO_OK)
            return; /* what cannot be put back is not taken */
    }
    memmove(editor->text.data + begin, editor->text.data + end, editor->text.size - end);
    editor->text.size -= end - begin;
    editor->cursor = begin;
}

bool editor_put_back(editor *editor) {
    return editor_insert(editor, buffer_text(&editor->cut));
}

static void remember(editor *editor) {
    text_view text = buffer_text(&editor->text);
    size_t count = editor->history_count;
    if (text.size == 0 || memchr(text.data, 0, text.size) != NULL ||
        (count > 0 && text_equal(text_from(editor->history[count - 1]), text)))
        return;
    char *copy = malloc(text.size + 1);
    if (copy == NULL)
        return; /* a history with a gap */
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    if (count == EDITOR_HISTORY_MAX) {
        free(editor->history[0]);
        memmove(editor->history, editor->history + 1, (count - 1) * sizeof(editor->history[0]));
        count--;
    }
    editor->history[count] = copy;
    editor->history_count = count + 1;
}

bool editor_take(editor *editor, buffer *taken) {
    taken->size = 0;
    if (buffer_append(taken, editor->text.data, editor->text.size) != AVO_OK ||
        buffer_terminate(taken) != AVO_OK)
        return false;
    remember(editor);
    editor->history_at = editor->history_count;
    editor->text.size = editor->cursor = 0;
    return true;
}
