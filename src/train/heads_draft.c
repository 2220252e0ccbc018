/* A distilled draft: layers between the model's own embedding and output matrix, which read tokens
 * alone. A row whose earlier drafts were right has the same input as one behind true tokens, so
 * every row is trained once, and what follows a draft needs no unrolling. */
#include "train/heads_int.h"

#include <string.h>

static layer_pass pass_of(const heads_span *span, uint32_t layer) {
    return layer_pass_of(span, layer * LAYER_PARAMETERS, &span->heads->layer.run[layer], 0);
}

static uint32_t output_norm_of(const heads_span *span) {
    return span->heads->config.depth * LAYER_PARAMETERS;
}

void draft_forward(const heads_span *span) {
    const struct train_heads *heads = span->heads;
    layer_pass p = pass_of(span, 0);
    layer_begin(span, 0);
    layer_copy(&p, heads->layer.embedded, p.own->input);
    for (uint32_t layer = 0; layer < heads->config.depth; layer++) {
        const float *before = p.own->result;
        p = pass_of(span, layer);
        if (layer > 0)
            layer_copy(&p, before, p.own->input);
        layer_forward(&p);
    }
    layer_norm(&p, output_norm_of(span), p.own->result, heads->output[0]);
}

void draft_backward(const heads_span *span) {
    const struct train_heads *heads = span->heads;
    uint32_t depth = heads->config.depth;
    layer_clear_keys(span, depth);
    layer_pass p = pass_of(span, depth - 1);
    layer_norm_back(&p, output_norm_of(span), p.own->result, heads->doutput[0], false,
                    p.b->dresult);
    for (uint32_t layer = depth; layer-- > 0;) {
        p = pass_of(span, layer);
        layer_backward(&p);
        layer_copy(&p, p.b->dinput, p.b->dresult);
    }
}
