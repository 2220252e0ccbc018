/* Attention over pages in 16 lanes, as kernels/attention.h says. An ISA folder includes it behind
 * its vec16.h and its quad_… functions (products of bytes) with
 *   ATTEND_TILE_ROWS     rows whose sums a product keeps in registers
 *   ATTEND_TILE_VECTORS  vectors of each
 *
 * Rows go in blocks of ATTEND_BLOCK past every page: scores = q · K (lane = position), weights,
 * acc += weights · V (lane = dimension). Both products are the same loop: a line of the tile times
 * one number of each row. Up to ATTEND_BLOCK rows (a decoded token with its group of heads) read
 * tiles as they are stored, and fetch the next page while they compute; with more rows a tile is
 * turned into floats once, and INT8 is never turned into floats at all. */
#ifndef AVO_KERNELS_LANES_ATTEND_H
#define AVO_KERNELS_LANES_ATTEND_H

#include "kernels/lanes/position.h"

#define ATTEND_BLOCK  8
#define ATTEND_AHEAD  1 /* pages that are fetched before they are read, into the second cache */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static inline void attend_fetch(const uint8_t *line) {
    __builtin_prefetch(line, 0, 2);
}

/* ---- exp2 ---- */

static inline vec16 lanes_exp2(vec16 x) {
    vec16 low = v_set(ATTEND_EXP2_LOW);
    vec16 round = v_set(ATTEND_EXP2_ROUND);
    vec16 y = v_max(low, x); /* NaN stays */
    vec16 sum = v_add(y, round);
    vec16 r = v_sub(y, v_sub(sum, round));
    vec16 p = v_fma(v_set(ATTEND_EXP2_5), r, v_set(ATTEND_EXP2_4));
    p = v_fma(p, r, v_set(ATTEND_EXP2_3));
    p = v_fma(p, r, v_set(ATTEND_EXP2_2));
    p = v_fma(p, r, v_set(ATTEND_EXP2_1));
    p = v_fma(p, r, v_set(1.0f));
    vec16 result = v_mul(p, v_from_bits(iv_shift_left(v_bits(sum), 23)));
    return v_select(v_less(x, low), v_zero(), result);
}

static inline float lanes_exp2_one(float x) {
    float lane[LANES];
    v_store(lane, lanes_exp2(v_set(x)));
    return lane[0];
}

/* ---- The query: floats; INT8: words of bytes, then scale and offset ---- */

static inline size_t lanes_query_tail(uint32_t head_size) {
    return attend_query_stride(head_size) - 64;
}

static void lanes_attend_query(kv_type type, uint32_t head_size, float factor, const float *x,
                               uint8_t *query, uint32_t row) {
    uint8_t *out = query + row * attend_query_stride(head_size);
    if (type != KV_INT8) {
        float *floats = (float *)(void *)out;
        vec16 c = v_set(factor);
        for (uint32_t i = 0; i < head_size; i += LANES) {
            size_t part = head_size - i < LANES ? head_size - i : LANES;
            v_store(floats + i, v_mul(v_load_part(x + i, part), c));
        }
        return;
    }
    _Alignas(64) uint8_t bytes[LANES_HEAD_MAX];
    float scale;
    lanes_int8_encode(x, head_size, bytes, &scale);
    scale *= factor;
    int32_t offset = quad_query(bytes, (head_size + 3) / 4, (uint32_t *)(void *)out);
    memcpy(out + lanes_query_tail(head_size), &scale, sizeof(scale));
    memcpy(out + lanes_query_tail(head_size) + 4, &offset, sizeof(offset));
}

/* ---- Products ---- */

/* 16 numbers of a tile from element `at` on. */
ALWAYS_INLINE vec16 tile_load(const kv_type type, const uint8_t *tile, size_t at) {
    switch (type) {
    case KV_F16:
        return v_load_f16((const uint16_t *)(const void *)tile + at);
    case KV_BF16:
        return v_load_bf16((const uint16_t *)(const void *)tile + at);
    case KV_FP8:
        return v_load_fp8(tile + at);
    default:
        return v_load((const float *)(const void *)tile + at);
    }
}

typedef struct product_call {
    const uint8_t *a; /* floats, or words of bytes */
    size_t a_stride;  /* bytes between rows */
    uint32_t steps;
    const uint8_t *tile;
    size_t line;    /* elements (INT8: bytes) between steps */
    uint32_t lanes; /* vectors of a line */
    float *c;       /* [rows][c_stride]; INT8: int32_t in place of floats */
    size_t c_stride;
    bool add;             /* to what is in c, else from 0 */
    const uint8_t *ahead; /* a line of 64 bytes is fetched from here on with every step; or NULL */
} product_call;

/* c[row][vector] += Σ_step a[row][step] · tile[step][vector], steps ascending. */
ALWAYS_INLINE void product_float(const kv_type type, const uint32_t rows, const uint32_t vectors,
                                 const product_call *call, uint32_t row, uint32_t vector) {
    vec16 sum[ATTEND_TILE_ROWS][ATTEND_TILE_VECTORS];
    float *c = call->c + row * call->c_stride + (size_t)vector * LANES;
    const uint8_t *a = call->a + row * call->a_stride;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            sum[r][v] = call->add ? v_load(c + r * call->c_stride + v * LANES) : v_zero();
    size_t at = (size_t)vector * LANES;
    const uint8_t *ahead = call->ahead;
    for (uint32_t step = 0; step < call->steps; step++, at += call->line) {
        vec16 line[ATTEND_TILE_VECTORS];
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            line[v] = tile_load(type, call->tile, at + v * LANES);
        if (ahead != NULL)
            attend_fetch(ahead + (size_t)step * 64);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vec16 x = v_set(((const float *)(const void *)(a + r * call->a_stride))[step]);
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++)
                sum[r][v] = v_fma(line[v], x, sum[r][v]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            v_store(c + r * call->c_stride + v * LANES, sum[r][v]);
}

/* The same over bytes, four steps in a word; `keys`: the tile is signed and a signed too, else a is
 * unsigned. c holds int32_t; with `add` it begins at a row's offset (its first element). */
ALWAYS_INLINE void product_bytes(const bool keys, const uint32_t rows, const uint32_t vectors,
                                 const product_call *call, uint32_t row, uint32_t vector) {
    ivec16 sum[ATTEND_TILE_ROWS][ATTEND_TILE_VECTORS];
    const uint8_t *a = call->a + row * call->a_stride;
    int32_t *c = (int32_t *)(void *)call->c + row * call->c_stride + (size_t)vector * LANES;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
        int32_t offset = 0;
        if (keys)
            memcpy(&offset, a + r * call->a_stride + call->a_stride - 64 + 4, sizeof(offset));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            sum[r][v] = iv_set(offset);
    }
    const uint8_t *tile = call->tile + (size_t)vector * 64;
    const uint8_t *ahead = call->ahead;
    for (uint32_t step = 0; step < call->steps; step++, tile += call->line) {
        quad_line line[ATTEND_TILE_VECTORS];
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            line[v] = quad_load(keys, tile + (size_t)v * 64);
        if (ahead != NULL) {
            attend_fetch(ahead + (size_t)step * 64 * vectors);
            if (vectors > 1)
                attend_fetch(ahead + (size_t)step * 64 * vectors + 64);
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            quad_word word =
                quad_broadcast((const uint32_t *)(const void *)(a + r * call->a_stride), step);
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++)
                sum[r][v] = quad_add(keys, sum[r][v], line[v], word);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++)
            iv_store(c + r * call->c_stride + v * LANES, sum[r][v]);
}

typedef enum tile_kind { TILE_FLOAT, TILE_KEYS, TILE_VALUES } tile_kind;

ALWAYS_INLINE void product_tile(const tile_kind kind, const kv_type type, const uint32_t rows,
                                const product_call *call, uint32_t row) {
    product_call pass = *call;
    uint32_t vector = 0;
    for (; vector + ATTEND_TILE_VECTORS <= call->lanes; vector += ATTEND_TILE_VECTORS) {
        if (kind == TILE_FLOAT)
            product_float(type, rows, ATTEND_TILE_VECTORS, &pass, row, vector);
        else
            product_bytes(kind == TILE_KEYS, rows, ATTEND_TILE_VECTORS, &pass, row, vector);
        if (pass.ahead != NULL)
            pass.ahead += (size_t)call->steps * 64 * (kind == TILE_FLOAT ? 1 : ATTEND_TILE_VECTORS);
    }
    for (; ATTEND_TILE_VECTORS > 1 && vector < call->lanes; vector++) {
        if (kind == TILE_FLOAT)
            product_float(type, rows, 1, &pass, row, vector);
        else
            product_bytes(kind == TILE_KEYS, rows, 1, &pass, row, vector);
    }
}

/* All of up to ATTEND_BLOCK rows, as many at a time as there are registers for. */
ALWAYS_INLINE void product(const tile_kind kind, const kv_type type, uint32_t rows,
                           const product_call *call) {
    product_call pass = *call;
    for (uint32_t row = 0; row < rows;) {
        uint32_t count = rows - row < ATTEND_TILE_ROWS ? rows - row : ATTEND_TILE_ROWS;
        switch (count) {
        case 1:
            product_tile(kind, type, 1, &pass, row);
            break;
        case 2:
            product_tile(kind, type, 2, &pass, row);
            break;
        case 3:
            product_tile(kind, type, 3, &pass, row);
            break;
        case 4:
            product_tile(kind, type, 4, &pass, row);
            break;
        case 5:
            if (ATTEND_TILE_ROWS >= 5)
                product_tile(kind, type, 5, &pass, row);
            break;
        case 6:
            if (ATTEND_TILE_ROWS >= 6)
                product_tile(kind, type, 6, &pass, row);
            break;
        case 7:
            if (ATTEND_TILE_ROWS >= 7)
                product_tile(kind, type, 7, &pass, row);
            break;
        default:
            if (ATTEND_TILE_ROWS >= 8)
                product_tile(kind, type, 8, &pass, row);
            break;
        }
        pass.ahead = NULL;
        row += count;
    }
}

/* ---- The walk over pages ---- */

/* Parts of the scratch. */
typedef struct attend_room {
    float *keys, *values; /* tiles as floats */
    float *scores;        /* [rows][32], then weights */
    float *acc;           /* [rows][stride] */
    float *sums;          /* [rows][16] */
    float *largest;       /* [rows] */
    uint32_t *words;      /* [rows][16] weights as bytes */
    int32_t *integer;     /* [ATTEND_BLOCK][stride], over `keys` */
} attend_room;

static inline attend_room lanes_room(const attend_call *call) {
    attend_room room;
    size_t stride = kv_value_stride(call->head_size);
    float *at = (float *)(void *)call->scratch;
    room.keys = at;
    room.integer = (int32_t *)(void *)at; /* INT8 has no keys in floats */
    room.values = at += kv_tile_floats(call->head_size);
    room.scores = at += kv_tile_floats(call->head_size);
    room.acc = at += ATTEND_ROWS_MAX * KV_PAGE_TOKENS;
    room.sums = at += ATTEND_ROWS_MAX * stride;
    room.words = (uint32_t *)(void *)(at += ATTEND_ROWS_MAX * LANES);
    room.largest = at + ATTEND_ROWS_MAX * LANES;
    return room;
}

/* What a row sees of a page. */
typedef struct slots {
    uint32_t begin, end;
} slots;

static inline slots lanes_seen(const attend_call *call, uint32_t row, uint32_t first) {
    slots seen = {0, 0};
    if (call->begin[row] < first + KV_PAGE_TOKENS && call->end[row] > first) {
        seen.begin = call->begin[row] > first ? call->begin[row] - first : 0;
        seen.end =
            call->end[row] - first < KV_PAGE_TOKENS ? call->end[row] - first : KV_PAGE_TOKENS;
    }
    return seen;
}

/* Writes x into the other slots. */
static inline void lanes_unseen(slots seen, float x, float *numbers) {
    static const float index[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i += LANES) {
        vec16 slot = v_add(v_load(index), v_set((float)i));
        vec16 y = v_select(v_less(slot, v_set((float)seen.end)), v_load(numbers + i), v_set(x));
        v_store(numbers + i, v_select(v_less(slot, v_set((float)seen.begin)), v_set(x), y));
    }
}

/* Scores of one row: scale of positions, soft cap, what the row does not see. */
ALWAYS_INLINE void lanes_finish_scores(const kv_type type, const attend_call *call,
                                       const float *key_scale, uint32_t row, slots seen,
                                       float *scores) {
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i += LANES) {
        vec16 s;
        if (type == KV_INT8) {
            float scale;
            memcpy(&scale,
                   call->query + row * attend_query_stride(call->head_size) +
                       lanes_query_tail(call->head_size),
                   sizeof(scale));
            s = v_mul(v_from_int(iv_load((const int32_t *)(const void *)(scores + i))),
                      v_set(scale));
        } else {
            s = v_load(scores + i);
        }
        if (kv_type_scaled(type))
            s = v_mul(s, v_load(key_scale + i));
        if (call->softcap > 0.0f) {
            vec16 one = v_set(1.0f);
            vec16 e = lanes_exp2(v_min(v_set(ATTEND_EXP2_MAX), s)); /* NaN stays */
            vec16 t = v_sub(one, v_div(v_set(2.0f), v_add(e, one)));
            s = v_mul(v_set(call->softcap * ATTEND_LOG2E), t);
        }
        v_store(scores + i, s);
    }
    if (seen.begin > 0 || seen.end < KV_PAGE_TOKENS)
        lanes_unseen(seen, -INFINITY, scores);
}

/* Scores of one row to weights, in place. */
ALWAYS_INLINE void lanes_weigh(const kv_type type, const attend_room *room, uint32_t row,
                               size_t stride, const float *value_scale, slots seen) {
    float *scores = room->scores + row * KV_PAGE_TOKENS;
    float *sums = room->sums + row * LANES;
    vec16 s0 = v_load(scores);
    vec16 s1 = v_load(scores + LANES);
    vec16 l = v_load(sums);
    vec16 limit = v_set(room->largest[row] + ATTEND_SLACK);
    if (v_any(v_less(limit, s0)) || v_any(v_less(limit, s1))) {
        float largest = v_largest(v_max(s0, s1));
        float factor = lanes_exp2_one(room->largest[row] - largest);
        float *acc = room->acc + row * stride;
        for (size_t d = 0; d < stride; d += LANES)
            v_store(acc + d, v_mul(v_load(acc + d), v_set(factor)));
        l = v_mul(l, v_set(factor));
        room->largest[row] = largest;
    }
    vec16 m = v_set(room->largest[row]);
    vec16 p0 = lanes_exp2(v_sub(s0, m));
    vec16 p1 = lanes_exp2(v_sub(s1, m));
    v_store(sums, v_add(v_add(l, p0), p1));
    if (kv_type_scaled(type)) {
        p0 = v_mul(p0, v_load(value_scale));
        p1 = v_mul(p1, v_load(value_scale + LANES));
    }
    v_store(scores, p0);
    v_store(scores + LANES, p1);
    /* The scale of a slot that nobody may look at can be anything. */
    if (type == KV_INT8 && (seen.begin > 0 || seen.end < KV_PAGE_TOKENS))
        lanes_unseen(seen, 0.0f, scores);
}

/* Weights of one row as bytes; returns what brings the sums back, 0 where there is nothing. */
static inline float lanes_weights_to_bytes(const attend_room *room, uint32_t row) {
    const float *weights = room->scores + row * KV_PAGE_TOKENS;
    vec16 w0 = v_load(weights);
    vec16 w1 = v_load(weights + LANES);
    uint32_t bits = iv_largest_unsigned(iv_max_unsigned(v_bits(w0), v_bits(w1)));
    float largest;
    memcpy(&largest, &bits, sizeof(largest));
    if (largest < ATTEND_TINY)
        largest = 0.0f;
    vec16 factor = v_set(largest == 0.0f ? 0.0f : ATTEND_WEIGHT_MAX / largest);
    uint8_t bytes[KV_PAGE_TOKENS];
    iv_store_bytes(bytes, v_to_int(v_mul(w0, factor)));
    iv_store_bytes(bytes + LANES, v_to_int(v_mul(w1, factor)));
    quad_weights(bytes, KV_PAGE_TOKENS / 4, room->words + row * LANES);
    return largest * (1.0f / ATTEND_WEIGHT_MAX);
}

ALWAYS_INLINE void lanes_add_values_int8(const attend_call *call, const attend_room *room,
                                         uint32_t row, uint32_t rows, const uint8_t *tile,
                                         const uint8_t *ahead) {
    size_t stride = kv_value_stride(call->head_size);
    float scale[ATTEND_BLOCK];
    for (uint32_t r = 0; r < rows; r++)
        scale[r] = lanes_weights_to_bytes(room, row + r);
    product_call values = {.a = (const uint8_t *)(room->words + row * LANES),
                           .a_stride = LANES * sizeof(uint32_t),
                           .steps = KV_PAGE_TOKENS / 4,
                           .tile = tile,
                           .line = stride * 4,
                           .lanes = (uint32_t)(stride / LANES),
                           .c = (float *)(void *)room->integer,
                           .c_stride = stride,
                           .ahead = ahead};
    product(TILE_VALUES, KV_INT8, rows, &values);
    for (uint32_t r = 0; r < rows; r++) {
        float *acc = room->acc + (row + r) * stride;
        const int32_t *integer = room->integer + r * stride;
        if (scale[r] == 0.0f)
            continue;
        for (size_t d = 0; d < stride; d += LANES)
            v_store(acc + d,
                    v_fma(v_from_int(iv_load(integer + d)), v_set(scale[r]), v_load(acc + d)));
    }
}

/* One page as the products read it. */
typedef struct attend_page {
    const uint8_t *keys, *values; /* tiles: as stored, or as floats */
    const float *key_scale, *value_scale;
    const uint8_t *next_keys, *next_values; /* to be fetched; NULL: nothing */
    uint32_t first;                         /* position */
} attend_page;

/* One row over some slots. */
ALWAYS_INLINE void lanes_add_slots(const kv_type stored, const product_call *values,
                                   const uint8_t *tile, const float *weights, uint32_t row,
                                   slots some) {
    if (some.begin >= some.end)
        return;
    product_call pass = *values;
    pass.a = (const uint8_t *)(weights + some.begin);
    pass.steps = some.end - some.begin;
    pass.tile = tile + some.begin * pass.c_stride * kv_element_bytes(stored);
    pass.ahead = NULL;
    product_tile(TILE_FLOAT, stored, 1, &pass, row);
}

/* acc += weights · V over the slots that each row sees, and over no other: what lies there may be
 * infinite or no number. Slots that all rows see go through the tile together; those that only some
 * see, at both ends, row by row. */
ALWAYS_INLINE void lanes_add_values(const kv_type stored, const attend_call *call,
                                    const attend_room *room, const attend_page *page, uint32_t row,
                                    uint32_t rows, const slots *seen) {
    size_t stride = kv_value_stride(call->head_size);
    slots all = {0, KV_PAGE_TOKENS};
    for (uint32_t r = 0; r < rows; r++) {
        all.begin = seen[r].begin > all.begin ? seen[r].begin : all.begin;
        all.end = seen[r].end < all.end ? seen[r].end : all.end;
    }
    if (all.end < all.begin)
        all.end = all.begin;
    product_call values = {.a_stride = KV_PAGE_TOKENS * sizeof(float),
                           .line = stride,
                           .lanes = (uint32_t)(stride / LANES),
                           .c = room->acc + row * stride,
                           .c_stride = stride,
                           .add = true};
    const float *weights = room->scores + row * KV_PAGE_TOKENS;
    for (uint32_t r = 0; r < rows; r++)
        lanes_add_slots(stored, &values, page->values, weights, r,
                        (slots){seen[r].begin, seen[r].end < all.begin ? seen[r].end : all.begin});
    values.a = (const uint8_t *)(weights + all.begin);
    values.steps = all.end - all.begin;
    values.tile = page->values + all.begin * stride * kv_element_bytes(stored);
    values.ahead = page->next_values;
    product(TILE_FLOAT, stored, rows, &values);
    for (uint32_t r = 0; r < rows; r++)
        lanes_add_slots(stored, &values, page->values, weights, r,
                        (slots){seen[r].begin > all.end ? seen[r].begin : all.end, seen[r].end});
}

/* type: of the page's scales and of the query; stored: of the tiles. */
ALWAYS_INLINE void lanes_block(const kv_type type, const kv_type stored, const attend_call *call,
                               const attend_room *room, const attend_page *page, uint32_t row,
                               uint32_t rows) {
    size_t stride = kv_value_stride(call->head_size);
    bool bytes = type == KV_INT8;
    product_call keys = {.a = call->query + row * attend_query_stride(call->head_size),
                         .a_stride = attend_query_stride(call->head_size),
                         .steps = bytes ? (call->head_size + 3) / 4 : call->head_size,
                         .tile = page->keys,
                         .line = bytes ? KV_PAGE_TOKENS * 4 : KV_PAGE_TOKENS,
                         .lanes = KV_PAGE_TOKENS / LANES,
                         .c = room->scores + row * KV_PAGE_TOKENS,
                         .c_stride = KV_PAGE_TOKENS,
                         .ahead = page->next_keys};
    product(bytes ? TILE_KEYS : TILE_FLOAT, stored, rows, &keys);
    slots seen[ATTEND_BLOCK];
    for (uint32_t r = 0; r < rows; r++) {
        seen[r] = lanes_seen(call, row + r, page->first);
        lanes_finish_scores(type, call, page->key_scale, row + r, seen[r],
                            room->scores + (row + r) * KV_PAGE_TOKENS);
    }
    for (uint32_t r = 0; r < rows; r++)
        lanes_weigh(type, room, row + r, stride, page->value_scale, seen[r]);
    if (bytes)
        lanes_add_values_int8(call, room, row, rows, page->values, page->next_values);
    else
        lanes_add_values(stored, call, room, page, row, rows, seen);
}

ALWAYS_INLINE void lanes_tile_to_floats(const kv_type type, const uint8_t *tile, size_t count,
                                        float *out) {
    for (size_t i = 0; i < count; i += LANES)
        v_store(out + i, tile_load(type, tile, i));
}

static inline bool lanes_block_sees(const attend_call *call, uint32_t row, uint32_t rows,
                                    uint32_t first) {
    bool sees = false;
    for (uint32_t r = row; r < row + rows; r++)
        sees = sees || (call->begin[r] < first + KV_PAGE_TOKENS && call->end[r] > first);
    return sees;
}

ALWAYS_INLINE void lanes_pages(const kv_type type, const attend_call *call,
                               const attend_room *room) {
    uint32_t size = call->head_size;
    bool unpack = type != KV_F32 && type != KV_INT8 && call->rows > ATTEND_BLOCK;
    for (uint32_t number = call->first_page; number <= call->last_page; number++) {
        const uint8_t *head = call->head + call->pages[number] * call->page_bytes;
        const uint8_t *next =
            number + ATTEND_AHEAD < call->pages_end
                ? call->head + call->pages[number + ATTEND_AHEAD] * call->page_bytes
                : NULL;
        attend_page page = {.keys = head,
                            .values = head + kv_value_offset(type, size),
                            .next_keys = next,
                            .next_values = next == NULL ? NULL : next + kv_value_offset(type, size),
                            .first = number * KV_PAGE_TOKENS};
        page.key_scale = (const float *)(const void *)(head + kv_key_bytes(type, size));
        page.value_scale = (const float *)(const void *)(page.values + kv_value_bytes(type, size));
        if (kv_type_scaled(type) && next != NULL) { /* the products fetch tiles alone */
            const uint8_t *key_scales = next + kv_key_bytes(type, size);
            const uint8_t *value_scales = page.next_values + kv_value_bytes(type, size);
            attend_fetch(key_scales);
            attend_fetch(key_scales + 64);
            attend_fetch(value_scales);
            attend_fetch(value_scales + 64);
        }
        if (unpack) {
            lanes_tile_to_floats(type, page.keys, (size_t)size * KV_PAGE_TOKENS, room->keys);
            lanes_tile_to_floats(type, page.values, kv_tile_floats(size), room->values);
            page.keys = (const uint8_t *)room->keys;
            page.values = (const uint8_t *)room->values;
        }
        for (uint32_t row = 0; row < call->rows; row += ATTEND_BLOCK) {
            uint32_t rows = call->rows - row < ATTEND_BLOCK ? call->rows - row : ATTEND_BLOCK;
            if (!lanes_block_sees(call, row, rows, page.first))
                continue;
            if (unpack)
                lanes_block(type, KV_F32, call, room, &page, row, rows);
            else
                lanes_block(type, type, call, room, &page, row, rows);
            page.next_keys = page.next_values = NULL;
        }
    }
}

static void lanes_attend(const attend_call *call) {
    attend_room room = lanes_room(call);
    size_t stride = kv_value_stride(call->head_size);
    memset(room.acc, 0, call->rows * stride * sizeof(float));
    memset(room.sums, 0, call->rows * LANES * sizeof(float));
    for (uint32_t row = 0; row < call->rows; row++)
        room.largest[row] = ATTEND_EMPTY;
    switch (call->type) {
    case KV_F16:
        lanes_pages(KV_F16, call, &room);
        break;
    case KV_BF16:
        lanes_pages(KV_BF16, call, &room);
        break;
    case KV_INT8:
        lanes_pages(KV_INT8, call, &room);
        break;
    case KV_FP8:
        lanes_pages(KV_FP8, call, &room);
        break;
    default:
        lanes_pages(KV_F32, call, &room);
        break;
    }
    for (uint32_t row = 0; row < call->rows; row++) {
        float *state = call->state[row];
        memcpy(state, room.acc + row * stride, stride * sizeof(float));
        state[stride] = room.largest[row];
        state[stride + 1] = v_sum(v_load(room.sums + row * LANES));
    }
}

/* ---- Splits ---- */

static void lanes_attend_join(uint32_t head_size, const float *part, float *total) {
    size_t stride = kv_value_stride(head_size);
    float largest = total[stride] > part[stride] ? total[stride] : part[stride];
    float f = lanes_exp2_one(total[stride] - largest);
    float g = lanes_exp2_one(part[stride] - largest);
    vec16 own = v_set(f);
    vec16 other = v_set(g);
    for (size_t d = 0; d < stride; d += LANES)
        v_store(total + d, v_fma(v_load(part + d), other, v_mul(v_load(total + d), own)));
    total[stride] = largest;
    total[stride + 1] = fmaf(part[stride + 1], g, total[stride + 1] * f);
}

static void lanes_attend_finish(kv_type type, uint32_t head_size, const float *total, float *out) {
    vec16 factor = v_set(1.0f / total[kv_value_stride(head_size) + 1]);
    for (uint32_t d = 0; d < head_size; d += LANES) {
        size_t part = head_size - d < LANES ? head_size - d : LANES;
        v_store_part(out + d, v_mul(v_load(total + d), factor), part);
    }
    if (kv_type_scaled(type))
        lanes_kv_rotate(out, head_size);
}

static inline void lanes_attention(op_table *table) {
    table->rotate = lanes_rotate;
    table->kv_rotate = lanes_kv_rotate;
    table->kv_write = lanes_kv_write;
    table->attend_query = lanes_attend_query;
    table->attend = lanes_attend;
    table->attend_join = lanes_attend_join;
    table->attend_finish = lanes_attend_finish;
}

#endif
