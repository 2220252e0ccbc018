/* `avocet chat`: opens what a conversation needs and hands it to tui/. */
#include "cli/engine_flags.h"
#include "cli/sampling_options.h"
#include "engine/request.h"
#include "tui/tui.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_MAX 512u

typedef struct chat_flags {
    sampling_flags sampling;
    avo_engine_options engine;
    const char *system, *load, *adapter_type;
    option_list adapters;
    uint32_t max_new_tokens, context;
    bool plain, show_drafts;
} chat_flags;

extern const cli_command command_chat;

/* ---- Ctrl-C where lines are read ---- */

static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal) {
    (void)signal;
    interrupts = 1;
}

static bool take_interrupt(void) {
    bool was = interrupts != 0;
    interrupts = 0;
    return was;
}

static void catch_interrupt(void) {
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL); /* reading a line ends with it: no SA_RESTART */
}

/* ---- Opening ---- */

typedef struct chat_parts {
    avo_model *model;
    avo_engine *engine;
    avo_registry *registry;
    avo_scheduler *scheduler;
    char adapter[CLI_ADAPTER_NAME_MAX]; /* the first that was given: it answers */
    float adapter_weight;
    double read_limit; /* bytes a second that memory gives; 0: not known */
} chat_parts;

static void close_parts(chat_parts *parts) {
    avo_scheduler_close(parts->scheduler);
    avo_engine_close(parts->engine);
    avo_registry_close(parts->registry);
    avo_model_close(parts->model);
}

static avo_status load_adapters(const chat_flags *flags, chat_parts *parts, avo_error *error) {
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.type = flags->adapter_type;
    AVO_TRY(avo_registry_open(parts->model, &options, &parts->registry, error));
    for (size_t i = 0; i < flags->adapters.count; i++) {
        cli_adapter_spec spec;
        AVO_TRY(cli_adapter_spec_read(flags->adapters.items[i], &spec, error));
        AVO_TRY(avo_registry_load(parts->registry, spec.name, spec.path, 0, error));
        if (i == 0) {
            memcpy(parts->adapter, spec.name, sizeof(spec.name));
            parts->adapter_weight = spec.weight;
        }
    }
    return AVO_OK;
}

/* Plain lines where nobody sits at a terminal, and where the terminal has no full screen: before
 * the model is loaded, so that the reason stands above everything. */
static void choose_screen(chat_flags *flags) {
    avo_error why = {0};
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        flags->plain = true;
    if (!flags->plain && tui_screen_check(&why) != AVO_OK) {
        cli_warn("%s; using plain lines, as with --plain", why.text);
        flags->plain = true;
    }
}

static avo_status open_parts(const chat_flags *flags, const char *model_name, chat_parts *parts,
                             avo_plan *plan, avo_error *error) {
    avo_engine_options options = flags->engine;
    options.rope_context = options.context_max = flags->context;
    options.rows_max = ROWS_MAX;
    AVO_TRY(cli_model_prepare(model_name, &options, &parts->model, error));
    AVO_TRY(cli_draft_model(parts->model, &options, error));
    AVO_TRY(load_adapters(flags, parts, error));
    AVO_TRY(cli_draft_heads(parts->model, &options, error));
    AVO_TRY(avo_engine_plan(parts->model, &options, plan, error));
    AVO_TRY(cli_engine_open(parts->model, &options, &parts->engine, error));
    if (!flags->plain && /* shown as a share; where it is not known nothing is */
        avo_engine_measure(parts->engine, &parts->read_limit, error) != AVO_OK)
        parts->read_limit = 0.0;
    avo_scheduler_options scheduling = AVO_SCHEDULER_OPTIONS_INIT;
    scheduling.registry = parts->registry;
    return avo_scheduler_open(parts->engine, &scheduling, &parts->scheduler, error);
}

static avo_status talk(const chat_flags *flags, const char *model_name, const chat_parts *parts,
                       const avo_plan *plan, const avo_request *request, avo_error *error) {
    char name[64];
    cli_short_name(model_name, name, sizeof(name));
    tui_options options = {
        .model = parts->model,
        .scheduler = parts->scheduler,
        .registry = parts->registry,
        .model_name = name,
        .sampling = *request->sampling,
        .repetition = request->repetition,
        .stop = request->stop,
        .stop_count = request->stop_count,
        .max_new_tokens = flags->max_new_tokens,
        .system = flags->system,
        .adapter = parts->adapter[0] == '\0' ? NULL : parts->adapter,
        .adapter_weight = parts->adapter_weight,
        .load = flags->load,
        .threads = plan->threads,
        .context_max = plan->context_max,
        .device = plan->device,
        .step_bytes = plan->weight_bytes + plan->repack_bytes,
        .show_drafts = flags->show_drafts,
    };
    if (flags->plain) {
        catch_interrupt();
        return tui_chat_plain(&options, take_interrupt, error);
    }
    options.read_limit = parts->read_limit;
    return tui_chat(&options, error);
}

static int run(int argc, char **argv) {
    chat_flags flags = {.engine = AVO_ENGINE_OPTIONS_INIT};
    sampling_flags_init(&flags.sampling);
    const option_spec own[] = {
        {"system", 0, OPTION_TEXT, &flags.system, "TEXT", "system message of the conversation", 0,
         0},
        {"max-new-tokens", 'n', OPTION_U32, &flags.max_new_tokens, "N",
         "at most N tokens per answer (default: until the context is full)", 0,
         REQUEST_NEW_TOKENS_MAX},
        {"max-tokens", 0, OPTION_U32, &flags.max_new_tokens, "N", NULL, 0, REQUEST_NEW_TOKENS_MAX},
        {"ctx", 0, OPTION_U32, &flags.context, "N",
         "context in tokens (default: the model's own, fitted to memory)", 1, 0x7FFFFFFF},
        {"adapter", 0, OPTION_TEXT_LIST, &flags.adapters, "NAME=PATH[:SCALE]",
         "load an adapter; the first one is active, /adapter switches; may be repeated", 0, 0},
        {"adapter-type", 0, OPTION_CHOICE, &flags.adapter_type, "q8|f16|f32",
         "how adapters are stored for computing (default q8)", 0, 0},
        {"load", 0, OPTION_TEXT, &flags.load, "FILE", "continue a conversation saved with /save", 0,
         0},
        {"plain", 0, OPTION_FLAG, &flags.plain, NULL, "plain lines instead of the full screen", 0,
         0},
        {"show-drafts", 0, OPTION_FLAG, &flags.show_drafts, NULL,
         "show accepted draft tokens in another shade, and answers as plain text (/drafts)", 0, 0},
        {0},
    };
    option_table table = {0};
    options_add(&table, own);
    sampling_flags_specs(&flags.sampling, false, &table);
    engine_flags_specs(&flags.engine, &table);
    draft_flags_specs(&flags.engine, &table);
    int exit_status;
    if (!options_one_model(&command_chat, table.specs, argc, argv, &exit_status))
        return exit_status;
    choose_screen(&flags);
    chat_parts parts = {0};
    avo_plan plan = AVO_PLAN_INIT;
    avo_error error = {0};
    avo_request request = AVO_REQUEST_INIT;
    static sampling_values values;
    bool wrong = false;
    avo_status status = open_parts(&flags, argv[1], &parts, &plan, &error);
    if (status == AVO_OK)
        wrong =
            !sampling_flags_apply(&command_chat, &flags.sampling, parts.model, &values, &request);
    if (status == AVO_OK && !wrong)
        status = talk(&flags, argv[1], &parts, &plan, &request, &error);
    close_parts(&parts);
    if (wrong)
        return EXIT_USAGE;
    return status == AVO_OK ? EXIT_GOOD : cli_fail_status(status, &error);
}

const cli_command command_chat = {
    .name = "chat",
    .summary = "chat with a model in the terminal, with live statistics",
    .usage =
        "avocet chat MODEL [options]\n\n"
        "Enter sends, Alt-Enter starts a new line, Ctrl-C stops the answer (again: quits), /help "
        "lists\n"
        "the commands. If standard input or output is not a terminal, if the terminal (TERM) "
        "has\n"
        "no full-screen mode, or with --plain, the chat reads lines and prints answers; a line "
        "that ends\n"
        "in a backslash continues on the next line.",
    .examples =
        "avocet chat smollm2\n"
        "avocet chat model.gguf --system \"Answer in one sentence.\" --temperature 0.7\n"
        "avocet chat smollm2 --adapter pirate=adapters/pirate --adapter poet=adapters/poet\n"
        "printf 'Hello\\nAnd in French?\\n' | avocet chat smollm2",
    .run = run,
};
