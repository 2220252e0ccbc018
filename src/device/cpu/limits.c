/* Measuring the machine: the clock around loops that do nothing else.
 *
 * Reading is plain C for every instruction set: 16 bytes at a time are fast enough to wait for the
 * memory, whatever it is. How many places of its share a worker reads at once, and how far it
 * prefetches, makes a difference that depends on the machine, so that all of a few ways are tried
 * and the best one counts: what a kernel could reach, not what one habit reaches. */
#include "device/cpu/limits.h"

#include "base/clock.h"

#include <string.h>

#define REPEATS        5
#define REPEATS_AGAIN  3
#define REPEAT_SECONDS 0.004
#define PAGE_BYTES     4096

/* ---- Plain C ---- */

typedef int32_t quad_int __attribute__((vector_size(16)));
typedef float quad_float __attribute__((vector_size(16)));
#define CHAINS 8

/* One step of a chain with what every processor of the family has; it adds 18, or a quarter.
 * Written as assembly, because a compiler would see that all chains are the same. */
#if defined(__x86_64__)
#define INTEGER_NAME       "pmaddwd + paddd xmm" /* 8 products of int16 and 4 sums, and 4 sums */
#define INTEGER_OPERATIONS 16
#define FLOATING_NAME      "mulps + addps xmm"
static inline void integer_step(quad_int *sum) {
    quad_int product = {0x30003, 0x30003, 0x30003, 0x30003}, a = product;
    __asm__ volatile("pmaddwd %1, %0" : "+x"(product) : "x"(a));
    __asm__ volatile("paddd %1, %0" : "+x"(*sum) : "x"(product));
}
static inline void floating_step(quad_float *sum) {
    quad_float product = {0.5f, 0.5f, 0.5f, 0.5f}, a = product;
    __asm__ volatile("mulps %1, %0" : "+x"(product) : "x"(a));
    __asm__ volatile("addps %1, %0" : "+x"(*sum) : "x"(product));
}
#elif defined(__aarch64__)
#define INTEGER_NAME       "mla v.4s"
#define INTEGER_OPERATIONS 8
#define FLOATING_NAME      "fmla v.4s"
static inline void integer_step(quad_int *sum) {
    quad_int a = {3, 3, 3, 3}, b = {6, 6, 6, 6};
    __asm__ volatile("mla %0.4s, %1.4s, %2.4s" : "+w"(*sum) : "w"(a), "w"(b));
}
static inline void floating_step(quad_float *sum) {
    quad_float a = {0.5f, 0.5f, 0.5f, 0.5f};
    __asm__ volatile("fmla %0.4s, %1.4s, %1.4s" : "+w"(*sum) : "w"(a));
}
#else
#define INTEGER_NAME       "additions of int32" /* of no known processor: not a peak */
#define INTEGER_OPERATIONS 4
#define FLOATING_NAME      "additions of floats"
static inline void integer_step(quad_int *sum) {
    *sum += 18;
}
static inline void floating_step(quad_float *sum) {
    *sum += 0.25f;
}
#endif

static uint64_t integer_peak(uint64_t rounds) {
    quad_int sum[CHAINS] = {0};
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < CHAINS; i++)
            integer_step(&sum[i]);
    }
    uint64_t all = 0;
#pragma GCC unroll 8
    for (int i = 0; i < CHAINS; i++)
        all += (uint64_t)(uint32_t)sum[i][0];
    return all;
}

static uint64_t floating_peak(uint64_t rounds) {
    quad_float sum[CHAINS] = {0};
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < CHAINS; i++)
            floating_step(&sum[i]);
    }
    float all = 0;
#pragma GCC unroll 8
    for (int i = 0; i < CHAINS; i++)
        all += sum[i][0];
    return (uint64_t)all;
}

void limits_plain(limit_table *table) {
    memset(table, 0, sizeof(*table));
    table->isa = "plain";
    table->integer = (limit_peak){INTEGER_NAME, CHAINS * INTEGER_OPERATIONS, integer_peak};
    table->floating = (limit_peak){FLOATING_NAME, CHAINS * 8, floating_peak};
}

/* ---- Reading ---- */

typedef uint64_t pair __attribute__((vector_size(16)));

/* Sums the bytes' words in `streams` places at once, line after line. */
static inline __attribute__((always_inline)) uint64_t read_lines(const uint8_t *data, size_t bytes,
                                                                 size_t streams, size_t ahead) {
    size_t part = bytes / streams / 64 * 64;
    pair sum[4] = {0};
    for (size_t at = 0; at < part; at += 64)
        for (size_t stream = 0; stream < streams; stream++) {
            const pair *line = (const pair *)(const void *)(data + stream * part + at);
            if (ahead > 0)
                __builtin_prefetch((const uint8_t *)line + ahead);
            for (size_t i = 0; i < 4; i++)
                sum[i] += line[i];
        }
    sum[0] += sum[1] + sum[2] + sum[3];
    return sum[0][0] + sum[0][1];
}

static uint64_t read_1(const uint8_t *data, size_t bytes) {
    return read_lines(data, bytes, 1, 0);
}
static uint64_t read_1_ahead(const uint8_t *data, size_t bytes) {
    return read_lines(data, bytes, 1, 4096);
}
static uint64_t read_2_ahead(const uint8_t *data, size_t bytes) {
    return read_lines(data, bytes, 2, 2048);
}
static uint64_t read_4_ahead(const uint8_t *data, size_t bytes) {
    return read_lines(data, bytes, 4, 1024);
}
static uint64_t read_8(const uint8_t *data, size_t bytes) {
    return read_lines(data, bytes, 8, 0);
}

typedef uint64_t (*read_way)(const uint8_t *data, size_t bytes);
static const read_way read_ways[] = {read_1, read_1_ahead, read_2_ahead, read_4_ahead, read_8};
#define READ_WAYS (sizeof(read_ways) / sizeof(read_ways[0]))

/* ---- A team measures together ---- */

typedef struct measurement {
    team *team;
    const uint8_t *memory;
    size_t bytes;
    read_way way;
    const limit_peak *peak;
    uint64_t rounds;
    uint64_t begin_ns, end_ns; /* by worker 0, between barriers */
    uint64_t unused[TEAM_THREADS_MAX];
} measurement;

static void begin(measurement *m, uint32_t worker) {
    team_barrier(m->team, worker);
    if (worker == 0)
        m->begin_ns = clock_now_ns();
}

static void end(measurement *m, uint32_t worker) {
    team_barrier(m->team, worker);
    if (worker == 0)
        m->end_ns = clock_now_ns();
}

typedef struct touching {
    uint8_t *memory;
    size_t bytes;
} touching;

static void task_touch(void *context, uint32_t worker, uint32_t workers) {
    const touching *t = context;
    size_t first, last;
    team_share(t->bytes / 64, worker, workers, &first, &last);
    for (size_t at = first * 64; at < last * 64; at += PAGE_BYTES) /* the kernel writes the rest */
        ((volatile uint8_t *)t->memory)[at] = 1;
}

static void task_read(void *context, uint32_t worker, uint32_t workers) {
    measurement *m = context;
    size_t first, last;
    team_share(m->bytes / 64, worker, workers, &first, &last);
    begin(m, worker);
    m->unused[worker] = m->way(m->memory + first * 64, (last - first) * 64);
    end(m, worker);
}

static void task_peak(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    measurement *m = context;
    begin(m, worker);
    m->unused[worker] = m->peak->run(m->rounds);
    end(m, worker);
}

/* The median of a few: what is measured beside it is a median too, and both suffer alike from
 * whatever else the machine has to do. */
static double usual(measurement *m, team_task task, int repeats) {
    double sorted[REPEATS];
    for (int i = 0; i < repeats; i++) {
        team_each(m->team, task, m);
        double seconds = clock_seconds(m->begin_ns, m->end_ns);
        int at = i;
        for (; at > 0 && sorted[at - 1] > seconds; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = seconds;
    }
    return sorted[repeats / 2];
}

static double peak_rate(measurement *m, const limit_peak *peak, uint64_t rounds, int repeats) {
    m->peak = peak;
    m->rounds = rounds;
    return (double)rounds * peak->operations * team_size(m->team) / usual(m, task_peak, repeats);
}

/* Rounds that take long enough for the clock. */
static uint64_t peak_rounds(measurement *m, const limit_peak *peak) {
    double seconds = 0;
    m->peak = peak;
    for (m->rounds = 1000; seconds < REPEAT_SECONDS; m->rounds *= 2) {
        team_each(m->team, task_peak, m);
        seconds = clock_seconds(m->begin_ns, m->end_ns);
    }
    return m->rounds;
}

static double read_rate(measurement *m, size_t way, int repeats) {
    m->way = read_ways[way];
    return (double)m->bytes / usual(m, task_read, repeats);
}

void limits_touch(team *team, uint8_t *memory, size_t bytes) {
    touching t = {memory, bytes};
    team_each(team, task_touch, &t);
}

void limits_measure(const limit_table *table, team *team, const uint8_t *memory, size_t bytes,
                    machine_limits *out) {
    measurement m = {.team = team, .memory = memory, .bytes = bytes / 64 * 64};
    *out = (machine_limits){.table = *table, .threads = team_size(team)};
    for (size_t i = 0; i < READ_WAYS; i++) {
        double rate = read_rate(&m, i, REPEATS);
        out->read_way = rate > out->read_bytes ? i : out->read_way;
        out->read_bytes = rate > out->read_bytes ? rate : out->read_bytes;
    }
    out->integer_rounds = peak_rounds(&m, &table->integer);
    out->floating_rounds = peak_rounds(&m, &table->floating);
    out->integer_operations = peak_rate(&m, &table->integer, out->integer_rounds, REPEATS);
    out->floating_operations = peak_rate(&m, &table->floating, out->floating_rounds, REPEATS);
}

void limits_again(team *team, const uint8_t *memory, size_t bytes, machine_limits *limits) {
    const limit_table *table = &limits->table;
    measurement m = {.team = team, .memory = memory, .bytes = bytes / 64 * 64};
    limits->read_bytes = read_rate(&m, limits->read_way, REPEATS_AGAIN);
    limits->integer_operations =
        peak_rate(&m, &table->integer, limits->integer_rounds, REPEATS_AGAIN);
    limits->floating_operations =
        peak_rate(&m, &table->floating, limits->floating_rounds, REPEATS_AGAIN);
}

double limits_read(team *team, const uint8_t *memory, size_t bytes, double seconds) {
    measurement m = {.team = team, .memory = memory, .bytes = bytes / 64 * 64};
    uint64_t begin_ns = clock_now_ns();
    size_t best = 0;
    double fastest = 0.0;
    m.bytes = bytes / READ_WAYS / 64 * 64; /* each a part of its own: nothing is read from caches */
    for (size_t i = 0; i < READ_WAYS; i++) {
        m.memory = memory + i * m.bytes;
        double rate = read_rate(&m, i, 1);
        best = rate > fastest ? i : best;
        fastest = rate > fastest ? rate : fastest;
    }
    m.memory = memory;
    m.bytes = bytes / 64 * 64;
    for (int i = 0; i < REPEATS && clock_seconds(begin_ns, clock_now_ns()) < seconds; i++) {
        double rate = read_rate(&m, best, 1);
        fastest = rate > fastest ? rate : fastest;
    }
    return fastest;
}

limit_times limits_times(const machine_limits *limits, const limit_work *work) {
    return (limit_times){work->bytes / limits->read_bytes,
                         work->integer_operations / limits->integer_operations +
                             work->floating_operations / limits->floating_operations};
}

limit_bound limits_bound(limit_times times) {
    return times.reading >= times.computing ? LIMIT_READ : LIMIT_ARITHMETIC;
}
