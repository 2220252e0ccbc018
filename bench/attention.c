/* Attention alone, as the phases of a step call it, beside the limits of the machine measured in
 * the same run.
 *
 *   bench_attention [--json] [--isa plain|avx2|avx512] [--threads N] [--kv TYPE] [--shape NAME]
 *                   [--depth N] [--prefill]
 *
 * Decode: one row behind `depth` positions, rotation and write included; the bytes are those of K
 * and V, in as many layers as the shape has (or as fit POOL_BYTES_MAX), so that they come from
 * memory. "read" is their share of what the team reads at most, "bound" the share of the shortest
 * time that reading and arithmetic allow. Prefill: 512 rows at the end of `depth` positions; the
 * share is that of the f32 peak, for int8 of the int8 peak. Medians of several rounds.
 */
#include "base/allocator.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/random.h"
#include "base/region.h"
#include "kernels/fast/fast_int.h"
#include "kernels/limits.h"
#include "kernels/ops.h"
#include "kernels/rotary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES_MAX ((size_t)600 << 20)
#define ROUNDS         7
#define PREFILL_ROWS   512

typedef struct shape {
    const char *name;
    uint32_t layers, heads, kv_heads, size;
} shape;

static const shape shapes[] = {{"smollm2-135m", 30, 9, 3, 64},
                               {"tinyllama-1.1b", 22, 32, 4, 64},
                               {"llama-3.1-8b", 32, 32, 8, 128}};

typedef struct flags {
    const char *isa, *kv, *shape;
    uint32_t threads, depth;
    bool json, prefill;
} flags;

typedef struct bench {
    layer_view layers[32];
    model_view model;
    rotary_table rotary;
    double frequency[128];
    size_t offset[32];
    kv_view kv;
    region pool;
    uint32_t *pages;
    uint32_t *position, *row_segment;
    batch_segment segment;
    batch_view batch;
    backend backend;
    scratch_view scratch;
    step_view step;
    uint32_t rows;
} bench;

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory == NULL)
        exit(1);
    return memory;
}

static float *noise(size_t count) {
    float *x = take(count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(random_uniform_at(3, 1, i) * 2.0 - 1.0);
    return x;
}

static void open_model(bench *b, const shape *s, kv_type type, uint32_t depth) {
    uint32_t page_count = (depth + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    size_t layer_bytes = s->kv_heads * kv_head_bytes(type, s->size);
    uint32_t layers = s->layers;
    while (layers > 1 && layers * layer_bytes * page_count > POOL_BYTES_MAX)
        layers--;
    for (uint32_t i = 0; i < s->size / 2; i++)
        b->frequency[i] = pow(10000.0, -2.0 * i / s->size);
    b->rotary = (rotary_table){.pairs = s->size / 2, .frequency = b->frequency, .magnitude = 1.0};
    for (uint32_t i = 0; i < layers; i++) {
        b->layers[i] = (layer_view){.heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .head_size = s->size,
                                    .attention_scale = 1.0f / sqrtf((float)s->size)};
        b->offset[i] = i * layer_bytes;
    }
    b->model = (model_view){
        .layers = layers, .layer = b->layers, .rotary = &b->rotary, .rotary_tables = 1};
    b->kv = (kv_view){.type = type, .page_bytes = layers * layer_bytes, .layer_offset = b->offset};
    b->pages = take(page_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < page_count; i++)
        b->pages[i] = i;
    region_options options = {.huge = true};
    if (region_open(NULL, page_count * b->kv.page_bytes, &options, "KV", &b->pool, NULL) != AVO_OK)
        exit(1);
    b->kv.pool = b->pool.data;
    /* Any numbers will do, but they must be numbers: one page is written, the others are copies. */
    memset(b->kv.pool, 0, b->kv.page_bytes);
    float *x = noise((size_t)s->size * 2);
    for (uint32_t i = 0; i < layers; i++)
        for (uint32_t head = 0; head < s->kv_heads; head++)
            for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
                kv_tile_write(type, s->size, kv_head(&b->kv, 0, i, head, s->size), slot, x + slot,
                              x + s->size - slot);
    for (uint32_t i = 1; i < page_count; i++)
        memcpy(b->kv.pool + i * b->kv.page_bytes, b->kv.pool, b->kv.page_bytes);
    free(x);
}

static void open_step(bench *b, const shape *s, uint32_t rows, uint32_t depth, team *team,
                      const op_table *ops) {
    b->rows = rows;
    b->position = take(rows * sizeof(uint32_t));
    b->row_segment = take(rows * sizeof(uint32_t));
    for (uint32_t i = 0; i < rows; i++) {
        b->position[i] = depth - rows + i;
        b->row_segment[i] = 0;
    }
    b->segment = (batch_segment){.rows = rows, .pages = b->pages};
    b->batch = (batch_view){.rows = rows,
                            .position = b->position,
                            .row_segment = b->row_segment,
                            .segment = &b->segment,
                            .segments = 1};
    fast_backend(ops, &b->backend);
    scratch_shape shape = {
        .model = &b->model, .rows_max = rows, .workers = team_size(team), .context_max = depth};
    size_t worker_bytes;
    size_t shared_bytes;
    if (!b->backend.scratch_bytes(&shape, &worker_bytes, &shared_bytes))
        exit(1);
    b->scratch = (scratch_view){.query = noise((size_t)rows * s->heads * s->size),
                                .key = noise((size_t)rows * s->kv_heads * s->size),
                                .value = noise((size_t)rows * s->kv_heads * s->size),
                                .attended = noise((size_t)rows * s->heads * s->size),
                                .cosine = noise((size_t)rows * s->size),
                                .sine = noise((size_t)rows * s->size),
                                .worker = take(team_size(team) * worker_bytes),
                                .worker_bytes = worker_bytes,
                                .shared = take(shared_bytes),
                                .pairs_max = s->size / 2,
                                .rows_max = rows,
                                .context_max = depth};
    b->step = (step_view){.model = &b->model,
                          .batch = &b->batch,
                          .kv = &b->kv,
                          .scratch = &b->scratch,
                          .backend = &b->backend,
                          .team = team};
}

static void bench_close(bench *b) {
    region_close(&b->pool);
    free(b->pages);
    free(b->position);
    free(b->row_segment);
    free(b->scratch.query);
    free(b->scratch.key);
    free(b->scratch.value);
    free(b->scratch.attended);
    free(b->scratch.cosine);
    free(b->scratch.sine);
    free(b->scratch.worker);
    free(b->scratch.shared);
}

static void all_layers(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    const step_view *step = context;
    for (uint32_t i = 0; i < step->model->layers; i++) {
        fast_position(step, i, worker);
        fast_attention(step, i, worker);
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_seconds(bench *b) {
    double seconds[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        uint64_t begin = clock_now_ns();
        team_run(b->step.team, all_layers, &b->step);
        if (i >= 0)
            seconds[i] = clock_seconds(begin, clock_now_ns());
    }
    qsort(seconds, ROUNDS, sizeof(double), compare);
    return seconds[ROUNDS / 2];
}

static void measure(const flags *f, const shape *s, kv_type type, uint32_t depth, team *team,
                    const op_table *ops, const machine_limits *limits, bool first) {
    bench *b = calloc(1, sizeof(*b));
    uint32_t rows = f->prefill ? PREFILL_ROWS : 1;
    if (b == NULL || depth < rows)
        exit(1);
    open_model(b, s, type, depth);
    open_step(b, s, rows, depth, team, ops);
    double seconds = median_seconds(b);
    double positions = 0;
    for (uint32_t i = 0; i < rows; i++)
        positions += b->position[i] + 1;
    double operations = 4.0 * s->size * s->heads * positions * b->model.layers;
    double bytes =
        (double)((depth + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS) * (double)b->kv.page_bytes;
    limit_work work = {.bytes = bytes};
    *(type == KV_INT8 ? &work.integer_operations : &work.floating_operations) = operations;
    limit_bound bound;
    double shortest = limits_shortest(limits, &work, &bound);
    double gbps = bytes / seconds * 1e-9;
    double gops = operations / seconds * 1e-9;
    double read_share = bytes / seconds / limits->read_bytes;
    double fma_share = operations / seconds / limits->floating_operations;
    if (f->json)
        printf("%s{\"kind\":\"%s\",\"shape\":\"%s\",\"kv_type\":\"%s\",\"depth\":%u,\"layers\":%u,"
               "\"us_per_layer\":%.3f,\"gbps\":%.3f,\"gops\":%.3f,\"read_share\":%.4f,"
               "\"f32_share\":%.4f,\"bound_share\":%.4f}",
               first ? "" : ",", f->prefill ? "prefill" : "decode", s->name, kv_type_name(type),
               depth, b->model.layers, seconds / b->model.layers * 1e6, gbps, gops, read_share,
               fma_share, shortest / seconds);
    else
        printf("%-7s %-15s %-5s %6u %10.2f %8.2f %8.1f %6.1f%% %6.1f%% %6.1f%%\n",
               f->prefill ? "prefill" : "decode", s->name, kv_type_name(type), depth,
               seconds / b->model.layers * 1e6, gbps, gops, read_share * 100, fma_share * 100,
               shortest / seconds * 100);
    fflush(stdout);
    bench_close(b);
    free(b);
}

static bool read_flags(int argc, char **argv, flags *f) {
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0)
            f->json = true;
        else if (strcmp(argv[i], "--prefill") == 0)
            f->prefill = true;
        else if (strcmp(argv[i], "--isa") == 0 && value)
            f->isa = argv[++i];
        else if (strcmp(argv[i], "--kv") == 0 && value)
            f->kv = argv[++i];
        else if (strcmp(argv[i], "--shape") == 0 && value)
            f->shape = argv[++i];
        else if (strcmp(argv[i], "--threads") == 0 && value)
            f->threads = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--depth") == 0 && value)
            f->depth = (uint32_t)strtoul(argv[++i], NULL, 10);
        else
            return false;
    }
    return true;
}

static bool make_table(flags *f, op_table *ops) {
    cpu_features features = cpu_features_detect();
    bool wide = features.avx512 && features.avx512_vnni;
    if (f->isa == NULL)
        f->isa = wide ? "avx512" : features.avx2 ? "avx2" : "plain";
    ops_plain(ops);
    if (strcmp(f->isa, "plain") == 0)
        return true;
    if (!features.avx2)
        return false;
    ops_avx2(ops);
    if (strcmp(f->isa, "avx2") == 0)
        return true;
    if (!wide || strcmp(f->isa, "avx512") != 0)
        return false;
    ops_avx512(ops);
    return true;
}

static void measure_all(const flags *f, team *team, const op_table *ops,
                        const machine_limits *limits) {
    static const uint32_t decode_depths[] = {8192, 32768};
    static const uint32_t prefill_depths[] = {512, 4096};
    const uint32_t *depths = f->prefill ? prefill_depths : decode_depths;
    bool first = true;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++)
            for (int d = 0; d < 2; d++) {
                if ((f->shape != NULL && strcmp(f->shape, shapes[s].name) != 0) ||
                    (f->kv != NULL && strcmp(f->kv, kv_type_name((kv_type)type)) != 0) ||
                    (f->depth != 0 && d > 0))
                    continue;
                measure(f, &shapes[s], (kv_type)type, f->depth != 0 ? f->depth : depths[d], team,
                        ops, limits, first);
                first = false;
            }
}

int main(int argc, char **argv) {
    flags f = {.threads = cpu_usable_threads()};
    op_table ops;
    limit_table table;
    if (!read_flags(argc, argv, &f) || !make_table(&f, &ops) || !limits_of(f.isa, &table)) {
        fprintf(stderr, "usage: bench_attention [--json] [--isa plain|avx2|avx512] [--threads N] "
                        "[--kv TYPE] [--shape NAME] [--depth N] [--prefill]\n");
        return 2;
    }
    team *team;
    if (team_open(NULL, f.threads, &team, NULL) != AVO_OK)
        return 1;
    region memory;
    region_options options = {.huge = true};
    if (region_open(NULL, LIMITS_READ_BYTES, &options, "memory", &memory, NULL) != AVO_OK)
        return 1;
    machine_limits limits;
    limits_touch(team, memory.data, LIMITS_READ_BYTES);
    limits_measure(&table, team, memory.data, LIMITS_READ_BYTES, &limits);
    region_close(&memory);
    if (f.json)
        printf("{\"isa\":\"%s\",\"threads\":%u,\"read_gbps\":%.3f,\"f32_gops\":%.3f,"
               "\"int8_gops\":%.3f,\"results\":[",
               f.isa, f.threads, limits.read_bytes * 1e-9, limits.floating_operations * 1e-9,
               limits.integer_operations * 1e-9);
    else
        printf("%s, %u threads: reads %.2f GB/s, f32 %.0f GFLOPS, int8 %.0f GOPS\n"
               "%-7s %-15s %-5s %6s %10s %8s %8s %7s %7s %7s\n",
               f.isa, f.threads, limits.read_bytes * 1e-9, limits.floating_operations * 1e-9,
               limits.integer_operations * 1e-9, "what", "shape", "kv", "depth", "us/layer", "GB/s",
               "GOPS", "read", "f32", "bound");
    measure_all(&f, team, &ops, &limits);
    if (f.json)
        printf("]}\n");
    team_close(team);
    return 0;
}
