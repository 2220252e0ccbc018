/* Calls the kernel of a product: one call for all phases.
 *
 * In builds with ThreadSanitizer the kernels of products are compiled without it: checks of every
 * access took a large part of that suite's build. The main arrays that a call reads and writes are
 * reported here instead, so that a phase which reads them without a barrier is still a race that
 * ThreadSanitizer sees. Sums of inputs and the weights are not reported. */
#ifndef AVO_DEVICE_CPU_LINEAR_RUN_H
#define AVO_DEVICE_CPU_LINEAR_RUN_H

#include "device/cpu/ops.h"

#if defined(__SANITIZE_THREAD__)

void __tsan_read_range(void *address, long size); // as gcc declares it
void __tsan_write_range(void *address, long size);

static inline void linear_report(const linear_call *call, size_t first, size_t last) {
    const activation_view *x = call->x;
    size_t end = last * QUANT_PANEL_ROWS;
    if (end > call->weight->rows)
        end = call->weight->rows;
    for (size_t row = 0; row < x->rows; row++) {
        if (x->form == PRODUCT_FLOAT) {
            __tsan_read_range(x->x + row * x->stride, (long)(x->k * sizeof(float)));
        } else {
            __tsan_read_range(x->number + row * x->stride, (long)x->k);
            __tsan_read_range(x->scale + row * x->scale_stride, (long)sizeof(float));
        }
        if (end > first * QUANT_PANEL_ROWS)
            __tsan_write_range(call->out + row * call->out_stride + first * QUANT_PANEL_ROWS,
                               (long)((end - first * QUANT_PANEL_ROWS) * sizeof(float)));
    }
}

#else

static inline void linear_report(const linear_call *call, size_t first, size_t last) {
    (void)call;
    (void)first;
    (void)last;
}

#endif

/* Panels [first, last) for all rows of x (linear_function). */
static inline void linear_run(const op_table *ops, const linear_call *call, size_t first,
                              size_t last, uint8_t *scratch) {
    linear_report(call, first, last);
    ops->linear[panel_index_of(call->weight->type)](call, first, last, scratch);
}

#endif
