/* `--telemetry`: one CSV row per request, appended to a file or written to standard error. */
#include "cli/run_int.h"

#include "base/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char header[] =
    "time,model,finish_reason,load_ms,tokenise_ms,prefill_ms,ttft_ms,token_p50_ms,token_p95_ms,"
    "token_max_ms,prompt_tokens,new_tokens,prefill_tps,decode_tps,peak_memory_bytes,token_ms\n";

/* Opens for appending and says whether the header is still missing. Closes on failure. */
static avo_status open_log(const char *path, int *descriptor, bool *needs_header,
                           avo_error *error) {
    int file = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot open for telemetry: %s", path,
                           strerror(errno));
    struct stat facts;
    char first[sizeof(header)];
    ssize_t got = -1;
    bool regular = fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
    if (regular)
        got = pread(file, first, sizeof(header) - 1, 0);
    *needs_header = !regular || got == 0;
    if (regular && got != 0 &&
        (got != (ssize_t)sizeof(header) - 1 || memcmp(first, header, sizeof(header) - 1) != 0)) {
        close(file);
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: is not a telemetry file of this version (its first line differs); "
                           "name a new file",
                           path);
    }
    *descriptor = file;
    return AVO_OK;
}

/* One write, under a lock, so that rows of several processes stay whole. An empty row leaves a file
 * with its header. */
static avo_status append_row(const char *path, const buffer *row, avo_error *error) {
    int descriptor = -1;
    bool needs_header = false;
    AVO_TRY(open_log(path, &descriptor, &needs_header, error));
    bool locked = flock(descriptor, LOCK_EX) == 0;
    struct stat facts;
    if (locked && fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode))
        needs_header = facts.st_size == 0; /* somebody else may have been first */
    else if (row->size == 0)
        needs_header = false; /* pipes get theirs with the row */
    bool good = !needs_header ||
                write(descriptor, header, sizeof(header) - 1) == (ssize_t)sizeof(header) - 1;
    if (good && row->size > 0)
        good = write(descriptor, row->data, row->size) == (ssize_t)row->size;
    int reason = errno;
    close(descriptor);
    if (good)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_IO, "%s: cannot write telemetry: %s", path,
                       strerror(reason));
}

avo_status run_telemetry_check(const char *path, avo_error *error) {
    if (*path == '\0')
        return AVO_OK;
    const buffer nothing = {0};
    return append_row(path, &nothing, error);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The time each token took, the first from the beginning of the request. */
static avo_status token_times(const run_record *record, buffer *times) {
    uint64_t before = record->begin_ns;
    for (size_t at = 0; at < record->arrivals.size; at += sizeof(uint64_t)) {
        uint64_t arrival;
        memcpy(&arrival, record->arrivals.data + at, sizeof(arrival));
        double milliseconds = (double)(arrival - before) * 1e-6;
        before = arrival;
        AVO_TRY(buffer_append(times, &milliseconds, sizeof(milliseconds)));
    }
    return AVO_OK;
}

/* The smallest value that is at least as large as this share of all of them. */
static double percentile(const double *sorted, size_t count, double share) {
    if (count == 0)
        return 0.0;
    size_t rank = (size_t)((double)count * share + 0.999999);
    return sorted[rank == 0 ? 0 : rank - 1];
}

/* Quoted, with quotes doubled, as RFC 4180 has it. */
static avo_status write_quoted(const char *text, buffer *row) {
    AVO_TRY(buffer_append_text(row, "\""));
    for (; *text != '\0'; text++) {
        if (*text == '"')
            AVO_TRY(buffer_append_text(row, "\""));
        AVO_TRY(buffer_append(row, text, 1));
    }
    return buffer_append_text(row, "\"");
}

static avo_status write_row(const run_record *record, buffer *times, buffer *row) {
    const avo_generate_result *result = &record->result;
    time_t now = time(NULL);
    struct tm parts;
    char stamp[32];
    gmtime_r(&now, &parts);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &parts);
    AVO_TRY(buffer_format(row, "%s,", stamp));
    AVO_TRY(write_quoted(record->model_name, row));
    AVO_TRY(buffer_format(row, ",%s,%.3f,%.3f,%.3f,%.3f", run_finish_text(result->finish),
                          record->load_seconds * 1e3, record->tokenize_seconds * 1e3,
                          result->prefill_seconds * 1e3, result->first_token_seconds * 1e3));
    AVO_TRY(token_times(record, times));
    size_t count = times->size / sizeof(double);
    buffer list;
    buffer_init(&list, NULL, SIZE_MAX);
    avo_status status = AVO_OK;
    double *values = (double *)(void *)times->data;
    for (size_t i = 0; i < count && status == AVO_OK; i++)
        status = buffer_format(&list, i > 0 ? ";%.3f" : "%.3f", values[i]);
    /* The statistics leave out the first token, which is the prompt's. */
    size_t decoded = count > 0 ? count - 1 : 0;
    if (decoded > 1)
        qsort(values + 1, decoded, sizeof(double), ascending);
    const double *sorted = decoded > 0 ? values + 1 : NULL;
    if (status == AVO_OK)
        status = buffer_format(row, ",%.3f,%.3f,%.3f,%u,%u,%.3f,%.3f,%llu,",
                               percentile(sorted, decoded, 0.5), percentile(sorted, decoded, 0.95),
                               percentile(sorted, decoded, 1.0), result->prompt_tokens,
                               result->new_tokens, run_prefill_rate(record),
                               run_decode_rate(record), (unsigned long long)memory_peak_bytes());
    if (status == AVO_OK)
        status = buffer_append(row, list.data, list.size);
    buffer_free(&list);
    AVO_TRY(status);
    return buffer_append_text(row, "\n");
}

avo_status run_telemetry_write(const char *path, const run_record *record, avo_error *error) {
    buffer times;
    buffer row;
    buffer_init(&times, NULL, SIZE_MAX);
    buffer_init(&row, NULL, SIZE_MAX);
    avo_status status = write_row(record, &times, &row);
    if (status != AVO_OK)
        status = status_fail(error, status, "telemetry: %s", avo_status_text(status));
    else if (*path == '\0') {
        fflush(stdout); /* on a terminal the answer comes first, with the end of its line */
        fprintf(stderr, "%s%.*s", header, (int)row.size, row.data);
    } else
        status = append_row(path, &row, error);
    buffer_free(&times);
    buffer_free(&row);
    return status;
}
