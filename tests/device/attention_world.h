/* One attention layer with its sessions, pages and steps, for the tests of attention. */
#ifndef AVO_TESTS_ATTENTION_WORLD_H
#define AVO_TESTS_ATTENTION_WORLD_H

#include "support/support.h"

#include "base/random.h"
#include "device/cpu/phases/fast_int.h"
#include "device/cpu/ref/ref_int.h"
#include "device/rotary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_MAX 2048

static inline float noise(uint64_t stream, uint64_t i) {
    return (float)(random_uniform_at(5, stream, i) * 2.0 - 1.0);
}

/* ---- A layer with one or several sessions in a pool of pages ---- */

typedef struct shape {
    uint32_t heads, kv_heads, size, length, window;
    float softcap;
    bool norms, interleaved;
} shape;

typedef struct world {
    layer_view layer;
    model_view model;
    rotary_table rotary;
    double frequency[128];
    float norm_weight[256];
    kv_view kv;
    size_t offset;
    uint32_t *pages; /* [sessions][pages of one] */
    uint32_t page_count, sessions, length;
    uint32_t stale;             /* what lies in pages, word by word, before anything is written */
    float *query, *key, *value; /* [session][length][…] as the products leave them */
} world;

static inline void world_open(world *w, const shape *s, kv_type type, uint32_t sessions) {
    memset(w, 0, sizeof(*w));
    w->length = s->length;
    w->sessions = sessions;
    for (int i = 0; i < 256; i++)
        w->norm_weight[i] = 1.0f + 0.3f * noise(9, (uint64_t)i);
    uint32_t pairs = s->size / 2 > 128 ? 128 : s->size / 2;
    for (uint32_t i = 0; i < pairs; i++)
        w->frequency[i] = pow(10000.0, -(double)i / pairs);
    w->rotary = (rotary_table){
        .pairs = pairs, .interleaved = s->interleaved, .frequency = w->frequency, .magnitude = 1.0};
    w->layer = (layer_view){.heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_size = s->size,
                            .window = s->window,
                            .attention_scale = 1.7f / sqrtf((float)s->size),
                            .attention_softcap = s->softcap};
    if (s->norms)
        w->layer.query_norm = w->layer.key_norm =
            (norm_view){.kind = NORM_RMS, .epsilon = 1e-5f, .weight = w->norm_weight};
    w->model =
        (model_view){.layers = 1, .layer = &w->layer, .rotary = &w->rotary, .rotary_tables = 1};
    w->page_count = (s->length + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    uint32_t total = w->page_count * sessions;
    w->pages = calloc(total, sizeof(uint32_t));
    for (uint32_t i = 0; i < total; i++) /* backwards: not as they lie in memory */
        w->pages[i] = total - 1 - i;
    w->kv = (kv_view){.type = type,
                      .page_bytes = s->kv_heads * kv_head_bytes(type, s->size),
                      .layer_offset = &w->offset};
    w->kv.pool = test_take_exact(total * w->kv.page_bytes, 64);
    size_t q = (size_t)sessions * s->length * s->heads * s->size;
    size_t k = (size_t)sessions * s->length * s->kv_heads * s->size;
    w->query = malloc(q * sizeof(float));
    w->key = malloc(k * sizeof(float));
    w->value = malloc(k * sizeof(float));
    for (size_t i = 0; i < q; i++)
        w->query[i] = 2.0f * noise(1, i);
    for (size_t i = 0; i < k; i++) {
        w->key[i] = 2.0f * noise(2, i) + (i % s->size == 3 ? 6.0f : 0.0f); /* an outlier */
        w->value[i] = noise(3, i);
    }
}

static inline void world_close(world *w) {
    free(w->pages);
    free(w->kv.pool);
    free(w->query);
    free(w->key);
    free(w->value);
}

static inline void pool_clear(world *w) {
    for (size_t i = 0; i < w->page_count * w->sessions * w->kv.page_bytes; i += sizeof(w->stale))
        memcpy(w->kv.pool + i, &w->stale, sizeof(w->stale));
}

/* ---- Steps ---- */

typedef struct runner {
    world *w;
    team *team;
    uint32_t rows_max;
    backend backend;
    scratch_view scratch;
    step_view step;
    batch_view batch;
    batch_segment *segments;
    uint32_t *position, *row_segment;
    phase_list phases;
    uint8_t phases_memory[1024];
} runner;

static inline void runner_open(runner *r, world *w, const op_table *ops, uint32_t threads,
                               uint32_t rows_max) {
    memset(r, 0, sizeof(*r));
    const layer_view *layer = &w->layer;
    r->w = w;
    r->rows_max = rows_max;
    assert_ok(team_open(NULL, threads, &r->team, NULL));
    size_t q = (size_t)rows_max * layer->heads * layer->head_size;
    size_t k = (size_t)rows_max * layer->kv_heads * layer->head_size;
    uint32_t pairs = w->rotary.pairs > 0 ? w->rotary.pairs : 1;
    scratch_shape shape = {
        .model = &w->model, .rows_max = rows_max, .workers = threads, .context_max = CONTEXT_MAX};
    size_t worker_bytes;
    size_t shared_bytes;
    if (ops != NULL)
        fast_backend(ops, &r->backend);
    else
        r->backend = *backend_reference();
    assert_true(r->backend.scratch_bytes(&shape, &worker_bytes, &shared_bytes));
    r->scratch = (scratch_view){.query = malloc(q * sizeof(float)),
                                .key = malloc(k * sizeof(float)),
                                .value = malloc(k * sizeof(float)),
                                .attended = malloc(q * sizeof(float)),
                                .cosine = malloc(rows_max * pairs * sizeof(float)),
                                .sine = malloc(rows_max * pairs * sizeof(float)),
                                .worker = test_take_exact(threads * worker_bytes, 64),
                                .worker_bytes = worker_bytes,
                                .shared = test_take_exact(shared_bytes > 0 ? shared_bytes : 64, 64),
                                .pairs_max = pairs,
                                .rows_max = rows_max,
                                .context_max = CONTEXT_MAX};
    r->position = malloc(rows_max * sizeof(uint32_t));
    r->row_segment = malloc(rows_max * sizeof(uint32_t));
    r->segments = malloc(w->sessions * sizeof(batch_segment));
    r->step = (step_view){.model = &w->model,
                          .batch = &r->batch,
                          .kv = &w->kv,
                          .scratch = &r->scratch,
                          .backend = &r->backend,
                          .team = r->team,
                          .phases = &r->phases};
    uint32_t most = 8;
    assert_true(phase_list_bytes(most) <= sizeof(r->phases_memory));
    phase_list_init(&r->phases, most, r->phases_memory);
}

static inline void runner_close(runner *r) {
    team_close(r->team);
    free(r->scratch.query);
    free(r->scratch.key);
    free(r->scratch.value);
    free(r->scratch.attended);
    free(r->scratch.cosine);
    free(r->scratch.sine);
    free(r->scratch.worker);
    free(r->scratch.shared);
    free(r->position);
    free(r->row_segment);
    free(r->segments);
}

/* Adds tokens [first, first + count) of a session to the batch. */
static inline void add_rows(runner *r, uint32_t session, uint32_t first, uint32_t count) {
    const world *w = r->w;
    size_t q = (size_t)w->layer.heads * w->layer.head_size;
    size_t k = (size_t)w->layer.kv_heads * w->layer.head_size;
    uint32_t row = r->batch.rows;
    assert_true(row + count <= r->rows_max);
    size_t from = (size_t)session * w->length + first;
    memcpy(r->scratch.query + row * q, w->query + from * q, count * q * sizeof(float));
    memcpy(r->scratch.key + row * k, w->key + from * k, count * k * sizeof(float));
    memcpy(r->scratch.value + row * k, w->value + from * k, count * k * sizeof(float));
    r->segments[r->batch.segments] =
        (batch_segment){.first = row, .rows = count, .pages = w->pages + session * w->page_count};
    for (uint32_t i = 0; i < count; i++) {
        r->position[row + i] = first + i;
        r->row_segment[row + i] = r->batch.segments;
    }
    r->batch.rows += count;
    r->batch.segments++;
    r->batch.position = r->position;
    r->batch.row_segment = r->row_segment;
    r->batch.segment = r->segments;
}

/* Without attention K and V are only written. */
static inline void run_step(runner *r, bool attend) {
    if (attend) {
        r->backend.attention(&r->step, 1);
        return;
    }
    reference_angles(&r->step);
    if (r->backend.ops == NULL) {
        reference_position(&r->step, 0);
        return;
    }
    phase_list_begin(&r->phases, &r->step);
    r->phases.layer = 0;
    fast_add_position(&r->phases);
    phase_list_run(&r->phases);
}

/* One session from the first token to the last, `chunk` rows a step; results of rows from `from`
 * on, [length − from][heads][size]. Caller frees. */
static inline float *run_session(world *w, const op_table *ops, uint32_t threads, uint32_t chunk,
                                 uint32_t from) {
    size_t q = (size_t)w->layer.heads * w->layer.head_size;
    float *out = calloc((w->length - from) * q, sizeof(float));
    runner r;
    runner_open(&r, w, ops, threads, chunk);
    pool_clear(w);
    for (uint32_t at = 0; at < w->length;) {
        uint32_t end = at < from ? from : w->length;
        uint32_t count = end - at < chunk ? end - at : chunk;
        r.batch.rows = r.batch.segments = 0;
        add_rows(&r, 0, at, count);
        run_step(&r, at >= from);
        if (at >= from)
            memcpy(out + (at - from) * q, r.scratch.attended, count * q * sizeof(float));
        at += count;
    }
    runner_close(&r);
    return out;
}

static inline void check_equal(const world *w, const float *want, const float *got, uint32_t from,
                               const char *what, const char *table) {
    size_t q = (size_t)w->layer.heads * w->layer.head_size;
    for (size_t i = 0; i < (w->length - from) * q; i++)
        if (memcmp(want + i, got + i, sizeof(float)) != 0)
            fail_msg("%s, %s: heads %u/%u size %u window %u, kv %s: row %zu head %zu dim %zu: %a "
                     "instead of %a",
                     table, what, w->layer.heads, w->layer.kv_heads, w->layer.head_size,
                     w->layer.window, kv_type_name(w->kv.type), from + i / q,
                     i % q / w->layer.head_size, i % w->layer.head_size, (double)got[i],
                     (double)want[i]);
}

#endif
