/* The child between clone and exec: it confines itself, then becomes the interpreter.
 *
 * The process it was cloned from may have had many threads, which held any lock. So only system
 * calls are made here, through syscall(): no allocation, no stdio, and none of libc's wrappers,
 * which thread sanitizers replace by functions that lock. Every step but the mount must succeed; a
 * step that fails is told to the parent, and the program never starts.
 */
#include "base/landlock.h"
#include "eval/code_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNALS_MAX    64
#define DESCRIPTOR_MIN 32 /* above all that the child will have */
#define OPEN_FILES_MAX 64
#define STACK_BYTES    ((uint64_t)8 << 20)

static void tell(code_step step) {
    code_note note = {.step = (int32_t)step, .reason = errno};
    (void)syscall(SYS_write, CODE_FD_STATUS, &note, sizeof(note));
}

static _Noreturn void give_up(code_step step) {
    tell(step);
    for (;;)
        syscall(SYS_exit_group, 127);
}

static long move_up(int descriptor) {
    return syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, DESCRIPTOR_MIN);
}

static bool place(long from, int to, int flags) {
    return from >= 0 && syscall(SYS_dup3, from, to, flags) == to;
}

/* Kernels without close_range are older than Landlock: they come here only with `unsafe`. */
static void close_from(int first) {
    if (syscall(SYS_close_range, first, ~0u, 0) == 0)
        return;
    struct rlimit limit = {.rlim_cur = 1024};
    syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
    for (rlim_t i = (rlim_t)first; i < limit.rlim_cur && i < 1u << 20; i++)
        syscall(SYS_close, (int)i);
}

/* Gives the descriptors their numbers and closes all others. */
static void arrange_descriptors(const code_child_plan *plan) {
    /* First out of the way: their numbers may be each other's targets. */
    long status = move_up(plan->status), null = move_up(plan->null);
    long output = move_up(plan->output), input = move_up(plan->input);
    long result = move_up(plan->result), rules = plan->rules < 0 ? -1 : move_up(plan->rules);
    if (!place(status, CODE_FD_STATUS, O_CLOEXEC))
        for (;;)
            syscall(SYS_exit_group, 127);
    if (!place(null, 0, 0) || !place(output, 1, 0) || !place(output, 2, 0) ||
        !place(input, CODE_FD_INPUT, 0) || !place(result, CODE_FD_RESULT, 0) ||
        (plan->rules >= 0 && !place(rules, CODE_FD_RULES, O_CLOEXEC)))
        give_up(CODE_STEP_DESCRIPTORS);
    close_from(plan->rules >= 0 ? CODE_FD_RULES + 1 : CODE_FD_RULES);
}

/* The parent has written the user namespace's maps when it sends this byte. If the parent died, the
 * pipe is at its end. */
static void wait_for_parent(void) {
    char byte = 0;
    long got;
    do {
        got = syscall(SYS_read, CODE_FD_INPUT, &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got != 1)
        for (;;)
            syscall(SYS_exit_group, 127);
}

static void become_user(const code_child_plan *plan) {
    if (plan->root) {
        /* Without a namespace of users the groups must go; in one they may be unmapped already. */
        if (syscall(SYS_setgroups, 0, NULL) != 0 && !plan->namespaces)
            give_up(CODE_STEP_USER);
        if (syscall(SYS_setresgid, CODE_NOBODY, CODE_NOBODY, CODE_NOBODY) != 0 ||
            syscall(SYS_setresuid, CODE_NOBODY, CODE_NOBODY, CODE_NOBODY) != 0)
            give_up(CODE_STEP_USER);
    }
    /* After the user: changing it resets this. The thread that called code_run waits for us, so its
     * end is the end of the process. */
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

/* A file system of this run alone, which ends with it. */
static bool mount_folder(const code_child_plan *plan) {
    return syscall(SYS_mount, NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           syscall(SYS_mount, "tmpfs", plan->folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                   CODE_FOLDER_FILESYSTEM) == 0;
}

static void limit(int resource, uint64_t most) {
    struct rlimit wanted = {.rlim_cur = most, .rlim_max = most}, now;
    if (syscall(SYS_prlimit64, 0, resource, NULL, &now) != 0)
        give_up(CODE_STEP_LIMITS);
    if (wanted.rlim_max > now.rlim_max) /* stricter already */
        wanted.rlim_cur = wanted.rlim_max = now.rlim_max;
    if (syscall(SYS_prlimit64, 0, resource, &wanted, NULL) != 0)
        give_up(CODE_STEP_LIMITS);
}

static void limit_resources(const code_child_plan *plan) {
    limit(RLIMIT_CPU, plan->cpu_seconds);
    limit(RLIMIT_AS, plan->memory_bytes);
    limit(RLIMIT_NPROC, plan->processes_max);
    limit(RLIMIT_FSIZE, CODE_FILE_BYTES);
    limit(RLIMIT_STACK, STACK_BYTES);
    limit(RLIMIT_NOFILE, OPEN_FILES_MAX);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_MEMLOCK, 0);
    limit(RLIMIT_MSGQUEUE, 0);
    limit(RLIMIT_RTPRIO, 0);
}

static void confine_files(const code_child_plan *plan, bool mounted) {
    if (plan->rules < 0)
        return;
    uint64_t rights = LANDLOCK_READ_FILE | LANDLOCK_READ_FOLDER | LANDLOCK_WRITE_FILE |
                      LANDLOCK_REMOVE_FILE | LANDLOCK_MAKE_FILE | LANDLOCK_TRUNCATE;
    if (mounted)
        rights |= LANDLOCK_MAKE_FOLDER | LANDLOCK_REMOVE_FOLDER | LANDLOCK_REFER;
    long folder = syscall(SYS_openat, AT_FDCWD, ".", O_PATH | O_CLOEXEC, 0);
    if (folder < 0 ||
        landlock_allow(CODE_FD_RULES, (int)folder, rights & plan->rights_known) != 0 ||
        landlock_confine(CODE_FD_RULES) != 0)
        give_up(CODE_STEP_LANDLOCK);
    syscall(SYS_close, folder);
}

/* As a new process has them: the parent may ignore or handle some, and blocked all. */
static void reset_signals(void) {
    uint64_t action[8] = {0}; /* the kernel's structure; all zero is SIG_DFL */
    uint64_t none = 0;
    for (int i = 1; i <= SIGNALS_MAX; i++)
        syscall(SYS_rt_sigaction, i, action, NULL, sizeof(none));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
}

static bool add_filter(const struct sock_fprog *filter) {
    return syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0) == 0;
}

_Noreturn void code_child(const code_child_plan *plan) {
    struct sched_param normal = {0};
    syscall(SYS_sched_setscheduler, 0, SCHED_OTHER,
            &normal); /* a real-time caller's is inherited */
    syscall(SYS_setsid);
    arrange_descriptors(plan);
    wait_for_parent();
    become_user(plan);
    bool mounted = plan->namespaces && mount_folder(plan);
    if (plan->namespaces && !mounted)
        tell(CODE_STEP_MOUNT);
    if (syscall(SYS_chdir, plan->folder) != 0)
        give_up(CODE_STEP_FOLDER);
    syscall(SYS_umask, 077);
    limit_resources(plan);
    if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        give_up(CODE_STEP_LIMITS);
    confine_files(plan, mounted);
    reset_signals();
    if (plan->filter != NULL && !plan->namespaces && !add_filter(plan->filter_processes))
        give_up(CODE_STEP_SECCOMP);
    if (plan->filter != NULL && !add_filter(plan->filter))
        give_up(CODE_STEP_SECCOMP);
    syscall(SYS_execve, plan->path, plan->arguments, plan->environment);
    give_up(CODE_STEP_EXECUTE);
}
