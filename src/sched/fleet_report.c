/* Runs of fleets as tables: a line each. */
#include "base/json_writer.h"
#include "sched/fleet.h"

/* Everything that a table shows, from one place. */
typedef struct figure {
    const char *name;
    double value;
} figure;

enum { FIGURES_MAX = 48 };

static double part(double some, double all) {
    return all > 0 ? some / all : 0;
}

static uint32_t figures_of(const fleet_result *run, figure figures[FIGURES_MAX]) {
    uint32_t n = 0;
    double seconds = run->seconds > 0 ? run->seconds : 1;
#define FIGURE(figure_name, number) figures[n++] = (figure){figure_name, (double)(number)}
    FIGURE("requests", run->requests);
    FIGURE("finished", run->finished);
    FIGURE("good", run->good);
    FIGURE("broken", run->broken);
    FIGURE("refused", run->refused);
    FIGURE("turned_away", run->turned_away);
    FIGURE("resent", run->resent);
    FIGURE("queue_full", run->full);
    FIGURE("no_replica", run->homeless);
    FIGURE("seconds", run->seconds);
    FIGURE("requests_per_second", (double)run->finished / seconds);
    FIGURE("goodput_per_second", (double)run->good / seconds);
    FIGURE("good_part", part((double)run->good, (double)run->requests));
    FIGURE("answer_tps", (double)run->answer_tokens / seconds);
    FIGURE("prompt_tokens", run->prompt_tokens);
    FIGURE("reused_tokens", run->reused_tokens);
    FIGURE("prefix_hit_part", part((double)run->reused_tokens, (double)run->prompt_tokens));
    FIGURE("adapter_loads", run->adapter_loads);
    FIGURE("adapter_hit_part",
           run->adapter_requests == 0
               ? 1
               : 1 - part((double)run->adapter_loads, (double)run->adapter_requests));
    FIGURE("steps", run->steps);
    FIGURE("preemptions", run->preemptions);
    FIGURE("recomputed_tokens", run->recomputed_tokens);
    FIGURE("failures", run->failures);
    FIGURE("starts", run->starts);
    FIGURE("stops", run->stops);
    FIGURE("replicas_peak", run->replicas_peak);
    FIGURE("replica_hours", run->replica_s / 3600);
    FIGURE("busy_part", part(run->busy_s, run->replica_s));
    FIGURE("busiest_to_mean", part(run->busy_max_s * run->replicas, run->busy_s));
    FIGURE("clients_max", run->clients_max);
#undef FIGURE
    return n;
}

static const double percentiles[] = {0.5, 0.9, 0.99};
static const char *const percentile_names[] = {"p50", "p90", "p99"};

avo_status fleet_write_text(const fleet_result *runs, uint32_t count, buffer *out) {
    AVO_TRY(buffer_append_text(
        out, "router        replicas  good/s   good %  first token, s: p50     p90     p99  "
             "between, ms: p50     p99  prefix hits %  adapter hits %  busy %  busiest/mean  "
             "lost: broken  turned away  replica hours\n"));
    for (uint32_t i = 0; i < count; i++) {
        const fleet_result *run = &runs[i];
        const report_histogram *first = &run->metric[REPORT_FIRST];
        const report_histogram *gap = &run->metric[REPORT_GAP];
        double seconds = run->seconds > 0 ? run->seconds : 1;
        double adapters = run->adapter_requests == 0
                              ? 1
                              : 1 - part((double)run->adapter_loads, (double)run->adapter_requests);
        AVO_TRY(buffer_format(
            out,
            "%-13s %8u %7.4g %8.2f %20.3f %7.3f %7.3f %17.1f %7.1f %14.1f %15.1f %7.1f %13.2f "
            "%13llu %12llu %14.2f\n",
            fleet_router_name(run->router), run->replicas, (double)run->good / seconds,
            100 * part((double)run->good, (double)run->requests), report_percentile(first, 0.5),
            report_percentile(first, 0.9), report_percentile(first, 0.99),
            1e3 * report_percentile(gap, 0.5), 1e3 * report_percentile(gap, 0.99),
            100 * part((double)run->reused_tokens, (double)run->prompt_tokens), 100 * adapters,
            100 * part(run->busy_s, run->replica_s),
            part(run->busy_max_s * run->replicas, run->busy_s), (unsigned long long)run->broken,
            (unsigned long long)run->turned_away, run->replica_s / 3600));
    }
    return AVO_OK;
}

avo_status fleet_write_csv(const fleet_result *runs, uint32_t count, buffer *out) {
    figure figures[FIGURES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = figures_of(&runs[i], figures);
        if (i == 0) {
            AVO_TRY(buffer_append_text(out, "router,replicas"));
            for (uint32_t f = 0; f < n; f++)
                AVO_TRY(buffer_format(out, ",%s", figures[f].name));
            for (uint32_t m = 0; m < REPORT_METRICS; m++)
                for (uint32_t p = 0; p < 3; p++)
                    AVO_TRY(buffer_format(out, ",%s_%s", report_metric_name((report_metric)m),
                                          percentile_names[p]));
            AVO_TRY(buffer_append_text(out, "\n"));
        }
        AVO_TRY(buffer_format(out, "%s,%u", fleet_router_name(runs[i].router), runs[i].replicas));
        for (uint32_t f = 0; f < n; f++)
            AVO_TRY(buffer_format(out, ",%.10g", figures[f].value));
        for (uint32_t m = 0; m < REPORT_METRICS; m++)
            for (uint32_t p = 0; p < 3; p++)
                AVO_TRY(buffer_format(out, ",%.6g",
                                      report_percentile(&runs[i].metric[m], percentiles[p])));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

avo_status fleet_write_json(const fleet_result *runs, uint32_t count, buffer *out) {
    figure figures[FIGURES_MAX];
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_array_begin(&w, "runs");
    for (uint32_t i = 0; i < count; i++) {
        json_object_begin(&w);
        json_member_string(&w, "router", fleet_router_name(runs[i].router));
        json_member_u64(&w, "replicas", runs[i].replicas);
        uint32_t n = figures_of(&runs[i], figures);
        for (uint32_t f = 0; f < n; f++)
            json_member_significant(&w, figures[f].name, figures[f].value, 10);
        for (uint32_t m = 0; m < REPORT_METRICS; m++)
            report_json_metric(&w, (report_metric)m, &runs[i].metric[m]);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}
