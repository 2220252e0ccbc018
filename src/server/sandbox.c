/* Landlock by its system calls: which files can still be opened. */
#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's interface, as of its ABI 6; headers of older systems know less of it. */
#define LANDLOCK_CREATE  444
#define LANDLOCK_ADD     445
#define LANDLOCK_CONFINE 446
#define LANDLOCK_ASK     1u /* which ABI? */
#define LANDLOCK_BENEATH 1  /* the only kind of rule used here */

enum {
    RIGHT_EXECUTE = 1 << 0,
    RIGHT_WRITE_FILE = 1 << 1,
    RIGHT_READ_FILE = 1 << 2,
    RIGHT_READ_FOLDER = 1 << 3,
    RIGHT_REMOVE_FILE = 1 << 5,
    RIGHT_MAKE_FILE = 1 << 8,
    RIGHT_TRUNCATE = 1 << 14, /* ABI 3 */
};
#define RIGHTS_ABI_1 0x1FFFu /* bits 0 to 12 */
#define RIGHTS_ABI_2 0x3FFFu /* and linking or renaming between folders */
#define RIGHTS_ABI_3 0x7FFFu /* and truncation */
#define RIGHTS_ABI_5 0xFFFFu /* and ioctl of devices */
#define NET_RIGHTS   3u      /* ABI 4: bind and connect of TCP */
#define SCOPES       3u      /* ABI 6: abstract unix sockets and signals of others */

#define RIGHTS_READ (RIGHT_READ_FILE | RIGHT_READ_FOLDER)
#define RIGHTS_WRITE                                                                               \
    (RIGHTS_READ | RIGHT_WRITE_FILE | RIGHT_REMOVE_FILE | RIGHT_MAKE_FILE | RIGHT_TRUNCATE)
#define RIGHTS_OF_FILES (RIGHT_READ_FILE | RIGHT_WRITE_FILE | RIGHT_TRUNCATE)

typedef struct ruleset_attributes {
    uint64_t files, net, scoped;
} ruleset_attributes;
typedef struct __attribute__((packed)) path_rule {
    uint64_t allowed;
    int32_t parent;
} path_rule;

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

static uint64_t rights_of(long abi) {
    return abi >= 5   ? RIGHTS_ABI_5
           : abi >= 3 ? RIGHTS_ABI_3
           : abi == 2 ? RIGHTS_ABI_2
                      : RIGHTS_ABI_1;
}

static avo_status allow(int ruleset, const char *path, uint64_t rights, avo_error *error) {
    struct stat facts;
    int descriptor = open(path, O_PATH | O_CLOEXEC);
    if (descriptor < 0)
        return AVO_OK; /* not there: nothing to open */
    if (fstat(descriptor, &facts) == 0 && !S_ISDIR(facts.st_mode))
        rights &= RIGHTS_OF_FILES;
    path_rule rule = {.allowed = rights, .parent = descriptor};
    long result = syscall(LANDLOCK_ADD, ruleset, LANDLOCK_BENEATH, &rule, 0);
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
    return AVO_OK;
}

avo_status sandbox_files(const sandbox_options *options, char *report, size_t capacity,
                         avo_error *error) {
    long abi = syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_ASK);
    if (abi < 1) {
        snprintf(report, capacity, "no Landlock (%s): file access is not restricted",
                 strerror(errno));
        return AVO_OK;
    }
    ruleset_attributes attributes = {
        .files = rights_of(abi), .net = abi >= 4 ? NET_RIGHTS : 0, .scoped = abi >= 6 ? SCOPES : 0};
    size_t bytes = abi >= 6   ? sizeof(attributes)
                   : abi >= 4 ? 2 * sizeof(uint64_t)
                              : sizeof(uint64_t);
    int ruleset = (int)syscall(LANDLOCK_CREATE, &attributes, bytes, 0);
    if (ruleset < 0)
        return status_fail(error, AVO_ERROR_IO, "sandbox: cannot create Landlock rules: %s",
                           strerror(errno));
    avo_status status = allow_all(ruleset, options, attributes.files, error);
    if (status == AVO_OK &&
        (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(LANDLOCK_CONFINE, ruleset, 0) != 0))
        status = status_fail(error, AVO_ERROR_IO,
                             "sandbox: Landlock failed: %s; use --no-sandbox to run without it",
                             strerror(errno));
    close(ruleset);
    if (status == AVO_OK)
        snprintf(report, capacity, "Landlock (ABI %ld)", abi);
    return status;
}
