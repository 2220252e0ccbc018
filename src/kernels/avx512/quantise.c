/* Activations into the forms of activation.h, one row at a time. Two vectors hold the 32 k of a
 * block; A8R rotates 256 k in registers: strides 1…8 within vectors, 16…128 between them, in the
 * order of quant_rotate, so that all bits agree. */
#include "kernels/avx512/avx512_int.h"
#include "kernels/avx512/linear_int.h"

#define BLOCK     32
#define A8_MOST   127.0f
#define A16_MOST  32512.0f
#define A16_RADIX 255
#define VECTORS   (Q4R_SUPER / 16)

/* ---- Blocks ---- */

/* 16 numbers, zeros from `left` on. */
AVX512_INLINE __m512 load_part(const float *x, size_t left) {
    return _mm512_maskz_loadu_ps(lanes_left(left), x);
}

/* The larger magnitude, by the bits: NaN is the largest. */
AVX512_INLINE __m512i larger(__m512i largest, __m512 x) {
    __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epu32(largest, magnitude);
}

typedef struct block_scale {
    float scale;
    float inverse; /* 0: all numbers are 0 */
} block_scale;

AVX512_INLINE block_scale scale_of(__m512i largest, float most) {
    uint32_t bits = _mm512_reduce_max_epu32(largest);
    float most_of_all;
    memcpy(&most_of_all, &bits, sizeof(bits));
    if (most_of_all < ACTIVATION_TINY)
        return (block_scale){0.0f, 0.0f};
    bool finite = bits < 0x7f800000u;
    return (block_scale){most_of_all / most, finite ? most / most_of_all : 0.0f};
}

/* To the nearest, ties to even. */
AVX512_INLINE __m512i nearest(__m512 x, float inverse) {
    __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
    return _mm512_maskz_mov_epi32(inverse == 0.0f ? (__mmask16)0 : (__mmask16)0xffff, number);
}

/* ---- A8 ---- */

static void quantise_a8(const float *x, const activation_view *out, uint32_t row) {
    int8_t *number = out->number + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    float *sum = out->sum + row * out->scale_stride;
    int32_t *integer_sum = out->integer_sum + row * out->sum_stride;
    size_t at = 0;
    for (size_t block = 0; at < out->k; at += BLOCK, block++) {
        size_t left = out->k - at;
        __m512 low = load_part(x + at, left);
        __m512 high = left > 16 ? load_part(x + at + 16, left - 16) : _mm512_setzero_ps();
        block_scale found = scale_of(larger(larger(_mm512_setzero_si512(), low), high), A8_MOST);
        __m512i first = nearest(low, found.inverse), second = nearest(high, found.inverse);
        _mm_store_si128((__m128i *)(void *)(number + at), _mm512_cvtepi32_epi8(first));
        _mm_store_si128((__m128i *)(void *)(number + at + 16), _mm512_cvtepi32_epi8(second));
        scale[block] = found.scale;
        integer_sum[2 * block] = _mm512_reduce_add_epi32(first);
        integer_sum[2 * block + 1] = _mm512_reduce_add_epi32(second);
        sum[block] = found.scale * (float)(integer_sum[2 * block] + integer_sum[2 * block + 1]);
    }
    memset(number + at, 0, out->stride - at);
}

/* ---- A16 ---- */

/* n / 255 to the nearest. No tie is possible, and the quotient's error is far below the distance
 * to one. */
AVX512_INLINE __m512i high_byte(__m512i number) {
    return _mm512_cvtps_epi32(
        _mm512_mul_ps(_mm512_cvtepi32_ps(number), _mm512_set1_ps(1.0f / A16_RADIX)));
}

static void quantise_a16(const float *x, const activation_view *out, uint32_t row) {
    int8_t *high = out->number + row * out->stride, *low = out->low + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    size_t at = 0;
    for (; at < out->k; at += BLOCK) {
        __m512 part[2];
        size_t left = out->k - at;
        part[0] = load_part(x + at, left);
        part[1] = left > 16 ? load_part(x + at + 16, left - 16) : _mm512_setzero_ps();
        block_scale found =
            scale_of(larger(larger(_mm512_setzero_si512(), part[0]), part[1]), A16_MOST);
        scale[at / BLOCK] = found.scale;
        for (size_t half = 0; half < 2; half++) {
            __m512i number = nearest(part[half], found.inverse);
            __m512i upper = high_byte(number);
            __m512i lower =
                _mm512_sub_epi32(number, _mm512_sub_epi32(_mm512_slli_epi32(upper, 8), upper));
            _mm_store_si128((__m128i *)(void *)(high + at + 16 * half),
                            _mm512_cvtepi32_epi8(upper));
            _mm_store_si128((__m128i *)(void *)(low + at + 16 * half), _mm512_cvtepi32_epi8(lower));
        }
    }
    memset(high + at, 0, out->stride - at);
    memset(low + at, 0, out->stride - at);
}

/* ---- A8R ---- */

/* One stride within vectors: `swapped` has every number's partner; `upper` marks the second of each
 * pair, which becomes first − second. */
AVX512_INLINE __m512 butterfly(__m512 x, __m512 swapped, __mmask16 upper) {
    return _mm512_mask_sub_ps(_mm512_add_ps(x, swapped), upper, swapped, x);
}

AVX512_INLINE __m512 rotate_within(__m512 x) {
    x = butterfly(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
    x = butterfly(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
    x = butterfly(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
    return butterfly(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

/* `count` vectors, a power of two, as one block. */
AVX512_INLINE void rotate_vectors(__m512 *x, const size_t count) {
#pragma GCC unroll 16
    for (size_t i = 0; i < count; i++)
        x[i] = rotate_within(x[i]);
#pragma GCC unroll 4
    for (size_t half = 1; half < count; half *= 2)
#pragma GCC unroll 16
        for (size_t i = 0; i < count; i++)
            if ((i & half) == 0) {
                __m512 a = x[i], b = x[i + half];
                x[i] = _mm512_add_ps(a, b);
                x[i + half] = _mm512_sub_ps(a, b);
            }
    __m512 scale = _mm512_set1_ps(quant_rotate_scale(16 * count));
#pragma GCC unroll 16
    for (size_t i = 0; i < count; i++)
        x[i] = _mm512_mul_ps(x[i], scale);
}

/* The last super-block: blocks of 128, 64, 32 and 16. */
static void rotate_rest(__m512 *x, size_t count) {
    for (size_t at = 0; at < count;) {
        size_t left = count - at;
        if (left >= 8) {
            rotate_vectors(x + at, 8);
            at += 8;
        } else if (left >= 4) {
            rotate_vectors(x + at, 4);
            at += 4;
        } else if (left >= 2) {
            rotate_vectors(x + at, 2);
            at += 2;
        } else {
            rotate_vectors(x + at, 1);
            at += 1;
        }
    }
}

static void quantise_a8r(const float *x, const activation_view *out, uint32_t row) {
    int8_t *number = out->number + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    int32_t *integer_sum = out->integer_sum + row * out->sum_stride;
    size_t at = 0;
    for (size_t super = 0; at < out->k; super++) {
        __m512 part[VECTORS];
        size_t left = out->k - at, vectors = left >= Q4R_SUPER ? VECTORS : (left + 15) / 16;
        if (vectors == VECTORS) {
            for (size_t i = 0; i < VECTORS; i++)
                part[i] = load_part(x + at + 16 * i, left - 16 * i);
            rotate_vectors(part, VECTORS);
        } else {
            for (size_t i = 0; i < vectors; i++)
                part[i] = load_part(x + at + 16 * i, left - 16 * i);
            rotate_rest(part, vectors);
        }
        __m512i largest = _mm512_setzero_si512();
        for (size_t i = 0; i < vectors; i++)
            largest = larger(largest, part[i]);
        block_scale found = scale_of(largest, A8_MOST);
        scale[super] = found.scale;
        for (size_t i = 0; i < vectors; i++, at += 16) {
            __m512i numbers = nearest(part[i], found.inverse);
            _mm_store_si128((__m128i *)(void *)(number + at), _mm512_cvtepi32_epi8(numbers));
            integer_sum[at / 16] = _mm512_reduce_add_epi32(numbers);
        }
    }
    if (at / 16 % 2 != 0) /* whole units */
        integer_sum[at / 16] = 0;
    memset(number + at, 0, out->stride - at);
}

static void quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch) {
    (void)scratch;
    switch (out->form) {
    case PRODUCT_A8:
        quantise_a8(x, out, row);
        return;
    case PRODUCT_A16:
        quantise_a16(x, out, row);
        return;
    case PRODUCT_A8R:
        quantise_a8r(x, out, row);
        return;
    default:
        memcpy(out->x + row * out->stride, x, out->k * sizeof(float));
        memset(out->x + row * out->stride + out->k, 0, (out->stride - out->k) * sizeof(float));
        return;
    }
}

void avx512_quantise(op_table *table) {
    table->quantise = quantise;
}
