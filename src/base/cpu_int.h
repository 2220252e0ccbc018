/* The limits of a process, read below another root folder: for tests. */
#ifndef AVO_BASE_CPU_INT_H
#define AVO_BASE_CPU_INT_H

#include "base/cpu.h"

/* `threads`, or fewer where a cgroup below `root` ("" for the real one) has a quota. */
uint32_t cpu_quota_threads(const char *root, uint32_t threads);
memory_limit memory_limit_under(const char *root);

#endif
