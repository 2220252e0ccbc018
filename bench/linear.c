/* Rates of the matrix products of the op table on matrices that no cache holds, beside what this
 * machine can do, measured in the same run.
 *
 *   bench_linear [--json] ISA TYPES ROWS K ROWS_OF_X THREADS [SECONDS]
 *   bench_linear avx512 q4r,q4_0 5632 2048 1,4,8,16,512 2
 *
 * ISA: plain, avx2, avx512, amx. TYPES and ROWS_OF_X: comma lists; TYPES may be "all". Copies of
 * the matrix fill more than 256 MB and are walked in turn, by all workers with a barrier behind
 * each, as the phases do. Of the repeats within SECONDS (default 0.5) the median counts. "of read"
 * is against reading the same memory with nothing done to it, in turn with the products, because
 * what memory gives changes from moment to moment where machines are shared; "of peak" against the
 * peak of the instructions that the type uses (int8 products or f32 FMA); "of first" is the time
 * against that of the first number of rows. "quantise" is what bringing the rows into the type's
 * form takes.
 */
#include "base/clock.h"
#include "base/number.h"
#include "base/random.h"
#include "base/team.h"
#include "device/cpu/limits.h"
#include "device/cpu/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES_MIN   ((size_t)256 << 20)
#define REPEATS_MAX 512
#define LIST_MAX    32
#define HUGE_PAGE   ((size_t)2 << 20)

typedef struct setting {
    bool json;
    quant_type types[PANEL_INDEX_COUNT];
    size_t type_count;
    uint32_t rows, k;
    uint32_t batch[LIST_MAX];
    size_t batch_count;
    uint32_t threads;
    double seconds;
} setting;

typedef struct bench {
    setting set;
    op_table table;
    machine_limits limits;
    team *team;
    uint8_t *memory; /* copies of the matrix */
    size_t memory_bytes;
    uint8_t *scratch; /* [threads][scratch_bytes] */
    size_t scratch_bytes;
    uint64_t *unused; /* [threads] */
} bench;

static void *pages_or_exit(size_t bytes) {
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uint8_t *block =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        fprintf(stderr, "bench_linear: %zu bytes cannot be mapped\n", bytes);
        exit(1);
    }
    block += HUGE_PAGE - (uintptr_t)block % HUGE_PAGE;
    madvise(block, bytes, MADV_HUGEPAGE);
    return block;
}

/* ---- One case ---- */

typedef struct linear_case {
    const bench *bench;
    linear_op op;
    linear_call call;
    size_t copies, matrix_bytes, panels;
} linear_case;

static void walk_copies(void *context, uint32_t worker, uint32_t workers) {
    const linear_case *one = context;
    const bench *bench = one->bench;
    size_t first, last;
    team_share(one->panels, worker, workers, &first, &last);
    uint8_t *scratch = bench->scratch + worker * bench->scratch_bytes;
    for (size_t copy = 0; copy < one->copies; copy++) {
        weight_view weight = *one->call.weight;
        weight.data = bench->memory + copy * one->matrix_bytes;
        linear_call call = one->call;
        call.weight = &weight;
        one->op(&call, first, last, scratch);
        team_barrier(bench->team, worker);
    }
}

typedef uint64_t pair __attribute__((vector_size(16)));

/* Reads the bytes that walk_copies reads. */
static void walk_read(void *context, uint32_t worker, uint32_t workers) {
    const linear_case *one = context;
    size_t first, last;
    team_share(one->copies * one->matrix_bytes / PANEL_LINE_BYTES, worker, workers, &first, &last);
    const uint8_t *data = one->bench->memory;
    pair sum[4] = {0};
    for (size_t line = first; line < last; line++) {
        const pair *at = (const pair *)(const void *)(data + line * PANEL_LINE_BYTES);
        __builtin_prefetch((const uint8_t *)at + 4096);
        for (size_t i = 0; i < 4; i++)
            sum[i] += at[i];
    }
    sum[0] += sum[1] + sum[2] + sum[3];
    one->bench->unused[worker] = sum[0][0] + sum[0][1];
}

static int compare_doubles(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double seconds_of(linear_case *one, team_task task) {
    uint64_t from = clock_now_ns();
    team_each(one->bench->team, task, one);
    return clock_seconds(from, clock_now_ns()) / (double)one->copies;
}

/* Median seconds of one product, and of reading its bytes. */
static void time_case(linear_case *one, double *product, double *reading) {
    double products[REPEATS_MAX], readings[REPEATS_MAX], limit = one->bench->set.seconds;
    double once = seconds_of(one, walk_copies);
    if (once * (double)one->copies > limit / 3) { /* many rows: fewer copies say the same */
        size_t fitting = (size_t)(limit / 5 / once);
        one->copies = fitting < 1 ? 1 : fitting;
    }
    size_t repeats = 0;
    uint64_t begin = clock_now_ns();
    do {
        readings[repeats] = seconds_of(one, walk_read);
        products[repeats++] = seconds_of(one, walk_copies);
    } while (repeats < REPEATS_MAX &&
             (repeats < 3 || clock_seconds(begin, clock_now_ns()) < limit));
    qsort(products, repeats, sizeof(double), compare_doubles);
    qsort(readings, repeats, sizeof(double), compare_doubles);
    *product = products[repeats / 2];
    *reading = readings[repeats / 2];
}

typedef struct figures {
    double seconds, read_seconds, quantise_seconds, bytes, operations;
} figures;

static figures measure(const bench *bench, quant_type type, uint32_t batch) {
    const setting *set = &bench->set;
    weight_view weight = {.type = type,
                          .layout = QUANT_LAYOUT_PANELS,
                          .rows = set->rows,
                          .k = set->k,
                          .data = bench->memory};
    uint64_t matrix_bytes = 0;
    if (!weight_bytes(type, QUANT_LAYOUT_PANELS, set->rows, set->k, &matrix_bytes)) {
        fprintf(stderr, "bench_linear: %s does not go with k = %u\n", quant_name(type), set->k);
        exit(2);
    }
    uint8_t *block = pages_or_exit(activation_bytes(batch, set->k));
    float *out = pages_or_exit((size_t)batch * set->rows * sizeof(float));
    float *source = pages_or_exit((size_t)batch * set->k * sizeof(float));
    for (size_t i = 0; i < (size_t)batch * set->k; i++)
        source[i] = (float)random_uniform_at(1, 1, i) - 0.5f;
    activation_view x = activation_lay(panels_form(type), batch, set->k, block);
    double quantise_seconds = 0;
    for (int repeat = 0; repeat < 3; repeat++) {
        uint64_t from = clock_now_ns();
        for (uint32_t row = 0; row < batch; row++)
            bench->table.quantise(source + (size_t)row * set->k, &x, row, bench->scratch);
        quantise_seconds = clock_seconds(from, clock_now_ns());
    }
    linear_case one = {bench,
                       bench->table.linear[panel_index_of(type)],
                       {&weight, NULL, &x, out, set->rows, LINEAR_STORE, 1.0f},
                       bench->memory_bytes / matrix_bytes,
                       matrix_bytes,
                       weight_panels(&weight)};
    double seconds, read_seconds;
    time_case(&one, &seconds, &read_seconds);
    munmap(block, activation_bytes(batch, set->k));
    munmap(out, (size_t)batch * set->rows * sizeof(float));
    munmap(source, (size_t)batch * set->k * sizeof(float));
    return (figures){seconds, read_seconds, quantise_seconds, (double)matrix_bytes,
                     2.0 * set->rows * set->k * batch};
}

static void print_case(const bench *bench, quant_type type, uint32_t batch, const figures *found,
                       double first) {
    bool floats = panels_form(type) == PRODUCT_FLOAT;
    double peak = floats ? bench->limits.floating_operations : bench->limits.integer_operations;
    double gbps = found->bytes / found->seconds * 1e-9;
    double gops = found->operations / found->seconds * 1e-9;
    double of_read = found->read_seconds / found->seconds;
    double of_peak = peak > 0 ? gops * 1e9 / peak : 0;
    if (bench->set.json)
        printf("{\"isa\":\"%s\",\"type\":\"%s\",\"rows\":%u,\"k\":%u,\"batch\":%u,\"threads\":%u,"
               "\"seconds\":%.9g,\"read_seconds\":%.9g,\"quantise_seconds\":%.9g,\"gbps\":%.4g,"
               "\"gops\":%.4g,"
               "\"of_read\":%.4g,\"of_peak\":%.4g}\n",
               bench->table.name, quant_name(type), bench->set.rows, bench->set.k, batch,
               bench->set.threads, found->seconds, found->read_seconds, found->quantise_seconds,
               gbps, gops, of_read, of_peak);
    else
        printf("%-7s %5u  %10.1f  %9.1f  %7.2f  %7.1f  %6.1f %%  %6.1f %%  %6.2f\n",
               quant_name(type), batch, found->seconds * 1e6, found->quantise_seconds * 1e6, gbps,
               gops, 100 * of_read, 100 * of_peak, found->seconds / first);
    fflush(stdout);
}

/* ---- The command ---- */

static void usage(const char *wrong) {
    fprintf(stderr,
            "bench_linear: %s\n"
            "usage: bench_linear [--json] ISA TYPES ROWS K ROWS_OF_X THREADS [SECONDS]\n",
            wrong);
    exit(2);
}

static uint32_t number_or_usage(const char *text) {
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || *end != 0 || number == 0 || number > UINT32_MAX)
        usage(text);
    return (uint32_t)number;
}

static void read_types(char *text, setting *set) {
    static const quant_type all[] = {
#define BENCH_TYPE(name) QUANT_##name,
        PANEL_TYPE_TABLE(BENCH_TYPE)
#undef BENCH_TYPE
    };
    bool every = strcmp(text, "all") == 0;
    for (size_t i = 0; i < PANEL_INDEX_COUNT; i++) {
        char list[512], name[32];
        snprintf(list, sizeof(list), ",%s,", text);
        snprintf(name, sizeof(name), ",%s,", quant_name(all[i]));
        if (every || strstr(list, name) != NULL)
            set->types[set->type_count++] = all[i];
    }
    if (set->type_count == 0)
        usage("no such type");
}

static void read_arguments(int count, char **arguments, const char **isa, setting *set) {
    int at = 1;
    if (at < count && strcmp(arguments[at], "--json") == 0) {
        set->json = true;
        at++;
    }
    if (count - at < 6 || count - at > 7)
        usage("wrong number of arguments");
    *isa = arguments[at];
    read_types(arguments[at + 1], set);
    set->rows = number_or_usage(arguments[at + 2]);
    set->k = number_or_usage(arguments[at + 3]);
    for (char *rest = arguments[at + 4]; rest != NULL && set->batch_count < LIST_MAX;) {
        char *comma = strchr(rest, ',');
        if (comma != NULL)
            *comma++ = 0;
        set->batch[set->batch_count++] = number_or_usage(rest);
        rest = comma;
    }
    set->threads = number_or_usage(arguments[at + 5]);
    set->seconds = count - at == 7 ? number_from_text(arguments[at + 6], NULL) : 0.5;
}

static void prepare(bench *bench) {
    const setting *set = &bench->set;
    uint64_t largest = 0;
    for (size_t i = 0; i < set->type_count; i++) {
        uint64_t bytes;
        if (weight_bytes(set->types[i], QUANT_LAYOUT_PANELS, set->rows, set->k, &bytes) &&
            bytes > largest)
            largest = bytes;
    }
    bench->memory_bytes = BYTES_MIN + largest;
    bench->memory = pages_or_exit(bench->memory_bytes);
    bench->scratch_bytes = (linear_scratch_bytes(set->k) + 4095) / 4096 * 4096;
    bench->unused = pages_or_exit(set->threads * sizeof(uint64_t));
    bench->scratch = pages_or_exit(bench->scratch_bytes * set->threads);
    limits_measure(&bench->limits.table, bench->team, bench->memory, BYTES_MIN, &bench->limits);
    /* Bytes that are ordinary numbers as f32, f16 and bf16 too. */
    uint64_t *words = (uint64_t *)(void *)bench->memory;
    for (size_t i = 0; i < bench->memory_bytes / 8; i++)
        words[i] = ((i * 0x9e3779b97f4a7c15u) ^ (i << 17)) & 0xbfffbfffbfffbfffu;
}

int main(int count, char **arguments) {
    bench bench = {0};
    const char *isa = NULL;
    read_arguments(count, arguments, &isa, &bench.set);
    if (!ops_of(isa, &bench.table) || !limits_of(isa, &bench.limits.table))
        usage("this machine does not have that instruction set");
    avo_error error = {0};
    if (team_open(NULL, bench.set.threads, &bench.team, &error) != AVO_OK) {
        fprintf(stderr, "bench_linear: %s\n", error.text);
        return 1;
    }
    prepare(&bench);
    const machine_limits *limits = &bench.limits;
    if (!bench.set.json)
        printf("%s, %u threads, %u x %u: %s %.0f GOPS, %s %.0f GFLOPS\n"
               "type     rows  us a call   quantise     GB/s     GOPS   of read   of peak  "
               "of first\n",
               bench.table.name, bench.set.threads, bench.set.rows, bench.set.k,
               limits->table.integer.name, limits->integer_operations * 1e-9,
               limits->table.floating.name, limits->floating_operations * 1e-9);
    for (size_t i = 0; i < bench.set.type_count; i++) {
        double first = 0;
        for (size_t j = 0; j < bench.set.batch_count; j++) {
            figures found = measure(&bench, bench.set.types[i], bench.set.batch[j]);
            if (j == 0)
                first = found.seconds;
            print_case(&bench, bench.set.types[i], bench.set.batch[j], &found, first);
        }
    }
    team_close(bench.team);
    return 0;
}
