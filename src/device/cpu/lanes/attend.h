/* Attention over pages in 16 lanes, as device/cpu/attention.h says. An ISA folder includes it
 * behind its vec16.h and its quad_… functions (products of bytes) with ATTEND_TILE_ROWS     rows
 * whose sums a product keeps in registers ATTEND_TILE_VECTORS  vectors of each ATTEND_BLOCK rows
 * that go past a page together
 *
 * Per page and block of rows: scores = q · K (lane = position), weights, acc += weights · V (lane =
 * dimension). Up to ATTEND_BLOCK rows (a decoded token with its group of heads) read tiles as they
 * are stored, and fetch the next page while they compute; with more rows a tile is turned into
 * floats once, and INT8 is never turned into floats at all. Of a page that only some rows see, or
 * see in part, keys are multiplied where any row sees, values where each row sees.
 *
 * Measured by `avocet bench --kernels --op attention`; docs/kernels.md has the table. */
#ifndef AVO_DEVICE_CPU_LANES_ATTEND_H
#define AVO_DEVICE_CPU_LANES_ATTEND_H

#include "device/cpu/lanes/attend_weigh.h"

#define ATTEND_AHEAD 1 /* pages that are fetched before they are read, into the second cache */

/* ---- The query: floats; INT8: words of bytes, then scale and offset ---- */

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
    _Alignas(64) uint8_t bytes[KV_HEAD_SIZE_MAX];
    float scale;
    lanes_int8_encode(x, head_size, bytes, &scale);
    scale *= factor;
    int32_t offset = quad_query(bytes, (head_size + 3) / 4, (uint32_t *)(void *)out);
    memcpy(out + lanes_query_tail(head_size), &scale, sizeof(scale));
    memcpy(out + lanes_query_tail(head_size) + 4, &offset, sizeof(offset));
}

/* ---- A block of rows past one page ---- */

static inline attend_room lanes_room(const attend_call *call) {
    attend_room room;
    float *at = (float *)(void *)call->scratch;
    room.keys = at;
    room.values = at += kv_tile_floats(call->head_size);
    room.scores = at += kv_tile_floats(call->head_size);
    room.sums = at += ATTEND_ROWS_MAX * KV_PAGE_TOKENS;
    room.words = (uint32_t *)(void *)(at += ATTEND_ROWS_MAX * LANES);
    room.largest = at + ATTEND_ROWS_MAX * LANES;
    return room;
}

/* One page as the products read it. */
typedef struct attend_page {
    const uint8_t *keys, *values; /* tiles: as stored, or as floats */
    const float *key_scale, *value_scale;
    const uint8_t *next_keys, *next_values; /* to be fetched; NULL: nothing */
    uint32_t first;                         /* position */
} attend_page;

/* Rows [row, row + rows); positions that any of them sees, and that all of them see. */
typedef struct attend_block {
    uint32_t row, rows;
    uint32_t any_begin, any_end, all_begin, all_end;
} attend_block;

/* type: of the page's scales and of the query; stored: of the tiles. */
ALWAYS_INLINE void lanes_keys(const kv_type type, const kv_type stored, const attend_call *call,
                              const attend_room *room, const attend_page *page,
                              const attend_block *block, slots any) {
    size_t query_stride = attend_query_stride(call->head_size);
    bool bytes = type == KV_INT8;
    product_call keys = {.a = call->query + block->row * query_stride,
                         .a_stride = query_stride,
                         .steps = bytes ? (call->head_size + 3) / 4 : call->head_size,
                         .tile = page->keys,
                         .line = bytes ? KV_PAGE_TOKENS * 4 : KV_PAGE_TOKENS,
                         .first = any.begin / LANES,
                         .last = (any.end + LANES - 1) / LANES,
                         .c = room->scores + block->row * KV_PAGE_TOKENS,
                         .c_stride = KV_PAGE_TOKENS,
                         .ahead = page->next_keys};
    if (bytes)
        product_keys(block->rows, &keys);
    else
        product_of(stored, block->rows, &keys);
}

static void lanes_values_int8(const attend_call *call, const attend_room *room,
                              const attend_page *page, const attend_block *block) {
    size_t stride = kv_value_stride(call->head_size);
    float scale[ATTEND_BLOCK + WEIGH_ROWS - 1];
    lanes_weights_to_bytes(room, block->row, block->row + block->rows, scale);
    product_call values = {.a = (const uint8_t *)(room->words + block->row * LANES),
                           .a_stride = PRODUCT_WORDS_STRIDE,
                           .steps = KV_PAGE_TOKENS / 4,
                           .tile = page->values,
                           .line = stride * 4,
                           .last = (uint32_t)(stride / LANES),
                           .c = call->state + block->row * call->state_stride,
                           .c_stride = call->state_stride,
                           .scale = scale,
                           .ahead = page->next_values};
    product_values(block->rows, &values);
}

/* Rows of the block from `row` on, over some slots. */
ALWAYS_INLINE void lanes_values(const kv_type stored, const attend_call *call,
                                const attend_room *room, const attend_page *page, uint32_t row,
                                uint32_t rows, slots some, const uint8_t *ahead) {
    if (some.begin >= some.end)
        return;
    size_t stride = kv_value_stride(call->head_size);
    const float *weights = room->scores + row * KV_PAGE_TOKENS + some.begin;
    product_call values = {.a = (const uint8_t *)weights,
                           .a_stride = KV_PAGE_TOKENS * sizeof(float),
                           .steps = some.end - some.begin,
                           .tile = page->values + some.begin * stride * kv_element_bytes(stored),
                           .line = stride,
                           .last = (uint32_t)(stride / LANES),
                           .c = call->state + row * call->state_stride,
                           .c_stride = call->state_stride,
                           .add = true,
                           .ahead = ahead};
    product_of(stored, rows, &values);
}

/* All rows see the whole page. */
ALWAYS_INLINE void lanes_inner(const kv_type type, const kv_type stored, const attend_call *call,
                               const attend_room *room, const attend_page *page,
                               const attend_block *block) {
    const slots whole = {0, KV_PAGE_TOKENS};
    lanes_keys(type, stored, call, room, page, block, whole);
    for (uint32_t r = block->row; r < block->row + block->rows; r++)
        lanes_weigh(type, false, call, room, page->key_scale, page->value_scale, r, whole);
    if (type == KV_INT8)
        lanes_values_int8(call, room, page, block);
    else
        lanes_values(stored, call, room, page, block->row, block->rows, whole, page->next_values);
}

/* Values are added over the slots that each row sees, and over no other: what lies there may be
 * infinite or no number. Slots that all rows see go through the tile together; those that only some
 * see, at both ends, row by row. */
ALWAYS_INLINE void lanes_border(const kv_type type, const kv_type stored, const attend_call *call,
                                const attend_room *room, const attend_page *page,
                                const attend_block *block) {
    lanes_keys(type, stored, call, room, page, block,
               lanes_seen(block->any_begin, block->any_end, page->first));
    slots seen[ATTEND_BLOCK];
    for (uint32_t r = 0; r < block->rows; r++) {
        uint32_t row = block->row + r;
        seen[r] = lanes_seen(call->begin[row], call->end[row], page->first);
        lanes_weigh(type, true, call, room, page->key_scale, page->value_scale, row, seen[r]);
    }
    if (type == KV_INT8) { /* weights of 0 times integers */
        lanes_values_int8(call, room, page, block);
        return;
    }
    slots all = {0, 0};
    if (block->all_begin < block->all_end)
        all = lanes_seen(block->all_begin, block->all_end, page->first);
    for (uint32_t r = 0; r < block->rows; r++) {
        slots before = {seen[r].begin, seen[r].end < all.begin ? seen[r].end : all.begin};
        lanes_values(stored, call, room, page, block->row + r, 1, before, NULL);
    }
    lanes_values(stored, call, room, page, block->row, block->rows, all, page->next_values);
    for (uint32_t r = 0; r < block->rows; r++) {
        slots behind = {seen[r].begin > all.end ? seen[r].begin : all.end, seen[r].end};
        lanes_values(stored, call, room, page, block->row + r, 1, behind, NULL);
    }
}

/* ---- The walk over pages ---- */

#define ATTEND_BLOCKS ((ATTEND_ROWS_MAX + ATTEND_BLOCK - 1) / ATTEND_BLOCK)

static inline uint32_t lanes_blocks(const attend_call *call, attend_block *blocks) {
    uint32_t count = 0;
    for (uint32_t row = 0; row < call->rows; row += ATTEND_BLOCK) {
        attend_block *block = &blocks[count++];
        uint32_t rest = call->rows - row;
        *block = (attend_block){.row = row,
                                .rows = rest < ATTEND_BLOCK ? rest : ATTEND_BLOCK,
                                .any_begin = UINT32_MAX,
                                .all_end = UINT32_MAX};
        for (uint32_t r = row; r < row + block->rows; r++) {
            uint32_t begin = call->begin[r];
            uint32_t end = call->end[r];
            block->any_begin = begin < block->any_begin ? begin : block->any_begin;
            block->any_end = end > block->any_end ? end : block->any_end;
            block->all_begin = begin > block->all_begin ? begin : block->all_begin;
            block->all_end = end < block->all_end ? end : block->all_end;
        }
    }
    return count;
}

ALWAYS_INLINE void lanes_block(const kv_type type, const kv_type stored, const attend_call *call,
                               const attend_room *room, const attend_page *page,
                               const attend_block *block) {
    uint32_t end = page->first + KV_PAGE_TOKENS;
    if (block->all_begin <= page->first && block->all_end >= end)
        lanes_inner(type, stored, call, room, page, block);
    else
        lanes_border(type, stored, call, room, page, block);
}

ALWAYS_INLINE attend_page lanes_page(const kv_type type, const attend_call *call, uint32_t number) {
    uint32_t size = call->head_size;
    const uint8_t *head = call->head + call->pages[number] * call->page_bytes;
    attend_page page = {.keys = head,
                        .values = head + kv_value_offset(type, size),
                        .first = number * KV_PAGE_TOKENS};
    page.key_scale = (const float *)(const void *)(head + kv_key_bytes(type, size));
    page.value_scale = (const float *)(const void *)(page.values + kv_value_bytes(type, size));
    if (number + ATTEND_AHEAD < call->pages_end) {
        page.next_keys = call->head + call->pages[number + ATTEND_AHEAD] * call->page_bytes;
        page.next_values = page.next_keys + kv_value_offset(type, size);
        if (kv_type_scaled(type)) { /* the products fetch tiles alone */
            const uint8_t *key_scales = page.next_keys + kv_key_bytes(type, size);
            const uint8_t *value_scales = page.next_values + kv_value_bytes(type, size);
            attend_fetch(key_scales);
            attend_fetch(key_scales + 64);
            attend_fetch(value_scales);
            attend_fetch(value_scales + 64);
        }
    }
    return page;
}

ALWAYS_INLINE void lanes_tile_to_floats(const kv_type type, const uint8_t *tile, size_t count,
                                        float *out) {
    for (size_t i = 0; i < count; i += LANES)
        v_store(out + i, tile_load(type, tile, i));
}

ALWAYS_INLINE void lanes_pages(const kv_type type, const attend_call *call,
                               const attend_room *room) {
    uint32_t size = call->head_size;
    bool unpack = type != KV_F32 && type != KV_INT8 && call->rows > ATTEND_BLOCK;
    attend_block blocks[ATTEND_BLOCKS];
    uint32_t count = lanes_blocks(call, blocks);
    for (uint32_t number = call->first_page; number <= call->last_page; number++) {
        attend_page page = lanes_page(type, call, number);
        if (unpack) {
            lanes_tile_to_floats(type, page.keys, (size_t)size * KV_PAGE_TOKENS, room->keys);
            lanes_tile_to_floats(type, page.values, kv_tile_floats(size), room->values);
            page.keys = (const uint8_t *)room->keys;
            page.values = (const uint8_t *)room->values;
        }
        for (uint32_t i = 0; i < count; i++) {
            const attend_block *block = &blocks[i];
            if (block->any_begin >= page.first + KV_PAGE_TOKENS || block->any_end <= page.first)
                continue;
            if (unpack)
                lanes_block(type, KV_F32, call, room, &page, block);
            else
                lanes_block(type, type, call, room, &page, block);
            page.next_keys = page.next_values = NULL;
        }
    }
}

static void lanes_attend(const attend_call *call) {
    attend_room room = lanes_room(call);
    size_t stride = kv_value_stride(call->head_size);
    memset(room.sums, 0, call->rows * LANES * sizeof(float));
    for (uint32_t row = 0; row < call->rows; row++) {
        memset(call->state + row * call->state_stride, 0, stride * sizeof(float));
        room.largest[row] = ATTEND_EMPTY;
    }
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
        float *state = call->state + row * call->state_stride;
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
