/* How fast an engine's device can read memory. */
#include "engine/engine_int.h"

avo_status avo_engine_measure(avo_engine *engine, double *bytes_per_second, avo_error *error) {
    *bytes_per_second = 0.0;
    AVO_TRY(engine_check_free(engine, error)); /* the scheduler's steps use the stream */
    AVO_TRY(device_stream_measure(engine->stream[0].stream, bytes_per_second, error));
    telemetry_engine_limit(engine->stream[0].telemetry, *bytes_per_second);
    return AVO_OK;
}
