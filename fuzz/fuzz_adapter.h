/* A base model of a few numbers for the entries of adapters: a llama as tools/fuzz_seeds makes it,
 * with one layer. */
#ifndef AVO_FUZZ_ADAPTER_H
#define AVO_FUZZ_ADAPTER_H

#include "adapters/adapters_int.h"

#include <stdlib.h>

enum { FUZZ_WIDTH = 8, FUZZ_HEADS = 2, FUZZ_HEAD = 4, FUZZ_INNER = 8, FUZZ_TOKENS = 8 };

static inline linear_view fuzz_linear(uint32_t rows, uint32_t k) {
    static const float numbers[FUZZ_INNER * FUZZ_INNER] = {0.5f, -0.25f, 1.0f};
    return (linear_view){.weight = {.type = QUANT_F32,
                                    .layout = QUANT_LAYOUT_ROWS,
                                    .rows = rows,
                                    .k = k,
                                    .data = (const uint8_t *)numbers}};
}

static inline norm_view fuzz_norm(void) {
    static const float ones[FUZZ_WIDTH] = {1, 1, 1, 1, 1, 1, 1, 1};
    return (norm_view){.kind = NORM_RMS, .epsilon = 1e-5f, .weight = ones};
}

/* Opens and uses what was opened; `config` of size 0: a GGUF or packed file. */
static inline void fuzz_adapter(bytes_view config, bytes_view weights) {
    model_config base_config = {.architecture = ARCHITECTURE_LLAMA,
                                .layers = 1,
                                .width = FUZZ_WIDTH,
                                .feed_forward = FUZZ_INNER,
                                .heads = FUZZ_HEADS,
                                .kv_heads = 1,
                                .head_size = FUZZ_HEAD,
                                .vocabulary = FUZZ_TOKENS,
                                .rope_interleaved = true};
    layer_view layer = {.attention_norm = fuzz_norm(),
                        .query = fuzz_linear(FUZZ_HEADS * FUZZ_HEAD, FUZZ_WIDTH),
                        .key = fuzz_linear(FUZZ_HEAD, FUZZ_WIDTH),
                        .value = fuzz_linear(FUZZ_HEAD, FUZZ_WIDTH),
                        .output = fuzz_linear(FUZZ_WIDTH, FUZZ_HEADS * FUZZ_HEAD),
                        .heads = FUZZ_HEADS,
                        .kv_heads = 1,
                        .head_size = FUZZ_HEAD,
                        .feed_forward_norm = fuzz_norm(),
                        .gate = fuzz_linear(FUZZ_INNER, FUZZ_WIDTH),
                        .up = fuzz_linear(FUZZ_INNER, FUZZ_WIDTH),
                        .down = fuzz_linear(FUZZ_WIDTH, FUZZ_INNER)};
    model_view view = {.width = FUZZ_WIDTH,
                       .vocabulary = FUZZ_TOKENS,
                       .layers = 1,
                       .embedding = fuzz_linear(FUZZ_TOKENS, FUZZ_WIDTH).weight,
                       .embedding_scale = 1.0f,
                       .layer = &layer,
                       .final_norm = fuzz_norm(),
                       .head = fuzz_linear(FUZZ_TOKENS, FUZZ_WIDTH),
                       .k_max = FUZZ_INNER};
    adapter_base base = {&base_config, &view, 1, NULL};
    avo_adapter *adapter;
    avo_error error = {0};
    if (adapter_open_memory(&base, config, weights, "fuzz", NULL, NULL, &adapter, &error) !=
        AVO_OK) {
        if (adapter != NULL || error.text[0] == '\0')
            abort();
        return;
    }
    if (adapter->modules_matched == 0 || adapter->bytes == 0)
        abort();
    (void)adapter_module_norm(adapter, 0);
    adapter_release(adapter);
}

#endif
