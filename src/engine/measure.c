/* How fast an engine's threads can read memory. */
#include "engine/engine_int.h"

#include "base/cpu.h"
#include "base/region.h"
#include "device/cpu/limits.h"

#define READ_SECONDS 0.06 /* with the first passes; a pass that has begun is not cut */

avo_status avo_engine_measure(avo_engine *engine, double *bytes_per_second, avo_error *error) {
    *bytes_per_second = 0.0;
    AVO_TRY(engine_check_free(engine, error)); /* its team is at work */
    /* A quarter of what is free is enough to be no bother. */
    uint64_t room = memory_limit_detect().available_bytes / 4;
    size_t bytes = LIMITS_READ_BYTES;
    bytes = room < bytes ? (size_t)room / 4096 * 4096 : bytes;
    if (bytes == 0)
        return status_no_memory(error, "memory to read", 4096);
    region memory;
    region_options options = {.huge = true};
    AVO_TRY(region_open(engine->allocator, bytes, &options, "memory to read", &memory, error));
    team *team = engine->lane[0].team;
    limits_touch(team, memory.data, bytes);
    *bytes_per_second = limits_read(team, memory.data, bytes, READ_SECONDS);
    region_close(&memory);
    telemetry_engine_limit(engine->lane[0].telemetry, *bytes_per_second);
    return AVO_OK;
}
