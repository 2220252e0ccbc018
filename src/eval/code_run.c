/* Runs a program for its verdict, and the options of all runs. */
#include "eval/code_int.h"

#include <string.h>

#define CPU_SECONDS_DEFAULT  5
#define WALL_SECONDS_DEFAULT 60
#define SECONDS_MAX          86400
#define PROCESSES_DEFAULT    16
#define PROCESSES_MAX        4096
#define MEMORY_DEFAULT       ((uint64_t)1 << 30)
#define MEMORY_MIN           ((uint64_t)32 << 20)
#define OUTPUT_DEFAULT       ((uint64_t)1 << 20)

static avo_status out_of_range(avo_error *error, const char *field, uint64_t value, uint64_t least,
                               uint64_t most) {
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "code run: %s is %llu, must be from %llu to %llu (0: the default)", field,
                       (unsigned long long)value, (unsigned long long)least,
                       (unsigned long long)most);
}

avo_status code_options_check(const code_run_options *options, code_run_options *checked,
                              avo_error *error) {
    static const code_run_options defaults = {0};
    *checked = options == NULL ? defaults : *options;
    if (checked->cpu_seconds == 0)
        checked->cpu_seconds = CPU_SECONDS_DEFAULT;
    if (checked->wall_seconds == 0)
        checked->wall_seconds = WALL_SECONDS_DEFAULT;
    if (checked->processes_max == 0)
        checked->processes_max = PROCESSES_DEFAULT;
    if (checked->memory_bytes == 0)
        checked->memory_bytes = MEMORY_DEFAULT;
    if (checked->output_bytes == 0)
        checked->output_bytes = OUTPUT_DEFAULT;
    if (checked->cpu_seconds > SECONDS_MAX)
        return out_of_range(error, "cpu_seconds", checked->cpu_seconds, 1, SECONDS_MAX);
    if (checked->wall_seconds > SECONDS_MAX)
        return out_of_range(error, "wall_seconds", checked->wall_seconds, 1, SECONDS_MAX);
    if (checked->processes_max > PROCESSES_MAX)
        return out_of_range(error, "processes_max", checked->processes_max, 1, PROCESSES_MAX);
    if (checked->memory_bytes < MEMORY_MIN || checked->memory_bytes > INT64_MAX)
        return out_of_range(error, "memory_bytes", checked->memory_bytes, MEMORY_MIN, INT64_MAX);
    return AVO_OK;
}

avo_status code_run(const char *program, size_t bytes, const code_run_options *options,
                    code_run_result *result, avo_error *error) {
    code_run_options checked;
    *result = (code_run_result){.outcome = CODE_FAILED};
    AVO_TRY(code_options_check(options, &checked, error));
    if (bytes > CODE_PROGRAM_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "code run: the program has %zu bytes, must have "
                           "at most %zu",
                           bytes, CODE_PROGRAM_MAX);
    /* 'S' and the token, and not a byte more. */
    buffer answer;
    buffer_init(&answer, checked.allocator, 1 + 64);
    code_job job = {.program = {program, bytes}, .answer = &answer};
    avo_status status = buffer_reserve(&answer, answer.limit);
    if (status != AVO_OK)
        return status_no_memory(error, "a verdict", answer.limit);
    status = code_process_run(&job, &checked, result, error);
    if (status == AVO_OK && result->outcome == CODE_PASSED && answer.size > 0)
        result->outcome = CODE_FAILED;
    buffer_free(&answer);
    return status;
}
