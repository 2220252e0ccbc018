/* The chat without a screen: a line in, an answer out. For pipes, scripts, editors and dumb
 * terminals. A line that ends in a backslash goes on in the next one. */
#include "tui/chat.h"
#include "tui/glyphs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES_MAX ((size_t)1 << 20)
#define WAIT_NS        5000000

typedef struct plain {
    chat chat;
    bool terminal; /* somebody types */
    bool (*interrupted)(void);
    size_t notes; /* messages that were looked at */
} plain;

/* What could move a terminal's cursor does not reach one. */
static void print_text(FILE *file, text_view text) {
    text_view shown = text;
    bool terminal = isatty(fileno(file));
    for (size_t at = 0; terminal && at < text.size;) {
        at += glyph_printed(text, at, &shown);
        fwrite(shown.data, 1, shown.size, file);
    }
    if (!terminal)
        fwrite(text.data, 1, text.size, file);
    fflush(file);
}

/* The part of an answer from `from` on; what was drafted in cyan where a terminal shows it. */
static void print_answer(const chat *chat, const message *message, size_t from) {
    const char *no_colour = getenv("NO_COLOR");
    bool shades =
        chat->show_drafts && isatty(STDOUT_FILENO) && (no_colour == NULL || no_colour[0] == '\0');
    size_t at = from;
    for (size_t i = 0; shades && i < message_span_count(message); i++) {
        const message_span *span = message_span_at(message, i);
        if (span->end <= at)
            continue;
        fputs(span->drafted ? "\033[36m" : "", stdout);
        print_text(stdout, (text_view){message->text.data + at, span->end - at});
        fputs(span->drafted ? "\033[39m" : "", stdout);
        at = span->end;
    }
    if (message->text.size > at)
        print_text(stdout, (text_view){message->text.data + at, message->text.size - at});
}

/* Notes go to standard error: they are no part of the answer. */
static void print_notes(plain *plain) {
    const conversation *said = &plain->chat.conversation;
    plain->notes = plain->notes < said->count ? plain->notes : said->count;
    for (; plain->notes < said->count; plain->notes++)
        if (said->messages[plain->notes].speaker == SPEAKER_NOTE) {
            print_text(stderr, buffer_text(&said->messages[plain->notes].text));
            fputc('\n', stderr);
        }
}

/* Prints the answer as it comes. */
static void follow(plain *plain) {
    chat *chat = &plain->chat;
    size_t index = chat->conversation.count - 1, shown = 0;
    bool ended_line = true;
    while (chat->busy) {
        nanosleep(&(struct timespec){0, WAIT_NS}, NULL);
        if (plain->interrupted())
            chat_stop(chat);
        chat_collect(chat);
        if (index >= chat->conversation.count)
            break; /* it failed before its first word */
        text_view text = buffer_text(&chat->conversation.messages[index].text);
        print_answer(chat, &chat->conversation.messages[index], shown);
        if (text.size > shown)
            ended_line = text.data[text.size - 1] == '\n';
        shown = text.size;
    }
    if (!ended_line || shown == 0)
        putchar('\n');
    fflush(stdout);
}

/* A line, or several joined by backslashes; false at the end of the input. */
static bool read_input(plain *plain, buffer *text) {
    char *line = NULL;
    size_t capacity = 0;
    bool more = true, any = false;
    text->size = 0;
    while (more) {
        if (plain->terminal) {
            fputs(any ? "… " : "> ", stderr);
            fflush(stderr);
        }
        ssize_t bytes = getline(&line, &capacity, stdin);
        if (bytes < 0)
            break;
        any = true;
        size_t size = (size_t)bytes;
        if (size > 0 && line[size - 1] == '\n')
            size--;
        more = size > 0 && line[size - 1] == '\\';
        if (buffer_append(text, line, more ? size - 1 : size) != AVO_OK ||
            (more && buffer_append_text(text, "\n") != AVO_OK)) {
            fprintf(stderr, "a line is longer than %zu bytes\n", LINE_BYTES_MAX);
            break;
        }
    }
    free(line);
    return any;
}

avo_status tui_chat_plain(const tui_options *options, bool (*interrupted)(void), avo_error *error) {
    plain plain = {.terminal = isatty(STDIN_FILENO), .interrupted = interrupted};
    buffer line;
    buffer_init(&line, NULL, LINE_BYTES_MAX);
    avo_status status = chat_open(&plain.chat, options, error);
    while (status == AVO_OK && !plain.chat.quit && read_input(&plain, &line)) {
        chat_enter(&plain.chat, buffer_text(&line));
        if (plain.chat.busy)
            follow(&plain);
        print_notes(&plain);
        if (ferror(stdout))
            break;
        if (interrupted() && plain.terminal)
            status = status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
    }
    chat_close(&plain.chat);
    buffer_free(&line);
    return status;
}
