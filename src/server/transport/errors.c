/* Errors as clients know them: OpenAI's shape, and Anthropic's below /v1/messages. */
#include "server/transport/exchange.h"

#include "base/json.h"

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

static avo_status write_optional(buffer *out, const char *text) {
    return text == NULL ? buffer_append_text(out, "null") : json_write_string(out, text_from(text));
}

avo_status exchange_write_error(buffer *out, const exchange_request *asked, unsigned status,
                                const char *param, const char *code, const char *text) {
    if (text_starts(text_from(asked->path), TEXT_LITERAL("/v1/messages"))) {
        AVO_TRY(buffer_format(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                              anthropic_type(status)));
        AVO_TRY(json_write_string(out, text_from(text)));
        AVO_TRY(buffer_append_text(out, "},\"request_id\":"));
        AVO_TRY(json_write_string(out, text_from(asked->id)));
        return buffer_append_text(out, "}");
    }
    AVO_TRY(buffer_append_text(out, "{\"error\":{\"message\":"));
    AVO_TRY(json_write_string(out, text_from(text)));
    AVO_TRY(buffer_format(out, ",\"type\":\"%s\",\"param\":", exchange_error_type(status)));
    AVO_TRY(write_optional(out, param));
    AVO_TRY(buffer_append_text(out, ",\"code\":"));
    AVO_TRY(write_optional(out, code));
    return buffer_append_text(out, "}}");
}

void exchange_fail(exchange *exchange, unsigned status, const char *param, const char *code,
                   const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
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
