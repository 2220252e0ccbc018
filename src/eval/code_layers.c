/* Which layers of confinement the kernel has, and the paths that Landlock leaves open. */
#include "base/landlock.h"
#include "eval/code_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RIGHTS_READ (LANDLOCK_READ_FILE | LANDLOCK_READ_FOLDER)

static bool has_seccomp(void) {
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

avo_status code_layers_find(bool unsafe, code_layers *layers, avo_error *error) {
    layers->landlock = landlock_abi();
    int reason = layers->landlock < 1 ? errno : 0;
    layers->seccomp = has_seccomp() ? code_filter() : NULL;
    if (unsafe)
        return AVO_OK;
    const char *option = "use --unsafe to run it nevertheless";
    if (layers->landlock < 1)
        return status_fail(
            error, AVO_ERROR_UNSUPPORTED,
            "code of a model: this kernel has no Landlock (%s), so the program could "
            "read and write every file of this user; boot Linux 5.13 or later with "
            "lsm=landlock, or %s",
            strerror(reason), option);
    if (layers->seccomp == NULL)
        return status_fail(
            error, AVO_ERROR_UNSUPPORTED,
            "code of a model: seccomp filters are not available (%s), so the program "
            "could open connections and signal other processes; use a kernel with "
            "CONFIG_SECCOMP_FILTER, or %s",
            code_filter() == NULL ? "none for this processor" : strerror(errno), option);
    return AVO_OK;
}

static avo_status allow(int rules, const char *path, uint64_t rights, avo_error *error) {
    struct stat facts;
    int descriptor = path[0] == '\0' ? -1 : open(path, O_PATH | O_CLOEXEC);
    if (descriptor < 0)
        return AVO_OK; /* not there: nothing to read */
    if (fstat(descriptor, &facts) == 0 && !S_ISDIR(facts.st_mode))
        rights &= LANDLOCK_OF_FILES;
    int result = landlock_allow(rules, descriptor, rights);
    int reason = errno;
    close(descriptor);
    return result == 0 ? AVO_OK
                       : status_fail(error, AVO_ERROR_IO, "code of a model: Landlock: %s: %s", path,
                                     strerror(reason));
}

avo_status code_layers_rules(const code_layers *layers, const code_interpreter *interpreter,
                             int *rules, avo_error *error) {
    static const char *const shared[] = {"/lib",         "/lib64",           "/usr/lib",
                                         "/usr/lib64",   "/etc/ld.so.cache", "/usr/share/zoneinfo",
                                         "/dev/urandom", "/dev/zero"};
    *rules = landlock_rules(layers->landlock);
    if (*rules < 0)
        return status_fail(error, AVO_ERROR_IO, "code of a model: cannot create Landlock rules: %s",
                           strerror(errno));
    uint64_t run = RIGHTS_READ | LANDLOCK_EXECUTE;
    avo_status status = allow(*rules, interpreter->path, run, error);
    AVO_THEN(status, allow(*rules, interpreter->loader, run, error));
    AVO_THEN(status, allow(*rules, "/dev/null", RIGHTS_READ | LANDLOCK_WRITE_FILE, error));
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        AVO_THEN(status, allow(*rules, shared[i], RIGHTS_READ, error));
    for (size_t i = 0; i < 2; i++)
        AVO_THEN(status, allow(*rules, interpreter->libraries[i], RIGHTS_READ, error));
    if (status != AVO_OK)
        code_descriptor_close(rules);
    return status;
}
