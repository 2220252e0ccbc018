/* What writers that were killed left behind beside the file or folder that they wrote. */
#ifndef AVO_BASE_LEFTOVER_H
#define AVO_BASE_LEFTOVER_H

#include <stddef.h>

/* The hidden name beside `path` that this process writes to as number `attempt`. */
void leftover_name(const char *path, unsigned attempt, char *out, size_t capacity);
/* A writer holds its temporary file or folder as long as it is open: no other process removes it,
 * not even one that cannot see the writer (in another container). */
void leftover_hold(int descriptor);
/* Removes temporaries of `path` whose process no longer exists: regular files, and folders with the
 * files in them, that belong to this user. Whatever else there is, and whatever cannot be removed,
 * stays. */
void leftover_remove(const char *path);

#endif
