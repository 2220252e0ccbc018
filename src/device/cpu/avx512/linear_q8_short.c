/* Products with Q8C of short rows: B of an adapter, whose k is the rank.
 *
 * A panel is a handful of lines (nine at rank 32), so that what stands around the sums weighs more
 * than the sums themselves: here it is all in one loop. The panel's lines stay in registers while
 * all rows of the call walk past them; each line meets four bytes of a row by a broadcast from
 * memory. k up to 32, calls of up to 16 rows; more go by linear_q8.c, which is as fast from k = 64
 * on.
 *
 * One row, 2048 × 32 from memory: 3.3 µs, 22 GB/s of 31 that one core reads; linear_q8.c: 4.6 µs;
 * measured before k was limited to 32
 * (avocet bench --kernels --op linear --type q8c --shape 2048x32 -b 1 -t 1 --limits-mib 64).
 */
#include "device/cpu/avx512/linear_q8.h"
#include "device/cpu/avx512/tile.h"

#define LINES_MAX   (Q8C_SHORT_K / 4)
#define AHEAD_BYTES 4096 /* a worker's part of B is read once, from memory */

typedef struct short_call {
    const linear_call *call;
    const int32_t *begin; /* [rows] what I_low begins with */
    size_t panel_bytes;
} short_call;

AVX512_INLINE void short_row(const int lines, const __m512i *line, const short_call *own,
                             size_t row, __m512 scale, __mmask16 lanes, float *out) {
    const activation_view *x = own->call->x;
    const int8_t *high = x->number + row * x->stride;
    const int8_t *low = x->low + row * x->stride;
    __m512i sum_high = _mm512_setzero_si512();
    __m512i sum_low = _mm512_set1_epi32(own->begin[row]);
#pragma GCC unroll 8
    for (int i = 0; i < lines; i++) {
        sum_high = dot_four(sum_high, line[i], high + 4 * i);
        sum_low = dot_four(sum_low, line[i], low + 4 * i);
    }
    __m512i all =
        _mm512_add_epi32(_mm512_slli_epi32(sum_high, 8), _mm512_sub_epi32(sum_low, sum_high));
    __m512 sum =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), _mm512_set1_ps(x->scale[row * x->scale_stride]),
                        _mm512_setzero_ps());
    __m512 y = _mm512_mul_ps(sum, scale);
    if (own->call->end == LINEAR_ADD)
        y = _mm512_fmadd_ps(y, _mm512_set1_ps(own->call->add_scale),
                            _mm512_maskz_loadu_ps(lanes, out));
    _mm512_mask_storeu_ps(out, lanes, y);
}

AVX512_INLINE void short_panels(const int lines, const short_call *own, size_t first, size_t last) {
    const linear_call *call = own->call;
    const __m512i flip = _mm512_set1_epi8((char)Q8_ZERO);
    for (size_t panel = first; panel < last; panel++) {
        const uint8_t *at = call->weight->data + panel * own->panel_bytes;
        __m512i line[LINES_MAX] = {0};
        for (int i = 0; i <= lines; i++)
            _mm_prefetch((const char *)at + AHEAD_BYTES + i * PANEL_LINE_BYTES, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int i = 0; i < lines; i++)
            line[i] = _mm512_xor_si512(load_line(at + i * PANEL_LINE_BYTES), flip);
        __m512 scale = _mm512_load_ps(at + lines * PANEL_LINE_BYTES);
        __mmask16 lanes = lanes_left(call->weight->rows - panel * QUANT_PANEL_ROWS);
        float *out = call->out + panel * QUANT_PANEL_ROWS;
        for (size_t row = 0; row < call->x->rows; row++, out += call->out_stride)
            short_row(lines, line, own, row, scale, lanes, out);
    }
}

void linear_avx512_q8c_short(const linear_call *call, size_t first, size_t last) {
    int32_t begin[Q8C_SHORT_ROWS];
    for (size_t row = 0; row < call->x->rows; row++) {
        size_t at = row * call->x->stride;
        begin[row] =
            q8_begin(_mm256_load_si256((const __m256i *)(const void *)(call->x->number + at)),
                     _mm256_load_si256((const __m256i *)(const void *)(call->x->low + at)));
    }
    int lines = (int)(call->weight->k + 3) / 4;
    short_call own = {call, begin, (size_t)(lines + 1) * PANEL_LINE_BYTES};
    switch (lines) {
    case 2:
        short_panels(2, &own, first, last);
        break;
    case 4:
        short_panels(4, &own, first, last);
        break;
    case 8:
        short_panels(8, &own, first, last);
        break;
    default:
        short_panels(lines, &own, first, last);
        break;
    }
}
