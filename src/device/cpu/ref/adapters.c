/* What adapters add in the reference back end, one run after the other, as adapter.h has it. */
#include "device/cpu/ref/ref_int.h"

#include "device/runs.h"

/* ---- Matrices ---- */

typedef struct adapt_task {
    const step_view *step;
    const reference_site *site;
    const adapter_run *run;
    run_rows rows;
    const float *offset;
} adapt_task;

static void gain_worker(void *context, uint32_t worker, uint32_t workers) {
    const adapt_task *task = context;
    const reference_site *site = task->site;
    const batch_view *batch = task->step->batch;
    size_t begin;
    size_t end;
    team_share(site->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++)
        run_apply_gains(batch, run_batch_row(batch, (uint32_t)row, site->matrix == ADAPTER_HEAD),
                        site->layer, site->matrix, 0, site->outputs,
                        site->out + row * site->out_stride);
}

static void offset_worker(void *context, uint32_t worker, uint32_t workers) {
    const adapt_task *task = context;
    const reference_site *site = task->site;
    const batch_view *batch = task->step->batch;
    size_t begin;
    size_t end;
    team_share(task->rows.rows, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        uint32_t row = task->rows.first + (uint32_t)i;
        float factor =
            run_factor(task->run, run_batch_row(batch, row, site->matrix == ADAPTER_HEAD));
        float *out = site->out + row * site->out_stride;
        for (size_t j = 0; j < site->outputs; j++)
            out[j] += factor * task->offset[j];
    }
}

static void adapt_run(const step_view *step, const reference_site *site, const adapter_run *run) {
    bool head = site->matrix == ADAPTER_HEAD;
    const adapter_delta *delta = adapter_delta_of(run->adapter, site->layer, site->matrix);
    run_rows rows = run_rows_of(step->batch, run, head);
    if (rows.rows == 0 || adapter_delta_empty(delta))
        return;
    const float *x = site->x + rows.first * site->x_stride;
    size_t stride = site->x_stride;
    if (delta->up.data != NULL && delta->down.data != NULL) {
        linear_view down = {.weight = delta->down};
        float *h = step->scratch->adapted + run_place_of(step, run)->first;
        size_t room = adapter_rank_room(delta->down.rows);
        reference_linear(step, &down, x, stride, rows.rows, h, room);
        x = h;
        stride = room;
    }
    if (delta->up.data != NULL) {
        reference_addition add = {run, rows, head, delta->scale};
        reference_linear_add(step, &delta->up, x, stride, &add,
                             site->out + rows.first * site->out_stride, site->out_stride);
    }
    adapt_task task = {step, site, run, rows, delta->offset};
    if (delta->offset != NULL)
        reference_run(step, offset_worker, &task);
}

void reference_adapt(const step_view *step, const reference_site *site) {
    const batch_view *batch = step->batch;
    if (batch->runs == 0)
        return;
    adapt_task task = {.step = step, .site = site};
    if (run_gains(batch, site->layer, site->matrix))
        reference_run(step, gain_worker, &task);
    for (uint32_t i = 0; i < batch->runs; i++)
        adapt_run(step, site, &batch->run[i]);
}

/* ---- The embedding ---- */

typedef struct look_task {
    const step_view *step;
    const adapter_run *run;
    float *out; /* rows of the batch without `up`, else of the run */
    size_t out_stride;
} look_task;

/* Without `up`: what was looked up is added. */
static void look_worker(void *context, uint32_t worker, uint32_t workers) {
    const look_task *task = context;
    const adapter_embedding *own = &task->run->adapter->embedding;
    float *looked = reference_worker_scratch(task->step, worker);
    float scale = own->scale * task->step->model->embedding_scale;
    size_t begin;
    size_t end;
    team_share(task->run->rows, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        size_t row = task->run->first + i;
        weight_decode_row(&own->look, (size_t)task->step->batch->token[row], looked);
        for (uint32_t j = 0; j < own->look.k; j++)
            if (own->up.data == NULL)
                task->out[row * task->out_stride + j] += task->run->factor[i] * scale * looked[j];
            else
                task->out[i * task->out_stride + j] = looked[j];
    }
}

void reference_adapt_embedding(const step_view *step, float *out, size_t out_stride) {
    const batch_view *batch = step->batch;
    for (uint32_t i = 0; i < batch->runs; i++) {
        const adapter_run *run = &batch->run[i];
        const adapter_embedding *own = &run->adapter->embedding;
        if (own->look.data == NULL)
            continue;
        if (own->up.data == NULL) {
            look_task task = {step, run, out, out_stride};
            reference_run(step, look_worker, &task);
            continue;
        }
        look_task task = {step, run, step->scratch->adapted + run_place_of(step, run)->first,
                          adapter_rank_room(own->up.k)};
        reference_run(step, look_worker, &task);
        reference_addition add = {
            run, {run->first, run->rows}, false, own->scale * step->model->embedding_scale};
        reference_linear_add(step, &own->up, task.out, task.out_stride, &add,
                             out + run->first * out_stride, out_stride);
    }
}
