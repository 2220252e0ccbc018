/* Folders of runs, by descriptors: what was opened is what is read. */
#include "train/runs.h"

#include "base/file.h"
#include "base/json_file.h"
#include "base/utf8.h"
#include "train/history.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define METRICS_FILE   "metrics.jsonl"
#define NOTE_FILE      "run_info.json"
#define NOTE_BYTES_MAX ((size_t)64 << 10)
#define GLANCE_BYTES   ((size_t)64 << 10) /* of the end, for the list */
#define ENTRIES_MAX    10000u             /* of a folder that are looked at */
#define FOLDER_ITSELF  "."
#define RUN_NAME_BYTES 256
#define STILL_SECONDS  60.0 /* a run without another line for so long has stopped, */
#define STILL_STEPS    10.0 /* and for so many steps */

/* ---- Opening ---- */

static bool is_name(const char *name) {
    size_t size = strlen(name);
    if (strcmp(name, FOLDER_ITSELF) == 0)
        return true;
    if (size == 0 || size >= RUN_NAME_BYTES || name[0] == '.' || strchr(name, '/') != NULL)
        return false;
    return utf8_valid_prefix(name, size) == size; /* others could not be named in JSON */
}

/* A regular file in an open folder; −1: there is none. */
static int open_file(int folder, const char *name, struct stat *facts) {
    int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && (fstat(file, facts) != 0 || !S_ISREG(facts->st_mode))) {
        (void)close(file);
        file = -1;
    }
    return file;
}

static int open_run(int root, const char *name) {
    return is_name(name) ? openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
}

static avo_status open_root(const char *folder, int *root, avo_error *error) {
    *root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *root >= 0 ? AVO_OK
                      : status_fail(error, AVO_ERROR_IO, "%s: %s", folder, strerror(errno));
}

/* The last `maximum` bytes, or fewer where the file shrinks meanwhile. */
static avo_status read_end(int file, const struct stat *facts, size_t maximum, buffer *text,
                           bool *cut, avo_error *error) {
    uint64_t size = (uint64_t)facts->st_size;
    size_t wanted = size > maximum ? maximum : (size_t)size;
    off_t from = (off_t)(size - wanted);
    *cut = from > 0;
    text->size = 0;
    if (buffer_reserve(text, wanted) != AVO_OK)
        return status_no_memory(error, "a run's metrics", wanted);
    while (text->size < wanted) {
        ssize_t got =
            pread(file, text->data + text->size, wanted - text->size, from + (off_t)text->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        text->size += (size_t)got;
    }
    return AVO_OK;
}

/* ---- One run ---- */

typedef struct run_facts {
    history_facts history;
    struct stat file;
    double age_seconds;
    uint64_t steps; /* 0: not known */
} run_facts;

static void copy_text(const json_value *root, const char *key, json_writer *w) {
    const json_value *value = json_find(root, key);
    if (value != NULL && value->kind == JSON_STRING && value->string.size < 256)
        json_member_text(w, key, value->string);
}

static void copy_count(const json_value *root, const char *key, json_writer *w, uint64_t *count) {
    const json_value *value = json_find(root, key);
    if (value == NULL || value->kind != JSON_INTEGER || value->integer < 0)
        return;
    json_member_i64(w, key, value->integer);
    if (count != NULL)
        *count = (uint64_t)value->integer;
}

/* What run_info.json says; a run without one, or with another's, has no such members. */
static avo_status write_note(int folder, json_writer *w, run_facts *facts, avo_error *error) {
    struct stat state;
    json_value root;
    arena arena;
    buffer text;
    bool cut = false;
    int file = open_file(folder, NOTE_FILE, &state);
    if (file < 0)
        return AVO_OK;
    arena_init(&arena, NULL, (size_t)4 << 20);
    buffer_init(&text, NULL, NOTE_BYTES_MAX);
    avo_status status = read_end(file, &state, NOTE_BYTES_MAX, &text, &cut, error);
    if (status == AVO_OK && json_parse(&arena, buffer_text(&text), &root, NULL) == AVO_OK) {
        copy_text(&root, "task", w);
        copy_text(&root, "model", w);
        copy_count(&root, "steps", w, &facts->steps);
        copy_count(&root, "batch", w, NULL);
    }
    buffer_free(&text);
    arena_free(&arena);
    (void)close(file);
    return status;
}

static const char *state_of(const run_facts *f) {
    if (f->steps > 0 && f->history.step >= f->steps)
        return "finished";
    double still = fmax(STILL_SECONDS, STILL_STEPS * f->history.step_time);
    return f->age_seconds < still ? "running" : "stopped";
}

static void write_facts(const run_facts *f, json_writer *w) {
    const char *state = state_of(f);
    json_member_string(w, "state", state);
    json_member_u64(w, "step", f->history.step);
    json_member_u64(w, "bytes", (uint64_t)f->file.st_size);
    json_member_fixed(w, "age_seconds", f->age_seconds, 1);
    if (f->steps > f->history.step && f->history.step_time > 0.0 && strcmp(state, "running") == 0)
        json_member_fixed(w, "seconds_left",
                          (double)(f->steps - f->history.step) * f->history.step_time, 1);
}

static double age_of(const struct stat *file) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double age = (double)(now.tv_sec - file->st_mtim.tv_sec) +
                 (double)(now.tv_nsec - file->st_mtim.tv_nsec) * 1e-9;
    return age > 0.0 ? age : 0.0;
}

/* The folder's own name where the run is the folder itself. */
static void write_names(const char *folder, const char *run, json_writer *w) {
    char whole[PATH_MAX];
    bool itself = strcmp(run, FOLDER_ITSELF) == 0;
    json_member_string(w, "run", run);
    if (itself && realpath(folder, whole) != NULL)
        json_member_text(w, "title", file_last_part(whole));
    else
        json_member_string(w, "title", run);
}

/* Behind the object's beginning: `whole` with curves. */
static avo_status write_run(int folder, int metrics, bool whole, run_facts *f, json_writer *w,
                            avo_error *error) {
    buffer text;
    bool cut = false;
    buffer_init(&text, NULL, SIZE_MAX);
    avo_status status = write_note(folder, w, f, error);
    AVO_THEN(status, read_end(metrics, &f->file, whole ? RUNS_BYTES_MAX : GLANCE_BYTES, &text, &cut,
                              error));
    if (status == AVO_OK && whole)
        status = history_write(NULL, buffer_text(&text), cut, w, &f->history, error);
    else if (status == AVO_OK)
        status = history_look(NULL, buffer_text(&text), cut, &f->history, error);
    buffer_free(&text);
    AVO_TRY(status);
    write_facts(f, w);
    if (whole) {
        json_member_u64(w, "lines", f->history.lines);
        json_member_u64(w, "skipped", f->history.skipped);
        json_member_boolean(w, "cut", cut);
    }
    return AVO_OK;
}

static avo_status write_named(const char *folder, int root, const char *run, bool whole,
                              json_writer *w, avo_error *error) {
    run_facts facts = {.steps = 0};
    int opened = open_run(root, run);
    int metrics = opened < 0 ? -1 : open_file(opened, METRICS_FILE, &facts.file);
    avo_status status = AVO_ERROR_NOT_FOUND;
    if (metrics >= 0) {
        facts.age_seconds = age_of(&facts.file);
        json_object_begin(w);
        write_names(folder, run, w);
        status = write_run(opened, metrics, whole, &facts, w, error);
        json_end(w);
        (void)close(metrics);
    } else {
        status = status_fail(error, status, "no training run is named \"%.100s\"", run);
    }
    if (opened >= 0)
        (void)close(opened);
    return status;
}

avo_status runs_show(const char *folder, const char *run, json_writer *w, avo_error *error) {
    int root;
    AVO_TRY(open_root(folder, &root, error));
    avo_status status = write_named(folder, root, run, true, w, error);
    (void)close(root);
    return status;
}

/* ---- The list ---- */

typedef struct run_entry {
    char name[RUN_NAME_BYTES];
    struct timespec changed;
} run_entry;

static bool look(int root, const char *name, run_entry *entry) {
    struct stat facts;
    int opened = open_run(root, name);
    if (opened < 0)
        return false;
    int metrics = open_file(opened, METRICS_FILE, &facts);
    (void)close(opened);
    if (metrics < 0)
        return false;
    (void)close(metrics);
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->changed = facts.st_mtim;
    return true;
}

static bool is_newer(const run_entry *a, const run_entry *b) {
    if (a->changed.tv_sec != b->changed.tv_sec)
        return a->changed.tv_sec > b->changed.tv_sec;
    if (a->changed.tv_nsec != b->changed.tv_nsec)
        return a->changed.tv_nsec > b->changed.tv_nsec;
    return strcmp(a->name, b->name) < 0;
}

/* Keeps the newest, sorted. */
static void keep(run_entry *entries, size_t *count, const run_entry *entry) {
    size_t at = *count;
    while (at > 0 && is_newer(entry, &entries[at - 1]))
        at--;
    if (at == RUNS_SHOWN_MAX)
        return;
    size_t last = *count < RUNS_SHOWN_MAX ? (*count)++ : RUNS_SHOWN_MAX - 1;
    memmove(entries + at + 1, entries + at, (last - at) * sizeof(*entries));
    entries[at] = *entry;
}

/* How many there are. */
static uint64_t find_runs(int root, run_entry *entries, size_t *count) {
    run_entry entry;
    uint64_t found = 0, seen = 0;
    int again = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again < 0 ? NULL : fdopendir(again);
    if (look(root, FOLDER_ITSELF, &entry)) {
        keep(entries, count, &entry);
        found++;
    }
    for (struct dirent *d; folder != NULL && seen < ENTRIES_MAX && (d = readdir(folder)) != NULL;
         seen++) {
        if (d->d_name[0] == '.' || !look(root, d->d_name, &entry))
            continue;
        keep(entries, count, &entry);
        found++;
    }
    if (folder != NULL)
        (void)closedir(folder);
    else if (again >= 0)
        (void)close(again);
    return found;
}

avo_status runs_list(const char *folder, json_writer *w, avo_error *error) {
    int root;
    arena arena;
    size_t count = 0;
    AVO_TRY(open_root(folder, &root, error));
    arena_init(&arena, NULL, SIZE_MAX);
    avo_status status = AVO_OK;
    run_entry *entries = arena_take_array(&arena, RUNS_SHOWN_MAX, sizeof(*entries));
    if (entries == NULL) {
        status = status_no_memory(error, "the list of runs", RUNS_SHOWN_MAX * sizeof(*entries));
    } else {
        uint64_t found = find_runs(root, entries, &count);
        json_object_begin(w);
        json_member_array_begin(w, "runs");
        for (size_t i = 0; i < count && status == AVO_OK; i++) {
            status = write_named(folder, root, entries[i].name, false, w, error);
            if (status == AVO_ERROR_NOT_FOUND) /* removed meanwhile; nothing was written */
                status = AVO_OK;
        }
        json_end(w);
        json_member_u64(w, "more", found - count);
        json_end(w);
    }
    arena_free(&arena);
    (void)close(root);
    return status;
}

/* ---- run_info.json ---- */

avo_status runs_note_write(const char *folder, const run_note *note, avo_error *error) {
    char path[4200];
    buffer text;
    AVO_TRY(file_join(path, sizeof(path), folder, NOTE_FILE, error));
    buffer_init(&text, NULL, NOTE_BYTES_MAX);
    json_writer w = json_writer_indented(&text, 1);
    json_object_begin(&w);
    json_member_string(&w, "task", note->task);
    json_member_string(&w, "model", note->model);
    json_member_u64(&w, "steps", note->steps);
    json_member_u64(&w, "batch", note->batch);
    json_end(&w);
    avo_status status = json_file_write(&w, path, error);
    buffer_free(&text);
    return status;
}
