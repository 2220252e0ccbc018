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

#define PIECE_SUPERS 4
#define SUPER_BYTES  (Q4R_SUPER * QUANT_PANEL_ROWS)
#define PAIR_OUTPUTS (2 * QUANT_PANEL_ROWS)
#define STEP_BYTES   1024 /* a B tile: 64 k of a panel */

typedef struct q4r_scratch {
    int8_t lines[PIECE_SUPERS][2][SUPER_BYTES];
    float scale[PIECE_SUPERS][2][QUANT_PANEL_ROWS];
    int32_t products[2][4][AMX_TILE_CELLS];
    float sums[AMX_BLOCK_ROWS * PAIR_OUTPUTS];
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

/* A C tile that lies as integers and waits for its scales. */
typedef struct q4r_c_tile {
    const int32_t *products;
    const float *weight_scale; /* [16] */
    const float *x_scale;      /* of its first row */
    float *sums;               /* [rows][PAIR_OUTPUTS] */
} q4r_c_tile;

typedef struct q4r_waiting {
    size_t tiles;
    size_t height;
    size_t scale_stride;
    q4r_c_tile tile[4];
} q4r_waiting;

AMX_INLINE void absorb_rows(const q4r_c_tile *tile, size_t scale_stride, size_t height) {
    __m512 weight = _mm512_load_ps(tile->weight_scale);
    const float *x_scale = tile->x_scale;
    const int32_t *products = tile->products;
    float *sums = tile->sums;
#pragma GCC unroll 4
    for (size_t row = 0; row < height; row++) {
        __m512 scale = _mm512_mul_ps(weight, _mm512_set1_ps(*x_scale));
        __m512 product = _mm512_cvtepi32_ps(_mm512_load_si512(products));
        _mm512_store_ps(sums, _mm512_fmadd_ps(product, scale, _mm512_load_ps(sums)));
        x_scale += scale_stride;
        products += QUANT_PANEL_ROWS;
        sums += PAIR_OUTPUTS;
    }
}

AMX_INLINE void absorb(const q4r_waiting *waiting, const size_t tile) {
    if (tile >= waiting->tiles)
        return;
    if (waiting->height == AMX_TILE_ROWS)
        absorb_rows(&waiting->tile[tile], waiting->scale_stride, AMX_TILE_ROWS);
    else
        absorb_rows(&waiting->tile[tile], waiting->scale_stride, waiting->height);
}

/* One group; `tall`: two row tiles, `wide`: two panels. C tiles: [panel][row tile]. */
AMX_INLINE void multiply(const bool tall, const bool wide, const int8_t *const x[2], size_t stride,
                         const int8_t *lines, size_t steps, const q4r_waiting *before,
                         int32_t *products) {
    tile_zero(0);
    if (tall)
        tile_zero(1);
    if (wide)
        tile_zero(2);
    if (tall && wide)
        tile_zero(3);
#pragma GCC unroll 4
    for (size_t step = 0; step < 4; step++) {
        if (step < steps) {
            tile_load(6, lines + step * STEP_BYTES, PANEL_LINE_BYTES);
            tile_load(4, x[0] + step * 64, stride);
            tile_product(0, 4, 6);
            if (tall) {
                tile_load(5, x[1] + step * 64, stride);
                tile_product(1, 5, 6);
            }
            if (wide) {
                tile_load(7, lines + SUPER_BYTES + step * STEP_BYTES, PANEL_LINE_BYTES);
                tile_product(2, 4, 7);
            }
            if (tall && wide)
                tile_product(3, 5, 7);
        }
        absorb(before, step);
    }
    tile_store(0, products, PANEL_LINE_BYTES);
    if (tall)
        tile_store(1, products + AMX_TILE_CELLS, PANEL_LINE_BYTES);
    if (wide)
        tile_store(2, products + (tall ? 2 : 1) * AMX_TILE_CELLS, PANEL_LINE_BYTES);
    if (tall && wide)
        tile_store(3, products + 3 * AMX_TILE_CELLS, PANEL_LINE_BYTES);
}

/* A piece of one panel or two with all rows of the block. */
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

AMX_INLINE void multiply_piece(const bool wide, const q4r_piece *piece, q4r_scratch *scratch) {
    const activation_view *x = piece->x;
    const amx_rows *rows = piece->rows;
    q4r_waiting before = {.height = rows->height, .scale_stride = x->scale_stride};
    unsigned side = 0;
    for (size_t tile = 0; tile < rows->tiles; tile += 2) {
        bool tall = tile + 1 < rows->tiles;
        size_t row[2] = {amx_rows_begin(rows, tile), amx_rows_begin(rows, tile + 1)};
        for (size_t super = 0; super < piece->supers; super++, side ^= 1) {
            size_t begin = piece->begin + super * Q4R_SUPER;
            size_t steps = steps_at(x, begin);
            const int8_t *from[2] = {x->number + row[0] * x->stride + begin,
                                     x->number + row[1] * x->stride + begin};
            const int8_t *lines = scratch->lines[super][0];
            int32_t *products = scratch->products[side][0];
            if (tall && steps == 4)
                multiply(true, wide, from, x->stride, lines, 4, &before, products);
            else if (tall)
                multiply(true, wide, from, x->stride, lines, steps, &before, products);
            else
                multiply(false, wide, from, x->stride, lines, steps, &before, products);
            before.tiles = (wide ? 2u : 1u) * (tall ? 2u : 1u);
            for (size_t i = 0; i < before.tiles; i++) {
                size_t panel = tall ? i / 2 : i;
                size_t at = tall ? i % 2 : 0;
                before.tile[i] =
                    (q4r_c_tile){products + i * AMX_TILE_CELLS, scratch->scale[super][panel],
                                 x->scale + row[at] * x->scale_stride + begin / Q4R_SUPER,
                                 scratch->sums + (tile + at) * AMX_TILE_ROWS * PAIR_OUTPUTS +
                                     panel * QUANT_PANEL_ROWS};
            }
        }
    }
    for (size_t tile = 0; tile < 4; tile++)
        absorb(&before, tile);
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

static void multiply_panels(const linear_call *call, size_t panel, bool wide, const amx_rows *rows,
                            q4r_scratch *scratch) {
    const weight_view *weight = call->weight;
    const uint8_t *from = weight->data + panel * panel_bytes_of(weight);
    memset(scratch->sums, 0, rows->tiles * AMX_TILE_ROWS * PAIR_OUTPUTS * sizeof(float));
    q4r_piece piece = {call->x, rows, 0, 0};
    for (; piece.begin < weight->k; piece.begin += PIECE_SUPERS * Q4R_SUPER) {
        from = unpack_piece(weight, from, wide ? 2 : 1, &piece, scratch);
        if (wide)
            multiply_piece(true, &piece, scratch);
        else
            multiply_piece(false, &piece, scratch);
    }
    for (size_t i = 0; i < (wide ? 2u : 1u); i++)
        amx_finish(call, panel + i, rows, scratch->sums + i * QUANT_PANEL_ROWS, PAIR_OUTPUTS);
}

void amx_linear_q4r(const linear_call *call, size_t first, size_t last, uint8_t *memory) {
    q4r_scratch *scratch = (q4r_scratch *)(void *)memory;
    if (call->x->rows < AMX_ROWS_MIN_Q4R) {
        linear_avx512_q4r(call, first, last, memory);
        return;
    }
    for (size_t row = 0; row < call->x->rows; row += AMX_BLOCK_ROWS) {
        size_t left = call->x->rows - row;
        amx_rows rows = amx_rows_cut(row, left < AMX_BLOCK_ROWS ? left : AMX_BLOCK_ROWS);
        tile_configuration configuration = amx_configuration(rows.height, 64);
        tiles_configure(&configuration);
        for (size_t panel = first; panel < last; panel += 2)
            multiply_panels(call, panel, panel + 1 < last, &rows, scratch);
    }
    tiles_release();
}
