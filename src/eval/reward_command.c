/* The command reward: any program of the user, as the shell starts it. It reads one JSON object a
 * line and prints one number for each. It is trusted like the command line that names it, so it
 * runs without a sandbox, in a process group of its own that is killed when its time is over. */
#include "eval/code_int.h"
#include "eval/reward_int.h"

#include "base/clock.h"
#include "base/process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DATA_MAX  ((size_t)1 << 30)
#define ERROR_MAX 512
#define LOG_MAX   ((uint64_t)64 << 20) /* of the standard error */

typedef struct command_run {
    const reward *reward;
    code_pipes pipes;
    int theirs[3]; /* standard input, output and error */
    char tail[ERROR_MAX];
    buffer data, answer;
} command_run;

static avo_status write_lines(buffer *out, const reward_item *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        AVO_TRY(reward_write_item(out, &items[i]));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return AVO_OK;
}

static avo_status open_pipes(command_run *run, avo_error *error) {
    int *ours[] = {&run->pipes.input, &run->pipes.answer, &run->pipes.output};
    for (size_t i = 0; i < 3; i++) {
        int ends[2], our_end = i == 0 ? 1 : 0;
        AVO_TRY(code_pipe_open(ends, our_end, error));
        *ours[i] = ends[our_end];
        run->theirs[i] = ends[1 - our_end];
    }
    return AVO_OK;
}

static avo_status check_end(const command_run *run, code_end end, int status, size_t count,
                            avo_error *error) {
    text_view command = run->reward->text;
    const char *said = run->tail[0] != '\0' ? run->tail : "nothing on its standard error";
    if (end == CODE_END_DEADLINE)
        return status_fail(error, AVO_ERROR_DEADLINE,
                           "%.*s: takes longer than %u s for %zu completions; raise \"seconds\"",
                           TEXT_ARGUMENT(command), run->reward->seconds, count);
    if (end == CODE_END_MEMORY)
        return status_no_memory(error, "a command's output", run->answer.size);
    if (end == CODE_END_ANSWER || end == CODE_END_OUTPUT)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%.*s: prints too much, must print one number a line for each of %zu "
                           "completions",
                           TEXT_ARGUMENT(command), count);
    if (end != CODE_END_PROCESS)
        return status_fail(error, AVO_ERROR_IO, "%.*s: cannot watch it: %s", TEXT_ARGUMENT(command),
                           strerror(errno));
    if (status != -1 && WIFSIGNALED(status))
        return status_fail(error, AVO_ERROR_IO, "%.*s: died of signal %d; it said: %s",
                           TEXT_ARGUMENT(command), WTERMSIG(status), said);
    if (status != 0)
        return status_fail(error, AVO_ERROR_IO, "%.*s: exit status %d; it said: %s",
                           TEXT_ARGUMENT(command), status == -1 ? -1 : WEXITSTATUS(status), said);
    return AVO_OK;
}

static int reap(command_run *run) {
    int status = -1;
    pid_t done;
    (void)kill(-run->pipes.process, SIGKILL); /* before it is reaped: the number is still its own */
    do {
        done = waitpid(run->pipes.process, &status, 0);
    } while (done < 0 && errno == EINTR);
    code_descriptor_close(&run->pipes.descriptor);
    return done == run->pipes.process ? status : -1;
}

static avo_status execute(command_run *run, size_t count, avo_error *error) {
    AVO_TRY(open_pipes(run, error));
    char *const arguments[] = {"sh", "-c", (char *)(uintptr_t)run->reward->text.data, NULL};
    int fault = process_start("/bin/sh", arguments, run->theirs, 3, &run->pipes.process);
    for (size_t i = 1; i < 3; i++) /* that of the input stays open: see code_pipes.c */
        code_descriptor_close(&run->theirs[i]);
    if (fault != 0)
        return status_fail(error, AVO_ERROR_IO, "cannot start /bin/sh: %s", strerror(fault));
    run->pipes.descriptor = (int)syscall(SYS_pidfd_open, run->pipes.process, 0);
    run->pipes.parts[0] = buffer_text(&run->data);
    run->pipes.part_count = 1;
    run->pipes.deadline_ns = clock_now_ns() + run->reward->seconds * (uint64_t)1000000000;
    code_end end = code_pipes_watch(&run->pipes);
    int status = reap(run);
    code_end drained = code_pipes_drain(&run->pipes);
    if (end == CODE_END_PROCESS)
        end = drained;
    return check_end(run, end, status, count, error);
}

avo_status reward_score_command(const reward *reward, const reward_item *items, size_t count,
                                float *scores, avo_error *error) {
    command_run run = {.reward = reward, .theirs = {-1, -1, -1}};
    run.pipes = (code_pipes){.descriptor = -1,
                             .input = -1,
                             .output = -1,
                             .answer = -1,
                             .status = -1,
                             .tail = run.tail,
                             .tail_capacity = sizeof(run.tail),
                             .output_max = LOG_MAX,
                             .answers = &run.answer};
    buffer_init(&run.data, reward->options.allocator, DATA_MAX);
    buffer_init(&run.answer, reward->options.allocator, count * REWARD_SCORE_TEXT);
    avo_status status = write_lines(&run.data, items, count);
    if (status != AVO_OK)
        status = status_fail(error, status, "%zu completions as JSON: %s (at most %zu bytes)",
                             count, avo_status_text(status), DATA_MAX);
    AVO_THEN(status, execute(&run, count, error));
    AVO_THEN(status,
             reward_read_scores(buffer_text(&run.answer), count, reward->text.data, scores, error));
    for (size_t i = 0; i < 3; i++)
        code_descriptor_close(&run.theirs[i]);
    code_descriptor_close(&run.pipes.input);
    code_descriptor_close(&run.pipes.output);
    code_descriptor_close(&run.pipes.answer);
    buffer_free(&run.answer);
    buffer_free(&run.data);
    return status;
}
