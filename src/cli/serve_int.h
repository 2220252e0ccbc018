/* Inside `avocet serve`: its flags, its configuration file, and what it says when it begins. */
#ifndef AVO_CLI_SERVE_INT_H
#define AVO_CLI_SERVE_INT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "cli/engine_flags.h"
#include "server/server.h"

#define GRPC_OFF UINT32_MAX

typedef struct serve_flags {
    bool control;      /* obeys the program that started it: serve_control.c */
    const char *model; /* argument, or "model" of the configuration */
    const char *model_name;
    const char *config;
    bool print_schema;
    avo_engine_options engine;
    avo_scheduler_options scheduler;
    server_options server;
    uint32_t port, grpc_port; /* GRPC_OFF: no gRPC */
    uint64_t memory_mib, adapter_memory_mib, body_kib, unread_kib, state_mib;
    uint32_t header_kib;
    double token_ms;
    option_list adapters; /* NAME=PATH */
    option_list allowed_hosts;
    const char *adapter_root, *adapter_type;
    bool no_sandbox;
    const char *telemetry; /* CSV file */
    double telemetry_seconds;
    uint64_t telemetry_mib;
    bool telemetry_hardware;
    const char *trace; /* file for the last trace_seconds, written at the end */
    double trace_seconds;
} serve_flags;

extern const cli_command command_serve;

/* ---- serve_flags.c ---- */

/* Defaults, and the table of options over `flags`. */
void serve_flags_init(serve_flags *flags);
void serve_flags_specs(serve_flags *flags, option_table *table);
/* Whether they go together; prints what does not. Puts what is given in other units where it
 * belongs. */
bool serve_flags_settle(serve_flags *flags);

/* ---- serve_config.c ---- */

/* The file of --config as it stands in argv (before "--"), or NULL. */
const char *serve_config_named(int argc, char *const *argv);
/* Sets what the file says: a key is an option's name with _ for -, or "model". Refuses by name:
 * unknown keys, wrong types, values out of range. Texts live in the arena. */
AVO_MUST_USE avo_status serve_config_read(const char *path, const option_spec *specs,
                                          const char **model, arena *arena, avo_error *error);
/* Options that were given on the command line replace lists of the file, not add to them. */
typedef struct serve_config_lists {
    size_t before[OPTIONS_MAX];
} serve_config_lists;
void serve_config_lists_begin(serve_config_lists *lists, const option_spec *specs);
void serve_config_lists_end(const serve_config_lists *lists, const option_spec *specs);
/* The same table as a JSON schema. */
void serve_config_schema(json_writer *w, const option_spec *specs);

/* ---- serve_telemetry.c ---- */

/* Another row; a failure is a warning, once until it works again. */
void serve_telemetry_write(const serve_flags *flags, avo_telemetry *telemetry);
/* What counts cycles and the like, or why nothing does and what to do about it. */
void serve_telemetry_counters(avo_telemetry *telemetry, char *text, size_t capacity);

/* ---- serve_control.c ---- */

typedef struct serve_control {
    buffer input; /* what of a line has come */
} serve_control;
/* Says where the server will listen; its sockets are bound. */
void serve_control_begin(serve_control *control, const server_options *options);
void serve_control_end(serve_control *control);
/* When the standard input can be read. False: it has ended, and so should the server. */
bool serve_control_read(serve_control *control, avo_registry *registry);

/* ---- serve_banner.c ---- */

typedef struct serve_facts {
    const avo_model *model;
    const char *model_path;
    const avo_plan *plan;
    const server *server;
    const char *files_report, *calls_report; /* of the sandbox; "" where it is off */
    uint32_t adapters;
    avo_telemetry *telemetry;
} serve_facts;
void serve_banner(const serve_flags *flags, const serve_facts *facts);

#endif
