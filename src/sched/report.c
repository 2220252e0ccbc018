/* From outcomes to figures, and tables of them. */
#include "sched/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PER_OCTAVE     64
#define MARKDOWN_LINES 12 /* of tenants, of adapters */

const char *report_metric_name(report_metric metric) {
    static const char *const names[] = {"first_token", "between_tokens", "total", "queue"};
    return names[metric];
}

void report_add(report_histogram *histogram, uint64_t nanoseconds) {
    report_add_many(histogram, nanoseconds, 1);
}

void report_add_many(report_histogram *histogram, uint64_t nanoseconds, uint64_t times) {
    if (times == 0)
        return;
    double place = log2((double)nanoseconds + 1) * PER_OCTAVE;
    uint32_t bucket = place < REPORT_BUCKETS - 1 ? (uint32_t)place : REPORT_BUCKETS - 1;
    histogram->bucket[bucket] += times;
    histogram->count += times;
    histogram->sum += (double)times * ((double)nanoseconds * 1e-9);
    histogram->max_ns = nanoseconds > histogram->max_ns ? nanoseconds : histogram->max_ns;
}

double report_percentile(const report_histogram *histogram, double part) {
    if (histogram->count == 0)
        return 0;
    uint64_t wanted = (uint64_t)ceil(part * (double)histogram->count), seen = 0;
    for (uint32_t i = 0; i < REPORT_BUCKETS; i++) {
        seen += histogram->bucket[i];
        if (seen >= wanted && seen > 0) {
            double middle = (exp2((i + 0.5) / PER_OCTAVE) - 1) * 1e-9;
            double most = (double)histogram->max_ns * 1e-9;
            return middle < most ? middle : most;
        }
    }
    return (double)histogram->max_ns * 1e-9;
}

/* ---- Groups ---- */

typedef struct tally {
    uint32_t number, requests;
} tally;

static int by_requests(const void *a, const void *b) {
    const tally *first = a, *second = b;
    if (first->requests != second->requests)
        return first->requests < second->requests ? 1 : -1;
    return first->number < second->number ? -1 : first->number > second->number;
}

static uint32_t number_of(const simulate_item *item, bool adapter) {
    return adapter ? item->adapter : item->tenant;
}

/* The busiest numbers get a group each; there is none where there is only one number. */
static bool make_groups(report *report, arena *arena, bool adapter, uint32_t room,
                        uint32_t **group_of, uint32_t *numbers) {
    uint32_t most = 0, different = 0;
    for (uint32_t i = 0; i < report->count; i++) {
        uint32_t number = number_of(&report->items[i], adapter);
        most = number > most ? number : most;
    }
    *numbers = most + 1;
    tally *tallies = arena_take_array(arena, *numbers, sizeof(tally));
    *group_of = arena_take_array(arena, *numbers, sizeof(uint32_t));
    if (tallies == NULL || *group_of == NULL)
        return false;
    for (uint32_t i = 0; i < report->count; i++)
        tallies[number_of(&report->items[i], adapter)].requests++;
    for (uint32_t i = 0; i < *numbers; i++) {
        tallies[i].number = i;
        (*group_of)[i] = UINT32_MAX;
        different += tallies[i].requests > 0;
    }
    qsort(tallies, *numbers, sizeof(tally), by_requests);
    for (uint32_t i = 0; different > 1 && i < different && i < room; i++) {
        (*group_of)[tallies[i].number] = report->group_count;
        report->groups[report->group_count].kind = adapter ? "adapter" : "tenant";
        report->groups[report->group_count++].number = tallies[i].number;
    }
    return true;
}

avo_status report_open(report *report, arena *arena, const simulate_item *items, uint32_t count,
                       avo_error *error) {
    *report = (struct report){.items = items, .count = count, .group_count = 1};
    report->groups = arena_take_array(arena, REPORT_GROUPS_MAX + 1, sizeof(report_group));
    if (report->groups == NULL)
        return status_no_memory(error, "report", REPORT_GROUPS_MAX * sizeof(report_group));
    report->groups[0].kind = "all";
    if (!make_groups(report, arena, false, REPORT_GROUPS_MAX / 2, &report->tenant_group,
                     &report->tenants) ||
        !make_groups(report, arena, true, REPORT_GROUPS_MAX / 2, &report->adapter_group,
                     &report->adapters))
        return status_no_memory(error, "report", count * sizeof(uint32_t));
    return AVO_OK;
}

/* The groups of an item: all, its tenant, its adapter. */
static uint32_t groups_of(report *report, uint32_t index, report_group *groups[3]) {
    uint32_t found[3] = {0, report->tenant_group[report->items[index].tenant],
                         report->adapter_group[report->items[index].adapter]};
    uint32_t count = 0;
    for (uint32_t i = 0; i < 3; i++)
        if (found[i] != UINT32_MAX)
            groups[count++] = &report->groups[found[i]];
    return count;
}

void report_gap(void *context, uint32_t index, uint64_t nanoseconds) {
    report *report = context;
    report_group *groups[3];
    uint32_t count = groups_of(report, index, groups);
    for (uint32_t i = 0; i < count; i++)
        report_add(&groups[i]->metric[REPORT_GAP], nanoseconds);
}

/* ---- Figures ---- */

static void conclude_item(report *report, uint32_t index) {
    const simulate_outcome *outcome = &report->outcomes[index];
    uint64_t arrival = report->items[index].arrival_ns;
    report_group *groups[3];
    uint32_t count = groups_of(report, index, groups);
    report->ends[outcome->end]++;
    for (uint32_t i = 0; i < count; i++) {
        report_group *group = groups[i];
        group->requests++;
        group->tokens += outcome->tokens;
        if (outcome->begin_ns > 0)
            report_add(&group->metric[REPORT_QUEUE], outcome->begin_ns - arrival);
        if (outcome->first_ns > 0) {
            report_add(&group->metric[REPORT_FIRST], outcome->first_ns - arrival);
            group->seconds += (double)(outcome->end_ns - arrival) * 1e-9;
        }
        if (outcome->end == SIMULATE_FINISHED) {
            group->finished++;
            report_add(&group->metric[REPORT_TOTAL], outcome->end_ns - arrival);
        }
    }
}

void report_conclude(report *report, const simulate_outcome *outcomes,
                     const simulate_result *result) {
    report->outcomes = outcomes;
    report->result = result;
    for (uint32_t i = 0; i < report->count; i++)
        conclude_item(report, i);
    double sum = 0, squares = 0, groups = 0;
    for (uint32_t i = 1; i < report->group_count; i++) {
        const report_group *group = &report->groups[i];
        if (group->seconds > 0) {
            double speed = (double)group->tokens / group->seconds;
            sum += speed;
            squares += speed * speed;
            groups++;
        }
    }
    report->fairness = squares > 0 ? sum * sum / (groups * squares) : 1;
}

/* ---- Tables ---- */

static avo_status markdown_line(const report_group *group, buffer *out) {
    AVO_TRY(buffer_format(out, "| %s", group->kind));
    if (strcmp(group->kind, "all") != 0)
        AVO_TRY(buffer_format(out, " %u", group->number));
    AVO_TRY(buffer_format(out, " | %u | %u |", group->requests, group->finished));
    for (uint32_t m = 0; m < REPORT_METRICS; m++) {
        const report_histogram *histogram = &group->metric[m];
        double unit = m == REPORT_GAP ? 1e3 : 1;
        AVO_TRY(buffer_format(
            out, " %.4g / %.4g / %.4g |", unit * report_percentile(histogram, 0.5),
            unit * report_percentile(histogram, 0.9), unit * report_percentile(histogram, 0.99)));
    }
    return buffer_append_text(out, "\n");
}

static avo_status markdown_summary(const report *report, buffer *out) {
    const simulate_result *result = report->result;
    double seconds = (double)result->end_ns * 1e-9;
    const sched_counts *counts = &result->counts;
    AVO_TRY(buffer_format(
        out,
        "%u requests in %.1f s: %u finished, %u cancelled, %u expired, %u refused, %u failed, "
        "%u turned away\n"
        "%.1f answer tokens a second, %.1f prompt tokens computed, %.1f reused; %llu steps, busy "
        "%.1f %% of the time\n"
        "%llu preemptions, %llu tokens computed again; fairness index %.3f\n\n",
        report->count, seconds, report->ends[SIMULATE_FINISHED], report->ends[SIMULATE_CANCELLED],
        report->ends[SIMULATE_EXPIRED],
        report->ends[SIMULATE_REFUSED] + report->ends[SIMULATE_NOT_TAKEN],
        report->ends[SIMULATE_FAILED], report->ends[SIMULATE_FULL],
        (double)counts->new_tokens / seconds, (double)counts->prompt_tokens / seconds,
        (double)counts->reused_tokens / seconds, (unsigned long long)result->steps,
        (double)result->busy_ns * 1e-7 / seconds, (unsigned long long)counts->preemptions,
        (unsigned long long)counts->recomputed_tokens, report->fairness));
    return buffer_append_text(
        out, "| of | requests | finished | first token, s: p50 / p90 / p99 | between tokens, ms | "
             "whole, s | queue, s |\n|---|---:|---:|---:|---:|---:|---:|\n");
}

avo_status report_write_markdown(const report *report, buffer *out) {
    AVO_TRY(markdown_summary(report, out));
    uint32_t lines[2] = {0};
    for (uint32_t i = 0; i < report->group_count; i++) {
        bool adapter = report->groups[i].kind[0] == 'a';
        if (i == 0 || lines[adapter]++ < MARKDOWN_LINES)
            AVO_TRY(markdown_line(&report->groups[i], out));
    }
    for (uint32_t i = 0; i < 2; i++)
        if (lines[i] > MARKDOWN_LINES)
            AVO_TRY(buffer_format(out, "\n%u more %s: see --csv or --json\n",
                                  lines[i] - MARKDOWN_LINES, i ? "adapters" : "tenants"));
    return AVO_OK;
}

avo_status report_write_csv(const report *report, buffer *out) {
    AVO_TRY(buffer_append_text(out, "kind,number,requests,finished,tokens"));
    for (uint32_t m = 0; m < REPORT_METRICS; m++) {
        const char *name = report_metric_name((report_metric)m);
        AVO_TRY(buffer_format(out, ",%s_mean,%s_p50,%s_p90,%s_p99,%s_max", name, name, name, name,
                              name));
    }
    AVO_TRY(buffer_append_text(out, "\n"));
    for (uint32_t i = 0; i < report->group_count; i++) {
        const report_group *group = &report->groups[i];
        AVO_TRY(buffer_format(out, "%s,%u,%u,%u,%llu", group->kind, group->number, group->requests,
                              group->finished, (unsigned long long)group->tokens));
        for (uint32_t m = 0; m < REPORT_METRICS; m++) {
            const report_histogram *h = &group->metric[m];
            AVO_TRY(buffer_format(out, ",%.6g,%.6g,%.6g,%.6g,%.6g",
                                  h->count > 0 ? h->sum / (double)h->count : 0,
                                  report_percentile(h, 0.5), report_percentile(h, 0.9),
                                  report_percentile(h, 0.99), (double)h->max_ns * 1e-9));
        }
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

void report_json_metric(json_writer *w, report_metric metric, const report_histogram *h) {
    json_member_object_begin(w, report_metric_name(metric));
    json_member_u64(w, "count", h->count);
    json_member_significant(w, "mean", h->count > 0 ? h->sum / (double)h->count : 0, 6);
    json_member_significant(w, "p50", report_percentile(h, 0.5), 6);
    json_member_significant(w, "p90", report_percentile(h, 0.9), 6);
    json_member_significant(w, "p99", report_percentile(h, 0.99), 6);
    json_member_significant(w, "max", (double)h->max_ns * 1e-9, 6);
    json_end(w);
}

static void json_group(json_writer *w, const report_group *group) {
    json_object_begin(w);
    json_member_string(w, "kind", group->kind);
    json_member_u64(w, "number", group->number);
    json_member_u64(w, "requests", group->requests);
    json_member_u64(w, "finished", group->finished);
    json_member_u64(w, "tokens", group->tokens);
    for (uint32_t m = 0; m < REPORT_METRICS; m++)
        report_json_metric(w, (report_metric)m, &group->metric[m]);
    json_end(w);
}

avo_status report_write_json(const report *report, buffer *out) {
    const simulate_result *result = report->result;
    const sched_counts *counts = &result->counts;
    const uint32_t *ends = report->ends;
    double seconds = (double)result->end_ns * 1e-9;
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_u64(&w, "requests", report->count);
    json_member_significant(&w, "seconds", seconds, 6);
    json_member_u64(&w, "finished", ends[SIMULATE_FINISHED]);
    json_member_u64(&w, "cancelled", ends[SIMULATE_CANCELLED]);
    json_member_u64(&w, "expired", ends[SIMULATE_EXPIRED]);
    json_member_u64(&w, "refused", ends[SIMULATE_REFUSED] + ends[SIMULATE_NOT_TAKEN]);
    json_member_u64(&w, "failed", ends[SIMULATE_FAILED]);
    json_member_u64(&w, "full", ends[SIMULATE_FULL]);
    json_member_u64(&w, "steps", result->steps);
    json_member_significant(&w, "busy", (double)result->busy_ns * 1e-9 / seconds, 6);
    json_member_significant(&w, "answer_tps", (double)counts->new_tokens / seconds, 6);
    json_member_significant(&w, "prompt_tps", (double)counts->prompt_tokens / seconds, 6);
    json_member_u64(&w, "reused_tokens", counts->reused_tokens);
    json_member_u64(&w, "recomputed_tokens", counts->recomputed_tokens);
    json_member_u64(&w, "preemptions", counts->preemptions);
    json_member_significant(&w, "fairness", report->fairness, 6);
    json_member_array_begin(&w, "groups");
    for (uint32_t i = 0; i < report->group_count; i++)
        json_group(&w, &report->groups[i]);
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}
