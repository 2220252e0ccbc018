/* `avocet speculate`: what draft tokens gain on this machine, for which text, and why. */
#include "cli/bench_int.h"
#include "cli/engine_flags.h"
#include "cli/speculate_int.h"

#include <errno.h>
#include <string.h>

#define K_DEFAULT     "0,3,7,15"
#define LIMIT_DEFAULT 2u /* prompts of each set */
#define TOKENS_MAX    65536
#define CLIENTS_MAX   256

typedef struct speculate_flags {
    const char *k, *source, *policy, *controller, *prompts, *sets, *csv, *plot;
    uint32_t iterations, limit, new_tokens, clients;
    double temperature;
    uint64_t seed;
    bool ignore_end, raw, json;
    avo_engine_options engine;
} speculate_flags;

static void make_specs(speculate_flags *f, option_table *table) {
    const option_spec own[] = {
        {"k", 'k', OPTION_TEXT, &f->k, "N..M,…",
         "most draft tokens in a step: numbers from 0 to 16 or ranges (default " K_DEFAULT "); 0, "
         "the base of all ratios, is always included",
         0, 0},
        {"source", 0, OPTION_TEXT, &f->source, "SOURCE,…",
         "draft sources to compare: auto, suffix, ngram, corpus, grammar, model; several kinds "
         "together as suffix+corpus (default auto)",
         0, 0},
        {"controller", 0, OPTION_TEXT, &f->controller, "NAME,…",
         "who decides how many drafts are verified: cost, fixed, step, rate, ema (default cost)", 0,
         0},
        {"policy", 0, OPTION_TEXT, &f->policy, "POLICY,…",
         "which drafts are accepted: exact (default); threshold:P, top-k:N and typical:P are LOSSY "
         "and exist in this command only",
         0, 0},
        {"iterations", 'i', OPTION_U32, &f->iterations, "N",
         "repetitions, for mean and standard deviation (default 3)", 1, LAB_ITERATIONS_MAX},
        {"clients", 0, OPTION_U32, &f->clients, "N",
         "so many answers at a time, through the scheduler (default: one by one, without it): "
         "every "
         "configuration answers all prompts in turn, and speed is that of all clients together",
         1, CLIENTS_MAX},
        {"set", 0, OPTION_TEXT, &f->sets, "SET,…", "prompts: " BENCH_PROMPT_SETS " (default: all)",
         0, 0},
        {"prompts", 0, OPTION_TEXT, &f->prompts, "FILE",
         "prompts from a file instead: plain lines, or JSON lines with \"prompt\" or \"turns\" and "
         "\"category\"",
         0, 0},
        {"limit", 0, OPTION_U32, &f->limit, "N",
         "prompts of each set or category (default: 2 of a set, all of a file)", 1,
         BENCH_PROMPTS_MAX},
        {"max-tokens", 'n', OPTION_U32, &f->new_tokens, "N",
         "most new tokens of an answer (default 64)", 2, TOKENS_MAX},
        {"temperature", 0, OPTION_NUMBER, &f->temperature, "X",
         "sampling temperature (default 0: greedy; the set random always uses 1.5)", 0, 100},
        {"seed", 0, OPTION_U64, &f->seed, "N", "random seed (default 1)", 0, 0},
        {"ignore-end", 0, OPTION_FLAG, &f->ignore_end, NULL,
         "continue after EOS tokens, so that all answers have -n tokens", 0, 0},
        {"raw", 0, OPTION_FLAG, &f->raw, NULL, "do not use the chat template", 0, 0},
        {"json", 0, OPTION_FLAG, &f->json, NULL, "print a JSON object instead of tables", 0, 0},
        {"csv", 0, OPTION_TEXT, &f->csv, "FILE",
         "also write every measurement to FILE, comma-separated", 0, 0},
        {"plot", 0, OPTION_TEXT, &f->plot, "FOLDER", "write plots to this folder, with gnuplot", 0,
         0},
        {0},
    };
    options_add(table, own);
    engine_flags_specs(&f->engine, table);
    draft_model_flag_spec(table);
}

static avo_status open_prompts(const speculate_flags *f, bench_prompts *prompts, avo_error *error) {
    if (f->prompts != NULL)
        return bench_prompts_file(f->prompts, f->limit, prompts, error);
    return bench_prompts_sets(f->sets != NULL ? f->sets : BENCH_PROMPT_SETS,
                              f->limit > 0 ? f->limit : LIMIT_DEFAULT, prompts, error);
}

/* That the files can be written is known before minutes are spent. */
static int check_outputs(const speculate_flags *f) {
    if (f->csv != NULL) {
        FILE *file = fopen(f->csv, "w");
        if (file == NULL || fclose(file) != 0)
            return cli_fail_text("--csv: %s: %s", f->csv, strerror(errno));
    }
    return f->plot != NULL ? bench_plot_folder(f->plot) : EXIT_GOOD;
}

static int write_csv(const char *path, const lab_options *options, const lab_result *result) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = lab_write_csv(options, result, &out);
    FILE *file = status == AVO_OK ? fopen(path, "w") : NULL;
    bool good = file != NULL && fwrite(out.data, 1, out.size, file) == out.size;
    if (file != NULL && fclose(file) != 0)
        good = false;
    buffer_free(&out);
    return good ? EXIT_GOOD : cli_fail_text("--csv: %s: cannot write the file", path);
}

static int report(const speculate_flags *f, const char *model, const lab_options *options,
                  const lab_result *result) {
    char name[64];
    buffer out;
    cli_short_name(model, name, sizeof(name));
    buffer_init(&out, NULL, SIZE_MAX);
    int status = cli_print_report(f->json ? lab_write_json(name, options, result, &out)
                                          : lab_write_text(name, options, result, &out),
                                  &out);
    if (status == EXIT_GOOD && f->csv != NULL)
        status = write_csv(f->csv, options, result);
    if (status == EXIT_GOOD && f->plot != NULL)
        status = speculate_plot(options, result, f->plot);
    if (result->different > 0)
        return cli_fail_text("%u answers differ from those of K 0, the first: %s; this is a bug, "
                             "please report it",
                             result->different, result->first_different);
    return status;
}

/* Heads for all configurations: of every kind that one names, or, for auto, the best. */
static avo_status open_heads(const avo_model *model, lab_options *options, avo_error *error) {
    draft_kinds all = DRAFTS_OFF, kinds;
    char sources[128];
    size_t bytes = 0;
    avo_engine_options *engine = &options->engine;
    for (uint32_t i = 1; i < options->configs; i++) {
        AVO_TRY(draft_kinds_parse(options->config[i].source, &kinds, error));
        all |= kinds == DRAFTS_AUTO ? DRAFTS_OFF : kinds;
    }
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++)
        if ((all & DRAFT_BIT(kind)) != 0)
            bytes += (size_t)snprintf(sources + bytes, sizeof(sources) - bytes, "%s%s",
                                      bytes > 0 ? "," : "", draft_kind_name((draft_kind)kind));
    avo_engine_options own = *engine;
    bool heads =
        (all & (DRAFT_BIT(DRAFT_EAGLE) | DRAFT_BIT(DRAFT_MEDUSA) | DRAFT_BIT(DRAFT_LAYERS))) !=
        DRAFTS_OFF;
    own.speculate = heads ? sources : NULL;
    AVO_TRY(cli_draft_heads(model, &own, error));
    engine->draft_heads = own.draft_heads;
    engine->draft_heads_count = own.draft_heads_count;
    return AVO_OK;
}

static int measure(const speculate_flags *f, const char *model_name, const lab_config *config,
                   uint32_t configs, const bench_prompts *prompts) {
    avo_error error = {0};
    avo_model *model = NULL;
    lab_result result = {0};
    lab_options options = {.config = config,
                           .configs = configs,
                           .prompts = prompts,
                           .iterations = f->iterations,
                           .new_tokens = f->new_tokens,
                           .temperature = (float)f->temperature,
                           .seed = f->seed,
                           .ignore_end = f->ignore_end,
                           .raw = f->raw,
                           .clients = f->clients,
                           .engine = f->engine,
                           .progress = cli_progress};
    avo_status status = cli_model_open(model_name, &model, &error);
    AVO_THEN(status, cli_draft_model(model, &options.engine, &error));
    AVO_THEN(status, open_heads(model, &options, &error));
    AVO_THEN(status, lab_run(model, &options, &result, &error));
    cli_progress_end();
    int exit_status = status == AVO_OK ? report(f, model_name, &options, &result)
                                       : cli_fail_status(status, &error);
    if (status == AVO_OK)
        lab_free(&result);
    avo_model_close(model);
    return exit_status;
}

static int run(int argc, char **argv) {
    speculate_flags f = {.k = K_DEFAULT,
                         .source = "auto",
                         .controller = "cost",
                         .policy = "exact",
                         .iterations = 3,
                         .new_tokens = 64,
                         .seed = 1,
                         .engine = AVO_ENGINE_OPTIONS_INIT};
    option_table table = {0};
    lab_config config[LAB_CONFIGS_MAX];
    uint32_t configs = 0;
    bench_prompts prompts;
    avo_error error = {0};
    int exit_status;
    make_specs(&f, &table);
    if (!options_one_model(&command_speculate, table.specs, argc, argv, &exit_status))
        return exit_status;
    if (f.prompts != NULL && f.sets != NULL)
        return cli_usage(&command_speculate, "give --prompts or --set, not both");
    if (f.clients > 0 && strcmp(f.policy, "exact") != 0)
        return cli_usage(&command_speculate,
                         "--clients: the scheduler has no lossy policies; leave --policy out");
    if (f.clients > 0 && f.plot != NULL)
        return cli_usage(&command_speculate,
                         "--clients: pictures show single steps, which it does not measure; leave "
                         "--plot out");
    if (lab_configs(f.k, f.source, f.controller, f.policy, config, &configs, &error) != AVO_OK)
        return cli_usage(&command_speculate, "%s", error.text);
    avo_status status = open_prompts(&f, &prompts, &error);
    if (status == AVO_ERROR_ARGUMENT)
        exit_status = cli_usage(&command_speculate, "--set: %s", error.text);
    else if (status != AVO_OK)
        exit_status = cli_fail_status(status, &error);
    else
        exit_status = check_outputs(&f);
    if (status == AVO_OK && exit_status == EXIT_GOOD) {
        cli_interrupt_catch();
        exit_status = measure(&f, argv[1], config, configs, &prompts);
    }
    bench_prompts_free(&prompts);
    return exit_status;
}

const cli_command command_speculate = {
    .name = "speculate",
    .summary = "measure speculative decoding: speed, acceptance, costs, by kind of text",
    .usage =
        "avocet speculate MODEL [--k N..M,…] [--source SOURCE,…] [--controller NAME,…]\n"
        "                       [--policy POLICY,…] [--set SET,…|--prompts FILE] [options]\n\n"
        "Every configuration answers the same prompts in turn and is compared with K 0. If an\n"
        "answer of a lossless configuration differs from that of K 0, the exit status is 1.",
    .examples = "avocet speculate smollm2\n"
                "avocet speculate smollm2 --k 0..4 --source suffix,ngram --controller cost,fixed\n"
                "avocet speculate smollm2 --set editing,json -n 128 -i 5 --plot pictures\n"
                "avocet speculate smollm2 --prompts question.jsonl --limit 1 -i 1 --json\n"
                "avocet speculate smollm2 --set random --k 0,15 -i 10 --csv worst.csv\n"
                "avocet speculate smollm2 --clients 16 --k 0,15 --limit 8 -n 96\n"
                "avocet speculate smollm2 --policy exact,typical:0.3 --temperature 0.7",
    .run = run,
};
