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

static avo_status write_usage(buffer *out, const carried *exchange) {
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

static avo_status write_beginning(buffer *out, const access_refusal *line, const char *key) {
    struct timespec now;
    struct tm parts;
    char time_text[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%S", &parts);
    AVO_TRY(buffer_format(out, "{\"time\":\"%s.%03ldZ\"", time_text, now.tv_nsec / 1000000));
    AVO_TRY(write_member(out, "id", line->id));
    AVO_TRY(write_member(out, "peer", line->peer));
    if (key != NULL)
        AVO_TRY(write_member(out, "key", key));
    AVO_TRY(buffer_append_text(out, ",\"method\":"));
    AVO_TRY(json_write_string(out, line->method));
    AVO_TRY(buffer_append_text(out, ",\"path\":"));
    AVO_TRY(json_write_string(out, line->path));
    AVO_TRY(buffer_format(out, ",\"status\":%u,\"bytes\":%zu", line->status, line->bytes));
    return write_number(out, "seconds",
                        microseconds(clock_seconds(line->begun_ns, clock_now_ns())));
}

static const char *end_of(const carried *exchange) {
    if (exchange->late)
        return "too slow";
    if (exchange->refused)
        return "refused";
    if (exchange->cut)
        return "slow reader";
    if (exchange->gone)
        return "client gone";
    return exchange->failed ? "failed" : "complete";
}

static avo_status write_line(buffer *out, const carried *exchange) {
    const exchange_request *asked = &exchange->base.asked;
    access_refusal line = {.id = exchange->id,
                           .peer = exchange->peer,
                           .method = text_from(exchange->keep_head ? "HEAD" : asked->method),
                           .path = text_from(asked->path),
                           .status = exchange->status,
                           .bytes = (size_t)exchange->sent_bytes,
                           .begun_ns = exchange->begun_ns};
    AVO_TRY(write_beginning(out, &line, asked->key == NULL ? NULL : server_key_name(asked->key)));
    AVO_TRY(write_member(out, "end", end_of(exchange)));
    if (exchange->has_usage)
        AVO_TRY(write_usage(out, exchange));
    if (exchange->prompt.size > 0) {
        AVO_TRY(buffer_append_text(out, ",\"prompt\":"));
        AVO_TRY(json_write_string(out, buffer_text(&exchange->prompt)));
    }
    return buffer_append_text(out, "}\n");
}

void access_log_exchange(carried *exchange) {
    if (exchange->server->log == NULL)
        return;
    buffer line;
    buffer_init(&line, NULL, LOG_QUEUE_BYTES);
    if (write_line(&line, exchange) == AVO_OK)
        log_write(exchange->server->log, buffer_text(&line));
    buffer_free(&line);
}

void access_log_refusal(const server *server, const access_refusal *line) {
    if (server->log == NULL)
        return;
    buffer out;
    buffer_init(&out, NULL, LOG_QUEUE_BYTES);
    if (write_beginning(&out, line, NULL) == AVO_OK &&
        buffer_append_text(&out, ",\"end\":\"refused\"}\n") == AVO_OK)
        log_write(server->log, buffer_text(&out));
    buffer_free(&out);
}
