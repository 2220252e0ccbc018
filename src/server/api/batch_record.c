/* Batches on disk: FOLDER/batch_ID.json, their inputs, and what an earlier run has answered. */
#include "server/api/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_BYTES       4200
#define RECORD_BYTES_MAX ((size_t)256 << 10)
#define NAME_FORMAT      "%s/%s.json"

static const char *const names[BATCH_STATUSES] = {
    [BATCH_VALIDATING] = "validating", [BATCH_IN_PROGRESS] = "in_progress",
    [BATCH_FINALIZING] = "finalizing", [BATCH_COMPLETED] = "completed",
    [BATCH_FAILED] = "failed",         [BATCH_EXPIRED] = "expired",
    [BATCH_CANCELLING] = "cancelling", [BATCH_CANCELLED] = "cancelled"};

const char *batch_status_name(batch_status status) {
    return names[status];
}

bool batch_is_over(const batch *batch) {
    return batch->status == BATCH_COMPLETED || batch->status == BATCH_FAILED ||
           batch->status == BATCH_EXPIRED || batch->status == BATCH_CANCELLED;
}

/* ---- Writing ---- */

static void write_record(json_writer *w, const batch *batch) {
    json_object_begin(w);
    json_member_string(w, "id", batch->id);
    json_member_string(w, "owner", batch->owner);
    json_member_string(w, "endpoint", batch->endpoint->path);
    json_member_string(w, "input", batch->input);
    json_member_string(w, "output", batch->output);
    json_member_string(w, "errors", batch->errors);
    json_member_u64(w, "status", batch->status);
    json_member_i64(w, "created", batch->created);
    json_member_i64(w, "expires", batch->expires);
    json_member_i64(w, "output_seconds", batch->output_seconds);
    json_member_u64(w, "total", batch->total);
    json_member_u64(w, "done", batch->done);
    json_member_u64(w, "failed", batch->failed);
    json_member_array_begin(w, "at");
    for (int i = 0; i < BATCH_STATUSES; i++)
        json_i64(w, batch->at[i]);
    json_end(w);
    json_member_string(w, "metadata", batch->metadata);
    json_member_string(w, "problems", batch->problems);
    json_end(w);
}

avo_status batch_save(const store *store, const batch *batch, avo_error *error) {
    buffer out;
    char path[PATH_BYTES];
    buffer_init(&out, NULL, RECORD_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    write_record(&w, batch);
    avo_status status = json_writer_status(&w);
    snprintf(path, sizeof(path), NAME_FORMAT, store_folder(store), batch->id);
    status = status != AVO_OK ? status_no_memory(error, "a batch's record", out.size)
                              : file_write(path, out.data, out.size, error);
    buffer_free(&out);
    return status;
}

void batch_erase(const store *store, const batch *batch) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), NAME_FORMAT, store_folder(store), batch->id);
    (void)unlink(path);
}

/* ---- Reading ---- */

static bool copy_text(const json_value *root, const char *name, char *out, size_t capacity) {
    const json_value *value = json_find(root, name);
    if (value == NULL || value->kind != JSON_STRING || value->string.size >= capacity)
        return false;
    memcpy(out, value->string.data, value->string.size);
    out[value->string.size] = '\0';
    return strlen(out) == value->string.size;
}

static bool copy_long(const json_value *root, const char *name, char **out) {
    const json_value *value = json_find(root, name);
    *out = NULL;
    if (value == NULL || value->kind == JSON_NULL)
        return true;
    if (value->kind != JSON_STRING)
        return false;
    *out = strndup(value->string.data, value->string.size);
    return *out != NULL;
}

static bool read_number(const json_value *root, const char *name, int64_t most, int64_t *out) {
    const json_value *value = json_find(root, name);
    if (value == NULL || value->kind != JSON_INTEGER || value->integer < 0 || value->integer > most)
        return false;
    *out = value->integer;
    return true;
}

static bool read_times(const json_value *root, batch *batch) {
    const json_value *list = json_find(root, "at");
    if (list == NULL || list->kind != JSON_ARRAY || list->array.count != BATCH_STATUSES)
        return false;
    for (int i = 0; i < BATCH_STATUSES; i++) {
        if (list->array.items[i].kind != JSON_INTEGER)
            return false;
        batch->at[i] = list->array.items[i].integer;
    }
    return true;
}

static bool read_record(const json_value *root, batch *batch) {
    int64_t status = 0, total = 0, done = 0, failed = 0;
    const json_value *endpoint = json_find(root, "endpoint");
    if (endpoint == NULL || endpoint->kind != JSON_STRING ||
        (batch->endpoint = batch_endpoint_of(endpoint->string)) == NULL)
        return false;
    bool good = copy_text(root, "id", batch->id, sizeof(batch->id)) &&
                copy_text(root, "owner", batch->owner, sizeof(batch->owner)) &&
                copy_text(root, "input", batch->input, sizeof(batch->input)) &&
                copy_text(root, "output", batch->output, sizeof(batch->output)) &&
                copy_text(root, "errors", batch->errors, sizeof(batch->errors)) &&
                read_number(root, "status", BATCH_STATUSES - 1, &status) &&
                read_number(root, "created", INT64_MAX, &batch->created) &&
                read_number(root, "expires", INT64_MAX, &batch->expires) &&
                read_number(root, "output_seconds", INT64_MAX / 2, &batch->output_seconds) &&
                read_number(root, "total", BATCH_LINES_MAX, &total) &&
                read_number(root, "done", total, &done) &&
                read_number(root, "failed", total, &failed) && read_times(root, batch) &&
                copy_long(root, "metadata", &batch->metadata) &&
                copy_long(root, "problems", &batch->problems);
    batch->status = (batch_status)status;
    batch->total = (uint32_t)total;
    batch->done = (uint32_t)done;
    batch->failed = (uint32_t)failed;
    return good;
}

batch *batch_read(const store *store, const char *name) {
    char path[PATH_BYTES];
    arena arena;
    text_view text;
    json_value root;
    batch *read = calloc(1, sizeof(*read));
    arena_init(&arena, NULL, 16 * RECORD_BYTES_MAX);
    snprintf(path, sizeof(path), "%s/%s", store_folder(store), name);
    bool good = read != NULL &&
                file_read_text(&arena, path, RECORD_BYTES_MAX, &text, NULL) == AVO_OK &&
                json_parse(&arena, text, &root, NULL) == AVO_OK && root.kind == JSON_OBJECT &&
                read_record(&root, read) && strncmp(name, read->id, strlen(read->id)) == 0 &&
                strcmp(name + strlen(read->id), ".json") == 0;
    arena_free(&arena);
    if (good)
        return read;
    batch_free(read);
    return NULL;
}

void batch_free(batch *batch) {
    if (batch == NULL)
        return;
    batch_unload(batch);
    free(batch->metadata);
    free(batch->problems);
    free(batch->found);
    free(batch);
}

/* ---- Problems ---- */

void batch_problem(batch *batch, const char *code, uint32_t line, const char *text) {
    buffer out;
    buffer_init(&out, NULL, RECORD_BYTES_MAX / 2);
    avo_status status = AVO_OK;
    if (batch->found != NULL)
        status = buffer_format(&out, "%s,", batch->found);
    json_writer w = json_writer_of(&out);
    json_writer_note(&w, status);
    json_object_begin(&w);
    json_member_string(&w, "code", code);
    json_member_string(&w, "message", text);
    json_member_null(&w, "param");
    if (line > 0)
        json_member_u64(&w, "line", line);
    else
        json_member_null(&w, "line");
    json_end(&w);
    if (json_writer_status(&w) == AVO_OK && buffer_terminate(&out) == AVO_OK) {
        free(batch->found);
        batch->found = strdup(out.data);
    }
    buffer_free(&out);
}

/* ---- Loading ---- */

static bool is_blank(text_view line) {
    for (size_t i = 0; i < line.size; i++)
        if (line.data[i] != ' ' && line.data[i] != '\t' && line.data[i] != '\r' &&
            line.data[i] != '\n')
            return false;
    return true;
}

/* A line and where the next one begins. */
static text_view line_at(bytes_view bytes, size_t at, size_t *next) {
    const uint8_t *end = memchr(bytes.data + at, '\n', bytes.size - at);
    *next = end == NULL ? bytes.size : (size_t)(end - bytes.data) + 1;
    return (text_view){(const char *)bytes.data + at, *next - at};
}

/* Blank lines belong to the line before them, which JSON does not mind. */
static bool find_lines(batch *batch) {
    bytes_view bytes = batch->map.bytes;
    size_t next = 0;
    uint32_t count = 0;
    batch->lines = malloc((BATCH_LINES_MAX + 1) * sizeof(*batch->lines));
    batch->over = calloc(BATCH_LINES_MAX, 1);
    if (batch->lines == NULL || batch->over == NULL) {
        batch_problem(batch, "out_of_memory", 0, "out of memory");
        return false;
    }
    for (size_t at = 0; at < bytes.size; at = next) {
        if (is_blank(line_at(bytes, at, &next)))
            continue;
        if (count == BATCH_LINES_MAX) {
            batch_problem(batch, "too_many_lines", 0, "the input has more than 50000 lines");
            return false;
        }
        batch->lines[count++] = at;
        if (next - at > BATCH_LINE_BYTES_MAX) {
            batch_problem(batch, "line_too_long", count, "a line has at most 1048576 bytes");
            return false;
        }
    }
    batch->lines[count] = bytes.size;
    if (count == 0)
        batch_problem(batch, "empty_file", 0, "the input has no lines");
    batch->count = count;
    return count > 0;
}

/* Whole lines of an output are done; what a killed process left of one is cut off. */
static bool read_output(batches *batches, batch *batch, const char *id, uint32_t *count) {
    file_map map = {0};
    avo_error error = {0};
    *count = 0;
    if (id[0] == '\0')
        return true;
    if (store_map(batches->store, id, &map, &error) != AVO_OK)
        return false;
    size_t at = 0, next = 0, sound = 0;
    for (; at < map.bytes.size; at = next) {
        uint32_t index = 0;
        text_view line = line_at(map.bytes, at, &next);
        if (line.data[line.size - 1] != '\n' || !batch_line_index_of(batch, line, &index))
            break;
        *count += batch->over[index] == LINE_WAITS;
        batch->over[index] = LINE_ANSWERED;
        sound = next;
    }
    bool cut = sound < map.bytes.size;
    file_map_close(&map);
    return !cut || store_cut(batches->store, id, sound, &error) == AVO_OK;
}

bool batch_load(batches *batches, batch *batch) {
    avo_error error = {0};
    store_file input;
    if (!store_find(batches->store, batch->owner, batch->input, &input) ||
        store_map(batches->store, batch->input, &batch->map, &error) != AVO_OK) {
        batch_problem(batch, "input_file_missing", 0, "the input file was deleted");
        return false;
    }
    batch->loaded = true;
    batch->next = 0;
    if (!find_lines(batch))
        return false;
    if (read_output(batches, batch, batch->output, &batch->was_done) &&
        read_output(batches, batch, batch->errors, &batch->was_failed))
        return true;
    batch_problem(batch, "output_file_missing", 0, "an output file was deleted");
    return false;
}

void batch_unload(batch *batch) {
    if (batch->loaded)
        file_map_close(&batch->map);
    free(batch->lines);
    free(batch->over);
    batch->lines = NULL;
    batch->over = NULL;
    batch->loaded = false;
}
