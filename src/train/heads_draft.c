/* A distilled draft: layers between the model's own embedding and output matrix, which read tokens
 * alone. A row whose earlier drafts were right has the same input as one behind true tokens, so
 * every row is trained once, and what follows a draft needs no unrolling. */
#include "train/heads_int.h"

#include <string.h>

static heads_layer_pass pass_of(const heads_span *span, uint32_t layer) {
    return heads_layer_pass_of(span, layer * LAYER_PARAMETERS, &span->heads->layer.run[layer], 0);
}

static uint32_t output_norm_of(const heads_span *span) {
    return span->heads->config.depth * LAYER_PARAMETERS;
}

void draft_forward(const heads_span *span) {
    const struct train_heads *heads = span->heads;
    heads_layer_pass p = pass_of(span, 0);
    heads_layer_begin(span, 0);
    heads_layer_copy(&p, heads->layer.embedded, p.own->input);
    for (uint32_t layer = 0; layer < heads->config.depth; layer++) {
        const float *before = p.own->result;
        p = pass_of(span, layer);
        if (layer > 0)
            heads_layer_copy(&p, before, p.own->input);
        heads_layer_forward(&p);
    }
    heads_layer_norm(&p, output_norm_of(span), p.own->result, heads->output[0]);
}

void draft_backward(const heads_span *span) {
    const struct train_heads *heads = span->heads;
    uint32_t depth = heads->config.depth;
    heads_layer_clear_keys(span, depth);
    heads_layer_pass p = pass_of(span, depth - 1);
    heads_layer_norm_back(&p, output_norm_of(span), p.own->result, heads->doutput[0], false,
                          p.b->dresult);
    for (uint32_t layer = depth; layer-- > 0;) {
        p = pass_of(span, layer);
        heads_layer_backward(&p);
        heads_layer_copy(&p, p.b->dinput, p.b->dresult);
    }
}
