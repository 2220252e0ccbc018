/* What exporters share: the door, names, and how texts and numbers are written. */
#include "telemetry/export_int.h"

#include "base/cpu.h"
#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXPORT_BYTES_MAX ((size_t)256 << 20)

/* ---- Names ---- */

const char *stage_name(telemetry_stage stage) {
    static const char *const names[STAGES] = {"tokenise", "queue",  "prefill",
                                              "decode",   "sample", "deliver"};
    return names[stage];
}

const char *span_name(span_kind kind) {
    static const char *const names[SPAN_KINDS] = {"embed",
                                                  "attention_input",
                                                  "attention",
                                                  "attention_output",
                                                  "feed_forward_input",
                                                  "feed_forward_output",
                                                  "head",
                                                  "step",
                                                  "plan",
                                                  "sample",
                                                  "tokenise",
                                                  "deliver",
                                                  "queue",
                                                  "prefill",
                                                  "decode"};
    return names[kind];
}

const char *phase_name(span_kind phase) {
    return span_name(phase);
}

const char *finish_class_name(finish_class finish) {
    static const char *const names[FINISH_CLASSES] = {"stop", "length", "abort"};
    return names[finish];
}

const char *step_class_name(step_class step) {
    static const char *const names[STEP_CLASSES] = {"decode", "prefill", "mixed"};
    return names[step];
}

/* ---- Writing ---- */

void out_format(export_out *out, const char *format, ...) {
    char line[1024];
    if (out->status != AVO_OK)
        return;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    bool whole = bytes >= 0 && (size_t)bytes < sizeof(line);
    out->status = whole ? buffer_append(out->text, line, (size_t)bytes) : AVO_ERROR_LIMIT;
}

/* JSON's escapes are Prometheus's for quotes, backslashes and line ends; it knows no others, and
 * takes every other character as it is. So what JSON has made of the text is taken back but for
 * those three. */
void out_label_text(export_out *out, const char *text) {
    size_t begin = out->text->size;
    if (out->status == AVO_OK)
        out->status = json_write_string(out->text, text_from(text));
    if (out->status != AVO_OK)
        return;
    char *data = out->text->data;
    size_t to = begin, end = out->text->size;
    for (size_t at = begin; at < end; at++) {
        if (data[at] != '\\' || strchr("\"\\n", data[at + 1]) != NULL) {
            data[to++] = data[at];
            if (data[at] == '\\')
                data[to++] = data[++at];
            continue;
        }
        data[to++] = ' '; /* a control character: as good as none in a label */
        at += data[at + 1] == 'u' ? 5 : 1;
    }
    out->text->size = to;
}

void out_number(export_out *out, double number, const char *none) {
    if (!isfinite(number))
        out_format(out, "%s", none);
    else if (out->status == AVO_OK)
        out->status = json_write_number(out->text, number);
}

/* ---- The process ---- */

static double seconds_of(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

process_facts process_facts_now(void) {
    struct rusage usage;
    process_facts facts = {.resident_bytes = process_resident_bytes()};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        facts.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
        facts.faults = (uint64_t)usage.ru_majflt + (uint64_t)usage.ru_minflt;
    }
    return facts;
}

/* ---- The door ---- */

typedef avo_status (*exporter)(avo_telemetry *t, buffer *out);

static avo_status hand_over(avo_status status, const buffer *text, avo_write_function write,
                            void *context, avo_error *error) {
    if (status != AVO_OK)
        return status_fail(error, status, "telemetry: %s", avo_status_text(status));
    if (!write(context, text->data, text->size))
        return status_fail(error, AVO_ERROR_CANCELLED, "telemetry: the export was cancelled");
    return AVO_OK;
}

avo_status avo_telemetry_export(avo_telemetry *t, avo_telemetry_form form, avo_write_function write,
                                void *context, avo_error *error) {
    static const exporter exporters[] = {[AVO_TELEMETRY_PROMETHEUS] = export_prometheus,
                                         [AVO_TELEMETRY_JSON] = export_json,
                                         [AVO_TELEMETRY_CSV] = export_csv};
    if ((unsigned)form >= sizeof(exporters) / sizeof(exporters[0]))
        return status_fail(error, AVO_ERROR_ARGUMENT, "telemetry: unknown form %d", (int)form);
    buffer text;
    buffer_init(&text, t->allocator, EXPORT_BYTES_MAX);
    pthread_mutex_lock(&t->lock);
    avo_status status = exporters[form](t, &text);
    pthread_mutex_unlock(&t->lock); /* whoever takes the text may be slow */
    status = hand_over(status, &text, write, context, error);
    buffer_free(&text);
    return status;
}
