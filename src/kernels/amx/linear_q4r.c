/* Q4R on tiles of full depth.
 *
 * Layout  two panels (32 outputs) together; PIECE_SUPERS super-blocks of them are unpacked to byte
 *         lines of multiplier · (number − 8) that stay in the first-level cache while all rows of x
 *         stream past.
 * Group   32 rows × 32 outputs × 256 k: 2 × 2 C tiles, 16 products of 64 k, sums in 32 bits.
 *         While the products of a group run, the C tiles of the group before, stored as integers,
 *         are converted and added to the float sums, a tile behind each quarter of the products.
 * Tails   a last single tile of rows (2 × 1), a last single panel (1 × 2) and both; k up to whole
 *         64 with zeros on both sides; fewer than 16 rows: lower tiles (amx_int.h).
 * Sums    f[row][output], one fma per 256 k in order, as activation.h has it.
 */
#include "kernels/amx/amx_int.h"

#define PIECE_SUPERS 2
#define AHEAD        4096 /* bytes of weights fetched ahead */
#define SUPER_BYTES  (Q4R_SUPER * QUANT_PANEL_ROWS)
#define PAIR_OUTPUTS (2 * QUANT_PANEL_ROWS)
#define STEP_BYTES   1024 /* a B tile: 64 k of a panel */

typedef struct q4r_scratch {
    int8_t lines[PIECE_SUPERS][2][SUPER_BYTES];
    float scale[PIECE_SUPERS][2][QUANT_PANEL_ROWS];
    int32_t products[2][4][AMX_TILE_CELLS];
    float sums[AMX_BLOCK_ROWS * PAIR_OUTPUTS];
} q4r_scratch;

/* ---- Unpacking ---- */

static inline size_t super_numbers_at(size_t subs) {
    return PANEL_LINE_BYTES * (subs <= Q4R_SUBS / 2 ? 2 : 3);
}

static inline size_t super_bytes(size_t subs) {
    return super_numbers_at(subs) + subs * 2 * PANEL_LINE_BYTES;
}

/* Two nibble lines (16 k) to four byte lines of multiplier · (number − 8). Two numbers are
 * multiplied at once in a 16-bit word: (256·b + a)·m + 257·c is 256·(b·m + c) + (a·m + c), and with
 * c = 128 − 8·m neither byte carries into the other. The 128 goes again with the top bits. */
static inline void unpack_sub(const uint8_t *numbers, __m512i magnitude, __mmask16 negative,
                              int8_t *lines) {
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i top = _mm512_set1_epi8((char)0x80);
    __m512i multiplier = _mm512_mask_mov_epi32(magnitude, negative,
                                               _mm512_sub_epi16(_mm512_setzero_si512(), magnitude));
    __m512i offset = _mm512_add_epi16(_mm512_mullo_epi16(multiplier, _mm512_set1_epi16(-8 * 257)),
                                      _mm512_set1_epi16((short)(128 * 257)));
    _mm_prefetch((const char *)numbers + AHEAD, _MM_HINT_T0);
    _mm_prefetch((const char *)numbers + AHEAD + 64, _MM_HINT_T0);
    for (int i = 0; i < 4; i++) {
        __m512i line = _mm512_loadu_si512(numbers + i / 2 * PANEL_LINE_BYTES);
        line = _mm512_and_si512(i % 2 != 0 ? _mm512_srli_epi16(line, 4) : line, low);
        line = _mm512_add_epi16(_mm512_mullo_epi16(line, multiplier), offset);
        _mm512_store_si512(lines + i * PANEL_LINE_BYTES, _mm512_xor_si512(line, top));
    }
}

/* One super-block of `subs` sub-blocks to byte lines, zeros up to whole 64 k, and its scales. */
AMX_INLINE void unpack_subs(const uint8_t *super, size_t subs, int8_t *lines, float *scale) {
    const uint8_t *numbers = super + super_numbers_at(subs);
    /* byte r of 16 into the low bytes of both words of row r */
    const __m512i spread =
        _mm512_add_epi32(_mm512_set1_epi32((int)0x80008000u),
                         _mm512_mullo_epi32(_mm512_set1_epi32(0x00010001),
                                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                                                              12, 13, 14, 15)));
    _mm512_store_ps(scale, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)super)));
    for (size_t sub = 0; sub < subs; sub++) {
        uint16_t negative;
        memcpy(&negative, super + 32 + 2 * sub, sizeof(negative));
        __m512i both =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(
                                    (const void *)(super + PANEL_LINE_BYTES + sub / 2 * 16))),
                                spread);
        __m512i magnitude = sub % 2 == 0 ? _mm512_and_si512(both, _mm512_set1_epi16(15))
                                         : _mm512_srli_epi16(both, 4);
        unpack_sub(numbers + sub * 2 * PANEL_LINE_BYTES, magnitude, negative,
                   lines + sub * 4 * PANEL_LINE_BYTES);
    }
    for (size_t line = subs * 4; line % 16 != 0; line++)
        _mm512_store_si512(lines + line * PANEL_LINE_BYTES, _mm512_setzero_si512());
}

static void unpack_super(const uint8_t *super, size_t subs, int8_t *lines, float *scale) {
    if (subs == Q4R_SUBS)
        unpack_subs(super, Q4R_SUBS, lines, scale);
    else
        unpack_subs(super, subs, lines, scale);
}

/* ---- Products ---- */

/* A C tile that lies as integers and waits for its scales. */
typedef struct q4r_tile {
    const int32_t *products;
    const float *weight_scale; /* [16] */
    const float *x_scale;      /* of its first row */
    float *sums;               /* [rows][PAIR_OUTPUTS] */
} q4r_tile;

typedef struct q4r_waiting {
    size_t tiles;
    size_t height;
    size_t scale_stride;
    q4r_tile tile[4];
} q4r_waiting;

AMX_INLINE void absorb_rows(const q4r_tile *tile, size_t scale_stride, size_t height) {
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

/* The activations of a group: 256 k from `tile`, rows `stride` apart. */
typedef struct q4r_rows {
    const int8_t *tile[2];
    const int8_t *next[2]; /* the same of the group behind this one */
    size_t stride;
} q4r_rows;

/* A quarter of the next group's activations into the first-level cache. */
AMX_INLINE void fetch_next(const bool tall, const q4r_rows *x, size_t step) {
    for (size_t row = step * 4; row < step * 4 + 4; row++)
        for (size_t line = 0; line < 4; line++) {
            _mm_prefetch((const char *)x->next[0] + row * x->stride + line * 64, _MM_HINT_T0);
            if (tall)
                _mm_prefetch((const char *)x->next[1] + row * x->stride + line * 64, _MM_HINT_T0);
        }
}

/* One group; `tall`: two row tiles, `wide`: two panels. C tiles: [panel][row tile]. */
AMX_INLINE void multiply(const bool tall, const bool wide, const q4r_rows *x, const int8_t *lines,
                         size_t steps, const q4r_waiting *before, int32_t *products) {
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
            tile_load(4, x->tile[0] + step * 64, x->stride);
            tile_product(0, 4, 6);
            if (tall) {
                tile_load(5, x->tile[1] + step * 64, x->stride);
                tile_product(1, 5, 6);
            }
            if (wide) {
                tile_load(7, lines + SUPER_BYTES + step * STEP_BYTES, PANEL_LINE_BYTES);
                tile_product(2, 4, 7);
            }
            if (tall && wide)
                tile_product(3, 5, 7);
        }
        if (tall)
            fetch_next(tall, x, step);
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
        size_t next[2] = {amx_rows_begin(rows, tile + 2), amx_rows_begin(rows, tile + 3)};
        for (size_t super = 0; super < piece->supers; super++, side ^= 1) {
            size_t begin = piece->begin + super * Q4R_SUPER;
            size_t steps = steps_at(x, begin);
            q4r_rows from = {.stride = x->stride};
            for (size_t i = 0; i < 2; i++) {
                from.tile[i] = x->number + row[i] * x->stride + begin;
                from.next[i] = from.tile[i] + Q4R_SUPER;
                if (super + 1 == piece->supers)
                    from.next[i] = x->number + next[i] * x->stride + piece->begin;
            }
            const int8_t *lines = scratch->lines[super][0];
            int32_t *products = scratch->products[side][0];
            if (tall && steps == 4)
                multiply(true, wide, &from, lines, 4, &before, products);
            else if (tall)
                multiply(true, wide, &from, lines, steps, &before, products);
            else
                multiply(false, wide, &from, lines, steps, &before, products);
            before.tiles = (wide ? 2u : 1u) * (tall ? 2u : 1u);
            for (size_t i = 0; i < before.tiles; i++) {
                size_t panel = tall ? i / 2 : i;
                size_t at = tall ? i % 2 : 0;
                before.tile[i] =
                    (q4r_tile){products + i * AMX_TILE_CELLS, scratch->scale[super][panel],
                               x->scale + row[at] * x->scale_stride + begin / Q4R_SUPER,
                               scratch->sums + (tile + at) * AMX_TILE_ROWS * PAIR_OUTPUTS +
                                   panel * QUANT_PANEL_ROWS};
            }
        }
    }
    for (size_t tile = 0; tile < 4; tile++)
        absorb(&before, tile);
}

/* One row tile: two super-blocks of one panel side by side, so that two chains of products run. */
AMX_INLINE void multiply_deep(const q4r_piece *piece, const q4r_waiting *before,
                              q4r_scratch *scratch, int32_t *products) {
    const activation_view *x = piece->x;
    const int8_t *from = x->number + piece->rows->first * x->stride + piece->begin;
    size_t first = steps_at(x, piece->begin);
    size_t second = piece->supers > 1 ? steps_at(x, piece->begin + Q4R_SUPER) : 0;
    tile_zero(0);
    tile_zero(1);
    for (size_t step = 0; step < 4; step++) {
        if (step < first) {
            tile_load(6, scratch->lines[0][0] + step * STEP_BYTES, PANEL_LINE_BYTES);
            tile_load(4, from + step * 64, x->stride);
            tile_product(0, 4, 6);
        }
        if (step < second) {
            tile_load(7, scratch->lines[1][0] + step * STEP_BYTES, PANEL_LINE_BYTES);
            tile_load(5, from + Q4R_SUPER + step * 64, x->stride);
            tile_product(1, 5, 7);
        }
        if (step < 2)
            absorb(before, step);
    }
    tile_store(0, products, PANEL_LINE_BYTES);
    tile_store(1, products + AMX_TILE_CELLS, PANEL_LINE_BYTES);
}

/* ---- Panels ---- */

static inline size_t panel_bytes_of(const weight_view *weight) {
    uint64_t bytes = 0;
    bool known = panels_bytes(QUANT_Q4R, weight->k, &bytes);
    (void)known;
    return (size_t)bytes;
}

/* The super-blocks from piece->begin on into the scratch; returns where the next ones begin. */
static const uint8_t *unpack_piece(const linear_call *call, const uint8_t *from, size_t panels,
                                   size_t supers, q4r_piece *piece, q4r_scratch *scratch) {
    size_t k = call->weight->k;
    size_t begin = piece->begin;
    size_t panel_bytes = panel_bytes_of(call->weight);
    for (piece->supers = 0; piece->supers < supers && begin < k; piece->supers++) {
        size_t left = k - begin < Q4R_SUPER ? k - begin : Q4R_SUPER;
        size_t subs = (left + Q4R_SUB - 1) / Q4R_SUB;
        for (size_t i = 0; i < panels; i++)
            unpack_super(from + i * panel_bytes, subs, scratch->lines[piece->supers][i],
                         scratch->scale[piece->supers][i]);
        from += super_bytes(subs);
        begin += Q4R_SUPER;
    }
    return from;
}

static void multiply_panels(const linear_call *call, size_t panel, bool wide, const amx_rows *rows,
                            q4r_scratch *scratch) {
    const uint8_t *from = call->weight->data + panel * panel_bytes_of(call->weight);
    memset(scratch->sums, 0, rows->tiles * AMX_TILE_ROWS * PAIR_OUTPUTS * sizeof(float));
    q4r_piece piece = {call->x, rows, 0, 0};
    for (; piece.begin < call->weight->k; piece.begin += PIECE_SUPERS * Q4R_SUPER) {
        from = unpack_piece(call, from, wide ? 2 : 1, PIECE_SUPERS, &piece, scratch);
        if (wide)
            multiply_piece(true, &piece, scratch);
        else
            multiply_piece(false, &piece, scratch);
    }
    for (size_t i = 0; i < (wide ? 2u : 1u); i++)
        amx_finish(call, panel + i, rows, scratch->sums + i * QUANT_PANEL_ROWS, PAIR_OUTPUTS);
}

/* The same for one row tile: panels one by one, so that the weights are one stream. */
static void multiply_panel_few(const linear_call *call, size_t panel, const amx_rows *rows,
                               q4r_scratch *scratch) {
    const activation_view *x = call->x;
    const uint8_t *from = call->weight->data + panel * panel_bytes_of(call->weight);
    memset(scratch->sums, 0, AMX_TILE_ROWS * PAIR_OUTPUTS * sizeof(float));
    q4r_waiting before = {.height = rows->height, .scale_stride = x->scale_stride};
    float scale[2][2][QUANT_PANEL_ROWS] __attribute__((aligned(64)));
    q4r_piece piece = {x, rows, 0, 0};
    unsigned side = 0;
    for (; piece.begin < call->weight->k; piece.begin += 2 * Q4R_SUPER, side ^= 1) {
        from = unpack_piece(call, from, 1, 2, &piece, scratch);
        int32_t *products = scratch->products[side][0];
        multiply_deep(&piece, &before, scratch, products);
        before.tiles = piece.supers;
        for (size_t i = 0; i < piece.supers; i++) {
            memcpy(scale[side][i], scratch->scale[i][0], sizeof(scale[side][i]));
            before.tile[i] =
                (q4r_tile){products + i * AMX_TILE_CELLS, scale[side][i],
                           x->scale + rows->first * x->scale_stride + piece.begin / Q4R_SUPER + i,
                           scratch->sums};
        }
    }
    absorb(&before, 0);
    absorb(&before, 1);
    amx_finish(call, panel, rows, scratch->sums, PAIR_OUTPUTS);
}

void amx_linear_q4r(const linear_call *call, size_t first, size_t last, uint8_t *memory) {
    q4r_scratch *scratch = (q4r_scratch *)(void *)memory;
    for (size_t row = 0; row < call->x->rows; row += AMX_BLOCK_ROWS) {
        size_t left = call->x->rows - row;
        amx_rows rows =
            amx_rows_cut(row, left < AMX_BLOCK_ROWS ? left : AMX_BLOCK_ROWS, AMX_TILE_ROWS);
        tile_configuration configuration = amx_configuration(rows.height, 64);
        tiles_configure(&configuration);
        if (rows.tiles == 1)
            for (size_t panel = first; panel < last; panel++)
                multiply_panel_few(call, panel, &rows, scratch);
        else
            for (size_t panel = first; panel < last; panel += 2)
                multiply_panels(call, panel, panel + 1 < last, &rows, scratch);
    }
    tiles_release();
}
