/* Attention over INT8 pages on the tensor cores: a warp takes sixteen rows (positions of one
 * session, times the heads that share a KV head) along a split of 256 positions and reads each page
 * once. Products of a page are exact integers, so the floats around them are the only ones whose
 * order counts: it is that of device/cpu/attention.h.
 *
 * Positions and dimensions are dealt out so that a lane reads 16 bytes at once and has what it
 * needs next: of each page lane l has positions 8 (l % 4) … of two rows, and of the result
 * dimensions 32 u + 8 (l % 4) … of them. Called by device/cuda/tiles.c for heads of 64 and 128
 * dimensions; cannot fail. */
#ifndef AVO_DEVICE_CUDA_KERNELS_ATTEND_INT8_H
#define AVO_DEVICE_CUDA_KERNELS_ATTEND_INT8_H

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/warp.h"

#ifdef __CUDACC__
#define INT8_OWN 1
#else
#define INT8_OWN ATTEND_TILE_WARPS
#endif
#define INT8_SLOTS 8 /* positions of a page that a lane has, of each of its rows */

/* A lane's rows, and where they are: rows lane / 4 and eight more of the warp's tile. */
typedef struct int8_lane {
    uint32_t begin[2], end[2]; /* positions that they see; none: 0, 0 */
    float scale[2];            /* of the query */
    uint32_t query[4][4];      /* of each 32 dimensions, as the cores take them */
    float top[2], sum[2];      /* of all splits that were joined */
    uint32_t joined[2];
} int8_lane;

/* Of one split. */
typedef struct int8_state {
    float acc[4][4][4]; /* [32 dimensions][dimension % 4][row · 2 + dimension / 4 % 2] */
    float top[2], l[2][INT8_SLOTS];
} int8_state;

typedef struct int8_page {
    float s[2][INT8_SLOTS], p[2][INT8_SLOTS];
    float largest[2];
    uint32_t most[2];
    uint32_t weight[4]; /* as the cores take them */
} int8_page;

typedef struct int8_sums {
    int32_t of[4][4];
} int8_sums;

/* ---- Products ---- */

/* sum += a · b of 16 rows, 8 columns and 32 k; a signed, or not. */
EXACT_INLINE void int8_multiply(bool is_signed, const uint32_t (*a)[4], const uint32_t (*b)[2],
                                int8_sums *sum, uint32_t tile) {
#ifdef __CUDA_ARCH__
    int32_t *s = sum[0].of[tile];
    if (is_signed)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
                     : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(b[0][0]),
                       "r"(b[0][1]));
    else
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
                     : "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(b[0][0]),
                       "r"(b[0][1]));
#else
    for (uint32_t lane = 0; lane < OWN_LANES; lane++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t k = 0; k < 32; k++) {
                uint32_t from = lane / 4 * 4 + k % 16 / 4, word = i / 2 + k / 16 * 2;
                uint32_t other = (2 * (lane % 4) + i % 2) * 4 + k % 16 / 4;
                uint8_t x = (uint8_t)(a[from][word] >> k % 4 * 8);
                int32_t y = (int8_t)(b[other][k / 16] >> k % 4 * 8);
                sum[lane].of[tile][i] += (is_signed ? (int32_t)(int8_t)x : (int32_t)x) * y;
            }
#endif
}

/* ---- Rows ---- */

typedef struct int8_tile {
    uint32_t first, rows; /* of the batch; 0 rows: nothing */
    uint32_t kv_head, group;
    uint32_t table;               /* of pages */
    uint32_t first_split, splits; /* that any row sees */
    uint32_t begin, end;          /* positions that any row sees */
} int8_tile;

EXACT_INLINE uint32_t int8_begin(const attend_rows_call *call, uint32_t end) {
    return call->window > 0 && end > call->window ? end - call->window : 0;
}

EXACT_INLINE int8_tile int8_tile_of(const attend_tiles_call *call, const kernel_place *at,
                                    uint32_t warp) {
    uint32_t number = at->y * (ATTEND_TILE_WARPS / call->share) + warp / call->share;
    const attend_rows_call *rows = &call->rows;
    int8_tile tile = {0};
    if (number >= call->tiles)
        return tile;
    tile.first = call->tile[2 * number];
    tile.rows = call->tile[2 * number + 1];
    if (tile.rows == 0)
        return tile;
    tile.kv_head = at->x;
    tile.group = rows->heads / rows->kv_heads;
    tile.table = rows->kv.row_pages[tile.first];
    tile.begin = int8_begin(rows, rows->kv.position[tile.first] + 1);
    tile.end = rows->kv.position[tile.first + tile.rows - 1] + 1;
    tile.first_split = tile.begin / CALL_SPLIT;
    tile.splits = (tile.end - 1) / CALL_SPLIT + 1 - tile.first_split;
    return tile;
}

EXACT_INLINE void int8_open(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                            const int8_tile *tile, int8_lane *lanes) {
    const attend_rows_call *rows = &call->rows;
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t number = lane / 4 + 8 * half;
            bool there = tile->rows > 0 && number < tile->rows * tile->group;
            uint32_t row = there ? tile->first + number / tile->group : tile->first;
            uint32_t head = there ? tile->kv_head * tile->group + number % tile->group : 0;
            lanes[own].end[half] = there ? rows->kv.position[row] + 1 : 0;
            lanes[own].begin[half] = there ? int8_begin(rows, lanes[own].end[half]) : 0;
            lanes[own].joined[half] = 0;
            const uint8_t *query =
                rows->query + ((uint64_t)row * rows->heads + head) * rows->query_bytes;
            lanes[own].scale[half] = there ? exact_float(exact_load_word(query + dims)) : 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t part = 0; part < dims / 16; part++)
                lanes[own].query[part / 2][half + part % 2 * 2] =
                    there ? exact_load_word(query + part * 16 + lane % 4 * 4) : 0;
        }
    }
}

/* ---- A page ---- */

EXACT_INLINE void int8_scores(const kernel_place *at, uint32_t dims, const uint8_t *tile,
                              const int8_lane *lanes, int8_sums *sum) {
    for (uint32_t own = 0; own < OWN_LANES; own++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 16; i++)
            sum[own].of[i / 4][i % 4] = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t part = 0; part < dims / 32; part++) {
        exact_words key[2][OWN_LANES];
        uint32_t query[OWN_LANES][4];
        EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 2; i++)
                key[i][own] = exact_load_words(
                    tile + ((part * 8 + 4 * i + lane % 4) * CALL_PAGE + lane / 4 * 4) * 4);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++)
                query[own][i] = lanes[own].query[part][i];
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t b[OWN_LANES][2];
            for (uint32_t own = 0; own < OWN_LANES; own++) {
                b[own][0] = key[0][own].word[j];
                b[own][1] = key[1][own].word[j];
            }
            int8_multiply(true, query, b, sum, j);
        }
    }
}

/* Bit e: whether the lane's row sees position first + e. */
EXACT_INLINE uint32_t int8_seen(const int8_lane *lane, uint32_t half, uint32_t first, bool whole) {
    uint32_t seen = 0xffu;
    if (!whole) {
        uint32_t begin = lane->begin[half] > first ? lane->begin[half] - first : 0;
        uint32_t end = lane->end[half] > first ? lane->end[half] - first : 0;
        seen &= end < INT8_SLOTS ? (1u << end) - 1u : 0xffu;
        seen &= begin < INT8_SLOTS ? 0xffu << begin : 0;
    }
    return seen;
}

/* Under a soft cap. */
EXACT_INLINE float int8_cap(float cap, float s) {
    return (cap * 1.44269504f) *
           (1.0f - 2.0f / (exact_exp2(s > ATTEND_EXP2_MAX ? ATTEND_EXP2_MAX : s) + 1.0f));
}

/* Integers into s, as attention.h has them; `whole`: every row sees every position. */
EXACT_INLINE void int8_scale(const attend_rows_call *call, const kernel_place *at,
                             const uint8_t *scales, uint32_t first, bool whole,
                             const int8_lane *lanes, const int8_sums *sum, int8_page *page) {
    EACH_LANE(at, own) {
        exact_words scale[2] = {exact_load_words(scales + lane % 4 * 32),
                                exact_load_words(scales + lane % 4 * 32 + 16)};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t seen = int8_seen(&lanes[own], half, first + lane % 4 * 8, whole);
            float largest = -INFINITY;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t e = 0; e < INT8_SLOTS; e++) {
                float s = (float)sum[own].of[e % 4][2 * half + e / 4] * lanes[own].scale[half];
                s *= exact_float(scale[e / 4].word[e % 4]);
                page[own].s[half][e] = s;
            }
            if (call->softcap > 0.0f)
                for (uint32_t e = 0; e < INT8_SLOTS; e++)
                    page[own].s[half][e] = int8_cap(call->softcap, page[own].s[half][e]);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t e = 0; e < INT8_SLOTS; e++) {
                float s = (seen >> e & 1u) != 0 ? page[own].s[half][e] : -INFINITY;
                page[own].s[half][e] = s;
                largest = s > largest ? s : largest;
            }
            page[own].largest[half] = largest;
        }
    }
}

/* The largest s of each row, in all four lanes that have it. */
EXACT_INLINE void int8_largest(const kernel_place *at, int8_page *page) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t half = 0; half < 2; half++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t mask = 1; mask <= 2; mask *= 2) {
            float own_one[OWN_LANES], other[OWN_LANES];
            EACH_LANE(at, own) {
                own_one[own] = page[own].largest[half];
            }
            exchange_floats(own_one, mask, other);
            EACH_LANE(at, own) {
                page[own].largest[half] = other[own] > own_one[own] ? other[own] : own_one[own];
            }
        }
}

/* m, and what was added up before, as the page's largest s wants them; then p and w. */
EXACT_INLINE void int8_weigh(const kernel_place *at, uint32_t dims, const uint8_t *scales,
                             uint32_t first, bool whole, const int8_lane *lanes, int8_page *page,
                             int8_state *state) {
    EACH_LANE(at, own) {
        exact_words scale[2] = {exact_load_words(scales + lane % 4 * 32),
                                exact_load_words(scales + lane % 4 * 32 + 16)};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++) {
            if (page[own].largest[half] > state[own].top[half] + 8.0f) {
                float factor = exact_exp2(state[own].top[half] - page[own].largest[half]);
                state[own].top[half] = page[own].largest[half];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
                for (uint32_t e = 0; e < INT8_SLOTS; e++)
                    state[own].l[half][e] *= factor;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
                for (uint32_t i = 0; i < dims / 4; i++)
                    state[own].acc[i / 8][i / 2 % 4][2 * half + i % 2] *= factor;
            }
            uint32_t most = 0, seen = int8_seen(&lanes[own], half, first + lane % 4 * 8, whole);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t e = 0; e < INT8_SLOTS; e++) {
                float p = exact_exp2(page[own].s[half][e] - state[own].top[half]), w = p;
                w = (seen >> e & 1u) != 0 ? w * exact_float(scale[e / 4].word[e % 4]) : w;
                page[own].p[half][e] = p;
                page[own].s[half][e] = w;
                most = exact_bits(w) > most ? exact_bits(w) : most;
            }
            page[own].most[half] = most;
        }
    }
}

EXACT_INLINE void int8_add_sums(const kernel_place *at, const int8_page *page, int8_state *state) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < 2 * INT8_SLOTS; i++) {
        uint32_t half = i / INT8_SLOTS, e = i % INT8_SLOTS;
        float p[OWN_LANES], other[OWN_LANES];
        EACH_LANE(at, own) {
            p[own] = page[own].p[half][e];
        }
        exchange_floats(p, 2, other); /* of lanes 0 and 1 of four: position + 16 */
        EACH_LANE(at, own) {
            state[own].l[half][e] = (state[own].l[half][e] + p[own]) + other[own];
        }
    }
}

/* Weights as bytes, against the row's largest. */
EXACT_INLINE void int8_round(const kernel_place *at, int8_page *page) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t most[OWN_LANES];
        EACH_LANE(at, own) {
            most[own] = page[own].most[half];
        }
        warp_highest(at, most, 2);
        EACH_LANE(at, own) {
            float largest = exact_float(most[own]), factor = 255.0f / largest;
            page[own].largest[half] = largest;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t four = 0; four < 2; four++) {
                uint32_t word = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
                for (uint32_t j = 0; j < 4; j++) {
                    float u = page[own].s[half][4 * four + j] * factor;
                    /* 0 … 255, to nearest even, in the last bits */
                    uint32_t byte = exact_bits(u + 12582912.0f) & 0xffu;
                    word |= (largest < 1e-30f || u != u ? 0 : byte) << 8 * j;
                }
                page[own].weight[half + 2 * four] = word;
            }
        }
    }
}

EXACT_INLINE void int8_values(const kernel_place *at, uint32_t dims, uint32_t stride,
                              const uint8_t *tile, const int8_page *page, int8_state *state) {
    uint32_t weight[OWN_LANES][4];
    for (uint32_t own = 0; own < OWN_LANES; own++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 4; i++)
            weight[own][i] = page[own].weight[i];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t u = 0; u < dims / 32; u++) {
        exact_words value[2][OWN_LANES];
        int8_sums sum[OWN_LANES];
        EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 2; i++)
                value[i][own] = exact_load_words(
                    tile + ((2 * (lane % 4) + i) * stride + 32 * u + lane / 4 * 4) * 4);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 16; i++)
                sum[own].of[i / 4][i % 4] = 0;
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t v = 0; v < 4; v++) {
            uint32_t b[OWN_LANES][2];
            for (uint32_t own = 0; own < OWN_LANES; own++) {
                b[own][0] = value[0][own].word[v];
                b[own][1] = value[1][own].word[v];
            }
            int8_multiply(false, weight, b, sum, v);
        }
        EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 16; i++) {
                float largest = page[own].largest[i % 4 / 2],
                      *acc = &state[own].acc[u][i / 4][i % 4];
                if (!(largest < 1e-30f)) /* NaN goes on */
                    *acc = fmaf((float)sum[own].of[i / 4][i % 4], largest * (1.0f / 255.0f), *acc);
            }
        }
    }
}

/* ---- A split ---- */

/* Shared memory, of each warp: its part, then its tile's total: numbers of lanes side by side. */
EXACT_INLINE float *int8_part(const kernel_place *at, uint32_t dims, uint32_t warp) {
    return at->shared + warp * (dims / 2 + 4) * WARP;
}

EXACT_INLINE float *int8_total(const kernel_place *at, uint32_t dims, uint32_t warp) {
    return int8_part(at, dims, ATTEND_TILE_WARPS) + warp * (dims / 2) * WARP;
}

/* The sum of l by exact_sum16's tree, in all four lanes of the row. */
EXACT_INLINE void int8_sum16(const kernel_place *at, uint32_t half, const int8_state *state,
                             float *sum) {
    float other[INT8_SLOTS][OWN_LANES], mine[OWN_LANES];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t e = 0; e < INT8_SLOTS; e++) {
        EACH_LANE(at, own) {
            mine[own] = state[own].l[half][e];
        }
        exchange_floats(mine, 1, other[e]);
    }
    EACH_LANE(at, own) {
        float quarter[4];
        const float *l = state[own].l[half];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 4; i++)
            quarter[i] = (l[i] + other[i][own]) + (l[i + 4] + other[i + 4][own]);
        mine[own] = (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
    }
    exchange_floats(mine, 2, other[0]);
    EACH_LANE(at, own) {
        sum[own] = lane % 4 < 2 ? mine[own] : other[0][own];
    }
}

EXACT_INLINE void int8_split(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                             uint32_t round, const int8_lane *lanes) {
    int8_tile tile = int8_tile_of(call, at, warp_of(at));
    const kv_call *kv = &call->rows.kv;
    uint32_t number = round * call->share + warp_of(at) % call->share;
    if (tile.rows == 0 || number >= tile.splits)
        return;
    uint32_t split = tile.first_split + number;
    int8_state state[OWN_LANES];
    for (uint32_t own = 0; own < OWN_LANES; own++) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < dims / 2; i++)
            state[own].acc[i / 16][i / 4 % 4][i % 4] = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 2 * INT8_SLOTS; i++)
            state[own].l[i / INT8_SLOTS][i % INT8_SLOTS] = 0.0f;
        state[own].top[0] = state[own].top[1] = -1e30f;
    }
    /* Every row sees [most_begin, least_end). */
    uint32_t least_end = kv->position[tile.first] + 1;
    uint32_t most_begin = int8_begin(&call->rows, tile.end);
    bool full = tile.rows * tile.group == ATTEND_TILE_ROWS;
    for (uint32_t i = 0; i < PAGES; i++) {
        uint32_t first = split * CALL_SPLIT + i * CALL_PAGE;
        if (first + CALL_PAGE <= tile.begin || first >= tile.end)
            continue;
        bool whole = full && first >= most_begin && first + CALL_PAGE <= least_end;
        const uint8_t *head = kv_head_in(kv, tile.table, first / CALL_PAGE, tile.kv_head);
        int8_sums sum[OWN_LANES];
        int8_page page[OWN_LANES];
        int8_scores(at, dims, head, lanes, sum);
        int8_scale(&call->rows, at, head + kv->key_bytes, first, whole, lanes, sum, page);
        int8_largest(at, page);
        head += kv->value_offset;
        int8_weigh(at, dims, head + kv->value_bytes, first, whole, lanes, page, state);
        int8_add_sums(at, page, state);
        int8_round(at, page);
        int8_values(at, dims, kv->value_stride, head, page, state);
    }
    float sum[2][OWN_LANES], *part = int8_part(at, dims, warp_of(at));
    int8_sum16(at, 0, state, sum[0]);
    int8_sum16(at, 1, state, sum[1]);
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < dims / 2; i++)
            part[i * WARP + lane] = state[own].acc[i / 16][i / 4 % 4][i % 4];
        for (uint32_t half = 0; half < 2; half++) {
            part[(dims / 2 + 2 * half) * WARP + lane] = state[own].top[half];
            part[(dims / 2 + 2 * half + 1) * WARP + lane] = sum[half][own];
        }
    }
}

/* The parts of a round, in order; warps that share a tile share its dimensions out. */
EXACT_INLINE void int8_join(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                            uint32_t round, int8_lane *lanes) {
    int8_tile tile = int8_tile_of(call, at, warp_of(at));
    uint32_t rank = warp_of(at) % call->share, leader = warp_of(at) - rank;
    uint32_t own_part = dims / 2 / call->share;
    float *total = int8_total(at, dims, leader) + rank * own_part * WARP;
    for (uint32_t i = 0; i < call->share; i++) {
        uint32_t number = round * call->share + i;
        if (tile.rows == 0 || number >= tile.splits)
            return;
        uint32_t begin = (tile.first_split + number) * CALL_SPLIT;
        const float *part = int8_part(at, dims, leader + i);
        EACH_LANE(at, own) {
            float f[2], g[2];
            bool sees[2];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t half = 0; half < 2; half++) {
                int8_lane *row = &lanes[own];
                float top = part[(dims / 2 + 2 * half) * WARP + lane];
                float sum = part[(dims / 2 + 2 * half + 1) * WARP + lane];
                sees[half] = row->begin[half] < begin + CALL_SPLIT && row->end[half] > begin;
                if (!sees[half])
                    continue;
                float before = row->joined[half] ? row->top[half] : top;
                float largest = before > top ? before : top;
                f[half] = exact_exp2(before - largest);
                g[half] = exact_exp2(top - largest);
                row->sum[half] =
                    row->joined[half] ? fmaf(sum, g[half], row->sum[half] * f[half]) : sum;
                row->top[half] = largest;
            }
            for (uint32_t e = 0; e < own_part; e++) {
                uint32_t half = e % 4 / 2;
                float *to = total + e * WARP + lane,
                      from = part[(rank * own_part + e) * WARP + lane];
                if (half == 0 ? sees[0] : sees[1])
                    *to = (half == 0 ? lanes[own].joined[0] : lanes[own].joined[1])
                              ? fmaf(from, half == 0 ? g[0] : g[1], *to * (half == 0 ? f[0] : f[1]))
                              : from;
            }
            for (uint32_t half = 0; half < 2; half++)
                lanes[own].joined[half] |= sees[half];
        }
    }
}

/* ---- The end ---- */

/* One distance of the transform; lanes have dimensions 8 (lane % 4) … of each 32. */
EXACT_INLINE void int8_rotate_far(const kernel_place *at, uint32_t dims, uint32_t mask,
                                  int8_state *state) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < dims / 2; i++) {
        float mine[OWN_LANES], other[OWN_LANES];
        EACH_LANE(at, own) {
            mine[own] = state[own].acc[i / 16][i / 4 % 4][i % 4];
        }
        exchange_floats(mine, mask, other);
        EACH_LANE(at, own) {
            state[own].acc[i / 16][i / 4 % 4][i % 4] =
                (lane & mask) == 0 ? mine[own] + other[own] : other[own] - mine[own];
        }
    }
}

EXACT_INLINE void int8_near(float *low, float *high) {
    float a = *low, b = *high;
    *low = a + b;
    *high = a - b;
}

EXACT_INLINE void int8_rotate(const kernel_place *at, uint32_t dims, int8_state *state) {
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t u = 0; u < dims / 32; u++) {
                float(*acc)[4] = state[own].acc[u];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
                for (uint32_t c = 0; c < 2; c++) {
                    uint32_t i = 2 * half + c;
                    int8_near(&acc[0][i], &acc[1][i]);
                    int8_near(&acc[2][i], &acc[3][i]);
                    int8_near(&acc[0][i], &acc[2][i]);
                    int8_near(&acc[1][i], &acc[3][i]);
                }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
                for (uint32_t v = 0; v < 4; v++)
                    int8_near(&acc[v][2 * half], &acc[v][2 * half + 1]);
            }
    }
    int8_rotate_far(at, dims, 1, state);
    int8_rotate_far(at, dims, 2, state);
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 16; i++) {
            float(*acc)[4][4] = state[own].acc;
            int8_near(&acc[0][i / 4][i % 4], &acc[1][i / 4][i % 4]);
            if (dims == 128) {
                int8_near(&acc[2][i / 4][i % 4], &acc[3][i / 4][i % 4]);
                int8_near(&acc[0][i / 4][i % 4], &acc[2][i / 4][i % 4]);
                int8_near(&acc[1][i / 4][i % 4], &acc[3][i / 4][i % 4]);
            }
        }
    }
}

EXACT_INLINE void int8_finish(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                              const int8_lane *lanes) {
    int8_tile tile = int8_tile_of(call, at, warp_of(at));
    if (tile.rows == 0 || warp_of(at) % call->share != 0)
        return;
    const float *total = int8_total(at, dims, warp_of(at));
    int8_state state[OWN_LANES];
    EACH_LANE(at, own) {
        float factor[2] = {1.0f / lanes[own].sum[0], 1.0f / lanes[own].sum[1]};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < dims / 2; i++)
            state[own].acc[i / 16][i / 4 % 4][i % 4] = total[i * WARP + lane] * factor[i % 4 / 2];
    }
    int8_rotate(at, dims, state);
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t number = lane / 4 + 8 * half;
            if (number >= tile.rows * tile.group)
                continue;
            uint32_t row = tile.first + number / tile.group;
            uint32_t head = tile.kv_head * tile.group + number % tile.group;
            float *out =
                call->rows.out + ((uint64_t)row * call->rows.heads + head) * dims + lane % 4 * 8;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < dims / 4; i++)
                out[i / 8 * 32 + i % 8] =
                    state[own].acc[i / 8][i % 4][2 * half + i / 4 % 2] * head_factor(dims);
        }
    }
}

EXACT_INLINE void int8_attend(const attend_tiles_call *call, kernel_place *at, uint32_t dims) {
    int8_lane lanes[INT8_OWN][OWN_LANES];
    uint32_t rounds = 0;
    for (uint32_t warp = 0; warp < ATTEND_TILE_WARPS; warp += call->share) {
        int8_tile tile = int8_tile_of(call, at, warp);
        uint32_t own = (tile.splits + call->share - 1) / call->share;
        rounds = own > rounds ? own : rounds;
    }
#define INT8_LANES (lanes[INT8_OWN == 1 ? 0 : warp_of(at)])
    CUDA_WARPS(at, int8_tile tile = int8_tile_of(call, at, warp_of(at));
               int8_open(call, at, dims, &tile, INT8_LANES));
    for (uint32_t round = 0; round < rounds; round++) {
        CUDA_WARPS(at, int8_split(call, at, dims, round, INT8_LANES));
        CUDA_WARPS(at, int8_join(call, at, dims, round, INT8_LANES));
    }
    CUDA_WARPS(at, int8_finish(call, at, dims, INT8_LANES));
#undef INT8_LANES
}

EXACT_INLINE void kernel_attend_int8_64(const attend_tiles_call *call, kernel_place *at) {
    int8_attend(call, at, 64);
}

EXACT_INLINE void kernel_attend_int8_128(const attend_tiles_call *call, kernel_place *at) {
    int8_attend(call, at, 128);
}

#endif
