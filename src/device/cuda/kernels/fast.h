/* The fast arithmetic: products of 16-bit weights on tensor cores. An output is one chain over k in
 * steps of 16, from zero, in ascending order: each step is one instruction that adds up 16 products
 * and what there was. Both kernels here, for few rows and for many, issue the same steps, so that a
 * row's bits depend neither on the other rows nor on how many they are. Layouts: fast_calls.h.
 *
 * fast_few: at most 16 rows. A block for each multiprocessor takes a share of all panels; a warp
 * has a panel's whole chain and copies its weights in bulk into a ring in shared memory, which is
 * full before the kernel in front has ended. Up to eight rows cost as much as one. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FAST_H
#define AVO_DEVICE_CUDA_KERNELS_FAST_H

#include "device/cuda/kernels/calls.h"
#include "device/cuda/kernels/fast_card.h"
#include "device/cuda/kernels/input.h"
#include "device/exact/math.h"

/* ---- 16-bit numbers ---- */

/* f16 ends at ±65504 instead of infinity. */
EXACT_INLINE uint16_t fast_number(float x, bool brain) {
    if (brain)
        return exact_to_brain(x);
    x = x > 65504.0f ? 65504.0f : x;
    x = x < -65504.0f ? -65504.0f : x;
    return exact_to_half(x);
}

/* The usual activation with the card's own exponential and quotient. */
EXACT_INLINE float fast_activation(uint32_t kind, float x) {
#ifdef __CUDA_ARCH__
    if (kind == EXACT_SILU) {
        float e;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
        return __fdividef(x, 1.0f + e);
    }
#endif
    return input_activation(kind, x);
}

/* ---- Where a number of the input lies, in bytes ---- */

EXACT_INLINE uint64_t fast_few_place(uint32_t rows, uint32_t row, uint32_t k) {
    /* a lane's eight numbers: of two steps the pairs 2t, 2t + 1 and 2t + 8, 2t + 9 */
    uint32_t t = k / 2 % 4, pair = k / 16 % 2 * 2 + k / 8 % 2;
    return ((uint64_t)(k / 32) * rows + row) * 64 + t * 16 + pair * 4 + k % 2 * 2;
}

EXACT_INLINE uint64_t fast_many_place(uint32_t groups, uint32_t row, uint32_t k) {
    return ((uint64_t)(k / 64) * groups + row / 8) * 1024 + k / 8 % 8 * 128 + row % 8 * 16 +
           k % 8 * 2;
}

EXACT_INLINE uint64_t fast_place(bool many, uint32_t rows, uint32_t row, uint32_t k) {
    return many ? fast_many_place((rows + 7) / 8, row, k) : fast_few_place(rows, row, k);
}

/* ---- Weights on their way in ---- */

EXACT_INLINE void fast_pack_panel(const fast_pack_call *call, const kernel_place *at) {
    const uint8_t *from = call->from + at->x * call->panel_bytes;
    uint32_t panel = call->first + at->x, pairs = call->slabs * (FAST_SLAB / 2);
    for (uint32_t i = at->thread; i < pairs * FAST_PANEL; i += at->threads) {
        uint32_t output = i % FAST_PANEL, k = i / FAST_PANEL * 2;
        uint32_t line = output, to_panel = panel, word = 0;
        if (call->paired) {
            to_panel = 2 * panel + output / 8;
            line = output % 8 * 2 + call->half;
        }
        if (k < call->k)
            word = exact_load_word(from + (uint64_t)(k / 2) * EXACT_LINE + 4 * output);
        if (k + 1 == call->k)
            word &= 0xffffu;
        *(uint32_t *)(void *)(call->to +
                              ((uint64_t)to_panel * call->slabs + k / FAST_SLAB) * FAST_SLAB_BYTES +
                              line / 8 * 1024 + k / 8 % 8 * 128 + line % 8 * 16 + k % 8 * 2) = word;
    }
}

EXACT_INLINE void kernel_fast_pack(const fast_pack_call *call, kernel_place *at) {
    CUDA_EACH(at, fast_pack_panel(call, at));
}

/* ---- Inputs ---- */

EXACT_INLINE float fast_norm_pair(float s, bool squares, float mean, float low, float high) {
    low -= mean;
    high -= mean;
    s = squares ? fmaf(low, low, s) : s + low;
    return squares ? fmaf(high, high, s) : s + high;
}

/* The sum of a warp's lanes. */
EXACT_INLINE void fast_norm_join(const kernel_place *at, float *sum, float *sums) {
    float other[OWN_LANES];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t mask = WARP / 2; mask > 0; mask /= 2) {
        exchange_floats(sum, mask, other);
        EACH_LANE(at, own) {
            sum[own] += other[own];
        }
    }
    EACH_LANE(at, own) if (lane == 0) sums[warp_of(at)] = sum[own];
}

/* Sums of eight warps, `sums` has one for each, of numbers and then of squares: a lane adds up
 * every 256th pair. */
EXACT_INLINE void fast_norm_sums(const fast_prepare_call *call, const kernel_place *at,
                                 const float *x, bool squares, float mean, float *sums) {
    float sum[OWN_LANES];
    EACH_LANE(at, own) {
        float s = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll 4
#endif
        for (uint32_t k = 2 * (warp_of(at) * WARP + lane); k < call->k; k += 2 * FAST_THREADS)
            s = fast_norm_pair(s, squares, mean, load_fresh(x + k),
                               k + 1 < call->k ? load_fresh(x + k + 1) : mean);
        sum[own] = s;
    }
    fast_norm_join(at, sum, sums + (squares ? FAST_WARPS : 0));
}

EXACT_INLINE float fast_norm_sum(const float *warps) {
    float sum = warps[0];
    for (uint32_t i = 1; i < FAST_WARPS; i++)
        sum += warps[i];
    return sum;
}

EXACT_INLINE float fast_norm_mean(const fast_prepare_call *call, const float *sums) {
    return call->norm.kind == CALL_NORM_LAYER ? fast_norm_sum(sums) / (float)call->k : 0.0f;
}

EXACT_INLINE float fast_norm_scale(const fast_prepare_call *call, const float *sums) {
    if (call->norm.kind == CALL_NORM_NONE)
        return 0.0f;
    return 1.0f / sqrtf(fast_norm_sum(sums + FAST_WARPS) / (float)call->k + call->norm.epsilon);
}

EXACT_INLINE float fast_input_number(const fast_prepare_call *call, uint32_t row, const float *x,
                                     const float *gate, uint32_t i, float mean, float scale) {
    if (i >= call->k)
        return 0.0f;
    float y = load_fresh(x + i);
    if (call->norm.kind != CALL_NORM_NONE)
        y = norm_apply(&call->norm, row, i, y, mean, scale);
    if (call->activated)
        y = gate != NULL ? fast_activation(call->activation, load_fresh(gate + i)) * y
                         : fast_activation(call->activation, y);
    return y;
}

EXACT_INLINE const float *fast_input_row(const fast_prepare_call *call, const float *x,
                                         uint32_t row) {
    return x + (call->index != NULL ? call->index[row] : row) * call->stride;
}

/* Of a thread of 256: its pairs of the row. */
EXACT_INLINE void fast_input_put(const fast_prepare_call *call, uint32_t thread, uint32_t row,
                                 const float *sums, uint8_t *out) {
    const float *x = fast_input_row(call, call->x, row);
    const float *gate = call->gate != NULL ? fast_input_row(call, call->gate, row) : NULL;
    float mean = fast_norm_mean(call, sums), scale = fast_norm_scale(call, sums);
    for (uint32_t k = 2 * thread; k < call->slabs * FAST_SLAB; k += 2 * FAST_THREADS) {
        float low = fast_input_number(call, row, x, gate, k, mean, scale);
        float high = fast_input_number(call, row, x, gate, k + 1, mean, scale);
        *(uint32_t *)(void *)(out + fast_place(call->many, call->rows, row, k)) =
            fast_number(low, call->brain) | (uint32_t)fast_number(high, call->brain) << 16;
    }
}

EXACT_INLINE void kernel_fast_prepare(const fast_prepare_call *call, kernel_place *at) {
    place_let_next();
    place_wait();
    const float *x = fast_input_row(call, call->x, at->x);
    if (call->norm.kind == CALL_NORM_LAYER)
        CUDA_WARPS(at, fast_norm_sums(call, at, x, false, 0.0f, at->shared));
    if (call->norm.kind != CALL_NORM_NONE)
        CUDA_WARPS(at,
                   fast_norm_sums(call, at, x, true, fast_norm_mean(call, at->shared), at->shared));
    CUDA_EACH(at, fast_input_put(call, at->thread, at->x, at->shared, call->out));
}

/* ---- Outputs ---- */

EXACT_INLINE void fast_give(const fast_output *to, uint32_t row, uint32_t output, float y) {
    if (to->out == NULL)
        return;
    float *out = to->out + (uint64_t)row * to->stride + output;
    *out = to->add ? fmaf(y, to->add_scale, load_fresh(out)) : y;
}

EXACT_INLINE float fast_biased(const fast_output *to, uint32_t output, float y) {
    return to->bias != NULL ? y + to->bias[output] : y;
}

/* One of a matrix that is not paired. */
EXACT_INLINE void fast_one(const fast_call *call, uint32_t matrix, uint32_t output, uint32_t row,
                           float y) {
    const fast_matrix *one = &call->one[matrix];
    if (output < one->outputs && row < call->rows)
        fast_give(&one->to, row, output, fast_biased(&one->to, output, y));
}

/* Of up and gate; as the next product's input: 0 where it has none. */
EXACT_INLINE uint16_t fast_pair(const fast_call *call, uint32_t output, uint32_t row, float up,
                                float gate) {
    const fast_matrix *one = &call->one[0];
    if (output >= one->outputs)
        return 0;
    up = fast_biased(&one->to, output, up);
    gate = fast_biased(&call->gate, output, gate);
    if (call->activated)
        up = fast_activation(call->activation, gate) * up;
    fast_give(&one->to, row, output, up);
    fast_give(&call->gate, row, output, gate);
    return call->next == NULL ? 0 : fast_number(up, call->brain);
}

/* Lines `line` (even) and the next one of a panel. */
EXACT_INLINE void fast_store(const fast_call *call, uint32_t matrix, uint32_t panel, uint32_t line,
                             uint32_t row, float first, float second) {
    if (!call->paired) {
        fast_one(call, matrix, panel * FAST_PANEL + line, row, first);
        fast_one(call, matrix, panel * FAST_PANEL + line + 1, row, second);
    } else if (row < call->rows) {
        uint32_t output = panel * 8 + line / 2;
        uint16_t number = fast_pair(call, output, row, first, second);
        if (call->next != NULL && output < call->one[0].outputs)
            *(uint16_t *)(void *)(call->next +
                                  fast_place(call->next_many, call->rows, row, output)) = number;
    }
}

/* Which matrix, and the panel in it. */
EXACT_INLINE uint32_t fast_matrix_of(const fast_call *call, uint32_t *panel) {
    uint32_t i = 0;
    while (i + 1 < call->matrices && *panel >= call->one[i].panels)
        *panel -= call->one[i++].panels;
    return i;
}

/* ---- Few rows ---- */

typedef struct fast_few_part {
    uint32_t first, end; /* panels of the block */
} fast_few_part;

EXACT_INLINE void fast_few_open(const fast_call *call, const kernel_place *at,
                                fast_few_part *part) {
    part->first = (uint32_t)((uint64_t)call->panels * at->x / at->blocks);
    part->end = (uint32_t)((uint64_t)call->panels * (at->x + 1) / at->blocks);
}

/* Shared memory: barriers (a ring's stages that are full, that are empty, the input's), sums of a
 * norm, the input, rings. */
#ifndef __CUDACC__
#define FAST_BOTH static inline
#else
#define FAST_BOTH static __host__ __device__ __forceinline__
#endif
FAST_BOTH uint32_t fast_few_x(const fast_call *call) {
    return (FAST_RINGS * 2 * call->depth * 8 + 16 + 2 * FAST_WARPS * 4 + 127) / 128 * 128;
}
FAST_BOTH uint32_t fast_few_rings(const fast_call *call) {
    return fast_few_x(call) + (call->slabs * FAST_SLAB * 2 * call->rows + 127) / 128 * 128;
}

#ifdef CARD_BULK

/* Where a warp is in its panels. */
typedef struct fast_walk {
    uint32_t panel, slab, stage, parity;
} fast_walk;

EXACT_INLINE void fast_next(const fast_call *call, fast_walk *walk) {
    walk->slab += FAST_PIECE;
    if (walk->slab >= call->slabs) {
        walk->slab = 0;
        walk->panel += call->workers;
    }
    if (++walk->stage == call->depth) {
        walk->stage = 0;
        walk->parity ^= 1;
    }
}

EXACT_INLINE uint32_t fast_piece(const fast_call *call, const fast_walk *walk) {
    uint32_t left = call->slabs - walk->slab;
    return left < FAST_PIECE ? left : FAST_PIECE;
}

/* By one lane: the next piece of the warp's ring. */
EXACT_INLINE void fast_fetch(const fast_call *call, const fast_few_part *part, fast_walk *walk,
                             uint32_t ring, uint64_t *full) {
    if (walk->panel >= part->end)
        return;
    uint32_t inside = walk->panel, matrix = fast_matrix_of(call, &inside);
    uint32_t bytes = fast_piece(call, walk) * FAST_SLAB_BYTES;
    const uint8_t *from =
        call->one[matrix].data + ((uint64_t)inside * call->slabs + walk->slab) * FAST_SLAB_BYTES;
    bar_expect(&full[walk->stage], bytes);
    bulk_copy_to(ring + walk->stage * FAST_PIECE * FAST_SLAB_BYTES, from, bytes,
                 &full[walk->stage]);
    fast_next(call, walk);
}

/* The steps of `slabs` slabs: 16 outputs, eight rows or 16. `from` and `x` are the lane's. */
template <uint32_t tiles, bool brain, uint32_t slabs>
EXACT_INLINE void fast_steps(const fast_call *call, uint32_t from, const uint8_t *x, uint32_t row,
                             float (*d)[4]) {
    uint32_t a[slabs * 4][4];
    uint4 b[tiles][slabs * 2];
#pragma unroll
    for (uint32_t i = 0; i < slabs * 4; i++)
        matrix_load(from + i / 4 * FAST_SLAB_BYTES + i % 4 * 256, a[i]);
#pragma unroll
    for (uint32_t tile = 0; tile < tiles; tile++)
#pragma unroll
        for (uint32_t i = 0; i < slabs * 2; i++) {
            b[tile][i] = make_uint4(0, 0, 0, 0);
            if (tile * 8 + row < call->rows)
                b[tile][i] = *(const uint4 *)(const void *)(x + (i * call->rows + tile * 8) * 64);
        }
#pragma unroll
    for (uint32_t i = 0; i < slabs * 4; i++)
#pragma unroll
        for (uint32_t tile = 0; tile < tiles; tile++) {
            const uint4 *own = &b[tile][i / 2];
            matrix_multiply<brain>(d[tile], a[i], i % 2 == 0 ? own->x : own->z,
                                   i % 2 == 0 ? own->y : own->w);
        }
}

/* Lines 2j and 2j + 1 of a panel are in lanes 4 apart: one of them stores the first eight lines'
 * two, the other one those of the second eight. */
EXACT_INLINE void fast_few_store(const fast_call *call, uint32_t panel, uint32_t row0,
                                 uint32_t lane, float d0, float d1, float d2, float d3) {
    uint32_t inside = panel, matrix = fast_matrix_of(call, &inside), odd = lane / 4 % 2;
    uint32_t line = lane / 4 - odd + 8 * odd, row = row0 + lane % 4 * 2;
    /* what the other lane stores goes there */
    float give0 = odd ? d0 : d2, give1 = odd ? d1 : d3;
    float take0 = __shfl_xor_sync(0xffffffffu, give0, 4);
    float take1 = __shfl_xor_sync(0xffffffffu, give1, 4);
#pragma unroll 1
    for (uint32_t i = 0; i < 2 && row + i < call->rows; i++) {
        float own = odd ? (i == 0 ? d2 : d3) : i == 0 ? d0 : d1, other = i == 0 ? take0 : take1;
        fast_store(call, matrix, inside, line, row + i, odd ? other : own, odd ? own : other);
    }
}

/* What fast_prepare makes, with the same sums: a thread keeps its pairs. The norm's weights come
 * before the kernel in front has ended. */
typedef struct fast_maker {
    float2 weight[FAST_MAKES_K / 2 / FAST_THREADS];
} fast_maker;

EXACT_INLINE void fast_make_early(const fast_call *call, const kernel_place *at,
                                  fast_maker *maker) {
    const fast_prepare_call *make = &call->make;
#pragma unroll
    for (uint32_t i = 0; i < FAST_MAKES_K / 2 / FAST_THREADS; i++) {
        uint32_t k = 2 * (at->thread + i * FAST_THREADS);
        maker->weight[i] = make_float2(0.0f, 0.0f);
        if (make->norm.kind != CALL_NORM_NONE && k < make->k)
            maker->weight[i] = *(const float2 *)(const void *)(make->norm.weight + k);
    }
}

EXACT_INLINE void fast_make(const fast_call *call, const kernel_place *at, const fast_maker *maker,
                            float *sums, uint8_t *out) {
    const fast_prepare_call *make = &call->make;
    const uint32_t count = FAST_MAKES_K / 2 / FAST_THREADS;
    for (uint32_t row = 0; row < call->rows; row++) {
        const float *x = fast_input_row(make, make->x, row);
        float2 y[count];
        float sum;
#pragma unroll
        for (uint32_t i = 0; i < count; i++) {
            uint32_t k = 2 * (at->thread + i * FAST_THREADS);
            y[i] = make_float2(0.0f, 0.0f);
            if (k < make->k)
                y[i] = __ldcg((const float2 *)(const void *)(x + k));
        }
        for (uint32_t pass = make->norm.kind == CALL_NORM_LAYER ? 0 : 1;
             make->norm.kind != CALL_NORM_NONE && pass < 2; pass++) {
            float mean = pass == 1 ? fast_norm_mean(make, sums) : 0.0f;
            sum = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < count; i++)
                if (2 * (at->thread + i * FAST_THREADS) < make->k)
                    sum = fast_norm_pair(sum, pass == 1, mean, y[i].x, y[i].y);
            fast_norm_join(at, &sum, sums + pass * FAST_WARPS);
            __syncthreads();
        }
        float mean = fast_norm_mean(make, sums), scale = fast_norm_scale(make, sums);
        const float *bias = make->norm.bias;
#pragma unroll
        for (uint32_t i = 0; i < count; i++) {
            uint32_t k = 2 * (at->thread + i * FAST_THREADS);
            if (k >= call->slabs * FAST_SLAB)
                continue;
            if (make->norm.kind != CALL_NORM_NONE && k < make->k) {
                y[i].x = (y[i].x - mean) * scale * maker->weight[i].x;
                y[i].y = (y[i].y - mean) * scale * maker->weight[i].y;
                if (bias != NULL)
                    y[i] = make_float2(y[i].x + bias[k], y[i].y + bias[k + 1]);
            }
            *(uint32_t *)(void *)(out + fast_few_place(call->rows, row, k)) =
                fast_number(y[i].x, call->brain) | (uint32_t)fast_number(y[i].y, call->brain) << 16;
        }
        __syncthreads(); /* sums are read */
    }
}

/* A warp's panels; `ahead` is what its ring gets next. */
template <uint32_t tiles, bool brain>
EXACT_INLINE void fast_few_warp(const fast_call *call, const kernel_place *at,
                                const fast_few_part *part, fast_walk *ahead, uint32_t ring,
                                uint64_t *full) {
    uint32_t warp = at->thread / 32, lane = at->thread % 32, row = lane / 4;
    const uint8_t *x = (uint8_t *)(void *)at->shared + fast_few_x(call) + row * 64 + lane % 4 * 16;
    /* matrix of the lane's address: lines 8 (i % 2), k 8 (i / 2) */
    uint32_t from0 = ring + lane / 8 % 2 * 1024 + lane / 16 * 128 + lane % 8 * 16;
    float d[tiles][4];
    for (fast_walk own = {part->first + warp, 0, 0, 0}; own.panel < part->end;) {
        if (own.slab == 0)
#pragma unroll
            for (uint32_t i = 0; i < tiles; i++)
                d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0.0f;
        uint32_t from = from0 + own.stage * FAST_PIECE * FAST_SLAB_BYTES;
        const uint8_t *own_x = x + (uint64_t)own.slab * 2 * call->rows * 64;
        bar_wait(&full[own.stage], own.parity);
        if (fast_piece(call, &own) == FAST_PIECE)
            fast_steps<tiles, brain, FAST_PIECE>(call, from, own_x, row, d);
        else
            fast_steps<tiles, brain, 1>(call, from, own_x, row, d);
        __syncwarp(); /* the piece was read */
        if (lane == 0)
            fast_fetch(call, part, ahead, ring, full);
        if (own.slab + FAST_PIECE >= call->slabs)
#pragma unroll
            for (uint32_t i = 0; i < tiles; i++)
                fast_few_store(call, own.panel, i * 8, lane, d[i][0], d[i][1], d[i][2], d[i][3]);
        fast_next(call, &own);
    }
}

template <uint32_t tiles, bool brain>
static __device__ __forceinline__ void fast_few_block(const fast_call *call,
                                                      const kernel_place *at) {
    fast_few_part part;
    fast_few_open(call, at, &part);
    uint32_t warp = at->thread / 32, lane = at->thread % 32;
    uint64_t *bars = (uint64_t *)(void *)at->shared, *full = bars + warp * call->depth;
    uint64_t *input_bar = bars + FAST_RINGS * 2 * call->depth;
    uint8_t *x = (uint8_t *)(void *)at->shared + fast_few_x(call);
    uint32_t ring = card_shared((uint8_t *)(void *)at->shared + fast_few_rings(call)) +
                    warp * call->depth * FAST_PIECE * FAST_SLAB_BYTES;
    bool works = warp < call->workers && part.first + warp < part.end;
    fast_walk ahead = {part.first + warp, 0, 0, 0};
    if (lane == 0) {
        for (uint32_t i = 0; i < call->depth && works; i++)
            bar_open(&full[i], 1);
        if (warp == 0)
            bar_open(input_bar, 1);
        bars_ready();
        for (uint32_t i = 0; i < call->depth && works; i++)
            fast_fetch(call, &part, &ahead, ring, full);
    }
    place_let_next();
    __syncthreads();
    if (call->x == NULL) {
        fast_maker maker;
        fast_make_early(call, at, &maker);
        place_wait();
        fast_make(call, at, &maker, (float *)(void *)(input_bar + 2), x);
    } else {
        place_wait();
        if (at->thread == 0) {
            uint32_t bytes = call->slabs * FAST_SLAB * 2 * call->rows;
            bar_expect(input_bar, bytes);
            for (uint32_t done = 0; done < bytes; done += 16384)
                bulk_copy(x + done, call->x + done, bytes - done < 16384 ? bytes - done : 16384,
                          input_bar);
        }
    }
    if (!works)
        return;
    if (call->x != NULL)
        bar_wait(input_bar, 0);
    fast_few_warp<tiles, brain>(call, at, &part, &ahead, ring, full);
}

EXACT_INLINE void kernel_fast_few(const fast_call *call, kernel_place *at) {
    if (call->brain)
        fast_few_block<1, true>(call, at);
    else
        fast_few_block<1, false>(call, at);
}

/* Nine to sixteen rows: more registers. */
EXACT_INLINE void kernel_fast_few16(const fast_call *call, kernel_place *at) {
    if (call->brain)
        fast_few_block<2, true>(call, at);
    else
        fast_few_block<2, false>(call, at);
}

#elif defined(__CUDA_ARCH__)

/* Cards before compute capability 9.0: the same steps, operands straight from memory. */
template <bool brain>
static __device__ void fast_few_plain(const fast_call *call, const kernel_place *at) {
    fast_few_part part;
    fast_few_open(call, at, &part);
    uint32_t warp = at->thread / 32, lane = at->thread % 32, half = warp % 2, row = lane / 4;
    for (uint32_t panel = part.first + warp / 2; panel < part.end && warp < FAST_WARPS;
         panel += FAST_WARPS / 2) {
        uint32_t inside = panel, matrix = fast_matrix_of(call, &inside);
        const uint8_t *from = call->one[matrix].data +
                              (uint64_t)inside * call->slabs * FAST_SLAB_BYTES + half * 1024 +
                              lane * 4;
        const uint8_t *x = call->x + (uint64_t)row * 64 + lane % 4 * 16;
        float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
        for (uint32_t step = 0; step < call->slabs * 4; step++) {
            const uint8_t *own = from + (uint64_t)(step / 4) * FAST_SLAB_BYTES + step % 4 * 256;
            const uint8_t *own_x = x + (uint64_t)(step / 2) * call->rows * 64 + step % 2 * 8;
            uint2 low = make_uint2(0, 0), high = low;
            if (row < call->rows)
                low = *(const uint2 *)own_x;
            if (row + 8 < call->rows)
                high = *(const uint2 *)(own_x + 8 * 64);
            uint32_t a[4] = {low.x, high.x, low.y, high.y};
            matrix_multiply<brain>(d, a, exact_load_word(own), exact_load_word(own + 128));
        }
        fast_store(call, matrix, inside, half * 8 + lane % 4 * 2, row, d[0], d[1]);
        fast_store(call, matrix, inside, half * 8 + lane % 4 * 2, row + 8, d[2], d[3]);
    }
}

EXACT_INLINE void kernel_fast_few(const fast_call *call, kernel_place *at) {
    place_wait();
    if (call->brain)
        fast_few_plain<true>(call, at);
    else
        fast_few_plain<false>(call, at);
}

EXACT_INLINE void kernel_fast_few16(const fast_call *call, kernel_place *at) {
    kernel_fast_few(call, at);
}

#elif !defined(__CUDACC__)

/* A step on the processor: products and sums are exact, or nearly, in double precision, and rounded
 * once. A card's tensor core rounds in another way, so that bits differ; their order does not. */
static inline float fast_step(bool brain, const uint8_t *a, const uint8_t *b, uint32_t b_second,
                              float d) {
    double sum = d;
    for (uint32_t i = 0; i < 16; i++) {
        uint16_t w = exact_load_half(a + i / 8 * 128 + i % 8 * 2);
        uint16_t x = exact_load_half(b + i / 8 * b_second + i % 8 * 2);
        sum += brain ? (double)exact_from_brain(w) * exact_from_brain(x)
                     : (double)exact_from_half(w) * exact_from_half(x);
    }
    return (float)sum;
}

/* The chain of output `inside` of 16, and of a row whose k is in order; in steps of 16. */
static inline float fast_chain(const fast_call *call, uint32_t matrix, uint32_t panel,
                               uint32_t inside, uint32_t row, bool many) {
    const uint8_t *data = call->one[matrix].data + (uint64_t)panel * call->slabs * FAST_SLAB_BYTES +
                          inside / 8 * 1024 + inside % 8 * 16;
    float d = 0.0f;
    for (uint32_t step = 0; step < call->slabs * 4; step++) {
        const uint8_t *a = data + (uint64_t)(step / 4) * FAST_SLAB_BYTES + step % 4 * 256;
        uint16_t x[16];
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t k = step * 16 + i;
            x[i] = exact_load_half(call->x + (many ? fast_many_place(call->groups, row, k)
                                                   : fast_few_place(call->rows, row, k)));
        }
        d = fast_step(call->brain, a, (const uint8_t *)x, 16, d);
    }
    return d;
}

static inline void fast_panel(const fast_call *call, uint32_t matrix, uint32_t panel,
                              uint32_t first, uint32_t rows, bool many) {
    for (uint32_t row = first; row < first + rows && row < call->rows; row++)
        for (uint32_t i = 0; i < FAST_PANEL; i += 2)
            fast_store(call, matrix, panel, i, row, fast_chain(call, matrix, panel, i, row, many),
                       fast_chain(call, matrix, panel, i + 1, row, many));
}

/* As the card's kernel makes it. */
static inline void fast_make(const fast_call *call, kernel_place *at, uint8_t *out) {
    const fast_prepare_call *make = &call->make;
    float *sums = at->shared;
    at->threads = FAST_THREADS;
    for (uint32_t row = 0; row < call->rows; row++) {
        const float *x = fast_input_row(make, make->x, row);
        if (make->norm.kind == CALL_NORM_LAYER)
            CUDA_WARPS(at, fast_norm_sums(make, at, x, false, 0.0f, sums));
        if (make->norm.kind != CALL_NORM_NONE)
            CUDA_WARPS(at, fast_norm_sums(make, at, x, true, fast_norm_mean(make, sums), sums));
        CUDA_EACH(at, fast_input_put(make, at->thread, row, sums, out));
    }
}

EXACT_INLINE void kernel_fast_few(const fast_call *given, kernel_place *at) {
    fast_few_part part;
    fast_call own = *given;
    const fast_call *call = &own;
    if (own.x == NULL) {
        own.x = (uint8_t *)(void *)at->shared + fast_few_x(given);
        fast_make(given, at, (uint8_t *)(void *)at->shared + fast_few_x(given));
    }
    fast_few_open(call, at, &part);
    for (uint32_t panel = part.first; panel < part.end; panel++) {
        uint32_t inside = panel, matrix = fast_matrix_of(call, &inside);
        fast_panel(call, matrix, inside, 0, call->rows, false);
    }
}

EXACT_INLINE void kernel_fast_few16(const fast_call *call, kernel_place *at) {
    kernel_fast_few(call, at);
}
#endif
#endif
