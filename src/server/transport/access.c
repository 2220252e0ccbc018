/* A line of the access log for every exchange, when the last one who knows of it lets go. */
#include "server/server_int.h"

#include "base/clock.h"
#include "base/json_writer.h"

static void write_usage(json_writer *w, const exchange_usage *usage) {
    if (usage->model != NULL)
        json_member_string(w, "model", usage->model);
    json_member_object_begin(w, "usage");
    json_member_u64(w, "prompt_tokens", usage->prompt_tokens);
    json_member_u64(w, "reused_tokens", usage->reused_tokens);
    json_member_u64(w, "new_tokens", usage->new_tokens);
    json_member_number(w, "queue_seconds", usage->queue_seconds);
    json_member_number(w, "first_token_seconds", usage->first_token_seconds);
    json_end(w);
}

static double microseconds(double seconds) {
    return (double)(uint64_t)(seconds * 1e6 + 0.5) / 1e6;
}

static void write_beginning(json_writer *w, const access_refusal *line, const char *key) {
    char time_text[LOG_TIME_BYTES];
    log_time(time_text);
    json_member_string(w, "time", time_text);
    json_member_string(w, "id", line->id);
    json_member_string(w, "peer", line->peer);
    if (key != NULL)
        json_member_string(w, "key", key);
    json_member_text(w, "method", line->method);
    json_member_text(w, "path", line->path);
    json_member_u64(w, "status", line->status);
    json_member_u64(w, "bytes", line->bytes);
    json_member_number(w, "seconds", microseconds(clock_seconds(line->begun_ns, clock_now_ns())));
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

static void write_line(json_writer *w, const carried *exchange) {
    const exchange_request *asked = &exchange->base.asked;
    access_refusal line = {.id = exchange->id,
                           .peer = exchange->peer,
                           .method = text_from(exchange->keep_head ? "HEAD"
                                               : asked->grpc       ? "POST"
                                                                   : asked->method),
                           .path = text_from(asked->path),
                           .status = exchange->status,
                           .bytes = (size_t)exchange->sent_bytes,
                           .begun_ns = exchange->begun_ns};
    write_beginning(w, &line, asked->key == NULL ? NULL : server_key_name(asked->key));
    json_member_string(w, "end", end_of(exchange));
    if (exchange->has_usage)
        write_usage(w, &exchange->usage);
    if (exchange->prompt.size > 0)
        json_member_text(w, "prompt", buffer_text(&exchange->prompt));
}

static void log_line(access_log *log, json_writer *w) {
    if (json_writer_status(w) == AVO_OK && buffer_append_text(w->out, "\n") == AVO_OK)
        log_write(log, buffer_text(w->out));
    buffer_free(w->out);
}

void access_log_exchange(carried *exchange) {
    if (exchange->server->log == NULL)
        return;
    buffer out;
    buffer_init(&out, NULL, LOG_QUEUE_BYTES);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    write_line(&w, exchange);
    json_end(&w);
    log_line(exchange->server->log, &w);
}

/* Scrapes and health checks say nothing of a request's time. */
static bool is_traced(const exchange_request *asked) {
    return strcmp(asked->method, "GET") != 0;
}

void access_trace(const carried *exchange) {
    const exchange_request *asked = &exchange->base.asked;
    otlp *otlp = exchange->server->otlp;
    if (otlp == NULL || !is_traced(asked))
        return;
    ledger_time now = ledger_now();
    uint64_t end = (uint64_t)now.unix_ms * 1000000, spent = now.steady_ns - exchange->begun_ns;
    otlp_request request = {.method = asked->method,
                            .path = asked->path,
                            .id = exchange->id,
                            .key = asked->key == NULL ? NULL : server_key_name(asked->key),
                            .status = exchange->status,
                            .failed = exchange->failed || exchange->gone || exchange->cut,
                            .begin_ns = end - spent,
                            .end_ns = end};
    (void)otlp_parent_read(text_from(headers_find(&exchange->headers, "traceparent")),
                           &request.parent);
    if (exchange->has_usage) {
        const exchange_usage *usage = &exchange->usage;
        request.model = usage->model;
        request.queue_seconds = usage->queue_seconds;
        request.first_token_seconds = usage->first_token_seconds;
        request.prompt_tokens = usage->prompt_tokens;
        request.cached_tokens = usage->reused_tokens;
        request.new_tokens = usage->new_tokens;
    }
    otlp_add(otlp, &request);
}

void access_log_refusal(const server *server, const access_refusal *line) {
    if (server->log == NULL)
        return;
    buffer out;
    buffer_init(&out, NULL, LOG_QUEUE_BYTES);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    write_beginning(&w, line, NULL);
    json_member_string(&w, "end", "refused");
    json_end(&w);
    log_line(server->log, &w);
}
