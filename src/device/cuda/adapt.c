/* Adapters in a step, each row's own in the order of their digests.
 *
 *   h = A · x        into scratch, then times factor · scale into the form that B reads
 *   y += B · h       and the offset
 *
 * Runs that share no row are computed together, for all matrices of a site: a launch for A, one for
 * h, one for B, as far as one launch has room for them. */
#include "device/cuda/step_int.h"

#include "device/cuda/kernels/rows.h"

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

/* Runs [first, end) share no row, and their matrices at a site are computed together. */
typedef struct adapt_wave {
    const cuda_site *site;
    const cuda_product *products;
    const activation_view *input; /* the site's rows in all forms that are read */
    uint32_t first, end;
    step_table factors; /* of each run and matrix, of each row */
    uint32_t used;
} adapt_wave;

/* One matrix of a run. */
typedef struct adapt_item {
    const adapter_run *run;
    const adapter_delta *delta;
    run_rows rows;
    uint32_t slot;
    float add_scale;
    float *out;
} adapt_item;

/* False: the run adds nothing there. */
static bool item_of(const cuda_step *step, const adapt_wave *wave, uint32_t number,
                    adapt_item *item) {
    uint32_t count = wave->site->count;
    const adapter_run *run = &step->batch->run[wave->first + number / count];
    uint32_t slot = number % count;
    const cuda_product *product = &wave->products[slot];
    *item = (adapt_item){.run = run,
                         .delta = delta_of(run, wave->site, slot),
                         .rows = run_rows_of(step->batch, run, wave->site->head),
                         .slot = slot,
                         .add_scale = product->add ? product->add_scale : 1.0f};
    item->out = product->out + item->rows.first * product->out_stride;
    return item->rows.rows > 0 && (item->delta->up.data != NULL || item->delta->offset != NULL);
}

static uint32_t items_of(const adapt_wave *wave) {
    return (wave->end - wave->first) * wave->site->count;
}

/* A number for each of the run's rows: its factor times `first` times `second`, from left to right.
 * Where they will lie on the card. */
static const float *factors(cuda_step *step, adapt_wave *wave, const adapt_item *item, float first,
                            float second) {
    float *own = (float *)(void *)wave->factors.host + wave->used;
    for (uint32_t i = 0; i < item->rows.rows; i++) {
        uint32_t row = run_batch_row(step->batch, item->rows.first + i, wave->site->head);
        own[i] = second * (run_factor(item->run, row) * first);
    }
    const float *card = (const float *)(const void *)wave->factors.card + wave->used;
    wave->used += item->rows.rows;
    return card;
}

/* The input of B: A · x of the run's rows, times factor and scale; each matrix of each row has its
 * own place. */
static activation_view low_rank(cuda_step *step, adapt_wave *wave, const adapt_item *item,
                                linear_one *down, prepare_call *prepare) {
    const adapter_delta *delta = item->delta;
    activation_view x =
        activation_from(&wave->input[panels_form(delta->down.type)], item->rows.first, 0);
    x.rows = item->rows.rows;
    uint32_t rank = delta->down.rows;
    size_t place = (size_t)item->slot * step->stream->base.shape.rows_max + item->rows.first;
    *down = step_linear(&delta->down, &x);
    down->out = step->scratch->low_rank + place * ADAPTER_RANK_MAX;
    down->out_stride = rank;
    activation_view h = activation_lay(panels_form(delta->up.type), item->rows.rows, rank,
                                       step->scratch->low_rank_form +
                                           place * activation_bytes(1, ADAPTER_RANK_MAX));
    *prepare = (prepare_call){.out = step_form(&h),
                              .x = down->out,
                              .stride = rank,
                              .k = rank,
                              .rows = item->rows.rows,
                              .factor = factors(step, wave, item, delta->scale, 1.0f)};
    return h;
}

/* Matrices of a wave that are launched together. */
typedef struct adapt_group {
    linear_one down[LINEAR_GROUP], up[LINEAR_GROUP];
    prepare_batch prepare;
    uint32_t downs, ups, rows, ranks;
} adapt_group;

static void add_item(cuda_step *step, adapt_wave *wave, const adapt_item *item,
                     adapt_group *group) {
    const adapter_delta *delta = item->delta;
    linear_one *up = &group->up[group->ups++];
    activation_view x;
    const float *row_scale = NULL;
    if (delta->down.data != NULL) {
        uint32_t i = group->downs++, rank = delta->down.rows;
        x = low_rank(step, wave, item, &group->down[i], &group->prepare.one[i]);
        group->ranks = rank > group->ranks ? rank : group->ranks;
    } else {
        x = activation_from(&wave->input[panels_form(delta->up.type)], item->rows.first, 0);
        x.rows = item->rows.rows;
        row_scale = factors(step, wave, item, delta->scale, item->add_scale);
    }
    group->rows = x.rows > group->rows ? x.rows : group->rows;
    *up = step_linear(&delta->up, &x);
    up->out = item->out;
    up->out_stride = wave->products[item->slot].out_stride;
    up->add = true;
    up->add_scale = item->add_scale;
    up->row_scale = row_scale;
}

static void launch_group(cuda_step *step, adapt_group *group) {
    cuda_launch prepare = {CUDA_KERNEL_prepare_batch,
                           (group->ranks + PREPARE_K - 1) / PREPARE_K,
                           group->rows,
                           group->downs,
                           PREPARE_THREADS,
                           PREPARE_SHARED,
                           CUDA_BEHIND};
    step_multiply(step, group->down, group->downs);
    if (group->downs > 0)
        step_launch(step, &prepare, &group->prepare);
    step_multiply(step, group->up, group->ups);
}

static void add_offset(cuda_step *step, adapt_wave *wave, const adapt_item *item,
                       const float *factor) {
    const cuda_product *product = &wave->products[item->slot];
    uint32_t outputs = product->linear->weight.rows;
    offset_call call = {.offset = item->delta->offset,
                        .factor = factor,
                        .out = item->out,
                        .stride = product->out_stride,
                        .count = outputs};
    cuda_launch launch = {
        CUDA_KERNEL_offset, (outputs + BLOCK - 1) / BLOCK, item->rows.rows, 1, BLOCK, 0,
        CUDA_BEHIND};
    step_launch(step, &launch, &call);
}

/* All factors are written before the first launch, and sent once. */
static void add_wave(cuda_step *step, adapt_wave *wave) {
    uint32_t rows = 0, all = items_of(wave);
    adapt_item item;
    for (uint32_t i = 0; i < all; i++)
        rows += item_of(step, wave, i, &item) ? 2 * item.rows.rows : 0;
    if (rows == 0)
        return;
    step_table_reserve(step, rows * sizeof(float));
    wave->factors = step_table_take(step, rows * sizeof(float));
    wave->used = 0;
    for (int pass = 0; pass < 2; pass++) { /* the first one fills the table */
        adapt_group group = {0};
        wave->used = 0;
        for (uint32_t i = 0; i < all; i++) {
            if (!item_of(step, wave, i, &item))
                continue;
            if (item.delta->up.data != NULL)
                add_item(step, wave, &item, &group);
            bool full = group.ups == LINEAR_GROUP;
            if ((full || item.delta->offset != NULL) && pass == 1)
                launch_group(step, &group);
            if (full || item.delta->offset != NULL)
                group = (adapt_group){0};
            if (item.delta->offset == NULL)
                continue;
            const cuda_product *product = &wave->products[item.slot];
            const float *factor =
                factors(step, wave, &item, product->add ? product->add_scale : 1.0f, 1.0f);
            if (pass == 1)
                add_offset(step, wave, &item, factor);
        }
        if (pass == 1)
            launch_group(step, &group);
        else
            step_table_send(step, &wave->factors);
    }
}

static bool shares_rows(const adapter_run *a, const adapter_run *b) {
    return a->first < b->first + b->rows && b->first < a->first + a->rows;
}

void adapt_site(cuda_step *step, const cuda_site *site, const cuda_product *products,
                const cuda_product *own, const activation_view *input) {
    const batch_view *batch = step->batch;
    for (uint32_t slot = 0; slot < site->count; slot++)
        if (adapt_gains(step, site, slot))
            apply_gains(step, site, slot, &products[slot], own[slot].out);
    adapt_wave wave = {.site = site, .products = products, .input = input};
    for (; wave.first < batch->runs; wave.first = wave.end) {
        bool shares = false;
        for (wave.end = wave.first; wave.end < batch->runs && !shares; wave.end += !shares)
            for (uint32_t i = wave.first; i < wave.end; i++)
                shares = shares || shares_rows(&batch->run[i], &batch->run[wave.end]);
        add_wave(step, &wave);
    }
}
