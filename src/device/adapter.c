/* What is asked of an adapter as a whole. */
#include "device/adapter.h"

uint32_t adapter_rank(const adapter_view *adapter, uint32_t layers) {
    const weight_view *up = &adapter->embedding.up;
    uint32_t rank = up->data == NULL ? 0 : up->k;
    for (uint32_t layer = 0; layer < layers; layer++)
        for (int matrix = 0; matrix < ADAPTER_MATRICES; matrix++) {
            uint32_t own =
                adapter_delta_rank(adapter_delta_of(adapter, layer, (adapter_matrix)matrix));
            rank = own > rank ? own : rank;
        }
    return rank;
}
