/* Counters, histograms and spans, as those record who compute. */
#ifndef AVO_TELEMETRY_TELEMETRY_H
#define AVO_TELEMETRY_TELEMETRY_H

#include "base/status.h"

/* Whether spans within steps are wanted now. NULL: never. */
bool telemetry_tracing(const avo_telemetry *t);

#endif
