/* Matrix products by shares of panels. */
#include "kernels/fast/fast_int.h"

#include "base/checked.h"

void fast_product_panels(const step_view *step, const fast_worker *own, const fast_input *input,
                         const fast_product *product, size_t first, size_t last) {
    const weight_view *weight = &product->linear->weight;
    linear_call call = {.weight = weight,
                        .bias = product->linear->bias,
                        .x = &input->form[panels_form(weight->type)],
                        .out = product->out,
                        .out_stride = product->out_stride,
                        .end = product->end,
                        .add_scale = product->add_scale};
    step->backend->ops->linear[panel_index_of(weight->type)](&call, first, last, own->linear);
}

/* The matrices stand behind one another, and a worker has a contiguous part of all their panels. */
void fast_products(const step_view *step, uint32_t worker, const fast_input *input,
                   const fast_product *products, size_t count) {
    fast_worker own = fast_worker_of(step, worker);
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += weight_panels(&products[i].linear->weight);
    size_t begin;
    size_t end;
    team_share(total, worker, team_size(step->team), &begin, &end);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        size_t panels = weight_panels(&products[i].linear->weight);
        size_t first = begin > at ? begin - at : 0;
        size_t last = end > at ? size_min(end - at, panels) : 0;
        if (first < last)
            fast_product_panels(step, &own, input, &products[i], first, last);
        at += panels;
    }
}
