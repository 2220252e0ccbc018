/* Attention over F16 pages for many rows of a session: a block takes 128 rows (positions, times the
 * heads that share a KV head) and walks the pages once for all of them, 128 positions at a time.
 * Each score is one chain of fma over the dimensions, each value one over the positions, as
 * device/cpu/attention.h has them; a thread has eight by eight of either, in registers. Called by
 * device/cuda/tiles.c for heads of 64 and 128 dimensions; cannot fail. */
#ifndef AVO_DEVICE_CUDA_KERNELS_ATTEND_HALF_H
#define AVO_DEVICE_CUDA_KERNELS_ATTEND_HALF_H

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/warp.h"

#define HALF_CHUNK   128 /* positions */
#define HALF_PAGES   (HALF_CHUNK / CALL_PAGE)
#define HALF_ACROSS  16 /* threads along positions or dimensions */
#define HALF_OWN     8  /* rows of a thread, and positions */
#define HALF_PADDING 64 /* bytes between two pages of keys, so that they lie in different banks */

#ifdef __CUDACC__
#define HALF_THREADS_OWN 1
#else
#define HALF_THREADS_OWN HALF_THREADS
#endif

typedef struct half_thread {
    float s[HALF_OWN][HALF_OWN];   /* [row][position] */
    float acc[HALF_OWN][HALF_OWN]; /* [row][dimension] */
    float l[HALF_OWN];             /* of one row: lanes 0 … 7, or 8 … 15 */
} half_thread;

typedef struct half_desk {
    float *query;          /* [dims][rows] */
    float *weight;         /* [positions][rows], groups of four rows turned by position / 8 */
    uint8_t *key, *value;  /* of a chunk */
    float *high;           /* [HALF_ACROSS][rows] largest s of eight positions; sums l */
    float *top, *factor;   /* [HALF_PAGES][rows] */
    float *state;          /* [6][rows] m of the split; m and l of all; f, g; 1 / l */
    uint32_t *begin, *end; /* [rows] */
    uint32_t first, rows;  /* of the batch */
    uint32_t kv_head, group, table;
    uint32_t seen_begin, seen_end;   /* positions that any row sees */
    uint32_t whole_begin, whole_end; /* positions that every row sees */
} half_desk;

EXACT_INLINE uint32_t half_begin(const attend_rows_call *call, uint32_t end) {
    return call->window > 0 && end > call->window ? end - call->window : 0;
}

/* False: there is nothing to do. */
EXACT_INLINE bool half_lay(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                           half_desk *desk) {
    const attend_rows_call *rows = &call->rows;
    desk->query = at->shared;
    desk->weight = desk->query + dims * HALF_ROWS;
    desk->key = (uint8_t *)(void *)(desk->weight + HALF_CHUNK * HALF_ROWS);
    desk->value = desk->key + HALF_PAGES * (dims * CALL_PAGE * 2 + HALF_PADDING);
    desk->high = (float *)(void *)(desk->value + HALF_PAGES * dims * CALL_PAGE * 2);
    desk->top = desk->high + HALF_ACROSS * HALF_ROWS;
    desk->factor = desk->top + HALF_PAGES * HALF_ROWS;
    desk->state = desk->factor + HALF_PAGES * HALF_ROWS;
    desk->begin = (uint32_t *)(void *)(desk->state + 6 * HALF_ROWS);
    desk->end = desk->begin + HALF_ROWS;
    desk->first = call->tile[2 * at->y];
    desk->rows = call->tile[2 * at->y + 1];
    if (desk->rows == 0)
        return false;
    desk->kv_head = at->x;
    desk->group = rows->heads / rows->kv_heads;
    desk->table = rows->kv.row_pages[desk->first];
    desk->whole_end = rows->kv.position[desk->first] + 1;
    desk->seen_begin = half_begin(rows, desk->whole_end);
    desk->seen_end = rows->kv.position[desk->first + desk->rows - 1] + 1;
    desk->whole_begin = half_begin(rows, desk->seen_end);
    return true;
}

EXACT_INLINE void half_open(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                            const half_desk *desk) {
    const attend_rows_call *rows = &call->rows;
    uint32_t number = at->thread % HALF_ROWS;
    bool there = number < desk->rows * desk->group;
    uint32_t row = desk->first + (there ? number / desk->group : 0);
    uint32_t head = desk->kv_head * desk->group + (there ? number % desk->group : 0);
    const uint8_t *query = rows->query + ((uint64_t)row * rows->heads + head) * rows->query_bytes;
    if (at->thread < HALF_ROWS) {
        desk->end[number] = there ? rows->kv.position[row] + 1 : 0;
        desk->begin[number] = there ? half_begin(rows, desk->end[number]) : 0;
    }
    uint32_t step = HALF_THREADS / HALF_ROWS * 4;
    for (uint32_t d = at->thread / HALF_ROWS * 4; d < dims; d += step) {
        exact_words four = {{0, 0, 0, 0}};
        if (there)
            four = exact_load_words(query + d * 4);
        for (uint32_t i = 0; i < 4; i++)
            desk->query[(d + i) * HALF_ROWS + number] = exact_float(four.word[i]);
    }
}

/* Whether any row sees something of the page. */
EXACT_INLINE bool half_page_seen(const half_desk *desk, uint32_t position) {
    return position + CALL_PAGE > desk->seen_begin && position < desk->seen_end;
}

EXACT_INLINE bool half_page_whole(const half_desk *desk, uint32_t position) {
    return position >= desk->whole_begin && position + CALL_PAGE <= desk->whole_end;
}

/* Keys or values of a chunk on their way. */
EXACT_INLINE void half_copy(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                            const half_desk *desk, uint32_t chunk, bool values) {
    const kv_call *kv = &call->rows.kv;
    uint32_t bytes = dims * CALL_PAGE * 2;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t page = 0; page < HALF_PAGES; page++) {
        uint32_t position = chunk * HALF_CHUNK + page * CALL_PAGE;
        if (!half_page_seen(desk, position))
            continue;
        const uint8_t *from = kv_head_in(kv, desk->table, position / CALL_PAGE, desk->kv_head) +
                              (values ? kv->value_offset : 0);
        uint8_t *to =
            values ? desk->value + page * bytes : desk->key + page * (bytes + HALF_PADDING);
        for (uint32_t i = at->thread * 16; i < bytes; i += HALF_THREADS * 16)
            copy_begin(at, to + i, from + i);
    }
    copy_mark(at);
}

/* ---- Scores ---- */

EXACT_INLINE void half_eight(exact_words words, float *out) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < 4; i++) {
        out[2 * i] = exact_from_half((uint16_t)words.word[i]);
        out[2 * i + 1] = exact_from_half((uint16_t)(words.word[i] >> 16));
    }
}

EXACT_INLINE void half_eight_floats(const float *from, float *out) {
    exact_words low = exact_load_words(from), high = exact_load_words(from + 4);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < 4; i++) {
        out[i] = exact_float(low.word[i]);
        out[4 + i] = exact_float(high.word[i]);
    }
}

EXACT_INLINE void half_scores(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                              const half_desk *desk, uint32_t chunk, half_thread *own) {
    uint32_t down = at->thread / HALF_ACROSS, across = at->thread % HALF_ACROSS;
    uint32_t page = across / 4, position = chunk * HALF_CHUNK + page * CALL_PAGE;
    const uint8_t *key = desk->key + page * (dims * CALL_PAGE * 2 + HALF_PADDING) + across % 4 * 16;
    const float *query = desk->query + down * HALF_OWN;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < HALF_OWN * HALF_OWN; i++)
        own->s[i / HALF_OWN][i % HALF_OWN] = 0.0f;
    if (half_page_seen(desk, position)) {
#ifdef __CUDA_ARCH__
#pragma unroll 4
#endif
        for (uint32_t d = 0; d < dims; d++) {
            float k[HALF_OWN], q[HALF_OWN];
            half_eight(exact_load_words(key + d * CALL_PAGE * 2), k);
            half_eight_floats(query + d * HALF_ROWS, q);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t r = 0; r < HALF_OWN; r++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
                for (uint32_t p = 0; p < HALF_OWN; p++)
                    own->s[r][p] = fmaf(k[p], q[r], own->s[r][p]);
        }
    }
    if (call->rows.softcap > 0.0f)
        for (uint32_t r = 0; r < HALF_OWN; r++)
            for (uint32_t p = 0; p < HALF_OWN; p++) {
                float s = own->s[r][p];
                own->s[r][p] =
                    (call->rows.softcap * 1.44269504f) *
                    (1.0f - 2.0f / (exact_exp2(s > ATTEND_EXP2_MAX ? ATTEND_EXP2_MAX : s) + 1.0f));
            }
    bool whole = half_page_whole(desk, position);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t r = 0; r < HALF_OWN; r++) {
        uint32_t row = down * HALF_OWN + r, begin = desk->begin[row], end = desk->end[row];
        uint32_t first = position + across % 4 * HALF_OWN;
        float largest = -INFINITY;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t p = 0; p < HALF_OWN; p++) {
            bool sees = whole || (first + p >= begin && first + p < end);
            float s = sees ? own->s[r][p] : -INFINITY;
            own->s[r][p] = s;
            largest = s > largest ? s : largest;
        }
        desk->high[across * HALF_ROWS + row] = largest;
    }
}

/* A row's m from page to page, by the row's thread; `fresh`: a split begins. */
EXACT_INLINE void half_tops(const kernel_place *at, const half_desk *desk, bool fresh) {
    uint32_t row = at->thread;
    float m = fresh ? -1e30f : desk->state[row];
    for (uint32_t page = 0; page < HALF_PAGES; page++) {
        float largest = -INFINITY, factor = -1.0f; /* nothing is multiplied */
        for (uint32_t i = 0; i < HALF_ACROSS / HALF_PAGES; i++) {
            float s = desk->high[(page * (HALF_ACROSS / HALF_PAGES) + i) * HALF_ROWS + row];
            largest = s > largest ? s : largest;
        }
        if (largest > m + 8.0f) {
            factor = exact_exp2(m - largest);
            m = largest;
        }
        desk->top[page * HALF_ROWS + row] = m;
        desk->factor[page * HALF_ROWS + row] = factor;
    }
    desk->state[row] = m;
}

EXACT_INLINE float *half_weight(const half_desk *desk, uint32_t position, uint32_t four) {
    return desk->weight + position * HALF_ROWS + (four + position / 8) % (HALF_ROWS / 4) * 4;
}

EXACT_INLINE void half_weigh(const kernel_place *at, const half_desk *desk, half_thread *own) {
    uint32_t down = at->thread / HALF_ACROSS, across = at->thread % HALF_ACROSS;
    const float *top = desk->top + across / 4 * HALF_ROWS + down * HALF_OWN;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t r = 0; r < HALF_OWN; r++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t p = 0; p < HALF_OWN; p++)
            own->s[r][p] = exact_exp2(own->s[r][p] - top[r]);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t p = 0; p < HALF_OWN; p++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++) {
            exact_words four;
            for (uint32_t i = 0; i < 4; i++)
                four.word[i] = exact_bits(own->s[4 * half + i][p]);
            *(exact_words *)(void *)half_weight(desk, across * HALF_OWN + p, down * 2 + half) =
                four;
        }
}

/* ---- Values ---- */

/* Dimensions of a thread: dims / HALF_ACROSS, a constant. */
EXACT_INLINE void half_page_values(const kernel_place *at, uint32_t dims, const half_desk *desk,
                                   uint32_t page, uint32_t position, bool whole, half_thread *own) {
    uint32_t down = at->thread / HALF_ACROSS, across = at->thread % HALF_ACROSS;
    uint32_t wide = dims / HALF_ACROSS;
    const uint8_t *value = desk->value + page * dims * CALL_PAGE * 2 + across * wide * 2;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t r = 0; r < HALF_OWN; r++) {
        float factor = desk->factor[page * HALF_ROWS + down * HALF_OWN + r];
        if (factor >= 0.0f)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t d = 0; d < wide; d++)
                own->acc[r][d] *= factor;
    }
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t eight = 0; eight < CALL_PAGE; eight += 8) {
        const float *low = half_weight(desk, page * CALL_PAGE + eight, down * 2);
        const float *high = half_weight(desk, page * CALL_PAGE + eight, down * 2 + 1);
#ifdef __CUDA_ARCH__
#pragma unroll 4
#endif
        for (uint32_t i = 0; i < 8; i++) {
            float v[HALF_OWN], w[HALF_OWN];
            const uint8_t *from = value + (eight + i) * dims * 2;
            if (wide == 8) {
                half_eight(exact_load_words(from), v);
            } else {
                for (uint32_t d = 0; d < wide; d++)
                    v[d] = exact_from_half(exact_load_half(from + 2 * d));
            }
            exact_words first = exact_load_words(low + i * HALF_ROWS);
            exact_words second = exact_load_words(high + i * HALF_ROWS);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t r = 0; r < 4; r++) {
                w[r] = exact_float(first.word[r]);
                w[4 + r] = exact_float(second.word[r]);
            }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t r = 0; r < HALF_OWN; r++) {
                uint32_t row = down * HALF_OWN + r, own_position = position + eight + i;
                if (whole || (own_position >= desk->begin[row] && own_position < desk->end[row]))
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
                    for (uint32_t d = 0; d < wide; d++)
                        own->acc[r][d] = fmaf(v[d], w[r], own->acc[r][d]);
            }
        }
    }
}

EXACT_INLINE void half_values(const kernel_place *at, uint32_t dims, const half_desk *desk,
                              uint32_t chunk, half_thread *own) {
    uint32_t row = at->thread % HALF_ROWS, lane = at->thread / HALF_ROWS * HALF_OWN;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t page = 0; page < HALF_PAGES; page++) {
        uint32_t position = chunk * HALF_CHUNK + page * CALL_PAGE;
        if (!half_page_seen(desk, position))
            continue;
        if (half_page_whole(desk, position))
            half_page_values(at, dims, desk, page, position, true, own);
        else
            half_page_values(at, dims, desk, page, position, false, own);
        float factor = desk->factor[page * HALF_ROWS + row];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < HALF_OWN; i++) {
            uint32_t place = page * CALL_PAGE + lane + i;
            float l = factor >= 0.0f ? own->l[i] * factor : own->l[i];
            l = l + half_weight(desk, place, row / 4)[row % 4];
            own->l[i] = l + half_weight(desk, place + 16, row / 4)[row % 4];
        }
    }
}

/* ---- Splits ---- */

EXACT_INLINE void half_zero(half_thread *own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < HALF_OWN * HALF_OWN; i++)
        own->acc[i / HALF_OWN][i % HALF_OWN] = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < HALF_OWN; i++)
        own->l[i] = 0.0f;
}

EXACT_INLINE void half_put_sums(const kernel_place *at, const half_desk *desk,
                                const half_thread *own) {
    uint32_t row = at->thread % HALF_ROWS, lane = at->thread / HALF_ROWS * HALF_OWN;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < HALF_OWN; i++)
        desk->high[(lane + i) * HALF_ROWS + row] = own->l[i];
}

/* How the split joins the ones before: f < 0: it is the first that the row sees; g < 0: the row
 * sees nothing of it. */
EXACT_INLINE void half_join_row(const kernel_place *at, const half_desk *desk, uint32_t split) {
    uint32_t row = at->thread, begin = split * CALL_SPLIT;
    float *m = desk->state + row, lanes[16];
    bool sees = desk->begin[row] < begin + CALL_SPLIT && desk->end[row] > begin;
    bool first = desk->begin[row] >= begin;
    for (uint32_t i = 0; i < 16; i++)
        lanes[i] = desk->high[i * HALF_ROWS + row];
    float sum = exact_sum16(lanes), f = -1.0f, g = -1.0f;
    if (sees) {
        float total = first ? m[0] : m[HALF_ROWS], largest = total > m[0] ? total : m[0];
        g = exact_exp2(m[0] - largest);
        float factor = exact_exp2(total - largest);
        m[2 * HALF_ROWS] = first ? sum : fmaf(sum, g, m[2 * HALF_ROWS] * factor);
        m[HALF_ROWS] = largest;
        f = first ? -1.0f : factor;
    }
    m[3 * HALF_ROWS] = f;
    m[4 * HALF_ROWS] = g;
    m[5 * HALF_ROWS] = 1.0f / m[2 * HALF_ROWS];
}

/* The sum of all splits so far stays where the result will be. */
EXACT_INLINE void half_join(const attend_tiles_call *call, const kernel_place *at, uint32_t dims,
                            const half_desk *desk, bool last, half_thread *own) {
    uint32_t down = at->thread / HALF_ACROSS, across = at->thread % HALF_ACROSS;
    uint32_t wide = dims / HALF_ACROSS;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t r = 0; r < HALF_OWN; r++) {
        uint32_t number = down * HALF_OWN + r;
        if (number >= desk->rows * desk->group)
            continue;
        uint32_t row = desk->first + number / desk->group;
        uint32_t head = desk->kv_head * desk->group + number % desk->group;
        float *out =
            call->rows.out + ((uint64_t)row * call->rows.heads + head) * dims + across * wide;
        float f = desk->state[3 * HALF_ROWS + number], g = desk->state[4 * HALF_ROWS + number];
        float divided = desk->state[5 * HALF_ROWS + number];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t d = 0; d < wide; d++) {
            float y = own->acc[r][d];
            if (g < 0.0f)
                y = out[d];
            else if (!(f < 0.0f))
                y = fmaf(y, g, out[d] * f);
            out[d] = last ? y * divided : y;
        }
    }
    half_zero(own);
}

EXACT_INLINE void half_attend(const attend_tiles_call *call, kernel_place *at, uint32_t dims) {
    half_thread threads[HALF_THREADS_OWN];
    half_desk desk;
    if (!half_lay(call, at, dims, &desk))
        return;
#define HALF_THREAD (&threads[HALF_THREADS_OWN == 1 ? 0 : at->thread])
    uint32_t chunk = desk.seen_begin / HALF_CHUNK, last = (desk.seen_end - 1) / HALF_CHUNK;
    bool fresh = true;
    CUDA_EACH(at, half_open(call, at, dims, &desk); half_zero(HALF_THREAD);
              half_copy(call, at, dims, &desk, chunk, false));
    for (; chunk <= last; chunk++) {
        bool ends = chunk == last || chunk % (CALL_SPLIT / HALF_CHUNK) == 1;
        CUDA_EACH(at, half_copy(call, at, dims, &desk, chunk, true); COPY_WAIT(at, 1));
        CUDA_EACH(at, half_scores(call, at, dims, &desk, chunk, HALF_THREAD));
        CUDA_EACH(at, half_copy(call, at, dims, &desk, chunk < last ? chunk + 1 : ~0u / HALF_CHUNK,
                                false);
                  if (at->thread < HALF_ROWS) half_tops(at, &desk, fresh));
        CUDA_EACH(at, half_weigh(at, &desk, HALF_THREAD); COPY_WAIT(at, 1));
        CUDA_EACH(at, half_values(at, dims, &desk, chunk, HALF_THREAD));
        fresh = ends;
        if (!ends)
            continue;
        CUDA_EACH(at, half_put_sums(at, &desk, HALF_THREAD));
        CUDA_EACH(at, if (at->thread < HALF_ROWS)
                          half_join_row(at, &desk, chunk / (CALL_SPLIT / HALF_CHUNK)));
        CUDA_EACH(at, half_join(call, at, dims, &desk, chunk == last, HALF_THREAD));
    }
#undef HALF_THREAD
}

EXACT_INLINE void kernel_attend_half_64(const attend_tiles_call *call, kernel_place *at) {
    half_attend(call, at, 64);
}

EXACT_INLINE void kernel_attend_half_128(const attend_tiles_call *call, kernel_place *at) {
    half_attend(call, at, 128);
}

#endif
