/* Writing, finding and reading checkpoints. */
#include "train/checkpoint.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json_file.h"
#include "base/leftover.h"
#include "train/compare.h"
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
#define RUN_FILE      "run.json"
#define MOMENTS_FILE  "optimizer.safetensors"
#define WEIGHTS_KEY   "weights_digest"
#define MOMENTS_KEY   "optimizer_digest"
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

/* The largest N below `below` that is complete: it has its state file. */
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

avo_status checkpoint_find(const char *folder, uint64_t below, char *path, size_t capacity,
                           uint64_t *step, avo_error *error) {
    char found[PATH_CAPACITY];
    AVO_TRY(newest_below(folder, below, step, error));
    if (*step == 0)
        return AVO_OK;
    AVO_TRY(path_of(folder, *step, NULL, found, error));
    if ((size_t)snprintf(path, capacity, "%s", found) >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the path is too long", found);
    return AVO_OK;
}

/* ---- Removing ---- */

#define REMOVED ".removed-" /* what a checkpoint is called while its files go */

/* The renaming is what removes it: a process that is killed behind it leaves a hidden folder, which
 * the next run clears, but never half a checkpoint. */
static avo_status remove_one(const char *folder, uint64_t step, avo_error *error) {
    char path[PATH_CAPACITY], name[64], hidden[PATH_CAPACITY];
    AVO_TRY(path_of(folder, step, NULL, path, error));
    snprintf(name, sizeof(name), REMOVED PREFIX "%" PRIu64, step);
    AVO_TRY(file_join(hidden, sizeof(hidden), folder, name, error));
    folder_remove(hidden);
    if (rename(path, hidden) != 0 && errno != ENOENT)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot remove the old checkpoint: %s", path,
                           strerror(errno));
    folder_remove(hidden);
    return AVO_OK;
}

void checkpoint_clear(const char *folder) {
    char path[PATH_CAPACITY];
    DIR *opened = opendir(folder);
    avo_error ignored;
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;) {
        char name[256];
        snprintf(name, sizeof(name), "%s", entry->d_name);
        char *part = strstr(name, ".part-");
        bool removed = strncmp(name, REMOVED PREFIX, strlen(REMOVED PREFIX)) == 0;
        bool written = strncmp(name, "." PREFIX, strlen("." PREFIX)) == 0 && part != NULL;
        if (written)
            *part = '\0';
        if ((removed || written) &&
            file_join(path, sizeof(path), folder, name + (written ? 1 : 0), &ignored) == AVO_OK) {
            if (removed)
                folder_remove(path);
            else
                leftover_remove(path);
        }
    }
    if (opened != NULL)
        (void)closedir(opened);
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

#define DIGEST_TEXT 33 /* of two words */

static void digest_text(const uint64_t *words, int count, char text[DIGEST_TEXT]) {
    for (int i = 0; i < count; i++)
        snprintf(text + 16 * i, DIGEST_TEXT - 16 * (size_t)i, "%016" PRIx64, words[i]);
}

static void write_digest(json_writer *w, const char *key, const uint64_t *words, int count) {
    char text[DIGEST_TEXT];
    digest_text(words, count, text);
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

/* Digests of the weights and moments beside the state. */
typedef struct checkpoint_files {
    uint64_t weights, moments;
} checkpoint_files;

static avo_status digest_of(const char *path, uint64_t *digest, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    *digest = hash_bytes(map.bytes.data, map.bytes.size);
    file_map_close(&map);
    return AVO_OK;
}

static void write_state(const checkpoint_state *state, const checkpoint_files *files,
                        json_writer *w) {
    json_member_u64(w, "step", state->step);
    json_member_u64(w, "tokens", state->tokens);
    if (!isnan(state->best)) {
        json_member_number(w, "best", state->best);
        json_member_u64(w, "best_step", state->best_step);
    }
    write_digest(w, WEIGHTS_KEY, &files->weights, 1);
    write_digest(w, MOMENTS_KEY, &files->moments, 1);
}

/* training_state.json, or with state NULL run.json: the same without what changes. */
static avo_status write_description(const checkpoint_run *run, const checkpoint_state *state,
                                    const checkpoint_files *files, const char *folder,
                                    avo_error *error) {
    char path[PATH_CAPACITY];
    buffer text;
    AVO_TRY(file_join(path, sizeof(path), folder, state != NULL ? STATE_FILE : RUN_FILE, error));
    buffer_init(&text, run->allocator, STATE_MAX);
    json_writer w = json_writer_indented(&text, 1);
    json_object_begin(&w);
    write_run(run, &w);
    if (state != NULL)
        write_state(state, files, &w);
    json_end(&w);
    avo_status status = json_file_write(&w, path, error);
    buffer_free(&text);
    return status;
}

static avo_status fill(const checkpoint_run *run, const char *folder, const checkpoint_state *state,
                       const train_record *record, const record_state *trainer, avo_error *error) {
    char weights[PATH_CAPACITY], moments[PATH_CAPACITY];
    checkpoint_files files;
    AVO_TRY(file_join(weights, sizeof(weights), folder, output_file(run->settings), error));
    AVO_TRY(output_write(run->model, run->settings, run->parameters, true, folder, error));
    AVO_TRY(digest_of(weights, &files.weights, error));
    AVO_TRY(file_join(moments, sizeof(moments), folder, MOMENTS_FILE, error));
    AVO_TRY(output_write_arrays(moments, next_moment, run->optimizer, error));
    AVO_TRY(digest_of(moments, &files.moments, error));
    AVO_TRY(train_record_write_state(record, folder, trainer, error));
    return write_description(run, state, &files, folder, error);
}

avo_status checkpoint_write(const checkpoint_run *run, const char *folder,
                            const checkpoint_state *state, const train_record *record,
                            const record_state *trainer, avo_error *error) {
    char path[PATH_CAPACITY];
    folder_writer writer;
    AVO_TRY(path_of(folder, state->step, NULL, path, error));
    /* What is there is not the state that the run has: a damaged checkpoint that it passed over. */
    AVO_TRY(remove_one(folder, state->step, error));
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

/* What this run writes about itself against what `compare` has found. */
static avo_status compare_run(train_compare *compare, const checkpoint_run *run, arena *arena) {
    static const char *const keys[] = {"model", "data", "parameters"};
    json_value own;
    buffer text;
    buffer_init(&text, run->allocator, STATE_MAX);
    json_writer w = json_writer_of(&text);
    json_object_begin(&w);
    write_run(run, &w);
    json_end(&w);
    avo_status status = train_compare_parse(&w, arena, &own, compare->error);
    buffer_free(&text);
    AVO_TRY(status);
    compare->own = &own;
    AVO_TRY(train_compare_member(compare, "task"));
    AVO_TRY(train_compare_object(compare, "settings"));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        AVO_TRY(train_compare_member(compare, keys[i]));
    /* Parts of the loss of heads depend on it, too. */
    if (strcmp(run->settings->schedule, "constant") != 0 || run->settings->task == TRAIN_HEADS)
        AVO_TRY(train_compare_member(compare, "steps"));
    return AVO_OK;
}

static avo_status read_state(const train_compare *r, checkpoint_state *state) {
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

static avo_status read_json(const char *folder, const char *name, size_t most, arena *arena,
                            json_value *root, avo_error *error) {
    char path[PATH_CAPACITY];
    AVO_TRY(file_join(path, sizeof(path), folder, name, error));
    return json_file_read(arena, path, most, root, error);
}

/* A file of the checkpoint has the bytes that were written. */
static avo_status check_file(const json_value *root, const char *key, const char *path,
                             avo_error *error) {
    uint64_t digest;
    char text[DIGEST_TEXT];
    const json_value *there = json_find(root, key);
    AVO_TRY(digest_of(path, &digest, error));
    digest_text(&digest, 1, text);
    if (there != NULL && there->kind == JSON_STRING && text_is(there->string, text))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT,
                       "%s: digest %s, " STATE_FILE " says another one: the file is damaged", path,
                       text);
}

avo_status checkpoint_read(const checkpoint_run *run, const char *folder, arena *arena,
                           checkpoint_state *state, const json_value **log_history,
                           avo_error *error) {
    char path[PATH_CAPACITY];
    json_value root, trainer;
    AVO_TRY(read_json(folder, STATE_FILE, STATE_MAX, arena, &root, error));
    train_compare compare = {
        .allocator = run->allocator, .path = folder, .root = &root, .error = error};
    AVO_TRY(read_state(&compare, state));
    AVO_TRY(compare_run(&compare, run, arena));
    AVO_TRY(read_json(folder, "trainer_state.json", HISTORY_MAX, arena, &trainer, error));
    const json_value *history = json_find(&trainer, "log_history");
    if (history == NULL || history->kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s/trainer_state.json: log_history must be an array", folder);
    *log_history = history;
    AVO_TRY(file_join(path, sizeof(path), folder, output_file(run->settings), error));
    AVO_TRY(check_file(&root, WEIGHTS_KEY, path, error));
    AVO_TRY(output_read(run->settings, run->parameters, folder, error));
    AVO_TRY(file_join(path, sizeof(path), folder, MOMENTS_FILE, error));
    AVO_TRY(check_file(&root, MOMENTS_KEY, path, error));
    return output_read_arrays(path, next_moment, run->optimizer, error);
}

/* ---- run.json ---- */

avo_status checkpoint_compare_begun(const checkpoint_run *run, const char *folder, arena *arena,
                                    avo_error *error) {
    char path[PATH_CAPACITY];
    json_value root;
    AVO_TRY(file_join(path, sizeof(path), folder, RUN_FILE, error));
    if (file_kind_of(path) == FILE_MISSING)
        return AVO_OK;
    AVO_TRY(json_file_read(arena, path, STATE_MAX, &root, error));
    train_compare compare = {
        .allocator = run->allocator, .path = folder, .root = &root, .error = error};
    return compare_run(&compare, run, arena);
}

avo_status checkpoint_write_begun(const checkpoint_run *run, const char *folder, avo_error *error) {
    return write_description(run, NULL, NULL, folder, error);
}
