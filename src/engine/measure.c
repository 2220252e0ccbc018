/* How fast an engine's threads can read memory. */
#include "engine/engine_int.h"

#include "base/cpu.h"
#include "base/region.h"
#include "kernels/limits.h"

avo_status avo_engine_measure(avo_engine *engine, double *bytes_per_second, avo_error *error) {
    *bytes_per_second = 0.0;
    limit_table table;
    if (!limits_of(engine->plan.isa, &table))
        limits_plain(&table);
    /* A quarter of what is free is enough to be no bother, and still past any cache. */
    uint64_t room = memory_limit_detect().available_bytes / 4;
    size_t bytes = room < LIMITS_READ_BYTES ? (size_t)room : LIMITS_READ_BYTES;
    bytes = bytes / 4096 * 4096;
    if (bytes == 0)
        return status_no_memory(error, "memory to read", 4096);
    region memory;
    region_options options = {.huge = true};
    AVO_TRY(region_open(engine->allocator, bytes, &options, "memory to read", &memory, error));
    team *team = engine->lane[0].team;
    machine_limits limits;
    limits_touch(team, memory.data, bytes);
    limits_measure(&table, team, memory.data, bytes, &limits);
    region_close(&memory);
    *bytes_per_second = limits.read_bytes;
    telemetry_engine_limit(engine->lane[0].telemetry, limits.read_bytes);
    return AVO_OK;
}
