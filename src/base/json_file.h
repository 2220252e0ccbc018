/* Files that hold one JSON document. */
#ifndef AVO_BASE_JSON_FILE_H
#define AVO_BASE_JSON_FILE_H

#include "base/json_writer.h"

/* The tree and its text are in the arena. Errors name the file. */
AVO_MUST_USE avo_status json_file_read(arena *arena, const char *path, size_t most,
                                       json_value *root, avo_error *error);
/* Ends the complete document with a line end and writes the writer's buffer to the file, which
 * appears or is replaced at once. */
AVO_MUST_USE avo_status json_file_write(json_writer *w, const char *path, avo_error *error);

#endif
