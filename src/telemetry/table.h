/* CSV files that grow: a header line, then rows, of any number of processes. */
#ifndef AVO_TELEMETRY_TABLE_H
#define AVO_TELEMETRY_TABLE_H

#include "base/cursor.h"
#include "base/status.h"

/* Appends whole lines to a file whose first line is the header, which a new one gets. A file with
 * another first line is refused. Without lines: makes sure that it can be written and has its
 * header. Behind `bytes_max` (0: never) the file becomes "path.1", replacing an older one, and a
 * new one begins. Written at once, under a lock; what could be written only in part is cut off
 * again. Pipes and devices get the header with every call that says `first`. */
typedef struct table_file {
    const char *path;
    text_view header; /* with the line's end */
    uint64_t bytes_max;
    bool first;
} table_file;
AVO_MUST_USE avo_status table_append(const table_file *table, text_view lines, avo_error *error);

#endif
