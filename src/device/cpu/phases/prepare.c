/* Rows into the forms that products read: norm, then quantise, for as many forms as the matrices
 * behind ask for. */
#include "device/cpu/phases/fast_int.h"

unsigned fast_form_of(const linear_view *linear) {
    return linear->weight.data == NULL ? 0 : 1u << panels_form(linear->weight.type);
}

static const float *row_at(const fast_rows *rows, size_t row) {
    return rows->x + (rows->index == NULL ? row : rows->index[row]) * rows->stride;
}

static void prepare_row(const step_view *step, const fast_worker *own, const fast_rows *rows,
                        const fast_input *input, unsigned forms, uint32_t row) {
    const op_table *ops = step->backend->ops;
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

/* With more workers it is more that all of them repeat. */
static bool prepared_alone(const fast_rows *rows, uint32_t workers) {
    size_t most = workers <= 2 ? ALONE_NUMBERS : 2 * ALONE_NUMBERS / workers;
    return rows->rows == 1 || (rows->rows <= ALONE_ROWS && (size_t)rows->rows * rows->k <= most);
}

fast_input fast_prepare(const step_view *step, uint32_t worker, const fast_rows *rows,
                        unsigned forms) {
    fast_worker own = fast_worker_of(step, worker);
    uint32_t workers = team_size(step->team);
    bool alone = prepared_alone(rows, workers);
    fast_input input = {0};
    unsigned adapters = 0; /* forms that only some rows need */
    if (step->batch->runs > 0 && rows->site != NULL &&
        fast_site_adapted(step, rows->site, &adapters))
        input.site = rows->site;
    for (unsigned form = 0; form < PRODUCT_FORMS; form++)
        if ((forms | adapters) >> form & 1)
            input.form[form] = activation_lay((product_form)form, rows->rows, rows->k,
                                              alone ? own.alone + form * own.alone_bytes
                                                    : fast_shared_form(step, (product_form)form));
    if (input.site != NULL)
        fast_adapt_ahead(step, worker, input.site);
    size_t begin = 0;
    size_t end = rows->rows;
    if (!alone)
        team_share(rows->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++)
        prepare_row(step, &own, rows, &input, forms, (uint32_t)row);
    if (!alone)
        team_barrier(step->team, worker);
    if (input.site != NULL)
        fast_adapt_input(step, worker, &input);
    return input;
}
