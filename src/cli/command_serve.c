/* `avocet serve`: a model behind HTTP, until a signal ends it. */
#include "cli/serve_int.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
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
        return status_fail(error, AVO_ERROR_IO, "no pipe for signals: %s", strerror(errno));
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
    return AVO_OK;
}

/* The next signal, or 0 after `milliseconds`. */
static int next_signal(int milliseconds) {
    struct pollfd pipe_end = {.fd = signal_pipe[0], .events = POLLIN};
    unsigned char byte = 0;
    if (poll(&pipe_end, 1, milliseconds) <= 0 || read(signal_pipe[0], &byte, 1) != 1)
        return 0;
    return byte;
}

/* ---- Parts ---- */

typedef struct serving {
    avo_model *model;
    avo_registry *registry;
    avo_engine *engine;
    avo_scheduler *scheduler;
    server *server;
    char model_path[CLI_PATH_MAX];
} serving;

static void say(void *context, const char *line) {
    (void)context;
    cli_warn("%s", line);
}

static avo_status load_adapters(const serve_flags *flags, serving *serving, avo_error *error) {
    for (size_t i = 0; i < flags->adapters.count; i++) {
        const char *spec = flags->adapters.items[i];
        size_t length = strcspn(spec, "=");
        char name[256];
        if (spec[length] != '=' || length == 0 || length >= sizeof(name) ||
            spec[length + 1] == '\0')
            return status_fail(error, AVO_ERROR_ARGUMENT, "--adapter wants NAME=PATH, not \"%s\"",
                               spec);
        memcpy(name, spec, length);
        name[length] = '\0';
        AVO_TRY(avo_registry_load(serving->registry, name, spec + length + 1, AVO_REGISTRY_PINNED,
                                  error));
    }
    return AVO_OK;
}

static avo_status open_registry(const serve_flags *flags, serving *serving, avo_error *error) {
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.root = flags->adapter_root;
    options.type = flags->adapter_type;
    options.memory_max = flags->adapter_memory_mib << 20;
    AVO_TRY(avo_registry_open(serving->model, &options, &serving->registry, error));
    return load_adapters(flags, serving, error);
}

static avo_status open_all(serve_flags *flags, serving *serving, avo_error *error) {
    AVO_TRY(server_bind(&flags->server, error));
    AVO_TRY(cli_model_path(flags->model, serving->model_path, sizeof(serving->model_path), error));
    AVO_TRY(cli_model_open(flags->model, &serving->model, error));
    AVO_TRY(cli_engine_open(serving->model, &flags->engine, &serving->engine, error));
    AVO_TRY(open_registry(flags, serving, error));
    flags->scheduler.registry = serving->registry;
    AVO_TRY(avo_scheduler_open(serving->engine, &flags->scheduler, &serving->scheduler, error));
    flags->server.model = serving->model;
    flags->server.engine = serving->engine;
    flags->server.scheduler = serving->scheduler;
    flags->server.registry = serving->registry;
    flags->server.model_path = serving->model_path;
    flags->server.model_name = flags->model_name != NULL ? flags->model_name : flags->model;
    flags->server.log = say;
    avo_status status = server_open(&flags->server, &serving->server, error);
    flags->server.listen_count = 0; /* the server's now, even where it failed */
    return status;
}

static void close_all(serve_flags *flags, serving *serving) {
    server_close(serving->server);
    server_unbind(&flags->server);
    avo_scheduler_close(serving->scheduler);
    avo_registry_close(serving->registry);
    avo_engine_close(serving->engine);
    avo_model_close(serving->model);
}

/* ---- Serving ---- */

static void hang_up(serving *serving) {
    avo_error error = {0};
    server_reopen_log(serving->server);
    if (server_reload_keys(serving->server, &error) != AVO_OK)
        cli_warn("the keys stay as they were: %s", error.text);
    else if (server_settings(serving->server)->keys_path != NULL)
        cli_warn("keys read again");
}

static void drain(serving *serving) {
    double seconds = server_settings(serving->server)->drain_seconds;
    uint64_t begin = clock_now_ns();
    server_drain(serving->server);
    cli_warn("ending: %u requests have %.0f seconds to finish",
             server_open_exchanges(serving->server), seconds);
    while (server_open_exchanges(serving->server) > 0 &&
           clock_seconds(begin, clock_now_ns()) < seconds)
        next_signal(20);
    uint32_t left = server_open_exchanges(serving->server);
    if (left > 0)
        cli_warn("%u requests were not finished in time", left);
}

static void serve(serving *serving) {
    cli_warn("serving %s at %s", server_settings(serving->server)->model_name,
             server_url(serving->server));
    for (;;) {
        int number = next_signal(1000);
        if (number == SIGTERM || number == SIGINT)
            break;
        if (number == SIGHUP)
            hang_up(serving);
        if (number == SIGUSR1)
            server_reopen_log(serving->server);
    }
    drain(serving);
}

static int run(int argc, char **argv) {
    serve_flags flags;
    option_spec specs[SERVE_OPTION_MAX];
    serve_flags_init(&flags);
    serve_flags_specs(&flags, specs);
    int words = 0;
    options_result parsed = options_parse(&command_serve, specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words > 1 || (words == 0 && flags.model == NULL))
        return cli_usage(&command_serve, words == 0 ? "which MODEL?" : "one MODEL only");
    if (words == 1)
        flags.model = argv[1];
    serve_flags_settle(&flags);
    avo_error error = {0};
    serving serving = {0};
    cli_interrupt_catch();
    avo_status status = open_all(&flags, &serving, &error);
    if (status == AVO_OK)
        status = catch_signals(&error);
    if (status == AVO_OK && !cli_interrupted())
        serve(&serving);
    close_all(&flags, &serving);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_status(status, &error);
}

const cli_command command_serve = {
    .name = "serve",
    .summary = "an OpenAI-compatible server with a web page",
    .usage = "avocet serve MODEL [options]",
    .examples = "avocet serve smollm2\n"
                "avocet serve model.gguf --port 9000 --sessions 32\n"
                "avocet serve smollm2 --adapter support=adapters/support --adapter-root adapters",
    .run = run,
};
