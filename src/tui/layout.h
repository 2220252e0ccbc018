/* Text laid out in lines of a given width, with styles: what the transcript is drawn from. Knows
 * nothing of terminals, so that it can be tested without one. */
#ifndef AVO_TUI_LAYOUT_H
#define AVO_TUI_LAYOUT_H

#include "chat/chat.h"

enum {
    STYLE_PLAIN = 0,
    STYLE_BOLD = 1,
    STYLE_ITALIC = 2,
    STYLE_CODE = 4,
    STYLE_LINK = 8,
    STYLE_HEADING = 16,
    STYLE_DIM = 32,  /* marks of lists, quotes and tables */
    STYLE_DRAFT = 64 /* accepted draft tokens */
};

typedef struct layout_run {
    size_t begin, bytes; /* of layout.text */
    unsigned style;
} layout_run;

typedef struct layout_line {
    size_t first_run, run_count;
} layout_line;

typedef struct layout {
    buffer text;  /* what is drawn, safe for a terminal */
    buffer runs;  /* layout_run each */
    buffer lines; /* layout_line each */
} layout;

#define LAYOUT_BYTES_MAX ((size_t)64 << 20)

void layout_init(layout *layout);
void layout_free(layout *layout);
void layout_clear(layout *layout);

size_t layout_line_count(const layout *layout);
const layout_line *layout_line_at(const layout *layout, size_t index);
const layout_run *layout_run_at(const layout *layout, size_t index);

/* Appends a piece to the line that is being made. */
AVO_MUST_USE avo_status layout_add(layout *layout, text_view text, unsigned style);
/* Ends that line, be it empty. */
AVO_MUST_USE avo_status layout_end_line(layout *layout);

/* A paragraph: text with styles, wrapped at spaces (long words anywhere). */
typedef struct styled_span {
    size_t end; /* where it ends in the text; spans ascend and cover it */
    unsigned style;
} styled_span;
typedef struct styled_text {
    text_view text;
    const styled_span *spans;
    size_t span_count;
} styled_text;

/* `first` stands before the first line, `next` before the others, both in STYLE_DIM. With
 * `verbatim` spaces at line ends stay and lines break at the last column. */
AVO_MUST_USE avo_status layout_paragraph(layout *layout, const styled_text *text, text_view first,
                                         text_view next, size_t columns, bool verbatim);

/* Everything, as it is. */
AVO_MUST_USE avo_status layout_plain(layout *layout, text_view text, unsigned style,
                                     size_t columns);
/* CommonMark with tables and strike-through (markdown.c). */
AVO_MUST_USE avo_status layout_markdown(layout *layout, text_view text, size_t columns);
/* An answer: reasoning as it is, in STYLE_DIM, and then markdown. */
AVO_MUST_USE avo_status layout_answer(layout *layout, const chat_format *format, text_view answer,
                                      size_t columns);

#endif
