/* The access log: JSON lines, written by a thread of its own, so that a slow disk or a full pipe
 * holds up nobody. Lines that find the queue full are counted and the next one says how many. */
#ifndef AVO_SERVER_LOG_H
#define AVO_SERVER_LOG_H

#include "base/cursor.h"
#include "base/status.h"

typedef struct access_log access_log;

#define LOG_QUEUE_BYTES ((size_t)1 << 20)

/* "-": standard error; else a file that is appended to. */
AVO_MUST_USE avo_status log_open(const char *path, access_log **out, avo_error *error);
/* Writes what is queued, then closes. NULL is ignored. */
void log_close(access_log *log);
/* A whole line with its newline; copied. */
void log_write(access_log *log, text_view line);
/* Now, as "2026-11-19T20:00:00.000Z". */
#define LOG_TIME_BYTES 64
void log_time(char text[static LOG_TIME_BYTES]);
/* Before the next line the file is opened anew (its name now means another file). */
void log_reopen(access_log *log);

#endif
