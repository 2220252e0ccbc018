/* Status texts and error formatting. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

/* One line, no control characters: file names and metadata end up here. */
static void error_text_clean(char *text) {
    for (char *c = text; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte < 0x20 || byte == 0x7f)
            *c = '?';
    }
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
