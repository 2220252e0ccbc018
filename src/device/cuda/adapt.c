/* Adapters in a step: one run after the other, each row's own in the order of their digests.
 *
 *   h = A · x        into scratch, then times factor · scale into the form that B reads
 *   y += B · h       and the offset
 *
 * All of it in one queue, so that a run's scratch is the next one's. */
#include "device/cuda/step_int.h"

#include <string.h>

#define BLOCK 256 /* outputs */

static const adapter_delta *delta_of(const adapter_run *run, const cuda_site *site, uint32_t slot) {
    return adapter_delta_of(run->adapter, site->layer, site->matrix[slot]);
}

bool adapt_any(const cuda_step *step, const cuda_site *site) {
    for (uint32_t i = 0; i < step->batch->runs; i++)
        for (uint32_t slot = 0; slot < site->count; slot++) {
            const adapter_delta *delta = delta_of(&step->batch->run[i], site, slot);
            if (delta->up.data != NULL || delta->offset != NULL || delta->gain != NULL)
                return true;
        }
    return false;
}

bool adapt_norms(const cuda_step *step) {
    for (uint32_t i = 0; i < step->batch->runs; i++)
        if (step->batch->run[i].adapter->norms)
            return true;
    return false;
}

unsigned adapt_forms(const cuda_step *step, const cuda_site *site) {
    unsigned forms = 0;
    for (uint32_t i = 0; i < step->batch->runs; i++)
        for (uint32_t slot = 0; slot < site->count; slot++) {
            const adapter_delta *delta = delta_of(&step->batch->run[i], site, slot);
            if (delta->up.data != NULL)
                forms |=
                    1u << panels_form(delta->down.data != NULL ? delta->down.type : delta->up.type);
        }
    return forms;
}

bool adapt_gains(const cuda_step *step, const cuda_site *site, uint32_t slot) {
    return run_gains(step->batch, site->layer, site->matrix[slot]);
}

/* ---- Norms ---- */

static row_norms norms_of_row(const batch_view *batch, uint32_t row, uint32_t layer,
                              adapter_norm_place place) {
    row_norms own = {0};
    uint32_t runs[ADAPTERS_OF_ROW];
    uint32_t count = runs_of_row(batch, row, runs);
    for (uint32_t i = 0; i < count; i++) {
        const adapter_run *run = &batch->run[runs[i]];
        if (!run->adapter->norms)
            continue;
        const adapter_norm *added = run_norm_of(run->adapter, layer, place);
        own.factor[own.count] = run_factor(run, row);
        own.weight[own.count] = added->weight;
        own.bias[own.count++] = added->bias;
    }
    return own;
}

norm_call step_norm(cuda_step *step, const norm_view *norm, adapter_norm_place place,
                    uint32_t layer, uint32_t rows, bool head) {
    const batch_view *batch = step->batch;
    norm_call call = {.kind = (uint32_t)norm->kind,
                      .epsilon = norm->epsilon,
                      .weight = norm->weight,
                      .bias = norm->bias};
    bool any = false;
    for (uint32_t i = 0; i < batch->runs && norm->kind != NORM_NONE; i++)
        any = any || batch->run[i].adapter->norms;
    if (!any)
        return call;
    step_table table = step_table_take(step, rows * sizeof(row_norms));
    row_norms *own = (row_norms *)(void *)table.host;
    for (uint32_t row = 0; row < rows; row++)
        own[row] = norms_of_row(batch, run_batch_row(batch, row, head), layer, place);
    step_table_send(step, &table);
    call.rows = (const row_norms *)(const void *)table.card;
    return call;
}

/* ---- Gains ---- */

static void apply_gains(cuda_step *step, const cuda_site *site, uint32_t slot,
                        const cuda_product *product, float *base) {
    const batch_view *batch = step->batch;
    step_table_reserve(step, site->rows * sizeof(row_gains));
    step_table table = step_table_take(step, site->rows * sizeof(row_gains));
    row_gains *own = (row_gains *)(void *)table.host;
    for (uint32_t row = 0; row < site->rows; row++) {
        uint32_t of_batch = run_batch_row(batch, row, site->head), runs[ADAPTERS_OF_ROW];
        uint32_t count = runs_of_row(batch, of_batch, runs);
        own[row] = (row_gains){0};
        for (uint32_t i = 0; i < count; i++) {
            const adapter_run *run = &batch->run[runs[i]];
            const float *gain = delta_of(run, site, slot)->gain;
            if (!run->adapter->gains || gain == NULL)
                continue;
            own[row].factor[own[row].count] = run_factor(run, of_batch);
            own[row].gain[own[row].count++] = gain;
        }
    }
    step_table_send(step, &table);
    uint32_t outputs = product->linear->weight.rows;
    gain_call call = {.rows = (const row_gains *)(const void *)table.card,
                      .y = base,
                      .stride = product->out_stride,
                      .join = base == product->out ? NULL : product->out,
                      .add_scale = product->add_scale,
                      .count = outputs};
    cuda_launch launch = {CUDA_KERNEL_gain, (outputs + BLOCK - 1) / BLOCK, site->rows, 1, BLOCK, 0,
                          CUDA_BEHIND};
    step_launch(step, &launch, &call);
}

/* ---- What a run adds ---- */

/* A number for each of the run's rows, on the card: its factor times `first` times `second`, from
 * left to right. */
static const float *factors(cuda_step *step, const cuda_site *site, const adapter_run *run,
                            run_rows rows, float first, float second) {
    step_table_reserve(step, rows.rows * sizeof(float));
    step_table table = step_table_take(step, rows.rows * sizeof(float));
    float *own = (float *)(void *)table.host;
    for (uint32_t i = 0; i < rows.rows; i++) {
        uint32_t row = run_batch_row(step->batch, rows.first + i, site->head);
        own[i] = second * (run_factor(run, row) * first);
    }
    step_table_send(step, &table);
    return (const float *)(const void *)table.card;
}

/* The input of B: A · x of the run's rows, times factor and scale. */
static activation_view low_rank(cuda_step *step, const cuda_site *site, const adapter_run *run,
                                const adapter_delta *delta, run_rows rows,
                                const activation_view *input) {
    activation_view x = activation_from(&input[panels_form(delta->down.type)], rows.first, 0);
    x.rows = rows.rows;
    uint32_t rank = delta->down.rows;
    linear_one down = step_linear(&delta->down, &x);
    down.out = step->scratch->low_rank;
    down.out_stride = rank;
    step_multiply(step, &down, 1);
    activation_view h =
        activation_lay(panels_form(delta->up.type), rows.rows, rank, step->scratch->low_rank_form);
    prepare_call call = {.out = step_form(&h),
                         .x = step->scratch->low_rank,
                         .stride = rank,
                         .k = rank,
                         .factor = factors(step, site, run, rows, delta->scale, 1.0f)};
    step_prepare(step, &call, rows.rows);
    return h;
}

static void add_up(cuda_step *step, const cuda_site *site, const adapter_run *run,
                   const adapter_delta *delta, run_rows rows, const cuda_product *product,
                   float *out, const activation_view *input) {
    float add_scale = product->add ? product->add_scale : 1.0f;
    activation_view x;
    const float *row_scale = NULL;
    if (delta->down.data != NULL) {
        x = low_rank(step, site, run, delta, rows, input);
    } else {
        x = activation_from(&input[panels_form(delta->up.type)], rows.first, 0);
        x.rows = rows.rows;
        row_scale = factors(step, site, run, rows, delta->scale, add_scale);
    }
    linear_one up = step_linear(&delta->up, &x);
    up.out = out;
    up.out_stride = product->out_stride;
    up.add = true;
    up.add_scale = add_scale;
    up.row_scale = row_scale;
    step_multiply(step, &up, 1);
}

static void add_run(cuda_step *step, const cuda_site *site, uint32_t slot, const adapter_run *run,
                    const cuda_product *product, const activation_view *input) {
    const adapter_delta *delta = delta_of(run, site, slot);
    run_rows rows = run_rows_of(step->batch, run, site->head);
    float *out = product->out + rows.first * product->out_stride;
    if (rows.rows == 0)
        return;
    if (delta->up.data != NULL)
        add_up(step, site, run, delta, rows, product, out, input);
    if (delta->offset == NULL)
        return;
    uint32_t outputs = product->linear->weight.rows;
    offset_call call = {
        .offset = delta->offset,
        .factor = factors(step, site, run, rows, product->add ? product->add_scale : 1.0f, 1.0f),
        .out = out,
        .stride = product->out_stride,
        .count = outputs};
    cuda_launch launch = {CUDA_KERNEL_offset, (outputs + BLOCK - 1) / BLOCK, rows.rows, 1, BLOCK, 0,
                          CUDA_BEHIND};
    step_launch(step, &launch, &call);
}

void adapt_product(cuda_step *step, const cuda_site *site, uint32_t slot,
                   const cuda_product *product, float *base, const activation_view *input) {
    if (adapt_gains(step, site, slot))
        apply_gains(step, site, slot, product, base);
    for (uint32_t i = 0; i < step->batch->runs; i++)
        add_run(step, site, slot, &step->batch->run[i], product, input);
}
