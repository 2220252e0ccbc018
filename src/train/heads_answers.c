/* Answers of the model to prompts. */
#include "train/heads_answers.h"

#include "base/file.h"
#include "base/hash.h"
#include "formats/source.h"
#include "model/model.h"
#include "train/rl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STREAM_OF_SEEDS 0x4841 /* of base/random.h: "HA" */
#define TOGETHER        64     /* answers between two writes */
#define VERSION         1
#define LINE_MAX_BYTES  ((size_t)256 << 20)
#define FILE_MAX_BYTES  ((size_t)32 << 30)

/* ---- Lines ---- */

bool answers_read_key(arena *arena, text_view line, uint64_t key) {
    json_value root;
    avo_error ignored;
    int64_t version = 0;
    text_view found = {NULL, 0};
    char wanted[17];
    snprintf(wanted, sizeof(wanted), "%016" PRIx64, key);
    return json_parse(arena, line, &root, &ignored) == AVO_OK && root.kind == JSON_OBJECT &&
           json_get_integer(&root, "avocet_answers", 0, INT64_MAX, &version, &ignored) == AVO_OK &&
           json_get_string(&root, "key", &found, &ignored) == AVO_OK && version == VERSION &&
           text_is(found, wanted);
}

bool answers_read_line(arena *arena, text_view line, uint32_t vocabulary, uint32_t most,
                       int32_t *tokens, uint32_t *count) {
    json_value root;
    avo_error ignored;
    if (json_parse(arena, line, &root, &ignored) != AVO_OK || root.kind != JSON_OBJECT)
        return false;
    const json_value *list = json_find(&root, "tokens");
    if (list == NULL || list->kind != JSON_ARRAY || list->array.count == 0 ||
        list->array.count > most)
        return false;
    for (size_t i = 0; i < list->array.count; i++) {
        const json_value *token = &list->array.items[i];
        if (token->kind != JSON_INTEGER || token->integer < 0 || token->integer >= vocabulary)
            return false;
        tokens[i] = (int32_t)token->integer;
    }
    *count = (uint32_t)list->array.count;
    return true;
}

/* ---- Reading ---- */

/* Of sample answers->count. */
static avo_status add_answer(train_run_state *run, train_answers *a, const int32_t *tokens,
                             uint32_t count) {
    train_tokens prompt = train_data_at(a->data, a->count).text;
    uint32_t all = prompt.count + count;
    int32_t *own = arena_take_array(&a->arena, all, sizeof(*own));
    uint8_t *wanted = arena_take(&a->arena, all);
    if (own == NULL || wanted == NULL)
        return status_fail(run->error, AVO_ERROR_MEMORY,
                           "answers take more than %llu bytes; train on fewer prompts",
                           (unsigned long long)TRAIN_DATA_MEMORY_MAX);
    memcpy(own, prompt.tokens, prompt.count * sizeof(*own));
    memcpy(own + prompt.count, tokens, count * sizeof(*own));
    memset(wanted, 0, prompt.count);
    memset(wanted + prompt.count, 1, count);
    a->items[a->count++] = (train_tokens){own, wanted, all};
    return AVO_OK;
}

/* The next whole line; false behind the last. */
static bool next_line(bytes_view bytes, size_t *at, text_view *line) {
    const char *begin = (const char *)bytes.data + *at;
    const char *end = *at < bytes.size ? memchr(begin, '\n', bytes.size - *at) : NULL;
    if (end == NULL)
        return false;
    *line = (text_view){begin, (size_t)(end - begin)};
    *at += line->size + 1;
    return true;
}

/* Answers of the file up to the first line that is none; *good: bytes of them. */
static avo_status read_bytes(train_run_state *run, train_answers *a, bytes_view bytes,
                             size_t *good) {
    arena scratch;
    text_view line;
    size_t at = 0;
    uint32_t vocabulary = run->model->view.vocabulary;
    int32_t *tokens = allocator_take_array(run->allocator, run->context_max, sizeof(*tokens));
    if (tokens == NULL)
        return status_no_memory(run->error, "an answer", run->context_max * sizeof(*tokens));
    arena_init(&scratch, run->allocator, LINE_MAX_BYTES);
    avo_status status = AVO_OK;
    bool fits = next_line(bytes, &at, &line) && answers_read_key(&scratch, line, a->key);
    if (fits)
        *good = at;
    while (fits && status == AVO_OK && a->count < a->info.samples && next_line(bytes, &at, &line)) {
        uint32_t count, prompt = train_data_at(a->data, a->count).text.count;
        arena_reset(&scratch);
        fits = answers_read_line(&scratch, line, vocabulary, run->context_max - prompt, tokens,
                                 &count);
        if (!fits)
            break;
        status = add_answer(run, a, tokens, count);
        *good = at;
    }
    arena_free(&scratch);
    allocator_give(run->allocator, tokens, run->context_max * sizeof(*tokens));
    return status;
}

static avo_status read_file(train_run_state *run, train_answers *a, size_t *good) {
    file_map map;
    *good = 0;
    if (file_kind_of(a->path) != FILE_REGULAR)
        return AVO_OK;
    AVO_TRY(file_map_open(a->path, &map, run->error));
    avo_status status = map.bytes.size > FILE_MAX_BYTES
                            ? status_fail(run->error, AVO_ERROR_LIMIT,
                                          "%s: more than 32 GiB; remove the file", a->path)
                            : read_bytes(run, a, map.bytes, good);
    file_map_close(&map);
    if (status == AVO_OK && *good == 0)
        run_log(run, "%s is of other prompts, settings or another model, and is replaced", a->path);
    return status;
}

/* ---- Writing ---- */

static avo_status write_failed(const train_run_state *run, const train_answers *a) {
    return status_fail(run->error, AVO_ERROR_IO, "%s: cannot write: %s", a->path, strerror(errno));
}

static avo_status append(const train_run_state *run, const train_answers *a, const buffer *text) {
    for (size_t done = 0; done < text->size;) {
        ssize_t written = write(a->descriptor, text->data + done, text->size - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return write_failed(run, a);
        done += (size_t)written;
    }
    return fdatasync(a->descriptor) == 0 ? AVO_OK : write_failed(run, a);
}

/* Appends to the file what was read of it. */
static avo_status open_file(train_run_state *run, train_answers *a, size_t good) {
    a->descriptor = open(a->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (a->descriptor < 0 || ftruncate(a->descriptor, (off_t)good) != 0)
        return write_failed(run, a);
    if (good > 0)
        return AVO_OK;
    buffer text;
    char key[17];
    snprintf(key, sizeof(key), "%016" PRIx64, a->key);
    buffer_init(&text, run->allocator, LINE_MAX_BYTES);
    json_writer w = json_writer_of(&text);
    json_object_begin(&w);
    json_member_u64(&w, "avocet_answers", VERSION);
    json_member_string(&w, "key", key);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    AVO_THEN(status, buffer_append(&text, "\n", 1));
    status = status == AVO_OK ? append(run, a, &text)
                              : status_no_memory(run->error, "a line of answers", text.size);
    buffer_free(&text);
    return status;
}

static avo_status append_items(train_run_state *run, const train_answers *a,
                               const rl_completion *items, size_t count) {
    buffer text;
    avo_status status = AVO_OK;
    buffer_init(&text, run->allocator, LINE_MAX_BYTES);
    for (size_t i = 0; i < count && status == AVO_OK; i++) {
        json_writer w = json_writer_of(&text);
        json_object_begin(&w);
        json_member_array_begin(&w, "tokens");
        for (uint32_t t = items[i].prompt_count; t < items[i].count; t++)
            json_u64(&w, (uint64_t)items[i].tokens[t]);
        json_end(&w);
        json_end(&w);
        status = json_writer_status(&w);
        AVO_THEN(status, buffer_append(&text, "\n", 1));
    }
    status = status == AVO_OK ? append(run, a, &text)
                              : status_no_memory(run->error, "lines of answers", text.size);
    buffer_free(&text);
    return status;
}

/* ---- Answering ---- */

static avo_status answer_some(train_run_state *run, train_answers *a, rl_completion *items,
                              size_t count, arena *scratch) {
    rollout_options options = {.items = items,
                               .count = count,
                               .temperature = (float)run->settings->temperature,
                               .stream = STREAM_OF_SEEDS,
                               .first = a->count};
    for (size_t i = 0; i < count; i++)
        rollout_begin(a->data, a->count + i, &items[i]);
    arena_reset(scratch);
    AVO_TRY(rollout_run(run, &options, scratch));
    AVO_TRY(append_items(run, a, items, count));
    for (size_t i = 0; i < count; i++)
        AVO_TRY(add_answer(run, a, items[i].tokens + items[i].prompt_count,
                           items[i].count - items[i].prompt_count));
    if (run->options->progress != NULL &&
        !run->options->progress(run->options->progress_context, "answering prompts", a->count,
                                a->info.samples))
        return status_fail(run->error, AVO_ERROR_CANCELLED,
                           "stopped after %llu of %llu answers, which are kept in %s; continue "
                           "with --resume",
                           (unsigned long long)a->count, (unsigned long long)a->info.samples,
                           a->path);
    return AVO_OK;
}

static avo_status answer_rest(train_run_state *run, train_answers *a) {
    arena arrays, scratch;
    rl_completion *items;
    avo_status status = AVO_OK;
    arena_init(&arrays, run->allocator, SIZE_MAX);
    arena_init(&scratch, run->allocator, SIZE_MAX);
    items = arena_take_array(&arrays, TOGETHER, sizeof(*items));
    if (items == NULL)
        status = status_no_memory(run->error, "completions", TOGETHER * sizeof(*items));
    for (size_t i = 0; i < TOGETHER && status == AVO_OK; i++)
        status = rollout_take(run, &arrays, &items[i]);
    while (status == AVO_OK && a->count < a->info.samples) {
        uint64_t left = a->info.samples - a->count;
        status = answer_some(run, a, items, left < TOGETHER ? (size_t)left : TOGETHER, &scratch);
    }
    arena_free(&scratch);
    arena_free(&arrays);
    return status;
}

/* ---- All of it ---- */

static uint64_t key_of(const train_run_state *run, const train_answers *a) {
    const train_settings *s = run->settings;
    uint64_t temperature;
    memcpy(&temperature, &s->temperature, sizeof(temperature));
    const uint64_t key[] = {source_digest(run->model->source),
                            a->info.digest[0],
                            a->info.digest[1],
                            s->answer,
                            temperature,
                            s->seed};
    return hash_bytes(key, sizeof(key));
}

static avo_status open_answers(train_run_state *run, train_answers *a) {
    size_t good;
    uint64_t samples = a->info.samples;
    AVO_TRY(file_join(a->path, sizeof(a->path), run->options->output, a->file, run->error));
    a->key = key_of(run, a);
    a->items = arena_take_array(&a->arena, samples, sizeof(*a->items));
    if (a->items == NULL)
        return status_no_memory(run->error, "answers", samples * sizeof(*a->items));
    AVO_TRY(read_file(run, a, &good));
    if (a->count == samples)
        return AVO_OK;
    AVO_TRY(open_file(run, a, good));
    uint64_t had = a->count;
    AVO_TRY(answer_rest(run, a));
    run_log(run, "the model answered %llu prompts; answers are kept in %s",
            (unsigned long long)(samples - had), a->path);
    return AVO_OK;
}

avo_status answers_open(train_run_state *run, train_answers *a) {
    a->descriptor = -1;
    a->count = 0;
    arena_init(&a->arena, run->allocator, (size_t)TRAIN_DATA_MEMORY_MAX);
    return open_answers(run, a);
}

void answers_close(train_answers *a) {
    if (a->data == NULL)
        return;
    if (a->descriptor >= 0)
        (void)close(a->descriptor);
    arena_free(&a->arena);
    a->data = NULL;
}
