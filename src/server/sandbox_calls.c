/* seccomp: which system calls are left. */
#include "server/sandbox.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static const char *const allowed[] = {
    /* reading and writing what is open */
    "read", "write", "readv", "writev", "pread64", "pwrite64", "lseek", "close", "fstat",
    "newfstatat", "stat", "lstat", "statx", "fcntl", "ftruncate", "fsync", "fdatasync", "ioctl",
    "dup", "pipe2", "fadvise64", "readahead",
    /* opening: Landlock says what */
    "openat", "open", "openat2", "access", "faccessat", "faccessat2", "readlink", "readlinkat",
    "getdents64", "getcwd", "rename", "renameat", "renameat2", "unlink", "unlinkat", "umask",
    "fchmod", "statfs", "fstatfs",
    /* memory, and where it lies */
    "mmap", "munmap", "mprotect", "mremap", "madvise", "brk", "mlock", "mlock2", "munlock",
    "mincore", "mbind", "set_mempolicy", "get_mempolicy", "membarrier",
    /* threads; clone itself below */
    "futex", "set_robust_list", "get_robust_list", "rseq", "set_tid_address", "gettid", "getpid",
    "getppid", "tgkill", "flock", "exit", "exit_group", "sched_yield", "sched_getaffinity",
    "sched_setaffinity", "sched_getparam", "sched_getscheduler", "getcpu", "getpriority",
    /* signals and time */
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigtimedwait", "rt_sigsuspend",
    "sigaltstack", "restart_syscall", "nanosleep", "clock_nanosleep", "clock_gettime",
    "clock_getres", "gettimeofday", "time",
    /* connections that others open */
    "accept", "accept4", "recvfrom", "recvmsg", "sendto", "sendmsg", "shutdown", "getsockopt",
    "setsockopt", "getsockname", "getpeername", "poll", "ppoll", "select", "pselect6",
    "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2",
    "sendfile",
    /* facts */
    "getrandom", "arch_prctl", "getrusage", "sysinfo", "uname", "getrlimit", "prlimit64", "getuid",
    "geteuid", "getgid", "getegid", "times"};

/* The leak checker stops its own threads and looks at them; the race checker moves itself. */
static const char *const allowed_sanitized[] = {
    "ptrace", "wait4", "process_vm_readv", "arch_prctl", "personality", "prctl",
    "fork",   "pipe",  "execve",           "clone",      "getpgrp",     "getdents"};

static int allow_names(scmp_filter_ctx filter, const char *const *names, size_t count) {
    int fault = 0;
    for (size_t i = 0; i < count && fault == 0; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        if (number != __NR_SCMP_ERROR && number >= 0)
            fault = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
    }
    return fault;
}

static int allow_threads(scmp_filter_ctx filter) {
    /* New threads, no new processes. clone3 has its flags in memory, where no filter sees them: it
     * is told to be absent, and the C library takes clone. */
    int fault = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                                 SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    if (fault == 0)
        fault = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (fault == 0)
        fault = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1,
                                 SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME, 0));
    return fault;
}

/* TCP sockets and no others; Landlock says to which port. */
static int allow_connecting(scmp_filter_ctx filter) {
    static const unsigned families[] = {AF_INET, AF_INET6};
    int fault = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(connect), 0);
    for (size_t i = 0; i < 2 && fault == 0; i++)
        fault = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
                                 SCMP_A0(SCMP_CMP_EQ, families[i], 0),
                                 SCMP_A1(SCMP_CMP_MASKED_EQ, 0xF, SOCK_STREAM));
    return fault;
}

static int fill(scmp_filter_ctx filter, const sandbox_options *options) {
    /* All threads that run already, too. */
    int fault = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1); /* older kernels: without */
    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (fault == 0)
        fault = allow_names(filter, allowed, sizeof(allowed) / sizeof(allowed[0]));
    if (fault == 0)
        fault = allow_threads(filter);
    if (fault == 0 && options->performance_counters)
        fault = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(perf_event_open), 0);
    if (fault == 0 && options->connect_port != 0)
        fault = allow_connecting(filter);
    if (fault == 0 && SANITIZED)
        fault = allow_names(filter, allowed_sanitized,
                            sizeof(allowed_sanitized) / sizeof(allowed_sanitized[0]));
    return fault;
}

avo_status sandbox_calls(const sandbox_options *options, char *report, size_t capacity,
                         avo_error *error) {
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
        snprintf(report, capacity, "no seccomp here: system calls are not confined");
        return AVO_OK;
    }
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (filter == NULL)
        return status_no_memory(error, "the system call filter", 0);
    int fault = fill(filter, options);
    if (fault == 0)
        fault = seccomp_load(filter);
    seccomp_release(filter);
    if (fault != 0)
        return status_fail(error, AVO_ERROR_IO,
                           "sandbox: seccomp failed: %s; use --no-sandbox to run without it",
                           strerror(-fault));
    snprintf(report, capacity, "seccomp%s", SANITIZED ? " (wider: a sanitizer is built in)" : "");
    return AVO_OK;
}
