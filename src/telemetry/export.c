/* The exporters' common part, and what every one of them says. */
#include "telemetry/telemetry_int.h"

#include "base/clock.h"

#include <time.h>

#define EXPORT_BYTES_MAX ((size_t)64 << 20)

static double uptime(const avo_telemetry *t) {
    return clock_seconds(t->opened_ns, clock_now_ns());
}

avo_status export_prometheus(avo_telemetry *t, buffer *out) {
    AVO_TRY(buffer_format(out,
                          "# HELP avocet_build_info What computes here.\n"
                          "# TYPE avocet_build_info gauge\n"
                          "avocet_build_info{version=\"%s\"} 1\n",
                          avo_version()));
    return buffer_format(out,
                         "# HELP avocet_uptime_seconds Since telemetry was opened.\n"
                         "# TYPE avocet_uptime_seconds gauge\n"
                         "avocet_uptime_seconds %.3f\n",
                         uptime(t));
}

avo_status export_json(avo_telemetry *t, buffer *out) {
    return buffer_format(out, "{\"time\":%lld,\"uptime\":%.3f}", (long long)time(NULL), uptime(t));
}

avo_status export_csv(avo_telemetry *t, buffer *out) {
    return buffer_format(out, "name,labels,value\navocet_uptime_seconds,,%.3f\n", uptime(t));
}

static avo_status hand_over(avo_status status, const buffer *text, avo_write_function write,
                            void *context, avo_error *error) {
    if (status != AVO_OK)
        return status_fail(error, status, "telemetry: %s", avo_status_text(status));
    if (!write(context, text->data, text->size))
        return status_fail(error, AVO_ERROR_CANCELLED, "telemetry: the reader wants no more");
    return AVO_OK;
}

avo_status avo_telemetry_export(avo_telemetry *t, avo_telemetry_form form, avo_write_function write,
                                void *context, avo_error *error) {
    avo_status (*const exporters[])(avo_telemetry *,
                                    buffer *) = {[AVO_TELEMETRY_PROMETHEUS] = export_prometheus,
                                                 [AVO_TELEMETRY_JSON] = export_json,
                                                 [AVO_TELEMETRY_CSV] = export_csv};
    if ((unsigned)form >= sizeof(exporters) / sizeof(exporters[0]))
        return status_fail(error, AVO_ERROR_ARGUMENT, "telemetry: there is no form %d", (int)form);
    buffer text;
    buffer_init(&text, t->allocator, EXPORT_BYTES_MAX);
    avo_status status = hand_over(exporters[form](t, &text), &text, write, context, error);
    buffer_free(&text);
    return status;
}

avo_status avo_telemetry_trace_write(avo_telemetry *t, double seconds, avo_write_function write,
                                     void *context, avo_error *error) {
    (void)t;
    if (!(seconds > 0.0))
        return status_fail(error, AVO_ERROR_ARGUMENT, "trace: %g seconds", seconds);
    static const char empty[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[]}";
    if (!write(context, empty, sizeof(empty) - 1))
        return status_fail(error, AVO_ERROR_CANCELLED, "telemetry: the reader wants no more");
    return AVO_OK;
}
