/* An observed engine is a plain one on the reference back end. */
#include "engine/observe.h"

#include "engine/engine_int.h"

avo_status engine_open_observed(const avo_model *model, const avo_engine_options *options,
                                const step_observer *observer, avo_engine **out, avo_error *error) {
    avo_engine_options own = *options;
    own.device = "ref";
    AVO_TRY(avo_engine_open(model, &own, out, error));
    (*out)->observer = observer;
    return AVO_OK;
}

uint32_t engine_workers(const avo_engine *engine) {
    return device_stream_workers(engine->stream[0].stream);
}
