/* Behind the products: the highest logits and the sums of exponentials, and what adapters do to
 * single outputs. */
#ifndef AVO_DEVICE_CUDA_KERNELS_HEAD_H
#define AVO_DEVICE_CUDA_KERNELS_HEAD_H

#include "device/cuda/kernels/calls.h"
#include "device/cuda/kernels/place.h"
#include "device/exact/math.h"

/* ---- Chunks of 512 logits: block (chunk, row) ---- */

EXACT_INLINE uint32_t chunk_count_of(const head_call *call, uint32_t chunk) {
    uint32_t left = call->vocabulary - chunk * HEAD_CHUNK_K;
    return left < HEAD_CHUNK_K ? left : HEAD_CHUNK_K;
}

EXACT_INLINE void chunk_load(const head_call *call, const kernel_place *at, float *logits,
                             float *highest) {
    float *from = call->logits + (uint64_t)at->y * call->vocabulary + at->x * HEAD_CHUNK_K;
    uint32_t count = chunk_count_of(call, at->x);
    float most = -INFINITY;
    for (uint32_t i = at->thread; i < count; i += at->threads) {
        float logit = from[i];
        if (call->finish) {
            logit = logit * call->scale;
            logit = call->cap > 0.0f ? call->cap * fused_tanh(logit / call->cap) : logit;
            from[i] = logit;
        }
        logits[i] = logit;
        most = logit > most ? logit : most;
        if (call->target != NULL && (uint32_t)call->target[at->y] == at->x * HEAD_CHUNK_K + i)
            call->out[at->y].target = logit;
    }
    highest[at->thread] = most;
}

/* By one thread. */
EXACT_INLINE void chunk_highest(const kernel_place *at, const float *highest, float *out) {
    float most = -INFINITY;
    for (uint32_t i = 0; i < at->threads; i++)
        most = highest[i] > most ? highest[i] : most;
    *out = most;
}

EXACT_INLINE void chunk_powers(const head_call *call, const kernel_place *at, const float *logits,
                               float highest, float *powers) {
    uint32_t count = chunk_count_of(call, at->x);
    float offset = highest == -INFINITY ? 0.0f : highest;
    for (uint32_t i = at->thread; i < count; i += at->threads)
        powers[i] = fused_exp(logits[i] - offset);
}

/* Of 16 threads. */
EXACT_INLINE void chunk_lanes(const head_call *call, const kernel_place *at, const float *powers,
                              float *lanes) {
    float sum = 0.0f;
    for (uint32_t i = at->thread; i < chunk_count_of(call, at->x); i += 16)
        sum += powers[i];
    lanes[at->thread] = sum;
}

/* Each logit finds its place among the chunk's. */
EXACT_INLINE void chunk_rank(const head_call *call, const kernel_place *at, const float *logits,
                             float highest, const float *lanes, uint32_t *found) {
    uint32_t count = chunk_count_of(call, at->x);
    uint64_t place = (uint64_t)at->y * call->chunks + at->x;
    if (at->thread == 0) {
        call->sums[place].highest = highest;
        call->sums[place].sum = exact_sum16(lanes);
    }
    for (uint32_t i = at->thread; i < count; i += at->threads) {
        float own = logits[i];
        uint32_t rank = own == own ? 0 : call->top;
        for (uint32_t j = 0; j < count && rank < call->top; j++)
            rank += logits[j] > own || (logits[j] == own && j < i);
        found[i] = rank;
        if (rank >= call->top)
            continue;
        call->chunk_logit[place * call->top + rank] = own;
        call->chunk_token[place * call->top + rank] = (int32_t)(at->x * HEAD_CHUNK_K + i);
    }
}

/* By one thread. */
EXACT_INLINE void chunk_found(const head_call *call, const kernel_place *at,
                              const uint32_t *found) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < chunk_count_of(call, at->x); i++)
        count += found[i] < call->top;
    call->chunk_count[(uint64_t)at->y * call->chunks + at->x] = count;
}

EXACT_INLINE void kernel_head_chunk(const head_call *call, kernel_place *at) {
    float *logits = at->shared, *powers = logits + HEAD_CHUNK_K;
    float *highest = powers + HEAD_CHUNK_K, *lanes = highest + HEAD_THREADS;
    CUDA_EACH(at, chunk_load(call, at, logits, highest));
    if (call->top == 0)
        return;
    CUDA_EACH(at, if (at->thread == 0) chunk_highest(at, highest, lanes + 16));
    CUDA_EACH(at, chunk_powers(call, at, logits, lanes[16], powers));
    CUDA_EACH(at, if (at->thread < 16) chunk_lanes(call, at, powers, lanes));
    CUDA_EACH(at, chunk_rank(call, at, logits, lanes[16], lanes, (uint32_t *)(void *)powers));
    CUDA_EACH(at, if (at->thread == 0) chunk_found(call, at, (const uint32_t *)(void *)powers));
}

/* ---- One list of the chunks' lists: block = row ---- */

/* Shared: of each thread the best that it has, and its chunk; how much of each chunk is taken. */
EXACT_INLINE bool top_before(float logit, int32_t token, float other, int32_t other_token) {
    return logit > other || (logit == other && token < other_token);
}

EXACT_INLINE void merge_offer(const head_call *call, const kernel_place *at, float *logit,
                              int32_t *token, const uint8_t *taken) {
    float best = 0.0f;
    int32_t best_token = -1;
    for (uint32_t chunk = at->thread; chunk < call->chunks; chunk += at->threads) {
        uint64_t place = (uint64_t)at->x * call->chunks + chunk;
        if (taken[chunk] >= call->chunk_count[place])
            continue;
        float own = call->chunk_logit[place * call->top + taken[chunk]];
        int32_t own_token = call->chunk_token[place * call->top + taken[chunk]];
        if (best_token < 0 || top_before(own, own_token, best, best_token)) {
            best = own;
            best_token = own_token;
        }
    }
    logit[at->thread] = best;
    token[at->thread] = best_token;
}

EXACT_INLINE void merge_half(const kernel_place *at, uint32_t half, float *logit, int32_t *token) {
    uint32_t other = at->thread + half;
    if (at->thread >= half || token[other] < 0)
        return;
    if (token[at->thread] < 0 ||
        top_before(logit[other], token[other], logit[at->thread], token[at->thread])) {
        logit[at->thread] = logit[other];
        token[at->thread] = token[other];
    }
}

EXACT_INLINE void merge_take(const head_call *call, const kernel_place *at, const float *logit,
                             const int32_t *token, uint8_t *taken) {
    head_top *out = &call->out[at->x];
    if (token[0] < 0)
        return;
    out->logit[out->count] = logit[0];
    out->token[out->count++] = token[0];
    taken[(uint32_t)token[0] / HEAD_CHUNK_K]++;
}

EXACT_INLINE void kernel_head_merge(const head_call *call, kernel_place *at) {
    float *logit = at->shared;
    int32_t *token = (int32_t *)(void *)(logit + HEAD_THREADS);
    uint8_t *taken = (uint8_t *)(void *)(token + HEAD_THREADS);
    CUDA_EACH(at, for (uint32_t i = at->thread; i < call->chunks; i += at->threads) taken[i] = 0;
              if (at->thread == 0) call->out[at->x].count = 0);
    for (uint32_t i = 0; i < call->top; i++) {
        CUDA_EACH(at, merge_offer(call, at, logit, token, taken));
        for (uint32_t half = HEAD_THREADS / 2; half > 0; half /= 2)
            CUDA_EACH(at, merge_half(at, half, logit, token));
        CUDA_EACH(at, if (at->thread == 0) merge_take(call, at, logit, token, taken));
    }
}

/* ---- Adapters ---- */

EXACT_INLINE void gain_output(const gain_call *call, const kernel_place *at) {
    const row_gains *own = &call->rows[at->y];
    uint32_t i = at->x * at->threads + at->thread;
    if (i >= call->count)
        return;
    uint64_t place = at->y * call->stride + i;
    float y = call->y[place], total = 1.0f;
    for (uint32_t a = 0; a < own->count; a++)
        total += own->factor[a] * (own->gain[a][i] - 1.0f);
    if (own->count > 0)
        y *= total;
    if (call->join != NULL)
        call->join[place] = fmaf(y, call->add_scale, call->join[place]);
    else
        call->y[place] = y;
}

EXACT_INLINE void kernel_gain(const gain_call *call, kernel_place *at) {
    CUDA_EACH(at, gain_output(call, at));
}

EXACT_INLINE void offset_output(const offset_call *call, const kernel_place *at) {
    uint32_t i = at->x * at->threads + at->thread;
    if (i < call->count)
        call->out[at->y * call->stride + i] += call->factor[at->y] * call->offset[i];
}

EXACT_INLINE void kernel_offset(const offset_call *call, kernel_place *at) {
    CUDA_EACH(at, offset_output(call, at));
}

/* ---- Measuring ---- */

EXACT_INLINE void read_words(const read_call *call, const kernel_place *at) {
    uint32_t sum = 0;
    uint64_t first = (uint64_t)at->x * at->threads + at->thread,
             step = (uint64_t)READ_BLOCKS * at->threads;
#ifdef __CUDA_ARCH__
    const uint4 *from = (const uint4 *)call->from;
#pragma unroll 8
    for (uint64_t i = first; i < call->groups; i += step) {
        uint4 four = __ldcs(from + i);
        sum += four.x ^ four.y ^ four.z ^ four.w;
    }
#else
    for (uint64_t i = first; i < call->groups; i += step)
        sum += call->from[4 * i];
#endif
    if (sum == 0x9e3779b9u)
        *call->sum = sum;
}

EXACT_INLINE void kernel_read(const read_call *call, kernel_place *at) {
    CUDA_EACH(at, read_words(call, at));
}

#endif
