/* posix_spawn: it needs no copy of this process's page tables, and other threads do not matter. */
#include "base/process.h"

#include <signal.h>
#include <spawn.h>
#include <unistd.h>

extern char **environ;

int process_start(const char *program, char *const *arguments, const int *streams, int count,
                  pid_t *process) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int fault = posix_spawn_file_actions_init(&files);
    if (fault != 0)
        return fault;
    fault = posix_spawnattr_init(&attributes);
    if (fault != 0) {
        posix_spawn_file_actions_destroy(&files);
        return fault;
    }
    for (int i = 0; i < count && fault == 0; i++)
        fault = posix_spawn_file_actions_adddup2(&files, streams[i], i);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    if (fault == 0)
        fault = posix_spawnp(process, program, &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return fault;
}
