/* Writing, finding and reading checkpoints. */
#include "train/checkpoint.h"

#include "base/file.h"
#include "base/json_writer.h"
#include "train/output.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX        "checkpoint-"
#define STATE_FILE    "training_state.json"
#define MOMENTS_FILE  "optimizer.safetensors"
#define STATE_MAX     ((size_t)1 << 20)
#define HISTORY_MAX   (RECORD_HISTORY_MAX + 65536)
#define PATH_CAPACITY 4400

/* ---- Moments ---- */

/* What optimizer_state_at lists, without gaps. */
static bool next_moment(const void *context, uint32_t index, output_array *array) {
    optimizer *optimizer = (void *)(uintptr_t)context;
    optimizer_state state;
    uint32_t found = 0;
    for (uint32_t i = 0; optimizer_state_at(optimizer, i, &state); i++) {
        if (state.data == NULL || found++ < index)
            continue;
        *array = (output_array){
            .rows = state.parameter->rows, .k = state.parameter->k, .data = state.data};
        snprintf(array->name, sizeof(array->name), "%s.%s", state.kind, state.parameter->name);
        return true;
    }
    return false;
}

/* ---- Folders ---- */

/* N of "checkpoint-N"; 0: another name. */
static uint64_t step_of(const char *name) {
    uint64_t step = 0;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return 0;
    name += strlen(PREFIX);
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (name[i] < '0' || name[i] > '9' || i >= 18)
            return 0;
        step = step * 10 + (uint64_t)(name[i] - '0');
    }
    return step;
}

static avo_status path_of(const char *folder, uint64_t step, const char *file, char *path,
                          avo_error *error) {
    char name[64];
    snprintf(name, sizeof(name), PREFIX "%" PRIu64 "%s%s", step, file != NULL ? "/" : "",
             file != NULL ? file : "");
    return file_join(path, PATH_CAPACITY, folder, name, error);
}

/* The largest N below `below` with its state file in place: that file is the last to be written and
 * the first to be removed. */
static avo_status newest_below(const char *folder, uint64_t below, uint64_t *step,
                               avo_error *error) {
    char path[PATH_CAPACITY];
    *step = 0;
    DIR *opened = opendir(folder);
    if (opened == NULL)
        return errno == ENOENT ? AVO_OK
                               : status_fail(error, AVO_ERROR_IO, "%s: cannot read the folder: %s",
                                             folder, strerror(errno));
    avo_status status = AVO_OK;
    for (struct dirent *entry; status == AVO_OK && (entry = readdir(opened)) != NULL;) {
        uint64_t found = step_of(entry->d_name);
        if (found <= *step || found >= below)
            continue;
        status = path_of(folder, found, STATE_FILE, path, error);
        if (status == AVO_OK && file_kind_of(path) == FILE_REGULAR)
            *step = found;
    }
    (void)closedir(opened);
    return status;
}

avo_status checkpoint_find(const char *folder, char *path, size_t capacity, uint64_t *step,
                           avo_error *error) {
    char found[PATH_CAPACITY];
    AVO_TRY(newest_below(folder, UINT64_MAX, step, error));
    if (*step == 0)
        return AVO_OK;
    AVO_TRY(path_of(folder, *step, NULL, found, error));
    if ((size_t)snprintf(path, capacity, "%s", found) >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the path is too long", found);
    return AVO_OK;
}

/* Removes the files of a checkpoint, its state first. What cannot be removed stays: it is no
 * checkpoint any more. */
static avo_status remove_one(const char *folder, uint64_t step, avo_error *error) {
    char path[PATH_CAPACITY];
    AVO_TRY(path_of(folder, step, STATE_FILE, path, error));
    (void)unlink(path);
    AVO_TRY(path_of(folder, step, NULL, path, error));
    DIR *opened = opendir(path);
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;)
        (void)unlinkat(dirfd(opened), entry->d_name, 0);
    if (opened != NULL)
        (void)closedir(opened);
    (void)rmdir(path);
    return AVO_OK;
}

static avo_status remove_old(const char *folder, uint32_t keep, avo_error *error) {
    uint64_t below = UINT64_MAX;
    for (uint32_t kept = 0; kept < keep; kept++) {
        uint64_t step;
        AVO_TRY(newest_below(folder, below, &step, error));
        if (step == 0)
            return AVO_OK;
        below = step;
    }
    for (;;) {
        uint64_t step;
        AVO_TRY(newest_below(folder, below, &step, error));
        if (step == 0)
            return AVO_OK;
        AVO_TRY(remove_one(folder, step, error));
    }
}

/* ---- training_state.json ---- */

static void write_digest(json_writer *w, const char *key, const uint64_t *words, int count) {
    char text[40] = "";
    for (int i = 0; i < count; i++)
        snprintf(text + 16 * i, sizeof(text) - 16 * (size_t)i, "%016" PRIx64, words[i]);
    json_member_string(w, key, text);
}

static void write_run(const checkpoint_run *run, json_writer *w) {
    const train_settings *s = run->settings;
    json_member_u64(w, "version", CHECKPOINT_VERSION);
    json_member_string(w, "task", train_task_name(s->task));
    json_member_string(w, "avocet", avo_version());
    write_digest(w, "model", &run->model_digest, 1);
    write_digest(w, "data", run->data_digest, 2);
    json_member_u64(w, "parameters", run->parameters->numbers);
    json_member_u64(w, "steps", run->steps);
    json_member_object_begin(w, "settings");
    train_settings_write(s, true, w);
    json_end(w);
}

static avo_status write_state(const checkpoint_run *run, const checkpoint_state *state,
                              const char *folder, avo_error *error) {
    char path[PATH_CAPACITY];
    buffer text;
    AVO_TRY(file_join(path, sizeof(path), folder, STATE_FILE, error));
    buffer_init(&text, run->allocator, STATE_MAX);
    json_writer w = json_writer_indented(&text, 1);
    json_object_begin(&w);
    write_run(run, &w);
    json_member_u64(&w, "step", state->step);
    json_member_u64(&w, "tokens", state->tokens);
    if (!isnan(state->best)) {
        json_member_number(&w, "best", state->best);
        json_member_u64(&w, "best_step", state->best_step);
    }
    json_end(&w);
    avo_status status = json_writer_status(&w);
    AVO_THEN(status, buffer_append(&text, "\n", 1));
    if (status != AVO_OK)
        status = status_fail(error, status, "%s: %s", path, avo_status_text(status));
    else
        status = file_write(path, text.data, text.size, error);
    buffer_free(&text);
    return status;
}

static avo_status fill(const checkpoint_run *run, const char *folder, const checkpoint_state *state,
                       const train_record *record, const record_state *trainer, avo_error *error) {
    char path[PATH_CAPACITY];
    AVO_TRY(output_write(run->model, run->settings, run->parameters, folder, error));
    AVO_TRY(file_join(path, sizeof(path), folder, MOMENTS_FILE, error));
    AVO_TRY(output_write_arrays(path, next_moment, run->optimizer, error));
    AVO_TRY(train_record_write_state(record, folder, trainer, error));
    return write_state(run, state, folder, error);
}

avo_status checkpoint_write(const checkpoint_run *run, const char *folder,
                            const checkpoint_state *state, const train_record *record,
                            const record_state *trainer, avo_error *error) {
    char path[PATH_CAPACITY];
    folder_writer writer;
    AVO_TRY(path_of(folder, state->step, NULL, path, error));
    AVO_TRY(folder_writer_open(&writer, path, error));
    avo_status status = fill(run, writer.temporary, state, record, trainer, error);
    if (status != AVO_OK) {
        folder_writer_abort(&writer);
        return status_prefix(error, status, "checkpoint %" PRIu64, state->step);
    }
    AVO_TRY(folder_writer_commit(&writer, error));
    return remove_old(folder, run->settings->keep, error);
}

/* ---- Reading ---- */

typedef struct state_reader {
    const checkpoint_run *run;
    const char *path; /* of the checkpoint */
    const json_value *root;
    avo_error *error;
} state_reader;

static avo_status differs(const state_reader *r, const char *what, text_view there,
                          text_view here) {
    return status_fail(r->error, AVO_ERROR_ARGUMENT,
                       "%s was made with %s %.*s, this run has %.*s; continue with the same "
                       "settings, model and data, or choose another output",
                       r->path, what, (int)(there.size < 200 ? there.size : 200), there.data,
                       (int)(here.size < 200 ? here.size : 200), here.data);
}

/* Both as JSON texts. */
static avo_status compare(const state_reader *r, const char *what, const json_value *there,
                          const json_value *here) {
    buffer a, b;
    buffer_init(&a, r->run->allocator, STATE_MAX);
    buffer_init(&b, r->run->allocator, STATE_MAX);
    const json_value none = {.kind = JSON_NULL};
    avo_status status = json_write_value(&a, there != NULL ? there : &none);
    AVO_THEN(status, json_write_value(&b, here != NULL ? here : &none));
    if (status != AVO_OK)
        status = status_fail(r->error, status, "%s: %s", r->path, avo_status_text(status));
    else if (a.size != b.size || memcmp(a.data, b.data, a.size) != 0)
        status = differs(r, what, buffer_text(&a), buffer_text(&b));
    buffer_free(&a);
    buffer_free(&b);
    return status;
}

/* What this run would write, parsed again, against what is there. */
static avo_status compare_run(const state_reader *r, arena *arena) {
    static const char *const keys[] = {"task", "model", "data", "parameters"};
    json_value own;
    buffer text;
    buffer_init(&text, r->run->allocator, STATE_MAX);
    json_writer w = json_writer_of(&text);
    json_object_begin(&w);
    write_run(r->run, &w);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    char *copy = status == AVO_OK ? arena_copy_text(arena, text.data, text.size) : NULL;
    size_t bytes = text.size;
    buffer_free(&text);
    if (copy == NULL)
        return status_no_memory(r->error, "settings", bytes);
    AVO_TRY(json_parse(arena, (text_view){copy, bytes}, &own, r->error));
    const json_value *settings = json_find(r->root, "settings");
    const json_value *own_settings = json_find(&own, "settings");
    if (settings == NULL || settings->kind != JSON_OBJECT)
        return status_fail(r->error, AVO_ERROR_FORMAT, "%s: %s has no settings", r->path,
                           STATE_FILE);
    for (size_t i = 0; i < own_settings->object.count; i++) {
        const json_member *member = &own_settings->object.members[i];
        char name[JSON_SHOWN_KEY_MAX];
        AVO_TRY(compare(r, json_shown_key(member->key, name), json_find_text(settings, member->key),
                        &member->value));
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        AVO_TRY(compare(r, keys[i], json_find(r->root, keys[i]), json_find(&own, keys[i])));
    if (strcmp(r->run->settings->schedule, "constant") != 0)
        AVO_TRY(compare(r, "steps", json_find(r->root, "steps"), json_find(&own, "steps")));
    return AVO_OK;
}

static avo_status read_state(const state_reader *r, checkpoint_state *state) {
    int64_t version = 0, step = 0, tokens = 0, best_step = 0;
    state->best = NAN;
    AVO_TRY(json_get_integer(r->root, "version", 0, INT64_MAX, &version, r->error));
    if (version != CHECKPOINT_VERSION)
        return status_fail(r->error, AVO_ERROR_UNSUPPORTED,
                           "%s: version %" PRId64 " of checkpoints, this program reads %d", r->path,
                           version, CHECKPOINT_VERSION);
    AVO_TRY(json_get_integer(r->root, "step", 1, INT64_MAX, &step, r->error));
    AVO_TRY(json_get_integer(r->root, "tokens", 0, INT64_MAX, &tokens, r->error));
    AVO_TRY(json_get_integer(r->root, "best_step", 0, INT64_MAX, &best_step, r->error));
    AVO_TRY(json_get_number(r->root, "best", -1e300, 1e300, &state->best, r->error));
    state->step = (uint64_t)step;
    state->tokens = (uint64_t)tokens;
    state->best_step = (uint64_t)best_step;
    return AVO_OK;
}

/* A JSON file whose text stays in the arena. */
static avo_status read_json(const char *folder, const char *name, size_t most, arena *arena,
                            json_value *root, avo_error *error) {
    char path[PATH_CAPACITY];
    file_map map;
    AVO_TRY(file_join(path, sizeof(path), folder, name, error));
    AVO_TRY(file_map_open(path, &map, error));
    avo_status status = AVO_OK;
    char *text = NULL;
    if (map.bytes.size > most)
        status = status_fail(error, AVO_ERROR_LIMIT, "%s: %zu bytes, must be at most %zu", path,
                             map.bytes.size, most);
    else if ((text = arena_copy_text(arena, (const char *)map.bytes.data, map.bytes.size)) == NULL)
        status = status_no_memory(error, path, map.bytes.size);
    size_t bytes = map.bytes.size;
    file_map_close(&map);
    AVO_TRY(status);
    status = json_parse(arena, (text_view){text, bytes}, root, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", path);
}

avo_status checkpoint_read(const checkpoint_run *run, const char *folder, arena *arena,
                           checkpoint_state *state, const json_value **log_history,
                           avo_error *error) {
    char path[PATH_CAPACITY];
    json_value root, trainer;
    AVO_TRY(read_json(folder, STATE_FILE, STATE_MAX, arena, &root, error));
    state_reader reader = {run, folder, &root, error};
    AVO_TRY(read_state(&reader, state));
    AVO_TRY(compare_run(&reader, arena));
    AVO_TRY(read_json(folder, "trainer_state.json", HISTORY_MAX, arena, &trainer, error));
    const json_value *history = json_find(&trainer, "log_history");
    if (history == NULL || history->kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s/trainer_state.json: log_history must be an array", folder);
    *log_history = json_find(&trainer, "log_history");
    AVO_TRY(output_read(run->settings, run->parameters, folder, error));
    AVO_TRY(file_join(path, sizeof(path), folder, MOMENTS_FILE, error));
    return output_read_arrays(path, next_moment, run->optimizer, error);
}
