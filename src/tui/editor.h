/* The input: several lines of text, a cursor, a history, what was cut. Knows keys by what they do,
 * not by their codes, so that it can be tested without a terminal. */
#ifndef AVO_TUI_EDITOR_H
#define AVO_TUI_EDITOR_H

#include "base/buffer.h"

#define EDITOR_BYTES_MAX   ((size_t)1 << 20)
#define EDITOR_HISTORY_MAX 200u

typedef enum editor_move {
    EDITOR_LEFT,
    EDITOR_RIGHT,
    EDITOR_WORD_LEFT,
    EDITOR_WORD_RIGHT,
    EDITOR_LINE_BEGIN,
    EDITOR_LINE_END,
    EDITOR_UP, /* a line up; in the first line the entry before in the history */
    EDITOR_DOWN
} editor_move;

typedef struct editor {
    buffer text;
    size_t cursor;                     /* byte, at the beginning of a glyph */
    buffer cut;                        /* what Ctrl-K, -U and -W took, for Ctrl-Y */
    char *history[EDITOR_HISTORY_MAX]; /* oldest first */
    size_t history_count;
    size_t history_at; /* history_count: the text being written */
    buffer draft;      /* that text, while the history is looked at */
} editor;

void editor_init(editor *editor);
void editor_free(editor *editor);

/* False where there is no room; nothing has changed then. */
bool editor_insert(editor *editor, text_view text);
void editor_go(editor *editor, editor_move move);
/* Deletes from the cursor to where the move goes; a word or a line can be put back. */
void editor_delete(editor *editor, editor_move move);
bool editor_put_back(editor *editor);
bool editor_set(editor *editor, text_view text);

/* Ends the text: into the history (not twice in a row), and empty again. What was written lives in
 * `taken`, the caller's, until the next call. */
bool editor_take(editor *editor, buffer *taken);

#endif
