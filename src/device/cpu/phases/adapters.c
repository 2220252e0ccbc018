/* Adapters in the fast back ends: rows under one adapter are products of their own, beside those of
 * the base.
 *
 *   h = A · x        a phase of its own before the base's products. With few rows an item is a
 * panel of an A, and behind the phase every worker takes h · factor · scale into the form that B
 * reads, for itself; with many it is a block of rows, which is taken into that form at once. y += B
 * · h       right behind the base's product of the same part of rows and panels, while its outputs
 * are in the cache.
 *
 * Every output of every row is summed up in an order that depends on that row's request alone: the
 * base, times its gains; then, adapter by adapter, B · h and the offset.
 */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"
#include "device/cpu/linear_run.h"

#define BLOCK_ROWS 32 /* with many rows: of an item */

/* ---- What is there ---- */

static const adapter_delta *delta_of(const adapter_run *run, const fast_site *site, uint32_t slot) {
    return adapter_delta_of(run->adapter, site->layer, site->matrix[slot]);
}

static bool at_head(const fast_site *site) {
    return site->matrix[0] == ADAPTER_HEAD;
}

/* The form in which what comes first in a delta reads x; no bit where nothing does. */
static unsigned delta_form(const adapter_delta *delta) {
    if (delta->up.data == NULL)
        return 0;
    return 1u << panels_form(delta->down.data != NULL ? delta->down.type : delta->up.type);
}

bool fast_site_adapted(const step_view *step, const fast_site *site, unsigned *forms) {
    bool any = false;
    for (uint32_t i = 0; i < step->batch->runs; i++)
        for (uint32_t slot = 0; slot < site->count; slot++) {
            const adapter_delta *delta = delta_of(&step->batch->run[i], site, slot);
            any = any || !adapter_delta_empty(delta);
            *forms |= delta_form(delta);
        }
    return any;
}

unsigned fast_row_forms(const step_view *step, const fast_site *site, uint32_t row) {
    const batch_view *batch = step->batch;
    unsigned forms = 0;
    uint32_t own[ADAPTERS_OF_ROW];
    uint32_t runs = runs_of_row(batch, row, own);
    for (uint32_t i = 0; i < runs; i++)
        for (uint32_t slot = 0; slot < site->count; slot++)
            forms |= delta_form(delta_of(&batch->run[own[i]], site, slot));
    return forms;
}

/* ---- h ---- */

/* What A makes of one run's rows, for one matrix. */
typedef struct low_rank {
    const adapter_delta *delta;
    const adapter_run *run;
    run_rows rows;
    float *h; /* [rows][stride] */
    size_t stride;
    activation_view form; /* times factor · scale, as B reads it */
    bool same_down;       /* a matrix before it has the same A: h is there already */
    bool same_form;       /* and the same scale */
} low_rank;

/* Finds a matrix before `slot` with the same A. */
static uint32_t first_sharer(const adapter_run *run, const fast_site *site, uint32_t slot,
                             bool scale) {
    const adapter_delta *own = delta_of(run, site, slot);
    for (uint32_t i = 0; i < slot; i++) {
        const adapter_delta *other = delta_of(run, site, i);
        if (weight_same(&other->down, &own->down) && other->up.data != NULL &&
            (!scale || (other->scale == own->scale && other->up.type == own->up.type)))
            return i;
    }
    return slot;
}

/* False where the adapter has no low rank there, or none of its rows is in the phase. */
static bool low_rank_of(const step_view *step, const fast_input *input, const adapter_run *run,
                        uint32_t slot, low_rank *out) {
    const adapter_delta *delta = delta_of(run, input->site, slot);
    if (delta->up.data == NULL || delta->down.data == NULL)
        return false;
    out->delta = delta;
    out->run = run;
    out->rows = run_rows_of(step->batch, run, at_head(input->site));
    if (out->rows.rows == 0)
        return false;
    uint32_t source = first_sharer(run, input->site, slot, false);
    uint32_t formed = first_sharer(run, input->site, slot, true);
    const run_place *place = run_place_of(step, run);
    size_t matrix = run->rows * (place->row / ADAPTER_INPUT_MATRICES);
    out->same_down = source < slot;
    out->same_form = formed < slot;
    out->stride = adapter_rank_room(delta->down.rows);
    out->h = step->scratch->adapted + place->first + source * matrix;
    out->form =
        activation_lay(panels_form(delta->up.type), out->rows.rows, delta->up.k,
                       input->adapted + (place->first + formed * matrix) * FAST_ADAPTED_NUMBER);
    return true;
}

/* Panels [first, last) of A for rows [begin, end) of the run. */
static void multiply_down(const step_view *step, const fast_worker *own, const fast_input *input,
                          const low_rank *low, uint32_t begin, uint32_t end, size_t first,
                          size_t last) {
    const weight_view *down = &low->delta->down;
    activation_view x =
        activation_from(&input->form[panels_form(down->type)], low->rows.first + begin, 0);
    x.rows = end - begin;
    linear_call call = {.weight = down,
                        .x = &x,
                        .out = low->h + begin * low->stride,
                        .out_stride = low->stride,
                        .end = LINEAR_STORE};
    linear_run(step->backend->ops, &call, first, last, own->linear);
}

/* Rows [begin, end) of h, times factor · scale, as B reads them. */
static void form_rows(const step_view *step, const fast_worker *own, const fast_input *input,
                      const low_rank *low, uint32_t begin, uint32_t end) {
    uint32_t rank = low->delta->down.rows;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t row = run_batch_row(step->batch, low->rows.first + i, at_head(input->site));
        float factor = run_factor(low->run, row) * low->delta->scale;
        const float *h = low->h + i * low->stride;
        for (uint32_t j = 0; j < rank; j++)
            own->row[j] = h[j] * factor;
        step->backend->ops->quantise(own->row, &low->form, i, own->linear);
    }
}

/* Few rows: panels [begin, end) of all A's, one behind the other, are this worker's. */
static void share_panels(const step_view *step, const fast_worker *own, const fast_input *input,
                         size_t begin, size_t end) {
    size_t at = 0;
    low_rank low;
    for (uint32_t i = 0; i < step->batch->runs && at < end; i++)
        for (uint32_t slot = 0; slot < input->site->count; slot++) {
            if (!low_rank_of(step, input, &step->batch->run[i], slot, &low) || low.same_down)
                continue;
            size_t panels = weight_panels(&low.delta->down);
            size_t first = begin > at ? begin - at : 0;
            size_t last = end > at ? size_min(end - at, panels) : 0;
            if (first < last)
                multiply_down(step, own, input, &low, 0, low.rows.rows, first, last);
            at += panels;
        }
}

static void form_all(const step_view *step, const fast_worker *own, const fast_input *input) {
    low_rank low;
    for (uint32_t i = 0; i < step->batch->runs; i++)
        for (uint32_t slot = 0; slot < input->site->count; slot++)
            if (low_rank_of(step, input, &step->batch->run[i], slot, &low) && !low.same_form)
                form_rows(step, own, input, &low, 0, low.rows.rows);
}

/* Many rows: blocks [begin, end) of all. Matrices that share an A do not share blocks: whoever has
 * one computes h and all that is made of it. */
static void share_blocks(const step_view *step, const fast_worker *own, const fast_input *input,
                         size_t begin, size_t end) {
    size_t at = 0;
    low_rank low;
    for (uint32_t i = 0; i < step->batch->runs && at < end; i++)
        for (uint32_t slot = 0; slot < input->site->count; slot++) {
            if (!low_rank_of(step, input, &step->batch->run[i], slot, &low) || low.same_form)
                continue;
            const run_place *place = run_place_of(step, low.run);
            low.h = step->scratch->adapted + place->first +
                    slot * low.run->rows * (place->row / ADAPTER_INPUT_MATRICES);
            for (uint32_t row = 0; row < low.rows.rows; row += BLOCK_ROWS, at++) {
                uint32_t last = (uint32_t)size_min(row + BLOCK_ROWS, low.rows.rows);
                if (at < begin || at >= end)
                    continue;
                multiply_down(step, own, input, &low, row, last, 0,
                              weight_panels(&low.delta->down));
                form_rows(step, own, input, &low, row, last);
            }
        }
}

/* Few enough rows that every worker takes h into B's form for itself. */
static bool few_rows(const step_view *step) {
    const adapter_run *last = &step->batch->run[step->batch->runs - 1];
    const run_place *place = run_place_of(step, last);
    size_t numbers = place->first + last->rows * place->row;
    return numbers * FAST_ADAPTED_NUMBER <= FAST_ADAPTED_ALONE;
}

size_t fast_adapt_items(const step_view *step, const fast_site *site) {
    const batch_view *batch = step->batch;
    bool few = few_rows(step);
    size_t items = 0;
    low_rank low;
    fast_input input = {.site = site, .adapted = fast_shared_adapted(step)};
    for (uint32_t i = 0; i < batch->runs; i++)
        for (uint32_t slot = 0; slot < site->count; slot++)
            if (low_rank_of(step, &input, &batch->run[i], slot, &low)) {
                if (few)
                    items += low.same_down ? 0 : weight_panels(&low.delta->down);
                else
                    items += low.same_form ? 0 : (low.rows.rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
            }
    return items;
}

void fast_adapt_item(const step_view *step, const fast_worker *own, const fast_input *input,
                     uint32_t item) {
    fast_input to = *input;
    to.adapted = fast_shared_adapted(step);
    if (few_rows(step))
        share_panels(step, own, &to, item, (size_t)item + 1);
    else
        share_blocks(step, own, &to, item, (size_t)item + 1);
}

void fast_adapt_input(const step_view *step, const fast_worker *own, fast_input *input) {
    bool few = few_rows(step);
    input->adapted = few ? own->adapted : fast_shared_adapted(step);
    if (few)
        form_all(step, own, input);
}

/* ---- y ---- */

/* Where a part of a product lies among the outputs of its matrix. */
typedef struct adapted_part {
    const fast_input *input;
    const fast_product *product;
    const fast_part *part;
    float *out; /* row row_begin */
} adapted_part;

static void add_up(const step_view *step, const fast_worker *own, const adapted_part *to,
                   const adapter_delta *delta, const activation_view *x, uint32_t row,
                   float factor) {
    const fast_product *product = to->product;
    weight_view up = delta->up;
    if (product->first_panel > 0)
        up = weight_slice(&delta->up, (uint32_t)product->first_panel * QUANT_PANEL_ROWS,
                          product->linear->weight.rows);
    linear_call call = {.weight = &up,
                        .x = x,
                        .out = to->out + (row - to->part->row_begin) * product->out_stride,
                        .out_stride = product->out_stride,
                        .end = LINEAR_ADD,
                        .add_scale =
                            product->end == LINEAR_ADD ? product->add_scale * factor : factor};
    linear_run(step->backend->ops, &call, to->part->first, to->part->last, own->linear);
}

/* A matrix trained as a whole reads x itself; rows of the same factor go together. */
static void add_whole(const step_view *step, const fast_worker *own, const adapted_part *to,
                      const adapter_run *run, const adapter_delta *delta, uint32_t begin,
                      uint32_t end) {
    const fast_input *input = to->input;
    bool head = at_head(input->site);
    while (begin < end) {
        float factor = run_factor(run, run_batch_row(step->batch, begin, head));
        uint32_t last = begin + 1;
        while (last < end && run_factor(run, run_batch_row(step->batch, last, head)) == factor)
            last++;
        activation_view x = activation_from(&input->form[panels_form(delta->up.type)], begin, 0);
        x.rows = last - begin;
        add_up(step, own, to, delta, &x, begin, factor * delta->scale);
        begin = last;
    }
}

static void add_offset(const step_view *step, const adapted_part *to, const adapter_run *run,
                       const float *offset, uint32_t begin, uint32_t end) {
    const fast_product *product = to->product;
    size_t first = to->part->first * QUANT_PANEL_ROWS;
    size_t last = size_min(to->part->last * QUANT_PANEL_ROWS, product->linear->weight.rows);
    offset += product->first_panel * QUANT_PANEL_ROWS;
    for (uint32_t row = begin; row < end; row++) {
        float factor = run_factor(run, run_batch_row(step->batch, row, at_head(to->input->site)));
        factor = product->end == LINEAR_ADD ? factor * product->add_scale : factor;
        float *out = to->out + (row - to->part->row_begin) * product->out_stride;
        for (size_t i = first; i < last; i++)
            out[i] += factor * offset[i];
    }
}

static void add_run(const step_view *step, const fast_worker *own, const adapted_part *to,
                    const adapter_run *run) {
    const fast_input *input = to->input;
    const adapter_delta *delta = delta_of(run, input->site, to->product->slot);
    run_rows rows = run_rows_of(step->batch, run, at_head(input->site));
    uint32_t begin = rows.first > to->part->row_begin ? rows.first : to->part->row_begin;
    uint32_t end = (uint32_t)size_min(rows.first + rows.rows, to->part->row_end);
    if (begin >= end)
        return;
    low_rank low;
    if (low_rank_of(step, input, run, to->product->slot, &low)) {
        activation_view h = activation_from(&low.form, begin - rows.first, 0);
        h.rows = end - begin;
        add_up(step, own, to, delta, &h, begin, 1.0f);
    } else if (delta->up.data != NULL) {
        add_whole(step, own, to, run, delta, begin, end);
    }
    if (delta->offset != NULL)
        add_offset(step, to, run, delta->offset, begin, end);
}

/* The runs of the part's rows, in order: those of its first row, then all that begin behind it. */
static void add_runs(const step_view *step, const fast_worker *own, const adapted_part *to) {
    const batch_view *batch = step->batch;
    bool head = at_head(to->input->site);
    if (to->part->row_begin >= to->part->row_end)
        return;
    uint32_t row = run_batch_row(batch, to->part->row_begin, head);
    uint32_t last = run_batch_row(batch, to->part->row_end - 1, head);
    uint32_t first[ADAPTERS_OF_ROW];
    uint32_t count = runs_of_row(batch, row, first);
    for (uint32_t i = 0; i < count; i++)
        add_run(step, own, to, &batch->run[first[i]]);
    for (uint32_t i = runs_until(batch, row); i < batch->runs && batch->run[i].first <= last; i++)
        add_run(step, own, to, &batch->run[i]);
}

/* Gains on the outputs of the base, which then join `out` where they have not yet. */
static void apply_gains(const step_view *step, const adapted_part *to, float *base) {
    const fast_site *site = to->input->site;
    const fast_product *product = to->product;
    size_t first = to->part->first * QUANT_PANEL_ROWS;
    size_t count =
        size_min(to->part->last * QUANT_PANEL_ROWS, product->linear->weight.rows) - first;
    for (uint32_t i = 0; i < to->part->row_end - to->part->row_begin; i++) {
        uint32_t row = run_batch_row(step->batch, to->part->row_begin + i, at_head(site));
        float *y = base + i * product->out_stride + first;
        run_apply_gains(step->batch, row, site->layer, site->matrix[product->slot],
                        product->first_panel * QUANT_PANEL_ROWS + first, count, y);
        if (base != to->out)
            step->backend->ops->add_scaled(y, product->add_scale,
                                           to->out + i * product->out_stride + first, count);
    }
}

void fast_adapt_part(const step_view *step, const fast_worker *own, const fast_input *input,
                     const fast_product *product, const fast_part *part, float *base, float *out) {
    adapted_part to = {input, product, part, out};
    if (base != out ||
        run_gains(step->batch, input->site->layer, input->site->matrix[product->slot]))
        apply_gains(step, &to, base);
    add_runs(step, own, &to);
}
