/* Files that grow, recordings of the seconds to come, and what is said where counters are refused.
 * AVO_TEST_THREADS */
#include "support/support.h"

#include "base/clock.h"
#include "base/file.h"
#include "telemetry/hardware.h"
#include "telemetry/table.h"
#include "telemetry/telemetry_int.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "a,b\n"

static const char *scratch(const char *name) {
    static char path[2][512];
    static int turn;
    turn = 1 - turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", test_scratch_folder(), name);
    return path[turn];
}

static void append(const char *path, uint64_t bytes_max, const char *lines) {
    avo_error error;
    table_file table = {.path = path, .header = TEXT_LITERAL(HEADER), .bytes_max = bytes_max};
    assert_ok_error(table_append(&table, text_from(lines), &error), &error);
}

static void holds(const char *path, const char *wanted) {
    avo_error error;
    file_map map;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_int_equal(map.bytes.size, strlen(wanted));
    assert_memory_equal(map.bytes.data, wanted, map.bytes.size);
    file_map_close(&map);
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* ---- Tables ---- */

static void a_table_has_one_header(void **state) {
    (void)state;
    const char *path = scratch("one.csv");
    append(path, 0, "");
    holds(path, HEADER);
    append(path, 0, "1,2\n");
    append(path, 0, "");
    append(path, 0, "3,4\n");
    holds(path, HEADER "1,2\n3,4\n");
}

static void another_header_is_refused_and_stays(void **state) {
    (void)state;
    avo_error error;
    const char *path = scratch("other.csv");
    static const char *const others[] = {"a,c\n1,2\n", "a,b", "x", "a,b,c\n"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        put(path, others[i]);
        table_file table = {.path = path, .header = TEXT_LITERAL(HEADER)};
        assert_int_equal(table_append(&table, TEXT_LITERAL("1,2\n"), &error), AVO_ERROR_FORMAT);
        assert_non_null(strstr(error.text, "first line differs"));
        holds(path, others[i]);
    }
    table_file nowhere = {.path = "/nowhere/at/all.csv", .header = TEXT_LITERAL(HEADER)};
    assert_int_equal(table_append(&nowhere, TEXT_LITERAL(""), &error), AVO_ERROR_IO);
    table_file folder = {.path = test_scratch_folder(), .header = TEXT_LITERAL(HEADER)};
    assert_int_equal(table_append(&folder, TEXT_LITERAL(""), &error), AVO_ERROR_IO);
}

static void a_line_that_was_left_unfinished_is_ended(void **state) {
    (void)state;
    const char *path = scratch("torn.csv");
    put(path, HEADER "1,2\n3");
    append(path, 0, "5,6\n");
    holds(path, HEADER "1,2\n3\n5,6\n");
}

static void a_full_file_is_put_away(void **state) {
    (void)state;
    const char *path = scratch("full.csv");
    append(path, 12, "1,2\n");
    append(path, 12, "3,4\n");
    holds(path, HEADER "1,2\n3,4\n");
    append(path, 12, ""); /* a check moves nothing */
    append(path, 12, "5,6\n");
    holds(path, HEADER "5,6\n");
    holds(scratch("full.csv.1"), HEADER "1,2\n3,4\n");
    append(path, 12, "7,8\n");
    append(path, 12, "9,0\n");
    holds(path, HEADER "9,0\n");
    holds(scratch("full.csv.1"), HEADER "5,6\n7,8\n");
    append(path, 1, "1,1\n"); /* however small: at least one row stands in a file */
    holds(path, HEADER "1,1\n");
}

#define WRITERS 4
#define LINES   60

static void *write_many(void *context) {
    for (int i = 0; i < LINES; i++)
        append(context, 200, "12,34\n");
    return NULL;
}

/* Whoever moves the full file away, nobody writes into the one that was moved without its lock. */
static void lines_of_many_stay_whole(void **state) {
    (void)state;
    static char path[512];
    snprintf(path, sizeof(path), "%s", scratch("many.csv"));
    pthread_t writer[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writer[i], NULL, write_many, path), 0);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writer[i], NULL);
    const char *const both[] = {"many.csv", "many.csv.1"};
    for (int i = 0; i < 2; i++) {
        avo_error error;
        file_map map;
        assert_ok_error(file_map_open(scratch(both[i]), &map, &error), &error);
        assert_true(map.bytes.size <= 200 && (map.bytes.size - 4) % 6 == 0);
        assert_memory_equal(map.bytes.data, HEADER, 4);
        for (size_t at = 4; at < map.bytes.size; at += 6)
            assert_memory_equal(map.bytes.data + at, "12,34\n", 6);
        file_map_close(&map);
    }
}

/* ---- Recordings ---- */

#define SPANS_EACH 600u

typedef struct recorded {
    avo_telemetry *t;
    telemetry_track *track;
    pthread_t id; /* who writes into the track */
    atomic_bool stop, held;
    atomic_ullong wanted, written; /* spans */
    buffer text;
} recorded;

static void pause_shortly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* As many spans as are wanted. */
static void *make_spans(void *context) {
    recorded *r = context;
    while (!atomic_load(&r->stop)) {
        if (atomic_load(&r->written) == atomic_load(&r->wanted)) {
            pause_shortly();
            continue;
        }
        uint64_t now = clock_now_ns();
        telemetry_track_add(
            r->track,
            &(telemetry_span){.kind = SPAN_EMBED, .begin_ns = now, .end_ns = now + 1, .id = 0});
        atomic_fetch_add(&r->written, 1);
    }
    return NULL;
}

/* Asked whenever the ring was emptied: then more spans come, and the ring is not looked at before
 * all of them are there. */
static bool want_more(void *context) {
    recorded *r = context;
    uint64_t wanted = atomic_fetch_add(&r->wanted, SPANS_EACH) + SPANS_EACH;
    while (atomic_load(&r->held) || atomic_load(&r->written) < wanted)
        pause_shortly();
    return true;
}

static bool collect(void *context, const char *text, size_t bytes) {
    return buffer_append(&((recorded *)context)->text, text, bytes) == AVO_OK;
}

static size_t count_of(const buffer *text, const char *part) {
    /* Not by strstr: with AddressSanitizer each call looks at all of the rest. */
    size_t count = 0, length = strlen(part);
    for (size_t at = 0; at + length <= text->size; at++)
        count += text->data[at] == part[0] && memcmp(text->data + at, part, length) == 0;
    return count;
}

static bool never(void *context) {
    (void)context;
    return false;
}

static void recorded_open(recorded *r, uint32_t ring) {
    avo_error error;
    avo_telemetry_options options = AVO_TELEMETRY_OPTIONS_INIT;
    options.spans_max = ring;
    memset(r, 0, sizeof(*r));
    assert_ok_error(avo_telemetry_open(&options, NULL, &r->t, &error), &error);
    assert_ok_error(telemetry_track_open(r->t, "worker", &r->track, &error), &error);
    buffer_init(&r->text, NULL, SIZE_MAX);
    assert_int_equal(pthread_create(&r->id, NULL, make_spans, r), 0);
}

static avo_status record(recorded *r, uint64_t spans_max, avo_error *error) {
    avo_trace_reader reader = {want_more, collect, r};
    r->text.size = 0;
    avo_status status = avo_telemetry_trace_record(r->t, 0.2, spans_max, &reader, error);
    assert_int_equal(buffer_terminate(&r->text), AVO_OK);
    return status;
}

static void recorded_close(recorded *r) {
    atomic_store(&r->stop, true);
    pthread_join(r->id, NULL);
    telemetry_track_close(r->track);
    avo_telemetry_close(r->t);
    buffer_free(&r->text);
}

static void a_recording_loses_nothing_that_it_has_room_for(void **state) {
    (void)state;
    recorded r;
    avo_error error;
    recorded_open(&r, 1024); /* less than twice what comes between two looks */
    assert_ok_error(record(&r, 0, &error), &error);
    assert_int_equal(count_of(&r.text, "spans_"), 0);
    assert_int_equal(count_of(&r.text, "\"name\":\"embed\""), atomic_load(&r.written));
    /* Far more than there is room for: as many as that, and the rest is said. */
    assert_ok_error(record(&r, 100, &error), &error);
    assert_int_equal(count_of(&r.text, "\"name\":\"embed\""), 100);
    assert_int_equal(count_of(&r.text, "spans_dropped"), 1);
    assert_int_equal(count_of(&r.text, "spans_overwritten"), 0);
    recorded_close(&r);
}

static void a_ring_that_is_too_fast_is_said(void **state) {
    (void)state;
    recorded r;
    avo_error error;
    recorded_open(&r, 16);
    assert_ok_error(record(&r, 0, &error), &error);
    assert_int_equal(count_of(&r.text, "spans_overwritten"), 1);
    assert_true(count_of(&r.text, "\"name\":\"embed\"") >= 16);
    recorded_close(&r);
}

static void *record_long(void *context) {
    avo_error error;
    recorded *r = context;
    assert_ok_error(record(r, 0, &error), &error);
    return NULL;
}

static void one_recording_at_a_time(void **state) {
    (void)state;
    recorded r;
    avo_error error;
    pthread_t other;
    recorded_open(&r, 1024);
    avo_trace_reader gone = {never, collect, NULL};
    assert_int_equal(avo_telemetry_trace_record(r.t, 60.0, 0, &gone, &error), AVO_ERROR_CANCELLED);
    assert_int_equal(avo_telemetry_trace_record(r.t, 0.0, 0, &gone, &error), AVO_ERROR_ARGUMENT);
    assert_false(telemetry_tracing(r.t));
    atomic_store(&r.held, true);
    assert_int_equal(pthread_create(&other, NULL, record_long, &r), 0);
    while (!telemetry_tracing(r.t))
        pause_shortly();
    assert_int_equal(avo_telemetry_trace_record(r.t, 60.0, 0, &gone, &error), AVO_ERROR_LIMIT);
    atomic_store(&r.held, false);
    pthread_join(other, NULL);
    assert_false(telemetry_tracing(r.t));
    recorded_close(&r);
}

/* ---- Counters that are refused ---- */

static void refusals_say_what_to_do(void **state) {
    (void)state;
    char text[256];
    hardware_refusal(4, text, sizeof(text));
    assert_non_null(strstr(text, "kernel.perf_event_paranoid is 4"));
    assert_non_null(strstr(text, "kernel.perf_event_paranoid"));
    hardware_refusal(2, text, sizeof(text));
    assert_non_null(strstr(text, "seccomp"));
    assert_null(strstr(text, "sysctl"));
    hardware_reason(ENOENT, text, sizeof(text));
    assert_non_null(strstr(text, "virtual machine"));
    hardware_reason(EACCES, text, sizeof(text));
    assert_non_null(strstr(text, "perf_event"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_has_one_header),
        cmocka_unit_test(another_header_is_refused_and_stays),
        cmocka_unit_test(a_line_that_was_left_unfinished_is_ended),
        cmocka_unit_test(a_full_file_is_put_away),
        cmocka_unit_test(lines_of_many_stay_whole),
        cmocka_unit_test(a_recording_loses_nothing_that_it_has_room_for),
        cmocka_unit_test(a_ring_that_is_too_fast_is_said),
        cmocka_unit_test(one_recording_at_a_time),
        cmocka_unit_test(refusals_say_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
