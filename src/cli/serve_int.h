/* Inside `avocet serve`: its flags. */
#ifndef AVO_CLI_SERVE_INT_H
#define AVO_CLI_SERVE_INT_H

#include "cli/engine_flags.h"
#include "server/server.h"

#define SERVE_OPTION_MAX 80

typedef struct serve_flags {
    const char *model; /* argument, or "model" of the configuration */
    const char *model_name;
    avo_engine_options engine;
    avo_scheduler_options scheduler;
    server_options server;
    uint32_t port;
    uint64_t memory_mib, adapter_memory_mib, body_kib, unread_kib;
    uint32_t header_kib;
    double token_ms;
    option_list adapters; /* NAME=PATH */
    const char *adapter_root, *adapter_type;
    bool no_sandbox;
} serve_flags;

extern const cli_command command_serve;

/* Defaults, and the table of options over `flags`: SERVE_OPTION_MAX at most, with the end. */
void serve_flags_init(serve_flags *flags);
void serve_flags_specs(serve_flags *flags, option_spec *specs);
/* What is given in other units into the options they stand for. */
void serve_flags_settle(serve_flags *flags);

#endif
