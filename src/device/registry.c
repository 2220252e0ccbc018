/* The drivers of this build and the choice among them. A driver that does not work on this machine
 * is never opened; where no device was named and the best one fails, the next one is tried. The
 * reference device always works. */
#include "device/driver.h"

#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/ranks/ranks.h"
#include "device/split/split.h"
#include "device/test/cuda_emulated.h"
#include "device/test/loopback.h"
#include "device/test/remote.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* AVO_KERNEL_LIST: X(name) of each instruction set of this build, from CMakeLists.txt. */
const device_driver *const *device_drivers(void) {
    static const device_driver *const drivers[] = {
        &device_remote,
        &device_cuda_emulated,
        &device_cuda,
        &device_loopback,
        &device_mpi,
        &device_split,
        &cpu_driver_reference,
#define X(set) &cpu_driver_##set,
        AVO_KERNEL_LIST
#undef X
            NULL,
    };
    return drivers;
}

/* ---- Names ---- */

/* What a name asks for: the drivers to be tried, the best one first. */
typedef struct device_wish {
    const char *name;       /* as asked for, without parameters */
    int length;             /* of it */
    const char *parameters; /* behind the colon; NULL: none */
    bool exact;             /* a driver's own name: nothing else will do */
    const device_driver *driver[DEVICE_DRIVERS_MAX];
    size_t count;
} device_wish;

static bool named(const device_wish *wish, const char *name) {
    return strlen(name) == (size_t)wish->length &&
           strncmp(wish->name, name, (size_t)wish->length) == 0;
}

/* Into its place by priority; of equals the first of the table stays first. */
static void add(device_wish *wish, const device_driver *driver) {
    assert(wish->count < DEVICE_DRIVERS_MAX);
    size_t at = wish->count++;
    for (; at > 0 && wish->driver[at - 1]->priority < driver->priority; at--)
        wish->driver[at] = wish->driver[at - 1];
    wish->driver[at] = driver;
}

/* "ref avx2": what works here, the best one last. */
static void names_of(const device_driver *const *drivers, char *text, size_t capacity) {
    device_wish all = {0};
    for (; *drivers != NULL; drivers++)
        if ((*drivers)->priority >= 0) /* others are for tests */
            add(&all, *drivers);
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = all.count; i-- > 0;) {
        const device_driver *driver = all.driver[i];
        if (driver->probe(driver, NULL, NULL) != AVO_OK)
            continue;
        int wrote =
            snprintf(text + used, capacity - used, "%s%s", used > 0 ? " " : "", driver->name);
        if (wrote < 0 || (size_t)wrote >= capacity - used)
            return;
        used += (size_t)wrote;
    }
}

void device_names(char *text, size_t capacity) {
    names_of(device_drivers(), text, capacity);
}

/* An instruction set that Avocet has kernels for, but this build does not. */
static bool other_build(const device_wish *wish) {
    static const char *const sets[] = {"avx2", "avx512", "amx", "neon"};
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        if (named(wish, sets[i]))
            return true;
    return false;
}

/* None of those that were asked for is here. */
static avo_status unavailable(const device_driver *const *drivers, const device_wish *wish,
                              const char *reason, avo_error *error) {
    char names[128];
    names_of(drivers, names, sizeof(names));
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "device '%.*s' is not available on this machine: %.300s; available: %s",
                       wish->length, wish->name, reason, names);
}

static avo_status read_wish(const device_driver *const *drivers, const char *name,
                            device_wish *wish, avo_error *error) {
    size_t length = strcspn(name, ":");
    *wish = (device_wish){.name = name,
                          .length = (int)length,
                          .parameters = name[length] == ':' ? name + length + 1 : NULL};
    bool automatic = length == 0 || named(wish, "auto");
    for (size_t i = 0; drivers[i] != NULL && !wish->exact; i++) {
        if (named(wish, drivers[i]->name)) {
            wish->exact = true;
            wish->driver[0] = drivers[i];
            wish->count = 1;
        } else if (drivers[i]->priority >= 0 && (automatic || named(wish, drivers[i]->kind))) {
            add(wish, drivers[i]);
        }
    }
    if (wish->count > 0 && (wish->exact || wish->parameters == NULL))
        return AVO_OK;
    char names[128];
    names_of(drivers, names, sizeof(names));
    if (wish->count > 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "device '%.60s': parameters after a colon need the name of one device, "
                           "'%.*s' stands for several; available: %s",
                           name, wish->length, name, names);
    if (other_build(wish))
        return unavailable(drivers, wish, "this build has no kernels for it", error);
    return status_fail(error, AVO_ERROR_ARGUMENT, "unknown device '%.*s'; available: auto cpu %s",
                       (int)(length < 40 ? length : 40), name, names);
}

/* ---- The choice ---- */

/* What others store of it must fit there. */
static avo_status check_info(const device *device, avo_error *error) {
    const device_info *info = device_describe(device);
    size_t length = strlen(info->bits);
    if (length > 0 && length < DEVICE_ARITHMETIC_MAX)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_LIMIT,
                       "device %s: the name of its arithmetic is '%.40s', must have 1 to %d "
                       "characters to be stored in session files",
                       info->name, info->bits, DEVICE_ARITHMETIC_MAX - 1);
}

static avo_status check_arithmetic_name(const char *name, avo_error *error) {
    if (name == NULL || strcmp(name, "exact") == 0 || strcmp(name, "fast") == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "arithmetic is '%.40s', must be \"exact\" or \"fast\"", name);
}

static avo_status check_arithmetic(const device_options *options, const device *device,
                                   avo_error *error) {
    const device_info *info = device_describe(device);
    if (options->arithmetic == NULL || strcmp(options->arithmetic, "exact") == 0 ||
        strcmp(info->arithmetic, options->arithmetic) == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "device %s has no fast arithmetic; use arithmetic \"exact\", or device "
                       "\"cuda\"",
                       info->name);
}

/* One driver; *there: it works here, and opening or accepting its device may have failed. */
static avo_status try_driver(const device_driver *driver, const device_wish *wish,
                             const device_options *options, bool *there, device **out,
                             avo_error *error) {
    avo_status status = driver->probe(driver, wish->parameters, error);
    *there = status != AVO_ERROR_UNSUPPORTED;
    if (status != AVO_OK)
        return status;
    status = driver->open(driver, options, wish->parameters, out, error);
    bool opened = status == AVO_OK;
    AVO_THEN(status, check_info(*out, error));
    AVO_THEN(status, check_arithmetic(options, *out, error));
    if (status == AVO_OK && options->accept != NULL)
        status = options->accept(options->accept_context, *out, error);
    if (status == AVO_OK)
        return AVO_OK;
    device_close(*out);
    *out = NULL;
    /* Where the host had the memory to open it, this is about the device. */
    return opened && status == AVO_ERROR_MEMORY && !wish->exact ? AVO_ERROR_DEVICE : status;
}

static void log_passed_over(const device_options *options, const char *name, const char *reason) {
    char line[512];
    if (options->log == NULL)
        return;
    snprintf(line, sizeof(line), "passed over %s: %.400s", name, reason);
    options->log(options->log_context, line);
}

avo_status device_open_among(const device_driver *const *drivers, const device_options *options,
                             device **out, avo_error *error) {
    device_wish wish;
    *out = NULL;
    AVO_TRY(check_arithmetic_name(options->arithmetic, error));
    AVO_TRY(read_wish(drivers, options->name == NULL ? "auto" : options->name, &wish, error));
    avo_error lacking = {0}, failed = {0}; /* of the best driver that is not here, and of the best
                                              one that is here and failed */
    for (size_t i = 0; i < wish.count; i++) {
        avo_error reason = {0};
        bool there;
        avo_status status = try_driver(wish.driver[i], &wish, options, &there, out, &reason);
        if (status == AVO_OK)
            return AVO_OK;
        avo_error *kept = there ? &failed : &lacking;
        if (kept->status == AVO_OK)
            *kept = reason;
        if (wish.exact || status == AVO_ERROR_ARGUMENT || status == AVO_ERROR_MEMORY)
            break;
        log_passed_over(options, wish.driver[i]->name, reason.text);
    }
    if (failed.status == AVO_OK)
        return unavailable(drivers, &wish, lacking.text, error);
    return status_fail(error, failed.status, "%s", failed.text);
}

avo_status device_find_among(const device_driver *const *drivers, const char *name,
                             const device_driver **found, avo_error *error) {
    device_wish wish;
    avo_error first = {0};
    *found = NULL;
    AVO_TRY(read_wish(drivers, name, &wish, error));
    for (size_t i = 0; i < wish.count; i++) {
        avo_error reason = {0};
        avo_status status = wish.driver[i]->probe(wish.driver[i], wish.parameters, &reason);
        if (status == AVO_ERROR_ARGUMENT)
            return status_fail(error, status, "%s", reason.text);
        if (status == AVO_OK) {
            *found = wish.driver[i];
            return AVO_OK;
        }
        first = i == 0 ? reason : first;
    }
    return unavailable(drivers, &wish, first.text, error);
}

const char *device_asked(const char *option, const char **from) {
    const char *asked = option;
    *from = "option";
    static const char *const variables[] = {"AVO_DEVICE", "AVO_ISA"};
    for (size_t i = 0; i < 2 && (asked == NULL || asked[0] == '\0'); i++) {
        asked = getenv(variables[i]);
        *from = variables[i];
    }
    if (asked != NULL && asked[0] != '\0' && strcmp(asked, "auto") != 0)
        return asked;
    *from = "best";
    return "auto";
}

avo_status device_find(const char *name, const char **found, avo_error *error) {
    const device_driver *driver;
    AVO_TRY(device_find_among(device_drivers(), name, &driver, error));
    *found = driver->name;
    return AVO_OK;
}

avo_status device_open(const device_options *options, device **out, avo_error *error) {
    return device_open_among(device_drivers(), options, out, error);
}

void device_close(device *device) {
    if (device != NULL)
        device->operations->close(device);
}

const avo_allocator *device_allocator(const device *device) {
    return device->allocator;
}

const device_info *device_describe(const device *device) {
    return &device->info;
}
