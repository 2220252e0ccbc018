/* Starts the child of one run, watches it, and leaves nothing of it behind.
 *
 * clone, not posix_spawn of a helper: the confinement must be complete before the interpreter
 * starts, and the library has no program of its own that it could start as the helper. The child
 * (code_child.c) makes system calls only, so threads of this process do not matter. clone has the
 * semantics of fork: until exec the child shares this process's pages copy-on-write. For each GiB
 * of anonymous memory in pages of 4 KiB, clone took 29 ms where it was measured, and the child as
 * long again at its exec; in huge pages both took less than 1 ms.
 *
 * The end: in a pid namespace the child is process 1, and the kernel kills all others when it dies.
 * Elsewhere seccomp lets the program start threads only, so that there is one process, which dies
 * with this one, too (PR_SET_PDEATHSIG is not inherited by processes that it would start). Its
 * process group is killed nevertheless: with `unsafe` there may be no seccomp.
 */
#include "eval/code_int.h"

#include "base/clock.h"
#include "base/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#define NAMESPACES                                                                                 \
    (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS)
#define TOKEN_HALF   32 /* characters */
#define GROUP_END_MS 1000

typedef struct process_run {
    const code_job *job;
    const code_run_options *options;
    code_interpreter interpreter;
    code_layers layers;
    code_folder folder;
    code_pipes pipes;
    code_child_plan plan;
    int theirs[4]; /* the child's ends: input, output, result, status */
    int rules, null;
    int why_no_namespaces; /* errno; 0: the child has them */
    char token[2 * TOKEN_HALF + 1];
    char sizes[2 * 16 + 1];
    uint64_t begin_ns;
    const char *why_ended; /* by `look` */
    int wait_status;       /* -1: the host process reaped the child */
    double cpu_seconds;
} process_run;

/* ---- Before ---- */

static avo_status make_token(process_run *run, avo_error *error) {
    uint8_t random[TOKEN_HALF];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return status_fail(error, AVO_ERROR_IO, "code of a model: no random numbers: %s",
                           strerror(errno));
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(run->token + 2 * i, 3, "%02x", random[i]);
    snprintf(run->sizes, sizeof(run->sizes), "%016zx%016zx", run->job->program.size,
             run->job->data.size);
    return AVO_OK;
}

static avo_status open_pipes(process_run *run, avo_error *error) {
    int *ours[] = {&run->pipes.input, &run->pipes.output, &run->pipes.answer, &run->pipes.status};
    for (size_t i = 0; i < 4; i++) {
        int ends[2];
        int our_end = i == 0 ? 1 : 0;
        AVO_TRY(code_pipe_open(ends, our_end, error));
        *ours[i] = ends[our_end];
        run->theirs[i] = ends[1 - our_end];
    }
    run->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    return run->null >= 0 ? AVO_OK
                          : status_fail(error, AVO_ERROR_IO, "/dev/null: %s", strerror(errno));
}

static avo_status prepare(process_run *run, avo_error *error) {
    AVO_TRY(code_layers_find(run->options->unsafe, &run->layers, error));
    AVO_TRY(code_interpreter_find(run->options->interpreter, &run->interpreter, error));
    AVO_TRY(make_token(run, error));
    if (run->layers.landlock >= 1)
        AVO_TRY(code_layers_rules(&run->layers, &run->interpreter, &run->rules, error));
    uid_t user = geteuid() == 0 ? CODE_NOBODY : geteuid();
    AVO_TRY(code_folder_make(&run->folder, user, error));
    return open_pipes(run, error);
}

static void fill_plan(process_run *run) {
    run->plan = (code_child_plan){
        .path = run->interpreter.path,
        .folder = run->folder.path,
        .null = run->null,
        .input = run->theirs[0],
        .output = run->theirs[1],
        .result = run->theirs[2],
        .status = run->theirs[3],
        .rules = run->rules,
        .rights_known = run->layers.landlock >= 1 ? landlock_rights(run->layers.landlock) : 0,
        .filter = run->layers.seccomp,
        .filter_processes = code_filter_processes(),
        .root = geteuid() == 0,
        .cpu_seconds = run->options->cpu_seconds,
        .processes_max = run->options->processes_max,
        .memory_bytes = run->options->memory_bytes,
    };
    code_pipes *pipes = &run->pipes;
    /* The first byte is the child's own, the rest the driver's. */
    pipes->parts[0] = TEXT_LITERAL("!");
    pipes->parts[1] = (text_view){run->token, TOKEN_HALF};
    pipes->parts[2] = text_from(run->sizes);
    pipes->parts[3] = run->job->program;
    pipes->parts[4] = run->job->data;
    pipes->parts[5] = (text_view){run->token + TOKEN_HALF, TOKEN_HALF};
    pipes->part_count = 6;
}

/* ---- The child ---- */

static bool write_map(pid_t child, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/%s", (long)child, name);
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    ssize_t bytes = (ssize_t)strlen(text);
    bool done = write(descriptor, text, (size_t)bytes) == bytes;
    int reason = errno;
    close(descriptor);
    errno = reason;
    return done;
}

/* Who the child is. Root becomes a user who owns nothing; where this root may not name that user,
 * and for every other user, the map has the own identity alone. */
static bool write_maps(pid_t child) {
    unsigned user = geteuid(), group = getegid(), seen = user == 0 ? CODE_NOBODY : user;
    char users[64], groups[64];
    if (user == 0 && write_map(child, "uid_map", "65534 65534 1") &&
        write_map(child, "gid_map", "65534 65534 1"))
        return true;
    snprintf(users, sizeof(users), "%u %u 1", seen, user);
    snprintf(groups, sizeof(groups), "%u %u 1", user == 0 ? CODE_NOBODY : group, group);
    return write_map(child, "setgroups", "deny") && write_map(child, "uid_map", users) &&
           write_map(child, "gid_map", groups);
}

static pid_t clone_child(process_run *run, bool namespaces) {
    run->plan.namespaces = namespaces;
    int descriptor = -1;
    unsigned long flags = SIGCHLD | CLONE_PIDFD | (namespaces ? (unsigned long)NAMESPACES : 0);
    pid_t child = (pid_t)syscall(SYS_clone, flags, NULL, &descriptor, NULL, NULL);
    if (child == 0)
        code_child(&run->plan);
    run->pipes.process = child;
    run->pipes.descriptor = child > 0 ? descriptor : -1;
    return child;
}

static void kill_all(const process_run *run) {
    (void)kill(-run->pipes.process, SIGKILL); /* its group, unless it has not made one yet */
    (void)kill(run->pipes.process, SIGKILL);
}

/* Without namespaces and seccomp there may be others of the group, which were killed with the
 * child. They are orphans: this process must reap them if it is process 1 of a container or a
 * subreaper, else the system does. */
static void reap_group(const process_run *run) {
    struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < GROUP_END_MS && !run->plan.namespaces; i++) {
        while (waitpid(-run->pipes.process, NULL, WNOHANG | __WALL) > 0)
            continue;
        if (kill(-run->pipes.process, 0) != 0)
            return;
        nanosleep(&pause, NULL);
    }
}

/* Kills what there is and waits for its end. */
static void reap(process_run *run) {
    struct rusage usage = {0};
    int status = -1;
    pid_t done;
    kill_all(run);
    do {
        done = wait4(run->pipes.process, &status, __WALL, &usage);
    } while (done < 0 && errno == EINTR);
    run->wait_status = done == run->pipes.process ? status : -1;
    run->cpu_seconds = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    reap_group(run);
    code_descriptor_close(&run->pipes.descriptor);
}

/* With namespaces if they can be had. All signals are blocked meanwhile: a handler of this process
 * must not run in the child. */
static avo_status start(process_run *run, avo_error *error) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t child = clone_child(run, true);
    run->why_no_namespaces = child < 0 ? errno : 0;
    if (child > 0 && !write_maps(child)) {
        run->why_no_namespaces = errno;
        reap(run);
        child = -1;
    }
    if (child < 0)
        child = clone_child(run, false);
    int reason = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (size_t i = 1; i < 4; i++) /* ours of the input stays open: see code_pipes.c */
        code_descriptor_close(&run->theirs[i]);
    return child > 0 ? AVO_OK
                     : status_fail(error, reason == EAGAIN ? AVO_ERROR_FULL : AVO_ERROR_IO,
                                   "code of a model: cannot start a child: %s", strerror(reason));
}

/* Only of the interpreter: until exec the child seems to have all memory of this process. */
static bool look(void *context) {
    process_run *run = context;
    if (run->job->answer->size == 0)
        return true;
    if (code_folder_is_full(&run->folder))
        run->why_ended = "(ended: it wrote too much into its folder)";
    else if (code_memory_used(run->pipes.process, run->options->processes_max) >
             run->options->memory_bytes)
        run->why_ended = "(ended: its processes used too much memory)";
    return run->why_ended == NULL;
}

/* ---- After ---- */

static avo_status check_steps(const process_run *run, bool *mounted, avo_error *error) {
    static const char *const names[] = {[CODE_STEP_MOUNT] = "mounting its folder",
                                        [CODE_STEP_DESCRIPTORS] = "its descriptors",
                                        [CODE_STEP_USER] = "changing to user 65534",
                                        [CODE_STEP_FOLDER] = "entering its folder",
                                        [CODE_STEP_LIMITS] = "its limits",
                                        [CODE_STEP_LANDLOCK] = "Landlock",
                                        [CODE_STEP_SECCOMP] = "seccomp",
                                        [CODE_STEP_EXECUTE] = "starting"};
    *mounted = run->plan.namespaces;
    for (size_t i = 0; i < run->pipes.note_bytes / sizeof(code_note); i++) {
        const code_note *note = &run->pipes.notes[i];
        if (note->step == CODE_STEP_MOUNT) {
            *mounted = false;
            continue;
        }
        if (note->step == CODE_STEP_EXECUTE)
            return status_fail(error, AVO_ERROR_IO,
                               "cannot start %s%s: %s; name another interpreter",
                               run->interpreter.path, run->plan.root ? " as user 65534" : "",
                               strerror(note->reason));
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "code of a model: the child could not be confined (%s: %s), so nothing "
                           "was run",
                           names[note->step], strerror(note->reason));
    }
    return AVO_OK;
}

static void describe_layers(const process_run *run, bool mounted, code_run_result *result) {
    char landlock[48] = "no Landlock", namespaces[96] = "no namespaces";
    if (run->rules >= 0)
        snprintf(landlock, sizeof(landlock), "Landlock (ABI %ld)", run->layers.landlock);
    if (run->plan.namespaces)
        snprintf(namespaces, sizeof(namespaces), "namespaces (user, pid, net, ipc%s)",
                 mounted ? ", mount" : "; no mount");
    else
        snprintf(namespaces, sizeof(namespaces), "no namespaces (%s)",
                 strerror(run->why_no_namespaces));
    snprintf(result->layers, sizeof(result->layers), "%s, %s, %s", landlock,
             run->layers.seccomp != NULL ? "seccomp" : "no seccomp", namespaces);
}

/* The answer is 'S' when the driver has started, then the token, then what the job asked for. */
static bool has_token(const process_run *run, text_view answer) {
    size_t token = 2 * TOKEN_HALF;
    return answer.size >= 1 + token && memcmp(answer.data + 1, run->token, token) == 0;
}

static code_outcome judge(process_run *run, code_end end, text_view answer) {
    bool killed = run->wait_status != -1 && WIFSIGNALED(run->wait_status);
    /* Only the kernel kills it before we do. Its limit counts ticks, which may be far from the time
     * that it reports. */
    bool cpu = killed && WTERMSIG(run->wait_status) == SIGKILL &&
               run->cpu_seconds > 0.5 * (double)run->options->cpu_seconds;
    if (end == CODE_END_DEADLINE || (end == CODE_END_PROCESS && cpu)) {
        code_pipes_say(&run->pipes, cpu ? "(ended: CPU time)" : "(ended: wall time)");
        return CODE_TIMEOUT;
    }
    const char *why = end == CODE_END_OUTPUT ? "(ended: it printed too much)"
                      : end == CODE_END_ANSWER
                          ? "(ended: it wrote to the descriptor of the verdict)"
                          : run->why_ended;
    if (why != NULL) {
        code_pipes_say(&run->pipes, why);
        return CODE_FAILED;
    }
    if (killed) {
        char text[48];
        snprintf(text, sizeof(text), "(died of signal %d)", WTERMSIG(run->wait_status));
        code_pipes_say(&run->pipes, text);
    }
    bool clean = run->wait_status == -1 || run->wait_status == 0;
    return clean && has_token(run, answer) ? CODE_PASSED : CODE_FAILED;
}

static avo_status conclude(process_run *run, code_end end, code_run_result *result,
                           avo_error *error) {
    bool mounted;
    text_view answer = buffer_text(run->job->answer);
    AVO_TRY(check_steps(run, &mounted, error));
    if (end == CODE_END_MEMORY)
        return status_no_memory(error, "the answer of a child", answer.size);
    if (end == CODE_END_FAULT)
        return status_fail(error, AVO_ERROR_IO, "code of a model: cannot watch the child: %s",
                           strerror(errno));
    bool started = answer.size > 0 && answer.data[0] == 'S';
    if (!started && end == CODE_END_PROCESS)
        return status_fail(error, AVO_ERROR_IO, "%s does not start in the sandbox: %s",
                           run->interpreter.path,
                           result->output[0] != '\0' ? result->output : "it prints nothing");
    result->outcome = judge(run, end, answer);
    if (result->outcome != CODE_PASSED) {
        run->job->answer->size = 0;
    } else { /* leaves what the job asked for */
        size_t head = 1 + 2 * TOKEN_HALF;
        memmove(run->job->answer->data, answer.data + head, answer.size - head);
        run->job->answer->size = answer.size - head;
    }
    describe_layers(run, mounted, result);
    return AVO_OK;
}

static avo_status go(process_run *run, code_run_result *result, avo_error *error) {
    char library[64 + 8], home[64 + 8];
    snprintf(library, sizeof(library), "TMPDIR=%s", run->folder.path);
    snprintf(home, sizeof(home), "HOME=%s", run->folder.path);
    /* What -I does, but for the seed of hashes, which -I does not let anyone choose: the order of a
     * set must be the same in every run. */
    char *const environment[] = {library,
                                 home,
                                 "PATH=/usr/bin:/bin",
                                 "LC_ALL=C.UTF-8",
                                 "TZ=UTC",
                                 "PYTHONHASHSEED=0",
                                 "PYTHONSAFEPATH=1",
                                 NULL};
    char *const arguments[] = {run->interpreter.path,          "-s", "-S", "-B", "-c",
                               (char *)(uintptr_t)code_driver, NULL};
    fill_plan(run);
    run->plan.environment = environment;
    run->plan.arguments = arguments;
    run->begin_ns = clock_now_ns();
    run->pipes.deadline_ns = run->begin_ns + run->options->wall_seconds * (uint64_t)1000000000;
    AVO_TRY(start(run, error));
    code_end end = code_pipes_watch(&run->pipes);
    reap(run);
    code_end drained = code_pipes_drain(&run->pipes);
    if (end == CODE_END_PROCESS)
        end = drained;
    result->seconds = clock_seconds(run->begin_ns, clock_now_ns());
    return conclude(run, end, result, error);
}

static void close_all(process_run *run) {
    for (size_t i = 0; i < 4; i++)
        code_descriptor_close(&run->theirs[i]);
    code_descriptor_close(&run->pipes.input);
    code_descriptor_close(&run->pipes.output);
    code_descriptor_close(&run->pipes.answer);
    code_descriptor_close(&run->pipes.status);
    code_descriptor_close(&run->rules);
    code_descriptor_close(&run->null);
    code_folder_remove(&run->folder);
}

avo_status code_process_run(const code_job *job, const code_run_options *options,
                            code_run_result *result, avo_error *error) {
    *result = (code_run_result){.outcome = CODE_FAILED};
    process_run run = {.job = job,
                       .options = options,
                       .theirs = {-1, -1, -1, -1},
                       .rules = -1,
                       .null = -1,
                       .folder = {.descriptor = -1},
                       .pipes = {.descriptor = -1,
                                 .input = -1,
                                 .output = -1,
                                 .answer = -1,
                                 .status = -1,
                                 .tail = result->output,
                                 .tail_capacity = sizeof(result->output),
                                 .output_max = options->output_bytes,
                                 .answers = job->answer}};
    run.pipes.tick = look;
    run.pipes.context = &run;
    avo_status status = prepare(&run, error);
    AVO_THEN(status, go(&run, result, error));
    close_all(&run);
    return status;
}
