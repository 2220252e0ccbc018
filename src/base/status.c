/* Status texts and error formatting. */
#include "base/status.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef __clang_analyzer__
#undef status_fail
#undef status_prefix
#undef status_no_memory
#endif

const char *avo_status_text(avo_status status) {
    switch (status) {
#define STATUS_CASE(name, number, text)                                                            \
    case name:                                                                                     \
        return text;
        AVO_STATUS_TABLE(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

const char *avo_version(void) {
    return AVO_VERSION_TEXT;
}

/* Control characters (C0, C1), line separators and what reorders the text around it. */
static bool is_unprintable(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 ||
           (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* One line of valid UTF-8 without control characters: file names and metadata end up here, and a
 * text that was cut off may end in half a character. */
static void error_text_clean(char *text) {
    size_t size = strlen(text);
    size_t to = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code_point = 0;
        size_t length = utf8_decode(text + at, size - at, &code_point);
        if (length == 0 || is_unprintable(code_point)) {
            at += length == 0 ? utf8_invalid_length(text + at, size - at) : length;
            text[to++] = '?';
        } else {
            memmove(text + to, text + at, length);
            to += length;
            at += length;
        }
    }
    text[to] = '\0';
}

avo_status status_fail(avo_error *error, avo_status status, const char *format, ...) {
    if (error == NULL)
        return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    error_text_clean(error->text);
    return status;
}

avo_status status_prefix(avo_error *error, avo_status status, const char *format, ...) {
    if (error == NULL)
        return status;
    char prefix[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    char rest[AVO_ERROR_TEXT_MAX];
    memcpy(rest, error->text, sizeof(rest));
    rest[sizeof(rest) - 1] = '\0';
    size_t used = strnlen(prefix, sizeof(prefix) - 3);
    size_t room = sizeof(error->text) - used - 3;
    size_t rest_bytes = strnlen(rest, room);
    memcpy(error->text, prefix, used);
    memcpy(error->text + used, ": ", 2);
    memcpy(error->text + used + 2, rest, rest_bytes);
    error->text[used + 2 + rest_bytes] = '\0';
    error_text_clean(error->text);
    error->status = status;
    return status;
}

avo_status status_no_memory(avo_error *error, const char *what, size_t bytes) {
    return status_fail(error, AVO_ERROR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

const char *finish_text(avo_finish finish) {
    switch (finish) {
    case AVO_FINISH_STOP_TOKEN:
    case AVO_FINISH_STOP_STRING:
        return "stop";
    case AVO_FINISH_LENGTH:
        return "length";
    case AVO_FINISH_CONTEXT:
        return "context";
    case AVO_FINISH_CANCELLED:
        return "cancelled";
    case AVO_FINISH_DEADLINE:
        return "deadline";
    case AVO_FINISH_REPETITION:
        return "repetition";
    }
    return "unknown";
}
