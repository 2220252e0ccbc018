/* `avocet serve --control`: for a program that starts a server for itself, such as a training run
 * (train/serve.c has the other end). Lines of JSON on standard output and input:
 *
 *     {"listening": "http://127.0.0.1:8080"}         once, before the model is opened
 *     {"load": "mine", "path": "/runs/mine"}         asked: load or replace an adapter
 *     {"loaded": "mine"} or {"error": "…"}           the answer
 *
 * The end of the input ends the server, as SIGTERM does. Who holds the input is the operator: no
 * key is asked for. */
#include "cli/serve_int.h"

#include "base/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES_MAX ((size_t)1 << 16)
#define ARENA_MAX      (8 * LINE_BYTES_MAX)

static void say(buffer *line) {
    for (size_t done = 0; done < line->size;) {
        ssize_t written = write(STDOUT_FILENO, line->data + done, line->size - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return; /* nobody listens: the input ends, too */
        done += (size_t)written;
    }
}

static void say_member(const char *key, const char *value) {
    buffer line;
    buffer_init(&line, NULL, LINE_BYTES_MAX);
    json_writer w = json_writer_of(&line);
    json_object_begin(&w);
    json_member_string(&w, key, value);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    AVO_THEN(status, buffer_append_text(&line, "\n"));
    if (status == AVO_OK)
        say(&line);
    buffer_free(&line);
}

void serve_control_begin(serve_control *control, const server_options *options) {
    char url[SERVER_URL_MAX];
    buffer_init(&control->input, NULL, LINE_BYTES_MAX);
    server_bound_url(options, url);
    say_member("listening", url);
}

void serve_control_end(serve_control *control) {
    buffer_free(&control->input);
}

static avo_status text_of(const json_value *root, const char *key, arena *arena, const char **text,
                          avo_error *error) {
    const json_value *value = json_find(root, key);
    if (value == NULL || value->kind != JSON_STRING)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "\"%s\" is missing; a line must have \"load\" and \"path\"", key);
    *text = arena_copy_text(arena, value->string.data, value->string.size);
    return *text != NULL ? AVO_OK : status_no_memory(error, "a line", value->string.size);
}

static avo_status load(avo_registry *registry, text_view line, arena *arena, const char **name,
                       avo_error *error) {
    json_value root;
    const char *path;
    AVO_TRY(json_parse(arena, line, &root, error));
    AVO_TRY(text_of(&root, "load", arena, name, error));
    AVO_TRY(text_of(&root, "path", arena, &path, error));
    return avo_registry_load(registry, *name, path, 0, error);
}

static void obey(avo_registry *registry, text_view line) {
    arena arena;
    avo_error error = {0};
    const char *name = "";
    arena_init(&arena, NULL, ARENA_MAX);
    if (load(registry, line, &arena, &name, &error) == AVO_OK)
        say_member("loaded", name);
    else
        say_member("error", error.text);
    arena_free(&arena);
}

/* Obeys whole lines and keeps what is behind the last one. */
static void obey_lines(serve_control *control, avo_registry *registry) {
    buffer *input = &control->input;
    size_t begin = 0;
    for (size_t i = 0; i < input->size; i++) {
        if (input->data[i] != '\n')
            continue;
        obey(registry, (text_view){input->data + begin, i - begin});
        begin = i + 1;
    }
    if (begin > 0)
        memmove(input->data, input->data + begin, input->size - begin);
    input->size -= begin;
}

bool serve_control_read(serve_control *control, avo_registry *registry) {
    char part[4096];
    ssize_t got = read(STDIN_FILENO, part, sizeof(part));
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got <= 0)
        return false;
    if (buffer_append(&control->input, part, (size_t)got) != AVO_OK) {
        cli_warn("--control: a line of more than %zu bytes", LINE_BYTES_MAX);
        return false;
    }
    obey_lines(control, registry);
    return true;
}
