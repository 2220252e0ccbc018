/* The arithmetic of attention in every back end but ref/, bit for bit; plain/attention.c is this
 * page in C. One row is one head of one token; F(i) is an integer as float.
 *
 * Rotation by position:  a' = fma(−b, sine, a · cosine),  b' = fma(a, sine, b · cosine).
 *
 * Query. c = scale · log2 e, or with a soft cap 2 · log2 e · scale / cap, in float from left to
 * right. F32, F16, BF16, FP8: q = x · c. INT8: numbers and scale as kv_tile.h has them (limit 127),
 * scale · c in place of scale.
 *
 * Scores, per position of a page, d ascending from 0 (numbers k and scale kₛ as stored):
 *   F32, F16, BF16   s = Σ fma(k, q, s)
 *   FP8              s = (Σ fma(k, q, s)) · kₛ
 *   INT8             s = (F(Σ k · q) · scale) · kₛ
 * and with a soft cap s = (cap · log2 e) · (1 − 2 / (exp2(s) + 1)). So s counts powers of two.
 *
 * Splits. Positions are cut every ATTEND_SPLIT; each split has a state of its own: m (−1e30), sums
 * l[16] (0) and acc[head_size] (0), and walks its pages in order. A page that a row sees nothing of
 * leaves the row's state as it is; positions that it does not see have s = −infinity and w = 0, and
 * no part in acc, whatever is stored there (NaN of another timeline changes nothing):
 *   where any s > m + 8: t = the largest s of the page, f = exp2(m − t), l = l · f, acc = acc · f,
 *                        m = t
 *   p = exp2(s − m);  l[i] = (l[i] + p[i]) + p[16 + i]
 *   w = p, or p · vₛ for INT8 and FP8
 *   acc = Σ fma(v, w, acc), positions ascending; but INT8: W = the largest w of the page (as bits:
 *         NaN wins), u = w · (255 / W) to the nearest, acc = fma(F(Σ v · u), W · (1 / 255), acc);
 *         W < 1e-30: acc stays
 * At its end a split is (acc, m, the sum of l by math_sum16's tree).
 *
 * The row. Splits are joined in order, the second that the row sees to the first, and so on:
 *   M = the larger m, f = exp2(m − M), g = exp2(m' − M),  acc = fma(acc', g, acc · f), l likewise
 * attended = acc · (1 / l), rotated back by kv_rotate for INT8 and FP8.
 *
 * exp2(x): 0 below −126; else n = x to the nearest integer, r = x − n, 2ⁿ · p(r) with p of fifth
 * degree, by fma. Relative error below 1.7e-7; x is at most 126: under a soft cap it is cut there.
 */
#ifndef AVO_DEVICE_CPU_ATTENTION_H
#define AVO_DEVICE_CPU_ATTENTION_H

#include "device/exact/math.h"
#include "device/kv_tile.h"

/* device_kv as kernels see it. */
typedef struct kv_view {
    kv_type type;
    uint8_t *pool;
    size_t page_bytes;          /* distance between pages */
    const size_t *layer_offset; /* [layers] bytes from a page's begin to the layer's first head */
} kv_view;

/* Where a head begins. */
static inline uint8_t *kv_head(const kv_view *kv, uint32_t page, uint32_t layer, uint32_t kv_head,
                               uint32_t head_size) {
    return kv->pool + page * kv->page_bytes + kv->layer_offset[layer] +
           kv_head * kv_head_bytes(kv->type, head_size);
}

#define ATTEND_SPLIT       256 /* positions, whole pages */
#define ATTEND_SPLIT_PAGES (ATTEND_SPLIT / KV_PAGE_TOKENS)
#define ATTEND_ROWS_MAX    128 /* of one call */
#define ATTEND_EMPTY       (-1e30f)
#define ATTEND_SLACK       8.0f
#define ATTEND_TINY        1e-30f
#define ATTEND_WEIGHT_MAX  255.0f
#define ATTEND_LOG2E       1.44269504f

/* A state: acc[head_size rounded up to 16], m, l, and unused up to a whole line. */
static inline size_t attend_state_floats(uint32_t head_size) {
    return kv_value_stride(head_size) + 16;
}
static inline float *attend_state_largest(float *state, uint32_t head_size) {
    return state + kv_value_stride(head_size);
}
static inline float *attend_state_sum(float *state, uint32_t head_size) {
    return state + kv_value_stride(head_size) + 1;
}

/* Rows that share one KV head of one session, over the pages of one split. */
typedef struct attend_call {
    kv_type type;
    uint32_t head_size;
    float softcap;         /* 0: off */
    const uint8_t *head;   /* where the head would begin in page 0 (kv_head) */
    size_t page_bytes;     /* distance between pages */
    const uint32_t *pages; /* the session's page table */
    uint32_t first_page, last_page;
    uint32_t pages_end;    /* pages of the table that may be fetched ahead of time */
    uint32_t rows;         /* 1 … ATTEND_ROWS_MAX */
    const uint32_t *begin; /* [rows] a row sees positions begin … end − 1 */
    const uint32_t *end;   /* [rows] */
    const uint8_t *query;  /* what attend_query has made, for the same rows */
    float *state;          /* rows of attend_state_floats, written whatever they were */
    size_t state_stride;   /* floats between them */
    uint8_t *scratch;      /* attend_scratch_bytes(head_size), at a multiple of 64 */
} attend_call;

/* Rows of the query in the form that `attend` reads: rows × attend_query_stride bytes. */
static inline size_t attend_query_stride(uint32_t head_size) {
    return kv_value_stride(head_size) * sizeof(float) + 64;
}

/* Two tiles as floats; scores, sums, words of weights and maxima of all rows. */
static inline size_t attend_scratch_bytes(uint32_t head_size) {
    return 2 * kv_tile_floats(head_size) * sizeof(float) +
           ATTEND_ROWS_MAX * (KV_PAGE_TOKENS + 16 + 16 + 1) * sizeof(float);
}

/* c of the page above. */
static inline float attend_query_factor(float scale, float softcap) {
    return softcap > 0.0f ? 2.0f * ATTEND_LOG2E * scale / softcap : scale * ATTEND_LOG2E;
}

#endif
