/* `avocet serve`: a model behind HTTP, until a signal ends it. */
#include "cli/serve_int.h"

#include "base/clock.h"
#include "base/file.h"
#include "cli/trace.h"
#include "device/ranks/transport.h"
#include "engine/engine.h"
#include "server/activation.h"
#include "server/otlp.h"
#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Signals ---- */

static int signal_pipe[2] = {-1, -1};
static volatile sig_atomic_t ends;

static void on_signal(int number) {
    int before = errno;
    unsigned char byte = (unsigned char)number;
    if ((number == SIGTERM || number == SIGINT) && ends++ > 0)
        _exit(EXIT_INTERRUPTED); /* the second one means it */
    (void)!write(signal_pipe[1], &byte, 1);
    errno = before;
}

static avo_status catch_signals(avo_error *error) {
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return status_fail(error, AVO_ERROR_IO, "cannot create a pipe for signals: %s",
                           strerror(errno));
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
    return AVO_OK;
}

/* Until they are caught, SIGHUP and SIGUSR1 wait: sent while the model is being opened, they are
 * for the keys and the logs, and do not end the server. Threads made meanwhile never get them. */
static void hold_signals(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    (void)pthread_sigmask(how, &set, NULL);
}

/* The next signal, or 0 after `milliseconds` (−1: never), or when there is input, which is looked
 * for where `input` is given. */
static int next_signal(int milliseconds, bool *input) {
    struct pollfd ends_of[2] = {{.fd = signal_pipe[0], .events = POLLIN},
                                {.fd = input != NULL ? STDIN_FILENO : -1, .events = POLLIN}};
    unsigned char byte = 0;
    int ready = poll(ends_of, 2, milliseconds);
    if (input != NULL)
        *input = ready > 0 && ends_of[1].revents != 0;
    if (ready <= 0 || ends_of[0].revents == 0 || read(signal_pipe[0], &byte, 1) != 1)
        return 0;
    return byte;
}

/* ---- Parts ---- */

typedef struct serving {
    avo_model *model;
    avo_telemetry *telemetry;
    avo_registry *registry;
    avo_engine *engine;
    avo_scheduler *scheduler;
    server *server;
    int notifier; /* systemd's; −1: none */
    double watchdog_seconds;
    bool corpus_failed; /* the last attempt to write --draft-corpus */
    avo_plan plan;
    sandbox_options sandbox;
    char files_report[SANDBOX_REPORT_MAX], calls_report[SANDBOX_REPORT_MAX];
    char model_path[CLI_PATH_MAX], model_name[256];
    serve_control control; /* with --control */
    arena texts;           /* of the configuration, and folders for the sandbox */
} serving;

static void say(void *context, const char *line) {
    (void)context;
    cli_warn("%s", line);
}

/* ---- The sandbox's first half ---- */

/* Files that are made or replaced while it serves: their folder is what is allowed. */
static const char *folder_of(serving *serving, const char *path) {
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    if (path == NULL || strcmp(path, "-") == 0)
        return NULL;
    if (slash == NULL)
        return ".";
    return arena_copy_text(&serving->texts, path, slash == path ? 1 : (size_t)(slash - path));
}

static avo_status read_adapter(const char *text, cli_adapter_spec *spec, avo_error *error) {
    AVO_TRY(cli_adapter_spec_read(text, spec, error));
    if (strcmp(spec->name, "base") == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--adapter: \"base\" is the model itself; choose another name");
    if (spec->weight != 1.0f)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--adapter %.200s: a scale is not allowed here; requests give it in "
                           "adapters or lora, and POST /lora-adapters sets the default",
                           text);
    return AVO_OK;
}

static avo_status confine_files(const serve_flags *flags, serving *serving, avo_error *error) {
    sandbox_options *sandbox = &serving->sandbox;
    const server_options *server = &flags->server;
    const char *const read[] = {serving->model_path, flags->adapter_root,
                                server->certificate, server->certificate_key,
                                server->training,    folder_of(serving, server->keys_path)};
    const char *const written[] = {folder_of(serving, server->access_log),
                                   folder_of(serving, flags->telemetry),
                                   folder_of(serving, server->audit_log),
                                   server->state,
                                   folder_of(serving, flags->scheduler.draft_corpus),
                                   folder_of(serving, flags->trace),
                                   mpi_folder(0),
                                   mpi_folder(1)};
    bool room = true;
    for (size_t i = 0; i < sizeof(read) / sizeof(read[0]); i++)
        room = room && (read[i] == NULL || sandbox_read(sandbox, read[i]));
    for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++)
        room = room && (written[i] == NULL || sandbox_write(sandbox, written[i]));
    for (size_t i = 0; flags->adapter_root == NULL && i < flags->adapters.count; i++) {
        cli_adapter_spec spec;
        AVO_TRY(read_adapter(flags->adapters.items[i], &spec, error));
        const char *path = arena_copy_text(&serving->texts, spec.path, strlen(spec.path));
        room = room && path != NULL && sandbox_read(sandbox, path);
    }
    if (!room)
        return status_fail(
            error, AVO_ERROR_LIMIT,
            "sandbox: more than %d paths; put the adapters into one folder and give --adapter-root",
            SANDBOX_PATHS_MAX);
    sandbox->performance_counters = flags->telemetry_hardware;
    if (server->otlp != NULL) {
        otlp_target target;
        AVO_TRY(otlp_target_read(server->otlp, &target, error));
        sandbox->connect_port = target.port;
    }
    tzset(); /* read now: templates may ask for the local time */
    return sandbox_files(sandbox, serving->files_report, sizeof(serving->files_report), error);
}

/* ---- Opening ---- */

static avo_status load_adapters(serve_flags *flags, serving *serving, avo_error *error) {
    const char **names =
        arena_take(&serving->texts, (flags->adapters.count + 1) * sizeof(const char *));
    if (names == NULL)
        return status_no_memory(error, "the adapters", flags->adapters.count * sizeof(*names));
    for (size_t i = 0; i < flags->adapters.count; i++) {
        cli_adapter_spec spec;
        AVO_TRY(read_adapter(flags->adapters.items[i], &spec, error));
        AVO_TRY(
            avo_registry_load(serving->registry, spec.name, spec.path, AVO_REGISTRY_PINNED, error));
        names[i] = arena_copy_text(&serving->texts, spec.name, strlen(spec.name));
        if (names[i] == NULL)
            return status_no_memory(error, "the adapters", strlen(spec.name));
    }
    flags->server.adapter_names = names;
    flags->server.adapter_name_count = flags->adapters.count;
    return AVO_OK;
}

static avo_status open_registry(serve_flags *flags, serving *serving, avo_error *error) {
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.root = flags->adapter_root;
    options.type = flags->adapter_type;
    options.memory_max = flags->adapter_memory_mib << 20;
    AVO_TRY(avo_registry_open(serving->model, &options, &serving->registry, error));
    return load_adapters(flags, serving, error);
}

static avo_status open_telemetry(serve_flags *flags, serving *serving, avo_error *error) {
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    cli_short_name(flags->model, serving->model_name, sizeof(serving->model_name));
    if (flags->model_name == NULL)
        flags->model_name = serving->model_name;
    options.hardware = flags->telemetry_hardware;
    options.model_name = flags->model_name;
    AVO_TRY(avo_telemetry_open(&options, NULL, &serving->telemetry, error));
    if (flags->telemetry != NULL) /* whether it can be written is known before a model is loaded */
        AVO_TRY(avo_telemetry_history(NULL, flags->telemetry, 0, error));
    flags->engine.telemetry = serving->telemetry;
    flags->server.telemetry = serving->telemetry;
    if (flags->trace != NULL)
        avo_telemetry_trace_begin(serving->telemetry);
    return AVO_OK;
}

#define KV_TOKENS_DEFAULT 65536u /* unless one context is longer */

/* Sockets first: whether the port is free is known before a model is loaded. Then files are
 * confined, and only then come threads. */
static avo_status open_model(serve_flags *flags, serving *serving, avo_error *error) {
    server_options *server = &flags->server;
    AVO_TRY(activation_sockets(server->listen_sockets, SERVER_SOCKETS_MAX, &server->listen_count,
                               error));
    if (server->listen_count > 0)
        server->unix_socket = NULL; /* systemd's sockets are what counts, and are not removed */
    serving->notifier = activation_notifier_open();
    serving->watchdog_seconds = activation_watchdog_seconds();
    AVO_TRY(server_bind(server, error));
    if (flags->control)
        serve_control_begin(&serving->control, server);
    AVO_TRY(cli_model_path(flags->model, serving->model_path, sizeof(serving->model_path), error));
    cli_panels_only_used();
    AVO_TRY(cli_model_open(flags->model, &serving->model, error));
    AVO_TRY(
        cli_draft_model(serving->model, &flags->engine, error)); /* while any file can be opened */
    AVO_TRY(cli_draft_heads(serving->model, &flags->engine, error));
    const char *kept = folder_of(serving, flags->scheduler.draft_corpus);
    if (kept != NULL && file_kind_of(kept) != FILE_FOLDER)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--draft-corpus: %s: there is no folder %s to write it to",
                           flags->scheduler.draft_corpus, kept);
    if (server->training != NULL && file_kind_of(server->training) != FILE_FOLDER)
        return status_fail(error, AVO_ERROR_ARGUMENT, "--training: %s is not a folder",
                           server->training);
    if (server->state != NULL) /* the sandbox allows what is there */
        AVO_TRY(file_make_folder(server->state, error));
    if (!flags->no_sandbox)
        AVO_TRY(confine_files(flags, serving, error));
    AVO_TRY(open_telemetry(flags, serving, error));
    avo_engine_options *engine = &flags->engine;
    if (engine->kv_tokens == 0)
        engine->kv_tokens = cli_kv_tokens(serving->model, engine->context_max, engine->sessions_max,
                                          KV_TOKENS_DEFAULT);
    AVO_TRY(avo_engine_plan(serving->model, &flags->engine, &serving->plan, error));
    return cli_engine_open(serving->model, &flags->engine, &serving->engine, error);
}

/* How fast memory can be read, so that dashboards show a share of it. Where that cannot be measured
 * they say that it is not known. */
static void measure_limit(serving *serving) {
    avo_error error = {0};
    double bytes_per_second = 0.0;
    if (avo_engine_measure(serving->engine, &bytes_per_second, &error) != AVO_OK)
        cli_warn("cannot measure the memory bandwidth: %s", error.text);
}

static avo_status open_all(serve_flags *flags, serving *serving, avo_error *error) {
    server_options *server = &flags->server;
    AVO_TRY(open_model(flags, serving, error));
    measure_limit(serving);
    if (server->kv_events != NULL)
        AVO_TRY(engine_kv_events_open(serving->engine, error));
    AVO_TRY(open_registry(flags, serving, error));
    flags->scheduler.registry = serving->registry;
    AVO_TRY(avo_scheduler_open(serving->engine, &flags->scheduler, &serving->scheduler, error));
    server->model = serving->model;
    server->engine = serving->engine;
    server->scheduler = serving->scheduler;
    server->registry = serving->registry;
    server->model_path = serving->model_path;
    server->context = serving->plan.context_max;
    server->model_name = flags->model_name;
    server->sessions = flags->engine.sessions_max;
    server->adapter_root = flags->adapter_root;
    server->log = say;
    server_options given = *server;
    server->listen_count = server->kv_listen_count = 0; /* the server's now, even where it fails */
    AVO_TRY(server_open(&given, &serving->server, error));
    if (flags->no_sandbox)
        return AVO_OK;
    return sandbox_calls(&serving->sandbox, serving->calls_report, sizeof(serving->calls_report),
                         error);
}

static void close_all(serve_flags *flags, serving *serving) {
    server_close(serving->server);
    server_unbind(&flags->server);
    avo_scheduler_close(serving->scheduler);
    avo_registry_close(serving->registry);
    avo_engine_close(serving->engine);
    avo_telemetry_close(serving->telemetry);
    avo_model_close(serving->model);
    activation_notifier_close(serving->notifier);
    serve_control_end(&serving->control);
    arena_free(&serving->texts);
}

/* ---- Serving ---- */

static void hang_up(serving *serving) {
    avo_error error = {0};
    server_reopen_log(serving->server);
    if (server_reload_keys(serving->server, &error) != AVO_OK)
        cli_warn("keeping the old keys: %s", error.text);
    else if (server_settings(serving->server)->keys_path != NULL)
        cli_warn("reloaded the keys");
}

/* For telling clients that their answers end here: a moment, unless the machine is busy. */
#define CALL_OFF_SECONDS 10.0

static void drain(serving *serving) {
    double seconds = server_settings(serving->server)->drain_seconds;
    uint64_t begin = clock_now_ns();
    server_drain(serving->server);
    activation_notify(serving->notifier, "STOPPING=1\n"
                                         "STATUS=finishing running requests");
    cli_warn("shutting down: %u requests have %g seconds to finish",
             server_open_exchanges(serving->server), seconds);
    while (server_open_exchanges(serving->server) > 0 &&
           clock_seconds(begin, clock_now_ns()) < seconds)
        next_signal(20, NULL);
    uint32_t left = server_open_exchanges(serving->server);
    if (left == 0)
        return;
    cli_warn("%u requests did not finish in time", left);
    (void)server_call_off(serving->server, CALL_OFF_SECONDS);
}

/* systemd hears of a loop that moves on a device that works; of any other it hears nothing and
 * acts. */
static void beat(const serving *serving) {
    double seconds = 0.0;
    if (serving->watchdog_seconds <= 0.0)
        return;
    server_state state = server_health(serving->server, &seconds);
    if (state == SERVER_ALIVE)
        activation_notify(serving->notifier, "WATCHDOG=1");
    else if (state == SERVER_STALLED)
        cli_warn("the decode loop has made no progress for %.0f seconds", seconds);
    else
        cli_warn("the device has failed every request since its last step; restart the server");
}

static void count_adapter(void *context, const avo_registry_entry *entry) {
    (void)entry;
    ++*(uint32_t *)context;
}

/* What is done at intervals while it serves, in nanoseconds of the clock. */
typedef struct serve_times {
    uint64_t telemetry_ns, corpus_ns; /* when each was last written */
} serve_times;

#define CORPUS_SECONDS 300.0

/* Another file of earlier answers; a failure is a warning, once until it works again. */
static void save_corpus(const serve_flags *flags, serving *serving) {
    const char *path = flags->scheduler.draft_corpus;
    avo_error error = {0};
    bool good = avo_scheduler_save_corpus(serving->scheduler, path, &error) == AVO_OK;
    if (!good && !serving->corpus_failed)
        cli_warn("--draft-corpus: %s; retrying every %g seconds", error.text, CORPUS_SECONDS);
    else if (good && serving->corpus_failed)
        cli_warn("--draft-corpus: writing to %s works again", path);
    serving->corpus_failed = !good;
}

static void write_files(const serve_flags *flags, serving *serving, serve_times *times) {
    uint64_t now = clock_now_ns();
    if (flags->telemetry != NULL &&
        clock_seconds(times->telemetry_ns, now) >= flags->telemetry_seconds) {
        times->telemetry_ns = now;
        serve_telemetry_write(flags, serving->telemetry);
    }
    if (flags->scheduler.draft_corpus != NULL &&
        clock_seconds(times->corpus_ns, now) >= CORPUS_SECONDS) {
        times->corpus_ns = now;
        save_corpus(flags, serving);
    }
}

/* Milliseconds until something is to be done, −1: nothing is until a signal comes. */
static int next_pause(const serve_flags *flags, const serving *serving, const serve_times *times) {
    uint64_t now = clock_now_ns();
    double seconds = INFINITY;
    if (serving->watchdog_seconds > 0.0)
        seconds = serving->watchdog_seconds / 3.0;
    if (flags->telemetry != NULL)
        seconds = fmin(seconds, flags->telemetry_seconds - clock_seconds(times->telemetry_ns, now));
    if (flags->scheduler.draft_corpus != NULL)
        seconds = fmin(seconds, CORPUS_SECONDS - clock_seconds(times->corpus_ns, now));
    if (isinf(seconds))
        return -1;
    return seconds > 0.0 ? (int)fmin(seconds * 1e3 + 1.0, INT_MAX) : 0;
}

static void serve(const serve_flags *flags, serving *serving) {
    serve_facts facts = {.model = serving->model,
                         .model_path = serving->model_path,
                         .plan = &serving->plan,
                         .server = serving->server,
                         .files_report = serving->files_report,
                         .calls_report = serving->calls_report,
                         .telemetry = serving->telemetry};
    avo_registry_list(serving->registry, count_adapter, &facts.adapters);
    serve_banner(flags, &facts);
    activation_notify(serving->notifier, "READY=1\nSTATUS=serving");
    serve_times times = {clock_now_ns(), clock_now_ns()};
    for (;;) {
        bool input = false;
        int number =
            next_signal(next_pause(flags, serving, &times), flags->control ? &input : NULL);
        if (number == SIGTERM || number == SIGINT)
            break;
        if (input && !serve_control_read(&serving->control, serving->registry))
            break;
        if (number == SIGHUP)
            hang_up(serving);
        if (number == SIGUSR1)
            server_reopen_log(serving->server);
        beat(serving);
        write_files(flags, serving, &times);
    }
    drain(serving);
    if (flags->scheduler.draft_corpus != NULL)
        save_corpus(flags, serving);
    if (flags->telemetry != NULL)
        serve_telemetry_write(flags, serving->telemetry);
    if (flags->trace != NULL) { /* before the threads go whose spans these are */
        avo_error error = {0};
        avo_telemetry_trace_end(serving->telemetry);
        if (cli_trace_write(flags->trace, serving->telemetry, flags->trace_seconds, &error) !=
            AVO_OK)
            cli_warn("--trace: %s", error.text);
    }
}

static int run_server(serve_flags *flags, serving *serving) {
    avo_error error = {0};
    cli_interrupt_catch();
    avo_status status = open_all(flags, serving, &error);
    AVO_THEN(status, catch_signals(&error));
    hold_signals(SIG_UNBLOCK);
    if (status == AVO_OK && !cli_interrupted())
        serve(flags, serving);
    close_all(flags, serving);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_status(status, &error);
}

/* The file's values first, then the command line's over them. */
static options_result read_options(serve_flags *flags, const option_spec *specs, arena *texts,
                                   int argc, char **argv, int *words) {
    const char *config = serve_config_named(argc, argv);
    serve_config_lists lists;
    avo_error error = {0};
    if (config != NULL &&
        serve_config_read(config, specs, &flags->model, texts, &error) != AVO_OK) {
        cli_fail(&error);
        return OPTIONS_WRONG;
    }
    serve_config_lists_begin(&lists, specs);
    options_result parsed = options_parse(&command_serve, specs, argc, argv, words);
    serve_config_lists_end(&lists, specs);
    return parsed;
}

static int print_schema(const option_spec *specs) {
    cli_json json;
    serve_config_schema(cli_json_begin(&json), specs);
    return cli_json_print(&json);
}

static int run(int argc, char **argv) {
    serve_flags flags;
    option_table table = {0};
    hold_signals(SIG_BLOCK);
    static serving serving; /* paths and reports: large */
    serve_flags_init(&flags);
    serve_flags_specs(&flags, &table);
    serving.plan = (avo_plan)AVO_PLAN_INIT;
    serving.notifier = -1;
    arena_init(&serving.texts, NULL, SIZE_MAX);
    int words = 0, exit_status = EXIT_USAGE;
    options_result parsed = read_options(&flags, table.specs, &serving.texts, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        exit_status = options_exit(parsed);
    else if (flags.print_schema)
        exit_status = print_schema(table.specs);
    else if (words > 1 || (words == 0 && flags.model == NULL))
        cli_usage(&command_serve, words == 0 ? "missing MODEL" : "only one MODEL is allowed");
    else if (serve_flags_settle(&flags)) {
        if (words == 1)
            flags.model = argv[1];
        return run_server(&flags, &serving);
    }
    arena_free(&serving.texts);
    return exit_status;
}

const cli_command command_serve = {
    .name = "serve",
    .summary = "serve a model over an OpenAI-compatible HTTP API with a web page",
    .usage = "avocet serve MODEL [options]",
    .examples =
        "avocet serve smollm2\n"
        "avocet serve model.gguf --port 9000 --sessions 32 --access-log access.jsonl\n"
        "avocet serve smollm2 --adapter support=support-lora --adapter-root adapters\n"
        "avocet serve smollm2 --host 0.0.0.0 --keys keys.json --tls-cert c.pem --tls-key k.pem\n"
        "avocet serve --config configs/serving.json --port 9000\n"
        "curl localhost:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\","
        "\"content\":\"Hello\"}]}'",
    .run = run,
};
