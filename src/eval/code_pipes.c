/* Feeds a child and reads what it says, without ever waiting for one pipe while another is full. */
#include "eval/code_int.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS       50
#define TICK_BLIND_MS 10 /* where no descriptor tells that the process ended */
#define CHUNK_BYTES   16384

avo_status code_pipe_open(int ends[2], int ours, avo_error *error) {
    if (pipe2(ends, O_CLOEXEC) != 0) {
        ends[0] = ends[1] = -1;
        return status_fail(error,
                           errno == EMFILE || errno == ENFILE ? AVO_ERROR_FULL : AVO_ERROR_IO,
                           "cannot open a pipe to a child: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        if (ends[i] > 2)
            continue;
        /* This process has no standard streams; a child's would overwrite these. */
        int above = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
        int reason = errno;
        close(ends[i]);
        ends[i] = above;
        if (above < 0) {
            code_descriptor_close(&ends[1 - i]);
            return status_fail(error, AVO_ERROR_FULL, "cannot open a pipe to a child: %s",
                               strerror(reason));
        }
    }
    (void)fcntl(ends[ours], F_SETFL, O_NONBLOCK);
    return AVO_OK;
}

void code_descriptor_close(int *descriptor) {
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

/* ---- The end of the output ---- */

static void keep_tail(code_pipes *pipes, const char *data, size_t bytes) {
    size_t most = pipes->tail_capacity - 1;
    if (bytes > most) {
        data += bytes - most;
        bytes = most;
    }
    if (pipes->tail_bytes + bytes > most) {
        size_t dropped = pipes->tail_bytes + bytes - most;
        memmove(pipes->tail, pipes->tail + dropped, pipes->tail_bytes - dropped);
        pipes->tail_bytes -= dropped;
    }
    memcpy(pipes->tail + pipes->tail_bytes, data, bytes);
    pipes->tail_bytes += bytes;
    pipes->tail[pipes->tail_bytes] = '\0';
}

void code_pipes_say(code_pipes *pipes, const char *text) {
    if (pipes->tail_bytes > 0 && pipes->tail[pipes->tail_bytes - 1] != '\n')
        keep_tail(pipes, "\n", 1);
    keep_tail(pipes, text, strlen(text));
}

/* ---- One pipe at a time ---- */

/* We hold the other end open, so writing to a child that is gone raises no SIGPIPE: the pipe only
 * stays full. */
static void write_input(code_pipes *pipes) {
    while (pipes->part_at < pipes->part_count) {
        text_view *part = &pipes->parts[pipes->part_at];
        ssize_t done = part->size == 0 ? 0 : write(pipes->input, part->data, part->size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            break;
        part->data += done;
        part->size -= (size_t)done;
        if (part->size == 0)
            pipes->part_at++;
    }
    if (pipes->part_at == pipes->part_count)
        code_descriptor_close(&pipes->input);
}

/* Bytes read; 0: nothing now; the descriptor is closed at the end. */
static size_t read_some(int *descriptor, char *data, size_t capacity) {
    ssize_t got = -1;
    do {
        got = *descriptor < 0 ? 0 : read(*descriptor, data, capacity);
    } while (got < 0 && errno == EINTR);
    if (got > 0)
        return (size_t)got;
    if (got == 0 || errno != EAGAIN)
        code_descriptor_close(descriptor);
    return 0;
}

static code_end read_output(code_pipes *pipes) {
    char chunk[CHUNK_BYTES];
    size_t got = read_some(&pipes->output, chunk, sizeof(chunk));
    pipes->output_bytes += got;
    keep_tail(pipes, chunk, got);
    return pipes->output_bytes > pipes->output_max ? CODE_END_OUTPUT : CODE_END_PROCESS;
}

static code_end read_answer(code_pipes *pipes) {
    char chunk[CHUNK_BYTES];
    size_t got = read_some(&pipes->answer, chunk, sizeof(chunk));
    avo_status status = got == 0 ? AVO_OK : buffer_append(pipes->answers, chunk, got);
    return status == AVO_OK            ? CODE_END_PROCESS
           : status == AVO_ERROR_LIMIT ? CODE_END_ANSWER
                                       : CODE_END_MEMORY;
}

static void read_notes(code_pipes *pipes) {
    char dropped[64];
    size_t room = sizeof(pipes->notes) - pipes->note_bytes;
    if (room == 0)
        (void)read_some(&pipes->status, dropped, sizeof(dropped));
    else
        pipes->note_bytes +=
            read_some(&pipes->status, (char *)pipes->notes + pipes->note_bytes, room);
}

code_end code_pipes_drain(code_pipes *pipes) {
    /* No more than pipes hold: something else may keep the other end open and write. */
    for (int i = 0; i < 64; i++) {
        uint64_t before = pipes->output_bytes + pipes->answers->size + pipes->note_bytes;
        code_end end = read_output(pipes);
        if (end == CODE_END_PROCESS)
            end = read_answer(pipes);
        if (end != CODE_END_PROCESS)
            return end;
        read_notes(pipes);
        if (pipes->output_bytes + pipes->answers->size + pipes->note_bytes == before)
            break;
    }
    return CODE_END_PROCESS;
}

/* ---- All of them ---- */

static bool has_ended(const code_pipes *pipes) {
    siginfo_t facts = {0};
    int done = waitid(P_PID, (id_t)pipes->process, &facts, WEXITED | WNOHANG | WNOWAIT);
    return done != 0 || facts.si_pid == pipes->process; /* ECHILD: the host has reaped it */
}

/* Milliseconds to the next look at clock and tick. */
static int patience(const code_pipes *pipes, uint64_t now) {
    uint64_t left = (pipes->deadline_ns - now) / 1000000 + 1;
    uint64_t most = pipes->descriptor < 0 ? TICK_BLIND_MS : pipes->tick != NULL ? TICK_MS : 60000;
    return (int)(left < most ? left : most);
}

static code_end serve(code_pipes *pipes, const struct pollfd *ready) {
    code_end end = CODE_END_PROCESS;
    if (ready[0].revents != 0)
        write_input(pipes);
    if (ready[1].revents != 0)
        end = read_output(pipes);
    if (ready[2].revents != 0 && end == CODE_END_PROCESS)
        end = read_answer(pipes);
    if (ready[3].revents != 0)
        read_notes(pipes);
    return end;
}

code_end code_pipes_watch(code_pipes *pipes) {
    uint64_t next_tick = 0;
    for (;;) {
        uint64_t now = clock_now_ns();
        if (now >= pipes->deadline_ns)
            return CODE_END_DEADLINE;
        if (pipes->tick != NULL && now >= next_tick) {
            if (!pipes->tick(pipes->context))
                return CODE_END_TICK;
            next_tick = now + TICK_MS * (uint64_t)1000000;
        }
        struct pollfd watched[5] = {{.fd = pipes->input, .events = POLLOUT},
                                    {.fd = pipes->output, .events = POLLIN},
                                    {.fd = pipes->answer, .events = POLLIN},
                                    {.fd = pipes->status, .events = POLLIN},
                                    {.fd = pipes->descriptor, .events = POLLIN}};
        int ready = poll(watched, 5, patience(pipes, now));
        if (ready < 0 && errno != EINTR)
            return CODE_END_FAULT;
        code_end end = ready > 0 ? serve(pipes, watched) : CODE_END_PROCESS;
        if (end != CODE_END_PROCESS)
            return end;
        if (pipes->descriptor < 0 ? has_ended(pipes) : ready > 0 && watched[4].revents != 0)
            return CODE_END_PROCESS;
    }
}
