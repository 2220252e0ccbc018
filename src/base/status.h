/* Status codes and error texts, as every module uses them. */
#ifndef AVO_BASE_STATUS_H
#define AVO_BASE_STATUS_H

#include <avocet.h>

/* The one guard: leaves the function with the status of a call that failed. */
#define AVO_TRY(call)                                                                              \
    do {                                                                                           \
        avo_status avo_try_status_ = (call);                                                       \
        if (avo_try_status_ != AVO_OK)                                                             \
            return avo_try_status_;                                                                \
    } while (0)

/* For functions that clean up behind their calls: the call, unless an earlier one failed. */
#define AVO_THEN(status, call)                                                                     \
    do {                                                                                           \
        if ((status) == AVO_OK)                                                                    \
            (status) = (call);                                                                     \
    } while (0)

/* Writes the text (printf format, one line) into `error`, which may be NULL, and returns `status`,
 * so that a failure is one line: return status_fail(error, AVO_ERROR_FORMAT, "%s: …", path).
 * Text that comes from files goes through "%.*s": control characters and invalid UTF-8 in the
 * result become '?', so that a hostile name cannot forge a line or move a terminal's cursor. */
AVO_MUST_USE avo_status status_fail(avo_error *error, avo_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Puts "prefix: " in front of the text that is there already and returns the error's status;
 * callers use it to add the file or field that only they know. */
AVO_MUST_USE avo_status status_prefix(avo_error *error, avo_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* The out-of-memory failure with what was being allocated. */
AVO_MUST_USE avo_status status_no_memory(avo_error *error, const char *what, size_t bytes)
    __attribute__((cold));

/* "stop", "length", "context", "cancelled", "deadline": as files and reports have it. */
const char *finish_text(avo_finish finish);

#ifdef __clang_analyzer__
/* The analyzer does not look into status.c: it shall know that a failure is one. */
#define status_fail(error, status, ...) ((void)!(status_fail)(error, status, __VA_ARGS__), (status))
#define status_prefix(error, status, ...)                                                          \
    ((void)!(status_prefix)(error, status, __VA_ARGS__), (status))
#define status_no_memory(error, ...)                                                               \
    ((void)!(status_no_memory)(error, __VA_ARGS__), AVO_ERROR_MEMORY)
#endif

#endif
