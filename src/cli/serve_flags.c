/* The options of `avocet serve`: one table, which the command line and --config read. */
#include "cli/serve_int.h"

#include <assert.h>
#include <string.h>

void serve_flags_init(serve_flags *flags) {
    memset(flags, 0, sizeof(*flags));
    flags->engine = (avo_engine_options)AVO_ENGINE_OPTIONS_INIT;
    flags->scheduler = (avo_scheduler_options)AVO_SCHEDULER_OPTIONS_INIT;
    flags->engine.sessions_max = 16;
    flags->port = 8080;
}

static size_t add(option_spec *specs, size_t count, const option_spec *more, size_t more_count) {
    assert(count + more_count < SERVE_OPTION_MAX);
    memcpy(specs + count, more, more_count * sizeof(*more));
    return count + more_count;
}
#define ADD(table) count = add(specs, count, table, sizeof(table) / sizeof((table)[0]))

void serve_flags_specs(serve_flags *flags, option_spec *specs) {
    server_options *server = &flags->server;
    avo_engine_options *engine = &flags->engine;
    size_t count = 0;
    const option_spec place[] = {
        {"host", 0, OPTION_TEXT, &server->address, "ADDRESS",
         "address to listen on (default 127.0.0.1: this machine alone)", 0, 0},
        {"port", 'p', OPTION_U32, &flags->port, "N", "port; 0: any free one (default 8080)", 0,
         65535},
        {"unix-socket", 0, OPTION_TEXT, &server->unix_socket, "PATH",
         "listen on a unix socket instead", 0, 0},
        {"tls-cert", 0, OPTION_TEXT, &server->certificate, "FILE", "certificate in PEM: HTTPS", 0,
         0},
        {"tls-key", 0, OPTION_TEXT, &server->certificate_key, "FILE", "its private key in PEM", 0,
         0},
        {"name", 0, OPTION_TEXT, &flags->model_name, "NAME",
         "what clients call the model (default: from its path)", 0, 0},
    };
    const option_spec compute[] = {
        {"ctx", 'c', OPTION_U32, &engine->context_max, "N",
         "tokens of one conversation (default: the model's own, fitted to memory)", 0, 16777216},
        {"sessions", 'b', OPTION_U32, &engine->sessions_max, "N",
         "requests computed together (default 16)", 1, 4096},
        {"rows", 0, OPTION_U32, &engine->rows_max, "N", "tokens of one step (default 512)", 1,
         65536},
        {"kv-tokens", 0, OPTION_U64, &engine->kv_tokens, "N",
         "tokens in the KV pool (default: sessions × ctx, fitted to memory)", 0, 0},
        {"memory", 0, OPTION_U64, &flags->memory_mib, "MIB",
         "memory that the engine may take (default: what the system has free)", 0, 1e9},
    };
    const option_spec adapters[] = {
        {"adapter", 'a', OPTION_TEXT_LIST, &flags->adapters, "NAME=PATH",
         "an adapter that requests choose by name; may be repeated", 0, 0},
        {"adapter-root", 0, OPTION_TEXT, &flags->adapter_root, "FOLDER",
         "paths of adapters are looked up here and cannot leave it", 0, 0},
        {"adapter-type", 0, OPTION_CHOICE, &flags->adapter_type, "q8|f16|f32",
         "how adapters are stored for computing (default q8)", 0, 0},
        {"adapter-memory", 0, OPTION_U64, &flags->adapter_memory_mib, "MIB",
         "memory of all open adapters together (default: no limit)", 0, 1e9},
        {"allow-adapter-loading", 0, OPTION_FLAG, &server->allow_adapter_loading, NULL,
         "without keys: clients on this machine may load adapters", 0, 0},
    };
    ADD(place);
    ADD(compute);
    engine_flags_specs(engine, specs + count);
    count += ENGINE_OPTION_COUNT;
    ADD(adapters);
    specs[count] = (option_spec){0};
}

void serve_flags_settle(serve_flags *flags) {
    flags->engine.memory_max = flags->memory_mib << 20;
    flags->server.port = (uint16_t)flags->port;
}
