/* The access log's queue and its writer. */
#include "server/log.h"

#include "base/json_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct access_log {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    pthread_t thread;
    buffer queue;
    uint64_t dropped;
    bool reopen, ends;
    int descriptor;
    char *path; /* NULL: standard error */
};

static int open_file(const char *path) {
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

static void write_all(int descriptor, text_view text) {
    while (text.size > 0) {
        ssize_t written = write(descriptor, text.data, text.size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) /* a full disk: the log is not worth the server */
            return;
        text.data += written;
        text.size -= (size_t)written;
    }
}

static void open_anew(access_log *log) {
    int fresh = log->path == NULL ? -1 : open_file(log->path);
    if (fresh < 0) /* the old file is better than none */
        return;
    close(log->descriptor);
    log->descriptor = fresh;
}

void log_time(char text[static LOG_TIME_BYTES]) {
    struct timespec now;
    struct tm parts;
    char seconds[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, LOG_TIME_BYTES, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
}

static avo_status write_dropped(uint64_t lines, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_u64(&w, "lines_dropped", lines);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

static void *write_lines(void *context) {
    access_log *log = context;
    buffer lines;
    buffer_init(&lines, NULL, LOG_QUEUE_BYTES);
    pthread_mutex_lock(&log->lock);
    for (;;) {
        while (log->queue.size == 0 && !log->ends && !log->reopen)
            pthread_cond_wait(&log->cond, &log->lock);
        bool reopen = log->reopen;
        log->reopen = false;
        if (log->queue.size == 0 && !reopen)
            break;
        buffer taken = log->queue;
        log->queue = lines;
        uint64_t dropped = log->dropped;
        log->dropped = 0;
        pthread_mutex_unlock(&log->lock);
        if (reopen)
            open_anew(log);
        write_all(log->descriptor, buffer_text(&taken));
        taken.size = 0;
        if (dropped > 0 && write_dropped(dropped, &taken) == AVO_OK)
            write_all(log->descriptor, buffer_text(&taken));
        taken.size = 0;
        lines = taken;
        pthread_mutex_lock(&log->lock);
    }
    pthread_mutex_unlock(&log->lock);
    buffer_free(&lines);
    return NULL;
}

static void free_log(access_log *log) {
    if (log->path != NULL && log->descriptor >= 0)
        close(log->descriptor);
    buffer_free(&log->queue);
    pthread_cond_destroy(&log->cond);
    pthread_mutex_destroy(&log->lock);
    free(log->path);
    free(log);
}

avo_status log_open(const char *path, access_log **out, avo_error *error) {
    access_log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return status_no_memory(error, "the access log", sizeof(*log));
    pthread_mutex_init(&log->lock, NULL);
    pthread_cond_init(&log->cond, NULL);
    buffer_init(&log->queue, NULL, LOG_QUEUE_BYTES);
    bool is_file = strcmp(path, "-") != 0;
    log->path = is_file ? strdup(path) : NULL;
    log->descriptor = is_file ? open_file(path) : STDERR_FILENO;
    if (log->descriptor < 0 || (is_file && log->path == NULL)) {
        avo_status status =
            status_fail(error, AVO_ERROR_IO, "--access-log %s: %s", path, strerror(errno));
        free_log(log);
        return status;
    }
    if (pthread_create(&log->thread, NULL, write_lines, log) != 0) {
        free_log(log);
        return status_fail(error, AVO_ERROR_MEMORY, "cannot start a thread for the access log");
    }
    *out = log;
    return AVO_OK;
}

void log_close(access_log *log) {
    if (log == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    log->ends = true;
    pthread_cond_signal(&log->cond);
    pthread_mutex_unlock(&log->lock);
    pthread_join(log->thread, NULL);
    free_log(log);
}

void log_write(access_log *log, text_view line) {
    pthread_mutex_lock(&log->lock);
    if (buffer_append(&log->queue, line.data, line.size) != AVO_OK)
        log->dropped++;
    pthread_cond_signal(&log->cond);
    pthread_mutex_unlock(&log->lock);
}

void log_reopen(access_log *log) {
    if (log == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    log->reopen = true;
    pthread_cond_signal(&log->cond);
    pthread_mutex_unlock(&log->lock);
}
