/* Tables of answers: one CSV row each, appended to a file or handed to a writer. */
#include "base/allocator.h"
#include "base/buffer.h"
#include "base/cpu.h"
#include "base/number.h"
#include "base/options.h"
#include "telemetry/table.h"

#include <stdlib.h>
#include <time.h>

static const char header[] =
    "time,model,finish_reason,load_ms,tokenise_ms,prefill_ms,ttft_ms,token_p50_ms,token_p95_ms,"
    "token_max_ms,prompt_tokens,new_tokens,prefill_tps,decode_tps,peak_memory_bytes,token_ms\n";

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
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

/* Behind a separator, with three decimals; what is not known is empty. */
static avo_status write_number(buffer *row, const char *separator, double number) {
    char text[64] = "";
    if (number >= 0.0)
        (void)number_to_text(text, sizeof(text), 'f', 3, number);
    return buffer_format(row, "%s%s", separator, text);
}

static avo_status write_begin(const avo_answer_times *times, buffer *row) {
    time_t now = time(NULL);
    struct tm parts;
    char stamp[32];
    gmtime_r(&now, &parts);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &parts);
    AVO_TRY(buffer_format(row, "%s,", stamp));
    AVO_TRY(write_quoted(times->model_name == NULL ? "" : times->model_name, row));
    AVO_TRY(buffer_format(row, ",%s", finish_text(times->finish)));
    const double seconds[] = {times->load_seconds, times->tokenize_seconds, times->prefill_seconds,
                              times->first_token_seconds};
    for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++)
        AVO_TRY(write_number(row, ",", seconds[i] * 1e3));
    return AVO_OK;
}

/* The statistics leave out the first token, which is the prompt's. */
static avo_status write_tokens(const avo_answer_times *times, double *sorted, buffer *row) {
    size_t decoded = times->token_count > 0 ? times->token_count - 1 : 0;
    for (size_t i = 0; i < decoded; i++)
        sorted[i] = times->token_seconds[i + 1] * 1e3;
    if (decoded > 1)
        qsort(sorted, decoded, sizeof(double), ascending);
    const double shares[] = {0.5, 0.95, 1.0};
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
        AVO_TRY(write_number(row, ",", percentile(sorted, decoded, shares[i])));
    AVO_TRY(buffer_format(row, ",%u,%u", times->prompt_tokens, times->new_tokens));
    AVO_TRY(write_number(row, ",", times->prefill_rate));
    AVO_TRY(write_number(row, ",", times->decode_rate));
    AVO_TRY(buffer_format(row, ",%llu,", (unsigned long long)memory_peak_bytes()));
    for (size_t i = 0; i < times->token_count; i++)
        AVO_TRY(write_number(row, i > 0 ? ";" : "", times->token_seconds[i] * 1e3));
    return buffer_append_text(row, "\n");
}

static avo_status write_row(const avo_answer_times *given, buffer *row, avo_error *error) {
    avo_answer_times times = AVO_ANSWER_TIMES_INIT;
    AVO_TRY(options_take(&times, sizeof(times), given, "avo_answer_times", error));
    double *sorted = allocator_take(NULL, (times.token_count + 1) * sizeof(double));
    avo_status status = sorted == NULL ? AVO_ERROR_MEMORY : write_begin(&times, row);
    AVO_THEN(status, write_tokens(&times, sorted, row));
    allocator_give(NULL, sorted, (times.token_count + 1) * sizeof(double));
    return status == AVO_OK ? AVO_OK
                            : status_fail(error, status, "telemetry: %s", avo_status_text(status));
}

avo_status avo_telemetry_append(const char *path, const avo_answer_times *times, avo_error *error) {
    buffer row;
    buffer_init(&row, NULL, SIZE_MAX);
    avo_status status = times == NULL ? AVO_OK : write_row(times, &row, error);
    if (status == AVO_OK)
        status = table_append(&(table_file){.path = path,
                                            .header = {header, sizeof(header) - 1},
                                            .first = times != NULL},
                              buffer_text(&row), error);
    buffer_free(&row);
    return status;
}

avo_status avo_telemetry_row(const avo_answer_times *times, avo_write_function write, void *context,
                             avo_error *error) {
    buffer row;
    buffer_init(&row, NULL, SIZE_MAX);
    avo_status status = buffer_append_text(&row, header);
    if (status != AVO_OK)
        return status_no_memory(error, "a row", sizeof(header));
    status = write_row(times, &row, error);
    if (status == AVO_OK && !write(context, row.data, row.size))
        status = status_fail(error, AVO_ERROR_CANCELLED, "telemetry: the reader wants no more");
    buffer_free(&row);
    return status;
}
