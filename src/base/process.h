/* Starting another program: commands that reward, the server of a training run. It begins as from a
 * shell of its own: in a new process group (Ctrl-C is not for it) and with no signal blocked or
 * ignored, whatever this process does with them. The caller waits for it. */
#ifndef AVO_BASE_PROCESS_H
#define AVO_BASE_PROCESS_H

#include <sys/types.h>

/* `program` without a slash is searched in PATH. streams[i] becomes its descriptor i, for i below
 * `count`; every other descriptor that is closed at exec is closed. 0, or an errno. */
int process_start(const char *program, char *const *arguments, const int *streams, int count,
                  pid_t *process);

#endif
