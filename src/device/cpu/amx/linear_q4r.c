/* Q4R on tiles of full depth.
 *
 * Layout  two panels (32 outputs) together; a super-block of each is unpacked to byte lines of
 *         multiplier · (number − 8), 8 KB, while all rows of x stream past.
 * Group   16 rows × 32 outputs × 256 k: 1 × 2 C tiles, 8 products of 64 k, sums in 32 bits. While
 *         the products of a group run, the C tiles of the group before, stored as integers, are
 *         converted and added to the float sums, a quarter behind each quarter.
 * Cache   what a group touches (lines 8 KB, x 4, integers 2, sums 2) fits into half of the
 *         first-level cache, for a core may have two threads. Four panels side by side load less,
 *         but do not fit: 16 TOPS where two have 27, without unpacking. For the same reason the
 *         integers have one place, not two.
 * Few     one tile of rows has nothing to overlap with but the unpacking: the next super-block is
 *         unpacked into other lines, a quarter behind each quarter.
 * Ahead   weights of super-blocks to come are asked for while one is unpacked, outputs while the
 *         last products run.
 * Tails   one panel; k up to whole 64 with zeros on both sides; fewer than 16 rows: lower tiles
 *         (amx_int.h); few of them to AVX-512.
 * Sums    f[row][output], one fma per 256 k in order, as activation.h has it.
 * Rates   16 threads of an Emerald Rapids Xeon, a virtual machine whose neighbours make a
 *         factor of 1.5: tiles alone reach 40…77 TOPS, this kernel 17 within a prefill of 512
 *         tokens of 1.1B parameters (avocet bench MODEL -p 512; timers of all workers), unpacking
 *         and writing out on top, a fifth of that time.
 */
#include "device/cpu/amx/amx_int.h"
#include "device/cpu/avx512/q4r.h"

/* AVX-512 lays rows out once a call, which many panels repay up to 8 rows: one thread takes 12 %
 * less time so (2048 x 2048). Calls of a large team have few panels: 16 threads decode 8 sequences
 * of SmolLM2's shape at 4430 tokens/s with tiles and at 3650 with a build that had none here. */
#define PANELS_LONG   8
#define ROWS_MIN_LONG 9
#define SUPER_BYTES   (Q4R_SUPER * QUANT_PANEL_ROWS)
#define WIDE          2 /* panels side by side */
#define SUM_STRIDE    (WIDE * QUANT_PANEL_ROWS)
#define STEP_BYTES    1024 /* a B tile: 64 k of a panel */
#define SCALE_SETS    4    /* super-blocks in turn: one waits, one multiplies, one is unpacked */
#define BLOCK_ROWS    256  /* whose sums are kept at a time */

typedef struct q4r_scratch {
    int8_t lines[2][WIDE][SUPER_BYTES]; /* of this super-block; few rows: and of the next */
    float scale[SCALE_SETS][WIDE][QUANT_PANEL_ROWS];
    int32_t products[WIDE][AMX_TILE_CELLS];
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

static void unpack_super(const q4r_super *super) {
    unpack_begin(super);
    unpack_subs(super, 0, super->subs);
}

/* Half of one. */
static void unpack_half(const q4r_super *super, size_t half) {
    size_t first = half * Q4R_SUBS / 2;
    size_t last = first + Q4R_SUBS / 2;
    if (half == 0)
        unpack_begin(super);
    unpack_subs(super, first, super->subs < last ? super->subs : last);
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

AMX_INLINE void absorb_all(const size_t panels, const q4r_waiting *waiting) {
#pragma GCC unroll 4
    for (size_t quarter = 0; quarter < 4; quarter++)
        absorb(panels, waiting, quarter);
}

/* One group: a tile of rows times `panels` panels. C tiles 0 and 1, x in 4, weights in 5 and 6.
 * `after`: NULL, or super-blocks of as many panels that are unpacked meanwhile. */
AMX_INLINE void multiply(const size_t panels, const int8_t *x, size_t stride, const int8_t *lines,
                         size_t steps, const q4r_waiting *before, const q4r_super *after,
                         int32_t *products) {
    tile_zero(0);
    if (panels > 1)
        tile_zero(1);
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
        }
        absorb(panels, before, step);
        if (after != NULL && step / 2 < panels)
            unpack_half(after + step / 2, step % 2);
    }
    tile_store(0, products, PANEL_LINE_BYTES);
    if (panels > 1)
        tile_store(1, products + AMX_TILE_CELLS, PANEL_LINE_BYTES);
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

/* The super-block at `begin` of panel `i`, into lines `set`. Asked for: the next one, behind the
 * last that of the panels behind these. */
static inline q4r_super super_at(const q4r_job *job, size_t i, size_t begin, const size_t panels,
                                 size_t set) {
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
                       .lines = job->scratch->lines[set][i],
                       .scale = job->scratch->scale[begin / Q4R_SUPER % SCALE_SETS][i]};
}

static inline size_t steps_at(size_t k, size_t begin) {
    size_t left = k - begin;
    return left >= Q4R_SUPER ? 4 : (left + 63) / 64;
}

/* What waits behind a group of the tile that begins at `row`. */
AMX_INLINE q4r_waiting waiting_of(const q4r_job *job, size_t tile, size_t row, size_t begin) {
    const activation_view *x = job->call->x;
    return (q4r_waiting){.products = job->scratch->products[0],
                         .weight_scale = job->scratch->scale[begin / Q4R_SUPER % SCALE_SETS][0],
                         .x_scale = x->scale + row * x->scale_stride + begin / Q4R_SUPER,
                         .scale_stride = x->scale_stride,
                         .height = job->rows->height,
                         .sums = job->scratch->sums + tile * AMX_TILE_ROWS * SUM_STRIDE};
}

/* Tiles of rows past one super-block after the other. */
AMX_INLINE void multiply_many(const size_t panels, const q4r_job *job) {
    const activation_view *x = job->call->x;
    const amx_rows *rows = job->rows;
    const int8_t *lines = job->scratch->lines[0][0];
    int32_t *products = job->scratch->products[0];
    for (size_t begin = 0; begin < x->k; begin += Q4R_SUPER) {
        const size_t steps = steps_at(x->k, begin);
        const bool last = begin + Q4R_SUPER >= x->k;
        q4r_waiting before = {0};
        for (size_t i = 0; i < panels; i++) {
            q4r_super super = super_at(job, i, begin, panels, 0);
            unpack_super(&super);
        }
        for (size_t tile = 0; tile < rows->tiles; tile++) {
            size_t row = amx_rows_begin(rows, tile);
            const int8_t *from = x->number + row * x->stride + begin;
            if (last)
                ask_outputs(panels, job->call, job->panel, row, rows->height);
            if (steps == 4)
                multiply(panels, from, x->stride, lines, 4, &before, NULL, products);
            else
                multiply(panels, from, x->stride, lines, steps, &before, NULL, products);
            before = waiting_of(job, tile, row, begin);
        }
        absorb_all(panels, &before);
    }
}

/* One tile of rows: products of one super-block, unpacking of the next. */
AMX_INLINE void multiply_few(const size_t panels, const q4r_job *job) {
    const activation_view *x = job->call->x;
    const size_t row = job->rows->first;
    q4r_waiting before = {0};
    for (size_t i = 0; i < panels; i++) {
        q4r_super super = super_at(job, i, 0, panels, 0);
        unpack_super(&super);
    }
    ask_outputs(panels, job->call, job->panel, row, job->rows->height);
    size_t set = 0;
    for (size_t begin = 0; begin < x->k; begin += Q4R_SUPER, set = 1 - set) {
        const int8_t *from = x->number + row * x->stride + begin;
        const int8_t *lines = job->scratch->lines[set][0];
        int32_t *products = job->scratch->products[0];
        q4r_super after[WIDE];
        bool more = begin + Q4R_SUPER < x->k;
        for (size_t i = 0; more && i < panels; i++)
            after[i] = super_at(job, i, begin + Q4R_SUPER, panels, 1 - set);
        if (more)
            multiply(panels, from, x->stride, lines, 4, &before, after, products);
        else
            multiply(panels, from, x->stride, lines, steps_at(x->k, begin), &before, NULL,
                     products);
        before = waiting_of(job, 0, row, begin);
    }
    absorb_all(panels, &before);
}

static void multiply_panels(const linear_call *call, size_t panel, size_t panels,
                            const amx_rows *rows, q4r_scratch *scratch) {
    q4r_job job = {call, rows, panel, panel_bytes_of(call->weight), scratch};
    memset(scratch->sums, 0, rows->tiles * AMX_TILE_ROWS * SUM_STRIDE * sizeof(float));
    if (rows->tiles > 1 && panels == WIDE)
        multiply_many(WIDE, &job);
    else if (rows->tiles > 1)
        multiply_many(1, &job);
    else if (panels == WIDE)
        multiply_few(WIDE, &job);
    else
        multiply_few(1, &job);
    for (size_t i = 0; i < panels; i++)
        amx_finish(call, panel + i, rows, scratch->sums + i * QUANT_PANEL_ROWS, SUM_STRIDE);
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
        tile_configuration configuration = amx_configuration(rows.height, 64, 5);
        tiles_configure(&configuration);
        for (size_t panel = first; panel < last; panel += WIDE)
            multiply_panels(call, panel, last - panel < WIDE ? 1 : WIDE, &rows, scratch);
    }
    tiles_release();
}
