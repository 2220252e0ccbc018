/* Lines of the audit log, written by whoever acts. */
#include "server/audit.h"

#include "base/json_writer.h"
#include "server/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES_MAX ((size_t)16 << 10)

struct audit {
    pthread_mutex_t lock;
    int descriptor;
    char *path;
};

static int open_file(const char *path) {
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

avo_status audit_open(const char *path, audit **out, avo_error *error) {
    audit *opened = calloc(1, sizeof(*opened));
    char *copy = strdup(path);
    int descriptor = open_file(path);
    if (opened == NULL || copy == NULL || descriptor < 0) {
        avo_status status =
            descriptor < 0
                ? status_fail(error, AVO_ERROR_IO, "--audit-log %s: %s", path, strerror(errno))
                : status_no_memory(error, "the audit log", sizeof(*opened));
        if (descriptor >= 0)
            close(descriptor);
        free(copy);
        free(opened);
        return status;
    }
    pthread_mutex_init(&opened->lock, NULL);
    opened->descriptor = descriptor;
    opened->path = copy;
    *out = opened;
    return AVO_OK;
}

void audit_close(audit *audit) {
    if (audit == NULL)
        return;
    close(audit->descriptor);
    pthread_mutex_destroy(&audit->lock);
    free(audit->path);
    free(audit);
}

void audit_reopen(audit *audit) {
    if (audit == NULL)
        return;
    pthread_mutex_lock(&audit->lock);
    int fresh = open_file(audit->path);
    if (fresh >= 0) { /* the old file is better than none */
        close(audit->descriptor);
        audit->descriptor = fresh;
    }
    pthread_mutex_unlock(&audit->lock);
}

static avo_status format_line(const audit_entry *entry, buffer *out) {
    static const char *const outcomes[] = {
        [AUDIT_DONE] = "done", [AUDIT_FAILED] = "failed", [AUDIT_DENIED] = "denied"};
    char now[LOG_TIME_BYTES];
    log_time(now);
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "time", now);
    json_member_string(&w, "actor", entry->actor);
    if (entry->peer != NULL)
        json_member_string(&w, "peer", entry->peer);
    if (entry->request != NULL)
        json_member_string(&w, "request", entry->request);
    json_member_string(&w, "action", entry->action);
    if (entry->target != NULL)
        json_member_string(&w, "target", entry->target);
    json_member_string(&w, "outcome", outcomes[entry->outcome]);
    if (entry->reason != NULL)
        json_member_string(&w, "reason", entry->reason);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

/* A line is written in one piece: appending is atomic for others who read the file. */
static bool write_line(int descriptor, const buffer *line) {
    ssize_t written = 0;
    do
        written = write(descriptor, line->data, line->size);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)line->size;
}

bool audit_write(audit *audit, const audit_entry *entry) {
    if (audit == NULL)
        return true;
    buffer line;
    buffer_init(&line, NULL, LINE_BYTES_MAX);
    bool good = format_line(entry, &line) == AVO_OK;
    pthread_mutex_lock(&audit->lock);
    good = good && write_line(audit->descriptor, &line);
    /* Who is denied could make the disk work as often as he may ask: those lines are not waited
     * for. A pipe cannot be synced, which is no failure. */
    if (good && entry->outcome != AUDIT_DENIED)
        (void)fdatasync(audit->descriptor);
    pthread_mutex_unlock(&audit->lock);
    buffer_free(&line);
    return good;
}
