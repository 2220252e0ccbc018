/* The sandbox: in a child, since there is no way back. What is allowed works, the rest does not. */
#include "support/support.h"

#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child found, as its exit status. */
enum { CHILD_GOOD = 0, CHILD_NO_KERNEL = 77, CHILD_FAILED = 100 };

static char inside[4096], inside_file[4200], outside_file[4200], log_folder[4200];

static bool opens(const char *path, int flags) {
    int descriptor = open(path, flags | O_CLOEXEC, 0600);
    if (descriptor >= 0)
        close(descriptor);
    return descriptor >= 0;
}

static void write_file(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("text", file);
    fclose(file);
}

static int setup(void **state) {
    (void)state;
    const char *scratch = test_scratch_folder();
    snprintf(inside, sizeof(inside), "%s/inside", scratch);
    snprintf(inside_file, sizeof(inside_file), "%s/file", inside);
    snprintf(outside_file, sizeof(outside_file), "%s/outside", scratch);
    snprintf(log_folder, sizeof(log_folder), "%s/logs", scratch);
    (void)!mkdir(inside, 0700);
    (void)!mkdir(log_folder, 0700);
    write_file(inside_file);
    write_file(outside_file);
    return 0;
}

#define CHECK(number, condition)                                                                   \
    if (!(condition))                                                                              \
    return CHILD_FAILED + (number)

static int confined_files(void) {
    sandbox_options options = {0};
    char report[SANDBOX_REPORT_MAX] = "", path[4300];
    CHECK(0, sandbox_read(&options, inside) && sandbox_write(&options, log_folder));
    CHECK(1, sandbox_read(&options, "/nowhere/at/all")); /* absent: left out */
    CHECK(2, opens("/etc/passwd", O_RDONLY) && opens(outside_file, O_RDONLY));
    CHECK(3, sandbox_files(&options, report, sizeof(report), NULL) == AVO_OK);
    if (strstr(report, "no Landlock") != NULL)
        return CHILD_NO_KERNEL;
    CHECK(4, !opens("/etc/passwd", O_RDONLY) && errno == EACCES);
    CHECK(5, !opens(outside_file, O_RDONLY));
    CHECK(6, opens(inside_file, O_RDONLY));
    CHECK(7, !opens(inside_file, O_WRONLY));
    CHECK(8, opens("/proc/self/status", O_RDONLY));
    CHECK(9, !opens("/proc/1/status", O_RDONLY));
    snprintf(path, sizeof(path), "%s/made", inside);
    CHECK(10, !opens(path, O_WRONLY | O_CREAT));
    snprintf(path, sizeof(path), "%s/made", log_folder);
    CHECK(11, opens(path, O_WRONLY | O_CREAT | O_APPEND));
    snprintf(path, sizeof(path), "%s/../outside", inside);
    CHECK(12, !opens(path, O_RDONLY));
    return CHILD_GOOD;
}

/* ---- Kernels of other ages ----
 * A thread answers for the kernel when it is asked which ABI of Landlock it has; all other calls go
 * on to the real one, which still takes what belongs to that age. */
enum { LANDLOCK_CREATE = 444, LANDLOCK_ASK = 1 };
typedef struct old_kernel {
    int listener;
    int64_t abi;
} old_kernel;

static void *answer_for_the_kernel(void *context) {
    const old_kernel *kernel = context;
    for (;;) {
        struct seccomp_notif asked = {0};
        if (ioctl(kernel->listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0)
            return NULL;
        bool which = asked.data.args[0] == 0 && asked.data.args[2] == LANDLOCK_ASK;
        struct seccomp_notif_resp answer = {.id = asked.id,
                                            .val = which ? kernel->abi : 0,
                                            .flags = which ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        (void)!ioctl(kernel->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static int make_old(old_kernel *kernel) {
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, LANDLOCK_CREATE},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    pthread_t thread;
    CHECK(40, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    kernel->listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                    SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (kernel->listener < 0) /* a filter with a listener is above us already, or an old kernel */
        return CHILD_NO_KERNEL;
    CHECK(41, pthread_create(&thread, NULL, answer_for_the_kernel, kernel) == 0);
    return CHILD_GOOD;
}

static old_kernel age;

static int confined_on_an_old_kernel(void) {
    char wanted[64], report[SANDBOX_REPORT_MAX] = "";
    sandbox_options options = {0};
    if (syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_ASK) < age.abi)
        return CHILD_NO_KERNEL;
    int made = make_old(&age);
    if (made != CHILD_GOOD)
        return made;
    CHECK(42, sandbox_read(&options, inside) && sandbox_write(&options, log_folder));
    CHECK(43, sandbox_files(&options, report, sizeof(report), NULL) == AVO_OK);
    snprintf(wanted, sizeof(wanted), "Landlock (ABI %lld)", (long long)age.abi);
    CHECK(44, strcmp(report, wanted) == 0);
    CHECK(45, !opens("/etc/passwd", O_RDONLY) && !opens(outside_file, O_RDONLY));
    CHECK(46, opens(inside_file, O_RDONLY) && !opens(inside_file, O_WRONLY));
    char path[4300];
    snprintf(path, sizeof(path), "%s/made", log_folder);
    CHECK(47, opens(path, O_WRONLY | O_CREAT | O_TRUNC));
    CHECK(48, (truncate(inside_file, 4) == 0) == (age.abi < 3)); /* known since ABI 3 */
    return CHILD_GOOD;
}

static void *nothing(void *context) {
    return context;
}

static int confined_calls(void) {
    sandbox_options options = {0};
    char report[SANDBOX_REPORT_MAX] = "";
    pthread_t thread;
    CHECK(20, sandbox_calls(&options, report, sizeof(report), NULL) == AVO_OK);
    if (strstr(report, "no seccomp") != NULL)
        return CHILD_NO_KERNEL;
    CHECK(21, prctl(PR_SET_NAME, "confined", 0, 0, 0) == 0);
    CHECK(22, pthread_create(&thread, NULL, nothing, NULL) == 0); /* threads may come */
    pthread_join(thread, NULL);
    CHECK(23, socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM);
    CHECK(24, chdir("/") == -1 && errno == EPERM);
    CHECK(25, symlink("a", inside_file) == -1 && errno == EPERM);
    if (strstr(report, "sanitizer") != NULL) /* whose own calls are let through */
        return CHILD_GOOD;
    CHECK(26, fork() == -1);
    CHECK(27, execl("/bin/true", "true", (char *)NULL) == -1 && errno == EPERM);
    return CHILD_GOOD;
}

static void in_a_child(int (*work)(void), const char *what) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(work());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_NO_KERNEL) {
        print_message("SKIPPED: %s is not in this kernel\n", what);
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), CHILD_GOOD);
}

static void only_named_files_open(void **state) {
    (void)state;
    in_a_child(confined_files, "Landlock");
}

static void only_listed_calls_are_left(void **state) {
    (void)state;
    in_a_child(confined_calls, "seccomp");
}

static void old_kernels_confine_what_they_can(void **state) {
    (void)state;
    for (age.abi = 1; age.abi <= 6; age.abi++)
        in_a_child(confined_on_an_old_kernel, "Landlock of this ABI, or a filter with a listener,");
}

static void there_is_a_maximum_of_paths(void **state) {
    (void)state;
    sandbox_options options = {0};
    for (int i = 0; i < SANDBOX_PATHS_MAX; i++)
        assert_true(sandbox_read(&options, "/a") && sandbox_write(&options, "/b"));
    assert_false(sandbox_read(&options, "/a"));
    assert_false(sandbox_write(&options, "/b"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_named_files_open),
        cmocka_unit_test(only_listed_calls_are_left),
        cmocka_unit_test(old_kernels_confine_what_they_can),
        cmocka_unit_test(there_is_a_maximum_of_paths),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
