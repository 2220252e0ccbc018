/* Starting the server, telling it of adapters, and ending it. */
#include "train/serve.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/process.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOST_DEFAULT   "127.0.0.1"
#define PORT_DEFAULT   "8080"
#define SESSIONS       "4" /* for people who try it; the memory is the training's */
#define KV_TOKENS      "8192"
#define DRAIN_SECONDS  "2"
#define START_SECONDS  60.0  /* until it listens: it opens no model before that */
#define ANSWER_SECONDS 120.0 /* opening the model included */
#define STOP_SECONDS   20.0
#define LINE_BYTES_MAX ((size_t)1 << 16)

void train_serve_name(const char *folder, char name[TRAIN_ADAPTER_NAME_MAX]) {
    text_view part = file_last_part(folder);
    size_t size = part.size < TRAIN_ADAPTER_NAME_MAX ? part.size : TRAIN_ADAPTER_NAME_MAX - 1;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)part.data[i];
        bool good = c < 128 && (isalnum(c) || c == '_' || (c == '.' && i > 0));
        name[i] = good ? (char)c : '-';
    }
    name[size] = '\0';
}

/* ---- The address ---- */

typedef struct serve_address {
    char host[256], port[8];
} serve_address;

static bool is_port(const char *text) {
    size_t digits = strspn(text, "0123456789");
    return digits >= 1 && digits <= 5 && text[digits] == '\0' && strtoul(text, NULL, 10) <= 65535;
}

/* "8080", "localhost:8080", "[::1]:8080". */
static avo_status read_address(const char *given, serve_address *address, avo_error *error) {
    const char *text = given != NULL ? given : "", *colon = strrchr(text, ':');
    const char *port = colon != NULL ? colon + 1 : text;
    size_t size = colon != NULL ? (size_t)(colon - text) : 0;
    bool good = size < sizeof(address->host) && (colon == NULL || size > 0);
    if (text[0] == '\0')
        port = PORT_DEFAULT;
    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    if (!good || !is_port(port))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "serve is %.200s: must be PORT or HOST:PORT, such as 8080 or "
                           "0.0.0.0:8080",
                           given);
    snprintf(address->host, sizeof(address->host), "%.*s", size > 0 ? (int)size : INT_MAX,
             size > 0 ? text : HOST_DEFAULT);
    snprintf(address->port, sizeof(address->port), "%s", port);
    return AVO_OK;
}

/* ---- The process ---- */

/* Whether it has ended by itself; then for good, and `why` says how. */
static bool has_ended(train_serve *serve, avo_error *why) {
    int status = 0;
    pid_t done = serve->process == 0 ? 0 : waitpid(serve->process, &status, WNOHANG);
    if (serve->process != 0 && done == 0)
        return false;
    if (serve->process == 0 || done < 0) /* told, or reaped by the host program */
        (void)!status_fail(why, AVO_ERROR_IO, "the server has ended");
    else
        (void)!status_fail(why, AVO_ERROR_IO, "the server has ended (%s %d)",
                           WIFSIGNALED(status) ? "signal" : "exit status",
                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    serve->process = 0;
    return true;
}

typedef struct argument_list {
    const char *items[32];
    size_t count;
} argument_list;

static void add(argument_list *list, const char *name, const char *value) {
    if (value == NULL)
        return;
    list->items[list->count++] = name;
    list->items[list->count++] = value;
}

static avo_status start(train_serve *serve, const train_serve_options *options,
                        const serve_address *address, avo_error *error) {
    const char *command = options->command != NULL ? options->command : "avocet";
    argument_list list = {.items = {"avocet", "serve", "--control"}, .count = 3};
    int ends[2];
    add(&list, "--host", address->host);
    add(&list, "--port", address->port);
    add(&list, "--adapter-root", serve->folder);
    add(&list, "--training", serve->folder);
    add(&list, "--drain-seconds", DRAIN_SECONDS);
    add(&list, "--device", options->device);
    add(&list, "--arithmetic", options->arithmetic);
    add(&list, "--config", options->config);
    add(&list, "--sessions", options->config == NULL ? SESSIONS : NULL);
    add(&list, "--kv-tokens", options->config == NULL ? KV_TOKENS : NULL);
    add(&list, "--", options->model);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return status_fail(error, AVO_ERROR_IO, "serve: cannot open a connection: %s",
                           strerror(errno));
    serve->connection = ends[0];
    const int streams[] = {ends[1], ends[1]};
    int fault = process_start(command, (char **)(uintptr_t)list.items, streams, 2, &serve->process);
    (void)close(ends[1]);
    if (fault == 0)
        return AVO_OK;
    serve->process = 0;
    return status_fail(error, AVO_ERROR_IO, "serve: cannot start %.200s: %s%s", command,
                       strerror(fault),
                       fault == ENOENT ? "; give the path of the program avocet" : "");
}

/* ---- Lines ---- */

static avo_status no_answer(train_serve *serve, avo_error *error) {
    static const struct timespec moment = {.tv_nsec = 10000000};
    /* A process that has closed its end is about to end. */
    for (int i = 0; i < 200 && serve->process != 0; i++) {
        if (has_ended(serve, error))
            return AVO_ERROR_IO;
        (void)nanosleep(&moment, NULL);
    }
    return status_fail(error, AVO_ERROR_IO, "the server has closed its connection");
}

/* One line, without its end, within the time. */
static avo_status read_line(train_serve *serve, double seconds, buffer *line, avo_error *error) {
    uint64_t begin = clock_now_ns();
    line->size = 0;
    for (;;) {
        char byte;
        struct pollfd end = {.fd = serve->connection, .events = POLLIN};
        double left = seconds - clock_seconds(begin, clock_now_ns());
        int ready = left > 0.0 ? poll(&end, 1, (int)(left * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return status_fail(error, AVO_ERROR_DEADLINE,
                               "the server has not answered within %g seconds", seconds);
        ssize_t got = recv(serve->connection, &byte, 1, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return no_answer(serve, error);
        if (byte == '\n')
            return AVO_OK;
        if (buffer_append(line, &byte, 1) != AVO_OK)
            return status_fail(error, AVO_ERROR_LIMIT, "the server's answer is too long");
    }
}

static avo_status send_line(train_serve *serve, const buffer *line, avo_error *error) {
    for (size_t done = 0; done < line->size;) {
        ssize_t sent = send(serve->connection, line->data + done, line->size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return no_answer(serve, error);
        done += (size_t)sent;
    }
    return AVO_OK;
}

/* The text of a line's member `key`; a line with "error" is that error. */
static avo_status take_member(const buffer *line, arena *arena, const char *key, const char **text,
                              avo_error *error) {
    json_value root;
    AVO_TRY(json_parse(arena, buffer_text(line), &root, error));
    const json_value *said = json_find(&root, "error");
    if (said != NULL && said->kind == JSON_STRING)
        return status_fail(error, AVO_ERROR_IO, "the server says: %.*s",
                           TEXT_ARGUMENT(said->string));
    const json_value *value = json_find(&root, key);
    if (value == NULL || value->kind != JSON_STRING)
        return status_fail(error, AVO_ERROR_FORMAT, "the server's answer has no \"%s\"", key);
    *text = arena_copy_text(arena, value->string.data, value->string.size);
    return *text != NULL ? AVO_OK : status_no_memory(error, "an answer", value->string.size);
}

/* Waits for a line and copies its member into `out`. */
static avo_status await(train_serve *serve, double seconds, const char *key, char *out,
                        size_t capacity, avo_error *error) {
    arena arena;
    buffer line;
    const char *text = "";
    arena_init(&arena, serve->allocator, 4 * LINE_BYTES_MAX);
    buffer_init(&line, serve->allocator, LINE_BYTES_MAX);
    avo_status status = read_line(serve, seconds, &line, error);
    AVO_THEN(status, take_member(&line, &arena, key, &text, error));
    if (status == AVO_OK)
        snprintf(out, capacity, "%s", text);
    buffer_free(&line);
    arena_free(&arena);
    return status;
}

/* ---- The interface ---- */

avo_status train_serve_open(train_serve *serve, const train_serve_options *options,
                            avo_error *error) {
    serve_address address;
    *serve = (train_serve){.connection = -1, .allocator = options->allocator};
    AVO_TRY(read_address(options->address, &address, error));
    if (realpath(options->output, serve->folder) == NULL)
        return status_fail(error, AVO_ERROR_IO, "%s: %s", options->output, strerror(errno));
    train_serve_name(serve->folder, serve->name);
    AVO_TRY(start(serve, options, &address, error));
    avo_status status =
        await(serve, START_SECONDS, "listening", serve->url, sizeof(serve->url), error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "serve");
}

static avo_status ask(train_serve *serve, avo_error *error) {
    buffer line;
    char name[TRAIN_ADAPTER_NAME_MAX];
    buffer_init(&line, serve->allocator, LINE_BYTES_MAX);
    json_writer w = json_writer_of(&line);
    json_object_begin(&w);
    json_member_string(&w, "load", serve->name);
    json_member_string(&w, "path", serve->folder);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    AVO_THEN(status, buffer_append_text(&line, "\n"));
    if (status != AVO_OK)
        status = status_no_memory(error, "a line", 0);
    AVO_THEN(status, send_line(serve, &line, error));
    buffer_free(&line);
    AVO_THEN(status, await(serve, ANSWER_SECONDS, "loaded", name, sizeof(name), error));
    return status;
}

void train_serve_load(train_serve *serve, uint64_t step, char *line, size_t capacity) {
    avo_error error = {0};
    line[0] = '\0';
    if (serve->process == 0)
        return; /* it has ended, which was told */
    avo_status status = has_ended(serve, &error) ? AVO_ERROR_IO : ask(serve, &error);
    if (status == AVO_ERROR_DEADLINE) /* its answer, when it comes, would be taken for another */
        train_serve_close(serve);
    if (status == AVO_OK) {
        if (!serve->loaded || serve->last.text[0] != '\0')
            snprintf(line, capacity, "%s has the adapter of step %" PRIu64 " as \"%s\"", serve->url,
                     step, serve->name);
        serve->loaded = true;
        serve->last = (avo_error){0};
        return;
    }
    if (strcmp(serve->last.text, error.text) != 0)
        snprintf(line, capacity, "serve: %s; training goes on%s", error.text,
                 serve->process > 0 ? ", with another try at the next version" : "");
    serve->last = error;
}

void train_serve_close(train_serve *serve) {
    static const struct timespec moment = {.tv_nsec = 10000000};
    avo_error ignored;
    uint64_t begin = clock_now_ns();
    if (serve->connection >= 0)
        (void)close(serve->connection);
    serve->connection = -1;
    while (serve->process != 0 && !has_ended(serve, &ignored)) {
        if (clock_seconds(begin, clock_now_ns()) > STOP_SECONDS)
            (void)kill(serve->process, SIGKILL);
        (void)nanosleep(&moment, NULL);
    }
}
