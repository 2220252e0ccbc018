/* One model through all tasks of `avocet eval TASK`. */
#include "base/allocator.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/eval_task.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_DEFAULT 16
#define ROWS_MAX      512

typedef struct with_model {
    eval_jobs *jobs;
    bool second;
    avo_model *model;
    avo_adapter *adapter[AVO_ADAPTERS_MAX];
    avo_adapter_use use[AVO_ADAPTERS_MAX];
    size_t uses;
} with_model;

/* ---- Progress ---- */

typedef struct meter {
    const char *name;
    uint32_t restored;
    uint64_t begin_ns;
} meter;

/* Shows the time left, by the rate so far, in front of the bar. */
static bool show_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    const meter *meter = context;
    char text[64];
    (void)what;
    double seconds = clock_seconds(meter->begin_ns, clock_now_ns());
    uint64_t fresh = done - meter->restored;
    if (fresh < 2 || seconds < 2) {
        snprintf(text, sizeof(text), "%s", meter->name);
    } else {
        unsigned left = (unsigned)(seconds / (double)fresh * (double)(total - done));
        snprintf(text, sizeof(text), "%.30s %u:%02u:%02u left", meter->name, left / 3600,
                 left / 60 % 60, left % 60);
    }
    return cli_progress(NULL, text, done, total);
}

/* ---- One task ---- */

static avo_status open_engine(const with_model *with, const eval_job *job, eval_run *run,
                              avo_engine **engine, avo_error *error) {
    const eval_flags *flags = with->jobs->flags;
    avo_engine_options options = flags->engine;
    uint32_t batch = flags->batch > 0 ? flags->batch : BATCH_DEFAULT;
    eval_ask_engine(job->task, &run->items, batch, &options);
    options.rope_context = flags->context;
    options.rows_max = options.sessions_max > ROWS_MAX ? options.sessions_max : ROWS_MAX;
    if (!with->second)
        return cli_engine_open(with->model, &options, engine, error);
    if (options.speculate == NULL) /* --draft-model and --draft-heads belong to the first model */
        options.speculate = "suffix,ngram";
    return avo_engine_open(with->model, &options, engine, error);
}

static avo_status ask(const with_model *with, const eval_job *job, eval_run *run,
                      avo_error *error) {
    avo_engine *engine = NULL;
    avo_scheduler *scheduler = NULL;
    avo_scheduler_options options = AVO_SCHEDULER_OPTIONS_INIT;
    options.token_seconds = -1.0; /* only the whole answers matter: throughput first */
    AVO_TRY(open_engine(with, job, run, &engine, error));
    avo_status status = avo_scheduler_open(engine, &options, &scheduler, error);
    AVO_THEN(status, eval_run_ask(run, scheduler, error));
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
    cli_progress_end();
    return status;
}

static uint32_t context_of(const eval_flags *flags, const avo_model *model) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    if (flags->context > info.context)
        cli_warn("--ctx is %u, but the model was trained for %u tokens", flags->context,
                 info.context);
    return flags->context != 0 ? flags->context : info.context;
}

/* "out.jsonl" is "out.arc_easy.jsonl" where there are several tasks. */
static avo_status samples_path(const eval_jobs *jobs, const eval_job *job, char *path,
                               size_t capacity, avo_error *error) {
    const char *given = jobs->flags->samples;
    const char *dot = strrchr(given, '.');
    size_t stem = jobs->count == 1 ? 0 : dot == NULL ? strlen(given) : (size_t)(dot - given);
    int size = jobs->count == 1
                   ? snprintf(path, capacity, "%s", given)
                   : snprintf(path, capacity, "%.*s.%.*s%s", (int)stem, given,
                              (int)job->task->name.size, job->task->name.data, given + stem);
    if (size < 0 || (size_t)size >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "--samples is too long a path");
    return AVO_OK;
}

static avo_status run_job(const with_model *with, eval_job *job, eval_run *run, avo_error *error) {
    const eval_flags *flags = with->jobs->flags;
    char path[CLI_PATH_MAX], name[TASK_NAME_MAX + 1];
    snprintf(name, sizeof(name), "%.*s", (int)job->task->name.size, job->task->name.data);
    meter meter = {.name = name};
    eval_run_options options = {
        .items = {.model = with->model,
                  .context = context_of(flags, with->model),
                  .chat = flags->chat,
                  .no_begin = flags->no_begin},
        .documents = &job->documents,
        .shots = job->shots.document == NULL ? NULL : &job->shots,
        .adapters = with->use,
        .adapter_count = with->uses,
        .kv_type = flags->engine.kv_type,
        .resume = flags->resume,
        .code = {.interpreter = flags->python, .unsafe = flags->unsafe},
        .progress = show_progress,
        .progress_context = &meter,
    };
    if (flags->samples != NULL && !with->second) {
        AVO_TRY(samples_path(with->jobs, job, path, sizeof(path), error));
        options.samples_path = path;
    }
    AVO_TRY(eval_run_open(job->task, &options, NULL, run, error));
    job->opened = job->opened || !with->second;
    run->options.samples_path = options.samples_path; /* valid until this function returns */
    meter.restored = run->restored;
    meter.begin_ns = clock_now_ns();
    avo_status status = AVO_OK;
    if (eval_run_remaining(run) > 0)
        status = ask(with, job, run, error);
    AVO_THEN(status, samples_finish(run, error));
    run->options.samples_path = NULL;
    return status;
}

static avo_status run_second(const with_model *with, eval_job *job, avo_error *error) {
    eval_run run = {.samples = -1};
    size_t count = (size_t)job->run.items.count * job->run.scores;
    job->other = allocator_take_array(NULL, count, sizeof(double));
    if (job->other == NULL)
        return status_no_memory(error, "scores", count * sizeof(double));
    avo_status status = run_job(with, job, &run, error);
    if (status == AVO_OK)
        memcpy(job->other, run.score, count * sizeof(double));
    eval_run_close(&run);
    return status;
}

/* ---- The model ---- */

static avo_status open_adapters(with_model *with, avo_error *error) {
    const eval_flags *flags = with->jobs->flags;
    char path[CLI_PATH_MAX];
    for (size_t i = 0; !with->second && i < flags->adapters.count; i++) {
        avo_adapter_use *use = &with->use[i];
        AVO_TRY(
            cli_adapter_path(flags->adapters.items[i], path, sizeof(path), &use->weight, error));
        AVO_TRY(cli_adapter_open(with->model, path, flags->adapter_type, &use->adapter, error));
        with->uses++;
    }
    return AVO_OK;
}

avo_status eval_jobs_run(eval_jobs *jobs, const char *model_name, bool second, avo_error *error) {
    with_model with = {.jobs = jobs, .second = second};
    avo_status status = cli_model_open(model_name, &with.model, error);
    AVO_THEN(status, open_adapters(&with, error));
    if (status == AVO_OK && jobs->flags->chat)
        status = avo_chat_check(with.model, error);
    for (size_t i = 0; status == AVO_OK && i < jobs->count; i++) {
        eval_job *job = &jobs->job[i];
        status = second ? run_second(&with, job, error) : run_job(&with, job, &job->run, error);
        if (status != AVO_OK && status != AVO_ERROR_CANCELLED)
            status = status_prefix(error, status, "%.*s", TEXT_ARGUMENT(job->task->name));
    }
    for (size_t i = 0; i < with.uses; i++)
        avo_adapter_close(with.use[i].adapter);
    avo_model_close(with.model);
    return status;
}
