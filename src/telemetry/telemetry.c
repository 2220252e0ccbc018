/* Telemetry opened, closed and asked. */
#include "telemetry/telemetry_int.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/options.h"

static avo_status take_options(avo_telemetry_options *own, const avo_telemetry_options *given,
                               avo_error *error) {
    *own = (avo_telemetry_options)AVO_TELEMETRY_OPTIONS_INIT;
    AVO_TRY(options_take(own, sizeof(*own), given, "avo_telemetry_options", error));
    if (own->spans_max == 0)
        own->spans_max = TELEMETRY_SPANS_DEFAULT;
    if (own->adapters_max == 0)
        own->adapters_max = TELEMETRY_ADAPTERS_DEFAULT;
    if (own->spans_max > TELEMETRY_SPANS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "spans_max: %u; at most %u", own->spans_max,
                           TELEMETRY_SPANS_MAX);
    if (own->adapters_max > TELEMETRY_ADAPTERS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "adapters_max: %u; at most %u",
                           own->adapters_max, TELEMETRY_ADAPTERS_MAX);
    return AVO_OK;
}

avo_status avo_telemetry_open(const avo_telemetry_options *options, const avo_allocator *allocator,
                              avo_telemetry **out, avo_error *error) {
    *out = NULL;
    avo_telemetry_options own;
    AVO_TRY(take_options(&own, options, error));
    avo_telemetry *t = allocator_take_array(allocator, 1, sizeof(*t));
    if (t == NULL)
        return status_no_memory(error, "telemetry", sizeof(*t));
    t->allocator = allocator;
    t->options = own;
    t->opened_ns = clock_now_ns();
    atomic_init(&t->tracers, 0);
    *out = t;
    return AVO_OK;
}

void avo_telemetry_close(avo_telemetry *t) {
    if (t != NULL)
        allocator_give(t->allocator, t, sizeof(*t));
}

void avo_telemetry_trace_begin(avo_telemetry *t) {
    atomic_fetch_add(&t->tracers, 1);
}

void avo_telemetry_trace_end(avo_telemetry *t) {
    atomic_fetch_sub(&t->tracers, 1);
}

bool telemetry_tracing(const avo_telemetry *t) {
    return t != NULL && atomic_load_explicit(&t->tracers, memory_order_relaxed) > 0;
}
