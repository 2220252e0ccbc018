/* The samples file: JSON Lines with lm-eval's keys, one line for each document and filter.
 *
 * A document's lines are appended as soon as it is answered, all at once, so that a process that is
 * killed loses only documents in flight and leaves at most one incomplete line, which the next run
 * cuts off. A complete run puts the lines into the order of the documents: its file is the same
 * bytes however often it was resumed.
 *
 * "digest" covers the document's prompt, its answer, the task, the
 * model and its adapters: a file is continued only where all of them are the same. Responses are
 * read back and scored again; only pass@1 is taken over. */
#include "eval/run.h"

#include "base/allocator.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Digests ---- */

static void add_text(hash_stream *stream, text_view text) {
    uint64_t size = text.size;
    hash_stream_add(stream, &size, sizeof(size));
    hash_stream_add(stream, text.data, text.size);
}

/* What was asked, whatever the model. */
static void add_texts(const eval_item *item, hash_stream *stream) {
    add_text(stream, item->context);
    add_text(stream, item->target);
    for (uint32_t i = 0; i < item->choices; i++)
        add_text(stream, item->choice[i]);
}

static uint64_t prompt_hash(const eval_item *item) {
    hash_stream stream;
    hash_stream_begin(&stream);
    add_texts(item, &stream);
    return hash_stream_sum(&stream);
}

static uint64_t item_digest(const eval_run *run, uint32_t index) {
    const eval_item *item = &run->items.item[index];
    hash_stream stream;
    hash_stream_begin(&stream);
    hash_stream_add(&stream, &run->settings, sizeof(run->settings));
    add_texts(item, &stream);
    for (uint32_t i = 0; i < item->queries; i++) {
        const eval_query *query = &run->items.query[item->first_query + i];
        hash_stream_add(&stream, &query->from, sizeof(query->from));
        hash_stream_add(&stream, query->tokens, query->count * sizeof(query->tokens[0]));
    }
    return hash_stream_sum(&stream);
}

static void digest_text(uint64_t digest, char text[static 17]) {
    snprintf(text, 17, "%016llx", (unsigned long long)digest);
}

/* ---- Writing ---- */

static text_view continuation(const eval_run *run, const eval_item *item, uint32_t choice) {
    return run->task->kind == TASK_CHOICE ? item->choice[choice] : item->target;
}

static void write_arguments(const eval_run *run, const eval_item *item, json_writer *w) {
    char name[32];
    json_member_object_begin(w, "arguments");
    for (uint32_t i = 0; i < item->queries; i++) {
        snprintf(name, sizeof(name), "gen_args_%u", i);
        json_member_object_begin(w, name);
        json_member_text(w, "arg_0", item->context);
        if (run->task->kind != TASK_GENERATE)
            json_member_text(w, "arg_1", continuation(run, item, i));
        json_end(w);
    }
    json_end(w);
}

static void write_responses(const eval_run *run, const eval_item *item,
                            const eval_response *responses, json_writer *w) {
    json_member_array_begin(w, "resps");
    for (uint32_t i = 0; i < item->queries; i++) {
        json_array_begin(w);
        if (run->task->kind == TASK_GENERATE) {
            json_text(w, responses[i].text);
        } else {
            json_array_begin(w);
            json_number(w, responses[i].logprob);
            json_boolean(w, responses[i].greedy);
            json_end(w);
        }
        json_end(w);
    }
    json_end(w);
}

static avo_status write_line(eval_run *run, uint32_t index, uint32_t filter,
                             const eval_response *responses, avo_error *error) {
    const eval_task *task = run->task;
    const eval_item *item = &run->items.item[index];
    json_writer w = json_writer_of(&run->line);
    text_view filtered;
    char digest[17];
    digest_text(item_digest(run, index), digest);
    json_object_begin(&w);
    json_member_u64(&w, "doc_id", index);
    json_member_string(&w, "digest", digest);
    digest_text(prompt_hash(item), digest);
    json_member_string(&w, "prompt_hash", digest);
    json_member_tree(&w, "doc", &run->documents->document[index]);
    if (task->kind == TASK_CHOICE)
        json_member_u64(&w, "target", item->gold);
    else
        json_member_text(&w, "target", item->target);
    write_arguments(run, item, &w);
    write_responses(run, item, responses, &w);
    if (task->kind == TASK_GENERATE) {
        AVO_TRY(task_filter_apply(&task->filter[filter], responses[0].text, &filtered, error));
        json_member_array_begin(&w, "filtered_resps");
        json_text(&w, filtered);
        json_end(&w);
    }
    json_member_text(&w, "filter", task->filter[filter].name);
    json_member_array_begin(&w, "metrics");
    for (uint32_t i = 0; i < task->metrics; i++)
        json_string(&w, task_metric_name(task->metric[i]));
    json_end(&w);
    for (uint32_t i = 0; i < task->metrics; i++)
        json_member_number(&w, task_metric_name(task->metric[i]),
                           run->score[(size_t)index * run->scores + filter * task->metrics + i]);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append(&run->line, "\n", 1);
}

static avo_status write_all(const eval_run *run, avo_error *error) {
    const char *data = run->line.data;
    size_t left = run->line.size;
    while (left > 0) {
        ssize_t written = write(run->samples, data, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s",
                               run->options.samples_path, strerror(errno));
        data += written;
        left -= (size_t)written;
    }
    return AVO_OK;
}

avo_status samples_write(eval_run *run, uint32_t item, const eval_response *responses,
                         avo_error *error) {
    if (run->samples < 0)
        return AVO_OK;
    run->line.size = 0;
    for (uint32_t filter = 0; filter < run->task->filters; filter++) {
        avo_status status = write_line(run, item, filter, responses, error);
        if (status == AVO_ERROR_MEMORY)
            return status_no_memory(error, "a sample", run->line.size);
        AVO_TRY(status);
    }
    return write_all(run, error);
}

avo_status samples_close(eval_run *run, avo_error *error) {
    if (run->samples < 0)
        return AVO_OK;
    bool failed = fsync(run->samples) != 0 && errno != EINVAL;
    int why = errno;
    failed = close(run->samples) != 0 || failed;
    run->samples = -1;
    if (failed)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", run->options.samples_path,
                           strerror(why));
    return AVO_OK;
}

/* ---- Reading what an earlier run has left ---- */

static avo_status damaged(const eval_run *run, uint32_t index, avo_error *error) {
    return status_fail(error, AVO_ERROR_FORMAT,
                       "%s: the sample of document %u is damaged; remove the file or run without "
                       "--resume",
                       run->options.samples_path, index + 1);
}

static bool read_response(const eval_run *run, const json_value *found, eval_response *response) {
    const json_value *value = json_item(found, 0);
    if (value == NULL)
        return false;
    if (run->task->kind == TASK_GENERATE) {
        response->text = value->kind == JSON_STRING ? value->string : (text_view){"", 0};
        return value->kind == JSON_STRING;
    }
    const json_value *logprob = json_item(value, 0), *greedy = json_item(value, 1);
    if (logprob == NULL || greedy == NULL || greedy->kind != JSON_BOOLEAN ||
        (logprob->kind != JSON_NUMBER && logprob->kind != JSON_INTEGER))
        return false;
    response->logprob = logprob->kind == JSON_NUMBER ? logprob->number : (double)logprob->integer;
    response->greedy = greedy->boolean;
    return true;
}

static bool read_passed(const eval_run *run, const json_value *line, uint32_t filter,
                        double *passed) {
    for (uint32_t i = 0; i < run->task->metrics; i++) {
        const json_value *value = json_find(line, task_metric_name(run->task->metric[i]));
        if (value == NULL || (value->kind != JSON_INTEGER && value->kind != JSON_NUMBER))
            return false;
        passed[filter * run->task->metrics + i] =
            value->kind == JSON_INTEGER ? (double)value->integer : value->number;
    }
    return true;
}

static avo_status check_line(const eval_run *run, const json_value *line, uint32_t index,
                             avo_error *error) {
    const json_value *id = json_find(line, "doc_id"), *digest = json_find(line, "digest");
    char wanted[17];
    if (id == NULL || id->kind != JSON_INTEGER || id->integer != (int64_t)index || digest == NULL ||
        digest->kind != JSON_STRING)
        return damaged(run, index, error);
    digest_text(item_digest(run, index), wanted);
    if (text_is(digest->string, wanted))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "%s: document %u was answered with another model, task, data or option; "
                       "give another file or run without --resume",
                       run->options.samples_path, index + 1);
}

/* The lines of one item, one for each filter. */
static avo_status restore_item(eval_run *run, const text_view *lines, uint32_t index,
                               avo_error *error) {
    arena scratch;
    json_value line;
    eval_response responses[TASK_CHOICES_MAX] = {{0}};
    double passed[TASK_SCORES_MAX] = {0};
    const eval_item *item = &run->items.item[index];
    avo_status status = run->have[index] ? damaged(run, index, error) : AVO_OK;
    arena_init(&scratch, run->allocator, SIZE_MAX);
    for (uint32_t filter = 0; status == AVO_OK && filter < run->task->filters; filter++) {
        status = json_parse(&scratch, lines[filter], &line, error);
        if (status == AVO_ERROR_FORMAT)
            status = damaged(run, index, error);
        AVO_THEN(status, check_line(run, &line, index, error));
        if (status == AVO_OK && !read_passed(run, &line, filter, passed))
            status = damaged(run, index, error);
        for (uint32_t i = 0; status == AVO_OK && i < item->queries; i++)
            if (!read_response(run, json_item(json_find(&line, "resps"), i), &responses[i]))
                status = damaged(run, index, error);
    }
    AVO_THEN(status, eval_score(run, index, responses, passed,
                                run->score + (size_t)index * run->scores, error));
    arena_free(&scratch);
    if (status == AVO_OK) {
        run->have[index] = true;
        run->done++;
    }
    return status;
}

/* The document that a line is of. Lines begin with it, so that they need not be parsed for that. */
static bool line_document(text_view line, uint32_t *index) {
    uint64_t number = 0;
    size_t digits = 0;
    if (!text_take(&line, "{\"") || !text_take(&line, "doc_id") || !text_take(&line, "\":"))
        return false;
    for (; digits < line.size && line.data[digits] >= '0' && line.data[digits] <= '9' &&
           number < DOCUMENTS_MAX;
         digits++)
        number = number * 10 + (uint64_t)(line.data[digits] - '0');
    *index = (uint32_t)number;
    return digits > 0 && number < DOCUMENTS_MAX && digits < line.size && line.data[digits] == ',';
}

/* Complete items; *kept is where the last one ends. Those of a run of more documents are left. */
static avo_status restore(eval_run *run, text_view text, size_t *kept, avo_error *error) {
    text_view lines[TASK_FILTERS_MAX], rest = text;
    uint32_t have = 0, index = 0, number = 0;
    *kept = 0;
    while (rest.size > 0) {
        const char *newline = memchr(rest.data, '\n', rest.size);
        if (newline == NULL)
            break;
        lines[have] = (text_view){rest.data, (size_t)(newline - rest.data)};
        rest = (text_view){newline + 1, rest.size - lines[have].size - 1};
        number++;
        if (!line_document(lines[have], &index))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: line %u is no sample; remove the file or run without --resume",
                               run->options.samples_path, number);
        if (++have < run->task->filters)
            continue;
        if (index < run->items.count)
            AVO_TRY(restore_item(run, lines, index, error));
        have = 0;
        *kept = text.size - rest.size;
    }
    run->restored = run->done;
    return AVO_OK;
}

static avo_status restore_file(eval_run *run, size_t *kept, avo_error *error) {
    file_map map;
    *kept = 0;
    if (file_kind_of(run->options.samples_path) == FILE_MISSING)
        return AVO_OK;
    AVO_TRY(file_map_open(run->options.samples_path, &map, error));
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    avo_status status = text.size == 0 ? AVO_OK : restore(run, text, kept, error);
    file_map_close(&map);
    return status;
}

/* A run may take hours, and --data or --against may name the same file by mistake: nothing that has
 * contents is replaced. */
static avo_status refuse_contents(const char *path, avo_error *error) {
    struct stat found;
    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "%s: exists and is not empty; resume its run, remove it, or choose another "
                       "file for the samples",
                       path);
}

avo_status samples_open(eval_run *run, avo_error *error) {
    const char *path = run->options.samples_path;
    size_t kept = 0;
    if (path == NULL)
        return AVO_OK;
    if (run->options.resume)
        AVO_TRY(restore_file(run, &kept, error));
    else
        AVO_TRY(refuse_contents(path, error));
    run->samples = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (kept == 0 ? O_TRUNC : 0), 0666);
    if (run->samples < 0 || ftruncate(run->samples, (off_t)kept) != 0 ||
        lseek(run->samples, 0, SEEK_END) < 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", path, strerror(errno));
    return AVO_OK;
}

/* ---- The order of the documents ---- */

typedef struct sample_line {
    uint32_t index, place; /* in the file */
    text_view text;
} sample_line;

static int by_document(const void *left, const void *right) {
    const sample_line *a = left, *b = right;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* False: they are in order already. */
static bool find_lines(text_view text, sample_line *lines, uint32_t *count) {
    bool moved = false;
    *count = 0;
    while (text.size > 0) {
        const char *newline = memchr(text.data, '\n', text.size);
        size_t bytes = newline == NULL ? text.size : (size_t)(newline - text.data) + 1;
        sample_line line = {.place = *count, .text = {text.data, bytes}};
        (void)line_document(line.text, &line.index);
        moved = moved || (*count > 0 && line.index < lines[*count - 1].index);
        lines[(*count)++] = line;
        text = (text_view){text.data + bytes, text.size - bytes};
    }
    return moved;
}

static avo_status write_lines(const char *path, const sample_line *lines, uint32_t count,
                              avo_error *error) {
    file_writer writer;
    AVO_TRY(file_writer_open(&writer, path, error));
    avo_status status = AVO_OK;
    for (uint32_t i = 0; status == AVO_OK && i < count; i++)
        status = file_writer_append(&writer, lines[i].text.data, lines[i].text.size, error);
    if (status == AVO_OK)
        return file_writer_commit(&writer, error);
    file_writer_abort(&writer);
    return status;
}

static avo_status sort_file(const eval_run *run, avo_error *error) {
    const char *path = run->options.samples_path;
    file_map map;
    uint32_t count = 0;
    if (file_kind_of(path) != FILE_REGULAR)
        return AVO_OK; /* a device: what was written is gone */
    AVO_TRY(file_map_open(path, &map, error));
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    for (size_t i = 0; i < text.size; i++)
        count += text.data[i] == '\n';
    size_t bytes = ((size_t)count + 1) * sizeof(sample_line);
    sample_line *lines = allocator_take(run->allocator, bytes);
    avo_status status = lines == NULL ? status_no_memory(error, "samples", bytes) : AVO_OK;
    if (status == AVO_OK && find_lines(text, lines, &count)) {
        qsort(lines, count, sizeof(*lines), by_document);
        status = write_lines(path, lines, count, error);
    }
    allocator_give(run->allocator, lines, bytes);
    file_map_close(&map);
    return status;
}

avo_status samples_finish(eval_run *run, avo_error *error) {
    bool open = run->samples >= 0;
    AVO_TRY(samples_close(run, error));
    return open ? sort_file(run, error) : AVO_OK;
}

/* ---- Another run's scores of the same documents ---- */

static avo_status compare_line(const eval_run *run, text_view text, uint32_t index, uint32_t filter,
                               const char *label, double *scores, avo_error *error) {
    arena scratch;
    json_value line;
    char wanted[17];
    digest_text(prompt_hash(&run->items.item[index]), wanted);
    arena_init(&scratch, run->allocator, SIZE_MAX);
    avo_status status = json_parse(&scratch, text, &line, error);
    if (status == AVO_OK) {
        const json_value *hash = json_find(&line, "prompt_hash");
        if (hash == NULL || hash->kind != JSON_STRING || !text_is(hash->string, wanted))
            status =
                status_fail(error, AVO_ERROR_ARGUMENT,
                            "%s: document %u has another prompt; evaluate both models with the "
                            "same task, data and options",
                            label, index + 1);
        else if (!read_passed(run, &line, filter, scores))
            status = status_fail(error, AVO_ERROR_FORMAT, "%s: document %u has no \"%s\"", label,
                                 index + 1, task_metric_name(run->task->metric[0]));
    } else {
        status = status_prefix(error, status, "%s: document %u", label, index + 1);
    }
    arena_free(&scratch);
    return status;
}

avo_status samples_compare(const eval_run *run, text_view text, const char *label, double *scores,
                           avo_error *error) {
    text_view rest = text;
    for (uint32_t index = 0; index < run->items.count; index++)
        for (uint32_t filter = 0; filter < run->task->filters; filter++) {
            const char *newline = rest.size == 0 ? NULL : memchr(rest.data, '\n', rest.size);
            if (newline == NULL)
                return status_fail(error, AVO_ERROR_ARGUMENT,
                                   "%s has the samples of %u documents, needed are %u", label,
                                   index, run->items.count);
            text_view line = {rest.data, (size_t)(newline - rest.data)};
            rest = (text_view){newline + 1, rest.size - line.size - 1};
            AVO_TRY(compare_line(run, line, index, filter, label,
                                 scores + (size_t)index * run->scores, error));
        }
    return AVO_OK;
}
