/* CSV files that grow: see table.h. */
#include "telemetry/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX 4096
#define PATH_BYTES 4096

static avo_status fail(const table_file *table, const char *what, avo_error *error) {
    return status_fail(error, AVO_ERROR_IO, "%s: cannot %s telemetry: %s", table->path, what,
                       strerror(errno));
}

/* Opened and locked; the lock goes with the descriptor. The file of that name may have been moved
 * away while we waited for the lock: then once more. */
static avo_status open_locked(const table_file *table, int *descriptor, struct stat *facts,
                              avo_error *error) {
    for (;;) {
        struct stat named;
        int file = open(table->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (file < 0)
            return fail(table, "open for", error);
        *descriptor = file;
        (void)!flock(file, LOCK_EX); /* pipes have none */
        if (fstat(file, facts) != 0) {
            close(file);
            return fail(table, "open for", error);
        }
        if (!S_ISREG(facts->st_mode) ||
            (stat(table->path, &named) == 0 && named.st_ino == facts->st_ino &&
             named.st_dev == facts->st_dev))
            return AVO_OK;
        close(file);
    }
}

static avo_status check_header(const table_file *table, int file, avo_error *error) {
    char first[HEADER_MAX];
    size_t bytes = table->header.size;
    if (pread(file, first, bytes, 0) == (ssize_t)bytes &&
        memcmp(first, table->header.data, bytes) == 0)
        return AVO_OK;
    return status_fail(
        error, AVO_ERROR_FORMAT,
        "%s: not a telemetry file of this version (its first line differs); give a new file",
        table->path);
}

static bool write_all(int file, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t wrote = write(file, data, bytes);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        data += wrote;
        bytes -= (size_t)wrote;
    }
    return true;
}

/* A line that somebody left unfinished (the machine went down) is ended first. */
static bool line_is_open(int file, off_t size) {
    char last = '\n';
    return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

static avo_status write_lines(const table_file *table, int file, const struct stat *facts,
                              text_view lines, avo_error *error) {
    bool regular = S_ISREG(facts->st_mode);
    bool good = true;
    if (regular ? facts->st_size == 0 : table->first)
        good = write_all(file, table->header.data, table->header.size);
    else if (regular && lines.size > 0 && line_is_open(file, facts->st_size))
        good = write_all(file, "\n", 1);
    good = good && write_all(file, lines.data, lines.size);
    if (good)
        return AVO_OK;
    avo_status status = fail(table, "write", error);
    if (regular && ftruncate(file, facts->st_size) != 0)
        errno = 0; /* what is there stays; the next line begins behind it */
    return status;
}

static bool is_full(const table_file *table, const struct stat *facts, size_t more) {
    return S_ISREG(facts->st_mode) && table->bytes_max > 0 && more > 0 &&
           (uint64_t)facts->st_size > table->header.size &&
           (uint64_t)facts->st_size + more > table->bytes_max;
}

/* The full one is "path.1" from now on. */
static avo_status put_away(const table_file *table, avo_error *error) {
    char old[PATH_BYTES];
    int wrote = snprintf(old, sizeof(old), "%s.1", table->path);
    if (wrote < 0 || (size_t)wrote >= sizeof(old))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the path is too long", table->path);
    return rename(table->path, old) == 0 ? AVO_OK : fail(table, "rename the full file of", error);
}

avo_status table_append(const table_file *table, text_view lines, avo_error *error) {
    int file = -1;
    struct stat facts;
    if (table->header.size > HEADER_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the header is too long", table->path);
    AVO_TRY(open_locked(table, &file, &facts, error));
    avo_status status = AVO_OK;
    if (S_ISREG(facts.st_mode) && facts.st_size > 0)
        status = check_header(table, file, error);
    if (status == AVO_OK && is_full(table, &facts, lines.size)) {
        status = put_away(table, error);
        close(file); /* whoever waits for its lock finds that it has moved */
        AVO_THEN(status, open_locked(table, &file, &facts, error));
        if (status != AVO_OK)
            return status;
    }
    AVO_THEN(status, write_lines(table, file, &facts, lines, error));
    close(file);
    return status;
}
