/* The machine's limits for a number of threads, again and again. */
#include "bench/bench.h"

#include "base/allocator.h"
#include "base/region.h"

#include <string.h>

struct bench_machine {
    size_t bytes;
    region memory;
    team *team;            /* NULL: nothing was measured yet */
    machine_limits limits; /* of the team, as last measured; table.isa NULL: never */
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

static void forget_team(bench_machine *machine) {
    team_close(machine->team);
    region_close(&machine->memory);
    machine->team = NULL;
    machine->memory = (region){0};
    machine->limits = (machine_limits){0};
}

void bench_machine_close(bench_machine *machine) {
    if (machine == NULL)
        return;
    forget_team(machine);
    allocator_give(NULL, machine, sizeof(*machine));
}

/* Pages belong to the NUMA node of whoever touches them first: another number of threads wants
 * other memory. Huge pages are a wish: where there are none, kernels do not have them either. */
static avo_status renew_team(bench_machine *machine, uint32_t threads, avo_error *error) {
    if (machine->team != NULL && team_size(machine->team) == threads)
        return AVO_OK;
    forget_team(machine);
    region_options options = {.huge = true};
    AVO_TRY(team_open(NULL, threads, &machine->team, error));
    avo_status status =
        region_open(NULL, machine->bytes, &options, "memory to read", &machine->memory, error);
    if (status != AVO_OK) {
        forget_team(machine);
        return status;
    }
    limits_touch(machine->team, machine->memory.data, machine->bytes);
    return AVO_OK;
}

avo_status bench_machine_measure(bench_machine *machine, const char *isa, uint32_t threads,
                                 machine_limits *limits, avo_error *error) {
    limit_table table;
    if (!limits_of(isa, &table))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "limits of \"%s\" cannot be measured on this machine", isa);
    AVO_TRY(renew_team(machine, threads, error));
    machine_limits *known = &machine->limits;
    if (known->table.isa != NULL && strcmp(known->table.isa, table.isa) == 0)
        limits_again(machine->team, machine->memory.data, machine->bytes, known);
    else
        limits_measure(&table, machine->team, machine->memory.data, machine->bytes, known);
    *limits = *known;
    return AVO_OK;
}
