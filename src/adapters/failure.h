/* Openings that failed, remembered by the state of the files: the same files fail again. */
#ifndef AVO_ADAPTERS_FAILURE_H
#define AVO_ADAPTERS_FAILURE_H

#include "base/allocator.h"
#include "base/file.h"
#include "base/status.h"

typedef struct failure_files {
    file_stamp stamp[4]; /* the path, and the files of a folder that opening looks at */
} failure_files;
typedef struct open_failure open_failure;

/* The state of the files before they are opened. `root` may be NULL. */
void failure_look(const char *root, const char *path, failure_files *files);
/* NULL where opening succeeded, or failed for a reason that does not lie in the files, or where a
 * file is so young that it could change and look the same; or without memory. */
open_failure *failure_remember(const failure_files *files, const avo_error *why,
                               const avo_allocator *allocator);
/* The files are as they were: *why says what was wrong with them. `failure` may be NULL. */
bool failure_holds(const open_failure *failure, const failure_files *files, avo_error *why);
void failure_forget(open_failure *failure, const avo_allocator *allocator);

#endif
