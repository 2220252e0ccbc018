/* What the laboratory may ask of an engine. */
#include "engine/draft_notes.h"

#include "engine/engine_int.h"

void engine_draft_observe(avo_engine *engine, const draft_observer *observer) {
    engine->draft_observer = observer;
}

void engine_draft_control(avo_engine *engine, draft_controller controller) {
    if (engine->speculation != NULL)
        speculation_control(engine->speculation, controller);
}

const step_cost *engine_draft_cost(const avo_engine *engine) {
    return &engine->cost;
}
