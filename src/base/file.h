/* Files and folders: mapped for reading, written beside and renamed. */
#ifndef AVO_BASE_FILE_H
#define AVO_BASE_FILE_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/cursor.h"
#include "base/status.h"

/* Which file it is, and whether it was written since. */
typedef struct file_stamp {
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds;                 /* of the last write */
    int64_t changed_seconds, changed_nanoseconds; /* of the last change of any kind, which nobody
                                                     can set */
} file_stamp;

/* Follows links; false, and all zero: there is no such file. */
bool file_stamp_read(const char *path, file_stamp *stamp);

/* A read-only private mapping of a whole regular file. */
typedef struct file_map {
    bytes_view bytes; /* {NULL, 0} for an empty file */
    file_stamp stamp; /* when it was opened */
} file_map;

/* Refuses what is no regular file. The path appears in the error's text. */
AVO_MUST_USE avo_status file_map_open(const char *path, file_map *map, avo_error *error);
void file_map_close(file_map *map);

/* The text of a regular file of at most `most` bytes, copied into the arena and terminated. */
AVO_MUST_USE avo_status file_read_text(arena *arena, const char *path, size_t most, text_view *text,
                                       avo_error *error);

/* True when `path` still is the file that was stamped and has been written or cut since: a mapping
 * of it shows other bytes. A file that was renamed over it is another one, and removing it changes
 * nothing: the mapping keeps what it has. */
bool file_was_written(const char *path, const file_stamp *stamp);
/* True when `path` still is the file that was stamped, and as it was. */
bool file_is_stamped(const char *path, const file_stamp *stamp);

/* Gives the memory of whole pages in [data, data + bytes) of a mapping back; they are read again
 * when touched. For readers of large files, so that what they have passed does not count as theirs.
 */
void file_map_forget(const uint8_t *data, size_t bytes);

/* Asks for huge pages where the file system can map its cache so; cold files are then read in
 * pieces of 2 MiB, too. A wish: nothing happens where it cannot be. */
void file_map_ask_huge(const file_map *map);

typedef enum file_kind { FILE_MISSING, FILE_REGULAR, FILE_FOLDER, FILE_OTHER } file_kind;
file_kind file_kind_of(const char *path);
/* Makes the folder unless it is there. */
AVO_MUST_USE avo_status file_make_folder(const char *path, avo_error *error);

/* True when both exist and are one file, whatever their names. */
bool file_is_same(const char *a, const char *b);

/* "folder/name" into `path`; AVO_ERROR_LIMIT when it does not fit. */
AVO_MUST_USE avo_status file_join(char *path, size_t capacity, const char *folder, const char *name,
                                  avo_error *error);

/* "folder/below", where `folder` is that of the running program, whatever links lead to it: what
 * was installed with it. Each "../" that `below` begins with goes one folder up.
 * AVO_ERROR_NOT_FOUND where the system does not say which file runs. */
AVO_MUST_USE avo_status file_beside_program(char *path, size_t capacity, const char *below,
                                            avo_error *error);

/* The last part of a path: "model.gguf" of "/models/model.gguf", "smollm2" of "smollm2/". */
text_view file_last_part(const char *path);

/* Temporaries of writers that were killed are removed by the next writer of the same path
 * (leftover.h).
 *
 * A file being written: bytes go to a hidden temporary beside `path`; only file_writer_commit
 * (flush, fsync, rename) makes it appear; file_writer_abort leaves no trace. */
typedef struct file_writer {
    int descriptor;
    uint64_t written;
    char path[4096];
    char temporary[4096 + 32];
    uint8_t *pending;
    size_t pending_bytes;
} file_writer;

AVO_MUST_USE avo_status file_writer_open(file_writer *writer, const char *path, avo_error *error);
AVO_MUST_USE avo_status file_writer_append(file_writer *writer, const void *data, size_t bytes,
                                           avo_error *error);
/* Zero bytes up to a multiple of `alignment`. */
AVO_MUST_USE avo_status file_writer_align(file_writer *writer, size_t alignment, avo_error *error);
/* Overwrites bytes written before (a header whose sums are known only at the end). */
AVO_MUST_USE avo_status file_writer_patch(file_writer *writer, uint64_t offset, const void *data,
                                          size_t bytes, avo_error *error);
AVO_MUST_USE avo_status file_writer_commit(file_writer *writer, avo_error *error);
void file_writer_abort(file_writer *writer);
/* The same in one call, for content that is in memory. */
AVO_MUST_USE avo_status file_write(const char *path, const void *data, size_t bytes,
                                   avo_error *error);

/* Removes the files in an open folder, and with folder_remove the folder, too. What cannot be
 * removed stays, as do folders in it. */
void folder_empty(int descriptor);
void folder_remove(const char *path);

/* A folder being written: the caller puts files into `temporary`, a hidden folder beside `path`;
 * folder_writer_commit renames it, so that all of them appear at once. */
typedef struct folder_writer {
    char path[4096];
    char temporary[4096 + 32]; /* its path; empty if there is no such file */
    int held;                  /* open while `temporary` is there, or -1 */
} folder_writer;

/* Refuses a path where anything but an empty folder exists. */
AVO_MUST_USE avo_status folder_writer_open(folder_writer *writer, const char *path,
                                           avo_error *error);
/* On failure the folder is removed, as by folder_writer_abort. */
AVO_MUST_USE avo_status folder_writer_commit(folder_writer *writer, avo_error *error);
/* Removes the folder and the files in it. */
void folder_writer_abort(folder_writer *writer);

#endif
