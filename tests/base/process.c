/* Programs that are started: their streams, signals and process group. */
#include "support/support.h"

#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The exit status of a shell's command; what it prints goes to `output` [256]. */
static int shell(const char *command, char *output) {
    char *const arguments[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)command, NULL};
    int ends[2], status = -1, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t process = 0;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const int streams[] = {null, ends[1]};
    assert_int_equal(process_start("sh", arguments, streams, 2, &process), 0);
    close(ends[1]);
    close(null);
    size_t size = 0;
    for (ssize_t got; (got = read(ends[0], output + size, 255 - size)) > 0; size += (size_t)got)
        continue;
    output[size] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_streams(void **state) {
    (void)state;
    char output[256];
    assert_int_equal(shell("echo said; exit 3", output), 3);
    assert_string_equal(output, "said\n");
}

/* Of this process, which blocks one and ignores another, it inherits neither. */
static void test_signals(void **state) {
    (void)state;
    char output[256];
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
    void (*old)(int) = signal(SIGUSR1, SIG_IGN);
    int status = shell("sed -n 's/^Sig\\(Blk\\|Ign\\):\\t//p' /proc/self/status; "
                       "test $(cut -d' ' -f5 /proc/$$/stat) = $$",
                       output);
    signal(SIGUSR1, old);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(status, 0); /* the leader of its group */
    char *rest;
    assert_int_equal(strtoull(output, &rest, 16), 0);
    /* (The C library's own signals stay ignored.) */
    assert_int_equal(strtoull(rest, NULL, 16) & (1u << (SIGUSR1 - 1)), 0);
}

static void test_missing(void **state) {
    (void)state;
    char *const arguments[] = {(char *)"x", NULL};
    pid_t process = 0;
    assert_int_equal(process_start("/nonexistent/program", arguments, NULL, 0, &process), ENOENT);
    assert_int_equal(process_start("no-such-program-at-all", arguments, NULL, 0, &process), ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
