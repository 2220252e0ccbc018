/* Drawing with gnuplot, in the folder of the script. */
#include "cli/plot.h"

#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>

extern char **environ;

int plot_draw(const char *folder, const char *script) {
    char *arguments[] = {"gnuplot", (char *)(uintptr_t)script, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = posix_spawn_file_actions_init(&actions);
    if (status != 0)
        return status;
    status = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (status == 0)
        status = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (status != 0)
        return status;
    int ended;
    while (waitpid(child, &ended, 0) < 0)
        if (errno != EINTR)
            return errno;
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0 ? 0 : -1;
}
