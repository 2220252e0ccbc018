/* device/registry: the order of the search, what is passed over and why, and that a device asked
 * for by its own name is never replaced by another one. */
#include "support/support.h"

#include "device/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Drivers without hardware ---- */

static int opened_now; /* devices */

static void close_fake(device *device) {
    free(device);
    opened_now--;
}

static const device_operations fake_operations = {.close = close_fake};

static avo_status works(const device_driver *driver, const char *parameters, avo_error *error) {
    (void)driver;
    (void)parameters;
    (void)error;
    return AVO_OK;
}

static avo_status lacks(const device_driver *driver, const char *parameters, avo_error *error) {
    (void)parameters;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "there is no %s card", driver->name);
}

static avo_status takes_numbers(const device_driver *driver, const char *parameters,
                                avo_error *error) {
    if (parameters == NULL || strspn(parameters, "0123456789") == strlen(parameters))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "device '%s:%s': must be a number", driver->name,
                       parameters);
}

static avo_status open_fake(const device_driver *driver, const device_options *options,
                            const char *parameters, device **out, avo_error *error) {
    (void)options;
    (void)error;
    device *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    made->operations = &fake_operations;
    made->info.name = parameters != NULL ? parameters : driver->name;
    made->info.kind = driver->kind;
    made->info.arithmetic = "exact";
    made->info.bits = "fast";
    opened_now++;
    *out = made;
    return AVO_OK;
}

static avo_status open_fails(const device_driver *driver, const device_options *options,
                             const char *parameters, device **out, avo_error *error) {
    (void)options;
    (void)parameters;
    (void)out;
    return status_fail(error, AVO_ERROR_DEVICE, "%s has fallen off the bus", driver->name);
}

static avo_status open_without_memory(const device_driver *driver, const device_options *options,
                                      const char *parameters, device **out, avo_error *error) {
    (void)driver;
    (void)options;
    (void)parameters;
    (void)out;
    return status_no_memory(error, "the device", 64);
}

static avo_status open_refuses_options(const device_driver *driver, const device_options *options,
                                       const char *parameters, device **out, avo_error *error) {
    (void)driver;
    (void)options;
    (void)parameters;
    (void)out;
    return status_fail(error, AVO_ERROR_ARGUMENT, "threads is 9, must be at most 8");
}

/* In no order: the priority decides. */
static const device_driver slow = {"slow", "cpu", 0, works, open_fake};
static const device_driver fast = {"fast", "cpu", 10, works, open_fake};
static const device_driver missing = {"missing", "card", 50, lacks, open_fake};
static const device_driver broken = {"broken", "card", 40, works, open_fails};
static const device_driver numbered = {"numbered", "numbers", -1, takes_numbers, open_fake};
static const device_driver *const drivers[] = {&fast, &missing, &numbered, &slow, &broken, NULL};

typedef struct search {
    char log[512];
    const char *refused; /* a name that is not accepted; NULL: none */
    avo_status refusal;
} search;

static void take_line(void *context, const char *line) {
    search *s = context;
    size_t used = strlen(s->log);
    snprintf(s->log + used, sizeof(s->log) - used, "%s\n", line);
}

static avo_status accept(void *context, const device *device, avo_error *error) {
    const search *s = context;
    const char *name = device_describe(device)->name;
    if (s->refused == NULL || strstr(s->refused, name) == NULL)
        return AVO_OK;
    return status_fail(error, s->refusal, "%s cannot compute q9_x", name);
}

/* The name of what opens, or "". */
static avo_status open_one(const device_driver *const *table, const char *name, search *s,
                           const char **found, avo_error *error) {
    device_options options = {
        .name = name, .accept = accept, .accept_context = s, .log = take_line, .log_context = s};
    device *device;
    *error = (avo_error){0};
    avo_status status = device_open_among(table, &options, &device, error);
    *found = status == AVO_OK ? device_describe(device)->name : "";
    assert_int_equal(device == NULL, status != AVO_OK);
    device_close(device);
    assert_int_equal(opened_now, 0); /* nothing that was passed over is left open */
    return status;
}

/* ---- Tests ---- */

static void the_next_one_is_taken(void **state) {
    (void)state;
    avo_error error;
    const char *found;
    static const char *const automatic[] = {"auto", "", NULL};
    for (size_t i = 0; i < 3; i++) {
        search s = {0};
        assert_ok_error(open_one(drivers, automatic[i], &s, &found, &error), &error);
        assert_string_equal(found, "fast");
        assert_string_equal(s.log, "passed over missing: there is no missing card\n"
                                   "passed over broken: broken has fallen off the bus\n");
    }
    /* What the model needs counts, too; a device that lacks memory for it is passed over. */
    static const avo_status refusals[] = {AVO_ERROR_UNSUPPORTED, AVO_ERROR_MEMORY};
    for (size_t i = 0; i < 2; i++) {
        search s = {.refused = "fast", .refusal = refusals[i]};
        assert_ok_error(open_one(drivers, "cpu", &s, &found, &error), &error);
        assert_string_equal(found, "slow");
        assert_string_equal(s.log, "passed over fast: fast cannot compute q9_x\n");
    }
}

static void a_name_is_never_replaced(void **state) {
    (void)state;
    avo_error error;
    const char *found;
    search s = {0};
    assert_refused(open_one(drivers, "missing", &s, &found, &error), AVO_ERROR_UNSUPPORTED, &error,
                   "device 'missing' is not available on this machine: there is no missing card; "
                   "available: slow fast broken");
    assert_refused(open_one(drivers, "broken", &s, &found, &error), AVO_ERROR_DEVICE, &error,
                   "broken has fallen off the bus");
    s = (search){.refused = "fast", .refusal = AVO_ERROR_MEMORY};
    assert_refused(open_one(drivers, "fast", &s, &found, &error), AVO_ERROR_MEMORY, &error,
                   "fast cannot compute q9_x");
    assert_string_equal(s.log, "");
    /* Nor by another one of another kind. */
    assert_refused(open_one(drivers, "card", &s, &found, &error), AVO_ERROR_DEVICE, &error,
                   "broken has fallen off the bus");
    static const device_driver *const absent[] = {&missing, &slow, NULL};
    assert_refused(open_one(absent, "card", &s, &found, &error), AVO_ERROR_UNSUPPORTED, &error,
                   "device 'card' is not available on this machine: there is no missing card");
}

/* Another device would refuse the same options, and the host's memory is one and the same. */
static void some_failures_end_the_search(void **state) {
    (void)state;
    static const device_driver poor = {"poor", "cpu", 20, works, open_without_memory};
    static const device_driver strict = {"strict", "cpu", 20, works, open_refuses_options};
    static const device_driver *const with_poor[] = {&slow, &poor, NULL};
    static const device_driver *const with_strict[] = {&slow, &strict, NULL};
    avo_error error;
    const char *found;
    search s = {0};
    assert_int_equal(open_one(with_poor, "auto", &s, &found, &error), AVO_ERROR_MEMORY);
    assert_refused(open_one(with_strict, "auto", &s, &found, &error), AVO_ERROR_ARGUMENT, &error,
                   "threads is 9");
    assert_string_equal(s.log, "");
}

static void the_best_failure_is_reported(void **state) {
    (void)state;
    avo_error error;
    const char *found;
    search s = {.refused = "fast slow", .refusal = AVO_ERROR_UNSUPPORTED};
    assert_refused(open_one(drivers, "cpu", &s, &found, &error), AVO_ERROR_UNSUPPORTED, &error,
                   "fast cannot compute q9_x");
    assert_string_equal(s.log, "passed over fast: fast cannot compute q9_x\n"
                               "passed over slow: slow cannot compute q9_x\n");
}

static void parameters_belong_to_a_device(void **state) {
    (void)state;
    avo_error error;
    const char *found;
    search s = {0};
    assert_ok_error(open_one(drivers, "numbered:1", &s, &found, &error), &error);
    assert_string_equal(found, "1");
    assert_refused(open_one(drivers, "numbered:x", &s, &found, &error), AVO_ERROR_ARGUMENT, &error,
                   "device 'numbered:x': must be a number");
    assert_refused(open_one(drivers, "auto:1", &s, &found, &error), AVO_ERROR_ARGUMENT, &error,
                   "'auto' stands for several");
    assert_refused(open_one(drivers, "cpu:1", &s, &found, &error), AVO_ERROR_ARGUMENT, &error,
                   "'cpu' stands for several");
    /* A priority below 0 is for those who ask for the name; their kind has no best one. */
    assert_refused(open_one(drivers, "numbers", &s, &found, &error), AVO_ERROR_ARGUMENT, &error,
                   "unknown device 'numbers'");
}

static avo_status open_wordy(const device_driver *driver, const device_options *options,
                             const char *parameters, device **out, avo_error *error) {
    AVO_TRY(open_fake(driver, options, NULL, out, error));
    (*out)->info.bits = parameters != NULL ? parameters : "eight888";
    return AVO_OK;
}

/* Session files have 8 bytes for it. */
static void the_name_of_an_arithmetic_is_short(void **state) {
    (void)state;
    static const device_driver wordy = {"wordy", "card", 40, works, open_wordy};
    static const device_driver *const table[] = {&slow, &wordy, NULL};
    avo_error error;
    const char *found;
    search s = {0};
    assert_ok_error(open_one(table, "wordy:seven77", &s, &found, &error), &error);
    assert_refused(open_one(table, "wordy:eight888", &s, &found, &error), AVO_ERROR_LIMIT, &error,
                   "device wordy: the name of its arithmetic is 'eight888', must have 1 to 7");
    assert_refused(open_one(table, "wordy:", &s, &found, &error), AVO_ERROR_LIMIT, &error,
                   "must have 1 to 7");
    assert_ok_error(open_one(table, "auto", &s, &found, &error), &error);
    assert_string_equal(found, "slow");
}

static void finding_opens_nothing(void **state) {
    (void)state;
    avo_error error = {0};
    const device_driver *found;
    assert_ok_error(device_find_among(drivers, "auto", &found, &error), &error);
    assert_ptr_equal(found, &broken); /* what a probe cannot know, opening will tell */
    assert_ok_error(device_find_among(drivers, "cpu", &found, &error), &error);
    assert_ptr_equal(found, &fast);
    assert_refused(device_find_among(drivers, "missing", &found, &error), AVO_ERROR_UNSUPPORTED,
                   &error, "there is no missing card");
    assert_refused(device_find_among(drivers, "numbered:x", &found, &error), AVO_ERROR_ARGUMENT,
                   &error, "must be a number");
    assert_refused(device_find_among(drivers, "vmx", &found, &error), AVO_ERROR_ARGUMENT, &error,
                   "unknown device 'vmx'; available: auto cpu slow fast broken");
    assert_null(found);
}

/* The drivers of this build. */
static void the_best_is_last(void **state) {
    (void)state;
    char names[128];
    avo_error error = {0};
    const char *found;
    device_names(names, sizeof(names));
    assert_memory_equal(names, "ref", 3);
    assert_ok_error(device_find("auto", &found, &error), &error);
    const char *space = strrchr(names, ' ');
    assert_string_equal(found, space != NULL ? space + 1 : names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_one_is_taken),
        cmocka_unit_test(a_name_is_never_replaced),
        cmocka_unit_test(some_failures_end_the_search),
        cmocka_unit_test(the_best_failure_is_reported),
        cmocka_unit_test(parameters_belong_to_a_device),
        cmocka_unit_test(the_name_of_an_arithmetic_is_short),
        cmocka_unit_test(finding_opens_nothing),
        cmocka_unit_test(the_best_is_last),
    };
    return cmocka_run_group_tests_name("device/registry", tests, NULL, NULL);
}
