/* seccomp: the system calls that a program has, as a fixed table.
 *
 * The table lists what a Python interpreter needs to calculate, print, use its folder and start
 * threads and processes. All else fails with EPERM. A few calls are allowed with some arguments:
 * where Landlock of an older kernel has a gap, or where a call can do more than its name says.
 *
 *   open          not O_RDONLY with O_TRUNC (Landlock before ABI 3 does not see it cut a file), no
 *                 access mode 3 (it neither reads nor writes, so Landlock asks for no right, but it
 *                 opens devices and, with O_TRUNC, cuts files), no O_TMPFILE (a file that the watch
 *                 of the folder does not see)
 *   mmap          no anonymous memory that processes share: the count of a run's memory
 *                 (code_memory.c) does not see it
 *   clone         no namespaces, no siblings
 *   clone3        the flags are in memory, which a filter cannot read; ENOSYS, and libc takes clone
 *   fcntl         duplicating, flags and locks; no F_SETOWN, which sends signals
 *   ioctl, prctl  what the C library and the interpreter ask for at every start
 *   prlimit64     reading limits
 */
#include "eval/code_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define CALLS_END    0x40000000u /* from here on: the x32 ABI */
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define CALLS_END    0x80000000u
#endif

#ifdef ARCHITECTURE

#define LOAD(field)    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_LOW(i)    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT_AT(i))
#define LOAD_HIGH(i)   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT_AT(i) + 4)
#define ARGUMENT_AT(i) (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (i))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
#define REFUSE(reason) RETURN(SECCOMP_RET_ERRNO | (reason))
/* Skips the next `count` instructions unless the condition holds. */
#define UNLESS_EQUAL(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count)
#define UNLESS_ANY(bits, count)    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, count)

#define ALLOW(call)        UNLESS_EQUAL(SYS_##call, 1), RETURN(SECCOMP_RET_ALLOW)
#define ALLOW_VALUE(value) UNLESS_EQUAL(value, 1), RETURN(SECCOMP_RET_ALLOW)
/* Allowed unless the argument has one of the bits. */
#define ALLOW_WITHOUT(call, argument, bits)                                                        \
    UNLESS_EQUAL(SYS_##call, 4), LOAD_LOW(argument), UNLESS_ANY(bits, 1), REFUSE(EPERM),           \
        RETURN(SECCOMP_RET_ALLOW)
/* O_TMPFILE without its O_DIRECTORY; the access mode, the lowest two bits, as 3; O_TRUNC where the
 * mode is 0. */
#define TEMPORARY_FILE              020000000u
#define ACCESS_MODE                 3u /* O_ACCMODE has other bits in some C libraries */
#define SKIP_IF_EQUAL(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, count, 0)
#define OPEN(call, argument)                                                                       \
    UNLESS_EQUAL(SYS_##call, 8), LOAD_LOW(argument),                                               \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, TEMPORARY_FILE, 4, 0),                                \
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ACCESS_MODE | O_TRUNC),                                \
        SKIP_IF_EQUAL(O_RDONLY | O_TRUNC, 2), SKIP_IF_EQUAL(ACCESS_MODE, 1),                       \
        UNLESS_EQUAL(ACCESS_MODE | O_TRUNC, 1), REFUSE(EPERM), RETURN(SECCOMP_RET_ALLOW)

#define SHARED_MEMORY (MAP_SHARED | MAP_ANONYMOUS) /* MAP_SHARED_VALIDATE has MAP_SHARED's bit */

#define CLONE_TIME   0x80u /* CLONE_NEWTIME, which headers may lack */
#define CLONE_CGROUP 0x02000000u
#define CLONE_REFUSED                                                                              \
    (CLONE_TIME | CLONE_CGROUP | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |       \
     CLONE_NEWPID | (uint32_t)CLONE_NEWNET | CLONE_PARENT)

static const struct sock_filter instructions[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, CALLS_END, 0, 1),
    RETURN(SECCOMP_RET_KILL_PROCESS),

    /* Reading and writing what is open. */
    ALLOW(read),
    ALLOW(write),
    ALLOW(readv),
    ALLOW(writev),
    ALLOW(pread64),
    ALLOW(pwrite64),
    ALLOW(lseek),
    ALLOW(close),
    ALLOW(fstat),
    ALLOW(ftruncate),
    ALLOW(fsync),
    ALLOW(fdatasync),
    ALLOW(dup),
    ALLOW(dup3),
    ALLOW(pipe2),
    ALLOW(ppoll),
    ALLOW(pselect6),
    ALLOW(fadvise64),
    ALLOW(flock),
    ALLOW(sendfile),
    ALLOW(fstatfs),
#ifdef SYS_close_range
    ALLOW(close_range),
#endif
    /* Files: Landlock says which. */
    OPEN(openat, 2),
    ALLOW(newfstatat),
    ALLOW(statx),
    ALLOW(faccessat),
    ALLOW(readlinkat),
#ifdef SYS_faccessat2
    ALLOW(faccessat2),
#endif
    ALLOW(getdents64),
    ALLOW(getcwd),
    ALLOW(chdir),
    ALLOW(fchdir),
    ALLOW(mkdirat),
    ALLOW(unlinkat),
    ALLOW(renameat),
    ALLOW(renameat2),
    ALLOW(umask),
    ALLOW(statfs),
    /* Memory. */
    UNLESS_EQUAL(SYS_mmap, 5),
    LOAD_LOW(3),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SHARED_MEMORY),
    UNLESS_EQUAL(SHARED_MEMORY, 1),
    REFUSE(EPERM),
    RETURN(SECCOMP_RET_ALLOW),
    ALLOW(munmap),
    ALLOW(mprotect),
    ALLOW(mremap),
    ALLOW(madvise),
    ALLOW(brk),
    ALLOW(membarrier),
    /* Threads and processes. */
    ALLOW_WITHOUT(clone, 0, CLONE_REFUSED),
    ALLOW(execve),
    ALLOW(exit),
    ALLOW(exit_group),
    ALLOW(wait4),
    ALLOW(waitid),
    ALLOW(futex),
    ALLOW(set_robust_list),
    ALLOW(get_robust_list),
    ALLOW(set_tid_address),
    ALLOW(sched_yield),
    ALLOW(sched_getaffinity),
    ALLOW(sched_getparam),
    ALLOW(sched_getscheduler),
    ALLOW(getcpu),
#ifdef SYS_rseq
    ALLOW(rseq),
#endif
    /* Signals that arrive, and time. */
    ALLOW(rt_sigaction),
    ALLOW(rt_sigprocmask),
    ALLOW(rt_sigreturn),
    ALLOW(rt_sigpending),
    ALLOW(rt_sigtimedwait),
    ALLOW(rt_sigsuspend),
    ALLOW(sigaltstack),
    ALLOW(restart_syscall),
    ALLOW(setitimer),
    ALLOW(getitimer),
    ALLOW(nanosleep),
    ALLOW(clock_nanosleep),
    ALLOW(clock_gettime),
    ALLOW(clock_getres),
    ALLOW(gettimeofday),
    ALLOW(times),
    /* Facts. */
    ALLOW(getrandom),
    ALLOW(getrusage),
    ALLOW(sysinfo),
    ALLOW(uname),
    ALLOW(getpid),
    ALLOW(getppid),
    ALLOW(gettid),
    ALLOW(getpgid),
    ALLOW(getsid),
    ALLOW(getuid),
    ALLOW(geteuid),
    ALLOW(getgid),
    ALLOW(getegid),
    ALLOW(getresuid),
    ALLOW(getresgid),
    ALLOW(getgroups),
    ALLOW(getpriority),
    ALLOW(getrlimit),
#ifdef SYS_open /* calls that newer processors do not have */
    OPEN(open, 1),
    ALLOW(creat),
    ALLOW(stat),
    ALLOW(lstat),
    ALLOW(access),
    ALLOW(readlink),
    ALLOW(mkdir),
    ALLOW(rmdir),
    ALLOW(unlink),
    ALLOW(rename),
    ALLOW(dup2),
    ALLOW(pipe),
    ALLOW(poll),
    ALLOW(select),
    ALLOW(fork),
    ALLOW(vfork),
    ALLOW(getpgrp),
    ALLOW(time),
    ALLOW(pause),
    ALLOW(alarm),
    ALLOW(arch_prctl),
#endif
#ifdef SYS_clone3
    UNLESS_EQUAL(SYS_clone3, 1),
    REFUSE(ENOSYS),
#endif
#ifdef SYS_openat2
    UNLESS_EQUAL(SYS_openat2, 1),
    REFUSE(ENOSYS),
#endif

    UNLESS_EQUAL(SYS_fcntl, 20),
    LOAD_LOW(1),
    ALLOW_VALUE(F_DUPFD),
    ALLOW_VALUE(F_DUPFD_CLOEXEC),
    ALLOW_VALUE(F_GETFD),
    ALLOW_VALUE(F_SETFD),
    ALLOW_VALUE(F_GETFL),
    ALLOW_VALUE(F_SETFL),
    ALLOW_VALUE(F_GETLK),
    ALLOW_VALUE(F_SETLK),
    ALLOW_VALUE(F_SETLKW),
    REFUSE(EPERM),

    UNLESS_EQUAL(SYS_ioctl, 12),
    LOAD_LOW(1),
    ALLOW_VALUE(TCGETS),
    ALLOW_VALUE(FIOCLEX),
    ALLOW_VALUE(FIONCLEX),
    ALLOW_VALUE(FIONREAD),
    ALLOW_VALUE(TIOCGWINSZ),
    REFUSE(ENOTTY),

    UNLESS_EQUAL(SYS_prctl, 6),
    LOAD_LOW(0),
    ALLOW_VALUE(PR_SET_NAME),
    ALLOW_VALUE(PR_GET_NAME),
    REFUSE(EPERM),

    UNLESS_EQUAL(SYS_prlimit64, 6),
    LOAD_LOW(2),
    UNLESS_EQUAL(0, 3),
    LOAD_HIGH(2),
    UNLESS_EQUAL(0, 1),
    RETURN(SECCOMP_RET_ALLOW),
    REFUSE(EPERM),

    REFUSE(EPERM),
};

const struct sock_fprog *code_filter(void) {
    static const struct sock_fprog program = {.len = sizeof(instructions) / sizeof(instructions[0]),
                                              .filter =
                                                  (struct sock_filter *)(uintptr_t)instructions};
    return &program;
}

/* Put in front of the other: fork, vfork, and clone unless it makes a thread. */
static const struct sock_filter no_processes[] = {
    LOAD(nr),
#ifdef SYS_fork
    UNLESS_EQUAL(SYS_fork, 1),
    REFUSE(EPERM),
    UNLESS_EQUAL(SYS_vfork, 1),
    REFUSE(EPERM),
#endif
    UNLESS_EQUAL(SYS_clone, 3),
    LOAD_LOW(0),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
    REFUSE(EPERM),
    RETURN(SECCOMP_RET_ALLOW),
};

const struct sock_fprog *code_filter_processes(void) {
    static const struct sock_fprog program = {.len = sizeof(no_processes) / sizeof(no_processes[0]),
                                              .filter =
                                                  (struct sock_filter *)(uintptr_t)no_processes};
    return &program;
}

#else

const struct sock_fprog *code_filter(void) {
    return NULL;
}

const struct sock_fprog *code_filter_processes(void) {
    return NULL;
}

#endif
