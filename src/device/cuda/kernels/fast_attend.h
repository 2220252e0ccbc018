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
 * fast_decode: a thread block for each row and KV head, whose query heads share the operands; a
 * warp for each block of a span. fast_attend: a thread block for some rows of one session and a KV
 * head; a warp for 16 pairs of row and head, all blocks one after the other. */
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

/* Number i of a vector, rotated. */
EXACT_INLINE float fast_position_number(const position_call *call, const kernel_place *at,
                                        uint32_t vector, const float *x, uint32_t i) {
    bool value = vector >= call->heads + call->kv_heads;
    if (value || call->cosine == NULL || i >= 2 * call->pairs)
        return x[i];
    uint64_t angles = (uint64_t)at->y * call->pairs_max;
    uint32_t pair = call->interleaved ? i / 2 : i % call->pairs;
    bool second = call->interleaved ? i % 2 == 1 : i >= call->pairs;
    float partner = x[call->interleaved ? i ^ 1 : second ? i - call->pairs : i + call->pairs];
    return fmaf(second ? partner : -partner, call->sine[angles + pair],
                x[i] * call->cosine[angles + pair]);
}

/* A key's or a value's number into its page. */
EXACT_INLINE void fast_position_keep(const position_call *call, const kernel_place *at,
                                     uint32_t vector, uint32_t i, float y) {
    const kv_call *kv = &call->kv;
    uint32_t position = kv->position[at->y], slot = position % CALL_PAGE;
    bool value = vector >= call->heads + call->kv_heads;
    uint8_t *tile =
        kv_head_of(kv, at->y, position / CALL_PAGE, (vector - call->heads) % call->kv_heads);
    if (value)
        tile += kv->value_offset;
    tile_put(
        kv->type, tile,
        value ? value_place(kv->type, kv->value_stride, i, slot) : key_place(kv->type, i, slot), y);
}

EXACT_INLINE void fast_position_put(const position_call *call, const kernel_place *at,
                                    uint32_t vector, const float *x) {
    uint32_t size = call->kv.head_size;
    uint16_t *query = (uint16_t *)(void *)call->query_out;
    query += ((uint64_t)at->y * call->heads + vector) * size;
    EACH_LANE(at, own) {
        for (uint32_t i = lane; i < size; i += WARP) {
            float y = fast_position_number(call, at, vector, x, i);
            if (vector < call->heads)
                query[i] = fast_number(y * call->query_factor, call->kv.type == CALL_KV_BF16);
            else
                fast_position_keep(call, at, vector, i, y);
        }
        (void)own;
    }
}

EXACT_INLINE void kernel_fast_position(const position_call *call, kernel_place *at) {
    place_let_next();
    place_wait();
    uint32_t vectors = call->heads + 2 * call->kv_heads;
    CUDA_WARPS(at, uint32_t vector = at->x * FAST_WARPS + warp_of(at); if (vector < vectors)
                   fast_position_load(call, at, vector, at->shared + warp_of(at) * CALL_HEAD_MAX));
    CUDA_WARPS(at, uint32_t vector = at->x * FAST_WARPS + warp_of(at); if (vector < vectors)
                   fast_position_put(call, at, vector, at->shared + warp_of(at) * CALL_HEAD_MAX));
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

/* With a soft cap. Not in line: few models have one. */
static
#ifdef __CUDACC__
    __device__ __noinline__
#endif
    float
    fast_capped(float softcap, float s) {
    return (softcap * 1.44269504f) *
           (1.0f - 2.0f / (fast_exp2(s > ATTEND_EXP2_MAX ? ATTEND_EXP2_MAX : s) + 1.0f));
}

/* Numbers d and d + 1 of a head's result. */
EXACT_INLINE void fast_attended(const fast_attend_call *call, uint32_t row, uint32_t head,
                                uint32_t d, float low, float high) {
    uint32_t k = head * call->kv.head_size + d;
    if (call->next != NULL) {
        *(uint32_t *)(void *)(call->next + fast_place(call->next_many, call->rows, row, k)) =
            fast_number(low, call->next_brain) | (uint32_t)fast_number(high, call->next_brain)
                                                     << 16;
        return;
    }
    float *out = call->out + (uint64_t)row * call->heads * call->kv.head_size + k;
    out[0] = low;
    out[1] = high;
}

#ifdef __CUDACC__
#include "device/cuda/kernels/fast_attend_card.h"

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
        if (call->softcap > 0.0f)
            s[i] = fast_capped(call->softcap, s[i]);
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
    fast_state total, span, block;
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

/* Queries of the block's heads, its key and value. */
static inline void fast_decode_positions(const fast_attend_call *call, kernel_place *at) {
    uint32_t group = call->heads / call->kv_heads;
    at->thread = 0;
    for (uint32_t i = 0; i < group + 2; i++) {
        uint32_t vector =
            i < group ? at->x * group + i : call->heads + (i - group) * call->kv_heads + at->x;
        fast_position_load(&call->position, at, vector, at->shared);
        fast_position_put(&call->position, at, vector, at->shared);
    }
}

EXACT_INLINE void kernel_fast_decode(const fast_attend_call *call, kernel_place *at) {
    uint32_t group = call->heads / call->kv_heads;
    if (call->positions && at->z == 0)
        fast_decode_positions(call, at);
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
