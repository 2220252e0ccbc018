/* Q4R on tiles of full depth.
 *
 * Layout  two panels (32 outputs) together; a super-block of each is unpacked to byte lines of
 *         multiplier · (number − 8), 8 KB, while all rows of x stream past.
 * Turn    16 rows × 32 outputs × 256 k: 8 products of 64 k, sums in 32 bits in one of two sets of
 *         C tiles. Half way through a turn the set of the turn before is stored as integers, and
 *         meanwhile the integers of the turn before that are converted and added to the float
 *         sums: a store directly behind its products would wait for them.
 * Ahead   the next super-block is unpacked into other lines, a share in every turn. Weights of
 *         super-blocks to come are asked for while one is unpacked.
 * Cache   x is loaded with the hint that it is not needed again soon (tileloaddt1), so that lines
 *         and sums stay in the first-level cache: 12 % less time.
 * Tails   one panel; k up to whole 64 with zeros on both sides; fewer than 16 rows: lower tiles
 *         (amx_int.h); few of them to AVX-512.
 * Sums    f[row][output], one fma per 256 k in order, as activation.h has it.
 * Scales  of x are copied side by side once a call: a row's lie 256 bytes from the next one's, and
 *         loading them in every turn missed the first-level cache 16 times (15 % of the time).
 * Rates   one thread of a Granite Rapids Xeon (virtual), TOPS of 7.7 that tiles alone reach, 2048 x
 *         2048: 16 rows .80, 64 rows 1.8, 512 rows 2.1, 2.8 without writing the outputs
 *         (bench_linear amx q4r 2048 2048 16,64,512 1). A loop of the same instructions with
 *         nothing to unpack or write reaches 4.1.
 */
#include "device/cpu/amx/amx_int.h"
#include "device/cpu/avx512/q4r.h"

/* AVX-512 lays rows out once a call, which many panels repay up to 6 rows: on one core (k = 2048,
 * weights in the second cache) 5 rows take 10.2 ns a unit and 9.7 on tiles, 8 rows 14.9 and 10.2,
 * but two threads that decode SmolLM2's shape are 4 % slower with tiles at 6 rows. Calls of a large
 * team have few panels: 16 threads decode 8 sequences of that shape at 4430 tokens/s with tiles and
 * at 3650 with a build that had none here. */
#define PANELS_LONG   8
#define ROWS_MIN_LONG 7
#define SUPER_BYTES   (Q4R_SUPER * QUANT_PANEL_ROWS)
#define WIDE          2 /* panels side by side */
#define SUM_STRIDE    (WIDE * QUANT_PANEL_ROWS)
#define STEP_BYTES    1024           /* a B tile: 64 k of a panel */
#define SCALE_SETS    4              /* super-blocks: two wait, one multiplies, one is unpacked */
#define PAIRS         (Q4R_SUBS / 2) /* of sub-blocks in a panel's super-block */
#define BLOCK_ROWS    256            /* whose sums are kept at a time */

typedef struct q4r_scratch {
    int8_t lines[2][WIDE][SUPER_BYTES]; /* of this super-block and of the next */
    float scale[SCALE_SETS][WIDE][QUANT_PANEL_ROWS];
    int32_t products[2][WIDE][AMX_TILE_CELLS]; /* of a turn, and of the next */
    float unused[AMX_TILE_ROWS * SUM_STRIDE];  /* the sums of a turn before the first one */
    float sums[BLOCK_ROWS * SUM_STRIDE];
    float x_scale[]; /* [super-blocks][BLOCK_ROWS]: 4 bytes a k, within what grows with k */
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

/* A super-block of a panel, to be unpacked. */
typedef struct q4r_super {
    const uint8_t *from;
    uintptr_t next; /* what is asked for meanwhile */
    size_t subs;    /* sub-blocks */
    int8_t *lines;
    float *scale;
} q4r_super;

/* Its scales, and zeros up to whole 64 k. */
AMX_INLINE void unpack_begin(const q4r_super *super) {
    ask(super->next, q4r_lines_at(super->subs));
    _mm512_store_ps(super->scale, load_halves(super->from));
    for (size_t line = super->subs * 4; line % 16 != 0; line++)
        _mm512_store_si512(super->lines + line * PANEL_LINE_BYTES, _mm512_setzero_si512());
}

/* Sub-blocks [first, last) to byte lines; `first` is even. */
AMX_INLINE void unpack_subs(const q4r_super *super, size_t first, size_t last) {
    size_t at = q4r_lines_at(super->subs) + first * SUB_BYTES;
    for (size_t sub = first; sub < last; sub += 2, at += 2 * SUB_BYTES) {
        __m512i both = q4r_magnitudes(super->from, sub);
        int8_t *out = super->lines + sub * Q4R_SUB * QUANT_PANEL_ROWS;
        ask(super->next + at, 2 * SUB_BYTES);
        store_sub(super->from + at, _mm512_and_si512(both, _mm512_set1_epi16(15)),
                  q4r_signs(super->from, sub), out);
        if (sub + 1 < last)
            store_sub(super->from + at + SUB_BYTES, _mm512_srli_epi16(both, 4),
                      q4r_signs(super->from, sub + 1), out + 4 * PANEL_LINE_BYTES);
    }
}

/* Pair `pair` of sub-blocks; the first one also begins. */
AMX_INLINE void unpack_pair(const q4r_super *super, size_t pair) {
    size_t first = 2 * pair;
    if (pair == 0)
        unpack_begin(super);
    if (first < super->subs)
        unpack_subs(super, first, first + 2 < super->subs ? first + 2 : super->subs);
}

static void unpack_super(const q4r_super *super) {
    for (size_t pair = 0; pair < PAIRS; pair++)
        unpack_pair(super, pair);
}

/* ---- Turns ---- */

/* A turn that waits for its float work. */
typedef struct q4r_waiting {
    int32_t *products;         /* [WIDE][16][16] */
    const float *weight_scale; /* [WIDE][16] */
    const float *x_scale;      /* [16] */
    float *sums;               /* [16][SUM_STRIDE] */
} q4r_waiting;

/* Rows [first, last) of a turn join the sums. */
AMX_INLINE void absorb(const size_t panels, const q4r_waiting *turn, const size_t first,
                       const size_t last) {
    __m512 weight[WIDE];
#pragma GCC unroll 2
    for (size_t panel = 0; panel < panels; panel++)
        weight[panel] = _mm512_load_ps(turn->weight_scale + panel * QUANT_PANEL_ROWS);
#pragma GCC unroll 16
    for (size_t row = first; row < last; row++) {
        __m512 x_scale = _mm512_set1_ps(turn->x_scale[row]);
#pragma GCC unroll 2
        for (size_t panel = 0; panel < panels; panel++) {
            const int32_t *product =
                turn->products + panel * AMX_TILE_CELLS + row * QUANT_PANEL_ROWS;
            float *sum = turn->sums + row * SUM_STRIDE + panel * QUANT_PANEL_ROWS;
            _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(product)),
                                                 _mm512_mul_ps(weight[panel], x_scale),
                                                 _mm512_load_ps(sum)));
        }
    }
}

/* 64 k of a turn: x in tile 4 or 5, weights in 6 and 7. */
AMX_INLINE void multiply_step(const size_t panels, const int set, const size_t step,
                              const int8_t *x, size_t stride, const int8_t *lines) {
    const int8_t *at = lines + step * STEP_BYTES;
    const int a = 4 + (int)step % 2;
    tile_load_once(a, x + step * 64, stride);
    tile_load(6, at, PANEL_LINE_BYTES);
    tile_product(2 * set, a, 6);
    if (panels > 1) {
        tile_load(7, at + SUPER_BYTES, PANEL_LINE_BYTES);
        tile_product(2 * set + 1, a, 7);
    }
}

AMX_INLINE void store_set(const size_t panels, const int set, int32_t *products) {
    tile_store(2 * set, products, PANEL_LINE_BYTES);
    if (panels > 1)
        tile_store(2 * set + 1, products + AMX_TILE_CELLS, PANEL_LINE_BYTES);
}

/* Products of `steps` (at most 4) steps into C tiles 2 · set and 2 · set + 1. `last` is the turn
 * whose products are in the other set, `before` the one before that. */
AMX_INLINE void multiply(const size_t panels, const int set, const size_t steps, const int8_t *x,
                         size_t stride, const int8_t *lines, const q4r_waiting *last,
                         const q4r_waiting *before) {
    tile_zero(2 * set);
    if (panels > 1)
        tile_zero(2 * set + 1);
    multiply_step(panels, set, 0, x, stride, lines);
    if (steps > 1)
        multiply_step(panels, set, 1, x, stride, lines);
    absorb(panels, before, 0, 8);
    store_set(panels, 1 - set, last->products);
    if (steps > 2)
        multiply_step(panels, set, 2, x, stride, lines);
    absorb(panels, before, 8, 12);
    if (steps > 3)
        multiply_step(panels, set, 3, x, stride, lines);
    absorb(panels, before, 12, 16);
}

/* The outputs of a tile are asked for while the last products run: that they are in the cache of
 * another core, or in none, is then no wait. */
AMX_INLINE void ask_outputs(const size_t panels, const linear_call *call, size_t panel, size_t row,
                            size_t height) {
    const float *at = call->out + row * call->out_stride + panel * QUANT_PANEL_ROWS;
    for (size_t i = 0; i < height; i++, at += call->out_stride)
#pragma GCC unroll 2
        for (size_t j = 0; j < panels; j++)
            __builtin_prefetch(at + j * QUANT_PANEL_ROWS, 1);
}

/* ---- Panels ---- */

static inline size_t panel_bytes_of(const weight_view *weight) {
    uint64_t bytes = 0;
    bool known = panels_bytes(QUANT_Q4R, weight->k, &bytes);
    (void)known;
    return (size_t)bytes;
}

/* Some panels side by side, with a block of rows. */
typedef struct q4r_job {
    const linear_call *call;
    const amx_rows *rows;
    size_t panel; /* the first one */
    size_t panel_bytes;
    q4r_scratch *scratch;
} q4r_job;

/* The super-block at `begin` of panel `i`. Asked for: the next one, behind the last that of the
 * panels behind these. */
static inline q4r_super super_at(const q4r_job *job, size_t i, size_t begin, const size_t panels) {
    const weight_view *weight = job->call->weight;
    size_t whole = q4r_lines_at(Q4R_SUBS) + Q4R_SUBS * SUB_BYTES;
    const uint8_t *from =
        weight->data + (job->panel + i) * job->panel_bytes + begin / Q4R_SUPER * whole;
    bool last = begin + Q4R_SUPER >= weight->k;
    return (q4r_super){.from = from,
                       .next =
                           (uintptr_t)from +
                           (last ? panels * job->panel_bytes - begin / Q4R_SUPER * whole : whole),
                       .subs = q4r_subs(weight->k, begin),
                       .lines = job->scratch->lines[begin / Q4R_SUPER % 2][i],
                       .scale = job->scratch->scale[begin / Q4R_SUPER % SCALE_SETS][i]};
}

static inline size_t steps_at(size_t k, size_t begin) {
    size_t left = k - begin;
    return left >= Q4R_SUPER ? 4 : (left + 63) / 64;
}

/* How far a job has come. */
typedef struct q4r_walk {
    size_t turn;
    q4r_waiting last, before;
} q4r_walk;

/* All tiles of rows past one super-block, while the next one is unpacked. */
AMX_INLINE void multiply_super(const size_t panels, const q4r_job *job, size_t begin,
                               q4r_walk *walk) {
    const activation_view *x = job->call->x;
    q4r_scratch *scratch = job->scratch;
    const size_t number = begin / Q4R_SUPER;
    const size_t steps = steps_at(x->k, begin);
    const bool more = begin + Q4R_SUPER < x->k;
    const size_t tiles = job->rows->tiles;
    const int8_t *lines = scratch->lines[number % 2][0];
    const float *x_scale = scratch->x_scale + number * BLOCK_ROWS;
    q4r_super next[WIDE];
    for (size_t i = 0; i < panels; i++)
        next[i] = super_at(job, i, more ? begin + Q4R_SUPER : begin, panels);
    size_t pair = 0, due = 0;
    for (size_t tile = 0; tile < tiles; tile++, walk->turn++) {
        size_t row = amx_rows_begin(job->rows, tile);
        const int8_t *from = x->number + row * x->stride + begin;
        if (!more)
            ask_outputs(panels, job->call, job->panel, row, job->rows->height);
        if (steps == 4 && walk->turn % 2 == 0)
            multiply(panels, 0, 4, from, x->stride, lines, &walk->last, &walk->before);
        else if (steps == 4)
            multiply(panels, 1, 4, from, x->stride, lines, &walk->last, &walk->before);
        else if (walk->turn % 2 == 0)
            multiply(panels, 0, steps, from, x->stride, lines, &walk->last, &walk->before);
        else
            multiply(panels, 1, steps, from, x->stride, lines, &walk->last, &walk->before);
        walk->before = walk->last;
        walk->last = (q4r_waiting){.products = scratch->products[walk->turn % 2][0],
                                   .weight_scale = scratch->scale[number % SCALE_SETS][0],
                                   .x_scale = x_scale + tile * AMX_TILE_ROWS,
                                   .sums = scratch->sums + tile * AMX_TILE_ROWS * SUM_STRIDE};
        for (due += PAIRS; more && due >= tiles; due -= tiles, pair++)
            for (size_t i = 0; i < panels; i++)
                unpack_pair(next + i, pair);
    }
}

AMX_INLINE void multiply_job(const size_t panels, const q4r_job *job) {
    q4r_scratch *scratch = job->scratch;
    const q4r_waiting none = {.products = scratch->products[0][0],
                              .weight_scale = scratch->scale[0][0],
                              .x_scale = scratch->x_scale,
                              .sums = scratch->unused};
    q4r_walk walk = {0, none, none};
    for (size_t i = 0; i < panels; i++) {
        q4r_super super = super_at(job, i, 0, panels);
        unpack_super(&super);
    }
    for (size_t begin = 0; begin < job->call->x->k; begin += Q4R_SUPER)
        multiply_super(panels, job, begin, &walk);
    absorb(panels, &walk.before, 0, AMX_TILE_ROWS);
    if (walk.turn % 2 == 0)
        store_set(panels, 1, walk.last.products);
    else
        store_set(panels, 0, walk.last.products);
    absorb(panels, &walk.last, 0, AMX_TILE_ROWS);
}

static void multiply_panels(const linear_call *call, size_t panel, size_t panels,
                            const amx_rows *rows, q4r_scratch *scratch) {
    q4r_job job = {call, rows, panel, panel_bytes_of(call->weight), scratch};
    memset(scratch->sums, 0, rows->tiles * AMX_TILE_ROWS * SUM_STRIDE * sizeof(float));
    if (panels == WIDE)
        multiply_job(WIDE, &job);
    else
        multiply_job(1, &job);
    amx_finish(call, panel, panels, rows, scratch->sums, SUM_STRIDE);
}

/* The scales of a block's rows, of one super-block after the other. */
static void copy_scales(const activation_view *x, const amx_rows *rows, float *out) {
    size_t supers = (x->k + Q4R_SUPER - 1) / Q4R_SUPER;
    for (size_t tile = 0; tile < rows->tiles; tile++)
        for (size_t i = 0; i < rows->height; i++) {
            const float *from = x->scale + (amx_rows_begin(rows, tile) + i) * x->scale_stride;
            for (size_t super = 0; super < supers; super++)
                out[super * BLOCK_ROWS + tile * AMX_TILE_ROWS + i] = from[super];
        }
}

void amx_linear_q4r(const linear_call *call, size_t first, size_t last, uint8_t *memory) {
    q4r_scratch *scratch = (q4r_scratch *)(void *)memory;
    size_t rows_min = last - first < PANELS_LONG ? AMX_ROWS_MIN_Q4R : ROWS_MIN_LONG;
    if (call->x->rows < rows_min) {
        linear_avx512_q4r(call, first, last, memory);
        return;
    }
    for (size_t row = 0; row < call->x->rows; row += BLOCK_ROWS) {
        size_t left = call->x->rows - row;
        amx_rows rows = amx_rows_cut(row, left < BLOCK_ROWS ? left : BLOCK_ROWS);
        tile_configuration configuration = amx_configuration(rows.height, 64, 6);
        tiles_configure(&configuration);
        copy_scales(call->x, &rows, scratch->x_scale);
        for (size_t panel = first; panel < last; panel += WIDE)
            multiply_panels(call, panel, last - panel < WIDE ? 1 : WIDE, &rows, scratch);
    }
    tiles_release();
}
