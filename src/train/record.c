/* metrics.jsonl and trainer_state.json. */
#include "train/record.h"

#include "base/file.h"
#include "base/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES ((size_t)1 << 20)

static avo_status too_long(avo_status status, const train_record *record, avo_error *error) {
    return status_fail(error, status, "%s: %s", record->path,
                       status == AVO_ERROR_MEMORY ? "out of memory"
                                                  : "the history of the run is too long");
}

static avo_status add_to_history(train_record *r, text_view line, avo_error *error) {
    avo_status status = AVO_OK;
    if (r->history.size > 0)
        status = buffer_append(&r->history, ",", 1);
    AVO_THEN(status, buffer_append(&r->history, line.data, line.size));
    return status == AVO_OK ? AVO_OK : too_long(status, r, error);
}

/* The lines of an earlier part of the run, as they were. */
static avo_status take_history(train_record *r, const json_value *lines, buffer *file,
                               avo_error *error) {
    size_t count = lines != NULL && lines->kind == JSON_ARRAY ? lines->array.count : 0;
    for (size_t i = 0; i < count; i++) {
        r->line.size = 0;
        avo_status status = json_write_value(&r->line, json_item(lines, i));
        if (status != AVO_OK)
            return too_long(status, r, error);
        AVO_TRY(add_to_history(r, buffer_text(&r->line), error));
        AVO_THEN(status, buffer_append(&r->line, "\n", 1));
        AVO_THEN(status, buffer_append(file, r->line.data, r->line.size));
        if (status != AVO_OK)
            return too_long(status, r, error);
    }
    return AVO_OK;
}

avo_status train_record_open(const avo_allocator *allocator, const char *folder,
                             const json_value *log_history, train_record *r, avo_error *error) {
    buffer file;
    *r = (train_record){.allocator = allocator, .descriptor = -1, .best = NAN};
    buffer_init(&r->history, allocator, RECORD_HISTORY_MAX);
    buffer_init(&r->line, allocator, LINE_MAX_BYTES);
    buffer_init(&file, allocator, RECORD_HISTORY_MAX);
    AVO_TRY(file_join(r->path, sizeof(r->path), folder, "metrics.jsonl", error));
    avo_status status = take_history(r, log_history, &file, error);
    AVO_THEN(status, file_write(r->path, file.data, file.size, error));
    buffer_free(&file);
    if (status == AVO_OK) {
        r->descriptor = open(r->path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (r->descriptor < 0)
            status =
                status_fail(error, AVO_ERROR_IO, "%s: cannot open: %s", r->path, strerror(errno));
    }
    if (status != AVO_OK)
        train_record_close(r);
    return status;
}

void train_record_close(train_record *r) {
    if (r->descriptor >= 0)
        (void)close(r->descriptor);
    r->descriptor = -1;
    buffer_free(&r->history);
    buffer_free(&r->line);
}

json_writer *train_record_begin(train_record *r) {
    r->line.size = 0;
    r->writer = json_writer_of(&r->line);
    json_object_begin(&r->writer);
    return &r->writer;
}

/* All bytes in one call where the system takes them: readers see whole lines. */
static avo_status append(const train_record *r, avo_error *error) {
    for (size_t done = 0; done < r->line.size;) {
        ssize_t written = write(r->descriptor, r->line.data + done, r->line.size - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", r->path,
                               strerror(errno));
        done += (size_t)written;
    }
    return AVO_OK;
}

avo_status train_record_end(train_record *r, const char **line, avo_error *error) {
    json_end(&r->writer);
    avo_status status = json_writer_status(&r->writer);
    if (status != AVO_OK)
        return too_long(status, r, error);
    AVO_TRY(add_to_history(r, buffer_text(&r->line), error));
    status = buffer_append(&r->line, "\n", 1);
    if (status != AVO_OK)
        return too_long(status, r, error);
    AVO_TRY(append(r, error));
    r->line.size--;
    status = buffer_terminate(&r->line);
    if (line != NULL)
        *line = r->line.data;
    return status == AVO_OK ? AVO_OK : too_long(status, r, error);
}

/* ---- trainer_state.json ---- */

static void write_best(const train_record *r, json_writer *w) {
    bool has = !isnan(r->best);
    if (has)
        json_member_number(w, "best_metric", r->best);
    else
        json_member_null(w, "best_metric");
    json_member_string(w, "best_model_checkpoint", has ? "best" : NULL);
    if (has)
        json_member_u64(w, "best_global_step", r->best_step);
    else
        json_member_null(w, "best_global_step");
}

avo_status train_record_write_state(const train_record *r, const char *folder,
                                    const record_state *state, avo_error *error) {
    char path[4200];
    buffer text;
    AVO_TRY(file_join(path, sizeof(path), folder, "trainer_state.json", error));
    buffer_init(&text, r->allocator, RECORD_HISTORY_MAX + 65536);
    json_writer w = json_writer_indented(&text, 1);
    json_object_begin(&w);
    write_best(r, &w);
    json_member_number(&w, "epoch", state->epoch);
    json_member_u64(&w, "eval_steps", state->eval_every);
    json_member_u64(&w, "global_step", state->step);
    json_member_boolean(&w, "is_hyper_param_search", false);
    json_member_boolean(&w, "is_local_process_zero", true);
    json_member_boolean(&w, "is_world_process_zero", true);
    json_member_array_begin(&w, "log_history");
    json_raw_items(&w, buffer_text(&r->history));
    json_end(&w);
    json_member_u64(&w, "logging_steps", 1);
    json_member_u64(&w, "max_steps", state->steps);
    json_member_u64(&w, "num_input_tokens_seen", state->tokens);
    json_member_number(&w, "num_train_epochs", ceil(state->epochs));
    json_member_u64(&w, "save_steps", state->save_every);
    json_member_u64(&w, "train_batch_size", state->batch);
    json_end(&w);
    avo_status status = json_file_write(&w, path, error);
    buffer_free(&text);
    return status;
}

/* ---- curves.svg ---- */

avo_status train_record_write_curves(const train_record *r, const char *folder, avo_error *error) {
    char path[4200];
    arena arena;
    json_value lines;
    buffer text, svg;
    AVO_TRY(file_join(path, sizeof(path), folder, "curves.svg", error));
    buffer_init(&text, r->allocator, RECORD_HISTORY_MAX + 2);
    buffer_init(&svg, r->allocator, (size_t)64 << 20);
    arena_init(&arena, r->allocator, SIZE_MAX);
    avo_status status = buffer_append(&text, "[", 1);
    AVO_THEN(status, buffer_append(&text, r->history.data, r->history.size));
    AVO_THEN(status, buffer_append(&text, "]", 1));
    if (status != AVO_OK)
        status = too_long(status, r, error);
    AVO_THEN(status, json_parse(&arena, buffer_text(&text), &lines, error));
    AVO_THEN(status, curves_draw(&lines, &svg, error));
    AVO_THEN(status, file_write(path, svg.data, svg.size, error));
    buffer_free(&text);
    buffer_free(&svg);
    arena_free(&arena);
    return status;
}
