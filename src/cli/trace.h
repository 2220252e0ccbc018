/* `--trace FILE` of run and serve. A NULL path asks for no trace. */
#ifndef AVO_CLI_TRACE_H
#define AVO_CLI_TRACE_H

#include "base/status.h"

#define CLI_TRACE_ALL 1e9 /* seconds: all there is */

/* Spans are recorded from now on. */
AVO_MUST_USE avo_status cli_trace_open(const char *path, avo_telemetry **telemetry,
                                       avo_error *error);
/* Replaces the file with the spans of the last `seconds`. */
AVO_MUST_USE avo_status cli_trace_write(const char *path, avo_telemetry *telemetry, double seconds,
                                        avo_error *error);

#endif
