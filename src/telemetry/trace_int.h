/* What writes a Chrome trace: the rings as they are (trace.c), or what was taken out of them while
 * it was recorded (trace_record.c). */
#ifndef AVO_TELEMETRY_TRACE_INT_H
#define AVO_TELEMETRY_TRACE_INT_H

#include "base/json_writer.h"
#include "telemetry/export_int.h"

typedef struct tracer {
    avo_telemetry *t;
    json_writer json;
    avo_write_function write;
    void *context;
    bool refused;
    uint64_t from_ns;
} tracer;

/* `text` holds what was not handed over yet. Open, begin, tracks and spans in any order, end. */
void trace_open(tracer *tracer, avo_telemetry *t, buffer *text, avo_write_function write,
                void *context);
void trace_begin(tracer *tracer);
/* Its name. */
void trace_track(tracer *tracer, const telemetry_track *track);
void trace_span(tracer *tracer, uint32_t track, const telemetry_span *span);
/* That spans of the track are missing, and by what. */
void trace_lost(tracer *tracer, const char *what, const telemetry_track *track, uint64_t count);
AVO_MUST_USE avo_status trace_end(tracer *tracer, avo_error *error);

#endif
