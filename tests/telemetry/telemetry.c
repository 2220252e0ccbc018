/* telemetry/: opening, closing, refusals, and exports of what has nothing to say. */
#include "support/support.h"

#include "base/clock.h"
#include "base/json.h"
#include "telemetry/telemetry.h"

#include <string.h>

static bool collect(void *context, const char *text, size_t bytes) {
    return buffer_append(context, text, bytes) == AVO_OK;
}

static bool refuse(void *context, const char *text, size_t bytes) {
    (void)context;
    (void)text;
    (void)bytes;
    return false;
}

static avo_telemetry *opened(void) {
    avo_telemetry *telemetry = NULL;
    avo_error error;
    assert_ok_error(avo_telemetry_open(NULL, NULL, &telemetry, &error), &error);
    return telemetry;
}

static void every_form_is_written(void **state) {
    (void)state;
    avo_telemetry *telemetry = opened();
    avo_error error;
    for (int form = AVO_TELEMETRY_PROMETHEUS; form <= AVO_TELEMETRY_CSV; form++) {
        buffer text;
        buffer_init(&text, NULL, SIZE_MAX);
        assert_ok_error(
            avo_telemetry_export(telemetry, (avo_telemetry_form)form, collect, &text, &error),
            &error);
        assert_true(text.size > 0);
        buffer_free(&text);
    }
    avo_telemetry_close(telemetry);
    avo_telemetry_close(NULL);
}

static void json_is_json(void **state) {
    (void)state;
    avo_telemetry *telemetry = opened();
    avo_error error;
    buffer text;
    arena arena;
    buffer_init(&text, NULL, SIZE_MAX);
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok_error(avo_telemetry_export(telemetry, AVO_TELEMETRY_JSON, collect, &text, &error),
                    &error);
    json_value root;
    assert_ok_error(json_parse(&arena, buffer_text(&text), &root, &error), &error);
    assert_non_null(json_find(&root, "time"));
    assert_non_null(json_find(&root, "uptime"));
    text.size = 0;
    assert_ok_error(avo_telemetry_trace_write(telemetry, 1.0, collect, &text, &error), &error);
    assert_ok_error(json_parse(&arena, buffer_text(&text), &root, &error), &error);
    assert_non_null(json_find(&root, "traceEvents"));
    arena_free(&arena);
    buffer_free(&text);
    avo_telemetry_close(telemetry);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    avo_error error;
    avo_telemetry *telemetry = NULL;
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    options.spans_max = UINT32_MAX;
    assert_int_equal(avo_telemetry_open(&options, NULL, &telemetry, &error), AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "spans_max"));
    options = (avo_telemetry_options)AVO_TELEMETRY_OPTIONS_INIT;
    options.adapters_max = UINT32_MAX;
    assert_int_equal(avo_telemetry_open(&options, NULL, &telemetry, &error), AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "adapters_max"));
    assert_null(telemetry);
    telemetry = opened();
    assert_int_equal(avo_telemetry_export(telemetry, (avo_telemetry_form)7, collect, NULL, &error),
                     AVO_ERROR_ARGUMENT);
    assert_int_equal(
        avo_telemetry_export(telemetry, AVO_TELEMETRY_PROMETHEUS, refuse, NULL, &error),
        AVO_ERROR_CANCELLED);
    assert_int_equal(avo_telemetry_trace_write(telemetry, 0.0, collect, NULL, &error),
                     AVO_ERROR_ARGUMENT);
    assert_int_equal(avo_telemetry_trace_write(telemetry, 1.0, refuse, NULL, &error),
                     AVO_ERROR_CANCELLED);
    avo_telemetry_close(telemetry);
}

/* A reader of the trace, in whose time tracks close and open and others look. */
typedef struct slow_reader {
    avo_telemetry *telemetry;
    telemetry_track *track, *next;
    buffer text;
    unsigned calls;
} slow_reader;

static bool read_slowly(void *context, const char *text, size_t bytes) {
    slow_reader *reader = context;
    avo_error error;
    if (reader->calls++ == 0) {
        buffer metrics;
        buffer_init(&metrics, NULL, SIZE_MAX);
        telemetry_track_close(reader->track);
        assert_ok_error(telemetry_track_open(reader->telemetry, "next", &reader->next, &error),
                        &error);
        assert_ok_error(avo_telemetry_export(reader->telemetry, AVO_TELEMETRY_PROMETHEUS, collect,
                                             &metrics, &error),
                        &error);
        buffer_free(&metrics);
    }
    return buffer_append(&reader->text, text, bytes) == AVO_OK;
}

static void a_trace_is_written_without_the_lock(void **state) {
    (void)state;
    enum { SPANS = 3000 };
    avo_error error;
    slow_reader reader = {.telemetry = opened()};
    buffer_init(&reader.text, NULL, SIZE_MAX);
    assert_ok_error(telemetry_track_open(reader.telemetry, "first", &reader.track, &error), &error);
    for (uint32_t i = 0; i < SPANS; i++) {
        telemetry_span span = {.begin_ns = clock_now_ns(), .kind = SPAN_SAMPLE, .a = i};
        span.end_ns = span.begin_ns + 1;
        telemetry_track_add(reader.track, &span);
    }
    assert_ok_error(avo_telemetry_trace_write(reader.telemetry, 1e6, read_slowly, &reader, &error),
                    &error);
    assert_true(reader.calls > 1);
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    json_value root;
    assert_ok_error(json_parse(&arena, buffer_text(&reader.text), &root, &error), &error);
    const json_value *events = json_find(&root, "traceEvents");
    assert_true(events->array.count >= SPANS);
    arena_free(&arena);
    buffer_free(&reader.text);
    telemetry_track_close(reader.next);
    avo_telemetry_close(reader.telemetry);
}

/* Times of phases are those of the first worker, and stay when its engine closes. */
static void times_of_phases_add_up(void **state) {
    (void)state;
    avo_error error;
    avo_telemetry *telemetry = opened();
    telemetry_engine *engine = NULL;
    telemetry_facts facts = {.model_path = "m", .isa = "ref", .workers = 2, .threads = 2};
    assert_ok_error(telemetry_engine_open(telemetry, &facts, &engine, &error), &error);
    uint64_t now = clock_now_ns(), found[SPAN_PHASES];
    for (uint32_t worker = 0; worker < 2; worker++)
        telemetry_engine_phase(engine, &(telemetry_phase){.kind = SPAN_ATTENTION,
                                                          .worker = worker,
                                                          .begin_ns = now - (worker + 1) * 1000});
    for (int closed = 0; closed < 2; closed++) {
        telemetry_phase_times(telemetry, found);
        assert_in_range(found[SPAN_ATTENTION], 1000, clock_now_ns() - now + 1000);
        assert_int_equal(found[SPAN_HEAD], 0);
        if (closed == 0)
            telemetry_engine_close(engine);
    }
    avo_telemetry_close(telemetry);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_written),
        cmocka_unit_test(json_is_json),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_trace_is_written_without_the_lock),
        cmocka_unit_test(times_of_phases_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
