/* Inside telemetry/. */
#ifndef AVO_TELEMETRY_TELEMETRY_INT_H
#define AVO_TELEMETRY_TELEMETRY_INT_H

#include "base/buffer.h"
#include "telemetry/telemetry.h"

#include <stdatomic.h>

/* ---- Limits ---- */
#define TELEMETRY_SPANS_DEFAULT    32768u
#define TELEMETRY_SPANS_MAX        (1u << 24)
#define TELEMETRY_ADAPTERS_DEFAULT 64u
#define TELEMETRY_ADAPTERS_MAX     4096u

struct avo_telemetry {
    const avo_allocator *allocator;
    avo_telemetry_options options; /* every 0 replaced */
    uint64_t opened_ns;
    atomic_int tracers; /* who wants spans within steps */
};

/* ---- Exporters: everything into `out` ---- */

AVO_MUST_USE avo_status export_prometheus(avo_telemetry *t, buffer *out);
AVO_MUST_USE avo_status export_json(avo_telemetry *t, buffer *out);
AVO_MUST_USE avo_status export_csv(avo_telemetry *t, buffer *out);

#endif
