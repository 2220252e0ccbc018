/* Errors as clients know them: OpenAI's shape, Anthropic's below /v1/messages, ollama's below
 * /api/.
 */
#include "server/transport/exchange.h"

#include "base/json_writer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const char *exchange_error_type(unsigned status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static const char *anthropic_type(unsigned status) {
    switch (status) {
    case 413:
        return "request_too_large";
    case 503:
    case 529:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : exchange_error_type(status);
    }
}

avo_status exchange_write_error(buffer *out, const exchange_request *asked, unsigned status,
                                const char *param, const char *code, const char *text) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    if (text_starts(text_from(asked->path), TEXT_LITERAL("/v1/messages"))) {
        json_member_string(&w, "type", "error");
        json_member_object_begin(&w, "error");
        json_member_string(&w, "type", anthropic_type(status));
        json_member_string(&w, "message", text);
        json_end(&w);
        json_member_string(&w, "request_id", asked->id);
    } else if (text_starts(text_from(asked->path), TEXT_LITERAL("/api/"))) {
        json_member_string(&w, "error", text);
    } else {
        json_member_object_begin(&w, "error");
        json_member_string(&w, "message", text);
        json_member_string(&w, "type", exchange_error_type(status));
        json_member_string(&w, "param", param);
        json_member_string(&w, "code", code);
        json_end(&w);
    }
    json_end(&w);
    return json_writer_status(&w);
}

void exchange_fail(exchange *exchange, unsigned status, const char *param, const char *code,
                   const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (exchange_asked(exchange)->grpc) {
        exchange_set_failed(exchange, status, text);
        exchange_send(exchange, status, "application/grpc", (text_view){"", 0});
        return;
    }
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    bool written =
        exchange_write_error(&out, exchange_asked(exchange), status, param, code, text) == AVO_OK;
    exchange_send(exchange, status, "application/json",
                  written ? buffer_text(&out) : TEXT_LITERAL("{\"error\":null}"));
    buffer_free(&out);
}

void exchange_refuse(exchange *exchange, unsigned status, double retry_seconds, const char *text) {
    char seconds[32];
    double wait = retry_seconds > 1.0 ? ceil(retry_seconds) : 1.0;
    snprintf(seconds, sizeof(seconds), "%.0f", wait < 86400.0 ? wait : 86400.0);
    exchange_set_header(exchange, "Retry-After", seconds);
    exchange_fail(exchange, status, NULL, status == 429 ? "rate_limit_exceeded" : "unavailable",
                  "%s", text);
}
