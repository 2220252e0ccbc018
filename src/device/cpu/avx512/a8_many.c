/* Products with A8 of many rows. Panels are unpacked once into the second cache,
 * whatever their type: per 32 k eight lines of unsigned bytes, scales, minima as floats. The rows
 * of a tile are laid beside one another, all that 32 k of them need in one run of lines: the loop
 * then has one address for the weights and one for the rows, no line is fetched twice, and the
 * pipes that multiply see nothing but products.
 *
 *   unpacked, per unit   8 lines; 1 or 2 of scales; as many of minima
 *   packed, per unit     16 rows × 32 numbers; 16 scales; 16 sums (or where sums begin), twice
 *                        that with sub-blocks
 *
 * Of 8/11 of the peak, Q4_1 reaches 95 % (325 GOPS a core at k = 576 and 1536; rows read where they
 * lie and panels unpacked in registers: 302 and 312); the tiles by themselves 99 % (334), also when
 * assembly mixes float work and products of neighbouring rows. Blocks of k that keep a tile's rows
 * in the first cache, and prefetching, also of the panels behind these, brought nothing: the second
 * cache keeps up.
 */
#include "device/cpu/avx512/a8.h"
#include "device/cpu/avx512/transpose.h"

AVX512_INLINE size_t unit_bytes_of(a8_shape shape) {
    return (8 + a8_halves(shape) * (shape.minimum ? 2 : 1)) * PANEL_LINE_BYTES;
}

/* ---- Rows ---- */

/* What goes with 16 units of one row: scales and, for either half, sums or where sums begin. */
AVX512_INLINE void row_extras(const a8_shape shape, int32_t zero, const activation_view *x,
                              size_t row, size_t unit, __m512i out[3]) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const float *scale = x->scale + row * x->scale_stride + unit;
    out[0] = _mm512_load_si512(scale);
    if (!shape.sub_blocks && !shape.zero) {
        out[1] = _mm512_load_si512(x->sum + row * x->scale_stride + unit);
        return;
    }
    const int32_t *sums = x->integer_sum + row * x->sum_stride;
    __m512i low = a8_sums_at(sums, 2 * unit, x->k), high = a8_sums_at(sums, 2 * unit + 16, x->k);
    __m512i first = _mm512_permutex2var_epi32(low, even, high);
    __m512i second = _mm512_permutex2var_epi32(low, odd, high);
    if (!shape.sub_blocks) {
        first = _mm512_add_epi32(first, second);
        out[1] = _mm512_mullo_epi32(first, _mm512_set1_epi32(-zero));
    } else if (shape.zero) {
        out[1] = _mm512_mullo_epi32(first, _mm512_set1_epi32(-zero));
        out[2] = _mm512_mullo_epi32(second, _mm512_set1_epi32(-zero));
    } else {
        __m512 each = _mm512_castsi512_ps(out[0]);
        out[1] = _mm512_castps_si512(_mm512_mul_ps(each, _mm512_cvtepi32_ps(first)));
        out[2] = _mm512_castps_si512(_mm512_mul_ps(each, _mm512_cvtepi32_ps(second)));
    }
}

/* `rows` rows from `row` on, the last one again up to `count`. */
AVX512_INLINE void pack(const a8_shape shape, int32_t zero, const activation_view *x, size_t row,
                        size_t rows, size_t count, uint8_t *out) {
    const size_t step = a8_packed_bytes(shape, count), lines = 1 + a8_halves(shape);
    size_t units = ((size_t)x->k + PANEL_UNIT - 1) / PANEL_UNIT;
    for (size_t unit = 0; unit < units; unit += 16) {
        size_t here = units - unit < 16 ? units - unit : 16;
        uint8_t *at = out + unit * step;
        block16 extra[3];
        for (size_t i = 0; i < count; i++) {
            size_t source = row + tile_row(i, rows);
            const int8_t *number = x->number + source * x->stride + unit * PANEL_UNIT;
            uint8_t *to = at + i * PANEL_UNIT;
            for (size_t j = 0; j < here; j++, to += step)
                _mm256_storeu_si256(
                    (__m256i *)(void *)to,
                    _mm256_load_si256((const __m256i *)(const void *)(number + j * PANEL_UNIT)));
            __m512i extras[3];
            row_extras(shape, zero, x, source, unit, extras);
            for (size_t line = 0; line < lines; line++)
                extra[line][i] = extras[line];
        }
        for (size_t line = 0; line < lines; line++) {
            for (size_t i = count; i < TILE_ROWS_MAX; i++)
                extra[line][i] = _mm512_setzero_si512();
            transpose(extra[line]);
            uint8_t *to = at + count * (PANEL_UNIT + line * sizeof(float));
            for (size_t j = 0; j < here; j++, to += step)
                _mm512_mask_storeu_epi32(to, lanes_left(count), extra[line][j]);
        }
    }
}

/* ---- Tiles ---- */

AVX512_INLINE void tile(const a8_shape shape, const int count, const uint8_t *panel,
                        const uint8_t *packed, size_t units, __m512 *out) {
    const int halves = shape.sub_blocks ? 2 : 1, lines = 8 / halves;
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    for (size_t unit = 0; unit < units; unit++) {
#pragma GCC unroll 2
        for (int half = 0; half < halves; half++) {
            const uint8_t *extra = panel + (8 + half) * PANEL_LINE_BYTES;
            __m512i line[8];
#pragma GCC unroll 8
            for (int i = 0; i < lines; i++)
                line[i] = load_line(panel + (half * lines + i) * PANEL_LINE_BYTES);
            __m512 scale = _mm512_load_ps(extra), minimum = _mm512_setzero_ps();
            if (shape.minimum)
                minimum = _mm512_load_ps(extra + halves * PANEL_LINE_BYTES);
            a8_block(shape, count, TILE_ROWS_MAX, false, line, packed, half, scale, minimum, sum);
        }
        panel += unit_bytes_of(shape);
        packed += a8_packed_bytes(shape, TILE_ROWS_MAX);
    }
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        out[row] = sum[row];
}

AVX512_INLINE void tile_of(const a8_shape shape, int compiled, const uint8_t *panel,
                           const uint8_t *packed, size_t units, __m512 *sum) {
    WITH_COUNT_OF_4(compiled, 10, 12, 14, 16, count, tile(shape, count, panel, packed, units, sum))
}

/* ---- All of it ---- */

typedef struct a8_many_job {
    const a8_many *many;
    const linear_call *call;
    size_t units, panel_bytes, unpacked_bytes;
    uint8_t *packed, *unpacked;
} a8_many_job;

AVX512_INLINE void run_group(const a8_shape shape, const a8_many_job *job, size_t panel,
                             size_t panels) {
    const linear_call *call = job->call;
    for (size_t i = 0; i < panels; i++)
        job->many->unpack(call->weight->data + (panel + i) * job->panel_bytes, job->units,
                          job->unpacked + i * job->unpacked_bytes);
    for (size_t done = 0, here; done < call->x->rows; done += here) {
        here = tile_rows(call->x->rows - done);
        int compiled = tile_compiled(here);
        pack(shape, job->many->zero, call->x, done, here, TILE_ROWS_MAX, job->packed);
        for (size_t i = 0; i < panels; i++) {
            __m512 sum[TILE_ROWS_MAX];
            product_fetch_out(call, panel + i, done, here);
            tile_of(shape, compiled, job->unpacked + i * job->unpacked_bytes, job->packed,
                    job->units, sum);
            product_finish(call, panel + i, done, here, sum);
        }
    }
}

AVX512_INLINE void run(const a8_shape shape, const a8_many *many, const linear_call *call,
                       size_t first, size_t last, uint8_t *scratch) {
    const weight_view *weight = call->weight;
    uint64_t panel_bytes = 0;
    if (!weight_panel_bytes(weight->type, weight->k, &panel_bytes))
        return; /* cannot be: the table has no entry for such a type */
    size_t units = ((size_t)weight->k + PANEL_UNIT - 1) / PANEL_UNIT;
    size_t packed_bytes = units * a8_packed_bytes(shape, TILE_ROWS_MAX);
    a8_many_job job = {.many = many,
                       .call = call,
                       .units = units,
                       .panel_bytes = panel_bytes,
                       .unpacked_bytes = units * unit_bytes_of(shape),
                       .packed = scratch,
                       .unpacked = scratch + packed_bytes};
    size_t fitting = (linear_scratch_bytes(weight->k) - packed_bytes) / job.unpacked_bytes;
    size_t groups = (last - first + fitting - 1) / fitting;
    for (; groups > 0; groups--) {
        size_t panels = (last - first + groups - 1) / groups;
        run_group(shape, &job, first, panels);
        first += panels;
    }
}

void a8_many_run(const a8_many *many, const linear_call *call, size_t first, size_t last,
                 uint8_t *scratch) {
    if (many->sub_blocks && many->minimum)
        run((a8_shape){true, true, false}, many, call, first, last, scratch);
    else if (many->sub_blocks)
        run((a8_shape){true, false, true}, many, call, first, last, scratch);
    else if (many->minimum)
        run((a8_shape){false, true, false}, many, call, first, last, scratch);
    else
        run((a8_shape){false, false, true}, many, call, first, last, scratch);
}

/* ---- Tiles that unpack for themselves ---- */

static void pack_tile(const a8_many *many, const activation_view *x, size_t row, size_t rows,
                      size_t count, uint8_t *out) {
    if (many->sub_blocks && many->minimum)
        pack((a8_shape){true, true, false}, 0, x, row, rows, count, out);
    else if (many->sub_blocks)
        pack((a8_shape){true, false, true}, many->zero, x, row, rows, count, out);
    else if (many->minimum)
        pack((a8_shape){false, true, false}, 0, x, row, rows, count, out);
    else
        pack((a8_shape){false, false, true}, many->zero, x, row, rows, count, out);
}

void a8_tile_run(const a8_many *many, a8_packed_tile tile, const linear_call *call, size_t first,
                 size_t last, uint8_t *scratch) {
    const weight_view *weight = call->weight;
    uint64_t panel_bytes = 0;
    if (!weight_panel_bytes(weight->type, weight->k, &panel_bytes))
        return; /* cannot be: the table has no entry for such a type */
    size_t units = ((size_t)weight->k + PANEL_UNIT - 1) / PANEL_UNIT;
    size_t together = tile_panels(call->x->rows, last - first, panel_bytes);
    for (; first < last; first += together)
        for (size_t row = 0, here; row < call->x->rows; row += here) {
            here = tile_rows(call->x->rows - row);
            int count = tile_exact(here);
            pack_tile(many, call->x, row, here, (size_t)count, scratch);
            for (size_t panel = first; panel < last && panel < first + together; panel++) {
                __m512 sum[TILE_ROWS_MAX];
                product_fetch_out(call, panel, row, here);
                tile(weight->data + panel * panel_bytes, units, scratch, count, sum);
                product_finish(call, panel, row, here, sum);
            }
        }
}
