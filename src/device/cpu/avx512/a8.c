/* What products with A8 share at run time: the table that zero points and minima of 16 k need (k /
 * 32 or k / 16 numbers a row and call: nothing beside a product). */
#include "device/cpu/avx512/a8.h"

size_t a8_table_stride(const product *product) {
    uint32_t k = product->call->weight->k;
    return product->kind->sub_blocks ? activation_sum_stride(k) : activation_scale_stride(k);
}

__m512i a8_sums_at(const int32_t *sums, size_t at, size_t k) {
    size_t count = (k + 15) / 16;
    return _mm512_maskz_loadu_epi32(lanes_left(at < count ? count - at : 0), sums + at);
}

static void fill_wholes(const product *product, size_t rows, int32_t zero) {
    const activation_view *x = product->call->x;
    size_t count = ((size_t)x->k + 15) / 16;
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (size_t i = 0; i < rows; i++) {
        const int32_t *sums = x->integer_sum + (product->chunk + i) * x->sum_stride;
        int32_t *begin = (int32_t *)product->table + i * product->table_stride;
        for (size_t at = 0; at < count; at += 32) {
            __m512i low = a8_sums_at(sums, at, x->k);
            __m512i high = a8_sums_at(sums, at + 16, x->k);
            __m512i sum = _mm512_add_epi32(_mm512_permutex2var_epi32(low, even, high),
                                           _mm512_permutex2var_epi32(low, odd, high));
            _mm512_storeu_si512(begin + at / 2, _mm512_mullo_epi32(sum, _mm512_set1_epi32(-zero)));
        }
    }
}

static void fill_halves(const product *product, size_t rows, int32_t zero) {
    const activation_view *x = product->call->x;
    size_t count = ((size_t)x->k + 15) / 16;
    const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    for (size_t i = 0; i < rows; i++) {
        const int32_t *sums = x->integer_sum + (product->chunk + i) * x->sum_stride;
        const float *scale = x->scale + (product->chunk + i) * x->scale_stride;
        uint32_t *table = (uint32_t *)product->table + i * product->table_stride;
        for (size_t at = 0; at < count; at += 16) {
            __m512i sum = a8_sums_at(sums, at, x->k);
            if (zero != 0) {
                _mm512_storeu_si512(table + at, _mm512_mullo_epi32(sum, _mm512_set1_epi32(-zero)));
                continue;
            }
            __m512i scales = _mm512_castsi256_si512(
                _mm256_loadu_si256((const __m256i *)(const void *)(scale + at / 2)));
            __m512 each = _mm512_castsi512_ps(_mm512_permutexvar_epi32(pairs, scales));
            _mm512_storeu_ps(table + at, _mm512_mul_ps(each, _mm512_cvtepi32_ps(sum)));
        }
    }
}

void a8_fill(const product *product, size_t rows) {
    const product_kind *kind = product->kind;
    if (kind->sub_blocks)
        fill_halves(product, rows, kind->zero);
    else if (kind->zero != 0)
        fill_wholes(product, rows, kind->zero);
}

a8_one a8_one_of(const product *product, size_t row) {
    const activation_view *x = product->call->x;
    size_t at = (row - product->chunk) * product->table_stride;
    return (a8_one){.number = x->number + row * x->stride,
                    .scale = x->scale + row * x->scale_stride,
                    .sum = x->sum + row * x->scale_stride,
                    .begin = (const int32_t *)product->table + at,
                    .half_sum = (const float *)product->table + at};
}
