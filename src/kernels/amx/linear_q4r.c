/* Q4R on tiles of full depth.
 *
 * Layout  two panels (32 outputs) together; PIECE_SUPERS super-blocks of them are unpacked to byte
 *         lines of multiplier · (number − 8) that stay in the first-level cache while all rows of x
 *         stream past.
 * Group   32 rows × 32 outputs × 256 k: 2 × 2 C tiles, 16 products of 64 k, sums in 32 bits.
 *         While the products of a group run, the C tiles of the group before, stored as integers,
 *         are converted and added to the float sums, a tile behind each quarter of the products.
 * Tails   a last single tile of rows, a last single panel and both; k up to whole 64 with zeros on
 *         both sides; fewer than 16 rows: lower tiles (amx_int.h); fewer than AMX_ROWS_MIN_Q4R: to
 *         AVX-512.
 * Sums    f[row][output], one fma per 256 k in order, as activation.h has it.
 * Rates   bench_linear amx q4r 5632 2048 16,512 16 with 16 threads of an Emerald Rapids Xeon, a
 *         virtual machine whose neighbours make a factor of two: 512 rows at 7…10 TOPS (AVX-512 in
 *         the same runs 2.9…3.8), 16 rows at 64…76 GB/s of weights; one thread 1.3 TOPS.
 *         What tiles can do depends on their numbers: 16 products of zeros take 270 cycles there,
 *         of random numbers 570, so the peak of 5 TOPS a thread that a loop over empty tiles shows
 *         is 2.4 with numbers in them. A group whose data all lie in the first-level cache takes
 *         1,050 cycles; its float work alone would take 220 and hides behind the rest.
 */
#include "kernels/amx/amx_int.h"
#include "kernels/avx512/q4r.h"

#ifndef PIECE_SUPERS
#define PIECE_SUPERS 1
#endif
#define SUPER_BYTES (Q4R_SUPER * QUANT_PANEL_ROWS)
#define WIDE        4 /* panels side by side */
#define SUM_STRIDE  (WIDE * QUANT_PANEL_ROWS)
#define STEP_BYTES  1024 /* a B tile: 64 k of a panel */
#define BLOCK_ROWS  256  /* whose sums are kept at a time */

typedef struct q4r_scratch {
    int8_t lines[PIECE_SUPERS][WIDE][SUPER_BYTES];
    float scale[PIECE_SUPERS][WIDE][QUANT_PANEL_ROWS];
    int32_t products[2][WIDE][AMX_TILE_CELLS];
    float sums[BLOCK_ROWS * SUM_STRIDE];
} q4r_scratch;
_Static_assert(sizeof(q4r_scratch) <= 131072, "what linear_scratch_bytes has at least");

/* ---- Unpacking ---- */

/* Four byte lines with their zero point, 128, taken away. */
AMX_INLINE void store_sub(const uint8_t *numbers, __m512i magnitude, __mmask16 negative,
                          int8_t *out) {
    const __m512i zero = _mm512_set1_epi8((char)BYTE_ZERO);
    __m512i line[4];
    q4r_read_sub(numbers, magnitude, negative, line);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        _mm512_store_si512(out + i * PANEL_LINE_BYTES, _mm512_xor_si512(line[i], zero));
}

/* One super-block of `subs` sub-blocks to byte lines, zeros up to whole 64 k, and its scales. */
static void unpack_super(const uint8_t *super, size_t subs, int8_t *lines, float *scale) {
    const uint8_t *numbers = super + q4r_lines_at(subs);
    _mm512_store_ps(scale, load_halves(super));
    for (size_t sub = 0; sub < subs; sub += 2, numbers += 2 * SUB_BYTES) {
        __m512i both = q4r_magnitudes(super, sub);
        int8_t *out = lines + sub * Q4R_SUB * QUANT_PANEL_ROWS;
        q4r_prefetch(numbers, 2 * SUB_BYTES);
        store_sub(numbers, _mm512_and_si512(both, _mm512_set1_epi16(15)), q4r_signs(super, sub),
                  out);
        if (sub + 1 < subs)
            store_sub(numbers + SUB_BYTES, _mm512_srli_epi16(both, 4), q4r_signs(super, sub + 1),
                      out + 4 * PANEL_LINE_BYTES);
    }
    for (size_t line = subs * 4; line % 16 != 0; line++)
        _mm512_store_si512(lines + line * PANEL_LINE_BYTES, _mm512_setzero_si512());
}

/* ---- Products ---- */

/* The C tiles of a group, stored as integers, that wait for their scales. */
typedef struct q4r_waiting {
    const int32_t *products;   /* [panels][rows][16]; NULL: none */
    const float *weight_scale; /* [panels][16] */
    const float *x_scale;      /* of the first row */
    size_t scale_stride;
    size_t height;
    float *sums; /* [rows][SUM_STRIDE] */
} q4r_waiting;

/* A quarter of the rows of the group before joins the sums. */
AMX_INLINE void absorb(const size_t panels, const q4r_waiting *waiting, const size_t quarter) {
    size_t end = waiting->height < 4 * quarter + 4 ? waiting->height : 4 * quarter + 4;
    if (waiting->products == NULL)
        return;
    __m512 weight[WIDE];
#pragma GCC unroll 4
    for (size_t panel = 0; panel < panels; panel++)
        weight[panel] = _mm512_load_ps(waiting->weight_scale + panel * QUANT_PANEL_ROWS);
#pragma GCC unroll 4
    for (size_t row = 4 * quarter; row < end; row++) {
        __m512 x_scale = _mm512_set1_ps(waiting->x_scale[row * waiting->scale_stride]);
        const int32_t *products = waiting->products + row * QUANT_PANEL_ROWS;
        float *sums = waiting->sums + row * SUM_STRIDE;
#pragma GCC unroll 4
        for (size_t panel = 0; panel < panels; panel++) {
            __m512 product =
                _mm512_cvtepi32_ps(_mm512_load_si512(products + panel * AMX_TILE_CELLS));
            float *sum = sums + panel * QUANT_PANEL_ROWS;
            _mm512_store_ps(sum, _mm512_fmadd_ps(product, _mm512_mul_ps(weight[panel], x_scale),
                                                 _mm512_load_ps(sum)));
        }
    }
}

/* One group: a tile of rows times `panels` panels. C tiles 0…3, x in 4, weights in 5, 6, 7 and 5
 * again. */
AMX_INLINE void multiply(const size_t panels, const int8_t *x, size_t stride, const int8_t *lines,
                         size_t steps, const q4r_waiting *before, int32_t *products) {
    tile_zero(0);
    if (panels > 1)
        tile_zero(1);
    if (panels > 2) {
        tile_zero(2);
        tile_zero(3);
    }
#pragma GCC unroll 4
    for (size_t step = 0; step < 4; step++) {
        if (step < steps) {
            const int8_t *at = lines + step * STEP_BYTES;
            tile_load(4, x + step * 64, stride);
            tile_load(5, at, PANEL_LINE_BYTES);
            tile_product(0, 4, 5);
            if (panels > 1) {
                tile_load(6, at + SUPER_BYTES, PANEL_LINE_BYTES);
                tile_product(1, 4, 6);
            }
            if (panels > 2) {
                tile_load(7, at + 2 * SUPER_BYTES, PANEL_LINE_BYTES);
                tile_product(2, 4, 7);
                tile_load(5, at + 3 * SUPER_BYTES, PANEL_LINE_BYTES);
                tile_product(3, 4, 5);
            }
        }
        absorb(panels, before, step);
    }
    tile_store(0, products, PANEL_LINE_BYTES);
    if (panels > 1)
        tile_store(1, products + AMX_TILE_CELLS, PANEL_LINE_BYTES);
    if (panels > 2) {
        tile_store(2, products + 2 * AMX_TILE_CELLS, PANEL_LINE_BYTES);
        tile_store(3, products + 3 * AMX_TILE_CELLS, PANEL_LINE_BYTES);
    }
}

/* Some super-blocks of a few panels, with all rows of the block. */
typedef struct q4r_piece {
    const activation_view *x;
    const amx_rows *rows;
    size_t begin; /* k */
    size_t supers;
} q4r_piece;

static inline size_t steps_at(const activation_view *x, size_t begin) {
    size_t left = x->k - begin;
    return left >= Q4R_SUPER ? 4 : (left + 63) / 64;
}

AMX_INLINE void multiply_piece(const size_t panels, const q4r_piece *piece, q4r_scratch *scratch) {
    const activation_view *x = piece->x;
    const amx_rows *rows = piece->rows;
    q4r_waiting before = {.height = rows->height, .scale_stride = x->scale_stride};
    unsigned side = 0;
    for (size_t tile = 0; tile < rows->tiles; tile++) {
        size_t row = amx_rows_begin(rows, tile);
        for (size_t super = 0; super < piece->supers; super++, side ^= 1) {
            size_t begin = piece->begin + super * Q4R_SUPER;
            size_t steps = steps_at(x, begin);
            const int8_t *from = x->number + row * x->stride + begin;
            int32_t *products = scratch->products[side][0];
            if (steps == 4)
                multiply(panels, from, x->stride, scratch->lines[super][0], 4, &before, products);
            else
                multiply(panels, from, x->stride, scratch->lines[super][0], steps, &before,
                         products);
            before.products = products;
            before.weight_scale = scratch->scale[super][0];
            before.x_scale = x->scale + row * x->scale_stride + begin / Q4R_SUPER;
            before.sums = scratch->sums + tile * AMX_TILE_ROWS * SUM_STRIDE;
        }
    }
    for (size_t quarter = 0; quarter < 4; quarter++)
        absorb(panels, &before, quarter);
}

/* ---- Panels ---- */

static inline size_t panel_bytes_of(const weight_view *weight) {
    uint64_t bytes = 0;
    bool known = panels_bytes(QUANT_Q4R, weight->k, &bytes);
    (void)known;
    return (size_t)bytes;
}

/* The super-blocks from piece->begin on into the scratch; returns where the next ones begin. */
static const uint8_t *unpack_piece(const weight_view *weight, const uint8_t *from, size_t panels,
                                   q4r_piece *piece, q4r_scratch *scratch) {
    size_t begin = piece->begin;
    size_t panel_bytes = panel_bytes_of(weight);
    for (piece->supers = 0; piece->supers < PIECE_SUPERS && begin < weight->k; piece->supers++) {
        size_t subs = q4r_subs(weight->k, begin);
        for (size_t i = 0; i < panels; i++)
            unpack_super(from + i * panel_bytes, subs, scratch->lines[piece->supers][i],
                         scratch->scale[piece->supers][i]);
        from += q4r_lines_at(subs) + subs * SUB_BYTES;
        begin += Q4R_SUPER;
    }
    return from;
}

static void multiply_panels(const linear_call *call, size_t panel, size_t panels,
                            const amx_rows *rows, q4r_scratch *scratch) {
    const weight_view *weight = call->weight;
    const uint8_t *from = weight->data + panel * panel_bytes_of(weight);
    memset(scratch->sums, 0, rows->tiles * AMX_TILE_ROWS * SUM_STRIDE * sizeof(float));
    q4r_piece piece = {call->x, rows, 0, 0};
    for (; piece.begin < weight->k; piece.begin += PIECE_SUPERS * Q4R_SUPER) {
        from = unpack_piece(weight, from, panels, &piece, scratch);
        if (panels == WIDE)
            multiply_piece(WIDE, &piece, scratch);
        else if (panels == 2)
            multiply_piece(2, &piece, scratch);
        else
            multiply_piece(1, &piece, scratch);
    }
    for (size_t i = 0; i < panels; i++)
        amx_finish(call, panel + i, rows, scratch->sums + i * QUANT_PANEL_ROWS, SUM_STRIDE);
}

/* As many panels side by side as there are, of 4, 2 and 1. */
static inline size_t panels_together(size_t left) {
    return left >= WIDE ? WIDE : left >= 2 ? 2 : 1;
}

void amx_linear_q4r(const linear_call *call, size_t first, size_t last, uint8_t *memory) {
    q4r_scratch *scratch = (q4r_scratch *)(void *)memory;
    if (call->x->rows < AMX_ROWS_MIN_Q4R) {
        linear_avx512_q4r(call, first, last, memory);
        return;
    }
    for (size_t row = 0; row < call->x->rows; row += BLOCK_ROWS) {
        size_t left = call->x->rows - row;
        amx_rows rows = amx_rows_cut(row, left < BLOCK_ROWS ? left : BLOCK_ROWS);
        tile_configuration configuration = amx_configuration(rows.height, 64, 5);
        tiles_configure(&configuration);
        for (size_t panel = first; panel < last;) {
            size_t panels = panels_together(last - panel);
            multiply_panels(call, panel, panels, &rows, scratch);
            panel += panels;
        }
    }
    tiles_release();
}
