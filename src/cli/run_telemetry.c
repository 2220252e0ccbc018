/* `--telemetry`: one CSV row per request, appended to a file or written to standard error. */
#include "cli/run_int.h"

#include <stdlib.h>
#include <string.h>

avo_status run_telemetry_check(const char *path, avo_error *error) {
    return *path == '\0' ? AVO_OK : avo_telemetry_append(path, NULL, error);
}

/* The time each token took, the first from the beginning of the request. */
static void token_times(const run_record *record, double *seconds, size_t count) {
    uint64_t before = record->begin_ns;
    for (size_t i = 0; i < count; i++) {
        uint64_t arrival;
        memcpy(&arrival, record->arrivals.data + i * sizeof(arrival), sizeof(arrival));
        seconds[i] = (double)(arrival - before) * 1e-9;
        before = arrival;
    }
}

static bool print_row(void *context, const char *text, size_t bytes) {
    (void)context;
    fflush(stdout); /* on a terminal the answer comes first, with the end of its line */
    return fwrite(text, 1, bytes, stderr) == bytes;
}

avo_status run_telemetry_write(const char *path, const run_record *record, avo_error *error) {
    const avo_result *result = &record->result;
    size_t count = record->arrivals.size / sizeof(uint64_t);
    double *seconds = calloc(count + 1, sizeof(double));
    if (seconds == NULL)
        return status_no_memory(error, "telemetry", count * sizeof(double));
    token_times(record, seconds, count);
    avo_answer_times times = {.size = sizeof(times),
                              .model_name = record->model_name,
                              .finish = result->finish,
                              .load_seconds = record->load_seconds,
                              .tokenize_seconds = record->tokenize_seconds,
                              .prefill_seconds = result->prefill_seconds,
                              .first_token_seconds = result->first_token_seconds,
                              .prefill_rate = run_prefill_rate(record),
                              .decode_rate = run_decode_rate(record),
                              .prompt_tokens = result->prompt_tokens,
                              .new_tokens = result->new_tokens,
                              .token_seconds = seconds,
                              .token_count = count};
    avo_status status = *path == '\0' ? avo_telemetry_row(&times, print_row, NULL, error)
                                      : avo_telemetry_append(path, &times, error);
    free(seconds);
    return status;
}
