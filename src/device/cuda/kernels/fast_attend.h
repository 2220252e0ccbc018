/* Attention of the fast arithmetic, for pages of 16-bit floats: scores and values on tensor cores.
 *
 * Positions are cut every 64 (a block) and every 256 (a span), from position 0. A block has a state
 * of its own: scores are chains over the head's dimensions in steps of 16; m is their largest, p =
 * exp2(s − m), l the sum of p, and acc chains of v · p over positions in steps of 16, p rounded to
 * the pages' type. The blocks of a span are joined in order, then the spans of a row, each to those
 * before:
 *   M = the larger m, f = exp2(m − M), g = exp2(m' − M), acc = fma(acc', g, acc · f), l likewise
 * and blocks of which a row sees nothing are left out. So a row's bits depend neither on other rows
 * nor on how blocks are shared out among warps.
 *
 * fast_decode: a thread block for each row and KV head, whose query heads share the operands; a warp
 * for each block of a span. fast_attend: a thread block for some rows of one session and a KV head;
 * a warp for 16 pairs of row and head, all blocks one after the other. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FAST_ATTEND_H
#define AVO_DEVICE_CUDA_KERNELS_FAST_ATTEND_H

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/fast.h"

#define FAST_BLOCK   64
#define FAST_BLOCKS  (CALL_SPLIT / FAST_BLOCK) /* of a span */
#define FAST_NOTHING (-INFINITY)               /* m of a state that has seen nothing */

/* ---- Positions: queries rounded, keys and values into pages ---- */

/* Warp w of block (x, y): vector 8 · x + w of row y: query heads, keys, values. */
EXACT_INLINE void fast_position_load(const position_call *call, const kernel_place *at,
                                     uint32_t vector, float *x) {
    uint32_t size = call->kv.head_size;
    kernel_place own = *at;
    own.x = vector;
    const float *from = position_source(call, &own);
    const norm_call *norm = vector < call->heads ? &call->query_norm : &call->key_norm;
    bool normed = vector < call->heads + call->kv_heads && norm->kind != CALL_NORM_NONE;
    float sum[OWN_LANES], other[OWN_LANES], mean = 0.0f, scale = 0.0f;
    for (uint32_t pass = norm->kind == CALL_NORM_LAYER ? 0 : 1; normed && pass < 2; pass++) {
        EACH_LANE(at, own_lane) {
            float s = 0.0f;
            for (uint32_t i = lane; i < size; i += WARP) {
                float y = load_fresh(from + i) - mean;
                s = pass == 1 ? fmaf(y, y, s) : s + y;
            }
            sum[own_lane] = s;
        }
        for (uint32_t mask = WARP / 2; mask > 0; mask /= 2) {
            exchange_floats(sum, mask, other);
            EACH_LANE(at, own_lane) {
                sum[own_lane] += other[own_lane];
            }
        }
        if (pass == 0)
            mean = sum[0] / (float)size;
        else
            scale = 1.0f / sqrtf(sum[0] / (float)size + norm->epsilon);
    }
    EACH_LANE(at, own_lane) {
        for (uint32_t i = lane; i < size; i += WARP) {
            float y = load_fresh(from + i);
            x[i] = normed ? norm_apply(norm, at->y, i, y, mean, scale) : y;
        }
        (void)own_lane;
    }
}

EXACT_INLINE void fast_position_put(const position_call *call, const kernel_place *at,
                                    uint32_t vector, const float *x) {
    const kv_call *kv = &call->kv;
    uint32_t size = kv->head_size, position = kv->position[at->y];
    bool brain = kv->type == CALL_KV_BF16, value = vector >= call->heads + call->kv_heads;
    const float *cosine = call->cosine == NULL ? NULL : call->cosine + (uint64_t)at->y * call->pairs_max;
    const float *sine = call->cosine == NULL ? NULL : call->sine + (uint64_t)at->y * call->pairs_max;
    EACH_LANE(at, own) {
        for (uint32_t i = lane; i < size; i += WARP) {
            float y = x[i];
            uint32_t pair = call->interleaved ? i / 2 : i % (call->pairs == 0 ? 1 : call->pairs);
            if (!value && cosine != NULL && i < 2 * call->pairs) {
                bool second = call->interleaved ? i % 2 == 1 : i >= call->pairs;
                uint32_t partner = call->interleaved ? i ^ 1 : second ? i - call->pairs : i + call->pairs;
                y = fmaf(second ? x[partner] : -x[partner], sine[pair], y * cosine[pair]);
            }
            if (vector < call->heads) {
                uint16_t *to = (uint16_t *)(void *)call->query_out;
                to[((uint64_t)at->y * call->heads + vector) * size + i] =
                    fast_number(y * call->query_factor, brain);
                continue;
            }
            uint32_t head = (vector - call->heads) % call->kv_heads;
            uint8_t *tile = kv_head_of(kv, at->y, position / CALL_PAGE, head);
            if (value)
                tile += kv->value_offset;
            tile_put(kv->type, tile,
                     value ? value_place(kv->type, kv->value_stride, i, position % CALL_PAGE)
                           : key_place(kv->type, i, position % CALL_PAGE),
                     y);
        }
        (void)own;
    }
}

EXACT_INLINE void kernel_fast_position(const position_call *call, kernel_place *at) {
    place_let_next();
    place_wait();
    uint32_t vectors = call->heads + 2 * call->kv_heads;
    CUDA_WARPS(at, uint32_t vector = at->x * FAST_WARPS + warp_of(at);
               if (vector < vectors) fast_position_load(call, at, vector,
                                                        at->shared + warp_of(at) * CALL_HEAD_MAX));
    CUDA_WARPS(at, uint32_t vector = at->x * FAST_WARPS + warp_of(at);
               if (vector < vectors) fast_position_put(call, at, vector,
                                                       at->shared + warp_of(at) * CALL_HEAD_MAX));
}

/* ---- States ---- */

EXACT_INLINE float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return x == -INFINITY ? 0.0f : exact_exp2(x);
#endif
}

/* How a state with largest score `next` joins one with *m, which becomes that of both. `take`: the
 * first one is empty; `skip`: the second one. */
typedef struct fast_joint {
    float f, g;
    bool take, skip;
} fast_joint;

EXACT_INLINE fast_joint fast_join(float *m, float next) {
    fast_joint joint = {1.0f, 0.0f, *m == FAST_NOTHING, next == FAST_NOTHING};
    float most = *m > next ? *m : next;
    if (!joint.take && !joint.skip) {
        joint.f = fast_exp2(*m - most);
        joint.g = fast_exp2(next - most);
    }
    *m = most;
    return joint;
}

EXACT_INLINE float fast_joined(const fast_joint *joint, float acc, float next) {
    float both = fmaf(next, joint->g, acc * joint->f);
    return joint->skip ? acc : joint->take ? next : both;
}

/* Positions that row `row` sees: [*begin, *end). */
EXACT_INLINE void fast_sees(const fast_attend_call *call, uint32_t row, uint32_t *begin,
                            uint32_t *end) {
    *end = call->kv.position[row] + 1;
    *begin = call->window > 0 && *end > call->window ? *end - call->window : 0;
}

EXACT_INLINE float fast_capped(const fast_attend_call *call, float s) {
    if (call->softcap > 0.0f)
        s = (call->softcap * 1.44269504f) *
            (1.0f - 2.0f / (fast_exp2(s > ATTEND_EXP2_MAX ? ATTEND_EXP2_MAX : s) + 1.0f));
    return s;
}

/* Numbers d and d + 1 of a head's result. */
EXACT_INLINE void fast_attended(const fast_attend_call *call, uint32_t row, uint32_t head,
                                uint32_t d, float low, float high) {
    uint32_t k = head * call->kv.head_size + d;
    if (call->next != NULL) {
        *(uint32_t *)(void *)(call->next + fast_place(call->next_many, call->rows, row, k)) =
            fast_number(low, call->next_brain) |
            (uint32_t)fast_number(high, call->next_brain) << 16;
        return;
    }
    float *out = call->out + (uint64_t)row * call->heads * call->kv.head_size + k;
    out[0] = low;
    out[1] = high;
}

#ifdef __CUDACC__
#ifdef __CUDA_ARCH__

/* ---- A block by one warp: 16 pairs of row and head, 64 positions ---- */

#define FAST_KEY_BYTES(size)   ((size) * FAST_BLOCK * 2)
#define FAST_VALUE_BYTES(size) ((size) * FAST_BLOCK * 2)

EXACT_INLINE void fast_copy(uint32_t to, const uint8_t *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

/* The block's keys, by threads `thread` of `threads`: [page][dimension][32 positions], each line's
 * four pieces of 16 bytes turned so that eight dimensions lie in different banks. */
template <uint32_t size>
EXACT_INLINE void fast_copy_keys(const fast_attend_call *call, uint32_t table, uint32_t kv_head,
                                 uint32_t block, uint32_t pages, uint32_t thread, uint32_t threads,
                                 uint32_t to) {
    for (uint32_t page = 0; page < 2; page++) {
        bool there = 2 * block + page < pages;
        const uint8_t *from = kv_head_in(&call->kv, table, there ? 2 * block + page : 0, kv_head);
#pragma unroll 8
        for (uint32_t i = thread; i < size * 4; i += threads)
            fast_copy(to + page * size * 64 + i / 4 * 64 + ((i % 4) ^ (i / 8 % 4)) * 16,
                      from + i * 16, there);
    }
}

/* Values: [position][dimension]; zeros from position `end` on, whatever lies there. */
template <uint32_t size>
EXACT_INLINE void fast_copy_values(const fast_attend_call *call, uint32_t table, uint32_t kv_head,
                                   uint32_t block, uint32_t pages, uint32_t end, uint32_t thread,
                                   uint32_t threads, uint32_t to) {
    const uint32_t line = size / 8;
    for (uint32_t page = 0; page < 2; page++) {
        bool there = 2 * block + page < pages;
        const uint8_t *from = kv_head_in(&call->kv, table, there ? 2 * block + page : 0, kv_head) +
                              call->kv.value_offset;
#pragma unroll 8
        for (uint32_t i = thread; i < CALL_PAGE * line; i += threads) {
            uint32_t position = i / line, piece = i % line;
            fast_copy(to + (page * CALL_PAGE + position) * size * 2 +
                          ((piece & ~7u) | ((piece ^ position) & 7u)) * 16,
                      from + i * 16,
                      there && block * FAST_BLOCK + page * CALL_PAGE + position < end);
        }
    }
}

EXACT_INLINE void matrix_load_turned(uint32_t from, uint32_t *b) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(from)
                 : "memory");
}

/* Scores of the lane's two rows (lane / 4, and 8 further) with positions 8 j + 2 (lane % 4). */
template <uint32_t size, bool brain>
EXACT_INLINE void fast_scores(const uint32_t (*q)[4], uint32_t keys, uint32_t lane,
                              float (*s)[4]) {
    /* matrix of the lane's address: dimensions 8 (i % 2), positions 8 (i / 2) */
    uint32_t i = lane / 8, row = i % 2 * 8 + lane % 8;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0.0f;
#pragma unroll
    for (uint32_t step = 0; step < size / 16; step++)
#pragma unroll
        for (uint32_t two = 0; two < 4; two++) {
            uint32_t d = step * 16 + row, piece = two % 2 * 2 + i / 2, b[4];
            matrix_load_turned(keys + two / 2 * size * 64 + d * 64 + (piece ^ (d / 2 % 4)) * 16, b);
            matrix_multiply<brain>(s[2 * two], q[step], b[0], b[1]);
            matrix_multiply<brain>(s[2 * two + 1], q[step], b[2], b[3]);
        }
}

template <bool brain> EXACT_INLINE uint32_t fast_two(float low, float high) {
    uint32_t word;
    if (brain)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* acc[j]: dimensions 8 j + 2 (lane % 4). */
template <uint32_t size, bool brain>
EXACT_INLINE void fast_values(const float (*p)[4], uint32_t values, uint32_t lane,
                              float (*acc)[4]) {
    uint32_t i = lane / 8, row = i % 2 * 8 + lane % 8;
#pragma unroll
    for (uint32_t j = 0; j < size / 8; j++)
        acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0.0f;
#pragma unroll
    for (uint32_t step = 0; step < FAST_BLOCK / 16; step++) {
        uint32_t a[4] = {fast_two<brain>(p[2 * step][0], p[2 * step][1]),
                         fast_two<brain>(p[2 * step][2], p[2 * step][3]),
                         fast_two<brain>(p[2 * step + 1][0], p[2 * step + 1][1]),
                         fast_two<brain>(p[2 * step + 1][2], p[2 * step + 1][3])};
#pragma unroll
        for (uint32_t two = 0; two < size / 16; two++) {
            uint32_t position = step * 16 + row, piece = two * 2 + i / 2, b[4];
            matrix_load_turned(values + position * size * 2 +
                                   ((piece & ~7u) | ((piece ^ position) & 7u)) * 16,
                               b);
            matrix_multiply<brain>(acc[2 * two], a, b[0], b[1]);
            matrix_multiply<brain>(acc[2 * two + 1], a, b[2], b[3]);
        }
    }
}

EXACT_INLINE float fast_quad_highest(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

EXACT_INLINE float fast_quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* s becomes p; m and l of the lane's two rows, which see positions [begin, end). */
EXACT_INLINE void fast_weigh(const fast_attend_call *call, uint32_t first, uint32_t lane,
                             const uint32_t *begin, const uint32_t *end, float (*s)[4], float *m,
                             float *l) {
    m[0] = m[1] = FAST_NOTHING;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t position = first + 8 * j + lane % 4 * 2 + i % 2;
            s[j][i] = fast_capped(call, s[j][i]);
            if (position < begin[i / 2] || position >= end[i / 2])
                s[j][i] = FAST_NOTHING;
            m[i / 2] = s[j][i] > m[i / 2] ? s[j][i] : m[i / 2];
        }
    m[0] = fast_quad_highest(m[0]);
    m[1] = fast_quad_highest(m[1]);
    l[0] = l[1] = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            s[j][i] = m[i / 2] == FAST_NOTHING ? 0.0f : fast_exp2(s[j][i] - m[i / 2]);
            l[i / 2] += s[j][i];
        }
    l[0] = fast_quad_sum(l[0]);
    l[1] = fast_quad_sum(l[1]);
}

/* ---- One row, all heads of a KV head ---- */

/* Behind the scores of a block, its acc lies where its keys were: [16][size + 4]. */
template <uint32_t size> struct fast_decode_room {
    enum {
        values = FAST_BLOCKS * FAST_KEY_BYTES(size),
        state = 2 * FAST_BLOCKS * FAST_KEY_BYTES(size),
        total = state + (2 * FAST_BLOCKS + 3) * 16 * 4 /* [16][size] */
    };
};

/* State of blocks [block][16]: m, then l; the row's m and l; whether this thread block joins. */
EXACT_INLINE float fast_span(const float *m, uint32_t head, const float *next, uint32_t stride,
                             float *most) {
    float acc = 0.0f;
    *most = FAST_NOTHING;
    for (uint32_t block = 0; block < FAST_BLOCKS; block++) {
        fast_joint joint = fast_join(most, m[block * 16 + head]);
        acc = fast_joined(&joint, acc, next[block * stride]);
    }
    return acc;
}

template <uint32_t size, bool brain>
static __device__ void fast_decode_heads(const fast_attend_call *call, const kernel_place *at) {
    typedef fast_decode_room<size> room;
    uint8_t *memory = (uint8_t *)(void *)at->shared;
    uint32_t warp = at->thread / 32, lane = at->thread % 32, row = at->y, kv_head = at->x;
    uint32_t group = call->heads / call->kv_heads, head0 = kv_head * group;
    uint32_t keys = card_shared(memory) + warp * FAST_KEY_BYTES(size);
    uint32_t values = card_shared(memory + room::values) + warp * FAST_VALUE_BYTES(size);
    float *acc_at = (float *)(void *)memory, *total = (float *)(void *)(memory + room::total);
    float *m_at = (float *)(void *)(memory + room::state), *l_at = m_at + FAST_BLOCKS * 16;
    float *row_m = l_at + FAST_BLOCKS * 16, *row_l = row_m + 16;
    uint32_t *last = (uint32_t *)(void *)(row_l + 16);
    uint32_t begin[2], end[2], table = call->kv.row_pages[row];
    fast_sees(call, row, &begin[0], &end[0]);
    begin[1] = begin[0];
    end[1] = end[0];
    uint32_t pages = (end[0] - 1) / CALL_PAGE + 1;
    uint32_t from = begin[0] / CALL_SPLIT, to = (end[0] - 1) / CALL_SPLIT;
    bool split = call->splits > 1;
    place_let_next();
    if (split && (at->z < from || at->z > to))
        return;
    uint32_t span = split ? at->z : from, stop = split ? at->z : to;
    /* Blocks that no row of this step writes are copied before it is there. */
    uint32_t behind = (span * FAST_BLOCKS + warp + 1) * FAST_BLOCK;
    bool copied = behind + call->rows <= end[0] && behind > begin[0];
    if (copied) {
        fast_copy_keys<size>(call, table, kv_head, span * FAST_BLOCKS + warp, pages, lane, 32,
                             keys);
        copy_mark(at);
        fast_copy_values<size>(call, table, kv_head, span * FAST_BLOCKS + warp, pages, end[0], lane,
                               32, values);
        copy_mark(at);
    }
    place_wait();
    uint32_t q[size / 16][4];
    const uint16_t *query =
        (const uint16_t *)call->query + ((uint64_t)row * call->heads + head0) * size;
#pragma unroll
    for (uint32_t i = 0; i < size / 16 * 4; i++) {
        uint32_t head = lane / 4 + i % 2 * 8;
        uint32_t d = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
        q[i / 4][i % 4] =
            head < group ? __ldcg((const uint32_t *)(const void *)(query + head * size + d)) : 0;
    }
    if (at->thread < 16) {
        row_m[at->thread] = FAST_NOTHING;
        row_l[at->thread] = 0.0f;
    }
    for (; span <= stop; span++) {
        uint32_t block = span * FAST_BLOCKS + warp;
        bool seen = block * FAST_BLOCK < end[0] && (block + 1) * FAST_BLOCK > begin[0];
        float m[2] = {FAST_NOTHING, FAST_NOTHING}, l[2] = {0.0f, 0.0f};
        if (seen && !copied) {
            fast_copy_keys<size>(call, table, kv_head, block, pages, lane, 32, keys);
            copy_mark(at);
            fast_copy_values<size>(call, table, kv_head, block, pages, end[0], lane, 32, values);
            copy_mark(at);
        }
        copied = false;
        if (seen) {
            float s[8][4], acc[size / 8][4];
            COPY_WAIT(at, 1);
            __syncwarp();
            fast_scores<size, brain>(q, keys, lane, s);
            fast_weigh(call, block * FAST_BLOCK, lane, begin, end, s, m, l);
            COPY_WAIT(at, 0);
            __syncwarp();
            fast_values<size, brain>(s, values, lane, acc);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++)
                if (lane / 4 + 8 * i < group) {
                    float *own = acc_at + warp * (FAST_KEY_BYTES(size) / 4) +
                                 (lane / 4 + 8 * i) * (size + 4) + lane % 4 * 2;
#pragma unroll
                    for (uint32_t j = 0; j < size / 8; j++)
                        *(float2 *)(void *)(own + 8 * j) =
                            make_float2(acc[j][2 * i], acc[j][2 * i + 1]);
                }
        }
        if (lane % 4 == 0)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                m_at[warp * 16 + lane / 4 + 8 * i] = m[i];
                l_at[warp * 16 + lane / 4 + 8 * i] = l[i];
            }
        __syncthreads();
#pragma unroll 1
        for (uint32_t place = at->thread; place < group * size; place += 128) {
            float most, own = row_m[place / size];
            float next = fast_span(m_at, place / size,
                                   acc_at + place / size * (size + 4) + place % size,
                                   FAST_KEY_BYTES(size) / 4, &most);
            fast_joint joint = fast_join(&own, most);
            total[place] = fast_joined(&joint, total[place], next);
        }
        __syncthreads();
        if (at->thread < group) {
            float most, next = fast_span(m_at, at->thread, l_at + at->thread, 16, &most);
            fast_joint joint = fast_join(&row_m[at->thread], most);
            row_l[at->thread] = fast_joined(&joint, row_l[at->thread], next);
        }
        __syncthreads();
    }
    uint32_t stride = 16 + size;
    if (split && to > from) {
        float *part = call->part + (((uint64_t)row * call->heads + head0) * call->splits + at->z) * stride;
        uint64_t head_stride = (uint64_t)call->splits * stride;
        for (uint32_t place = at->thread; place < group * size; place += 128)
            part[place / size * head_stride + 16 + place % size] = total[place];
        if (at->thread < group) {
            part[at->thread * head_stride] = row_m[at->thread];
            part[at->thread * head_stride + 1] = row_l[at->thread];
        }
        __threadfence();
        __syncthreads();
        if (at->thread == 0) {
            uint32_t *counter = call->arrived + (uint64_t)row * call->heads + head0;
            *last = atomicAdd(counter, 1u) == to - from;
            __threadfence();
            if (*last)
                *counter = 0;
        }
        __syncthreads();
        if (!*last)
            return;
        part = call->part + ((uint64_t)row * call->heads + head0) * head_stride;
#pragma unroll 1
        for (uint32_t place = at->thread; place < group * size; place += 128) {
            float m = FAST_NOTHING, acc = 0.0f, l = 0.0f;
            for (uint32_t z = from; z <= to; z++) {
                const float *own = part + place / size * head_stride + z * stride;
                fast_joint joint = fast_join(&m, load_fresh(own));
                acc = fast_joined(&joint, acc, load_fresh(own + 16 + place % size));
                l = fast_joined(&joint, l, load_fresh(own + 1));
            }
            total[place] = acc;
            if (place % size == 0)
                row_l[place / size] = l;
        }
        __syncthreads();
    }
    for (uint32_t place = 2 * at->thread; place < group * size; place += 256) {
        float factor = 1.0f / row_l[place / size];
        fast_attended(call, row, head0 + place / size, place % size, total[place] * factor,
                      total[place + 1] * factor);
    }
}

/* ---- Many rows ---- */

template <uint32_t size> struct fast_attend_room {
    enum {
        stage = FAST_KEY_BYTES(size) + FAST_VALUE_BYTES(size),
        acc = 2 * stage, /* of spans: [warp][size / 2 of a lane][32] */
        total = acc + 4 * 32 * (size / 2) * 4
    };
};

template <uint32_t size>
EXACT_INLINE void fast_attend_copy(const fast_attend_call *call, const kernel_place *at,
                                   uint32_t table, uint32_t block, uint32_t pages, uint32_t end,
                                   uint32_t to) {
    fast_copy_keys<size>(call, table, at->x, block, pages, at->thread, 128, to);
    fast_copy_values<size>(call, table, at->x, block, pages, end, at->thread, 128,
                           to + FAST_KEY_BYTES(size));
}

template <uint32_t size, bool brain>
static __device__ void fast_attend_rows(const fast_attend_call *call, const kernel_place *at) {
    typedef fast_attend_room<size> room;
    uint8_t *memory = (uint8_t *)(void *)at->shared;
    uint32_t warp = at->thread / 32, lane = at->thread % 32;
    uint32_t group = call->heads / call->kv_heads, head0 = at->x * group;
    float *kept = (float *)(void *)(memory + room::acc) + warp * 32 * (size / 2) + lane;
    place_let_next();
    place_wait();
    /* the longest first */
    uint32_t tile = call->tiles - 1 - at->y;
    uint32_t first = call->tile[2 * tile], count = call->tile[2 * tile + 1];
    uint32_t table = call->kv.row_pages[first];
    uint32_t begin[2], end[2], row[2], head[2], lowest, highest, ignored;
    fast_sees(call, first, &lowest, &ignored);
    fast_sees(call, first + count - 1, &ignored, &highest);
    uint32_t pages = (highest - 1) / CALL_PAGE + 1;
    uint32_t block = lowest / FAST_BLOCK, stop = (highest - 1) / FAST_BLOCK;
    uint32_t stages = card_shared(memory);
    fast_attend_copy<size>(call, at, table, block, pages, highest, stages);
    copy_mark(at);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t pair = warp * 16 + lane / 4 + 8 * i;
        row[i] = first + pair / group;
        head[i] = head0 + pair % group;
        begin[i] = end[i] = 0;
        if (pair < count * group)
            fast_sees(call, row[i], &begin[i], &end[i]);
    }
    uint32_t q[size / 16][4];
    const uint16_t *query = (const uint16_t *)call->query;
#pragma unroll
    for (uint32_t i = 0; i < size / 16 * 4; i++) {
        uint32_t d = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
        const uint16_t *own = query + ((uint64_t)row[i % 2] * call->heads + head[i % 2]) * size + d;
        q[i / 4][i % 4] = end[i % 2] > 0 ? __ldcg((const uint32_t *)(const void *)own) : 0;
    }
    uint32_t warp_end = end[0] > end[1] ? end[0] : end[1], warp_begin = warp * 16 / group + first;
    warp_end = __reduce_max_sync(0xffffffffu, warp_end);
    fast_sees(call, warp_begin < first + count ? warp_begin : first, &warp_begin, &ignored);
    float total_m[2] = {FAST_NOTHING, FAST_NOTHING}, total_l[2] = {0.0f, 0.0f};
    float span_m[2] = {FAST_NOTHING, FAST_NOTHING}, span_l[2] = {0.0f, 0.0f};
    float span[size / 8][4];
#pragma unroll
    for (uint32_t j = 0; j < size / 8; j++)
        span[j][0] = span[j][1] = span[j][2] = span[j][3] = 0.0f;
    for (uint32_t number = 0; block <= stop; block++, number ^= 1) {
        uint32_t stage = stages + number * room::stage;
        COPY_WAIT(at, 0);
        __syncthreads();
        if (block < stop) {
            fast_attend_copy<size>(call, at, table, block + 1, pages, highest,
                                   stages + (number ^ 1) * room::stage);
            copy_mark(at);
        }
        if (block * FAST_BLOCK < warp_end && (block + 1) * FAST_BLOCK > warp_begin) {
            float s[8][4], acc[size / 8][4], m[2], l[2];
            fast_scores<size, brain>(q, stage, lane, s);
            fast_weigh(call, block * FAST_BLOCK, lane, begin, end, s, m, l);
            fast_values<size, brain>(s, stage + FAST_KEY_BYTES(size), lane, acc);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                fast_joint joint = fast_join(&span_m[i], m[i]);
                span_l[i] = fast_joined(&joint, span_l[i], l[i]);
#pragma unroll
                for (uint32_t j = 0; j < size / 8; j++) {
                    span[j][2 * i] = fast_joined(&joint, span[j][2 * i], acc[j][2 * i]);
                    span[j][2 * i + 1] = fast_joined(&joint, span[j][2 * i + 1], acc[j][2 * i + 1]);
                }
            }
        }
        if (block % FAST_BLOCKS == FAST_BLOCKS - 1 || block == stop) {
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                bool begun = total_m[i] != FAST_NOTHING;
                fast_joint joint = fast_join(&total_m[i], span_m[i]);
                total_l[i] = fast_joined(&joint, total_l[i], span_l[i]);
#pragma unroll
                for (uint32_t j = 0; j < size / 4; j++) {
                    float *own = kept + (j * 2 + i) * 32, *next = &span[j / 2][2 * i + j % 2];
                    *own = fast_joined(&joint, begun ? *own : 0.0f, *next);
                    *next = 0.0f;
                }
                span_m[i] = FAST_NOTHING;
                span_l[i] = 0.0f;
            }
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        float factor = end[i] > 0 ? 1.0f / total_l[i] : 0.0f;
        if (end[i] > 0)
#pragma unroll
            for (uint32_t j = 0; j < size / 8; j++)
                fast_attended(call, row[i], head[i], 8 * j + lane % 4 * 2,
                              kept[(2 * j * 2 + i) * 32] * factor,
                              kept[((2 * j + 1) * 2 + i) * 32] * factor);
    }
}
#endif

#define FAST_ATTEND_KERNEL(name, part)                                                             \
    EXACT_INLINE void kernel_##name(const fast_attend_call *call, kernel_place *at) {              \
        bool brain = call->kv.type == CALL_KV_BF16;                                                \
        if (call->kv.head_size == 64 && brain)                                                     \
            part<64, true>(call, at);                                                              \
        else if (call->kv.head_size == 64)                                                         \
            part<64, false>(call, at);                                                             \
        else if (brain)                                                                            \
            part<128, true>(call, at);                                                             \
        else                                                                                       \
            part<128, false>(call, at);                                                            \
    }
#ifdef __CUDA_ARCH__
FAST_ATTEND_KERNEL(fast_decode, fast_decode_heads)
FAST_ATTEND_KERNEL(fast_attend, fast_attend_rows)
#else
EXACT_INLINE void kernel_fast_decode(const fast_attend_call *call, kernel_place *at) {
    (void)call;
    (void)at;
}
EXACT_INLINE void kernel_fast_attend(const fast_attend_call *call, kernel_place *at) {
    (void)call;
    (void)at;
}
#endif

#else

/* ---- The same on the processor: a row and head at a time ---- */

typedef struct fast_state {
    float m, l, acc[CALL_HEAD_MAX];
} fast_state;

static inline void fast_state_join(fast_state *to, const fast_state *next, uint32_t size) {
    fast_joint joint = fast_join(&to->m, next->m);
    to->l = fast_joined(&joint, to->l, next->l);
    for (uint32_t d = 0; d < size; d++)
        to->acc[d] = fast_joined(&joint, to->acc[d], next->acc[d]);
}

static inline float fast_dot16(bool brain, const uint16_t *a, const uint16_t *b, float d) {
    return fast_step(brain, (const uint8_t *)a, (const uint8_t *)b, 16, d);
}

static inline void fast_block_state(const fast_attend_call *call, uint32_t row, uint32_t head,
                                    uint32_t block, fast_state *state) {
    const kv_call *kv = &call->kv;
    uint32_t size = kv->head_size, begin, end, kv_head = head / (call->heads / call->kv_heads);
    bool brain = kv->type == CALL_KV_BF16;
    float s[FAST_BLOCK], lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const uint16_t *query =
        (const uint16_t *)(const void *)call->query + ((uint64_t)row * call->heads + head) * size;
    fast_sees(call, row, &begin, &end);
    state->m = FAST_NOTHING;
    for (uint32_t i = 0; i < FAST_BLOCK; i++) {
        uint32_t position = block * FAST_BLOCK + i;
        s[i] = FAST_NOTHING;
        if (position < begin || position >= end)
            continue;
        const uint8_t *tile = kv_head_of(kv, row, position / CALL_PAGE, kv_head);
        s[i] = 0.0f;
        for (uint32_t d = 0; d < size; d += 16) {
            uint16_t a[24], b[24];
            for (uint32_t j = 0; j < 16; j++) { /* the second eight of a: 128 bytes on */
                b[j] = exact_load_half(tile + 2 * key_place(kv->type, d + j, position % CALL_PAGE));
                a[j] = query[d + j];
            }
            uint16_t spread[72];
            memcpy(spread, a, 16);
            memcpy(spread + 64, a + 8, 16);
            s[i] = fast_dot16(brain, spread, b, s[i]);
        }
        s[i] = fast_capped(call, s[i]);
        state->m = s[i] > state->m ? s[i] : state->m;
    }
    for (uint32_t i = 0; i < FAST_BLOCK; i++) {
        s[i] = s[i] == FAST_NOTHING ? 0.0f : fast_exp2(s[i] - state->m);
        lanes[i / 2 % 4] += s[i];
    }
    state->l = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    for (uint32_t d = 0; d < size; d++) {
        float acc = 0.0f;
        for (uint32_t i = 0; i < FAST_BLOCK; i += 16) {
            uint16_t spread[72], b[16], a[16];
            for (uint32_t j = 0; j < 16; j++) {
                uint32_t position = block * FAST_BLOCK + i + j;
                a[j] = fast_number(s[i + j], brain);
                b[j] = 0;
                if (position < end)
                    b[j] = exact_load_half(
                        kv_head_of(kv, row, position / CALL_PAGE, kv_head) + kv->value_offset +
                        2 * value_place(kv->type, kv->value_stride, d, position % CALL_PAGE));
            }
            memcpy(spread, a, 16);
            memcpy(spread + 64, a + 8, 16);
            acc = fast_dot16(brain, spread, b, acc);
        }
        state->acc[d] = acc;
    }
}

static inline void fast_row(const fast_attend_call *call, uint32_t row, uint32_t head) {
    static _Thread_local fast_state total, span, block;
    uint32_t begin, end, size = call->kv.head_size;
    fast_sees(call, row, &begin, &end);
    total.m = span.m = FAST_NOTHING;
    total.l = span.l = 0.0f;
    for (uint32_t i = begin / FAST_BLOCK; i * FAST_BLOCK < end; i++) {
        fast_block_state(call, row, head, i, &block);
        fast_state_join(&span, &block, size);
        if (i % FAST_BLOCKS < FAST_BLOCKS - 1 && (i + 1) * FAST_BLOCK < end)
            continue;
        fast_state_join(&total, &span, size);
        span.m = FAST_NOTHING;
    }
    for (uint32_t d = 0; d < size; d += 2)
        fast_attended(call, row, head, d, total.acc[d] * (1.0f / total.l),
                      total.acc[d + 1] * (1.0f / total.l));
}

EXACT_INLINE void kernel_fast_decode(const fast_attend_call *call, kernel_place *at) {
    uint32_t group = call->heads / call->kv_heads;
    for (uint32_t i = 0; i < group && at->z == 0; i++)
        fast_row(call, at->y, at->x * group + i);
}

EXACT_INLINE void kernel_fast_attend(const fast_attend_call *call, kernel_place *at) {
    uint32_t group = call->heads / call->kv_heads, tile = call->tiles - 1 - at->y;
    for (uint32_t row = 0; row < call->tile[2 * tile + 1]; row++)
        for (uint32_t i = 0; i < group; i++)
            fast_row(call, call->tile[2 * tile] + row, at->x * group + i);
}

#endif
#endif
