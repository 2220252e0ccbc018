/* The machine's limits for a number of threads, again and again. */
#include "bench/bench.h"

#include "base/allocator.h"
#include "base/region.h"

struct bench_machine {
    size_t bytes;
    region memory;
    uint32_t threads; /* that have touched the memory; 0: there is none yet */
};

avo_status bench_machine_open(size_t read_bytes, bench_machine **out, avo_error *error) {
    *out = NULL;
    bench_machine *machine = allocator_take_array(NULL, 1, sizeof(*machine));
    if (machine == NULL)
        return status_no_memory(error, "the machine's limits", sizeof(*machine));
    /* A quarter of what is free is enough to be no bother, and still past any cache. */
    uint64_t available = memory_limit_detect().available_bytes / 4;
    machine->bytes = (read_bytes < available ? read_bytes : (size_t)available) / 4096 * 4096;
    machine->bytes = machine->bytes < 4096 ? 4096 : machine->bytes;
    *out = machine;
    return AVO_OK;
}

void bench_machine_close(bench_machine *machine) {
    if (machine == NULL)
        return;
    region_close(&machine->memory);
    allocator_give(NULL, machine, sizeof(*machine));
}

/* Pages belong to the NUMA node of whoever touches them first: another number of threads wants
 * other memory. Huge pages are a wish: where there are none, kernels do not have them either. */
static avo_status renew_memory(bench_machine *machine, team *team, avo_error *error) {
    if (machine->threads == team_size(team))
        return AVO_OK;
    region_close(&machine->memory);
    machine->memory = (region){0};
    machine->threads = 0;
    region_options options = {.huge = true};
    AVO_TRY(region_open(NULL, machine->bytes, &options, "memory to read", &machine->memory, error));
    limits_touch(team, machine->memory.data, machine->bytes);
    machine->threads = team_size(team);
    return AVO_OK;
}

avo_status bench_machine_measure(bench_machine *machine, const char *isa, uint32_t threads,
                                 machine_limits *limits, avo_error *error) {
    limit_table table;
    if (!limits_of(isa, &table))
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "no limits for \"%s\" on this machine",
                           isa);
    team *team;
    AVO_TRY(team_open(NULL, threads, &team, error));
    avo_status status = renew_memory(machine, team, error);
    if (status == AVO_OK)
        limits_measure(&table, team, machine->memory.data, machine->bytes, limits);
    team_close(team);
    return status;
}
