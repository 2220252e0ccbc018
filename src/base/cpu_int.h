/* The limits of a process, read below another root folder: for tests. */
#ifndef AVO_BASE_CPU_INT_H
#define AVO_BASE_CPU_INT_H

#include "base/cpu.h"

/* Of `affinity` processors and the cgroups below `root` ("" for the real ones); cores, nodes and
 * online are 0. */
cpu_threads cpu_threads_under(const char *root, uint32_t affinity);
/* The smallest quota on the way from the process's cgroup to the root, in processors; 0: none. */
double cpu_quota_under(const char *root);
memory_limit memory_limit_under(const char *root);

#endif
