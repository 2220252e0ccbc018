/* What the process can still do once it serves: read the model, the adapters and a few facts of the
 * system, write its logs, talk to the connections it has. A hole in a parser then opens no other
 * file, no connection outward and no program.
 *
 * Two halves, because the kernel has two: Landlock holds for the thread that asks and those it
 * starts later, so it comes before the engine's threads; seccomp can be put on all threads at once,
 * so it comes last, when what opening needs is done.
 */
#ifndef AVO_SERVER_SANDBOX_H
#define AVO_SERVER_SANDBOX_H

#include "base/status.h"

#define SANDBOX_PATHS_MAX  96
#define SANDBOX_REPORT_MAX 160

typedef struct sandbox_options {
    /* Files and folders (with all that is below); absent ones are left out. */
    const char *read[SANDBOX_PATHS_MAX];
    size_t read_count;
    const char *write[SANDBOX_PATHS_MAX]; /* read, written, made and renamed in */
    size_t write_count;
    bool performance_counters; /* perf_event_open may be called later */
    uint16_t connect_port;     /* TCP connections may go out to this port; 0: none */
} sandbox_options;

/* Adds a path, which must live as long as the options. False: no room. A rule is for what the path
 * means now: for files that are replaced by renaming, name their folder. */
bool sandbox_read(sandbox_options *options, const char *path);
bool sandbox_write(sandbox_options *options, const char *path);

/* Landlock, from this thread on. Where the kernel has none, AVO_OK, and `report` says so: the
 * operator decides. */
AVO_MUST_USE avo_status sandbox_files(const sandbox_options *options, char *report, size_t capacity,
                                      avo_error *error);
/* seccomp, for all threads. What is not on the list fails with EPERM and is logged by the kernel's
 * audit. */
AVO_MUST_USE avo_status sandbox_calls(const sandbox_options *options, char *report, size_t capacity,
                                      avo_error *error);

#endif
