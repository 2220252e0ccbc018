/* `--trace FILE`: what was computed when, for chrome://tracing and Perfetto. */
#include "cli/trace.h"

#include "base/file.h"

#define TRACE_SPANS (1u << 18) /* a thread: 8 MiB; some 1,700 steps of 30 layers */

avo_status cli_trace_open(const char *path, avo_telemetry **telemetry, avo_error *error) {
    if (path == NULL)
        return AVO_OK;
    /* A file that cannot be written is better known before the answer than after it. */
    file_writer writer;
    AVO_TRY(file_writer_open(&writer, path, error));
    file_writer_abort(&writer);
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    options.spans_max = TRACE_SPANS;
    options.hardware = true;
    AVO_TRY(avo_telemetry_open(&options, NULL, telemetry, error));
    avo_telemetry_trace_begin(*telemetry);
    return AVO_OK;
}

typedef struct trace_file {
    file_writer writer;
    avo_status status;
    avo_error *error;
} trace_file;

static bool append(void *context, const char *text, size_t bytes) {
    trace_file *file = context;
    file->status = file_writer_append(&file->writer, text, bytes, file->error);
    return file->status == AVO_OK;
}

avo_status cli_trace_write(const char *path, avo_telemetry *telemetry, double seconds,
                           avo_error *error) {
    if (path == NULL || telemetry == NULL)
        return AVO_OK;
    trace_file file = {.status = AVO_OK, .error = error};
    AVO_TRY(file_writer_open(&file.writer, path, error));
    avo_error own = {0};
    avo_status status = avo_telemetry_trace_write(telemetry, seconds, append, &file, &own);
    if (status == AVO_OK)
        return file_writer_commit(&file.writer, error);
    file_writer_abort(&file.writer);
    return file.status != AVO_OK ? file.status : status_fail(error, status, "%s", own.text);
}
