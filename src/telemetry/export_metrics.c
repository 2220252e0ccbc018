/* Every counter, gauge and histogram, once for Prometheus (text format 0.0.4) and once as CSV.
 *
 * Names, labels and borders of what begins with "vllm:" are those of vLLM, so that dashboards and
 * autoscalers that were made for it work here. Everything else begins with "avocet_" and ends with
 * its unit. docs/telemetry.md has the table of all of them, which a test compares with this. */
#include "telemetry/export_int.h"

#include "base/clock.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ADAPTERS_TEXT_MAX 4096

typedef struct metrics {
    export_out out;
    avo_telemetry *t;
    telemetry_totals totals;
    bool csv;
    const char *family;
    bool model; /* the family's samples carry the labels of vLLM's */
} metrics;

/* ---- Writing ---- */

typedef enum metric_type { COUNTER, GAUGE, HISTOGRAM } metric_type;

static void family(metrics *m, const char *name, metric_type type, const char *help) {
    static const char *const types[] = {"counter", "gauge", "histogram"};
    m->family = name;
    m->model = strncmp(name, "vllm:", 5) == 0;
    if (!m->csv)
        out_format(&m->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

/* key="value", behind a comma unless it is the first. */
static void label(metrics *m, const char *key, const char *value) {
    out_format(&m->out, "%s%s=", out_begins(&m->out, '{') ? "" : ",", key);
    out_label_text(&m->out, value);
}

/* The labels as one text: a CSV field must not break at their commas and quotes. */
static void quote_labels(metrics *m, size_t begin) {
    buffer *text = m->out.text;
    size_t bytes = m->out.status == AVO_OK ? text->size - begin : 0;
    size_t quotes = 0;
    for (size_t i = 0; i < bytes; i++)
        quotes += text->data[begin + i] == '"';
    if (m->out.status == AVO_OK)
        m->out.status = buffer_reserve(text, quotes);
    if (m->out.status != AVO_OK)
        return;
    text->size += quotes;
    for (size_t from = begin + bytes, to = text->size; from > begin;) {
        char c = text->data[--from];
        text->data[--to] = c;
        if (c == '"')
            text->data[--to] = '"';
    }
}

/* `suffix` is a histogram's; a label without a key is none. */
static void sample_labels(metrics *m, const char *suffix, const char *const labels[][2],
                          size_t count, double value) {
    export_out *out = &m->out;
    bool any = m->model;
    for (size_t i = 0; i < count; i++)
        any = any || labels[i][0] != NULL;
    out_format(out, "%s%s%s", m->family, suffix, m->csv ? ",\"" : "");
    size_t begin = out->text->size;
    out_format(out, any ? "{" : "");
    if (m->model) {
        label(m, "model_name", m->t->name);
        label(m, "engine", "0");
    }
    for (size_t i = 0; i < count; i++)
        if (labels[i][0] != NULL)
            label(m, labels[i][0], labels[i][1]);
    out_format(out, any ? "}" : "");
    if (m->csv)
        quote_labels(m, begin);
    out_format(out, m->csv ? "\"," : " ");
    out_number(out, value, m->csv ? "" : "NaN");
    out_format(out, "\n");
}

static void sample_of(metrics *m, const char *suffix, const char *const labels[2][2],
                      double value) {
    sample_labels(m, suffix, labels, 2, value);
}

static void sample(metrics *m, double value) {
    sample_of(m, "", (const char *const[2][2]){{NULL, NULL}, {NULL, NULL}}, value);
}

static void sample_with(metrics *m, const char *key, const char *text, double value) {
    sample_of(m, "", (const char *const[2][2]){{key, text}, {NULL, NULL}}, value);
}

static void counter(metrics *m, const char *name, uint64_t value, const char *help) {
    family(m, name, COUNTER, help);
    sample(m, (double)value);
}

static void gauge(metrics *m, const char *name, double value, const char *help) {
    family(m, name, GAUGE, help);
    sample(m, value);
}

/* As Python writes floats, which is what vLLM's borders look like: "0.3", "1.0". */
static void border_text(double border, char *text, size_t capacity) {
    buffer number;
    buffer_init(&number, NULL, capacity - 1);
    if (json_write_number(&number, border) == AVO_OK &&
        (border != floor(border) || buffer_append_text(&number, ".0") == AVO_OK) &&
        buffer_terminate(&number) == AVO_OK)
        memcpy(text, number.data, number.size + 1);
    buffer_free(&number);
}

/* Values are what was counted, `unit` of which are one; borders above `most` are left out: nothing
 * can lie there. */
static void buckets_to(metrics *m, histogram *histogram, uint64_t most, double unit,
                       const char *const label[2]) {
    uint64_t cumulative[HISTOGRAM_BORDERS_MAX + 1];
    uint64_t sum = histogram_read(histogram, cumulative);
    uint32_t count = histogram->count;
    for (uint32_t i = 0; i <= count; i++) {
        char border[32] = "+Inf";
        if (i < count && histogram->borders[i] > most)
            continue;
        if (i < count)
            border_text((double)histogram->borders[i] / unit, border, sizeof(border));
        sample_of(m, "_bucket", (const char *const[2][2]){{label[0], label[1]}, {"le", border}},
                  (double)cumulative[i]);
    }
    const char *const labels[2][2] = {{label[0], label[1]}, {NULL, NULL}};
    sample_of(m, "_sum", labels, (double)sum / unit);
    sample_of(m, "_count", labels, (double)cumulative[count]);
}

static void buckets(metrics *m, histogram *histogram, double unit, const char *key,
                    const char *text) {
    buckets_to(m, histogram, UINT64_MAX, unit, (const char *const[2]){key, text});
}

static void seconds(metrics *m, const char *name, histogram *histogram, const char *help) {
    family(m, name, HISTOGRAM, help);
    buckets(m, histogram, 1e9, NULL, NULL);
}

static void tokens(metrics *m, const char *name, histogram *histogram, const char *help) {
    family(m, name, HISTOGRAM, help);
    buckets(m, histogram, 1.0, NULL, NULL);
}

/* With the borders that vLLM has for a model of this context: up to it. */
static void context_tokens(metrics *m, const char *name, histogram *histogram, const char *help) {
    uint64_t most = m->totals.context_max > 0 ? m->totals.context_max : UINT64_MAX;
    family(m, name, HISTOGRAM, help);
    buckets_to(m, histogram, most, 1.0, (const char *const[2]){NULL, NULL});
}

/* ---- vLLM's ---- */

static void vllm_state(metrics *m) {
    const telemetry_totals *totals = &m->totals;
    const telemetry_counts *counts = &totals->counts;
    double usage = totals->pages > 0 ? (double)totals->pages_used / (double)totals->pages : 0.0;
    gauge(m, "vllm:num_requests_running", (double)counts->running, "Requests running.");
    gauge(m, "vllm:num_requests_waiting", (double)counts->waiting, "Requests waiting.");
    gauge(m, "vllm:kv_cache_usage_perc", usage,
          "Share of the KV pages in use by requests; 1 is all of them.");
    gauge(m, "vllm:gpu_cache_usage_perc", usage,
          "Same as vllm:kv_cache_usage_perc, by its older name.");
    counter(m, "vllm:prefix_cache_queries_total", totals->queried_tokens,
            "Tokens looked up in the prefix cache.");
    counter(m, "vllm:prefix_cache_hits_total", totals->hit_tokens,
            "Tokens found in the prefix cache.");
    counter(m, "vllm:num_preemptions_total", counts->preemptions,
            "Preemptions: requests that lost their KV pages and were computed again.");
    counter(m, "vllm:prompt_tokens_total", counts->prompt_tokens, "Prompt tokens.");
    counter(m, "vllm:prompt_tokens_cached_total", counts->reused_tokens,
            "Prompt tokens reused from the prefix cache.");
    counter(m, "vllm:generation_tokens_total", counts->new_tokens, "Generated tokens.");
    family(m, "vllm:request_success_total", COUNTER, "Requests finished, by finish reason.");
    for (int i = 0; i < FINISH_CLASSES; i++)
        sample_with(m, "finished_reason", finish_class_name((finish_class)i),
                    (double)atomic_look(&m->t->finished[i]));
}

static void vllm_drafts(metrics *m) {
    avo_telemetry *t = m->t;
    counter(m, "vllm:spec_decode_num_drafts_total", atomic_look(&t->drafts),
            "Verifications of draft tokens: one per request and step with drafts.");
    counter(m, "vllm:spec_decode_num_draft_tokens_total", atomic_look(&t->draft_tokens),
            "Draft tokens verified.");
    counter(m, "vllm:spec_decode_num_accepted_tokens_total", telemetry_accepted_drafts(t),
            "Draft tokens accepted.");
    family(m, "vllm:spec_decode_num_accepted_tokens_per_pos_total", COUNTER,
           "Draft tokens accepted, by position in the draft.");
    for (uint32_t i = 0; i < TELEMETRY_DRAFTS_MAX; i++) {
        char position[8];
        snprintf(position, sizeof(position), "%u", i);
        sample_with(m, "position", position, (double)atomic_look(&t->accepted_at[i]));
    }
}

static void vllm_times(metrics *m) {
    histogram *times = m->t->times;
    seconds(m, "vllm:time_to_first_token_seconds", &times[TIME_FIRST_TOKEN],
            "Time from submission to the first token.");
    seconds(m, "vllm:inter_token_latency_seconds", &times[TIME_INTER_TOKEN],
            "Time between two tokens of one request.");
    seconds(m, "vllm:time_per_output_token_seconds", &times[TIME_INTER_TOKEN],
            "Same as vllm:inter_token_latency_seconds, by its older name.");
    seconds(m, "vllm:request_time_per_output_token_seconds", &times[TIME_PER_TOKEN],
            "Mean time between the tokens of a request.");
    seconds(m, "vllm:e2e_request_latency_seconds", &times[TIME_TOTAL],
            "Time from submission to the end of a request.");
    seconds(m, "vllm:request_queue_time_seconds", &times[TIME_QUEUE],
            "Time from submission to the first step.");
    seconds(m, "vllm:request_inference_time_seconds", &times[TIME_RUNNING],
            "Time from the first step to the end of a request.");
    seconds(m, "vllm:request_prefill_time_seconds", &times[TIME_PREFILL],
            "Time from the first step to the first token.");
    seconds(m, "vllm:request_decode_time_seconds", &times[TIME_DECODE],
            "Time from the first token to the end of a request.");
    context_tokens(m, "vllm:request_prompt_tokens", &m->t->prompt_tokens,
                   "Prompt tokens of a request.");
    context_tokens(m, "vllm:request_generation_tokens", &m->t->new_tokens,
                   "Generated tokens of a request.");
    context_tokens(m, "vllm:request_params_max_tokens", &m->t->asked_tokens,
                   "Token limit of a request, where it set one.");
    context_tokens(m, "vllm:request_max_num_generation_tokens", &m->t->asked_tokens,
                   "Same as vllm:request_params_max_tokens, as every choice is a request.");
    tokens(m, "vllm:iteration_tokens_total", &m->t->step_tokens, "Tokens of a step.");
}

/* Names of adapters that have a request now, joined by commas, as vLLM does it. */
static void adapter_list(metrics *m, bool waiting, char *text, size_t capacity) {
    avo_telemetry *t = m->t;
    uint32_t named = atomic_load(&t->label_count);
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 1; i < named; i++) {
        const telemetry_label *label = &t->labels[i];
        size_t bytes = strlen(label->name);
        if (atomic_load(waiting ? &label->waiting : &label->running) <= 0 ||
            used + bytes + 2 > capacity)
            continue;
        if (used > 0)
            text[used++] = ',';
        memcpy(text + used, label->name, bytes + 1);
        used += bytes;
    }
}

/* What gateways that choose a server by its adapters look at; its value is the time. */
static void vllm_adapters(metrics *m) {
    char running[ADAPTERS_TEXT_MAX], waiting[ADAPTERS_TEXT_MAX], most[24], pages[24], tokens[24];
    adapter_list(m, false, running, sizeof(running));
    adapter_list(m, true, waiting, sizeof(waiting));
    uint64_t together = m->totals.counts.adapters_max;
    snprintf(most, sizeof(most), "%llu",
             (unsigned long long)(together > 0 ? together : m->t->options.adapters_max));
    family(m, "vllm:lora_requests_info", GAUGE,
           "Adapters running and waiting; the value is the time.");
    m->model = false;
    const char *const lora[][2] = {
        {"max_lora", most}, {"waiting_lora_adapters", waiting}, {"running_lora_adapters", running}};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    sample_labels(m, "", lora, 3, (double)now.tv_sec);
    snprintf(pages, sizeof(pages), "%llu", (unsigned long long)m->totals.pages);
    snprintf(tokens, sizeof(tokens), "%llu", (unsigned long long)m->totals.page_tokens);
    family(m, "vllm:cache_config_info", GAUGE, "Number of KV pages and tokens per page; always 1.");
    m->model = false;
    const char *const cache[][2] = {
        {"block_size", tokens}, {"num_gpu_blocks", pages}, {"engine", "0"}};
    sample_labels(m, "", cache, 3, 1.0);
}

/* ---- Our own ---- */

static void own_build(metrics *m) {
    family(m, "avocet_build_info", GAUGE, "Version and device; always 1.");
    sample_of(m, "",
              (const char *const[2][2]){{"version", avo_version()},
                                        {"isa", m->totals.isa == NULL ? "none" : m->totals.isa}},
              1.0);
    gauge(m, "avocet_uptime_seconds", clock_seconds(m->t->opened_ns, clock_now_ns()),
          "Time since telemetry was opened.");
    gauge(m, "avocet_threads", m->totals.threads, "Worker threads.");
}

static void own_requests(metrics *m) {
    const telemetry_counts *counts = &m->totals.counts;
    const struct {
        const char *outcome;
        uint64_t count;
    } ends[] = {{"finished", counts->finished},
                {"failed", counts->failed},
                {"cancelled", counts->cancelled},
                {"refused", counts->refused},
                {"expired", counts->expired}};
    counter(m, "avocet_requests_submitted_total", counts->submitted, "Requests accepted.");
    family(m, "avocet_requests_ended_total", COUNTER, "Requests ended, by outcome.");
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        sample_with(m, "outcome", ends[i].outcome, (double)ends[i].count);
    counter(m, "avocet_reused_tokens_total", counts->reused_tokens,
            "Prompt tokens reused from the prefix cache.");
    counter(m, "avocet_recomputed_tokens_total", counts->recomputed_tokens,
            "Tokens computed again after a preemption.");
}

static void own_steps(metrics *m) {
    avo_telemetry *t = m->t;
    family(m, "avocet_step_seconds", HISTOGRAM, "Duration of engine steps, by content.");
    for (int i = 0; i < STEP_CLASSES; i++)
        buckets(m, &t->steps[i], 1e9, "kind", step_class_name((step_class)i));
    family(m, "avocet_step_rows_total", COUNTER, "Rows computed by steps.");
    sample_with(m, "kind", "decode", (double)atomic_look(&t->decode_rows));
    sample_with(m, "kind", "prefill", (double)atomic_look(&t->prefill_rows));
    family(m, "avocet_stage_seconds_total", COUNTER, "Time in each stage of requests.");
    for (int i = 0; i < STAGES; i++)
        sample_with(m, "stage", stage_name((telemetry_stage)i),
                    (double)atomic_look(&t->stages[i].ns) / 1e9);
    family(m, "avocet_stage_events_total", COUNTER, "Number of runs of each stage.");
    for (int i = 0; i < STAGES; i++)
        sample_with(m, "stage", stage_name((telemetry_stage)i),
                    (double)atomic_look(&t->stages[i].count));
    family(m, "avocet_phase_seconds_total", COUNTER,
           "Time in each phase of steps, as measured by worker 0.");
    for (int i = 0; i < SPAN_PHASES; i++)
        sample_with(m, "phase", phase_name((span_kind)i), (double)m->totals.phase_ns[i] / 1e9);
    family(m, "avocet_phase_wait_seconds_total", COUNTER,
           "Time waiting for others to end a phase, all workers together.");
    for (int i = 0; i < SPAN_PHASES; i++)
        sample_with(m, "phase", phase_name((span_kind)i), (double)m->totals.wait_ns[i] / 1e9);
}

static void own_memory(metrics *m) {
    const telemetry_totals *totals = &m->totals;
    process_facts process = process_facts_now();
    family(m, "avocet_kv_pages", GAUGE, "KV pages, by state.");
    sample_with(m, "state", "free", (double)totals->pages_free);
    sample_with(m, "state", "cached", (double)totals->pages_cached);
    sample_with(m, "state", "used", (double)totals->pages_used);
    sample_with(m, "state", "host", (double)totals->pages_host);
    family(m, "avocet_kv_pages_moved_total", COUNTER,
           "Cached KV pages copied to the host's memory (out) and back (in).");
    sample_with(m, "direction", "out", (double)totals->moved_out);
    sample_with(m, "direction", "in", (double)totals->moved_in);
    gauge(m, "avocet_kv_page_tokens", (double)totals->page_tokens, "Tokens per KV page.");
    family(m, "avocet_memory_bytes", GAUGE, "Memory, by purpose.");
    sample_with(m, "kind", "resident", (double)process.resident_bytes);
    sample_with(m, "kind", "weights", (double)totals->weight_bytes);
    sample_with(m, "kind", "kv", (double)totals->kv_bytes);
    sample_with(m, "kind", "scratch", (double)totals->scratch_bytes);
    family(m, "process_cpu_seconds_total", COUNTER, "CPU time of the whole process.");
    sample(m, process.cpu_seconds);
    gauge(m, "process_resident_memory_bytes", (double)process.resident_bytes,
          "Resident memory of the whole process.");
    counter(m, "avocet_page_faults_total", process.faults, "Page faults of the whole process.");
}

static void own_machine(metrics *m) {
    avo_telemetry *t = m->t;
    uint64_t now = clock_now_ns();
    double bandwidth = telemetry_bandwidth(t, now);
    double limit = telemetry_limit(t, now);
    counter(m, "avocet_read_bytes_total", atomic_look(&t->read_total),
            "Bytes of weights, keys and values read by steps (lower bound).");
    if (bandwidth >= 0.0)
        gauge(m, "avocet_read_bytes_per_second", bandwidth,
              "Bytes read per second of steps, over the last 5 s.");
    if (limit > 0.0)
        gauge(m, "avocet_read_limit_bytes_per_second", limit,
              "Measured read bandwidth of the machine, or more where steps read faster.");
    if (!t->options.hardware)
        return;
    gauge(m, "avocet_hardware_counters", m->totals.hardware_known[HARDWARE_CYCLES] ? 1.0 : 0.0,
          "Whether the kernel allows reading hardware counters.");
    for (int i = 0; i < HARDWARE_EVENTS; i++) {
        static const char *const names[HARDWARE_EVENTS] = {
            "avocet_cycles_total", "avocet_instructions_total", "avocet_cache_references_total",
            "avocet_cache_misses_total"};
        if (m->totals.hardware_known[i])
            counter(m, names[i], m->totals.hardware[i],
                    "Hardware counter of the worker threads, user space.");
    }
}

/* Names, and those beyond the limit together. */
static void adapter_values(metrics *m, double (*value)(telemetry_label *label)) {
    avo_telemetry *t = m->t;
    uint32_t named = atomic_load(&t->label_count), last = t->options.adapters_max + 1;
    for (uint32_t i = 0; i < named; i++)
        sample_with(m, "adapter", t->labels[i].name, value(&t->labels[i]));
    if (value(&t->labels[last]) > 0.0 || atomic_look(&t->labels[last].requests) > 0)
        sample_with(m, "adapter", t->labels[last].name, value(&t->labels[last]));
}

static double label_requests(telemetry_label *label) {
    return (double)atomic_look(&label->requests);
}

static double label_prompt_tokens(telemetry_label *label) {
    return (double)atomic_look(&label->prompt_tokens);
}

static double label_new_tokens(telemetry_label *label) {
    return (double)atomic_look(&label->new_tokens);
}

static double label_running(telemetry_label *label) {
    int64_t running = atomic_load(&label->running);
    return running > 0 ? (double)running : 0.0;
}

static void own_adapters(metrics *m) {
    family(m, "avocet_adapter_requests_total", COUNTER, "Requests ended, by adapter.");
    adapter_values(m, label_requests);
    family(m, "avocet_adapter_prompt_tokens_total", COUNTER, "Prompt tokens, by adapter.");
    adapter_values(m, label_prompt_tokens);
    family(m, "avocet_adapter_generation_tokens_total", COUNTER, "Generated tokens, by adapter.");
    adapter_values(m, label_new_tokens);
    family(m, "avocet_adapter_requests_running", GAUGE, "Requests running, by adapter.");
    adapter_values(m, label_running);
}

static avo_status export_all(avo_telemetry *t, buffer *text, bool csv) {
    metrics m = {.out = {text, AVO_OK}, .t = t, .csv = csv};
    telemetry_sum_up(t, &m.totals);
    if (csv)
        out_format(&m.out, "name,labels,value\n");
    vllm_state(&m);
    vllm_drafts(&m);
    vllm_times(&m);
    vllm_adapters(&m);
    own_build(&m);
    own_requests(&m);
    own_steps(&m);
    own_adapters(&m);
    own_memory(&m);
    own_machine(&m);
    return m.out.status;
}

avo_status export_prometheus(avo_telemetry *t, buffer *text) {
    return export_all(t, text, false);
}

avo_status export_csv(avo_telemetry *t, buffer *text) {
    return export_all(t, text, true);
}
