/* What `avocet serve` says when it is ready: where, what, how much. */
#include "cli/serve_int.h"

#include <string.h>

static void row(const char *what, const char *text) {
    fprintf(stderr, "  %-8s %s\n", what, text);
}

static void model_row(const serve_facts *facts) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    char text[1024];
    avo_model_describe(facts->model, &info);
    snprintf(text, sizeof(text), "%.600s: %s, %.0f M parameters, %s%s", facts->model_path,
             info.architecture, (double)info.parameters / 1e6, info.format,
             info.has_chat_template ? "" : "; no chat template");
    row("model", text);
    if (facts->adapters > 0) {
        snprintf(text, sizeof(text), "%u loaded", facts->adapters);
        row("adapters", text);
    }
}

static void engine_rows(const serve_flags *flags, const avo_plan *plan) {
    char text[512], weights[16], kv[16], scratch[16], available[16];
    char threads[32] = "";
    if (plan->threads > 0)
        snprintf(threads, sizeof(threads), ", %u threads", plan->threads);
    snprintf(text, sizeof(text),
             "%s%s, %u concurrent requests, contexts of %u tokens, %llu tokens of %s in "
             "the KV pool",
             plan->device, threads, flags->engine.sessions_max, plan->context_max,
             (unsigned long long)plan->kv_pages * plan->kv_page_tokens, plan->kv_type);
    row("engine", text);
    cli_bytes_text(plan->weight_bytes + plan->repack_bytes, weights);
    cli_bytes_text(plan->kv_bytes, kv);
    cli_bytes_text(plan->scratch_bytes + plan->session_bytes + plan->draft_bytes, scratch);
    cli_bytes_text(plan->available_bytes, available);
    snprintf(text, sizeof(text), "weights %s, KV %s, scratch %s, of %s (%s)", weights, kv, scratch,
             available, plan->limit);
    row("memory", text);
}

static void limit_rows(const serve_flags *flags, const server_options *settings) {
    char text[512], body[16], unread[16];
    uint32_t waiting = flags->scheduler.waiting_max;
    cli_bytes_text(settings->body_bytes_max, body);
    cli_bytes_text(settings->unread_bytes_max, unread);
    snprintf(text, sizeof(text),
             "%u connections, %u waiting requests, bodies up to %s, headers up to %u KiB, unread "
             "answers up to %s; timeouts: idle %.0f s, header %.0f s, drain %.0f s",
             settings->connections_max, waiting > 0 ? waiting : 1024u, body,
             settings->header_bytes_max >> 10, unread, settings->idle_seconds,
             settings->header_seconds, settings->drain_seconds);
    row("limits", text);
    snprintf(text, sizeof(text), "%s%s; CORS %s; access log %s",
             settings->keys_path != NULL
                 ? "keys from "
                 : "no authentication: anyone who can connect can send requests",
             settings->keys_path != NULL ? settings->keys_path : "",
             settings->cors_origin != NULL ? settings->cors_origin : "off",
             settings->access_log == NULL             ? "off"
             : strcmp(settings->access_log, "-") == 0 ? "here"
                                                      : settings->access_log);
    row("access", text);
}

void serve_banner(const serve_flags *flags, const serve_facts *facts) {
    const server_options *settings = server_settings(facts->server);
    char text[400];
    fprintf(stderr, "avocet %s serves %s at %s\n", avo_version(), settings->model_name,
            server_url(facts->server));
    if (server_grpc_port(facts->server) != 0) {
        snprintf(text, sizeof(text), "gRPC at port %u%s", server_grpc_port(facts->server),
                 settings->certificate != NULL ? ", TLS" : "");
        row("grpc", text);
    }
    if (server_kv_port(facts->server, false) != 0) {
        snprintf(text, sizeof(text), "KV events at port %u; replay at port %u (0: off)",
                 server_kv_port(facts->server, false), server_kv_port(facts->server, true));
        row("events", text);
    }
    model_row(facts);
    engine_rows(flags, facts->plan);
    limit_rows(flags, settings);
    if (settings->keys_path == NULL && server_exposed(facts->server))
        row("warning", "other machines can reach this server and no key is required; give --keys "
                       "FILE.json, or bind to --host 127.0.0.1");
    if (server_kv_exposed(facts->server))
        row("warning", "other machines can reach the KV events, which have no key and no TLS: they "
                       "show the tokens of all prompts");
    if (flags->no_sandbox)
        snprintf(text, sizeof(text), "off (--no-sandbox)");
    else
        snprintf(text, sizeof(text), "%s, %s", facts->files_report, facts->calls_report);
    row("sandbox", text);
    if (flags->telemetry_hardware) {
        serve_telemetry_counters(facts->telemetry, text, sizeof(text));
        row("counters", text);
    }
    fflush(stderr);
}
