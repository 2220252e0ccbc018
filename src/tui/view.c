/* The full screen, in ncursesw: transcript, figures, input. Everything is drawn anew from the
 * chat's state whenever something has changed; ncurses sends the terminal what differs, so this
 * works over slow lines. Keys: keys.c. */
#include "tui/glyphs.h"
#include "tui/view_int.h"

#include <curses.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PANE_COLUMNS   30
#define PANE_FROM      104 /* columns from which the figures have a pane of their own */
#define INPUT_ROWS_MAX 8
#define ROWS_MIN       8
#define COLUMNS_MIN    24

enum {
    COLOUR_USER = 1,
    COLOUR_CODE,
    COLOUR_LINK,
    COLOUR_HEADING,
    COLOUR_NOTE,
    COLOUR_GRAPH,
    COLOUR_DRAFT
};

/* ---- Text on the screen ---- */

static attr_t attributes_of(const view *view, unsigned style) {
    attr_t attributes = A_NORMAL;
    attributes |= style & (STYLE_BOLD | STYLE_HEADING) ? A_BOLD : 0;
    attributes |= style & STYLE_ITALIC ? A_ITALIC : 0;
    attributes |= style & STYLE_LINK ? A_UNDERLINE : 0;
    attributes |= style & STYLE_DIM ? A_DIM : 0;
    if (!view->colours)
        return attributes | (style & STYLE_CODE ? A_BOLD : 0) |
               (style & STYLE_DRAFT ? A_UNDERLINE : 0);
    if (style & STYLE_DRAFT)
        attributes |= COLOR_PAIR(COLOUR_DRAFT);
    else if (style & STYLE_CODE)
        attributes |= COLOR_PAIR(COLOUR_CODE);
    else if (style & STYLE_LINK)
        attributes |= COLOR_PAIR(COLOUR_LINK);
    else if (style & STYLE_HEADING)
        attributes |= COLOR_PAIR(COLOUR_HEADING);
    return attributes;
}

static attr_t coloured(const view *view, int pair, attr_t otherwise) {
    return view->colours ? (attr_t)COLOR_PAIR(pair) : otherwise;
}

/* As much of a line as fits; safe whatever it holds. */
static void put(int row, int column, int columns, text_view text, attr_t attributes) {
    attrset((int)attributes);
    move(row, column);
    for (size_t at = 0; at < text.size;) {
        glyph glyph = glyph_at(text, at);
        if (glyph.newline || (int)glyph.columns > columns)
            break;
        addnstr(glyph.shown.data, (int)glyph.shown.size);
        columns -= (int)glyph.columns;
        at += glyph.bytes;
    }
    attrset(A_NORMAL);
}

static void put_line(const view *view, const layout *layout, size_t index, int row, int column,
                     attr_t extra) {
    const layout_line *line = layout_line_at(layout, index);
    move(row, column);
    for (size_t i = 0; i < line->run_count; i++) {
        const layout_run *run = layout_run_at(layout, line->first_run + i);
        attrset((int)(attributes_of(view, run->style) | extra));
        addnstr(layout->text.data + run->begin, (int)run->bytes);
    }
    attrset(A_NORMAL);
}

/* ---- The transcript ---- */

static bool make_room(view *view) {
    size_t count = view->chat.conversation.count;
    while (view->laid_count > count)
        layout_free(&view->laid[--view->laid_count].layout);
    if (view->laid_count == count)
        return true;
    laid_message *larger = realloc(view->laid, count * sizeof(*larger));
    if (larger == NULL)
        return false;
    view->laid = larger;
    for (; view->laid_count < count; view->laid_count++) {
        memset(&larger[view->laid_count], 0, sizeof(*larger));
        layout_init(&larger[view->laid_count].layout);
    }
    return true;
}

/* As it is, with a style for what was drafted: where that lies in markdown nobody could tell. */
static avo_status lay_drafts(layout *layout, const message *message, size_t width) {
    buffer spans;
    buffer_init(&spans, NULL, LAYOUT_BYTES_MAX);
    avo_status status = AVO_OK;
    for (size_t i = 0; i < message_span_count(message) && status == AVO_OK; i++) {
        const message_span *span = message_span_at(message, i);
        styled_span styled = {span->end, span->drafted ? STYLE_DRAFT : STYLE_PLAIN};
        status = buffer_append(&spans, &styled, sizeof(styled));
    }
    styled_text text = {buffer_text(&message->text), (const styled_span *)(void *)spans.data,
                        spans.size / sizeof(styled_span)};
    AVO_THEN(status,
             layout_paragraph(layout, &text, (text_view){"", 0}, (text_view){"", 0}, width, false));
    buffer_free(&spans);
    return status;
}

static bool lay_message(laid_message *laid, const chat *chat, const message *message, int columns) {
    bool drafts = chat->show_drafts && message_span_count(message) > 0;
    if (laid->columns == columns && laid->bytes == message->text.size && laid->drafts == drafts &&
        laid->data == message->text.data && laid->speaker == message->speaker)
        return true;
    size_t width = (size_t)(columns > 6 ? columns - 3 : 3);
    text_view text = buffer_text(&message->text);
    layout_clear(&laid->layout);
    avo_status status = drafts ? lay_drafts(&laid->layout, message, width)
                        : message->speaker == SPEAKER_ASSISTANT
                            ? layout_answer(&laid->layout, chat->format, text, width)
                            : layout_plain(&laid->layout, text, STYLE_PLAIN, width);
    *laid = (laid_message){
        laid->layout, message->text.size, message->speaker, message->text.data, columns, drafts};
    return status == AVO_OK;
}

/* Lines of a message with the blank one behind it. */
static size_t lines_of(const laid_message *laid) {
    return layout_line_count(&laid->layout) + 1;
}

static void draw_message_line(const view *view, const laid_message *laid, size_t index, int row) {
    if (index + 1 == lines_of(laid))
        return;
    attr_t mark = A_DIM, text = A_NORMAL;
    const char *sign = "  ";
    if (laid->speaker == SPEAKER_USER) {
        mark = text = coloured(view, COLOUR_USER, A_BOLD);
        sign = index == 0 ? "> " : "  ";
    } else if (laid->speaker != SPEAKER_ASSISTANT) {
        mark = text = coloured(view, COLOUR_NOTE, A_DIM);
        sign = index == 0 ? "· " : "  ";
    }
    put(row, 0, 2, text_from(sign), mark);
    put_line(view, &laid->layout, index, row, 2, text);
}

static void draw_transcript(view *view, int top, int rows, int columns) {
    size_t lines = 0;
    for (size_t i = 0; i < view->laid_count; i++) {
        if (!lay_message(&view->laid[i], &view->chat, &view->chat.conversation.messages[i],
                         columns)) {
            put(top, 0, columns, text_from("Out of memory for the transcript."), A_BOLD);
            return;
        }
        lines += lines_of(&view->laid[i]);
    }
    view->lines = lines;
    view->transcript_rows = rows;
    size_t most = lines > (size_t)rows ? lines - (size_t)rows : 0;
    view->scroll = view->scroll < most ? view->scroll : most;
    size_t first = most - view->scroll;
    size_t at = 0;
    for (size_t i = 0; i < view->laid_count; i++)
        for (size_t n = 0; n < lines_of(&view->laid[i]); n++, at++)
            if (at >= first && at < first + (size_t)rows)
                draw_message_line(view, &view->laid[i], n, top + (int)(at - first));
    if (view->scroll > 0)
        put(top + rows - 1, columns > 22 ? columns - 20 : 0, 20, text_from(" ↓ more: PgDn, End "),
            A_REVERSE);
}

/* ---- Figures ---- */

static const char *bytes_text(uint64_t bytes, char *text, size_t capacity) {
    if (bytes >= (uint64_t)1 << 30)
        snprintf(text, capacity, "%.2f GiB", (double)bytes / (double)(1u << 30));
    else
        snprintf(text, capacity, "%.0f MiB", (double)bytes / (double)(1u << 20));
    return text;
}

/* The newest rates as bars of eight heights. */
static void draw_graph(const view *view, int row, int column, int columns) {
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    float highest = 1.0f;
    for (size_t i = 0; i < CHAT_RATES; i++)
        highest = view->chat.rates[i] > highest ? view->chat.rates[i] : highest;
    columns = columns < (int)CHAT_RATES ? columns : (int)CHAT_RATES;
    for (int i = 0; i < columns; i++) {
        float rate = view->chat.rates[CHAT_RATES - (size_t)columns + (size_t)i];
        size_t height = rate <= 0.0f ? 0 : 1 + (size_t)(rate / highest * 7.0f);
        put(row, column + i, 1, text_from(bars[height > 8 ? 8 : height]),
            coloured(view, COLOUR_GRAPH, A_NORMAL));
    }
}

static void put_format(int row, int column, int columns, attr_t attributes, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void put_format(int row, int column, int columns, attr_t attributes, const char *format,
                       ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    put(row, column, columns, text_from(text), attributes);
}

static void share_text(const chat_figures *figures, char *text, size_t capacity) {
    if (figures->bandwidth <= 0.0)
        snprintf(text, capacity, "–");
    else if (figures->bandwidth_share < 0.0)
        snprintf(text, capacity, "%.1f GB/s", figures->bandwidth * 1e-9);
    else
        snprintf(text, capacity, "%.1f GB/s, %.0f %%", figures->bandwidth * 1e-9,
                 figures->bandwidth_share * 100.0);
}

static void draw_pane(const view *view, const chat_figures *figures, int left, int rows) {
    const tui_options *options = &view->chat.options;
    char memory[32], share[48], adapter[CHAT_ADAPTER_TEXT];
    int inner = PANE_COLUMNS - 3;
    int row = 1;
    for (int i = 1; i < rows; i++)
        put(i, left, 1, text_from("│"), A_DIM);
    share_text(figures, share, sizeof(share));
    chat_adapter_text(&view->chat, adapter);
#define LINE(label, ...)                                                                           \
    do {                                                                                           \
        if (row < rows) {                                                                          \
            put(row, left + 2, 10, text_from(label), A_DIM);                                       \
            put_format(row++, left + 12, inner - 10, A_NORMAL, __VA_ARGS__);                       \
        }                                                                                          \
    } while (0)
    LINE("tokens/s", "%.1f", figures->rate);
    if (row < rows)
        draw_graph(view, row++, left + 2, inner);
    LINE("first", "%.0f ms", figures->first_token_seconds * 1e3);
    if (figures->drafted_tokens > 0)
        LINE("drafts", "%llu / %llu", (unsigned long long)figures->accepted_tokens,
             (unsigned long long)figures->drafted_tokens);
    LINE("context", "%u / %u", figures->context_used, figures->context_max);
    LINE("KV pages", "%u + %u / %u", figures->pages_used, figures->pages_cached, figures->pages);
    LINE("memory", "%s", bytes_text(figures->resident_bytes, memory, sizeof(memory)));
    LINE("reads", "%s", share);
    LINE("threads", "%u, %s", options->threads, options->device);
    LINE("adapter", "%s", adapter);
    LINE("sampling", "T %g  p %g", (double)view->chat.sampling.temperature,
         (double)view->chat.sampling.top_p);
#undef LINE
}

/* Two lines below the title where there is no room for a pane. */
static void draw_strip(const view *view, const chat_figures *figures, int columns) {
    char memory[32], share[48], adapter[CHAT_ADAPTER_TEXT];
    int graph = columns >= 72 ? 16 : columns >= 56 ? 8 : 0;
    share_text(figures, share, sizeof(share));
    chat_adapter_text(&view->chat, adapter);
    put_format(1, 0, columns - graph - 1, A_DIM, "%6.1f t/s  first %.0f ms  ctx %u/%u  adapter %s",
               figures->rate, figures->first_token_seconds * 1e3, figures->context_used,
               figures->context_max, adapter);
    if (graph > 0)
        draw_graph(view, 1, columns - graph, graph);
    char drafts[64] = "";
    if (figures->drafted_tokens > 0)
        snprintf(drafts, sizeof(drafts), "  drafts %llu/%llu",
                 (unsigned long long)figures->accepted_tokens,
                 (unsigned long long)figures->drafted_tokens);
    put_format(2, 0, columns, A_DIM, "KV %u+%u/%u  %s  reads %s  %u threads, %s%s",
               figures->pages_used, figures->pages_cached, figures->pages,
               bytes_text(figures->resident_bytes, memory, sizeof(memory)), share,
               view->chat.options.threads, view->chat.options.device, drafts);
}

/* ---- Input ---- */

/* Lays the input out and says where the cursor stands in it. */
static avo_status lay_input(view *view, layout *laid, int columns, int *cursor_row,
                            int *cursor_column) {
    size_t width = (size_t)(columns > 4 ? columns - 3 : 1);
    text_view all = buffer_text(&view->editor.text);
    /* Up to the cursor first: where that ends the cursor stands. */
    layout before;
    layout_init(&before);
    styled_span span = {view->editor.cursor, STYLE_PLAIN};
    styled_text cut = {{all.data, view->editor.cursor}, &span, 1};
    avo_status status =
        layout_paragraph(&before, &cut, (text_view){"", 0}, (text_view){"", 0}, width, true);
    if (status == AVO_OK) {
        span.end = all.size;
        cut.text = all;
        status = layout_paragraph(laid, &cut, (text_view){"", 0}, (text_view){"", 0}, width, true);
    }
    size_t lines = layout_line_count(&before);
    *cursor_row = (int)lines - 1;
    *cursor_column = 0;
    if (status == AVO_OK && lines > 0) {
        const layout_line *last = layout_line_at(&before, lines - 1);
        for (size_t i = 0; i < last->run_count; i++) {
            const layout_run *run = layout_run_at(&before, last->first_run + i);
            *cursor_column +=
                (int)glyph_columns((text_view){before.text.data + run->begin, run->bytes});
        }
    }
    if (cut.text.size > 0 && view->editor.cursor > 0 && all.data[view->editor.cursor - 1] == '\n') {
        *cursor_row += 1;
        *cursor_column = 0;
    }
    layout_free(&before);
    return status;
}

/* Draws the input at the bottom; returns how many rows it took. */
static int draw_input(view *view, int rows, int columns, int *cursor_row, int *cursor_column) {
    layout laid;
    layout_init(&laid);
    int at_row = 0, at_column = 0;
    int lines = 1;
    if (lay_input(view, &laid, columns, &at_row, &at_column) == AVO_OK)
        lines = (int)layout_line_count(&laid);
    lines = lines > at_row + 1 ? lines : at_row + 1;
    int most = rows / 3 < INPUT_ROWS_MAX ? rows / 3 : INPUT_ROWS_MAX;
    int shown = lines < most ? lines : most > 1 ? most : 1;
    int first = at_row >= shown ? at_row - shown + 1 : 0;
    int top = rows - shown;
    for (int i = 0; i < columns; i++)
        put(top - 1, i, 1, text_from("─"), A_DIM);
    if (view->chat.busy && view->waiting_count == 0)
        put(top - 1, 2, columns - 3, text_from(" answering: Ctrl-C stops "), A_DIM);
    else if (view->chat.busy)
        put_format(top - 1, 2, columns - 3, A_DIM, " answering: Ctrl-C stops; %zu waiting: %s ",
                   view->waiting_count, view->waiting.data);
    for (int i = 0; i < shown; i++) {
        put(top + i, 0, 2, text_from(first + i == 0 ? "> " : "  "), A_BOLD);
        if (first + i < (int)layout_line_count(&laid))
            put_line(view, &laid, (size_t)(first + i), top + i, 2, A_NORMAL);
    }
    if (view->editor.text.size == 0)
        put(top, 2, columns - 3, text_from("Type a message; /help lists commands"), A_DIM);
    *cursor_row = top + at_row - first;
    *cursor_column = 2 + at_column < columns ? 2 + at_column : columns - 1;
    layout_free(&laid);
    return shown + 1;
}

static void draw(view *view) {
    int rows, columns;
    getmaxyx(stdscr, rows, columns);
    erase();
    if (rows < ROWS_MIN || columns < COLUMNS_MIN) {
        put(0, 0, columns, text_from("too small; enlarge the window"), A_NORMAL);
        refresh();
        return;
    }
    chat_figures figures;
    chat_measure(&view->chat, &figures);
    for (int i = 0; i < columns; i++)
        put(0, i, 1, text_from(" "), A_REVERSE);
    put_format(0, 1, columns - 2, A_REVERSE | A_BOLD, "avocet  %s", view->chat.options.model_name);
    bool pane = columns >= PANE_FROM;
    int width = pane ? columns - PANE_COLUMNS : columns;
    int cursor_row, cursor_column;
    int input = draw_input(view, rows, columns, &cursor_row, &cursor_column);
    int top = pane ? 1 : 3;
    if (pane)
        draw_pane(view, &figures, width, rows - input);
    else
        draw_strip(view, &figures, columns);
    if (make_room(view) && rows - input > top)
        draw_transcript(view, top, rows - input - top, width);
    move(cursor_row, cursor_column);
    refresh();
}

/* ---- The terminal ---- */

static void begin_colours(view *view) {
    const char *no_colour = getenv("NO_COLOR");
    view->colours = (no_colour == NULL || no_colour[0] == '\0') && has_colors();
    if (!view->colours)
        return;
    start_color();
    use_default_colors();
    init_pair(COLOUR_USER, COLOR_CYAN, -1);
    init_pair(COLOUR_CODE, COLOR_GREEN, -1);
    init_pair(COLOUR_LINK, COLOR_BLUE, -1);
    init_pair(COLOUR_HEADING, COLOR_YELLOW, -1);
    init_pair(COLOUR_NOTE, COLOR_MAGENTA, -1);
    init_pair(COLOUR_GRAPH, COLOR_GREEN, -1);
    init_pair(COLOUR_DRAFT, COLOR_CYAN, -1);
}

static avo_status begin_screen(view *view, SCREEN **screen, avo_error *error) {
    if (!glyphs_locale())
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "this system has no UTF-8 locale");
    *screen = newterm(NULL, stdout, stdin);
    if (*screen == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "unknown terminal \"%s\" (TERM)",
                           getenv("TERM") == NULL ? "" : getenv("TERM"));
    set_term(*screen);
    raw(); /* Ctrl-C is a key */
    noecho();
    nonl(); /* Enter and Ctrl-J differ */
    keypad(stdscr, TRUE);
    set_escdelay(25);
    (void)define_key("\033[200~", KEY_PASTE);
    (void)define_key("\033[201~", KEY_PASTE_END);
    begin_colours(view);
    fputs("\033[?2004h", stdout);
    fflush(stdout);
    return AVO_OK;
}

static void end_screen(SCREEN *screen) {
    fputs("\033[?2004l", stdout);
    fflush(stdout);
    endwin();
    delscreen(screen);
}

avo_status tui_chat(const tui_options *options, avo_error *error) {
    view view = {0}; /* a few kilobytes */
    SCREEN *screen;
    AVO_TRY(begin_screen(&view, &screen, error));
    editor_init(&view.editor);
    buffer_init(&view.taken, NULL, EDITOR_BYTES_MAX);
    buffer_init(&view.waiting, NULL, EDITOR_BYTES_MAX);
    avo_status status = chat_open(&view.chat, options, error);
    if (status == AVO_OK && !view.chat.templated)
        chat_note(&view.chat, "This model has no chat template: it continues the text as written.");
    if (status == AVO_OK)
        view_take_typed(&view);
    while (status == AVO_OK && !view.leaving) {
        draw(&view);
        view_take_keys(&view);
        chat_collect(&view.chat);
        view_send_waiting(&view);
    }
    chat_close(&view.chat);
    end_screen(screen);
    for (size_t i = 0; i < view.laid_count; i++)
        layout_free(&view.laid[i].layout);
    free(view.laid);
    editor_free(&view.editor);
    buffer_free(&view.taken);
    buffer_free(&view.waiting);
    return status;
}
