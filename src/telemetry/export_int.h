/* What exporters write with: the first failure stays, and nothing is written behind it. */
#ifndef AVO_TELEMETRY_EXPORT_INT_H
#define AVO_TELEMETRY_EXPORT_INT_H

#include "telemetry/telemetry_int.h"

typedef struct export_out {
    buffer *text;
    avo_status status;
} export_out;

void out_format(export_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Quoted and escaped as Prometheus has it; bytes that are no UTF-8 become U+FFFD. */
void out_label_text(export_out *out, const char *text);
/* The shortest decimals that read back the same; "null", "NaN": what a number that is none is. */
void out_number(export_out *out, double number, const char *none);

/* Whether this was the last character: nothing stands before the next item. */
static inline bool out_begins(const export_out *out, char opening) {
    return out->text->size == 0 || out->text->data[out->text->size - 1] == opening;
}

/* ---- The process ---- */

typedef struct process_facts {
    double cpu_seconds;
    uint64_t resident_bytes, faults;
} process_facts;
process_facts process_facts_now(void);

#endif
