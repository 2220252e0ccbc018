/* `avocet serve --telemetry` and `--trace`: exports into files. */
#include "cli/serve_int.h"

#include "base/file.h"

typedef struct export_file {
    file_writer writer;
    avo_error error;
} export_file;

static bool write_piece(void *context, const char *text, size_t bytes) {
    export_file *file = context;
    return file_writer_append(&file->writer, text, bytes, &file->error) == AVO_OK;
}

/* Written beside and renamed: whoever reads it never sees half of it. */
static void finish(export_file *file, avo_status status, const char *what, const char *path) {
    if (status == AVO_OK)
        status = file_writer_commit(&file->writer, &file->error);
    else
        file_writer_abort(&file->writer);
    if (status != AVO_OK)
        cli_warn("%s %s: %s", what, path, file->error.text);
}

void serve_telemetry_write(avo_telemetry *telemetry, const char *path) {
    static export_file file; /* its paths are large; the main thread alone writes */
    if (file_writer_open(&file.writer, path, &file.error) != AVO_OK) {
        cli_warn("--telemetry: %s", file.error.text);
        return;
    }
    avo_status status =
        avo_telemetry_export(telemetry, AVO_TELEMETRY_CSV, write_piece, &file, &file.error);
    finish(&file, status, "--telemetry", path);
}

void serve_trace_write(avo_telemetry *telemetry, const char *path, double seconds) {
    static export_file file;
    if (file_writer_open(&file.writer, path, &file.error) != AVO_OK) {
        cli_warn("--trace: %s", file.error.text);
        return;
    }
    avo_status status =
        avo_telemetry_trace_write(telemetry, seconds, write_piece, &file, &file.error);
    finish(&file, status, "--trace", path);
}
