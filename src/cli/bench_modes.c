/* `avocet bench --http URL --modes`: a server with and without speculation. */
#include "cli/bench_int.h"
#include "load/modes.h"

#include <string.h>

#define LIMIT_DEFAULT   2u /* prompts of each set */
#define TIMEOUT_DEFAULT 300.0

void modes_flags_specs(http_flags *flags, option_table *table) {
    const option_spec own[] = {
        {"modes", 0, OPTION_TEXT, &flags->modes, "MODE,…",
         "(with --http) compare plain,speculative: the same prompts in turn, by one client, with "
         "the field \"speculation\" off and auto; answers are compared byte by byte. Other modes "
         "are sources of drafts, such as suffix",
         0, 0},
        {"set", 0, OPTION_TEXT, &flags->sets, "SET,…",
         "(with --modes) prompts: " BENCH_PROMPT_SETS " (default: all)", 0, 0},
        {"prompts", 0, OPTION_TEXT, &flags->prompts, "FILE",
         "(with --modes) prompts from a file, as in avocet speculate", 0, 0},
        {"limit", 0, OPTION_U32, &flags->limit, "N",
         "(with --modes) prompts of each set or category (default: 2 of a set, all of a file)", 1,
         BENCH_PROMPTS_MAX},
        {"temperature", 0, OPTION_NUMBER, &flags->temperature, "X",
         "(with --modes) sampling temperature (default 0; the set random always uses 1.5)", 0, 100},
        {0},
    };
    options_add(table, own);
}

const char *modes_flags_wrong(const http_flags *flags, const serving_flags *serving,
                              const char *plot) {
    bool any = flags->sets != NULL || flags->prompts != NULL || flags->limit > 0 ||
               flags->temperature > 0.0;
    if (flags->modes == NULL)
        return any ? "--set, --prompts, --limit and --temperature need --modes" : NULL;
    if (flags->clients != NULL || serving->rate > 0.0 || serving->requests > 0 || flags->whole ||
        plot != NULL)
        return "--modes asks with one client; it cannot be combined with --clients, --rate, "
               "--requests, --whole or --plot";
    if (flags->sets != NULL && flags->prompts != NULL)
        return "give --prompts or --set, not both";
    return NULL;
}

static int report(const modes_options *options, modes_result *result, bool json, bool csv) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    int status = cli_print_report(json  ? modes_write_json(options, result, &out)
                                  : csv ? modes_write_csv(result, &out)
                                        : modes_write_text(options, result, &out),
                                  &out);
    if (status == EXIT_GOOD && result->different > 0)
        status = cli_fail_text("%u of %u answers differ from those of mode %s", result->different,
                               result->requests, result->name[0]);
    if (status == EXIT_GOOD && result->failed > 0)
        status = cli_fail_text("%u of %u requests failed, the first: %s", result->failed,
                               result->requests, result->failure);
    return status;
}

static avo_status open_prompts(const http_flags *flags, bench_prompts *prompts, avo_error *error) {
    if (flags->prompts != NULL)
        return bench_prompts_file(flags->prompts, flags->limit, prompts, error);
    return bench_prompts_sets(flags->sets != NULL ? flags->sets : BENCH_PROMPT_SETS,
                              flags->limit > 0 ? flags->limit : LIMIT_DEFAULT, prompts, error);
}

int bench_modes_run(const http_flags *flags, const serving_flags *serving,
                    const bench_engine_options *engine, bool json, bool csv) {
    modes_result result;
    avo_error error = {0};
    bench_prompts prompts;
    uint32_t count;
    if (modes_parse(flags->modes, &result, &count, &error) != AVO_OK)
        return cli_usage(&command_bench, "--modes: %s", error.text);
    avo_status status = open_prompts(flags, &prompts, &error);
    modes_options options = {
        .url = flags->url,
        .model = flags->model,
        .key = flags->key,
        .modes = flags->modes,
        .chat = flags->chat,
        .any_length = flags->any_length,
        .prompts = &prompts,
        .iterations = engine->repeats,
        .new_tokens = engine->generate.item[0] > 1 ? engine->generate.item[0] : 2,
        .temperature = (float)flags->temperature,
        .seed = serving->seed > 0 ? serving->seed : 1,
        .timeout_seconds = flags->timeout > 0.0 ? flags->timeout : TIMEOUT_DEFAULT,
        .progress = cli_progress};
    AVO_THEN(status, modes_run(&options, &result, &error));
    cli_progress_end();
    int exit_status =
        status == AVO_OK ? report(&options, &result, json, csv) : cli_fail_status(status, &error);
    if (status == AVO_OK)
        modes_free(&result);
    bench_prompts_free(&prompts);
    return exit_status;
}
