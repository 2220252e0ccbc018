/* Writing files of panels: beside, under a lock, and renamed. */
#include "model/panel_file.h"

#include "base/allocator.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_u32(uint8_t *bytes, size_t offset, uint32_t value) {
    memcpy(bytes + offset, &value, sizeof(value));
}

static void put_u64(uint8_t *bytes, size_t offset, uint64_t value) {
    memcpy(bytes + offset, &value, sizeof(value));
}

static bool front_bytes(const panel_origin *origin, const weights_layout *layout, uint64_t *bytes) {
    uint64_t pieces = (layout->bytes + PANEL_PIECE_BYTES - 1) / PANEL_PIECE_BYTES;
    size_t path = strlen(origin->path);
    *bytes = (PANEL_HEADER_BYTES + 8 * pieces + path + 4095) / 4096 * 4096;
    return layout->bytes > 0 && layout->bytes <= (uint64_t)PANEL_PIECES_MAX * PANEL_PIECE_BYTES &&
           path <= PANEL_PATH_MAX;
}

bool panel_file_bytes(const panel_origin *origin, const weights_layout *layout, uint64_t *bytes) {
    bool possible = front_bytes(origin, layout, bytes);
    *bytes += possible ? layout->bytes : 0;
    return possible;
}

static void fill_front(panel_writer *writer, const panel_origin *origin) {
    uint8_t *front = writer->front;
    size_t path = strlen(origin->path);
    memcpy(front, "AVOPANEL", 8);
    put_u32(front, 8, PANEL_FILE_VERSION);
    put_u32(front, 12, PANEL_HEADER_BYTES);
    put_u64(front, 16, writer->front_bytes + writer->layout.bytes);
    put_u64(front, 24, writer->front_bytes);
    put_u64(front, 32, writer->layout.bytes);
    put_u64(front, 40, writer->layout.key[0]);
    put_u64(front, 48, writer->layout.key[1]);
    put_u64(front, 56, origin->digest);
    put_u64(front, 64, origin->stamps[0]);
    put_u64(front, 72, origin->stamps[1]);
    put_u32(front, 80, PANEL_PIECE_BYTES);
    put_u32(front, 84, writer->pieces);
    put_u32(front, 88, (uint32_t)path);
    memcpy(front + PANEL_HEADER_BYTES + 8 * (size_t)writer->pieces, origin->path, path);
}

/* "FOLDER/NAME" and "FOLDER/.NAME.part". */
static bool name_files(panel_writer *writer, const char *path) {
    const char *slash = strrchr(path, '/');
    int folder = slash == NULL ? 0 : (int)(slash + 1 - path);
    int length = snprintf(writer->temporary, sizeof(writer->temporary), "%.*s.%s.part", folder,
                          path, path + folder);
    if (length < 0 || (size_t)length >= sizeof(writer->temporary))
        return false;
    memcpy(writer->path, path, strlen(path) + 1);
    return true;
}

avo_status panel_writer_open(panel_writer *writer, const avo_allocator *allocator,
                             const panel_origin *origin, const weights_layout *layout,
                             const uint8_t *panels, const char *path, avo_error *error) {
    uint64_t bytes;
    *writer = (panel_writer){
        .allocator = allocator, .panels = panels, .layout = *layout, .descriptor = -1};
    if (!front_bytes(origin, layout, &bytes) || !name_files(writer, path))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: too large", path);
    writer->front = allocator_take_array(allocator, (size_t)bytes, 1);
    if (writer->front == NULL)
        return status_no_memory(error, "sums of panels", (size_t)bytes);
    writer->front_bytes = (size_t)bytes;
    writer->pieces = (uint32_t)((layout->bytes + PANEL_PIECE_BYTES - 1) / PANEL_PIECE_BYTES);
    fill_front(writer, origin);
    return AVO_OK;
}

/* Whether the file that was locked still has its name: who held the lock before may have renamed or
 * deleted it. */
static bool is_named(const panel_writer *writer) {
    struct stat opened, named;
    return fstat(writer->descriptor, &opened) == 0 && lstat(writer->temporary, &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* A write beyond RLIMIT_FSIZE would end the process by a signal. */
static bool is_allowed(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

/* What a killed process has left under this name is overwritten. */
static avo_status begin(panel_writer *writer, avo_error *error) {
    if (!is_allowed(writer->front_bytes + writer->layout.bytes))
        return status_fail(error, AVO_ERROR_IO, "%s: cannot write: RLIMIT_FSIZE is too low",
                           writer->path);
    writer->descriptor =
        open(writer->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (writer->descriptor < 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot create: %s", writer->temporary,
                           strerror(errno));
    struct stat info;
    bool locked = flock(writer->descriptor, LOCK_EX | LOCK_NB) == 0 && is_named(writer) &&
                  fstat(writer->descriptor, &info) == 0 && S_ISREG(info.st_mode);
    if (locked && ftruncate(writer->descriptor, 0) == 0)
        return AVO_OK;
    close(writer->descriptor);
    writer->descriptor = -1;
    return status_fail(error, AVO_ERROR_FULL, "%s: another process is writing it", writer->path);
}

static avo_status write_at(const panel_writer *writer, uint64_t offset, const uint8_t *data,
                           size_t bytes, avo_error *error) {
    while (bytes > 0) {
        ssize_t done = pwrite(writer->descriptor, data, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return status_fail(error, AVO_ERROR_IO, "%s: cannot write: %s", writer->path,
                               done == 0 ? "nothing was written" : strerror(errno));
        data += done;
        offset += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return AVO_OK;
}

static avo_status write_piece(panel_writer *writer, avo_error *error) {
    uint64_t at = (uint64_t)writer->written * PANEL_PIECE_BYTES;
    uint64_t rest = writer->layout.bytes - at;
    size_t bytes = rest < PANEL_PIECE_BYTES ? (size_t)rest : PANEL_PIECE_BYTES;
    put_u64(writer->front, PANEL_HEADER_BYTES + 8 * (size_t)writer->written,
            hash_bytes(writer->panels + at, bytes));
    AVO_TRY(write_at(writer, writer->front_bytes + at, writer->panels + at, bytes, error));
    writer->written++;
    return AVO_OK;
}

static avo_status finish(panel_writer *writer, avo_error *error) {
    uint8_t *front = writer->front;
    put_u64(front, 112,
            hash_bytes(front + PANEL_HEADER_BYTES, writer->front_bytes - PANEL_HEADER_BYTES));
    put_u64(front, 120, hash_bytes(front, 120));
    AVO_TRY(write_at(writer, 0, front, writer->front_bytes, error));
    if (rename(writer->temporary, writer->path) != 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot rename: %s", writer->temporary,
                           strerror(errno));
    close(writer->descriptor);
    writer->descriptor = -1;
    return AVO_OK;
}

avo_status panel_writer_step(panel_writer *writer, bool *done, avo_error *error) {
    *done = false;
    if (writer->descriptor < 0)
        AVO_TRY(begin(writer, error));
    avo_status status = AVO_OK;
    if (writer->written < writer->pieces)
        status = write_piece(writer, error);
    *done = status == AVO_OK && writer->written == writer->pieces;
    if (*done)
        status = finish(writer, error);
    return status;
}

void panel_writer_close(panel_writer *writer) {
    if (writer->descriptor >= 0) {
        (void)unlink(writer->temporary); /* before the lock is given back */
        close(writer->descriptor);
        writer->descriptor = -1;
    }
    allocator_give(writer->allocator, writer->front, writer->front_bytes);
    writer->front = NULL;
}
