/* `avocet serve --telemetry`: exports into a file. */
#include "cli/serve_int.h"

#include "base/json.h"

void serve_telemetry_write(const serve_flags *flags, avo_telemetry *telemetry) {
    static bool failed; /* the main thread alone writes */
    avo_error error = {0};
    bool good = avo_telemetry_history(telemetry, flags->telemetry, flags->telemetry_mib << 20,
                                      &error) == AVO_OK;
    if (!good && !failed)
        cli_warn("--telemetry: %s; retrying every %g seconds", error.text,
                 flags->telemetry_seconds);
    else if (good && failed)
        cli_warn("--telemetry: writing to %s works again", flags->telemetry);
    failed = !good;
}

/* ---- Counters of the processor ---- */

static bool collect(void *context, const char *text, size_t bytes) {
    return buffer_append(context, text, bytes) == AVO_OK;
}

static void read_counters(const json_value *hardware, char *text, size_t capacity) {
    const json_value *reason = json_find(hardware, "reason");
    if (reason != NULL && reason->kind == JSON_STRING) {
        snprintf(text, capacity, "%.*s", (int)reason->string.size, reason->string.data);
        return;
    }
    size_t used = 0;
    static const char *const names[] = {"cycles", "instructions", "cache_references",
                                        "cache_misses"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && used < capacity; i++) {
        const json_value *value = json_find(hardware, names[i]);
        if (value == NULL || value->kind == JSON_NULL)
            continue;
        int wrote = snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "", names[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

void serve_telemetry_counters(avo_telemetry *telemetry, char *text, size_t capacity) {
    buffer json;
    arena arena;
    json_value root;
    avo_error error = {0};
    snprintf(text, capacity, "none");
    buffer_init(&json, NULL, SIZE_MAX);
    arena_init(&arena, NULL, SIZE_MAX);
    if (avo_telemetry_export(telemetry, AVO_TELEMETRY_JSON, collect, &json, &error) == AVO_OK &&
        json_parse(&arena, buffer_text(&json), &root, &error) == AVO_OK &&
        json_find(&root, "hardware") != NULL)
        read_counters(json_find(&root, "hardware"), text, capacity);
    arena_free(&arena);
    buffer_free(&json);
}
