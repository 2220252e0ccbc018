/* What commands say and how: errors, results, untrusted text, progress, interrupts. The only file
 * of the command with state of its own: one terminal, one progress line, one interrupt flag. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- Text that others wrote ---- */

static bool harmless(uint32_t code_point) {
    return code_point >= 0x20 && !(code_point >= 0x7F && code_point < 0xA0);
}

/* Leaves out, or replaces, what could move a cursor: C0, DEL, C1 and bytes that are no UTF-8.
 * `kept` are control characters that may pass. */
static void print_harmless(FILE *file, text_view text, const char *kept, const char *replacement) {
    size_t at = 0;
    while (at < text.size) {
        uint32_t code_point = 0;
        size_t length = utf8_decode(text.data + at, text.size - at, &code_point);
        bool passes =
            length > 0 && (harmless(code_point) || (code_point != 0 && code_point < 0x20 &&
                                                    strchr(kept, (int)code_point) != NULL));
        if (passes)
            fwrite(text.data + at, 1, length, file);
        else
            fputs(replacement, file);
        at += length > 0 ? length : utf8_invalid_length(text.data + at, text.size - at);
    }
}

/* ---- Errors ---- */

/* One line, whatever the text: arguments of the user may hold control characters. Written at once,
 * because a server of `avocet train --serve` writes to the same place. */
static void print_line(const char *text) {
    char line[AVO_ERROR_TEXT_MAX + 16];
    FILE *whole = fmemopen(line, sizeof(line), "w"), *file = whole != NULL ? whole : stderr;
    cli_progress_end();
    fflush(stdout);
    fputs("avocet: ", file);
    print_harmless(file, text_from(text), "", "?");
    fputc('\n', file);
    if (whole == NULL)
        return;
    long size = ftell(whole);
    fclose(whole);
    fwrite(line, 1, size > 0 ? (size_t)size : 0, stderr);
}

int cli_fail(const avo_error *error) {
    print_line(error->text[0] != '\0' ? error->text : avo_status_text(error->status));
    return EXIT_FAILED;
}

int cli_fail_status(avo_status status, const avo_error *error) {
    if (status != AVO_ERROR_CANCELLED)
        return cli_fail(error);
    print_line("interrupted");
    return EXIT_INTERRUPTED;
}

static void print_formatted(const char *format, va_list arguments) {
    char text[AVO_ERROR_TEXT_MAX];
    vsnprintf(text, sizeof(text), format, arguments);
    print_line(text);
}

void cli_warn(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_formatted(format, arguments);
    va_end(arguments);
}

int cli_fail_text(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_formatted(format, arguments);
    va_end(arguments);
    return EXIT_FAILED;
}

int cli_usage(const cli_command *command, const char *format, ...) {
    char text[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    char line[AVO_ERROR_TEXT_MAX + 128];
    size_t length = strlen(text);
    const char *stop =
        length > 0 && (text[length - 1] == '?' || text[length - 1] == '.') ? "" : ".";
    snprintf(line, sizeof(line), "%s: %s%s See avocet %s --help", command->name, text, stop,
             command->name);
    print_line(line);
    return EXIT_USAGE;
}

/* ---- Results ---- */

static void print(text_view text) {
    fwrite(text.data, 1, text.size, stdout);
    fputc('\n', stdout);
}

static int exit_status_of(avo_status status) {
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

int cli_print_report(avo_status status, buffer *report) {
    if (status == AVO_OK) {
        if (report->size > 0 && report->data[report->size - 1] == '\n')
            report->size--;
        print(buffer_text(report));
    }
    buffer_free(report);
    return exit_status_of(status);
}

json_writer *cli_json_begin(cli_json *json) {
    buffer_init(&json->text, NULL, SIZE_MAX);
    json->writer = json_writer_of(&json->text);
    return &json->writer;
}

avo_status cli_json_end(cli_json *json) {
    avo_status status = json_writer_status(&json->writer);
    if (status == AVO_OK)
        print(buffer_text(&json->text));
    buffer_free(&json->text);
    return status;
}

int cli_json_print(cli_json *json) {
    return exit_status_of(cli_json_end(json));
}

void cli_print_untrusted(FILE *file, text_view text) {
    if (isatty(fileno(file)))
        print_harmless(file, text, "\n\t", "");
    else
        fwrite(text.data, 1, text.size, file);
}

bool cli_output_works(void) {
    return fflush(stdout) == 0 && !ferror(stdout);
}

/* The reader of a pipe is gone. */
static bool output_unread(void) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

int cli_output_finish(int status) {
    cli_progress_end();
    errno = 0;
    bool failed = fflush(stdout) != 0;
    int reason = errno;
    if (!failed && !ferror(stdout))
        return status;
    /* SIGPIPE is ignored while working, so that a broken pipe ends the work and not the process.
     * Towards the shell we then end as any other program in the pipe would. */
    if (reason == EPIPE || output_unread()) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (status != EXIT_GOOD)
        return status;
    return cli_fail_text("cannot write to standard output: %s",
                         reason != 0 ? strerror(reason) : "writing to standard output failed");
}

avo_status cli_read_input(int descriptor, const char *name, buffer *text, avo_error *error) {
    char block[65536];
    for (;;) {
        ssize_t got = read(descriptor, block, sizeof(block));
        if (got == 0)
            return AVO_OK;
        if (got < 0 && errno == EINTR && !cli_interrupted())
            continue;
        if (got < 0 && errno == EINTR)
            return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
        if (got < 0)
            return status_fail(error, AVO_ERROR_IO, "cannot read %s: %s", name, strerror(errno));
        avo_status status = buffer_append(text, block, (size_t)got);
        if (status != AVO_OK)
            return status_fail(error, status, "%s is too long (more than %zu bytes)", name,
                               text->size);
    }
}

/* ---- Progress ---- */

#define PROGRESS_PATIENCE_NS 300000000u /* what is done by then needs no bar */

static struct {
    bool shown;
    uint64_t begun_ns; /* 0: not yet */
    uint64_t drawn_ns;
    int percent;
    char what[64];
} line;

static volatile sig_atomic_t interrupts;

static int terminal_columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

static void draw_bar(const char *what, int percent) {
    int room = terminal_columns() - (int)strlen(what) - 12;
    int width = room > 40 ? 40 : room;
    fputs("\r\033[K", stderr);
    print_harmless(stderr, text_from(what), "", "?");
    fputc(' ', stderr);
    if (width >= 5) {
        fputc('[', stderr);
        for (int i = 0; i < width; i++)
            fputc(i < percent * width / 100 ? '#' : ' ', stderr);
        fputs("] ", stderr);
    }
    fprintf(stderr, "%3d%%", percent);
    fflush(stderr);
}

bool cli_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context;
    bool go_on = interrupts == 0;
    if (!isatty(STDERR_FILENO))
        return go_on;
    uint64_t now = clock_now_ns();
    bool other = strncmp(line.what, what, sizeof(line.what) - 1) != 0;
    if (other) {
        snprintf(line.what, sizeof(line.what), "%s", what);
        line.percent = 0;
    }
    int percent = total == 0 ? 0 : (int)((double)done * 100.0 / (double)total);
    percent = percent > 100 ? 100 : percent;
    if (percent < line.percent)
        percent = line.percent;
    if (line.begun_ns == 0)
        line.begun_ns = now;
    if (!line.shown && now - line.begun_ns < PROGRESS_PATIENCE_NS)
        return go_on;
    bool due = !line.shown || now - line.drawn_ns > 100000000u || (total > 0 && done >= total);
    if (!due)
        return go_on;
    line.percent = percent;
    line.drawn_ns = now;
    line.shown = true;
    draw_bar(line.what, percent);
    return go_on;
}

void cli_progress_end(void) {
    if (line.shown)
        fputs("\r\033[K", stderr);
    line.shown = false;
    line.begun_ns = 0;
    line.percent = 0;
    line.what[0] = '\0';
}

/* ---- Interrupts ---- */

static void on_interrupt(int number) {
    if (interrupts != 0) {
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupts = 1;
}

void cli_interrupt_catch(void) {
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        /* Shells start the background jobs of a script with SIGINT ignored: Ctrl-C is not for us
         * then. */
        struct sigaction inherited;
        if (sigaction(numbers[i], NULL, &inherited) == 0 && inherited.sa_handler == SIG_IGN)
            continue;
        sigaction(numbers[i], &action, NULL);
    }
}

bool cli_interrupted(void) {
    return interrupts != 0;
}

/* ---- Small things ---- */

const char *cli_bytes_text(uint64_t bytes, char *text) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    if (bytes < 1024) {
        snprintf(text, 16, "%u B", (unsigned)bytes);
        return text;
    }
    double value = (double)bytes / 1024.0;
    size_t unit = 0;
    while (value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024.0;
        unit++;
    }
    snprintf(text, 16, "%.1f %s", value, units[unit]);
    return text;
}
