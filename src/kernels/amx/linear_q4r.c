/* Q4R on tiles of full depth.
 *
 * Layout  four panels (64 outputs) together; a super-block of each is unpacked to byte lines of
 *         multiplier · (number − 8), 16 KB that stay in the first-level cache, half of which
 *         belongs to another thread, while all rows of x stream past.
 * Group   16 rows × 64 outputs × 256 k: 1 × 4 C tiles, 16 products of 64 k, sums in 32 bits.
 *         Rows of x come from the second-level cache and are loaded once for four products.
 *         While the products of a group run, the C tiles of the group before, stored as integers,
 *         are converted and added to the float sums, a quarter behind each quarter.
 * Ahead   weights of the next super-block are asked for while one is unpacked, outputs while the
 *         last products run.
 * Tails   two panels or one; k up to whole 64 with zeros on both sides; fewer than 16 rows: lower
 *         tiles (amx_int.h); fewer than AMX_ROWS_MIN_Q4R: to AVX-512.
 * Sums    f[row][output], one fma per 256 k in order, as activation.h has it.
 * Rates   16 threads (8 cores) of an Emerald Rapids Xeon, a virtual machine whose neighbours make a
 *         factor of 1.5: tiles alone reach 37…53 TOPS; with their loads 30…35; with stores and
 *         float sums 20; this kernel 11 within a prefill of 512 tokens (unpacking takes a tenth,
 *         writing out another).
 */
#include "kernels/amx/amx_int.h"
#include "kernels/avx512/q4r.h"

#define SUPER_BYTES (Q4R_SUPER * QUANT_PANEL_ROWS)
#define WIDE        4 /* panels side by side */
#define SUM_STRIDE  (WIDE * QUANT_PANEL_ROWS)
#define STEP_BYTES  1024 /* a B tile: 64 k of a panel */
#define BLOCK_ROWS  256  /* whose sums are kept at a time */

typedef struct q4r_scratch {
    int8_t lines[WIDE][SUPER_BYTES];
    float scale[WIDE][QUANT_PANEL_ROWS];
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

/* Asks for `bytes` bytes that the next piece will read: its products lie between, so that memory
 * has time. An address behind the last weight asks for nothing that is read. */
AMX_INLINE void ask(uintptr_t next, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PANEL_LINE_BYTES)
        _mm_prefetch((const char *)(next + at), _MM_HINT_T0);
}

/* One super-block of `subs` sub-blocks to byte lines, zeros up to whole 64 k, and its scales.
 * `next`: where this panel's work goes on. */
static void unpack_super(const uint8_t *super, uintptr_t next, size_t subs, int8_t *lines,
                         float *scale) {
    const uint8_t *numbers = super + q4r_lines_at(subs);
    ask(next, q4r_lines_at(subs));
    next += q4r_lines_at(subs);
    _mm512_store_ps(scale, load_halves(super));
    for (size_t sub = 0; sub < subs; sub += 2, numbers += 2 * SUB_BYTES, next += 2 * SUB_BYTES) {
        __m512i both = q4r_magnitudes(super, sub);
        int8_t *out = lines + sub * Q4R_SUB * QUANT_PANEL_ROWS;
        ask(next, 2 * SUB_BYTES);
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

/* A super-block of a few panels, with all rows of the block. */
typedef struct q4r_piece {
    const activation_view *x;
    const amx_rows *rows;
    size_t begin; /* k */
    float *ask;   /* output of row 0 in the first panel; NULL: not the last piece */
    size_t ask_stride;
} q4r_piece;

/* The outputs of a tile are asked for while the last products run: that they are in the cache of
 * another core, or in none, is then no wait. */
AMX_INLINE void ask_outputs(const size_t panels, const q4r_piece *piece, size_t row) {
    if (piece->ask == NULL)
        return;
    for (size_t i = 0; i < piece->rows->height; i++)
#pragma GCC unroll 4
        for (size_t panel = 0; panel < panels; panel++)
            __builtin_prefetch(
                piece->ask + (row + i) * piece->ask_stride + panel * QUANT_PANEL_ROWS, 1);
}

AMX_INLINE void multiply_piece(const size_t panels, const q4r_piece *piece, q4r_scratch *scratch) {
    const activation_view *x = piece->x;
    const amx_rows *rows = piece->rows;
    const size_t left = x->k - piece->begin;
    const size_t steps = left >= Q4R_SUPER ? 4 : (left + 63) / 64;
    q4r_waiting before = {
        .weight_scale = scratch->scale[0], .height = rows->height, .scale_stride = x->scale_stride};
    for (size_t tile = 0; tile < rows->tiles; tile++) {
        size_t row = amx_rows_begin(rows, tile);
        const int8_t *from = x->number + row * x->stride + piece->begin;
        int32_t *products = scratch->products[tile % 2][0];
        ask_outputs(panels, piece, row);
        if (steps == 4)
            multiply(panels, from, x->stride, scratch->lines[0], 4, &before, products);
        else
            multiply(panels, from, x->stride, scratch->lines[0], steps, &before, products);
        before.products = products;
        before.x_scale = x->scale + row * x->scale_stride + piece->begin / Q4R_SUPER;
        before.sums = scratch->sums + tile * AMX_TILE_ROWS * SUM_STRIDE;
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

/* The super-block at `begin` of some panels into the scratch; returns where the next one begins.
 * Behind the last of a panel, its place among the next panels is asked for. */
static const uint8_t *unpack_piece(const weight_view *weight, const uint8_t *from, size_t panels,
                                   size_t begin, q4r_scratch *scratch) {
    size_t panel_bytes = panel_bytes_of(weight);
    size_t subs = q4r_subs(weight->k, begin);
    size_t bytes = q4r_lines_at(subs) + subs * SUB_BYTES;
    bool last = begin + Q4R_SUPER >= weight->k;
    size_t ahead = last ? bytes + (panels - 1) * panel_bytes : bytes;
    for (size_t i = 0; i < panels; i++) {
        const uint8_t *super = from + i * panel_bytes;
        unpack_super(super, (uintptr_t)super + ahead, subs, scratch->lines[i], scratch->scale[i]);
    }
    return from + bytes;
}

static void multiply_panels(const linear_call *call, size_t panel, size_t panels,
                            const amx_rows *rows, q4r_scratch *scratch) {
    const weight_view *weight = call->weight;
    const uint8_t *from = weight->data + panel * panel_bytes_of(weight);
    memset(scratch->sums, 0, rows->tiles * AMX_TILE_ROWS * SUM_STRIDE * sizeof(float));
    q4r_piece piece = {.x = call->x, .rows = rows, .ask_stride = call->out_stride};
    for (; piece.begin < weight->k; piece.begin += Q4R_SUPER) {
        from = unpack_piece(weight, from, panels, piece.begin, scratch);
        if (piece.begin + Q4R_SUPER >= weight->k)
            piece.ask = call->out + panel * QUANT_PANEL_ROWS;
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
