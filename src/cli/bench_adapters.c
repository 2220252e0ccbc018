/* `avocet bench MODEL --adapters`: what adapters cost. */
#include "cli/bench_int.h"

#include "bench/adapters.h"
#include "model/adapters.h"

#include <string.h>

#define RESULTS_MAX 1024

static bool parse_targets(const char *text, bench_words *words, bench_adapters_options *out) {
    if (!bench_parse_words("targets", text, words))
        return false;
    out->targets_count = words->count;
    for (size_t i = 0; i < words->count; i++) {
        out->targets[i] = bench_targets_named(words->item[i]);
        if (out->targets[i] == NULL) {
            cli_usage(&command_bench, "--targets: \"%s\" must be qv, qkvo or all", words->item[i]);
            return false;
        }
    }
    return true;
}

static int print(const char *model, const bench_adapters_result *results, size_t count, bool json,
                 bool csv) {
    machine_text room;
    bench_report machine = bench_report_of(NULL, &room);
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = json  ? bench_adapters_json(&machine, model, results, count, &out)
                        : csv ? bench_adapters_csv(&machine, model, results, count, &out)
                              : bench_adapters_markdown(&machine, model, results, count, &out);
    return cli_print_report(status, &out);
}

int bench_adapters_run(const char *model_name, const adapter_flags *flags,
                       const bench_engine_options *engine, bool json, bool csv) {
    static bench_adapters_result results[RESULTS_MAX];
    bench_words words;
    bench_adapters_options options = {.prompt = engine->prompt.item[0],
                                      .generate = engine->generate.item[0],
                                      .depth = engine->depth.item[0],
                                      .threads = engine->threads.item[0],
                                      .batch = engine->batch,
                                      .repeats = engine->repeats,
                                      .isa = engine->isa[0],
                                      .kv_type = engine->kv_type[0],
                                      .place = engine->place,
                                      .progress = engine->progress};
    if (engine->prompt.count > 1 || engine->generate.count > 1 || engine->depth.count > 1 ||
        engine->threads.count > 1 || engine->isas > 1 || engine->kv_types > 1)
        return cli_usage(&command_bench,
                         "--adapters accepts one value of -p, -n, -d, -t, --device and --kv-type");
    if (options.depth % KV_PAGE_TOKENS != 0)
        return cli_usage(&command_bench, "--adapters: -d must be a multiple of %d", KV_PAGE_TOKENS);
    if (!bench_parse_list("adapters", flags->adapters, 0, 4096, &options.adapters) ||
        !bench_parse_list("rank", flags->rank != NULL ? flags->rank : "32", 1, ADAPTER_RANK_MAX,
                          &options.rank) ||
        !parse_targets(flags->targets != NULL ? flags->targets : "qv,all", &words, &options))
        return EXIT_USAGE;
    char name[64];
    avo_error error = {0};
    avo_model *model = NULL;
    size_t count = 0;
    cli_short_name(model_name, name, sizeof(name));
    avo_status status = model_adapter_type(flags->type, &options.type, &error);
    AVO_THEN(status, cli_model_open(model_name, &model, &error));
    AVO_THEN(status, bench_adapters(model, &options, results, RESULTS_MAX, &count, &error));
    cli_progress_end();
    avo_model_close(model);
    int exit_status = EXIT_GOOD;
    if (status == AVO_OK || count > 0) /* what was measured is not lost with the rest */
        exit_status = print(name, results, count, json, csv);
    return status == AVO_OK ? exit_status : cli_fail_status(status, &error);
}
