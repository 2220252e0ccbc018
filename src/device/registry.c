/* The drivers of this build and the choice among them. A driver that does not work on this machine
 * is never opened; where nothing else works, the reference device does. */
#include "device/driver.h"

#include "device/cpu/cpu.h"
#include "device/test/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const device_driver *const *device_drivers(void) {
    static const device_driver *const drivers[] = {
        &device_remote,     &cpu_driver_reference, &cpu_driver_avx2,
        &cpu_driver_avx512, &cpu_driver_amx,       NULL,
    };
    return drivers;
}

static void names_of(bool automatic, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (const device_driver *const *driver = device_drivers(); *driver != NULL; driver++) {
        if (!(*driver)->works() || (automatic && (*driver)->priority < 0))
            continue;
        int wrote =
            snprintf(text + used, capacity - used, "%s%s", used > 0 ? " " : "", (*driver)->name);
        if (wrote < 0 || (size_t)wrote >= capacity - used)
            return;
        used += (size_t)wrote;
    }
}

void device_names(char *text, size_t capacity) {
    names_of(true, text, capacity);
}

static bool named(const char *asked, size_t length, const char *name) {
    return strlen(name) == length && strncmp(asked, name, length) == 0;
}

/* The driver that a name without its parameters means; "auto" and kinds mean the best that works.
 */
static avo_status find(const char *asked, size_t length, const device_driver **found,
                       avo_error *error) {
    const device_driver *unusable = NULL;
    bool automatic = length == 0 || named(asked, length, "auto");
    *found = NULL;
    for (const device_driver *const *driver = device_drivers(); *driver != NULL; driver++) {
        bool exact = named(asked, length, (*driver)->name);
        bool best =
            (automatic || named(asked, length, (*driver)->kind)) && (*driver)->priority >= 0;
        if (!exact && !best)
            continue;
        if ((*driver)->works())
            *found = *driver;
        else if (exact)
            unusable = *driver;
    }
    if (*found != NULL && (unusable == NULL || automatic))
        return AVO_OK;
    char names[128];
    names_of(false, names, sizeof(names));
    if (unusable != NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "device '%.*s' is not available on this machine; available: %s",
                           (int)length, asked, names);
    return status_fail(error, AVO_ERROR_ARGUMENT, "unknown device '%.*s'; available: auto cpu %s",
                       (int)(length < 40 ? length : 40), asked, names);
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
    AVO_TRY(find(name, strcspn(name, ":"), &driver, error));
    *found = driver->name;
    return AVO_OK;
}

avo_status device_open(const device_options *options, device **out, avo_error *error) {
    const char *asked = options->name == NULL ? "auto" : options->name;
    size_t length = strcspn(asked, ":");
    const device_driver *driver;
    *out = NULL;
    AVO_TRY(find(asked, length, &driver, error));
    return driver->open(driver, options, asked[length] == ':' ? asked + length + 1 : NULL, out,
                        error);
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
