/* Attention of the fast back ends: as the reference has it. */
#include "kernels/fast/fast_int.h"

void reference_position(const step_view *step, uint32_t layer, uint32_t worker);
void reference_attention(const step_view *step, uint32_t layer, uint32_t worker);

void fast_position(const step_view *step, uint32_t layer, uint32_t worker) {
    reference_position(step, layer, worker);
}

void fast_attention(const step_view *step, uint32_t layer, uint32_t worker) {
    reference_attention(step, layer, worker);
}

size_t fast_attention_worker_bytes(const scratch_shape *shape) {
    (void)shape;
    return 0;
}

size_t fast_attention_shared_bytes(const scratch_shape *shape) {
    (void)shape;
    return 0;
}
