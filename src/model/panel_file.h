/* A file with the panels that a model's matrices were repacked into, so that the next process maps
 * them instead of repacking. Its bytes, little-endian:
 *
 *   0     header, 128 bytes:
 *           0 "AVOPANEL"   8 u32 version, PANEL_FILE_VERSION   12 u32 bytes of the header
 *          16 u64 bytes of the file                24 u64 offset of the panels
 *          32 u64 bytes of the panels              40 u64 × 2 key of their layout (device/device.h)
 *          56 u64 digest of the model              64 u64 × 2 its files as they were
 *          80 u32 bytes of a piece                 84 u32 pieces
 *          88 u32 bytes of the path                92 u32 zero   96 u64 × 2 zero
 *         112 u64 sum of what follows up to the panels   120 u64 sum of the header before this
 * field 128   one u64 for each piece of the panels: its sum path of the model, without a zero byte;
 * zeros up to a multiple of 4096 the panels
 *
 * Sums are XXH3 of 64 bits. A file is used if it is the one that would be written now, field by
 * field, and all sums are right; so nothing depends on how it was written or what happened to it.
 */
#ifndef AVO_MODEL_PANEL_FILE_H
#define AVO_MODEL_PANEL_FILE_H

#include "base/file.h"
#include "device/device.h"

/* Increase it with every change of this format, of a layout in quant/panels.h, or of repacking. */
#define PANEL_FILE_VERSION 1

#define PANEL_HEADER_BYTES 128
#define PANEL_PIECE_BYTES  ((uint32_t)1 << 20)
#define PANEL_PIECES_MAX   ((uint32_t)1 << 20) /* 1 TiB */
#define PANEL_PATH_MAX     4096

/* Which model the panels are of. */
typedef struct panel_origin {
    const char *path;   /* absolute */
    uint64_t digest;    /* source_digest */
    uint64_t stamps[2]; /* sum of paths, sizes, inodes and times of its files, and of the program's
                           version */
} panel_origin;

/* A checked file in memory; views of its bytes. */
typedef struct panel_file {
    weights_layout layout;
    uint64_t digest;
    uint64_t stamps[2];
    text_view path;
    const uint8_t *sums, *panels;
    uint32_t pieces;
} panel_file;

/* Checks everything but the panels' own sums. `name` is for messages. */
AVO_MUST_USE avo_status panel_file_parse(bytes_view bytes, const char *name, panel_file *file,
                                         avo_error *error);
/* Whether it was made from this model as it is now; the error says what differs. */
AVO_MUST_USE avo_status panel_file_check(const panel_file *file, const panel_origin *origin,
                                         const char *name, avo_error *error);
bool panel_file_is_right(const panel_file *file, uint32_t piece);

/* ---- Writing ---- */

typedef struct panel_writer {
    const avo_allocator *allocator;
    const uint8_t *panels;
    weights_layout layout;
    uint8_t *front; /* header, sums, path */
    size_t front_bytes;
    uint32_t pieces, written;
    int descriptor;                 /* −1: not open */
    char path[PANEL_PATH_MAX];      /* what it will be called */
    char temporary[PANEL_PATH_MAX]; /* beside it: ".NAME.part" */
} panel_writer;

/* Bytes of a file; false when there is no such file. */
bool panel_file_bytes(const panel_origin *origin, const weights_layout *layout, uint64_t *bytes);
/* Takes the memory that writing needs, and no more. `panels` stay as they are until it is closed.
 */
AVO_MUST_USE avo_status panel_writer_open(panel_writer *writer, const avo_allocator *allocator,
                                          const panel_origin *origin, const weights_layout *layout,
                                          const uint8_t *panels, const char *path,
                                          avo_error *error);
/* Writes one piece; the last call gives the file its name and sets `done`. AVO_ERROR_FULL: another
 * process is writing the same file. Nothing is flushed: sums tell what a crash of the system has
 * left. When it fails, no file remains. */
AVO_MUST_USE avo_status panel_writer_step(panel_writer *writer, bool *done, avo_error *error);
/* A file that is not done leaves no trace. */
void panel_writer_close(panel_writer *writer);

#endif
