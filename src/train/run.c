/* The loop. */
#include "train/run_int.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/float_mode.h"
#include "formats/source.h"
#include "model/model.h"
#include "train/micro.h"
#include "train/output.h"
#include "train/runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- What tasks use ---- */

void metrics_add(train_metrics *metrics, const char *name, double value) {
    if (metrics->count == METRICS_MAX)
        return;
    snprintf(metrics->items[metrics->count].name, sizeof(metrics->items[0].name), "%s", name);
    metrics->items[metrics->count++].value = value;
}

uint64_t run_sample_index(const train_run_state *run, uint64_t position) {
    uint64_t samples = run->info.samples;
    return train_data_order(samples, run->settings->seed, position / samples, position % samples);
}

uint64_t run_rows(const train_sequence *sequences, size_t count) {
    uint64_t rows = 0;
    for (size_t i = 0; i < count; i++)
        rows += sequences[i].count;
    return rows;
}

size_t run_pass_count(const train_run_state *run, const train_sequence *sequences, size_t count,
                      size_t first, size_t unit) {
    size_t taken = 0;
    uint64_t rows = 0;
    while (first + taken < count) {
        rows += run_rows(sequences + first + taken, unit);
        if (taken > 0 && (rows > run->rows_max || taken + unit > run->sequences_max))
            break;
        taken += unit;
    }
    return taken;
}

avo_status run_update(train_run_state *run, uint64_t step, uint64_t update) {
    double rate = schedule_rate(&run->schedule, step);
    avo_status status = optimizer_step(run->optimizer, update, rate, &run->norm, run->error);
    if (status != AVO_OK)
        return status_prefix(run->error, status, "step %llu", (unsigned long long)step);
    train_core_clear(run->core);
    return train_core_changed(run->core, run->error);
}

/* ---- Records ---- */

static double epoch_at(const train_run_state *run, uint64_t step) {
    return (double)step * (double)run->settings->batch / (double)run->info.samples;
}

static avo_status write_metrics(train_run_state *run, uint64_t step, const train_metrics *metrics,
                                const char **line) {
    json_writer *w = train_record_begin(&run->record);
    for (uint32_t i = 0; i < metrics->count; i++)
        json_member_number(w, metrics->items[i].name, metrics->items[i].value);
    json_member_number(w, "epoch", epoch_at(run, step));
    json_member_u64(w, "step", step);
    return train_record_end(&run->record, line, run->error);
}

static record_state trainer_state(const train_run_state *run) {
    const train_settings *s = run->settings;
    return (record_state){.step = run->state.step,
                          .steps = run->steps,
                          .epoch = epoch_at(run, run->state.step),
                          .epochs = epoch_at(run, run->steps),
                          .tokens = run->state.tokens,
                          .batch = s->batch,
                          .eval_every = s->eval_every,
                          .save_every = s->save_every};
}

static checkpoint_run checkpoint_of(const train_run_state *run) {
    return (checkpoint_run){.allocator = run->allocator,
                            .model = run->model,
                            .settings = run->settings,
                            .parameters = run->parameters,
                            .optimizer = run->optimizer,
                            .steps = run->steps,
                            .model_digest = run->model_digest,
                            .data_digest = {run->info.digest[0], run->info.digest[1]}};
}

static bool is_at_checkpoint(const train_run_state *run) {
    uint32_t every = run->settings->save_every;
    return every > 0 && run->state.step % every == 0;
}

static bool makes_adapter(const train_run_state *run) {
    return !run->settings->full && run->settings->task != TRAIN_HEADS;
}

static void tell_server(train_run_state *run) {
    char line[1024];
    train_serve_load(&run->serve, run->state.step, line, sizeof(line));
    if (line[0] != '\0')
        run_log(run, "%s", line);
}

/* Of an adapter between two checkpoints. */
static bool is_at(const train_run_state *run, uint32_t every) {
    return every > 0 && makes_adapter(run) && run->state.step % every == 0;
}

/* The weights in the output folder: an adapter is loaded from there while the run goes on. `saved`:
 * there is a checkpoint, too. */
static avo_status write_output(train_run_state *run, bool saved) {
    const train_run_options *options = run->options;
    AVO_TRY(output_write(run->model, run->settings, run->parameters, false, options->output,
                         run->error));
    if (!makes_adapter(run))
        return AVO_OK;
    if (options->on_adapter != NULL && (saved || is_at(run, options->renew_every)))
        options->on_adapter(options->on_adapter_context, run->state.step);
    if (options->serve != NULL && (saved || is_at(run, options->serve_every)))
        tell_server(run);
    return AVO_OK;
}

/* Everything beside the checkpoint. */
static avo_status write_results(train_run_state *run) {
    record_state trainer = trainer_state(run);
    const char *output = run->options->output;
    AVO_TRY(train_record_write_state(&run->record, output, &trainer, run->error));
    AVO_TRY(train_record_write_curves(&run->record, output, run->error));
    if (run->settings->full && run->state.step < run->steps)
        return AVO_OK; /* the checkpoint has the model; once is enough while it changes */
    return write_output(run, true);
}

static avo_status save(train_run_state *run) {
    checkpoint_run run_of = checkpoint_of(run);
    record_state trainer = trainer_state(run);
    run->state.best = run->record.best;
    run->state.best_step = run->record.best_step;
    AVO_TRY(checkpoint_write(&run_of, run->options->output, &run->state, &run->record, &trainer,
                             run->error));
    return write_results(run);
}

/* ---- Beginning ---- */

/* An error of what a file contains, not of what this run is or of the machine. */
static bool is_damage(avo_status status) {
    return status == AVO_ERROR_FORMAT || status == AVO_ERROR_IO || status == AVO_ERROR_NOT_FOUND ||
           status == AVO_ERROR_LIMIT;
}

/* The newest checkpoint that can be read. One that cannot is reported and passed over; the run
 * writes over it when it gets there again. */
static avo_status read_checkpoint(train_run_state *run, arena *arena, uint64_t found,
                                  const json_value **history) {
    char path[4400];
    avo_error first = {.status = AVO_OK};
    checkpoint_run run_of = checkpoint_of(run);
    uint64_t below = UINT64_MAX;
    while (found > 0) {
        AVO_TRY(
            checkpoint_find(run->options->output, below, path, sizeof(path), &found, run->error));
        if (found == 0)
            break;
        avo_status status = checkpoint_read(&run_of, path, arena, &run->state, history, run->error);
        if (status == AVO_OK) {
            run_log(run, "resuming behind step %llu: %s", (unsigned long long)found, path);
            return train_core_changed(run->core, run->error);
        }
        if (!is_damage(status))
            return status;
        if (first.status == AVO_OK)
            first = *run->error;
        run_log(run, "%s cannot be read: %s", path, run->error->text);
        below = found;
    }
    return status_fail(run->error, first.status,
                       "%s has no checkpoint that can be read: %s; remove them to begin again",
                       run->options->output, first.text);
}

static avo_status write_note(const train_run_state *run) {
    char model[256];
    text_view name = file_last_part(run->model->source->path);
    snprintf(model, sizeof(model), "%.*s", (int)(name.size < 255 ? name.size : 255), name.data);
    run_note note = {.task = train_task_name(run->settings->task),
                     .model = model,
                     .steps = run->steps,
                     .batch = run->settings->batch};
    return runs_note_write(run->options->output, &note, run->error);
}

/* Another rank than 0 reads what rank 0 has read. */
static avo_status follow(train_run_state *run, arena *arena) {
    char path[4400];
    uint64_t step = 0, found = 0;
    const json_value *history = NULL;
    checkpoint_run run_of = checkpoint_of(run);
    run->state = (checkpoint_state){.best = NAN};
    AVO_TRY(micro_tell(run, &step));
    if (step == 0)
        return AVO_OK;
    AVO_TRY(
        checkpoint_find(run->options->output, step + 1, path, sizeof(path), &found, run->error));
    if (found != step)
        return status_fail(run->error, AVO_ERROR_NOT_FOUND,
                           "%s has no checkpoint of step %llu, from which rank 0 continues: all "
                           "ranks must see the same output folder",
                           run->options->output, (unsigned long long)step);
    AVO_TRY(checkpoint_read(&run_of, path, arena, &run->state, &history, run->error));
    return train_core_changed(run->core, run->error);
}

/* Continues from a checkpoint, or begins; opens the record. */
static avo_status lead(train_run_state *run, arena *arena) {
    const char *output = run->options->output;
    char path[4400];
    uint64_t found;
    const json_value *history = NULL;
    if (!run->options->locked)
        AVO_TRY(train_lock_take(output, &run->lock, run->error));
    checkpoint_clear(output);
    AVO_TRY(checkpoint_find(output, UINT64_MAX, path, sizeof(path), &found, run->error));
    if (found > 0 && !run->options->resume)
        return status_fail(run->error, AVO_ERROR_ARGUMENT,
                           "%s has a checkpoint of step %llu; continue that run with --resume, or "
                           "choose another output",
                           output, (unsigned long long)found);
    run->state = (checkpoint_state){.best = NAN};
    checkpoint_run run_of = checkpoint_of(run);
    if (found > 0) {
        AVO_TRY(read_checkpoint(run, arena, found, &history));
    } else {
        if (run->options->resume) {
            AVO_TRY(checkpoint_compare_begun(&run_of, output, arena, run->error));
            run_log(run, "%s has no checkpoint yet: beginning at step 1", output);
        }
        AVO_TRY(checkpoint_write_begun(&run_of, output, run->error));
    }
    AVO_TRY(train_record_open(run->allocator, output, history, &run->record, run->error));
    run->record.best = run->state.best;
    run->record.best_step = run->state.best_step;
    AVO_TRY(write_note(run));
    return micro_tell(run, &run->state.step);
}

static avo_status begin(train_run_state *run, arena *arena) {
    run->model_digest = source_digest_whole(run->model->source);
    AVO_TRY(micro_leads(run) ? lead(run, arena) : follow(run, arena));
    return micro_compare(run);
}

/* ---- Steps ---- */

static avo_status keep_best(train_run_state *run, double loss) {
    char path[4200];
    if (!(loss < run->record.best) && !isnan(run->record.best))
        return AVO_OK;
    AVO_TRY(file_join(path, sizeof(path), run->options->output, "best", run->error));
    AVO_TRY(file_make_folder(path, run->error));
    AVO_TRY(output_write(run->model, run->settings, run->parameters, false, path, run->error));
    run->record.best = loss;
    run->record.best_step = run->state.step;
    return AVO_OK;
}

static bool tell(const train_run_state *run, const train_step_info *info) {
    return run->options->on_step == NULL ||
           run->options->on_step(run->options->on_step_context, info);
}

static avo_status evaluate(train_run_state *run, bool *more) {
    train_metrics metrics = {.count = 0};
    uint64_t begin = clock_now_ns();
    AVO_TRY(run->task->evaluate(run, &metrics));
    if (!micro_leads(run))
        return AVO_OK;
    double loss = metrics.items[0].value;
    double seconds = clock_seconds(begin, clock_now_ns());
    metrics_add(&metrics, "eval_runtime", seconds);
    metrics_add(&metrics, "eval_samples_per_second",
                (double)run->valid_info.samples / (seconds > 0.0 ? seconds : 1e-9));
    train_step_info info = {.step = run->state.step,
                            .steps = run->steps,
                            .loss = loss,
                            .reward = NAN,
                            .evaluation = true};
    AVO_TRY(write_metrics(run, run->state.step, &metrics, &info.metrics));
    *more = tell(run, &info) && *more;
    return keep_best(run, loss);
}

static avo_status one_step(train_run_state *run, double *seconds_total, uint64_t first,
                           bool *more) {
    train_metrics metrics = {.count = 0};
    uint64_t step = run->state.step + 1, begin = clock_now_ns();
    double rate = schedule_rate(&run->schedule, step);
    run->step_tokens = 0;
    run->reward = NAN;
    AVO_TRY(run->task->step(run, step, &metrics));
    double seconds = clock_seconds(begin, clock_now_ns());
    *seconds_total += seconds;
    run->state.step = step;
    run->state.tokens += run->step_tokens;
    if (!micro_leads(run))
        return AVO_OK;
    double speed = (double)run->step_tokens / (seconds > 0.0 ? seconds : 1e-9);
    metrics_add(&metrics, "grad_norm", run->norm);
    metrics_add(&metrics, "learning_rate", rate);
    metrics_add(&metrics, "num_tokens", (double)run->state.tokens);
    metrics_add(&metrics, "tokens_per_second", speed);
    metrics_add(&metrics, "step_time", seconds);
    train_step_info info = {.step = step,
                            .steps = run->steps,
                            .loss = run->loss,
                            .reward = run->reward,
                            .rate = rate,
                            .tokens_per_second = speed,
                            .seconds_left = *seconds_total / (double)(step - first) *
                                            (double)(run->steps - step)};
    AVO_TRY(write_metrics(run, step, &metrics, &info.metrics));
    *more = tell(run, &info);
    return AVO_OK;
}

static avo_status loop(train_run_state *run, bool *more) {
    uint64_t first = run->state.step;
    double seconds = 0.0;
    uint32_t every = run->settings->eval_every;
    train_core_clear(run->core);
    while (run->state.step < run->steps && *more) {
        AVO_TRY(one_step(run, &seconds, first, more));
        bool last = run->state.step == run->steps;
        if (every > 0 && (run->state.step % every == 0 || last))
            AVO_TRY(evaluate(run, more));
        uint64_t goes_on = *more;
        AVO_TRY(micro_tell(run, &goes_on));
        *more = goes_on != 0;
        if (!micro_leads(run))
            continue;
        if (last || !*more || is_at_checkpoint(run))
            AVO_TRY(save(run));
        else if (is_at(run, run->options->renew_every) || is_at(run, run->options->serve_every))
            AVO_TRY(write_output(run, false));
    }
    return AVO_OK;
}

static avo_status open_server(train_run_state *run) {
    if (run->options->serve == NULL)
        return AVO_OK;
    if (!makes_adapter(run))
        return status_fail(run->error, AVO_ERROR_ARGUMENT,
                           "serve needs an adapter: leave out full, and train sft, dpo or rl");
    train_serve_options options = *run->options->serve;
    options.model = run->model->source->path;
    options.output = run->options->output;
    options.device = run->options->engine.device;
    options.arithmetic = run->options->engine.arithmetic;
    options.allocator = run->allocator;
    return train_serve_open(&run->serve, &options, run->error);
}

static avo_status run_all(train_run_state *run, train_summary *summary, arena *arena) {
    bool more = true;
    AVO_TRY(run_open(run));
    AVO_TRY(begin(run, arena));
    AVO_TRY(open_server(run));
    summary->first_step = run->state.step;
    summary->steps = run->steps;
    avo_status status = AVO_OK;
    if (run->task->open != NULL)
        status = run->task->open(run);
    if (status == AVO_OK && run->state.step >= run->steps && micro_leads(run)) {
        run_log(run, "all %llu steps are done already", (unsigned long long)run->steps);
        /* The run may have been killed between its last checkpoint and its output. */
        status = write_results(run);
    }
    AVO_THEN(status, loop(run, &more));
    summary->step = run->state.step;
    summary->tokens = run->state.tokens;
    summary->loss = run->loss;
    summary->best = run->record.best;
    summary->best_step = run->record.best_step;
    train_record_close(&run->record);
    if (status == AVO_OK && run->state.step < run->steps)
        return status_fail(run->error, AVO_ERROR_CANCELLED,
                           "stopped after step %llu of %llu; the checkpoint in %s continues with "
                           "--resume",
                           (unsigned long long)run->state.step, (unsigned long long)run->steps,
                           run->options->output);
    return status;
}

avo_status train_run(const avo_model *model, const train_run_options *options,
                     train_summary *summary, avo_error *error) {
    arena arena;
    train_run_state run;
    float_mode mode;
    uint64_t begin = clock_now_ns();
    *summary = (train_summary){.loss = NAN, .best = NAN};
    run_init(&run, model, options, error);
    arena_init(&arena, options->allocator, SIZE_MAX);
    float_mode_enter(&mode);
    avo_status status = run_all(&run, summary, &arena);
    float_mode_leave(&mode);
    train_serve_close(&run.serve);
    run_close(&run);
    train_lock_release(&run.lock);
    arena_free(&arena);
    summary->seconds = clock_seconds(begin, clock_now_ns());
    return status;
}
