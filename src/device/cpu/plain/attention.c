/* Attention number by number: device/cpu/attention.h in C. */
#include "base/mathf.h"
#include "device/cpu/plain/plain_int.h"

/* ---- Positions ---- */

static void plain_rotate(const rotary_table *table, const float *cosine, const float *sine,
                         float *head) {
    uint32_t pairs = table->pairs;
    for (uint32_t i = 0; i < pairs; i++) {
        float *a = table->interleaved ? head + 2 * i : head + i;
        float *b = table->interleaved ? head + 2 * i + 1 : head + i + pairs;
        float x = *a;
        float y = *b;
        *a = fmaf(-y, sine[i], x * cosine[i]);
        *b = fmaf(x, sine[i], y * cosine[i]);
    }
}

/* ---- The query: [head_size] floats; INT8: [head_size] bytes, and the scale as a float behind
 * head_size rounded up to 64 ---- */

static size_t query_scale_offset(uint32_t head_size) {
    return ((size_t)head_size + 63) / 64 * 64;
}

static void plain_attend_query(kv_type type, uint32_t head_size, float factor, const float *x,
                               uint8_t *query, uint32_t row) {
    uint8_t *out = query + row * attend_query_stride(head_size);
    if (type != KV_INT8) {
        for (uint32_t d = 0; d < head_size; d++) {
            float q = x[d] * factor;
            memcpy(out + d * sizeof(q), &q, sizeof(q));
        }
        return;
    }
    float scale;
    kv_int8_encode(x, head_size, (int8_t *)out, &scale);
    scale *= factor;
    memcpy(out + query_scale_offset(head_size), &scale, sizeof(scale));
}

/* ---- One row over one page ---- */

typedef struct row_state {
    float largest;
    float sums[16];
    float *acc; /* [head_size] */
} row_state;

static void scores_of(const attend_call *call, const uint8_t *head, const uint8_t *query,
                      float *scores) {
    uint32_t size = call->head_size;
    float key_scale[KV_PAGE_TOKENS];
    if (kv_type_scaled(call->type))
        memcpy(key_scale, head + kv_key_bytes(call->type, size), sizeof(key_scale));
    for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++) {
        float s = 0.0f;
        if (call->type == KV_INT8) {
            int32_t sum = 0;
            for (uint32_t d = 0; d < size; d++)
                sum += (int8_t)head[kv_key_place(KV_INT8, d, slot)] * (int8_t)query[d];
            float scale;
            memcpy(&scale, query + query_scale_offset(size), sizeof(scale));
            s = (float)sum * scale;
        } else {
            for (uint32_t d = 0; d < size; d++) {
                float q;
                memcpy(&q, query + d * sizeof(q), sizeof(q));
                s = fmaf(kv_number(call->type, head, kv_key_place(call->type, d, slot)), q, s);
            }
        }
        if (kv_type_scaled(call->type))
            s *= key_scale[slot];
        if (call->softcap > 0.0f)
            s = (call->softcap * ATTEND_LOG2E) *
                (1.0f - 2.0f / (exact_exp2(s > ATTEND_EXP2_MAX ? ATTEND_EXP2_MAX : s) + 1.0f));
        scores[slot] = s;
    }
}

/* Scores to p, in place. */
static void weigh(row_state *state, uint32_t size, float *scores) {
    bool over = false;
    float largest = -INFINITY;
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) {
        over = over || scores[i] > state->largest + ATTEND_SLACK;
        largest = scores[i] > largest ? scores[i] : largest;
    }
    if (over) {
        float factor = exact_exp2(state->largest - largest);
        for (uint32_t i = 0; i < 16; i++)
            state->sums[i] *= factor;
        for (uint32_t d = 0; d < size; d++)
            state->acc[d] *= factor;
        state->largest = largest;
    }
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) {
        scores[i] = exact_exp2(scores[i] - state->largest);
        state->sums[i % 16] += scores[i];
    }
}

static void add_values_int8(uint32_t size, const uint8_t *tile, const float *weights, float *acc) {
    uint32_t largest_bits = 0;
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) {
        uint32_t bits;
        memcpy(&bits, weights + i, sizeof(bits));
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    float largest;
    memcpy(&largest, &largest_bits, sizeof(largest));
    if (largest < ATTEND_TINY)
        return;
    float factor = ATTEND_WEIGHT_MAX / largest;
    int32_t number[KV_PAGE_TOKENS];
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) {
        float u = weights[i] * factor;
        number[i] = u == u ? (int32_t)lrintf(u) : 0;
    }
    for (uint32_t d = 0; d < size; d++) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++)
            sum += (int8_t)tile[kv_value_place(KV_INT8, size, d, i)] * number[i];
        acc[d] = fmaf((float)sum, largest * (1.0f / ATTEND_WEIGHT_MAX), acc[d]);
    }
}

/* Slots [begin, end) alone: what lies in the others may be infinite or no number. */
static void add_values(const attend_call *call, const uint8_t *head, uint32_t begin, uint32_t end,
                       float *weights, float *acc) {
    kv_type type = call->type;
    uint32_t size = call->head_size;
    const uint8_t *tile = head + kv_value_offset(type, size);
    if (kv_type_scaled(type)) {
        float scale[KV_PAGE_TOKENS];
        memcpy(scale, tile + kv_value_bytes(type, size), sizeof(scale));
        for (uint32_t i = begin; i < end; i++)
            weights[i] *= scale[i];
    }
    if (type == KV_INT8) {
        add_values_int8(size, tile, weights, acc);
        return;
    }
    for (uint32_t i = begin; i < end; i++)
        for (uint32_t d = 0; d < size; d++)
            acc[d] =
                fmaf(kv_number(type, tile, kv_value_place(type, size, d, i)), weights[i], acc[d]);
}

/* ---- Splits ---- */

static void attend_row(const attend_call *call, uint32_t row) {
    uint32_t size = call->head_size;
    row_state state = {.largest = ATTEND_EMPTY, .acc = call->state + row * call->state_stride};
    memset(state.acc, 0, kv_value_stride(size) * sizeof(float));
    for (uint32_t page = call->first_page; page <= call->last_page; page++) {
        uint32_t first = page * KV_PAGE_TOKENS;
        if (call->begin[row] >= first + KV_PAGE_TOKENS || call->end[row] <= first)
            continue;
        const uint8_t *head = call->head + call->pages[page] * call->page_bytes;
        float scores[KV_PAGE_TOKENS];
        scores_of(call, head, call->query + row * attend_query_stride(size), scores);
        uint32_t begin = call->begin[row] > first ? call->begin[row] - first : 0;
        uint32_t end =
            call->end[row] - first < KV_PAGE_TOKENS ? call->end[row] - first : KV_PAGE_TOKENS;
        for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++)
            if (i < begin || i >= end)
                scores[i] = -INFINITY;
        weigh(&state, size, scores);
        add_values(call, head, begin, end, scores, state.acc);
    }
    *attend_state_largest(state.acc, size) = state.largest;
    *attend_state_sum(state.acc, size) = math_sum16(state.sums);
}

static void plain_attend(const attend_call *call) {
    for (uint32_t row = 0; row < call->rows; row++)
        attend_row(call, row);
}

static void plain_attend_join(uint32_t head_size, const float *part, float *total) {
    size_t at = kv_value_stride(head_size);
    float largest = total[at] > part[at] ? total[at] : part[at];
    float f = exact_exp2(total[at] - largest);
    float g = exact_exp2(part[at] - largest);
    for (uint32_t d = 0; d < head_size; d++)
        total[d] = fmaf(part[d], g, total[d] * f);
    total[at] = largest;
    total[at + 1] = fmaf(part[at + 1], g, total[at + 1] * f);
}

static void plain_attend_finish(kv_type type, uint32_t head_size, const float *total, float *out) {
    float factor = 1.0f / total[kv_value_stride(head_size) + 1];
    for (uint32_t d = 0; d < head_size; d++)
        out[d] = total[d] * factor;
    if (kv_type_scaled(type))
        kv_rotate(out, head_size);
}

void plain_attention(op_table *table) {
    table->rotate = plain_rotate;
    table->kv_rotate = kv_rotate;
    table->kv_write = kv_tile_write;
    table->attend_query = plain_attend_query;
    table->attend = plain_attend;
    table->attend_join = plain_attend_join;
    table->attend_finish = plain_attend_finish;
}
