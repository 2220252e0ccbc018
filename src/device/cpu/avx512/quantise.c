/* Activations into the forms of activation.h, one row at a time. A8 and A16 take four blocks of 32
 * k at once: eight vectors, whose four largest magnitudes meet in one register, so that scales,
 * inverses and sums are found for all four by one instruction each. A8R rotates 256 k in registers:
 * strides 1…8 within vectors, 16…128 between them, in the order of quant_rotate, so that all bits
 * agree. */
#include "device/cpu/avx512/avx512_int.h"
#include "device/cpu/avx512/linear_int.h"

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

/* ---- Four blocks of 32 ---- */

#define FOUR      4
#define FOUR_K    (FOUR * BLOCK)
#define FOUR_PART (FOUR_K / 16)

typedef struct four_blocks {
    __m512 part[FOUR_PART];
    __m128 scale;
    __m128 inverse; /* 0: all numbers are 0 */
} four_blocks;

/* Lane i of the result: the largest of all lanes of part i. */
AVX512_INLINE __m128i largest_of_four(const __m512i part[FOUR]) {
    __m512i a = _mm512_max_epu32(_mm512_unpacklo_epi32(part[0], part[1]),
                                 _mm512_unpackhi_epi32(part[0], part[1]));
    __m512i b = _mm512_max_epu32(_mm512_unpacklo_epi32(part[2], part[3]),
                                 _mm512_unpackhi_epi32(part[2], part[3]));
    __m512i all = _mm512_max_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Numbers behind `left` are zeros, and blocks of zeros have scale 0. */
AVX512_INLINE void read_four(const float *x, size_t left, float most, four_blocks *out) {
    if (left >= FOUR_K) {
#pragma GCC unroll 8
        for (size_t i = 0; i < FOUR_PART; i++)
            out->part[i] = _mm512_loadu_ps(x + 16 * i);
    } else {
#pragma GCC unroll 8
        for (size_t i = 0; i < FOUR_PART; i++)
            out->part[i] =
                left > 16 * i ? load_part(x + 16 * i, left - 16 * i) : _mm512_setzero_ps();
    }
    __m512i largest[FOUR];
#pragma GCC unroll 4
    for (size_t i = 0; i < FOUR; i++)
        largest[i] = larger(larger(_mm512_setzero_si512(), out->part[2 * i]), out->part[2 * i + 1]);
    __m128i bits = largest_of_four(largest);
    __m128 found = _mm_castsi128_ps(bits);
    /* A NaN is not below, and not finite. */
    __mmask8 tiny = _mm_cmp_ps_mask(found, _mm_set1_ps(ACTIVATION_TINY), _CMP_LT_OQ);
    __mmask8 finite = _mm_cmplt_epu32_mask(bits, _mm_set1_epi32(0x7f800000));
    __mmask8 real = (__mmask8)(~tiny & 15);
    out->scale = _mm_maskz_div_ps(real, found, _mm_set1_ps(most));
    out->inverse = _mm_maskz_div_ps(real & finite, _mm_set1_ps(most), found);
}

/* Part `i` as integers, to the nearest. A lane that has nothing finite to give is 0. */
AVX512_INLINE __m512i four_nearest(const four_blocks *four, const size_t i) {
    const __m512i which = _mm512_set1_epi32((int)(i / 2));
    __m512 inverse = _mm512_permutexvar_ps(which, _mm512_castps128_ps512(four->inverse));
    __mmask16 real = _mm512_cmp_ps_mask(inverse, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    return _mm512_maskz_cvtps_epi32(real, _mm512_mul_ps(four->part[i], inverse));
}

/* Bytes of parts 4 · half … 4 · half + 3 one behind the other. */
AVX512_INLINE __m512i four_bytes(const __m512i number[FOUR]) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32(number[0], number[1]);
    __m512i high = _mm512_packs_epi32(number[2], number[3]);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
}

/* ---- A8 ---- */

/* The sums of 16 bytes each, of both vectors: lanes 0…3 and 4…7. */
AVX512_INLINE __m256i sums_of_sixteen(__m512i first, __m512i second) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i a = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, first);
    __m512i b = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, second);
    __m512i sum = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, (_MM_PERM_ENUM)0x4e));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sum));
}

static void quantise_a8(const float *x, const activation_view *out, uint32_t row) {
    int8_t *number = out->number + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    float *sum = out->sum + row * out->scale_stride;
    int32_t *integer_sum = out->integer_sum + row * out->sum_stride;
    size_t at = 0;
    for (; at < out->k; at += FOUR_K) {
        four_blocks four;
        read_four(x + at, out->k - at, A8_MOST, &four);
        __m512i bytes[2];
#pragma GCC unroll 2
        for (size_t half = 0; half < 2; half++) {
            __m512i numbers[FOUR];
#pragma GCC unroll 4
            for (size_t i = 0; i < FOUR; i++)
                numbers[i] = four_nearest(&four, FOUR * half + i);
            bytes[half] = four_bytes(numbers);
        }
        _mm512_store_si512(number + at, bytes[0]);
        if (at + 64 < out->stride) /* the stride is whole lines, but not whole fours */
            _mm512_store_si512(number + at + 64, bytes[1]);
        __m256i sums = sums_of_sixteen(bytes[0], bytes[1]);
        __m256i pairs = _mm256_add_epi32(sums, _mm256_srli_epi64(sums, 32));
        __m128 wholes = _mm_cvtepi32_ps(_mm256_cvtepi64_epi32(pairs));
        _mm_store_ps(scale + at / BLOCK, four.scale);
        _mm_store_ps(sum + at / BLOCK, _mm_mul_ps(four.scale, wholes));
        _mm256_store_si256((__m256i *)(void *)(integer_sum + at / 16), sums);
    }
    if (at < out->stride)
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
    for (; at < out->k; at += FOUR_K) {
        four_blocks four;
        read_four(x + at, out->k - at, A16_MOST, &four);
        _mm_store_ps(scale + at / BLOCK, four.scale);
#pragma GCC unroll 2
        for (size_t half = 0; half < 2; half++) {
            __m512i upper[FOUR], lower[FOUR];
#pragma GCC unroll 4
            for (size_t i = 0; i < FOUR; i++) {
                __m512i numbers = four_nearest(&four, FOUR * half + i);
                upper[i] = high_byte(numbers);
                lower[i] = _mm512_sub_epi32(
                    numbers, _mm512_sub_epi32(_mm512_slli_epi32(upper[i], 8), upper[i]));
            }
            if (at + 64 * half < out->stride) { /* whole lines, but not whole fours */
                _mm512_store_si512(high + at + 64 * half, four_bytes(upper));
                _mm512_store_si512(low + at + 64 * half, four_bytes(lower));
            }
        }
    }
    if (at < out->stride) {
        memset(high + at, 0, out->stride - at);
        memset(low + at, 0, out->stride - at);
    }
}

/* ---- A8R ---- */

/* One stride within vectors: `swapped` has every number's partner; `sign` is −1 for the second of
 * each pair, which becomes first − second. A product with ±1 is exact, so the sum is rounded once,
 * as a sum is; and the pipes that multiply share the work with those that add. */
AVX512_INLINE __m512 butterfly(__m512 x, __m512 swapped, __mmask16 upper) {
    __m512 sign = _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), upper, _mm512_set1_ps(-1.0f));
    return _mm512_fmadd_ps(x, sign, swapped);
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
        if (vectors == VECTORS) {
#pragma GCC unroll 2
            for (size_t i = 0; i < VECTORS; i += 8, at += FOUR_K) {
                __m512i numbers[8];
#pragma GCC unroll 8
                for (size_t j = 0; j < 8; j++)
                    numbers[j] = nearest(part[i + j], found.inverse);
                __m512i first = four_bytes(numbers), second = four_bytes(numbers + 4);
                _mm512_store_si512(number + at, first);
                _mm512_store_si512(number + at + 64, second);
                _mm256_store_si256((__m256i *)(void *)(integer_sum + at / 16),
                                   sums_of_sixteen(first, second));
            }
            continue;
        }
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

void avx512_quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch) {
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
