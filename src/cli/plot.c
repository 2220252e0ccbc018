/* Drawing with gnuplot, in the folder of the script. */
#include "cli/plot.h"

#include "cli/cli.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

/* 0, or why it did not draw: an errno (ENOENT: there is no gnuplot), or −1 where it failed. */
static int draw(const char *folder, const char *script) {
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

int plot_write(const char *folder, const char *name, plot_writer write, const void *context) {
    char path[2 * CLI_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return cli_fail_text("%s: %s", path, strerror(errno));
    write(file, context);
    bool good = ferror(file) == 0;
    if (fclose(file) != 0 || !good)
        return cli_fail_text("%s: cannot write the file", path);
    return EXIT_GOOD;
}

int plot_picture(const char *folder, const char *script, const char *picture, plot_writer write,
                 const void *context, bool *drawn) {
    int status = plot_write(folder, script, write, context);
    int failed = status == EXIT_GOOD ? draw(folder, script) : 0;
    *drawn = status == EXIT_GOOD && failed == 0;
    if (failed == ENOENT)
        cli_warn("gnuplot is not installed (Debian: apt-get install gnuplot-nox); data and scripts "
                 "are in %s",
                 folder);
    else if (failed != 0)
        return cli_fail_text("gnuplot failed to plot %s/%s", folder, picture);
    return status;
}
