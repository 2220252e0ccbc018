/* Byte products that plain blocks and super-blocks share. */
#include "device/cpu/avx2/product_bytes.h"

void product_nibble_minimum(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    product_bytes_tile(w, x, k, sums, rows,
                       (byte_shape){.block_lines = 8, .depth = 8, .minimum = true});
}

void product_five_minimum(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    product_bytes_tile(w, x, k, sums, rows,
                       (byte_shape){.block_lines = 8, .depth = 4, .minimum = true});
}
