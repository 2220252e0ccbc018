/* A line of the access log for every exchange, when the last one who knows of it lets go. */
#include "server/server_int.h"

#include "base/clock.h"
#include "base/json.h"

#include <time.h>

static avo_status write_member(buffer *out, const char *name, const char *text) {
    AVO_TRY(buffer_format(out, ",\"%s\":", name));
    return json_write_string(out, text_from(text));
}

static avo_status write_number(buffer *out, const char *name, double number) {
    AVO_TRY(buffer_format(out, ",\"%s\":", name));
    return json_write_number(out, number);
}

static avo_status write_usage(buffer *out, const exchange *exchange) {
    const exchange_usage *usage = &exchange->usage;
    if (usage->model != NULL)
        AVO_TRY(write_member(out, "model", usage->model));
    AVO_TRY(buffer_format(out,
                          ",\"usage\":{\"prompt_tokens\":%u,\"reused_tokens\":%u,\"new_tokens\":%u",
                          usage->prompt_tokens, usage->reused_tokens, usage->new_tokens));
    AVO_TRY(write_number(out, "queue_seconds", usage->queue_seconds));
    AVO_TRY(write_number(out, "first_token_seconds", usage->first_token_seconds));
    return buffer_append_text(out, "}");
}

static double microseconds(double seconds) {
    return (double)(uint64_t)(seconds * 1e6 + 0.5) / 1e6;
}

static avo_status write_line(buffer *out, const exchange *exchange) {
    struct timespec now;
    struct tm parts;
    char time_text[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%S", &parts);
    AVO_TRY(buffer_format(out, "{\"time\":\"%s.%03ldZ\"", time_text, now.tv_nsec / 1000000));
    AVO_TRY(write_member(out, "id", exchange->id));
    AVO_TRY(write_member(out, "peer", exchange->peer));
    if (exchange->asked.key != NULL)
        AVO_TRY(write_member(out, "key", server_key_name(exchange->asked.key)));
    AVO_TRY(write_member(out, "method", exchange->keep_head ? "HEAD" : exchange->asked.method));
    AVO_TRY(write_member(out, "path", exchange->asked.path));
    AVO_TRY(buffer_format(out, ",\"status\":%u,\"bytes\":%llu", exchange->status,
                          (unsigned long long)exchange->sent_bytes));
    AVO_TRY(write_number(out, "seconds",
                         microseconds(clock_seconds(exchange->begun_ns, clock_now_ns()))));
    AVO_TRY(write_member(out, "end",
                         exchange->cut    ? "slow reader"
                         : exchange->gone ? "client gone"
                                          : "complete"));
    if (exchange->has_usage)
        AVO_TRY(write_usage(out, exchange));
    if (exchange->prompt.size > 0) {
        AVO_TRY(buffer_append_text(out, ",\"prompt\":"));
        AVO_TRY(json_write_string(out, buffer_text(&exchange->prompt)));
    }
    return buffer_append_text(out, "}\n");
}

void exchange_log(exchange *exchange) {
    if (exchange->server->log == NULL)
        return;
    buffer line;
    buffer_init(&line, NULL, LOG_QUEUE_BYTES);
    if (write_line(&line, exchange) == AVO_OK)
        log_write(exchange->server->log, buffer_text(&line));
    buffer_free(&line);
}
