/* The options of `avocet serve`: one table, which the command line and --config read. */
#include "cli/serve_int.h"

#include <string.h>

void serve_flags_init(serve_flags *flags) {
    memset(flags, 0, sizeof(*flags));
    flags->engine = (avo_engine_options)AVO_ENGINE_OPTIONS_INIT;
    flags->scheduler = (avo_scheduler_options)AVO_SCHEDULER_OPTIONS_INIT;
    flags->engine.sessions_max = 16;
    flags->port = 8080;
    flags->grpc_port = GRPC_OFF;
    flags->telemetry_seconds = 10.0;
    flags->telemetry_mib = 64;
    flags->trace_seconds = 60.0;
}

/* Where and for whom. */
static void add_place(serve_flags *flags, option_table *table) {
    server_options *server = &flags->server;
    const option_spec own[] = {
        {"host", 0, OPTION_TEXT, &server->address, "ADDRESS",
         "address to listen on (default 127.0.0.1: this machine only)", 0, 0},
        {"port", 'p', OPTION_U32, &flags->port, "N", "port; 0: any free port (default 8080)", 0,
         65535},
        {"grpc", 0, OPTION_U32, &flags->grpc_port, "PORT",
         "serve gRPC, too, at this port; 0: any free port; that of --port: there (default: off)", 0,
         65535},
        {"unix-socket", 0, OPTION_TEXT, &server->unix_socket, "PATH",
         "listen on a Unix socket instead", 0, 0},
        {"tls-cert", 0, OPTION_TEXT, &server->certificate, "FILE",
         "certificate (PEM); enables HTTPS", 0, 0},
        {"tls-key", 0, OPTION_TEXT, &server->certificate_key, "FILE",
         "private key (PEM) of the certificate", 0, 0},
        {"name", 0, OPTION_TEXT, &flags->model_name, "NAME",
         "model name in the API (default: from its path)", 0, 0},
        {"keys", 0, OPTION_TEXT, &server->keys_path, "FILE",
         "JSON file of API keys; reloaded on SIGHUP (default: no authentication)", 0, 0},
        {"state", 0, OPTION_TEXT, &server->state, "FOLDER",
         "folder that keeps the usage of keys and batches across restarts (default: none)", 0, 0},
        {"state-mib", 0, OPTION_U64, &flags->state_mib, "MIB",
         "size limit of all uploaded files and outputs of batches (default 1024)", 1, 1e9},
        {"batch-lines", 0, OPTION_U32, &server->batch_lines, "N",
         "requests of batches computed at once (default: a quarter of --sessions)", 1, 4096},
        {"audit-log", 0, OPTION_TEXT, &server->audit_log, "FILE",
         "write a JSON line for each administrative action and each denied attempt", 0, 0},
        {"otlp", 0, OPTION_TEXT, &server->otlp, "URL",
         "send a trace of each request to this OpenTelemetry collector (OTLP over HTTP), such as "
         "http://127.0.0.1:4318/v1/traces",
         0, 0},
        {"kv-events", 0, OPTION_TEXT, &server->kv_events, "tcp://ADDRESS:PORT",
         "publish what the prefix cache learns and forgets, for gateways (ZeroMQ, vLLM's format); "
         "it contains prompts as token ids, and anyone who can connect can read it (default: off)",
         0, 0},
        {"kv-events-replay", 0, OPTION_TEXT, &server->kv_replay, "tcp://ADDRESS:PORT",
         "where subscribers of --kv-events can ask for messages that they missed (default: off)", 0,
         0},
        {"kv-events-topic", 0, OPTION_TEXT, &server->kv_topic, "TEXT",
         "topic of these messages, such as kv@ADDRESS@MODEL for llm-d (default: empty)", 0, 0},
        {"metric-keys", 0, OPTION_U32, &server->metric_keys, "N",
         "the first N keys of --keys have metrics of their own, others share \"other\" (default "
         "16)",
         1, 4096},
        {"cors", 0, OPTION_TEXT, &server->cors_origin, "ORIGIN",
         "origin (\"*\": any) whose pages may send requests from browsers (default: none)", 0, 0},
        {"allow-host", 0, OPTION_TEXT_LIST, &flags->allowed_hosts, "NAME",
         "without keys: an additional host name (\"*\": any) that clients may use; may be repeated",
         0, 0},
        {"no-page", 0, OPTION_FLAG, &server->no_page, NULL, "disable the web page at /", 0, 0},
        {"training", 0, OPTION_TEXT, &server->training, "FOLDER",
         "show runs of avocet train on the web page: the output of one, or a folder of outputs", 0,
         0},
        {"access-log", 0, OPTION_TEXT, &server->access_log, "FILE",
         "write a JSON line per request (- for standard error); reopened on SIGUSR1", 0, 0},
        {"log-prompts", 0, OPTION_FLAG, &server->log_prompts, NULL,
         "include prompts in the access log", 0, 0},
        {"control", 0, OPTION_FLAG, &flags->control, NULL,
         "obey the program that started this one: lines of JSON on standard input, which ends the "
         "server when it ends",
         0, 0},
        {"no-sandbox", 0, OPTION_FLAG, &flags->no_sandbox, NULL, "disable Landlock and seccomp", 0,
         0},
        {0},
    };
    options_add(table, own);
}

static void add_engine(serve_flags *flags, option_table *table) {
    avo_engine_options *engine = &flags->engine;
    const option_spec own[] = {
        {"ctx", 'c', OPTION_U32, &engine->context_max, "N",
         "context of a request in tokens (default: the model's own, fitted to memory)", 0,
         16777216},
        {"sessions", 'b', OPTION_U32, &engine->sessions_max, "N",
         "requests computed together (default 16)", 1, 4096},
        {"rows", 0, OPTION_U32, &engine->rows_max, "N", "rows per step (default 512)", 1, 65536},
        {"kv-tokens", 0, OPTION_U64, &engine->kv_tokens, "N",
         "tokens in the KV pool (default: sessions × ctx, but at most 65536 or one context, "
         "whichever is larger)",
         0, 1e12},
        {"memory", 0, OPTION_U64, &flags->memory_mib, "MIB",
         "memory limit of the engine (default: the free memory of the system)", 0, 1e9},
        {0},
    };
    options_add(table, own);
    engine_flags_specs(engine, table);
    draft_flags_specs(engine, table);
    const option_spec corpus[] = {
        {"draft-corpus", 0, OPTION_TEXT, &flags->scheduler.draft_corpus, "FILE",
         "file of earlier answers to draft from; read at the start, written every 5 minutes and at "
         "the end (default: none is kept)",
         0, 0},
        {0},
    };
    options_add(table, corpus);
}

static void add_scheduler(serve_flags *flags, option_table *table) {
    avo_scheduler_options *scheduler = &flags->scheduler;
    const option_spec own[] = {
        {"waiting", 0, OPTION_U32, &scheduler->waiting_max, "N",
         "requests that may wait; further ones get 503 (default 1024)", 1, 1048576},
        {"waiting-tokens", 0, OPTION_U64, &scheduler->waiting_tokens_max, "N",
         "tokens that may wait (default: 16 times the KV pool)", 0, 1e15},
        {"token-ms", 0, OPTION_NUMBER, &flags->token_ms, "MS",
         "target time between two tokens during prefill (default 200; negative: maximise "
         "throughput)",
         -1e6, 1e6},
        {"ageing-seconds", 0, OPTION_NUMBER, &scheduler->ageing_seconds, "S",
         "seconds of waiting that raise a request by one priority (default 2)", 0, 1e6},
        {"tokenizer-threads", 0, OPTION_U32, &scheduler->tokenizer_threads, "N",
         "threads that tokenize and open adapters (default 2)", 1, 64},
        {"no-prefix-cache", 0, OPTION_FLAG, &scheduler->no_prefix_cache, NULL,
         "disable the prefix cache", 0, 0},
        {"adapter", 'a', OPTION_TEXT_LIST, &flags->adapters, "NAME=PATH",
         "adapter that requests select by name; may be repeated", 0, 0},
        {"adapter-root", 0, OPTION_TEXT, &flags->adapter_root, "FOLDER",
         "folder that adapter paths are relative to and must lie below", 0, 0},
        {"adapter-type", 0, OPTION_CHOICE, &flags->adapter_type, "q8|f16|f32",
         "how adapters are stored for computing (default q8)", 0, 0},
        {"adapter-memory", 0, OPTION_U64, &flags->adapter_memory_mib, "MIB",
         "memory limit of all open adapters (default: no limit)", 0, 1e9},
        {"adapters-max", 0, OPTION_U32, &scheduler->adapters_max, "N",
         "distinct adapters per step (default: no limit)", 0, 4096},
        {"allow-adapter-loading", 0, OPTION_FLAG, &flags->server.allow_adapter_loading, NULL,
         "without keys: clients on this machine may load adapters from --adapter-root", 0, 0},
        {0},
    };
    options_add(table, own);
    cores_flags_specs(scheduler, table);
}

static void add_limits(serve_flags *flags, option_table *table) {
    server_options *server = &flags->server;
    const option_spec own[] = {
        {"http-threads", 0, OPTION_U32, &server->threads, "N",
         "threads that read requests and send answers (default 2)", 1, 64},
        {"max-connections", 0, OPTION_U32, &server->connections_max, "N",
         "concurrent connections; further ones get 503 (default 4096)", 1, 60000},
        {"max-connections-per-address", 0, OPTION_U32, &server->connections_per_address_max, "N",
         "connections per address; further ones get 429 (default 256; this machine is exempt)", 1,
         60000},
        {"max-body", 0, OPTION_U64, &flags->body_kib, "KIB",
         "largest request body; larger ones get 413 (default 16384)", 1, 1048576},
        {"max-header", 0, OPTION_U32, &flags->header_kib, "KIB",
         "largest request header; larger ones get 431 (default 32)", 4, 1024},
        {"max-unread", 0, OPTION_U64, &flags->unread_kib, "KIB",
         "unread part of an answer until a slow client is disconnected (default 1024)", 16,
         1048576},
        {"max-choices", 0, OPTION_U32, &server->choices_max, "N",
         "largest n of a request (default 16)", 1, 128},
        {"idle-seconds", 0, OPTION_NUMBER, &server->idle_seconds, "S",
         "close a connection after this time without input or output (default 75)", 1, 86400},
        {"header-seconds", 0, OPTION_NUMBER, &server->header_seconds, "S",
         "timeout for a request header; bodies must arrive at 8 KiB/s (default 15)", 0.1, 3600},
        {"stall-seconds", 0, OPTION_NUMBER, &server->stall_seconds, "S",
         "report unhealthy after this time without a step (default 60)", 1, 86400},
        {"drain-seconds", 0, OPTION_NUMBER, &server->drain_seconds, "S",
         "time for running requests to finish after SIGTERM (default 30)", 0.001, 86400},
        {0},
    };
    options_add(table, own);
}

static void add_telemetry(serve_flags *flags, option_table *table) {
    const option_spec own[] = {
        {"telemetry", 0, OPTION_TEXT, &flags->telemetry, "FILE",
         "append a row of all metrics to a CSV file at intervals", 0, 0},
        {"telemetry-seconds", 0, OPTION_NUMBER, &flags->telemetry_seconds, "S",
         "interval of --telemetry (default 10)", 0.1, 86400},
        {"telemetry-mib", 0, OPTION_U64, &flags->telemetry_mib, "MIB",
         "rename FILE to FILE.1 when it is larger (default 64)", 1, 1048576},
        {"telemetry-hardware", 0, OPTION_FLAG, &flags->telemetry_hardware, NULL,
         "count cycles, instructions and cache misses if the kernel allows it", 0, 0},
        {"trace", 0, OPTION_TEXT, &flags->trace, "FILE",
         "trace steps and write a Chrome/Perfetto trace at exit", 0, 0},
        {"trace-seconds", 0, OPTION_NUMBER, &flags->trace_seconds, "S",
         "length of the trace, counted from the end (default 60)", 0.1, 86400},
        {"config", 0, OPTION_TEXT, &flags->config, "FILE",
         "JSON object with any of these options (_ for -) and \"model\"; command line options win",
         0, 0},
        {"config-schema", 0, OPTION_FLAG, &flags->print_schema, NULL,
         "print the JSON schema of --config and exit", 0, 0},
        {0},
    };
    options_add(table, own);
}

void serve_flags_specs(serve_flags *flags, option_table *table) {
    add_place(flags, table);
    add_limits(flags, table);
    add_scheduler(flags, table);
    add_engine(flags, table);
    add_telemetry(flags, table);
}

bool serve_flags_settle(serve_flags *flags) {
    server_options *server = &flags->server;
    flags->engine.memory_max = flags->memory_mib << 20;
    server->port = (uint16_t)flags->port;
    server->grpc = flags->grpc_port != GRPC_OFF;
    server->grpc_port = server->grpc ? (uint16_t)flags->grpc_port : 0;
    server->body_bytes_max = flags->body_kib << 10;
    server->header_bytes_max = flags->header_kib << 10;
    server->unread_bytes_max = flags->unread_kib << 10;
    server->state_bytes_max = flags->state_mib << 20;
    uint32_t waiting = flags->scheduler.waiting_max == 0 ? 1024 : flags->scheduler.waiting_max;
    server->key_requests_max = (waiting + flags->engine.sessions_max + 1) / 2;
    if (server->batch_lines == 0)
        server->batch_lines = (flags->engine.sessions_max + 3) / 4;
    server->allowed_hosts = flags->allowed_hosts.items;
    server->allowed_host_count = flags->allowed_hosts.count;
    flags->scheduler.token_seconds = flags->token_ms / 1e3;
    cores_flags_apply(&flags->scheduler, &flags->engine);
    if ((server->certificate == NULL) != (server->certificate_key == NULL)) {
        cli_usage(&command_serve, "--tls-cert and --tls-key must be given together");
        return false;
    }
    for (size_t i = 0; i < server->allowed_host_count; i++)
        if (server->allowed_hosts[i][0] == '\0' ||
            strpbrk(server->allowed_hosts[i], ":/") != NULL) {
            cli_usage(&command_serve,
                      "--allow-host needs a name without scheme and port, not \"%s\"",
                      server->allowed_hosts[i]);
            return false;
        }
    if (server->allow_adapter_loading && flags->adapter_root == NULL) {
        cli_usage(&command_serve, "--allow-adapter-loading needs --adapter-root");
        return false;
    }
    if (server->log_prompts && server->access_log == NULL) {
        cli_usage(&command_serve, "--log-prompts needs --access-log");
        return false;
    }
    return true;
}
