/* Landlock: which files can still be opened. */
#include "server/sandbox.h"

#include "base/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define RIGHTS_READ (LANDLOCK_READ_FILE | LANDLOCK_READ_FOLDER)
#define RIGHTS_WRITE                                                                               \
    (RIGHTS_READ | LANDLOCK_WRITE_FILE | LANDLOCK_REMOVE_FILE | LANDLOCK_MAKE_FILE |               \
     LANDLOCK_TRUNCATE)

/* What the engine, the telemetry and the C library ask the system now and then. */
static const char *const system_paths[] = {
    "/proc/self",     "/proc/meminfo",  "/proc/stat",          "/proc/cpuinfo",
    "/sys/fs/cgroup", "/sys/devices",   "/sys/kernel/mm",      "/dev/null",
    "/dev/urandom",   "/etc/localtime", "/usr/share/zoneinfo", "/sys/bus/event_source",
};

bool sandbox_read(sandbox_options *options, const char *path) {
    if (options->read_count == SANDBOX_PATHS_MAX)
        return false;
    options->read[options->read_count++] = path;
    return true;
}

bool sandbox_write(sandbox_options *options, const char *path) {
    if (options->write_count == SANDBOX_PATHS_MAX)
        return false;
    options->write[options->write_count++] = path;
    return true;
}

static avo_status allow(int ruleset, const char *path, uint64_t rights, avo_error *error) {
    struct stat facts;
    int descriptor = open(path, O_PATH | O_CLOEXEC);
    if (descriptor < 0)
        return AVO_OK; /* not there: nothing to open */
    if (fstat(descriptor, &facts) == 0 && !S_ISDIR(facts.st_mode))
        rights &= LANDLOCK_OF_FILES;
    int result = landlock_allow(ruleset, descriptor, rights);
    int reason = errno;
    close(descriptor);
    return result == 0
               ? AVO_OK
               : status_fail(error, AVO_ERROR_IO, "sandbox: %s: %s", path, strerror(reason));
}

static avo_status allow_all(int ruleset, const sandbox_options *options, uint64_t handled,
                            avo_error *error) {
    for (size_t i = 0; i < sizeof(system_paths) / sizeof(system_paths[0]); i++)
        AVO_TRY(allow(ruleset, system_paths[i], RIGHTS_READ & handled, error));
    for (size_t i = 0; i < options->read_count; i++)
        AVO_TRY(allow(ruleset, options->read[i], RIGHTS_READ & handled, error));
    for (size_t i = 0; i < options->write_count; i++)
        AVO_TRY(allow(ruleset, options->write[i], RIGHTS_WRITE & handled, error));
    if (options->connect_port != 0 && landlock_abi() >= 4 &&
        landlock_allow_connect(ruleset, options->connect_port) != 0)
        return status_fail(error, AVO_ERROR_IO, "sandbox: port %u: %s", options->connect_port,
                           strerror(errno));
    return AVO_OK;
}

avo_status sandbox_files(const sandbox_options *options, char *report, size_t capacity,
                         avo_error *error) {
    long abi = landlock_abi();
    if (abi < 1) {
        snprintf(report, capacity, "no Landlock (%s): file access is not restricted",
                 strerror(errno));
        return AVO_OK;
    }
    int ruleset = landlock_rules(abi);
    if (ruleset < 0)
        return status_fail(error, AVO_ERROR_IO, "sandbox: cannot create Landlock rules: %s",
                           strerror(errno));
    avo_status status = allow_all(ruleset, options, landlock_rights(abi), error);
    if (status == AVO_OK &&
        (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || landlock_confine(ruleset) != 0))
        status = status_fail(error, AVO_ERROR_IO,
                             "sandbox: Landlock failed: %s; use --no-sandbox to run without it",
                             strerror(errno));
    close(ruleset);
    if (status == AVO_OK)
        snprintf(report, capacity, "Landlock (ABI %ld)", abi);
    return status;
}
