/* `avocet plan`: what memory a model will take and how it will be computed, before anything is
 * loaded. */
#include "cli/engine_flags.h"

#include "base/cpu.h"
#include "base/region.h"
#include "device/device.h"
#include "engine/engine.h"
#include "model/reads.h"
#include "sched/cores.h"

#include <string.h>

extern const cli_command command_plan;

/* What is shown: the engine's plan, and what stands behind its numbers. */
typedef struct plan_facts {
    avo_plan plan;
    engine_plan_details details; /* no groups where weights are used as they are */
    cpu_threads processors;
    bool requested;   /* with --threads */
    char reason[128]; /* why so many threads */
    avo_scheduler_options scheduler;
    cores cores; /* as they will be shared */
    model_reads reads;
    uint64_t parameters;    /* of the model */
    uint64_t adapter_bytes; /* of every --adapter, packed files that are mapped included */
    bool fits;
} plan_facts;

/* Of the memory that the device uses: its own, or the host's. The plan has a part for adapters that
 * the device copies. */
static uint64_t device_total(const plan_facts *facts) {
    const engine_plan_details *details = &facts->details;
    uint64_t bytes = facts->plan.host_memory ? details->host_bytes : details->device_bytes;
    uint64_t planned = details->adapter_bytes;
    return bytes + (facts->adapter_bytes > planned ? facts->adapter_bytes - planned : 0);
}

static uint64_t host_total(const plan_facts *facts) {
    return facts->adapter_bytes + facts->details.host_bytes;
}

static void write_groups(json_writer *w, const weights_plan *panels) {
    json_member_array_begin(w, "matrices");
    for (uint32_t i = 0; i < panels->groups; i++) {
        const weights_group *group = &panels->group[i];
        json_object_begin(w);
        json_member_string(w, "from", quant_name(group->from));
        json_member_string(w, "to", quant_name(group->to));
        json_member_boolean(w, "repacked", group->repacked);
        json_member_u64(w, "count", group->matrices);
        json_member_u64(w, "bytes", group->bytes);
        json_end(w);
    }
    json_end(w);
}

static void write_place(json_writer *w, const plan_facts *facts) {
    const avo_plan *plan = &facts->plan;
    json_member_string(w, "device", plan->device);
    json_member_string(w, "device_from", plan->device_from);
    json_member_string(w, "device_kind", plan->device_kind);
    json_member_string(w, "arithmetic", plan->arithmetic);
    json_member_string(w, "arithmetic_why", plan->arithmetic_why);
    json_member_boolean(w, "host_memory", plan->host_memory);
    json_member_u64(w, "host_available_bytes", plan->host_available_bytes);
    if (!plan->host_memory) {
        json_member_u64(w, "host_total_bytes", host_total(facts));
        json_member_string(w, "host_limit", facts->details.host_limit);
        json_member_u64(w, "adapter_prepared_bytes", facts->details.adapter_bytes);
    }
    if (plan->threads == 0)
        return;
    json_member_u64(w, "processors", facts->processors.affinity);
    json_member_u64(w, "physical_cores", facts->processors.cores);
    json_member_string(w, "threads_from", facts->reason);
    json_member_u64(w, "numa_nodes", plan->numa_nodes);
    json_member_string(w, "numa", plan->numa);
    json_member_string(w, "pin", plan->pin);
    json_member_string(w, "huge_pages", plan->huge_pages);
    json_member_string(w, "huge_pages_kernel", huge_pages_name(huge_pages_under("")));
    json_member_boolean(w, "lock", plan->lock);
}

/* A source of the program's own is allowed by "auto", but this command does not have any. */
static bool has_source(const speculation_options *options, uint32_t kind) {
    return kind != DRAFT_CUSTOM && (options->kinds & DRAFT_BIT(kind)) != 0;
}

static void write_speculation(json_writer *w, const speculation_options *options) {
    json_member_object_begin(w, "speculation");
    json_member_array_begin(w, "sources");
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++)
        if (has_source(options, kind))
            json_string(w, draft_kind_name((draft_kind)kind));
    json_end(w);
    if (options->kinds != DRAFTS_OFF) {
        json_member_u64(w, "draft_tokens", options->draft_tokens);
        json_member_string(w, "controller", draft_controller_name(options->controller));
        json_member_u64(w, "drafters", options->drafters);
        json_member_u64(w, "corpus_tokens",
                        has_source(options, DRAFT_CORPUS) ? options->corpus.tokens_max : 0);
    }
    json_end(w);
}

/* What each rank takes of a model that is split. */
static void write_ranks(json_writer *w, const weights_plan *weights) {
    if (weights->ranks == 0)
        return;
    json_member_array_begin(w, "rank_weight_bytes");
    for (uint32_t i = 0; i < weights->ranks; i++)
        json_u64(w, weights->rank_bytes[i]);
    json_end(w);
}

/* What each device takes of a model that is divided. */
static void write_parts(json_writer *w, const engine_plan_details *details) {
    if (!details->divides)
        return;
    json_member_array_begin(w, "parts");
    for (uint32_t i = 0; i < DEVICE_PARTS; i++) {
        const engine_part *part = &details->part[i];
        json_object_begin(w);
        json_member_string(w, "device", part->device);
        json_member_u64(w, "first_layer", part->first_layer);
        json_member_u64(w, "layers", part->layers);
        json_member_u64(w, "mapped_bytes", part->mapped_bytes);
        json_member_u64(w, "copied_bytes", part->copied_bytes);
        json_member_u64(w, "kv_bytes", part->kv_bytes);
        json_member_u64(w, "scratch_bytes", part->scratch_bytes);
        json_end(w);
    }
    json_end(w);
}

/* Of mixtures of experts: what one token reads. */
static void write_reads(json_writer *w, const plan_facts *facts) {
    if (facts->reads.experts == 0)
        return;
    json_member_u64(w, "parameters", facts->parameters);
    json_member_u64(w, "token_parameters", facts->reads.parameters);
    json_member_u64(w, "token_bytes", facts->reads.bytes);
    json_member_u64(w, "expert_bytes", facts->reads.expert_bytes);
}

static int print_json(const plan_facts *facts) {
    const avo_plan *plan = &facts->plan;
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_u64(w, "weight_bytes", plan->weight_bytes);
    json_member_u64(w, "repack_bytes", plan->repack_bytes);
    json_member_u64(w, "panel_cache_bytes", facts->details.weights.kept_bytes);
    write_ranks(w, &facts->details.weights);
    write_parts(w, &facts->details);
    write_reads(w, facts);
    json_member_u64(w, "kv_bytes", plan->kv_bytes);
    json_member_u64(w, "scratch_bytes", plan->scratch_bytes);
    json_member_u64(w, "session_bytes", plan->session_bytes);
    json_member_u64(w, "draft_bytes", plan->draft_bytes);
    json_member_u64(w, "kv_host_bytes", plan->kv_host_bytes);
    json_member_u64(w, "adapter_bytes", facts->adapter_bytes);
    json_member_u64(w, "total_bytes", device_total(facts));
    json_member_u64(w, "available_bytes", plan->available_bytes);
    json_member_string(w, "limit", plan->limit);
    json_member_boolean(w, "fits", facts->fits);
    if (plan->threads > 0)
        json_member_u64(w, "threads", plan->threads);
    if (plan->threads > 0)
        json_member_u64(w, "decode_threads",
                        facts->requested ? plan->threads : facts->processors.decode);
    json_member_u64(w, "context", plan->context_max);
    json_member_u64(w, "kv_pages", plan->kv_pages);
    json_member_u64(w, "kv_page_tokens", plan->kv_page_tokens);
    json_member_string(w, "kv_type", plan->kv_type);
    json_member_string(w, "cores", cores_mode_name(facts->cores.mode));
    if (plan->threads > 0)
        json_member_u64(w, "prefill_threads", facts->cores.most);
    json_member_u64(w, "streams", plan->streams);
    json_member_u64(w, "stream_bytes", plan->stream_bytes);
    write_speculation(w, &facts->details.speculation);
    write_place(w, facts);
    write_groups(w, &facts->details.weights);
    json_end(w);
    return cli_json_print(&json);
}

static void print_row(const char *what, uint64_t bytes, const char *note) {
    char text[16];
    printf("%-10s %12s%s%s\n", what, cli_bytes_text(bytes, text), *note != '\0' ? "  " : "", note);
}

static void print_cpu(const avo_plan *plan) {
    printf("%-10s %12u  %s%s; threads pinned: %s\n", "NUMA nodes", plan->numa_nodes, plan->numa,
           plan->numa_nodes == 1 ? " (one node: nothing to place)" : "", plan->pin);
    printf("%-10s %12s  the kernel offers: %s; locked: %s\n", "huge pages", plan->huge_pages,
           huge_pages_name(huge_pages_under("")), plan->lock ? "yes" : "no");
}

/* Sources, and how many of their drafts at most. */
static void print_speculation(const speculation_options *options) {
    printf("%-10s ", "speculate");
    if (options->kinds == DRAFTS_OFF) {
        printf("%12s\n", "off");
        return;
    }
    printf("%12s  sources:", options->automatic ? "auto" : "on");
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++)
        if (has_source(options, kind))
            printf(" %s", draft_kind_name((draft_kind)kind));
    printf("; at most %u draft tokens per request and step, controller %s\n", options->draft_tokens,
           draft_controller_name(options->controller));
}

/* With --verbose: why so many threads, and what may change it. */
static void explain_threads(const plan_facts *facts) {
    char text[256];
    if (facts->plan.threads == 0)
        return;
    if (facts->requested) {
        cli_note("threads: as requested with --threads, for decode and prefill; not adjusted");
        return;
    }
    for (int decode = 1; decode >= 0; decode--) {
        cpu_threads_explain(&facts->processors, decode == 1, text, sizeof(text));
        cli_note(text);
    }
    cli_note("threads: nothing is measured yet; while it runs, probes of a few steps with other "
             "numbers adjust both, at 0.5 % of the time, and run --verbose says what they found");
}

static void print_place(const plan_facts *facts) {
    const avo_plan *plan = &facts->plan;
    char devices[128];
    device_names(devices, sizeof(devices));
    printf("%-10s %12s  %s%s; this machine has: %s\n", "device", plan->device,
           strcmp(plan->device_from, "best") == 0     ? "the fastest available"
           : strcmp(plan->device_from, "option") == 0 ? "requested"
                                                      : "chosen by ",
           plan->device_from[0] == 'A' ? plan->device_from : "", devices);
    printf("%-10s %12s  %s\n", "arithmetic", plan->arithmetic, plan->arithmetic_why);
    if (plan->threads > 0)
        printf("%-10s %12u  %s\n", "threads", plan->threads, facts->reason);
    const cores *cores = &facts->cores;
    printf("%-10s %12s  ", "cores", cores_mode_name(cores->mode));
    if (cores->mode == CORES_MIXED)
        printf("decode and prefill in one step\n");
    else if (plan->threads == 0)
        printf("prefill and decode each on a stream of the device\n");
    else
        printf("%s%u of %u threads for prefill, the others decode%s\n",
               cores->mode == CORES_ADAPTIVE ? "up to " : "", cores->most, cores->threads,
               cores->mode == CORES_ADAPTIVE ? "; all threads when only one kind of work is waiting"
                                             : "");
    print_speculation(&facts->details.speculation);
    if (plan->threads > 0)
        print_cpu(plan);
    for (uint32_t i = 0; i < facts->details.weights.groups; i++) {
        const weights_group *group = &facts->details.weights.group[i];
        char bytes[16];
        char how[64];
        bool kept = facts->details.weights.kept_bytes > 0;
        if (group->repacked)
            snprintf(how, sizeof(how), "%s from %s in %s",
                     kept ? "mapped as once repacked" : "repacked", quant_name(group->from),
                     quant_layout_name(group->layout));
        else
            snprintf(how, sizeof(how), "used in place");
        printf("%-10s %12s  %u of %s, %s\n", i == 0 ? "matrices" : "",
               cli_bytes_text(group->bytes, bytes), group->matrices, quant_name(group->to), how);
    }
}

static void print_totals(const plan_facts *facts) {
    const avo_plan *plan = &facts->plan;
    bool apart = !plan->host_memory;
    bool lacking = device_total(facts) > plan->available_bytes;
    char note[128];
    print_row("total", device_total(facts), apart ? "of the device's memory" : "");
    snprintf(note, sizeof(note), "limit from: %s%s", plan->limit,
             !lacking ? ""
             : apart  ? "; the device has too little memory"
                      : "; weights will be read from the file repeatedly");
    print_row("available", plan->available_bytes, note);
    if (!apart)
        return;
    lacking = host_total(facts) > plan->host_available_bytes;
    print_row("host total", host_total(facts), "of the host's memory");
    snprintf(note, sizeof(note), "limit from: %s%s", facts->details.host_limit,
             lacking ? "; the host has too little memory" : "");
    print_row("available", plan->host_available_bytes, note);
}

/* "layers 0 to 19 on avx2: 812 MiB of weights mapped, …" */
static void print_parts(const engine_plan_details *details) {
    for (uint32_t i = 0; details->divides && i < DEVICE_PARTS; i++) {
        const engine_part *part = &details->part[i];
        char layers[64] = "no layers", mapped[16], copied[16], kv[16], scratch[16], note[192];
        uint64_t bytes = part->copied_bytes + part->kv_bytes + part->scratch_bytes;
        if (part->layers > 0)
            snprintf(layers, sizeof(layers), "layers %u to %u", part->first_layer,
                     part->first_layer + part->layers - 1);
        snprintf(note, sizeof(note), "%s%s; weights %s (mapped %s), KV %s, scratch %s", layers,
                 i == 0 ? "" : " and the output head", cli_bytes_text(part->copied_bytes, copied),
                 cli_bytes_text(part->mapped_bytes, mapped), cli_bytes_text(part->kv_bytes, kv),
                 cli_bytes_text(part->scratch_bytes, scratch));
        print_row(part->device, bytes, note);
    }
}

static void print_table(const plan_facts *facts) {
    const avo_plan *plan = &facts->plan;
    char note[96];
    print_row("weights", plan->weight_bytes, "mapped from the file");
    print_row("repacked", plan->repack_bytes, "copied at load");
    if (facts->details.weights.kept_bytes > 0)
        print_row("panel cache", facts->details.weights.kept_bytes,
                  "of the weights, repacked by an earlier run (--panel-cache)");
    if (facts->reads.experts > 0) {
        snprintf(note, sizeof(note), "a token reads (%u of %u experts): %.1f of %.1f M parameters",
                 facts->reads.used, facts->reads.experts, (double)facts->reads.parameters * 1e-6,
                 (double)facts->parameters * 1e-6);
        print_row("per token", facts->reads.bytes, note);
    }
    snprintf(note, sizeof(note), "%s, %u pages of %u tokens, context of %u tokens", plan->kv_type,
             plan->kv_pages, plan->kv_page_tokens, plan->context_max);
    print_row("KV", plan->kv_bytes, note);
    char lane[16];
    char threads[32] = "of the device";
    if (plan->threads > 0)
        snprintf(threads, sizeof(threads), "for %u threads", plan->threads);
    snprintf(note, sizeof(note), "%s%s%s%s", threads, plan->streams > 1 ? "; of these " : "",
             plan->streams > 1 ? cli_bytes_text(plan->stream_bytes, lane) : "",
             plan->streams > 1 ? " for prefill in parallel" : "");
    print_row("scratch", plan->scratch_bytes, note);
    print_row("sessions", plan->session_bytes, "timelines, page accounting, a batch for rings");
    if (plan->kv_host_bytes > 0)
        print_row("KV host", plan->kv_host_bytes, "for cached pages that leave the device");
    if (plan->draft_bytes > 0)
        print_row("drafts", plan->draft_bytes,
                  "speculative decoding: lookups, draft model, draft heads");
    if (facts->adapter_bytes > 0)
        print_row("adapters", facts->adapter_bytes, "all adapters given with --adapter");
    if (facts->details.adapter_bytes > 0)
        print_row("prepared", facts->details.adapter_bytes, "for adapters on the device");
    for (uint32_t i = 0; i < facts->details.weights.ranks; i++) {
        char name[16];
        snprintf(name, sizeof(name), "rank %u", i);
        print_row(name, facts->details.weights.rank_bytes[i],
                  i == 0 ? "its weights, of those above" : "its weights");
    }
    print_parts(&facts->details);
    print_totals(facts);
    print_place(facts);
}

static avo_status add_adapters(const avo_model *model, const option_list *paths, plan_facts *facts,
                               avo_error *error) {
    for (size_t i = 0; i < paths->count; i++) {
        avo_adapter *adapter = NULL;
        avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
        AVO_TRY(cli_adapter_open(model, paths->items[i], NULL, &adapter, error));
        avo_adapter_describe(adapter, &info);
        /* A mapped one takes what a step reads. */
        facts->adapter_bytes +=
            info.memory_bytes > info.bytes ? info.memory_bytes : info.memory_bytes + info.bytes;
        avo_adapter_close(adapter);
    }
    return AVO_OK;
}

static avo_status make_plan(const char *name, const avo_engine_options *options,
                            const option_list *adapters, plan_facts *facts, avo_error *error) {
    avo_model *model = NULL;
    facts->plan = (avo_plan)AVO_PLAN_INIT;
    avo_engine_options own = *options;
    AVO_TRY(cli_model_open(name, &model, error));
    avo_status status = cli_draft_model(model, &own, error);
    AVO_THEN(status, cli_draft_heads(model, &own, error));
    AVO_THEN(status, engine_plan_describe(model, &own, &facts->plan, &facts->details, error));
    AVO_THEN(status, add_adapters(model, adapters, facts, error));
    facts->reads = model_reads_of(&model->view);
    facts->parameters = model->parameters;
    avo_model_close(model);
    if (status != AVO_OK)
        return status;
    cores_mode mode;
    (void)cores_mode_named(facts->scheduler.cores, &mode); /* one of the flag's choices */
    AVO_TRY(cores_open(&facts->cores, mode, facts->plan.threads, facts->scheduler.prefill_threads,
                       0, error));
    facts->processors = cpu_threads_detect();
    facts->requested = options->threads != 0;
    if (options->threads != 0)
        snprintf(facts->reason, sizeof(facts->reason), "requested; %u are usable",
                 facts->processors.usable);
    else
        cpu_threads_text(&facts->processors, facts->reason, sizeof(facts->reason));
    facts->fits =
        device_total(facts) <= facts->plan.available_bytes &&
        (facts->plan.host_memory || host_total(facts) <= facts->plan.host_available_bytes);
    return AVO_OK;
}

static int run(int argc, char **argv) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    bool json = false;
    uint64_t memory_mib = 0;
    option_list adapters = {0};
    avo_scheduler_options scheduler = AVO_SCHEDULER_OPTIONS_INIT;
    option_table table = {0};
    engine_flags_specs(&options, &table);
    draft_flags_specs(&options, &table);
    cores_flags_specs(&scheduler, &table);
    const option_spec own[] = {
        {"ctx", 'c', OPTION_U32, &options.context_max, "N",
         "context in tokens (default: the model's own, fitted to memory)", 0, 16777216},
        {"sessions", 0, OPTION_U32, &options.sessions_max, "N",
         "sessions at the same time (default 1)", 0, 65536},
        {"rows", 0, OPTION_U32, &options.rows_max, "N", "rows per step (default 512)", 0, 65536},
        {"memory", 0, OPTION_U64, &memory_mib, "MIB",
         "memory limit (default: the free memory of the system)", 0, 1e9},
        {"adapter", 'a', OPTION_TEXT_LIST, &adapters, "PATH",
         "include the memory of an adapter; may be repeated", 0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object, in bytes", 0, 0},
        {0},
    };
    options_add(&table, own);
    int exit_status;
    if (!options_one_model(&command_plan, table.specs, argc, argv, &exit_status))
        return exit_status;
    options.memory_max = memory_mib << 20;
    cores_flags_apply(&scheduler, &options);
    avo_error error = {0};
    plan_facts facts = {.scheduler = scheduler};
    avo_status status = make_plan(argv[1], &options, &adapters, &facts, &error);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    explain_threads(&facts);
    if (json)
        return print_json(&facts);
    print_table(&facts);
    return EXIT_GOOD;
}

const cli_command command_plan = {
    .name = "plan",
    .summary = "show the memory a model will need and how it will be computed",
    .usage = "avocet plan MODEL [options]",
    .examples = "avocet plan smollm2\n"
                "avocet plan smollm2 --ctx 8192 --sessions 4\n"
                "avocet plan model.gguf --memory 4096 --json",
    .run = run,
};
