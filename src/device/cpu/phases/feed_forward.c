/* Gate and up, the activation that joins them, and the form in which down reads the result: all of
 * it for one part of rows and columns while that part lies in the cache, in one
 * phase. For that, parts must begin where blocks of the form do; where such parts would share out
 * unevenly among many workers, rows are quantised in the next phase instead. */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"

/* Columns that can be quantised by themselves: whole blocks, and whole lines of every array that
 * kernels write in one go. */
#define GRANULE_PANELS     8
#define GRANULE_PANELS_A8R (Q4R_SUPER / QUANT_PANEL_ROWS)

/* `site`: down, which an adapter may read in another form than the base. */
static fast_panels panels_of(const step_view *step, const layer_view *layer,
                             const fast_site *site) {
    unsigned forms = fast_form_of(&layer->down);
    fast_site_adapted(step, site, &forms);
    bool rotated = (forms >> PRODUCT_A8R & 1) != 0;
    return (fast_panels){.weight = &layer->up.weight,
                         .panels = weight_panels(&layer->up.weight),
                         .granule = rotated ? GRANULE_PANELS_A8R : GRANULE_PANELS};
}

/* One row is not: it decodes at the speed of memory, larger parts read better, and every worker
 * quantises it for itself in no time. */
static bool quantised_in_parts(const step_view *step, const fast_panels *panels) {
    return step->batch->rows > 1 && !fast_by_rows(step) &&
           fast_cut_even(step, step->batch->rows, panels);
}

/* Down's input while parts are quantised one by one: in the form that down reads, and for rows with
 * adapters in theirs. */
typedef struct gated_input {
    fast_input input;
    unsigned forms; /* that all rows have */
    bool in_parts;  /* false: rows are quantised in the next phase, `input` is empty */
} gated_input;

/* A part of the shared scratch that no form of `used` lies in; PRODUCT_FORMS: there is none. */
static unsigned free_area(unsigned used) {
    unsigned area = 0;
    while (area < PRODUCT_FORMS && (used >> area & 1))
        area++;
    return area;
}

static bool lay_adapters(const step_view *step, const layer_view *layer, uint32_t number,
                         const fast_site *site, gated_input *out) {
    unsigned wanted = 0;
    if (!fast_site_adapted(step, site, &wanted))
        return true;
    out->input.site = site;
    fast_site before = {number, 2, {ADAPTER_GATE, ADAPTER_UP}};
    unsigned used = 0; /* what gate and up still read while parts are quantised */
    fast_site_adapted(step, &before, &used);
    used |= fast_form_of(&layer->gate) | fast_form_of(&layer->up);
    for (unsigned form = 0; form < PRODUCT_FORMS; form++) {
        if (((wanted & ~out->forms) >> form & 1) == 0)
            continue;
        unsigned area = free_area(used);
        if (area == PRODUCT_FORMS)
            return false;
        used |= 1u << area;
        out->input.form[form] =
            activation_lay((product_form)form, step->batch->rows, layer->down.weight.k,
                           fast_shared_form(step, (product_form)area));
    }
    return true;
}

static gated_input gated_plan(const step_view *step, const layer_view *layer, uint32_t number,
                              const fast_panels *panels, const fast_site *site) {
    gated_input out = {.forms = fast_form_of(&layer->down)};
    if (!quantised_in_parts(step, panels))
        return out;
    product_form form = panels_form(layer->down.weight.type);
    out.input.form[form] =
        activation_lay(form, step->batch->rows, layer->down.weight.k, fast_shared_gated(step));
    out.in_parts = step->batch->runs == 0 || lay_adapters(step, layer, number, site, &out);
    return out;
}

/* Columns [begin, end) of one row, as a view of one row. Behind the last column it goes on to the
 * end of the row, so that the padding is cleared too. */
static activation_view part_of(const activation_view *view, uint32_t row, size_t begin,
                               size_t end) {
    activation_view part = activation_from(view, row, begin);
    part.rows = 1;
    part.k = (uint32_t)(end - begin);
    part.stride = (end < view->k ? end : view->stride) - begin;
    return part;
}

/* Columns of one row into every form that somebody reads them in. */
static void quantise_columns(const step_view *step, const fast_worker *own,
                             const gated_input *gated, uint32_t row, size_t begin, size_t count,
                             const float *columns) {
    unsigned forms = gated->forms;
    if (gated->input.site != NULL)
        forms |= fast_row_forms(step, gated->input.site, row);
    for (unsigned form = 0; form < PRODUCT_FORMS; form++)
        if (forms >> form & 1) {
            activation_view to = part_of(&gated->input.form[form], row, begin, begin + count);
            step->backend->ops->quantise(columns, &to, 0, own->linear);
        }
}

/* A part of gate and up, and the activation on what they gave. The gate's outputs are written where
 * this worker's last ones were, so that they never leave its cache. */
static void gated_part(const step_view *step, const fast_worker *own, const fast_input *input,
                       const layer_view *layer, const gated_input *gated, const fast_part *part) {
    const op_table *ops = step->backend->ops;
    size_t stride = layer->feed_forward, first = fast_first_row(step, layer, ADAPTER_UP);
    size_t begin = part->first * QUANT_PANEL_ROWS;
    size_t count = size_min(part->last * QUANT_PANEL_ROWS, layer->up.weight.rows) - begin;
    float *up = step->scratch->up + part->row_begin * stride + first;
    fast_product up_product = {.linear = &layer->up,
                               .out = up,
                               .out_stride = stride,
                               .slot = 1,
                               .first_panel = first / QUANT_PANEL_ROWS};
    fast_product_part(step, own, input, &up_product, part, up);
    const float *gate = NULL;
    if (layer->gate.weight.data != NULL) {
        linear_view slice = {
            .weight = weight_slice(&layer->gate.weight, (uint32_t)begin, (uint32_t)count),
            .bias = layer->gate.bias == NULL ? NULL : layer->gate.bias + begin};
        fast_product gate_product = {.linear = &slice,
                                     .out_stride = count,
                                     .first_panel = first / QUANT_PANEL_ROWS + part->first};
        fast_part slice_part = {part->row_begin, part->row_end, 0, part->last - part->first};
        fast_product_part(step, own, input, &gate_product, &slice_part, own->gate);
        gate = own->gate;
    }
    for (uint32_t row = 0; row < part->row_end - part->row_begin; row++) {
        float *columns = up + begin + row * stride;
        ops->activate(layer->activation, gate == NULL ? NULL : gate + row * count, columns, count);
        if (gated->in_parts)
            quantise_columns(step, own, gated, part->row_begin + row, begin, count, columns);
    }
}

/* What the phase needs to know: how it is cut, and how down's input is quantised. */
static gated_input gated_of(const step_view *step, uint32_t number, const fast_site *down,
                            fast_panels *panels) {
    const layer_view *layer = &step->model->layer[number];
    *panels = panels_of(step, layer, down);
    gated_input gated = gated_plan(step, layer, number, panels, down);
    if (!gated.in_parts)
        panels->granule = 1;
    return gated;
}

static void gated_items(const step_view *step, const phase_entry *at, team_items *items) {
    const layer_view *layer = &step->model->layer[at->layer];
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    fast_site down = {at->layer, 1, {ADAPTER_DOWN}};
    fast_panels panels;
    gated_input gated = gated_of(step, at->layer, &down, &panels);
    fast_cut cut = fast_cut_make(step, operand.rows.rows, &panels);
    fast_part part;
    while (fast_cut_take(&cut, items, &part))
        gated_part(step, &own, &input, layer, &gated, &part);
}

void fast_add_gated(phase_list *list) {
    const step_view *step = list->step;
    fast_site down = {list->layer, 1, {ADAPTER_DOWN}};
    fast_panels panels;
    (void)gated_of(step, list->layer, &down, &panels);
    fast_add_input(list, PLACE_GATE_UP);
    phase_list_add(list, PLACE_GATE_UP, gated_items,
                   fast_cut_make(step, step->batch->rows, &panels).items);
    fast_take_counts(list, PLACE_GATE_UP);
    fast_add_exchange(list, PLACE_GATE_UP);
}

bool fast_gated_input(const step_view *step, uint32_t number, const fast_site *site,
                      fast_input *input) {
    fast_panels panels;
    gated_input gated = gated_of(step, number, site, &panels);
    *input = gated.input;
    return gated.in_parts;
}
