/* Rows into the forms that products read: norm, then quantise, for as many forms as the matrices
 * behind ask for. */
#include "device/cpu/phases/fast_int.h"

#define TOGETHER_ROWS    16
#define TOGETHER_WORKERS 4

unsigned fast_form_of(const linear_view *linear) {
    return linear->weight.data == NULL ? 0 : 1u << panels_form(linear->weight.type);
}

/* ---- Where rows come from ---- */

static void of_query_key_value(const step_view *step, uint32_t number, fast_operand *out) {
    const layer_view *layer = &step->model->layer[number];
    out->site = (fast_site){number, 3, {ADAPTER_QUERY, ADAPTER_KEY, ADAPTER_VALUE}};
    if (number == 0 && step->batch->attention_input != NULL) {
        out->rows.x = step->batch->attention_input;
        out->rows.k = layer->query.weight.k;
    } else {
        out->rows.norm = layer->norm_after ? &fast_no_norm : &layer->attention_norm;
        out->rows.place = ADAPTER_ATTENTION_NORM;
    }
    out->forms =
        fast_form_of(&layer->query) | fast_form_of(&layer->key) | fast_form_of(&layer->value);
}

static void of_output(const step_view *step, uint32_t number, fast_operand *out) {
    const layer_view *layer = &step->model->layer[number];
    out->site = (fast_site){number, 1, {ADAPTER_OUTPUT}};
    out->rows.x = step->scratch->attended;
    out->rows.k = layer->output.weight.k;
    out->forms = fast_form_of(&layer->output);
    out->ready = fast_exchanged_input(step, PLACE_QUERY_KEY_VALUE, number, &out->input);
}

static void of_gate_up(const step_view *step, uint32_t number, fast_operand *out) {
    const layer_view *layer = &step->model->layer[number];
    out->site = (fast_site){number, 2, {ADAPTER_GATE, ADAPTER_UP}};
    out->rows.norm = layer->norm_after ? &fast_no_norm : &layer->feed_forward_norm;
    out->rows.place = ADAPTER_FEED_FORWARD_NORM;
    out->forms = fast_form_of(&layer->gate) | fast_form_of(&layer->up);
}

/* Adapters change no experts. */
static void of_experts(const step_view *step, uint32_t number, fast_operand *out) {
    const layer_view *layer = &step->model->layer[number];
    out->rows.norm = layer->norm_after ? &fast_no_norm : &layer->feed_forward_norm;
    out->rows.place = ADAPTER_FEED_FORWARD_NORM;
    out->forms = fast_experts_forms(&layer->experts);
}

static void of_down(const step_view *step, uint32_t number, fast_operand *out) {
    const layer_view *layer = &step->model->layer[number];
    out->site = (fast_site){number, 1, {ADAPTER_DOWN}};
    out->rows.x = step->scratch->up;
    out->rows.k = layer->down.weight.k;
    out->forms = fast_form_of(&layer->down);
    out->ready = fast_by_rows(step) ? fast_exchanged_input(step, PLACE_GATE_UP, number, &out->input)
                                    : fast_gated_input(step, number, &out->site, &out->input);
}

static void of_head(const step_view *step, phase_place place, fast_operand *out) {
    const model_view *model = step->model;
    bool projected = model->head_project.weight.data != NULL;
    out->rows.rows = step->batch->logit_rows;
    out->rows.logits = true;
    if (place == PLACE_HEAD && projected) {
        out->rows.x = step->scratch->projected;
        out->rows.k = model->head.weight.k;
    } else {
        out->rows.index = step->batch->logit_row;
        out->rows.norm = &model->final_norm;
        out->rows.place = ADAPTER_FINAL_NORM;
    }
    out->forms = fast_form_of(place == PLACE_HEAD ? &model->head : &model->head_project);
    out->site = (fast_site){0, place == PLACE_HEAD ? 1 : 0, {ADAPTER_HEAD}};
}

/* With more workers it is more that all of them repeat. */
static bool prepared_alone(const fast_rows *rows, uint32_t workers) {
    size_t most = workers <= 2 ? ALONE_NUMBERS : 2 * ALONE_NUMBERS / workers;
    return rows->rows == 1 || (rows->rows <= ALONE_ROWS && (size_t)rows->rows * rows->k <= most);
}

/* Few rows and workers: they share the rows out without a phase for it. One row is not worth that.
 * The head's phase has another use for its counters, and several phases read the input of experts.
 */
static bool prepared_together(const step_view *step, phase_place place, const fast_rows *rows) {
    uint32_t workers = team_size(step->team);
    return workers > 1 && workers <= TOGETHER_WORKERS && rows->rows > 1 &&
           rows->rows <= TOGETHER_ROWS && step->batch->runs == 0 && place != PLACE_HEAD &&
           place != PLACE_HEAD_PROJECT && place != PLACE_EXPERTS;
}

void fast_operand_make(const step_view *step, phase_place place, uint32_t layer,
                       fast_operand *out) {
    *out = (fast_operand){.rows = {.x = step->scratch->hidden,
                                   .rows = step->batch->rows,
                                   .k = step->model->width,
                                   .layer = layer}};
    switch (place) {
    case PLACE_QUERY_KEY_VALUE:
        of_query_key_value(step, layer, out);
        break;
    case PLACE_OUTPUT:
        of_output(step, layer, out);
        break;
    case PLACE_GATE_UP:
        of_gate_up(step, layer, out);
        break;
    case PLACE_DOWN:
        of_down(step, layer, out);
        break;
    case PLACE_EXPERTS:
        of_experts(step, layer, out);
        break;
    case PLACE_HEAD_PROJECT:
    case PLACE_HEAD:
        of_head(step, place, out);
        break;
    case PLACE_NONE:
        break;
    }
    out->rows.stride = out->rows.k;
    out->together = !out->ready && prepared_together(step, place, &out->rows);
    out->alone = !out->together && prepared_alone(&out->rows, team_size(step->team));
}

/* ---- Preparing ---- */

static const float *row_at(const fast_rows *rows, size_t row) {
    return rows->x + (rows->index == NULL ? row : rows->index[row]) * rows->stride;
}

static void prepare_row(const step_view *step, const fast_worker *own, const fast_operand *operand,
                        const fast_input *input, uint32_t row) {
    const op_table *ops = step->backend->ops;
    const fast_rows *rows = &operand->rows;
    unsigned forms = operand->forms;
    const float *x = row_at(rows, row);
    if (rows->norm != NULL && rows->norm->kind != NORM_NONE) {
        norm_view norm = *rows->norm;
        if (step->batch->runs > 0)
            norm = run_norm(step->batch, run_batch_row(step->batch, row, rows->logits), rows->layer,
                            rows->place, rows->norm, rows->k, own->norm);
        ops->norm(&norm, x, rows->k, own->row);
        x = own->row;
    }
    if (input->site != NULL)
        forms |= fast_row_forms(step, input->site, run_batch_row(step->batch, row, rows->logits));
    for (unsigned form = 0; form < PRODUCT_FORMS; form++)
        if (forms >> form & 1)
            ops->quantise(x, &input->form[form], row, own->linear);
}

/* Where the rows lie in their forms. */
static fast_input lay_input(const step_view *step, const fast_worker *own,
                            const fast_operand *operand) {
    if (operand->ready)
        return operand->input;
    fast_input input = {0};
    unsigned adapters = 0; /* forms that only some rows need */
    if (step->batch->runs > 0 && fast_site_adapted(step, &operand->site, &adapters))
        input.site = &operand->site;
    for (unsigned form = 0; form < PRODUCT_FORMS; form++)
        if ((operand->forms | adapters) >> form & 1)
            input.form[form] =
                activation_lay((product_form)form, operand->rows.rows, operand->rows.k,
                               operand->alone ? own->alone + form * own->alone_bytes
                                              : fast_shared_form(step, (product_form)form));
    return input;
}

/* The same, and prepared where every worker does that for itself. */
static fast_input read_alone(const step_view *step, const fast_worker *own,
                             const fast_operand *operand) {
    fast_input input = lay_input(step, own, operand);
    if (operand->alone && !operand->ready)
        for (uint32_t row = 0; row < operand->rows.rows; row++)
            prepare_row(step, own, operand, &input, row);
    return input;
}

/* The same, each block of rows by the worker that comes first to it, and each worker first to its
 * own: so all do it at the same time, and none does it twice. */
static fast_input read_together(const step_view *step, const phase_entry *at,
                                const fast_worker *own, const fast_operand *operand) {
    fast_input input = lay_input(step, own, operand);
    uint32_t blocks = at->counts;
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t block = (own->index + i) % blocks;
        if (!phase_claim(at, block))
            continue;
        size_t row, end;
        team_share(operand->rows.rows, block, blocks, &row, &end);
        for (; row < end; row++)
            prepare_row(step, own, operand, &input, (uint32_t)row);
        phase_finish(at, block);
    }
    for (uint32_t block = 0; block < blocks; block++)
        phase_await(at, block);
    return input;
}

void fast_take_counts(phase_list *list, phase_place place) {
    fast_operand operand;
    fast_operand_make(list->step, place, list->layer, &operand);
    uint32_t workers = team_size(list->step->team), rows = operand.rows.rows;
    if (operand.together)
        phase_list_count(list, workers < rows ? workers : rows);
}

fast_input fast_take_input(const step_view *step, const phase_entry *at, const fast_worker *own,
                           const fast_operand *operand) {
    fast_input input =
        operand->together ? read_together(step, at, own, operand) : read_alone(step, own, operand);
    if (input.site != NULL)
        fast_adapt_input(step, own, &input);
    return input;
}

static void prepare_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = lay_input(step, &own, &operand);
    uint32_t item, row, end;
    while (team_take(items, &item))
        for (fast_item_rows(operand.rows.rows, item, &row, &end); row < end; row++)
            prepare_row(step, &own, &operand, &input, row);
}

static void adapt_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = read_alone(step, &own, &operand);
    uint32_t item;
    while (team_take(items, &item))
        fast_adapt_item(step, &own, &input, item);
}

void fast_add_input(phase_list *list, phase_place place) {
    const step_view *step = list->step;
    fast_operand operand;
    fast_operand_make(step, place, list->layer, &operand);
    if (!operand.alone && !operand.together && !operand.ready)
        phase_list_add(list, place, prepare_items, fast_row_items(operand.rows.rows));
    unsigned ignored = 0;
    if (step->batch->runs > 0 && fast_site_adapted(step, &operand.site, &ignored))
        phase_list_add(list, place, adapt_items, fast_adapt_items(step, &operand.site));
}
