/* `avocet bench --http`: a server seen from outside. */
#include "cli/bench_int.h"
#include "load/load.h"

#include <string.h>

#define CLIENTS_DEFAULT "1,4,8,16"
#define ROUNDS_DEFAULT  8u  /* requests of each client, where no number was given */
#define REQUESTS_MIN    16u /* so that a median is one */
#define OPEN_CLIENTS    1024u
#define TIMEOUT_DEFAULT 300.0

void http_flags_specs(http_flags *flags, option_table *table) {
    const option_spec own[] = {
        {"http", 0, OPTION_TEXT, &flags->url, "URL", "measure an OpenAI-compatible server", 0, 0},
        {"clients", 0, OPTION_TEXT, &flags->clients, "N,…",
         "(with --http) clients that send the next request as soon as they have an answer "
         "(default " CLIENTS_DEFAULT ")",
         0, 0},
        {"model", 0, OPTION_TEXT, &flags->model, "NAME",
         "(with --http) model or adapter (default: the first one the server lists)", 0, 0},
        {"key", 0, OPTION_TEXT, &flags->key, "KEY", "(with --http) bearer token", 0, 0},
        {"chat", 0, OPTION_FLAG, &flags->chat, NULL,
         "(with --http) use /v1/chat/completions instead of /v1/completions", 0, 0},
        {"whole", 0, OPTION_FLAG, &flags->whole, NULL,
         "(with --http) whole answers instead of streams", 0, 0},
        {"any-length", 0, OPTION_FLAG, &flags->any_length, NULL,
         "(with --http) allow answers shorter than -n tokens (no ignore_eos)", 0, 0},
        {"timeout", 0, OPTION_NUMBER, &flags->timeout, "SECONDS",
         "(with --http) timeout of a request (default 300)", 0.001, 86400},
        {0},
    };
    options_add(table, own);
    modes_flags_specs(flags, table);
}

bool http_flags_given(const http_flags *flags) {
    return flags->clients != NULL || flags->model != NULL || flags->key != NULL || flags->chat ||
           flags->whole || flags->any_length || flags->timeout > 0.0 || flags->modes != NULL ||
           flags->prompts != NULL || flags->sets != NULL || flags->limit > 0 ||
           flags->temperature > 0.0;
}

/* ---- Pictures ---- */

static void write_block(FILE *file, const double *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%.6f %.4f\n", values[i] * 1e3, (double)(i + 1) / (double)count * 100.0);
    fputs(count == 0 ? "0 0\n\n\n" : "\n\n", file);
}

/* Three distributions of every case: a block each. */
static void write_plot_data(FILE *file, const void *context) {
    const load_table *table = context;
    for (size_t i = 0; i < table->count; i++) {
        const load_result *r = &table->item[i].result;
        write_block(file, r->first_seconds, r->first.count);
        write_block(file, r->between_seconds, r->between.count);
        write_block(file, r->whole_seconds, r->whole.count);
    }
}

static void write_plot_script(FILE *file, const void *context) {
    static const char *const titles[] = {"time to first token", "between two tokens",
                                         "whole request"};
    const load_table *table = context;
    fputs("set terminal svg size 1100,420 dynamic background '#ffffff'\n"
          "set output 'http.svg'\nset multiplot layout 1,3\nset grid\nset logscale x\n"
          "set yrange [0:100]\nset key right bottom\nset xlabel 'ms'\n"
          "set ylabel '% of requests at most'\n",
          file);
    for (size_t n = 0; n < 3; n++) {
        fprintf(file, "set title '%s'\nplot ", titles[n]);
        for (size_t i = 0; i < table->count; i++) {
            const load_options *options = &table->item[i].options;
            fprintf(file, "%s'http.dat' index %zu using 1:2 with lines lw 2 title '",
                    i > 0 ? ", " : "", i * 3 + n);
            if (options->rate > 0.0)
                fprintf(file, "%.2f per s'", options->rate);
            else
                fprintf(file, "%u client%s'", options->clients, options->clients == 1 ? "" : "s");
        }
        fputc('\n', file);
    }
    fputs("unset multiplot\n", file);
}

/* ---- The whole ---- */

static bool make_cases(const http_flags *flags, const serving_flags *serving,
                       const bench_engine_options *engine, load_table *table) {
    bench_list clients = {.item = {OPEN_CLIENTS}, .count = 1};
    if (serving->rate <= 0.0 &&
        !bench_parse_list("clients", flags->clients != NULL ? flags->clients : CLIENTS_DEFAULT, 1,
                          LOAD_CLIENTS_MAX, &clients))
        return false;
    table->url = flags->url;
    table->count = clients.count;
    for (size_t i = 0; i < clients.count; i++) {
        uint32_t rounds = clients.item[i] * ROUNDS_DEFAULT;
        table->item[i].options = (load_options){
            .url = flags->url,
            .model = flags->model,
            .key = flags->key,
            .chat = flags->chat,
            .whole = flags->whole,
            .any_length = flags->any_length,
            .clients = clients.item[i],
            .rate = serving->rate,
            .requests = serving->requests > 0   ? serving->requests
                        : serving->rate > 0.0   ? 200
                        : rounds > REQUESTS_MIN ? rounds
                                                : REQUESTS_MIN,
            .prompt = engine->prompt.item[0],
            .generate = engine->generate.item[0] > 0 ? engine->generate.item[0] : 1,
            .seed = serving->seed + i,
            .timeout_seconds = flags->timeout > 0.0 ? flags->timeout : TIMEOUT_DEFAULT,
            .progress = cli_progress,
        };
    }
    return true;
}

int bench_http_run(const http_flags *flags, const serving_flags *serving,
                   const bench_engine_options *engine, const char *plot, bool json, bool csv) {
    static load_table table;
    avo_error error = {0};
    if (!make_cases(flags, serving, engine, &table))
        return EXIT_USAGE;
    avo_status status = AVO_OK;
    size_t measured = 0;
    for (; measured < table.count && status == AVO_OK; measured += status == AVO_OK) {
        status = load_run(&table.item[measured].options, &table.item[measured].result, &error);
        cli_progress_end();
    }
    table.count = measured; /* what was measured is not lost with the rest */
    int exit_status = EXIT_GOOD;
    bool failed = false;
    if (measured > 0) {
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        exit_status = cli_print_report(json  ? load_write_json(&table, &out)
                                       : csv ? load_write_csv(&table, &out)
                                             : load_write_markdown(&table, &out),
                                       &out);
    }
    if (status == AVO_OK && exit_status == EXIT_GOOD && plot != NULL)
        exit_status = bench_draw(plot, "http.dat", write_plot_data, "http.gp", write_plot_script,
                                 "http.svg", &table);
    for (size_t i = 0; i < measured; i++) {
        failed = failed || table.item[i].result.failed > 0;
        load_free(&table.item[i].result);
    }
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    return exit_status != EXIT_GOOD ? exit_status : failed ? EXIT_FAILED : EXIT_GOOD;
}
