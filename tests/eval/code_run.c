/* Programs that mean harm: what each may not do, in every kind of confinement, many at once.
 * (AVO_TEST_THREADS) */
#include "support/support.h"

#include "base/clock.h"
#include "eval/code_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hostile_programs.h"

#define USER         12345 /* who owns nothing here */
#define RUNS_AT_ONCE 50

static char secret[4096]; /* a file outside that every user can read */

/* ---- Children of the test: what they change cannot be undone ---- */

enum { CHILD_GOOD = 0, CHILD_NO_KERNEL = 77, CHILD_FAILED = 1 };

static void in_a_child(int (*work)(void)) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int result = work();
        fflush(NULL);
        _exit(result);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_NO_KERNEL) {
        print_message("SKIPPED: this system cannot confine programs\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), CHILD_GOOD);
}

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("%s:%d: %s: ", __FILE__, __LINE__, #condition);                            \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            return CHILD_FAILED;                                                                   \
        }                                                                                          \
    } while (0)

/* From here on `call` fails with `reason`, in this process and what it starts: if the argument has
 * one of the bits, or always where there are none. */
static bool forbid(uint32_t call, unsigned argument, uint32_t bits, int reason) {
    uint32_t at = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * argument);
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, call},
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, at},
        {BPF_JMP | BPF_JSET | BPF_K, 0, bits == 0 ? 0 : 1, bits},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (uint32_t)reason},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/* As containers do it. */
static bool forbid_namespaces(void) {
    return forbid(SYS_clone, 0, CLONE_NEWUSER, EPERM);
}

static bool is_confinable(void) {
    code_run_result result;
    return code_run("", 0, NULL, &result, NULL) != AVO_ERROR_UNSUPPORTED;
}

/* ---- Many programs at once ---- */

typedef struct one_run {
    const hostile_program *program;
    char text[8192];
    code_run_result result;
    avo_status status;
    avo_error error;
    pthread_t thread;
} one_run;

static void *run_one(void *context) {
    one_run *run = context;
    const hostile_program *program = run->program;
    code_run_options options = {.wall_seconds = program->wall_seconds,
                                .cpu_seconds = program->cpu_seconds,
                                .memory_bytes = program->memory_bytes};
    if (options.wall_seconds == 0)
        options.wall_seconds = (uint32_t)PATIENCE;
    if (options.cpu_seconds == 0)
        options.cpu_seconds = 60;
    snprintf(run->text, sizeof(run->text), "SECRET = '%s'\n%s", secret, program->text);
    run->status = code_run(run->text, strlen(run->text), &options, &run->result, &run->error);
    return NULL;
}

static int check_one(const one_run *run) {
    const hostile_program *program = run->program;
    const code_run_result *result = &run->result;
    CHECK(run->status == AVO_OK, "%s: %s", program->name, run->error.text);
    CHECK(result->outcome == program->outcome, "%s: outcome %d: %s", program->name,
          (int)result->outcome, result->output);
    CHECK(program->says == NULL || strstr(result->output, program->says) != NULL,
          "%s: expected \"%s\" in: %s", program->name, program->says, result->output);
    /* Programs that print their folder: it is gone. */
    const char *folder = strstr(result->output, "/tmp/avocet-code-");
    char path[64];
    if (folder != NULL && sscanf(folder, "%60[a-zA-Z0-9/-]", path) == 1)
        CHECK(access(path, F_OK) != 0, "%s: %s is still there", program->name, path);
    return CHILD_GOOD;
}

static int count_descriptors(void) {
    int count = 0;
    for (int i = 0; i < 1024; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static const char *layers_wanted;
static bool with_all;

/* All programs of the list at once, and after them not a process, descriptor or folder more. */
static int run_all(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    /* What is left behind becomes a child of this process. */
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, "%s", strerror(errno));
    CHECK(setenv("HF_TOKEN", "secret", 1) == 0, "setenv");
    int before = count_descriptors();
    static one_run runs[HOSTILE_MAX];
    size_t count = 0;
    for (size_t i = 0; i < sizeof(hostile_programs) / sizeof(hostile_programs[0]); i++)
        if (with_all || !hostile_programs[i].once)
            runs[count++].program = &hostile_programs[i];
    for (size_t i = 0; i < count; i++) {
        CHECK(pthread_create(&runs[i].thread, NULL, run_one, &runs[i]) == 0, "thread");
    }
    int verdict = CHILD_GOOD;
    for (size_t i = 0; i < count; i++) {
        pthread_join(runs[i].thread, NULL);
        if (check_one(&runs[i]) != CHILD_GOOD)
            verdict = CHILD_FAILED;
    }
    CHECK(strstr(runs[0].result.layers, layers_wanted) != NULL, "%s", runs[0].result.layers);
    CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD, "a process is left");
    CHECK(count_descriptors() == before, "%d descriptors, %d before", count_descriptors(), before);
    char kept[16] = "";
    int descriptor = open(secret, O_RDONLY);
    CHECK(read(descriptor, kept, sizeof(kept) - 1) == 6 && strcmp(kept, "secret") == 0, "%s", kept);
    close(descriptor);
    return verdict;
}

static int run_all_without_namespaces(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    CHECK(forbid_namespaces(), "%s", strerror(errno));
    layers_wanted = "no namespaces (Operation not permitted)";
    return run_all();
}

static int run_all_as_user(void) {
    CHECK(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0, "%s",
          strerror(errno));
    return run_all();
}

static int run_all_as_user_without_namespaces(void) {
    CHECK(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0, "%s",
          strerror(errno));
    return run_all_without_namespaces();
}

static void hostile_programs_do_no_harm(void **state) {
    (void)state;
    layers_wanted = "seccomp";
    with_all = true;
    in_a_child(run_all);
    with_all = false;
}

static void nor_without_namespaces(void **state) {
    (void)state;
    in_a_child(run_all_without_namespaces);
}

static void nor_for_another_user(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIPPED: not root\n");
        skip();
    }
    layers_wanted = "seccomp";
    in_a_child(run_all_as_user);
    in_a_child(run_all_as_user_without_namespaces);
}

/* ---- A host that is killed ---- */

static code_run_result last;
static avo_error last_error;

/* The first process of a run, and its folder; 0: the run has not begun. */
static pid_t find_run(pid_t host, char *folder, size_t capacity) {
    char path[64], text[64] = "";
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)host, (long)host);
    int descriptor = open(path, O_RDONLY);
    if (descriptor < 0 || read(descriptor, text, sizeof(text) - 1) <= 0)
        text[0] = '\0';
    close(descriptor);
    pid_t run = (pid_t)strtol(text, NULL, 10);
    snprintf(path, sizeof(path), "/proc/%ld/cwd", (long)run);
    ssize_t bytes = readlink(path, folder, capacity - 1);
    folder[bytes > 0 ? bytes : 0] = '\0';
    return strncmp(folder, "/tmp/avocet-code-", 17) == 0 ? run : 0;
}

static const char multiply[] = "import os, time\nfor i in range(8):\n    try:\n        os.fork()\n"
                               "    except OSError:\n        pass\n"
                               "open('ready', 'w')\ntime.sleep(10000)\n";

/* Whether it has tried to multiply; its folder may be in a file system of its own. */
static bool is_ready(pid_t host, char *folder, size_t capacity) {
    char path[64];
    pid_t run = find_run(host, folder, capacity);
    snprintf(path, sizeof(path), "/proc/%ld/cwd/ready", (long)run);
    return run > 0 && (access(path, F_OK) == 0 || errno == EACCES);
}

/* The processes of its program become children of this one, and are dead. */
static int kill_a_host(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, "%s", strerror(errno));
    code_run_options options = {.wall_seconds = (uint32_t)PATIENCE, .cpu_seconds = 60};
    pid_t host = fork();
    if (host == 0)
        _exit(code_run(multiply, strlen(multiply), &options, &last, &last_error) == AVO_OK);
    char folder[128];
    struct timespec pause = {.tv_nsec = 10000000};
    uint64_t begin = clock_now_ns();
    while (!is_ready(host, folder, sizeof(folder))) {
        CHECK(clock_seconds(begin, clock_now_ns()) < PATIENCE, "the run does not begin");
        nanosleep(&pause, NULL);
    }
    CHECK(kill(host, SIGKILL) == 0, "%s", strerror(errno));
    pid_t left;
    while ((left = waitpid(-1, NULL, WNOHANG | __WALL)) >= 0) {
        CHECK(clock_seconds(begin, clock_now_ns()) < PATIENCE, "a process outlives its host");
        if (left == 0)
            nanosleep(&pause, NULL);
    }
    char ready[160];
    snprintf(ready, sizeof(ready), "%s/ready", folder);
    (void)!unlink(ready); /* nobody else does */
    (void)!rmdir(folder);
    return CHILD_GOOD;
}

static int kill_a_host_without_namespaces(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    CHECK(forbid_namespaces(), "%s", strerror(errno));
    return kill_a_host();
}

static void nothing_outlives_a_killed_host(void **state) {
    (void)state;
    in_a_child(kill_a_host);
    in_a_child(kill_a_host_without_namespaces);
}

/* ---- What the kernel lacks ---- */

static avo_status run_text(const char *text, bool unsafe) {
    code_run_options options = {.wall_seconds = (uint32_t)PATIENCE, .unsafe = unsafe};
    return code_run(text, strlen(text), &options, &last, &last_error);
}

static int without_landlock(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    CHECK(forbid(444, 0, 0, ENOSYS), "%s", strerror(errno));
    CHECK(run_text("print(1)", false) == AVO_ERROR_UNSUPPORTED, "it ran: %s", last.output);
    CHECK(strstr(last_error.text, "no Landlock (Function not implemented)") != NULL &&
              strstr(last_error.text, "--unsafe") != NULL,
          "%s", last_error.text);
    CHECK(run_text("print(1)", true) == AVO_OK && last.outcome == CODE_PASSED, "%s %s",
          last_error.text, last.output);
    CHECK(strstr(last.layers, "no Landlock, seccomp") != NULL, "%s", last.layers);
    /* As with Landlock that does not know O_TRUNC: seccomp alone keeps a file from being cut. */
    CHECK(run_text(REFUSED "open('own', 'w').write('own')\n"
                           "for flags in (os.O_RDONLY | os.O_TRUNC, 3, 3 | os.O_TRUNC):\n"
                           "    refused(os.open, 'own', flags)\n"
                           "assert open('own').read() == 'own'\n"
                           "for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC):\n"
                           "    os.close(os.open('own', flags))\n",
                   true) == AVO_OK &&
              last.outcome == CODE_PASSED,
          "%s %s", last_error.text, last.output);
    return CHILD_GOOD;
}

static int without_seccomp(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    CHECK(forbid(SYS_seccomp, 0, 0, EINVAL), "%s", strerror(errno));
    CHECK(run_text("print(1)", false) == AVO_ERROR_UNSUPPORTED, "it ran: %s", last.output);
    CHECK(strstr(last_error.text, "seccomp") != NULL && strstr(last_error.text, "--unsafe") != NULL,
          "%s", last_error.text);
    CHECK(run_text("print(1)", true) == AVO_OK && last.outcome == CODE_PASSED, "%s %s",
          last_error.text, last.output);
    CHECK(strstr(last.layers, "no seccomp") != NULL, "%s", last.layers);
    return CHILD_GOOD;
}

/* Layers that are there, but cannot be entered: nothing runs either. */
static int with_landlock_that_fails(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    CHECK(forbid(446, 0, 0, E2BIG), "%s", strerror(errno));
    CHECK(run_text("print(1)", false) == AVO_ERROR_UNSUPPORTED, "it ran: %s", last.output);
    CHECK(strstr(last_error.text, "Landlock: Argument list too long") != NULL, "%s",
          last_error.text);
    return CHILD_GOOD;
}

static int with_seccomp_that_fails(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    /* Of prctl's options that the child uses, bit 4 is in PR_SET_SECCOMP (22) alone. */
    CHECK(forbid(SYS_prctl, 0, 16, EINVAL) || errno == EINVAL, "%s", strerror(errno));
    avo_status status = run_text("print(1)", false);
    CHECK(status == AVO_ERROR_UNSUPPORTED, "%d: %s%s", (int)status, last_error.text, last.output);
    CHECK(strstr(last_error.text, "could not be confined") != NULL, "%s", last_error.text);
    return CHILD_GOOD;
}

static int without_mounts(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    CHECK(forbid(SYS_mount, 0, 0, EPERM), "%s", strerror(errno));
    CHECK(run_text(fill_the_disk, false) == AVO_OK, "%s", last_error.text);
    CHECK(last.outcome == CODE_FAILED, "%s", last.output);
    CHECK(strstr(last.layers, "no mount") != NULL || strstr(last.layers, "no namespaces") != NULL,
          "%s", last.layers);
    return CHILD_GOOD;
}

static void missing_layers_refuse_the_program(void **state) {
    (void)state;
    in_a_child(without_landlock);
    in_a_child(without_seccomp);
    in_a_child(with_landlock_that_fails);
    in_a_child(with_seccomp_that_fails);
    in_a_child(without_mounts);
}

/* ---- The rest ---- */

static const hostile_program good_program = {.name = "good",
                                             .text =
                                                 "import time\ntime.sleep(0.05)\nprint('good')\n",
                                             .outcome = CODE_PASSED};

static int run_many(void) {
    static one_run runs[RUNS_AT_ONCE];
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    for (size_t i = 0; i < RUNS_AT_ONCE; i++) {
        runs[i].program = &good_program;
        CHECK(pthread_create(&runs[i].thread, NULL, run_one, &runs[i]) == 0, "thread");
    }
    for (size_t i = 0; i < RUNS_AT_ONCE; i++)
        pthread_join(runs[i].thread, NULL);
    for (size_t i = 0; i < RUNS_AT_ONCE; i++)
        if (check_one(&runs[i]) != CHILD_GOOD)
            return CHILD_FAILED;
    return CHILD_GOOD;
}

static void fifty_run_at_once(void **state) {
    (void)state;
    in_a_child(run_many);
}

/* A host that ignores SIGCHLD reaps our child for us; one without standard streams gives pipes
 * their numbers. */
static int run_in_a_bare_process(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    signal(SIGCHLD, SIG_IGN);
    CHECK(run_text("print(1)", false) == AVO_OK && last.outcome == CODE_PASSED, "%s",
          last_error.text);
    CHECK(run_text("raise ValueError", false) == AVO_OK && last.outcome == CODE_FAILED, "%s",
          last_error.text);
    signal(SIGCHLD, SIG_DFL);
    int kept = fcntl(2, F_DUPFD_CLOEXEC, 100);
    for (int i = 0; i < 3; i++)
        close(i);
    avo_status status = run_text("print(1)", false);
    dup2(kept, 2);
    CHECK(status == AVO_OK && last.outcome == CODE_PASSED && strcmp(last.output, "1\n") == 0,
          "%s %s", last_error.text, last.output);
    return CHILD_GOOD;
}

static void the_host_may_be_unusual(void **state) {
    (void)state;
    in_a_child(run_in_a_bare_process);
}

static int refuse_arguments(void) {
    if (!is_confinable())
        return CHILD_NO_KERNEL;
    static const struct {
        code_run_options options;
        avo_status status;
        const char *text;
    } cases[] = {
        {{.cpu_seconds = 86401}, AVO_ERROR_ARGUMENT, "cpu_seconds is 86401, must be from 1"},
        {{.wall_seconds = 86401}, AVO_ERROR_ARGUMENT, "wall_seconds is 86401"},
        {{.processes_max = 4097}, AVO_ERROR_ARGUMENT, "processes_max is 4097"},
        {{.memory_bytes = 1}, AVO_ERROR_ARGUMENT, "memory_bytes is 1, must be from 33554432"},
        {{.interpreter = "no-such-python"}, AVO_ERROR_NOT_FOUND, "no-such-python: not in"},
        {{.interpreter = "/no/python"}, AVO_ERROR_NOT_FOUND, "/no/python: no such file"},
        {{.interpreter = "/etc/passwd"}, AVO_ERROR_ARGUMENT, "is not a 64-bit program"},
        {{.interpreter = AVO_SOURCE_FOLDER "/tools/tidy"}, AVO_ERROR_ARGUMENT, "is a script"},
        {{.interpreter = "/bin/true"}, AVO_ERROR_IO, "does not start in the sandbox"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        avo_status status = code_run("", 0, &cases[i].options, &last, &last_error);
        CHECK(status == cases[i].status && strstr(last_error.text, cases[i].text) != NULL,
              "%zu: %d %s", i, (int)status, last_error.text);
    }
    CHECK(code_run(NULL, CODE_PROGRAM_MAX + 1, NULL, &last, &last_error) == AVO_ERROR_LIMIT, "%s",
          last_error.text);
    test_allocator allocator;
    test_allocator_init(&allocator);
    allocator.fail_at = 1;
    code_run_options options = {.allocator = &allocator.allocator};
    CHECK(code_run("", 0, &options, &last, &last_error) == AVO_ERROR_MEMORY, "%s", last_error.text);
    CHECK(allocator.live == 0, "%zu", allocator.live);
    return CHILD_GOOD;
}

static void arguments_are_checked(void **state) {
    (void)state;
    in_a_child(refuse_arguments);
}

static int setup(void **state) {
    (void)state;
    snprintf(secret, sizeof(secret), "%s/secret", test_scratch_folder());
    FILE *file = fopen(secret, "w");
    assert_non_null(file);
    fputs("secret", file);
    fclose(file);
    return chmod(secret, 0666);
}

int main(void) {
#ifdef AVO_TEST_EMULATED
    print_message("SKIPPED: an emulated kernel has neither Landlock nor seccomp\n");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_programs_do_no_harm),
        cmocka_unit_test(nor_without_namespaces),
        cmocka_unit_test(nor_for_another_user),
        cmocka_unit_test(nothing_outlives_a_killed_host),
        cmocka_unit_test(missing_layers_refuse_the_program),
        cmocka_unit_test(fifty_run_at_once),
        cmocka_unit_test(the_host_may_be_unusual),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
