/* What a run of requests came to: latencies by tenant and adapter, throughput, fairness; as tables.
 * Latencies are kept in logarithmic buckets, 64 an octave: percentiles are right to 0.6 %. */
#ifndef AVO_SCHED_REPORT_H
#define AVO_SCHED_REPORT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/json_writer.h"
#include "sched/simulate.h"

#define REPORT_GROUPS_MAX 256 /* tenants and adapters with lines of their own: the busiest */
#define REPORT_BUCKETS    (48 * 64)

typedef enum report_metric {
    REPORT_FIRST, /* arrival to first token */
    REPORT_GAP,   /* between two tokens */
    REPORT_TOTAL, /* arrival to the end, of what finished */
    REPORT_QUEUE, /* arrival to beginning */
    REPORT_METRICS
} report_metric;
const char *report_metric_name(report_metric metric);

typedef struct report_histogram {
    uint64_t count;
    double sum; /* seconds */
    uint64_t max_ns;
    uint64_t bucket[REPORT_BUCKETS];
} report_histogram;
void report_add(report_histogram *histogram, uint64_t nanoseconds);
void report_add_many(report_histogram *histogram, uint64_t nanoseconds, uint64_t times);
/* Seconds; 0 of nothing. `part` in [0, 1]. */
double report_percentile(const report_histogram *histogram, double part);
/* A member of an object: count, mean, percentiles, maximum. */
void report_json_metric(json_writer *w, report_metric metric, const report_histogram *histogram);

typedef struct report_group {
    const char *kind; /* "all", "tenant", "adapter" */
    uint32_t number;
    uint32_t requests, finished;
    uint64_t tokens;
    double seconds; /* that requests with tokens spent here, together */
    report_histogram metric[REPORT_METRICS];
} report_group;

typedef struct report {
    report_group *groups; /* the first is "all" */
    uint32_t group_count;
    uint32_t *tenant_group, *adapter_group; /* of a number; UINT32_MAX: none */
    uint32_t tenants, adapters;
    const simulate_item *items;
    const simulate_outcome *outcomes;
    uint32_t count;
    const simulate_result *result;
    uint32_t ends[SIMULATE_PENDING + 1];
    double fairness; /* Jain's index of tokens per second that pairs saw: 1: all alike */
} report;

/* Groups of these items, before the run: report_gap is the run's simulate_gap. */
AVO_MUST_USE avo_status report_open(report *report, arena *arena, const simulate_item *items,
                                    uint32_t count, avo_error *error);
void report_gap(void *report, uint32_t item, uint64_t nanoseconds);
void report_conclude(report *report, const simulate_outcome *outcomes,
                     const simulate_result *result);

AVO_MUST_USE avo_status report_write_markdown(const report *report, buffer *out);
AVO_MUST_USE avo_status report_write_csv(const report *report, buffer *out);
AVO_MUST_USE avo_status report_write_json(const report *report, buffer *out);

#endif
