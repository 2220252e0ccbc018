/* Attention of the fast arithmetic on a card: the kernels that fast_attend.h describes and
 * includes.
 */
#ifndef AVO_DEVICE_CUDA_KERNELS_FAST_ATTEND_CARD_H
#define AVO_DEVICE_CUDA_KERNELS_FAST_ATTEND_CARD_H

#ifdef __CUDA_ARCH__

/* ---- A block by one warp: 16 pairs of row and head, 64 positions ---- */

#define FAST_KEY_BYTES(size)   ((size)*FAST_BLOCK * 2)
#define FAST_VALUE_BYTES(size) ((size)*FAST_BLOCK * 2)

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
EXACT_INLINE void fast_scores(const uint32_t (*q)[4], uint32_t keys, uint32_t lane, float (*s)[4]) {
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
            matrix_load_turned(
                values + position * size * 2 + ((piece & ~7u) | ((piece ^ position) & 7u)) * 16, b);
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
    if (call->softcap > 0.0f)
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                s[j][i] = fast_capped(call->softcap, s[j][i]);
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t position = first + 8 * j + lane % 4 * 2 + i % 2;
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

/* Numbers of the lane's two rows of 16 as operands: `head[i]` and `row[i]`, none where `there` is
 * false. */
template <uint32_t size, bool near>
EXACT_INLINE void fast_queries(const uint16_t *query, uint32_t heads, uint32_t lane,
                               const uint32_t *row, const uint32_t *head, const bool *there,
                               uint32_t (*q)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < size / 16 * 4; i++) {
        uint32_t d = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
        const uint16_t *own = query + ((uint64_t)row[i % 2] * heads + head[i % 2]) * size + d;
        const uint32_t *word = (const uint32_t *)(const void *)own;
        q[i / 4][i % 4] = !there[i % 2] ? 0 : near ? *word : __ldcg(word);
    }
}

/* ---- One row, all heads of a KV head ---- */

/* Behind the scores of a block, its acc lies where its keys were: [16][size + 4]. */
template <uint32_t size> struct fast_decode_room {
    enum {
        values = FAST_BLOCKS * FAST_KEY_BYTES(size),
        state = 2 * FAST_BLOCKS * FAST_KEY_BYTES(size),
        total = state + (2 * FAST_BLOCKS + 3) * 16 * 4, /* [16][size] */
        vectors = total + 16 * size * 4,                /* queries, key, value: [18][size] */
        queries = vectors + 18 * size * 4               /* [16][size] of 16 bits */
    };
};

typedef struct fast_decode_desk {
    uint32_t warp, lane, row, kv_head, group, head0;
    uint32_t table, pages, begin[2], end[2];
    uint32_t from, to;     /* spans that the row sees */
    uint32_t keys, values; /* of the warp, in shared memory */
    float *acc, *total;    /* of blocks, of the row */
    float *m, *l;          /* of blocks: [block][16] */
    float *row_m, *row_l;  /* of the row: [16] */
    uint32_t *last;        /* whether this thread block joins the others */
} fast_decode_desk;

template <uint32_t size>
EXACT_INLINE void fast_decode_open(const fast_attend_call *call, const kernel_place *at,
                                   fast_decode_desk *desk) {
    typedef fast_decode_room<size> room;
    uint8_t *memory = (uint8_t *)(void *)at->shared;
    desk->warp = at->thread / 32;
    desk->lane = at->thread % 32;
    desk->row = at->y;
    desk->kv_head = at->x;
    desk->group = call->heads / call->kv_heads;
    desk->head0 = desk->kv_head * desk->group;
    desk->keys = card_shared(memory) + desk->warp * FAST_KEY_BYTES(size);
    desk->values = card_shared(memory + room::values) + desk->warp * FAST_VALUE_BYTES(size);
    desk->acc = (float *)(void *)memory;
    desk->total = (float *)(void *)(memory + room::total);
    desk->m = (float *)(void *)(memory + room::state);
    desk->l = desk->m + FAST_BLOCKS * 16;
    desk->row_m = desk->l + FAST_BLOCKS * 16;
    desk->row_l = desk->row_m + 16;
    desk->last = (uint32_t *)(void *)(desk->row_l + 16);
    desk->table = call->kv.row_pages[desk->row];
    fast_sees(call, desk->row, &desk->begin[0], &desk->end[0]);
    desk->begin[1] = desk->begin[0];
    desk->end[1] = desk->end[0];
    desk->pages = (desk->end[0] - 1) / CALL_PAGE + 1;
    desk->from = desk->begin[0] / CALL_SPLIT;
    desk->to = (desk->end[0] - 1) / CALL_SPLIT;
}

template <uint32_t size>
EXACT_INLINE void fast_decode_copy(const fast_attend_call *call, const kernel_place *at,
                                   const fast_decode_desk *desk, uint32_t block) {
    fast_copy_keys<size>(call, desk->table, desk->kv_head, block, desk->pages, desk->lane, 32,
                         desk->keys);
    copy_mark(at);
    fast_copy_values<size>(call, desk->table, desk->kv_head, block, desk->pages, desk->end[0],
                           desk->lane, 32, desk->values);
    copy_mark(at);
}

/* Queries, the key and the value of the row, rotated: a warp for each. */
template <uint32_t size>
EXACT_INLINE void fast_decode_positions(const fast_attend_call *call, const kernel_place *at,
                                        const fast_decode_desk *desk) {
    const position_call *position = &call->position;
    uint8_t *memory = (uint8_t *)(void *)at->shared;
    float *x = (float *)(void *)(memory + fast_decode_room<size>::vectors);
    uint16_t *query = (uint16_t *)(void *)(memory + fast_decode_room<size>::queries);
    for (uint32_t i = desk->warp; i < desk->group + 2; i += FAST_ATTEND_THREADS / 32) {
        uint32_t vector = i < desk->group
                              ? desk->head0 + i
                              : call->heads + (i - desk->group) * call->kv_heads + desk->kv_head;
        float y[size / 32];
        fast_position_load(position, at, vector, x + i * size);
        __syncwarp();
#pragma unroll
        for (uint32_t j = 0; j < size / 32; j++)
            y[j] = fast_position_number(position, at, vector, x + i * size, desk->lane + 32 * j);
        __syncwarp();
#pragma unroll
        for (uint32_t j = 0; j < size / 32; j++) {
            uint32_t d = desk->lane + 32 * j;
            x[i * size + d] = y[j];
            if (i < desk->group)
                query[i * size + d] =
                    fast_number(y[j] * position->query_factor, call->kv.type == CALL_KV_BF16);
        }
    }
    __syncthreads();
}

/* Its key (`value` 1: its value) into the copy of its block, and into the page. */
template <uint32_t size>
EXACT_INLINE void fast_decode_keep(const fast_attend_call *call, const kernel_place *at,
                                   const fast_decode_desk *desk, uint32_t value) {
    typedef fast_decode_room<size> room;
    uint8_t *memory = (uint8_t *)(void *)at->shared;
    const float *x =
        (const float *)(const void *)(memory + room::vectors) + (desk->group + value) * size;
    uint32_t inside = (desk->end[0] - 1) % FAST_BLOCK, slot = inside % CALL_PAGE;
    uint8_t *keys = memory + desk->warp * FAST_KEY_BYTES(size) + inside / CALL_PAGE * size * 64;
    uint8_t *values =
        memory + room::values + desk->warp * FAST_VALUE_BYTES(size) + inside * size * 2;
    for (uint32_t d = desk->lane; d < size; d += 32) {
        uint8_t *to = keys + d * 64 + ((slot / 8) ^ (d / 2 % 4)) * 16 + slot % 8 * 2;
        if (value)
            to = values + (((d / 8) & ~7u) | ((d / 8 ^ inside) & 7u)) * 16 + d % 8 * 2;
        tile_put(call->kv.type, to, 0, x[d]);
        fast_position_keep(&call->position, at,
                           call->heads + value * call->kv_heads + desk->kv_head, d, x[d]);
    }
    __syncwarp();
}

/* The state of the warp's block, whose copies are under way, or of none. */
template <uint32_t size, bool brain>
EXACT_INLINE void fast_decode_block(const fast_attend_call *call, const kernel_place *at,
                                    const fast_decode_desk *desk, const uint32_t (*q)[4],
                                    uint32_t block, bool seen) {
    uint32_t warp = desk->warp, lane = desk->lane;
    float m[2] = {FAST_NOTHING, FAST_NOTHING}, l[2] = {0.0f, 0.0f};
    if (seen) {
        float s[8][4], acc[size / 8][4];
        bool own = call->positions && block == (desk->end[0] - 1) / FAST_BLOCK;
        COPY_WAIT(at, 1);
        __syncwarp();
        if (own)
            fast_decode_keep<size>(call, at, desk, 0);
        fast_scores<size, brain>(q, desk->keys, lane, s);
        fast_weigh(call, block * FAST_BLOCK, lane, desk->begin, desk->end, s, m, l);
        COPY_WAIT(at, 0);
        __syncwarp();
        if (own)
            fast_decode_keep<size>(call, at, desk, 1);
        fast_values<size, brain>(s, desk->values, lane, acc);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            if (lane / 4 + 8 * i < desk->group) {
                float *to = desk->acc + warp * (FAST_KEY_BYTES(size) / 4) +
                            (lane / 4 + 8 * i) * (size + 4) + lane % 4 * 2;
#pragma unroll
                for (uint32_t j = 0; j < size / 8; j++)
                    *(float2 *)(void *)(to + 8 * j) = make_float2(acc[j][2 * i], acc[j][2 * i + 1]);
            }
    }
    if (lane % 4 == 0)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            desk->m[warp * 16 + lane / 4 + 8 * i] = m[i];
            desk->l[warp * 16 + lane / 4 + 8 * i] = l[i];
        }
    __syncthreads();
}

/* What the blocks of a span have in one place, joined; *most: their largest score. */
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

/* The span joins the row. */
template <uint32_t size>
EXACT_INLINE void fast_decode_fold(const kernel_place *at, const fast_decode_desk *desk) {
#pragma unroll 1
    for (uint32_t place = at->thread; place < desk->group * size; place += FAST_ATTEND_THREADS) {
        float most, own = desk->row_m[place / size];
        float next =
            fast_span(desk->m, place / size, desk->acc + place / size * (size + 4) + place % size,
                      FAST_KEY_BYTES(size) / 4, &most);
        fast_joint joint = fast_join(&own, most);
        desk->total[place] = fast_joined(&joint, desk->total[place], next);
    }
    __syncthreads();
    if (at->thread < desk->group) {
        float most, next = fast_span(desk->m, at->thread, desk->l + at->thread, 16, &most);
        fast_joint joint = fast_join(&desk->row_m[at->thread], most);
        desk->row_l[at->thread] = fast_joined(&joint, desk->row_l[at->thread], next);
    }
    __syncthreads();
}

/* The span for whoever comes last, who joins all of them; false: another one. */
template <uint32_t size>
EXACT_INLINE bool fast_decode_join(const fast_attend_call *call, const kernel_place *at,
                                   const fast_decode_desk *desk) {
    uint64_t stride = 16 + size, head_stride = call->splits * stride;
    float *parts = call->part + ((uint64_t)desk->row * call->heads + desk->head0) * head_stride;
    float *part = parts + at->z * stride;
    for (uint32_t place = at->thread; place < desk->group * size; place += FAST_ATTEND_THREADS)
        part[place / size * head_stride + 16 + place % size] = desk->total[place];
    if (at->thread < desk->group) {
        part[at->thread * head_stride] = desk->row_m[at->thread];
        part[at->thread * head_stride + 1] = desk->row_l[at->thread];
    }
    __threadfence();
    __syncthreads();
    if (at->thread == 0) {
        uint32_t *counter = call->arrived + (uint64_t)desk->row * call->heads + desk->head0;
        *desk->last = atomicAdd(counter, 1u) == desk->to - desk->from;
        __threadfence();
        if (*desk->last)
            *counter = 0;
    }
    __syncthreads();
    if (!*desk->last)
        return false;
#pragma unroll 1
    for (uint32_t place = at->thread; place < desk->group * size; place += FAST_ATTEND_THREADS) {
        float m = FAST_NOTHING, acc = 0.0f, l = 0.0f;
        for (uint32_t z = desk->from; z <= desk->to; z++) {
            const float *own = parts + place / size * head_stride + z * stride;
            fast_joint joint = fast_join(&m, load_fresh(own));
            acc = fast_joined(&joint, acc, load_fresh(own + 16 + place % size));
            l = fast_joined(&joint, l, load_fresh(own + 1));
        }
        desk->total[place] = acc;
        if (place % size == 0)
            desk->row_l[place / size] = l;
    }
    __syncthreads();
    return true;
}

template <uint32_t size, bool brain>
static __device__ void fast_decode_heads(const fast_attend_call *call, const kernel_place *at) {
    fast_decode_desk desk;
    fast_decode_open<size>(call, at, &desk);
    bool split = call->splits > 1;
    place_let_next();
    if (split && (at->z < desk.from || at->z > desk.to))
        return;
    uint32_t span = split ? at->z : desk.from, stop = split ? at->z : desk.to;
    /* Blocks that no row of this step writes are copied before it is there. */
    uint32_t behind = (span * FAST_BLOCKS + desk.warp + 1) * FAST_BLOCK;
    uint32_t new_rows = call->positions ? 0 : call->rows; /* what it writes itself comes later */
    bool copied = behind + new_rows <= desk.end[0] + (call->positions ? FAST_BLOCK - 1 : 0) &&
                  behind > desk.begin[0];
    if (copied)
        fast_decode_copy<size>(call, at, &desk, span * FAST_BLOCKS + desk.warp);
    place_wait();
    uint32_t q[size / 16][4], rows[2] = {desk.row, desk.row};
    uint32_t heads[2] = {desk.head0 + desk.lane / 4, desk.head0 + desk.lane / 4 + 8};
    bool there[2] = {desk.lane / 4 < desk.group, desk.lane / 4 + 8 < desk.group};
    if (call->positions) {
        const uint8_t *near = (const uint8_t *)(const void *)at->shared;
        uint32_t none[2] = {0, 0}, own[2] = {desk.lane / 4, desk.lane / 4 + 8};
        fast_decode_positions<size>(call, at, &desk);
        fast_queries<size, true>(
            (const uint16_t *)(const void *)(near + fast_decode_room<size>::queries), 0, desk.lane,
            none, own, there, q);
    } else {
        fast_queries<size, false>((const uint16_t *)(const void *)call->query, call->heads,
                                  desk.lane, rows, heads, there, q);
    }
    if (at->thread < 16) {
        desk.row_m[at->thread] = FAST_NOTHING;
        desk.row_l[at->thread] = 0.0f;
    }
    for (; span <= stop; span++) {
        uint32_t block = span * FAST_BLOCKS + desk.warp;
        bool seen = block * FAST_BLOCK < desk.end[0] && (block + 1) * FAST_BLOCK > desk.begin[0];
        if (seen && !copied)
            fast_decode_copy<size>(call, at, &desk, block);
        copied = false;
        fast_decode_block<size, brain>(call, at, &desk, q, block, seen);
        fast_decode_fold<size>(at, &desk);
    }
    if (split && desk.to > desk.from && !fast_decode_join<size>(call, at, &desk))
        return;
    for (uint32_t place = 2 * at->thread; place < desk.group * size;
         place += 2 * FAST_ATTEND_THREADS) {
        float factor = 1.0f / desk.row_l[place / size];
        fast_attended(call, desk.row, desk.head0 + place / size, place % size,
                      desk.total[place] * factor, desk.total[place + 1] * factor);
    }
}

/* ---- Many rows ---- */

template <uint32_t size> struct fast_attend_room {
    enum {
        stage = FAST_KEY_BYTES(size) + FAST_VALUE_BYTES(size),
        acc = 2 * stage /* of the rows so far: [warp][size / 2 of a lane][32] */
    };
};

typedef struct fast_attend_desk {
    uint32_t warp, lane, first, count; /* rows */
    uint32_t table, pages, lowest, highest;
    uint32_t row[2], head[2], begin[2], end[2];
    bool there[2];
    uint32_t warp_begin, warp_end;
    float *kept; /* the lane's */
} fast_attend_desk;

template <uint32_t size>
EXACT_INLINE void fast_attend_open(const fast_attend_call *call, const kernel_place *at,
                                   fast_attend_desk *desk) {
    uint32_t group = call->heads / call->kv_heads, ignored;
    uint32_t tile = call->tiles - 1 - at->y; /* the longest first */
    desk->warp = at->thread / 32;
    desk->lane = at->thread % 32;
    desk->first = call->tile[2 * tile];
    desk->count = call->tile[2 * tile + 1];
    desk->table = call->kv.row_pages[desk->first];
    fast_sees(call, desk->first, &desk->lowest, &ignored);
    fast_sees(call, desk->first + desk->count - 1, &ignored, &desk->highest);
    desk->pages = (desk->highest - 1) / CALL_PAGE + 1;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t pair = desk->warp * 16 + desk->lane / 4 + 8 * i;
        desk->row[i] = desk->first + pair / group;
        desk->head[i] = at->x * group + pair % group;
        desk->there[i] = pair < desk->count * group;
        desk->begin[i] = desk->end[i] = 0;
        if (desk->there[i])
            fast_sees(call, desk->row[i], &desk->begin[i], &desk->end[i]);
    }
    uint32_t end = desk->end[0] > desk->end[1] ? desk->end[0] : desk->end[1];
    uint32_t first = desk->first + desk->warp * 16 / group;
    desk->warp_end = __reduce_max_sync(0xffffffffu, end);
    fast_sees(call, first < desk->first + desk->count ? first : desk->first, &desk->warp_begin,
              &ignored);
    desk->kept = (float *)(void *)((uint8_t *)(void *)at->shared + fast_attend_room<size>::acc) +
                 desk->warp * 32 * (size / 2) + desk->lane;
}

template <uint32_t size>
EXACT_INLINE void fast_attend_copy(const fast_attend_call *call, const kernel_place *at,
                                   const fast_attend_desk *desk, uint32_t block, uint32_t to) {
    fast_copy_keys<size>(call, desk->table, at->x, block, desk->pages, at->thread,
                         FAST_ATTEND_THREADS, to);
    fast_copy_values<size>(call, desk->table, at->x, block, desk->pages, desk->highest, at->thread,
                           FAST_ATTEND_THREADS, to + FAST_KEY_BYTES(size));
    copy_mark(at);
}

/* A state of the lane's two rows. */
template <uint32_t size> struct fast_rows_state { float m[2], l[2], acc[size / 8][4]; };

template <uint32_t size>
EXACT_INLINE void fast_rows_join(fast_rows_state<size> *to, const float *m, const float *l,
                                 const float (*acc)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        fast_joint joint = fast_join(&to->m[i], m[i]);
        to->l[i] = fast_joined(&joint, to->l[i], l[i]);
#pragma unroll
        for (uint32_t j = 0; j < size / 4; j++) {
            float *own = &to->acc[j / 2][2 * i + j % 2];
            *own = fast_joined(&joint, *own, acc[j / 2][2 * i + j % 2]);
        }
    }
}

/* The span joins the rows so far, whose acc lies in shared memory, and is empty then. */
template <uint32_t size>
EXACT_INLINE void fast_rows_keep(const fast_attend_desk *desk, fast_rows_state<size> *span,
                                 float *total_m, float *total_l) {
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        bool begun = total_m[i] != FAST_NOTHING;
        fast_joint joint = fast_join(&total_m[i], span->m[i]);
        total_l[i] = fast_joined(&joint, total_l[i], span->l[i]);
#pragma unroll
        for (uint32_t j = 0; j < size / 4; j++) {
            float *own = desk->kept + (j * 2 + i) * 32, *next = &span->acc[j / 2][2 * i + j % 2];
            *own = fast_joined(&joint, begun ? *own : 0.0f, *next);
            *next = 0.0f;
        }
        span->m[i] = FAST_NOTHING;
        span->l[i] = 0.0f;
    }
}

template <uint32_t size, bool brain>
EXACT_INLINE void fast_rows_block(const fast_attend_call *call, const fast_attend_desk *desk,
                                  const uint32_t (*q)[4], uint32_t block, uint32_t stage,
                                  fast_rows_state<size> *span) {
    float s[8][4], acc[size / 8][4], m[2], l[2];
    if (block * FAST_BLOCK >= desk->warp_end || (block + 1) * FAST_BLOCK <= desk->warp_begin)
        return;
    fast_scores<size, brain>(q, stage, desk->lane, s);
    fast_weigh(call, block * FAST_BLOCK, desk->lane, desk->begin, desk->end, s, m, l);
    fast_values<size, brain>(s, stage + FAST_KEY_BYTES(size), desk->lane, acc);
    fast_rows_join<size>(span, m, l, acc);
}

template <uint32_t size, bool brain>
static __device__ void fast_attend_rows(const fast_attend_call *call, const kernel_place *at) {
    typedef fast_attend_room<size> room;
    fast_attend_desk desk;
    place_let_next();
    place_wait();
    fast_attend_open<size>(call, at, &desk);
    uint32_t block = desk.lowest / FAST_BLOCK, stop = (desk.highest - 1) / FAST_BLOCK;
    uint32_t stages = card_shared(at->shared), q[size / 16][4];
    fast_attend_copy<size>(call, at, &desk, block, stages);
    fast_queries<size, false>((const uint16_t *)(const void *)call->query, call->heads, desk.lane,
                              desk.row, desk.head, desk.there, q);
    float total_m[2] = {FAST_NOTHING, FAST_NOTHING}, total_l[2] = {0.0f, 0.0f};
    fast_rows_state<size> span = {{FAST_NOTHING, FAST_NOTHING}, {0.0f, 0.0f}, {{0.0f}}};
    for (uint32_t number = 0; block <= stop; block++, number ^= 1) {
        COPY_WAIT(at, 0);
        __syncthreads();
        if (block < stop)
            fast_attend_copy<size>(call, at, &desk, block + 1, stages + (number ^ 1) * room::stage);
        fast_rows_block<size, brain>(call, &desk, q, block, stages + number * room::stage, &span);
        if (block % FAST_BLOCKS == FAST_BLOCKS - 1 || block == stop)
            fast_rows_keep<size>(&desk, &span, total_m, total_l);
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        if (!desk.there[i])
            continue;
        float factor = 1.0f / total_l[i];
#pragma unroll
        for (uint32_t j = 0; j < size / 8; j++)
            fast_attended(call, desk.row[i], desk.head[i], 8 * j + desk.lane % 4 * 2,
                          desk.kept[(2 * j * 2 + i) * 32] * factor,
                          desk.kept[((2 * j + 1) * 2 + i) * 32] * factor);
    }
}

#endif
#endif
