/* Q8R on tiles: A of adapters, for many rows. The lines of a panel are tiles of weights as they
 * lie.
 *
 * Group   16 rows × 32 outputs (two panels) × 256 k: 8 products of 64 k, two C tiles, stored as
 *         integers and added to the float sums, one fma per 256 k in order.
 * Tails   one panel; k up to whole 64: x is zero there, and the lines, of which the last may not
 *         all be there, are copied; fewer than 16 rows, or k up to 64 (B of adapters: what stands
 *         behind a tile would weigh more than the tile): to AVX-512.
 */
#include "device/cpu/amx/amx_int.h"

#define WIDE       2 /* panels side by side */
#define SUM_STRIDE (WIDE * QUANT_PANEL_ROWS)
#define STEP_K     64
#define STEP_LINES (STEP_K / 4)
#define STEP_BYTES (STEP_LINES * PANEL_LINE_BYTES)
#define SHORT_K    64
#define BLOCK_ROWS 256 /* whose sums are kept at a time */

typedef struct q8r_scratch {
    int32_t products[WIDE][AMX_TILE_CELLS];
    uint8_t last[WIDE][STEP_BYTES]; /* the last 64 k, with zeros behind */
    float sums[BLOCK_ROWS * SUM_STRIDE];
} q8r_scratch;
_Static_assert(sizeof(q8r_scratch) <= 131072, "what linear_scratch_bytes has at least");

typedef struct q8r_job {
    const linear_call *call;
    const uint8_t *panel; /* the first one */
    size_t panel_bytes;
    size_t lines; /* of a panel, without its scales */
    q8r_scratch *scratch;
} q8r_job;

/* 64 k from line `line` on, of panel `i`. */
AMX_INLINE const uint8_t *step_at(const q8r_job *job, size_t i, size_t line) {
    return job->lines - line >= STEP_LINES
               ? job->panel + i * job->panel_bytes + line * PANEL_LINE_BYTES
               : job->scratch->last[i];
}

static void copy_last(const q8r_job *job, size_t panels) {
    size_t rest = job->lines % STEP_LINES * PANEL_LINE_BYTES;
    for (size_t i = 0; rest > 0 && i < panels; i++) {
        const uint8_t *end = job->panel + i * job->panel_bytes + job->lines * PANEL_LINE_BYTES;
        memcpy(job->scratch->last[i], end - rest, rest);
        memset(job->scratch->last[i] + rest, 0, STEP_BYTES - rest);
    }
}

/* The C tiles join the sums: `scale` is of x. */
AMX_INLINE void absorb(const size_t panels, const q8r_scratch *scratch, const float *scale,
                       size_t scale_stride, size_t height, float *sums) {
    for (size_t row = 0; row < height; row++, sums += SUM_STRIDE) {
        __m512 x_scale = _mm512_set1_ps(scale[row * scale_stride]);
#pragma GCC unroll 2
        for (size_t i = 0; i < panels; i++) {
            __m512 product = _mm512_cvtepi32_ps(
                _mm512_load_si512(scratch->products[i] + row * QUANT_PANEL_ROWS));
            float *sum = sums + i * QUANT_PANEL_ROWS;
            _mm512_store_ps(sum, _mm512_fmadd_ps(product, x_scale, _mm512_load_ps(sum)));
        }
    }
}

/* One tile of rows, all of k. C tiles 0 and 1, x in 4, weights in 5 and 6. */
AMX_INLINE void multiply(const size_t panels, const q8r_job *job, size_t row, size_t height,
                         float *sums) {
    const activation_view *x = job->call->x;
    const float *scale = x->scale + row * x->scale_stride;
    for (size_t begin = 0; begin < job->lines; begin += Q4R_SUPER / 4, scale++) {
        size_t end = begin + Q4R_SUPER / 4 < job->lines ? begin + Q4R_SUPER / 4 : job->lines;
        tile_zero(0);
        if (panels > 1)
            tile_zero(1);
        for (size_t line = begin; line < end; line += STEP_LINES) {
            tile_load(4, x->number + row * x->stride + 4 * line, x->stride);
            tile_load(5, step_at(job, 0, line), PANEL_LINE_BYTES);
            tile_product(0, 4, 5);
            if (panels > 1) {
                tile_load(6, step_at(job, 1, line), PANEL_LINE_BYTES);
                tile_product(1, 4, 6);
            }
        }
        tile_store(0, job->scratch->products[0], PANEL_LINE_BYTES);
        if (panels > 1)
            tile_store(1, job->scratch->products[1], PANEL_LINE_BYTES);
        absorb(panels, job->scratch, scale, x->scale_stride, height, sums);
    }
}

/* The weights' own scales, last of all. */
static void scale_sums(const q8r_job *job, size_t panels, size_t rows) {
    for (size_t i = 0; i < panels; i++) {
        __m512 scale =
            _mm512_load_ps(job->panel + i * job->panel_bytes + job->lines * PANEL_LINE_BYTES);
        float *sum = job->scratch->sums + i * QUANT_PANEL_ROWS;
        for (size_t row = 0; row < rows; row++, sum += SUM_STRIDE)
            _mm512_store_ps(sum, _mm512_mul_ps(_mm512_load_ps(sum), scale));
    }
}

static void multiply_panels(const q8r_job *job, size_t panel, size_t panels, const amx_rows *rows) {
    float *sums = job->scratch->sums;
    size_t all = rows->tiles * AMX_TILE_ROWS;
    memset(sums, 0, all * SUM_STRIDE * sizeof(float));
    copy_last(job, panels);
    for (size_t tile = 0; tile < rows->tiles; tile++, sums += AMX_TILE_ROWS * SUM_STRIDE) {
        size_t row = amx_rows_begin(rows, tile);
        if (panels == WIDE)
            multiply(WIDE, job, row, rows->height, sums);
        else
            multiply(1, job, row, rows->height, sums);
    }
    scale_sums(job, panels, all);
    amx_finish(job->call, panel, panels, rows, job->scratch->sums, SUM_STRIDE);
}

void amx_linear_q8r(const linear_call *call, size_t first, size_t last, uint8_t *memory) {
    uint64_t bytes = 0;
    if (call->x->rows < AMX_ROWS_MIN_Q8R || call->weight->k <= SHORT_K ||
        !panels_bytes(call->weight->type, call->weight->k, &bytes)) {
        linear_avx512_q8r(call, first, last, memory);
        return;
    }
    q8r_job job = {.call = call,
                   .panel_bytes = (size_t)bytes,
                   .lines = (size_t)bytes / PANEL_LINE_BYTES - 1,
                   .scratch = (q8r_scratch *)(void *)memory};
    for (size_t row = 0; row < call->x->rows; row += BLOCK_ROWS) {
        size_t left = call->x->rows - row;
        amx_rows rows = amx_rows_cut(row, left < BLOCK_ROWS ? left : BLOCK_ROWS);
        tile_configuration configuration = amx_configuration(rows.height, STEP_K, 5);
        tiles_configure(&configuration);
        for (size_t panel = first; panel < last; panel += WIDE) {
            job.panel = call->weight->data + panel * job.panel_bytes;
            multiply_panels(&job, panel, last - panel < WIDE ? 1 : WIDE, &rows);
        }
    }
    tiles_release();
}
