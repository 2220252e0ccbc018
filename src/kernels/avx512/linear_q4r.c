/* Products with Q4R (A8R): 256 k are summed in integers before a float is touched.
 *
 * A sub-block of 16 k becomes four lines of bytes multiplier · (number − 8) + 128, all within
 * 8…248. Two numbers are multiplied at once in a 16-bit word: (256·b + a) · m + 257 · c is
 * 256 · (b·m + c) + (a·m + c), and with c = 128 − 8·m neither byte carries into the other.
 */
#include "kernels/avx512/nibbles.h"
#include "kernels/avx512/tile.h"

#define SIGNS_AT      32
#define MAGNITUDES_AT PANEL_LINE_BYTES
#define SUB_BYTES     (2 * PANEL_LINE_BYTES)
#define ZERO          128

/* The rows of a tile. `begin`: −128 · (sum of the numbers of a super-block). */
typedef struct q4r_rows {
    const int8_t *number[TILE_ROWS_MAX];
    const float *scale[TILE_ROWS_MAX];
    const int32_t *begin[TILE_ROWS_MAX];
} q4r_rows;

/* Chains of sums per row: enough that a product need not wait for the one before. */
#define CHAINS_OF(count) ((count) == 1 ? 4 : (count) <= 3 ? 2 : 1)
#define CHAINS_MAX       4

/* The magnitudes of two sub-blocks, each byte in both words of its row. */
AVX512_INLINE __m512i read_magnitudes(const uint8_t *at) {
    const __m512i spread =
        _mm512_set_epi32((int)0x800f800fu, (int)0x800e800eu, (int)0x800d800du, (int)0x800c800cu,
                         (int)0x800b800bu, (int)0x800a800au, (int)0x80098009u, (int)0x80088008u,
                         (int)0x80078007u, (int)0x80068006u, (int)0x80058005u, (int)0x80048004u,
                         (int)0x80038003u, (int)0x80028002u, (int)0x80018001u, (int)0x80008000u);
    __m512i all = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)at));
    return _mm512_shuffle_epi8(all, spread);
}

/* The four lines of a sub-block. */
AVX512_INLINE void read_sub(const uint8_t *at, __m512i magnitude, __mmask16 negative,
                            __m512i line[4]) {
    __m512i multiplier = _mm512_mask_mov_epi32(magnitude, negative,
                                               _mm512_sub_epi16(_mm512_setzero_si512(), magnitude));
    __m512i offset = _mm512_add_epi16(_mm512_mullo_epi16(multiplier, _mm512_set1_epi16(-8 * 257)),
                                      _mm512_set1_epi16((short)(ZERO * 257)));
    read_nibble_line(at, line);
    read_nibble_line(at + PANEL_LINE_BYTES, line + 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        line[i] = _mm512_add_epi16(_mm512_mullo_epi16(line[i], multiplier), offset);
}

AVX512_INLINE void add_sub(const int count, const __m512i line[4], const q4r_rows *rows, size_t at,
                           __m512i *total) {
    const int chains = CHAINS_OF(count);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 16
        for (int row = 0; row < count; row++) {
            __m512i *chain = &total[row * chains + i % chains];
            *chain = _mm512_dpbusd_epi32(*chain, line[i],
                                         broadcast_four(rows->number[row] + at + (size_t)i * 4));
        }
}

/* The integer sums of one super-block. */
AVX512_INLINE void add_super(const int count, const uint8_t *super, size_t subs, size_t index,
                             const q4r_rows *rows, __m512i *total) {
    const uint8_t *lines = super + MAGNITUDES_AT + (subs <= 8 ? 1u : 2u) * PANEL_LINE_BYTES;
    const __m512i low = _mm512_set1_epi16(15);
    uint16_t signs[Q4R_SUBS];
    memcpy(signs, super + SIGNS_AT, sizeof(signs));
    for (size_t sub = 0; sub < subs; sub += 2, lines += 2 * SUB_BYTES) {
        size_t at = index * Q4R_SUPER + sub * Q4R_SUB;
        __m512i both = read_magnitudes(super + MAGNITUDES_AT + sub / 2 * QUANT_PANEL_ROWS);
        __m512i line[4];
        for (int ahead = 0; ahead < 2 * SUB_BYTES; ahead += PANEL_LINE_BYTES)
            _mm_prefetch((const char *)lines + PREFETCH_BYTES + ahead, _MM_HINT_T0);
        read_sub(lines, _mm512_and_si512(both, low), (__mmask16)signs[sub], line);
        add_sub(count, line, rows, at, total);
        if (sub + 1 == subs)
            break;
        read_sub(lines + SUB_BYTES, _mm512_srli_epi16(both, 4), (__mmask16)signs[sub + 1], line);
        add_sub(count, line, rows, at + Q4R_SUB, total);
    }
}

/* The same from lines that were unpacked before. */
AVX512_INLINE void add_lines(const int count, const uint8_t *lines, size_t subs, size_t index,
                             const q4r_rows *rows, __m512i *total) {
    for (size_t sub = 0; sub < subs; sub++) {
        __m512i line[4];
        for (size_t i = 0; i < 4; i++)
            line[i] = load_line(lines + (sub * 4 + i) * PANEL_LINE_BYTES);
        add_sub(count, line, rows, index * Q4R_SUPER + sub * Q4R_SUB, total);
    }
}

AVX512_INLINE void q4r_tile(const int count, const uint8_t *unpacked, const uint8_t *panel,
                            size_t k, const q4r_rows *rows, __m512 *sum) {
    const int chains = CHAINS_OF(count);
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    size_t index = 0;
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER, index++) {
        size_t left = k - begin < Q4R_SUPER ? k - begin : Q4R_SUPER;
        size_t subs = (left + Q4R_SUB - 1) / Q4R_SUB;
        __m512i total[TILE_ROWS_MAX * CHAINS_MAX];
#pragma GCC unroll 16
        for (int row = 0; row < count; row++) {
            total[row * chains] = _mm512_set1_epi32(rows->begin[row][index]);
            for (int chain = 1; chain < chains; chain++)
                total[row * chains + chain] = _mm512_setzero_si512();
        }
        if (unpacked != NULL)
            add_lines(count, unpacked + index * Q4R_SUPER * QUANT_PANEL_ROWS, subs, index, rows,
                      total);
        else
            add_super(count, panel, subs, index, rows, total);
        __m512 scale = load_halves(panel);
#pragma GCC unroll 16
        for (int row = 0; row < count; row++) {
            __m512i all = total[row * chains];
            for (int chain = 1; chain < chains; chain++)
                all = _mm512_add_epi32(all, total[row * chains + chain]);
            __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(rows->scale[row][index]));
            sum[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), both, sum[row]);
        }
        panel += MAGNITUDES_AT + (subs <= 8 ? 1u : 2u) * PANEL_LINE_BYTES + subs * SUB_BYTES;
    }
}

/* One panel times a tile of up to 16 rows, unpacked in registers. */
static void tile_fused(int compiled, const uint8_t *panel, size_t k, const q4r_rows *rows,
                       __m512 *sum) {
    switch (compiled) {
    case 1:
        q4r_tile(1, NULL, panel, k, rows, sum);
        break;
    case 2:
        q4r_tile(2, NULL, panel, k, rows, sum);
        break;
    case 3:
        q4r_tile(3, NULL, panel, k, rows, sum);
        break;
    case 4:
        q4r_tile(4, NULL, panel, k, rows, sum);
        break;
    case 6:
        q4r_tile(6, NULL, panel, k, rows, sum);
        break;
    case 8:
        q4r_tile(8, NULL, panel, k, rows, sum);
        break;
    case 10:
        q4r_tile(10, NULL, panel, k, rows, sum);
        break;
    case 12:
        q4r_tile(12, NULL, panel, k, rows, sum);
        break;
    case 14:
        q4r_tile(14, NULL, panel, k, rows, sum);
        break;
    default:
        q4r_tile(16, NULL, panel, k, rows, sum);
        break;
    }
}

/* The same with the panel unpacked before, for calls with many rows. */
static void tile_unpacked(int compiled, const uint8_t *unpacked, const uint8_t *panel, size_t k,
                          const q4r_rows *rows, __m512 *sum) {
    switch (compiled) {
    case 10:
        q4r_tile(10, unpacked, panel, k, rows, sum);
        break;
    case 12:
        q4r_tile(12, unpacked, panel, k, rows, sum);
        break;
    case 14:
        q4r_tile(14, unpacked, panel, k, rows, sum);
        break;
    default:
        q4r_tile(16, unpacked, panel, k, rows, sum);
        break;
    }
}

static void q4r_product_tile(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                             size_t row, size_t rows, __m512 *sum) {
    const activation_view *x = product->call->x;
    int compiled = tile_compiled(rows);
    q4r_rows tile;
    for (size_t i = 0; i < (size_t)compiled; i++) {
        size_t source = row + tile_row(i, rows);
        tile.number[i] = x->number + source * x->stride;
        tile.scale[i] = x->scale + source * x->scale_stride;
        tile.begin[i] =
            (const int32_t *)product->table + (source - product->chunk) * product->table_stride;
    }
    if (unpacked != NULL)
        tile_unpacked(compiled, unpacked, panel, x->k, &tile, sum);
    else
        tile_fused(compiled, panel, x->k, &tile, sum);
}

static void q4r_unpack(const product *product, const uint8_t *panel, uint8_t *out) {
    const __m512i low = _mm512_set1_epi16(15);
    size_t k = product->call->weight->k;
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER) {
        size_t left = k - begin < Q4R_SUPER ? k - begin : Q4R_SUPER;
        size_t subs = (left + Q4R_SUB - 1) / Q4R_SUB;
        const uint8_t *lines = panel + MAGNITUDES_AT + (subs <= 8 ? 1u : 2u) * PANEL_LINE_BYTES;
        for (size_t sub = 0; sub < subs; sub++, lines += SUB_BYTES) {
            __m512i both = read_magnitudes(panel + MAGNITUDES_AT + sub / 2 * QUANT_PANEL_ROWS);
            __m128i shift = _mm_cvtsi32_si128(sub % 2 != 0 ? 4 : 0);
            uint16_t signs;
            memcpy(&signs, panel + SIGNS_AT + 2 * sub, sizeof(signs));
            _mm_prefetch((const char *)lines + PREFETCH_BYTES, _MM_HINT_T0);
            _mm_prefetch((const char *)lines + PREFETCH_BYTES + PANEL_LINE_BYTES, _MM_HINT_T0);
            __m512i line[4];
            read_sub(lines, _mm512_and_si512(_mm512_srl_epi16(both, shift), low), (__mmask16)signs,
                     line);
            for (int i = 0; i < 4; i++, out += PANEL_LINE_BYTES)
                _mm512_store_si512(out, line[i]);
        }
        panel = lines;
    }
}

static size_t q4r_unpacked_bytes(const product *product) {
    return ((size_t)product->call->weight->k + Q4R_SUPER - 1) / Q4R_SUPER * Q4R_SUPER *
           QUANT_PANEL_ROWS;
}

static size_t q4r_table_stride(const product *product) {
    return ((size_t)product->call->weight->k + 16 * Q4R_SUPER - 1) / (16 * Q4R_SUPER) * 16;
}

static void q4r_fill(const product *product, size_t rows) {
    const activation_view *x = product->call->x;
    size_t count = ((size_t)x->k + Q4R_SUB - 1) / Q4R_SUB;
    for (size_t i = 0; i < rows; i++) {
        const int32_t *sums = x->integer_sum + (product->chunk + i) * x->sum_stride;
        int32_t *begin = (int32_t *)product->table + i * product->table_stride;
        for (size_t at = 0, index = 0; at < count; at += Q4R_SUBS, index++) {
            size_t left = count - at;
            __mmask16 there = left >= Q4R_SUBS ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
            __m512i part = _mm512_maskz_loadu_epi32(there, sums + at);
            begin[index] = -ZERO * _mm512_reduce_add_epi32(part);
        }
    }
}

static const product_kind kind_q4r = {
    .chunk_rows = 512,
    .zero = ZERO,
    .table_stride = q4r_table_stride,
    .fill = q4r_fill,
    .unpacked_bytes = q4r_unpacked_bytes,
    .unpack = q4r_unpack,
    .tile = q4r_product_tile,
    .fused_rows = TILE_ROWS_MAX,
};

void linear_avx512_q4r(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    product_run(&kind_q4r, call, first, last, scratch);
}
