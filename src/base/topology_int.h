/* The topology of a made-up machine: for tests. */
#ifndef AVO_BASE_TOPOLOGY_INT_H
#define AVO_BASE_TOPOLOGY_INT_H

#include "base/topology.h"

/* Reads sys/devices/system below `root` ("" for the real one) for the processors in `mask`. */
void topology_under(const char *root, const cpu_set_t *mask, topology *topology);
/* "0-3,8,10-11"; what is no such list gives the part before the fault. */
void topology_parse_list(const char *text, cpu_set_t *set);

#endif
