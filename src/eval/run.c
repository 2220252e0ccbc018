/* Opens a run, computes the digest of its settings, and scores and writes each response. */
#include "eval/run.h"

#include "adapters/adapters.h"
#include "base/hash.h"
#include "model/model.h"

#include <string.h>

static void add_text(hash_stream *stream, const char *text) {
    const char *own = text == NULL ? "" : text;
    hash_stream_add(stream, own, strlen(own) + 1);
}

/* Model, adapters and everything else that responses depend on, prompts aside. */
static avo_status digest_settings(eval_run *run, avo_error *error) {
    const eval_run_options *options = &run->options;
    hash_stream stream;
    hash_stream_begin(&stream);
    buffer json;
    buffer_init(&json, run->allocator, SIZE_MAX);
    avo_status status = json_write_value(&json, &run->task->json);
    if (status == AVO_OK)
        hash_stream_add(&stream, json.data, json.size);
    buffer_free(&json);
    if (status != AVO_OK)
        return status_no_memory(error, "a task", json.size);
    uint64_t model = source_digest(options->items.model->source);
    hash_stream_add(&stream, &model, sizeof(model));
    for (size_t i = 0; i < options->adapter_count; i++) {
        avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
        avo_adapter_describe(options->adapters[i].adapter, &info);
        add_text(&stream, info.digest);
        hash_stream_add(&stream, &options->adapters[i].weight, sizeof(float));
    }
    add_text(&stream, options->kv_type);
    run->settings = hash_stream_sum(&stream);
    return AVO_OK;
}

avo_status eval_run_open(const eval_task *task, const eval_run_options *options,
                         const avo_allocator *allocator, eval_run *run, avo_error *error) {
    *run = (eval_run){.allocator = allocator,
                      .task = task,
                      .documents = options->documents,
                      .options = *options,
                      .scores = task_scores(task),
                      .samples = -1};
    buffer_init(&run->line, allocator, SIZE_MAX);
    run->options.code.allocator = allocator;
    AVO_TRY(items_open(task, options->documents, options->shots, &options->items, allocator,
                       &run->items, error));
    run->score =
        allocator_take_array(allocator, (size_t)run->items.count * run->scores, sizeof(double));
    run->have = allocator_take_array(allocator, run->items.count, sizeof(bool));
    avo_status status = run->score == NULL || run->have == NULL
                            ? status_no_memory(error, "scores", run->items.count * sizeof(double))
                            : digest_settings(run, error);
    AVO_THEN(status, samples_open(run, error));
    if (status != AVO_OK)
        eval_run_close(run);
    return status;
}

void eval_run_close(eval_run *run) {
    (void)!samples_close(run, NULL);
    allocator_give(run->allocator, run->score,
                   (size_t)run->items.count * run->scores * sizeof(double));
    allocator_give(run->allocator, run->have, run->items.count * sizeof(bool));
    buffer_free(&run->line);
    items_close(&run->items);
    *run = (eval_run){.samples = -1};
}

static avo_status take(void *context, uint32_t item, const eval_response *responses,
                       avo_error *error) {
    eval_run *run = context;
    avo_status status =
        eval_score(run, item, responses, NULL, run->score + (size_t)item * run->scores, error);
    AVO_THEN(status, samples_write(run, item, responses, error));
    if (status != AVO_OK)
        return status_prefix(error, status, "document %u", item + 1);
    run->have[item] = true;
    run->done++;
    return AVO_OK;
}

avo_status eval_run_ask(eval_run *run, avo_scheduler *scheduler, avo_error *error) {
    ask_options options = {.scheduler = scheduler,
                           .adapters = run->options.adapters,
                           .adapter_count = run->options.adapter_count,
                           .done = run->have,
                           .take = take,
                           .take_context = run,
                           .progress = run->options.progress,
                           .progress_context = run->options.progress_context};
    AVO_TRY(eval_ask(run->task, &run->items, &options, run->allocator, error));
    return samples_finish(run, error);
}
