/* The processors of this process: which, how many cores they are, on which NUMA nodes. */
#ifndef AVO_BASE_TOPOLOGY_H
#define AVO_BASE_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPOLOGY_PROCESSORS_MAX CPU_SETSIZE
#define TOPOLOGY_NODES_MAX      64

/* Numbers of processors and nodes are the kernel's. Only processors of the affinity mask count. */
typedef struct topology {
    uint32_t processors; /* at least 1 */
    uint32_t cores;      /* physical ones; processors of one core are siblings (SMT) */
    uint32_t nodes;      /* NUMA nodes with a processor of ours; at least 1 */
    uint64_t node_mask;  /* bit n: node n is one of them */
    uint16_t order[TOPOLOGY_PROCESSORS_MAX];  /* one processor of each core, then their siblings */
    uint8_t node_of[TOPOLOGY_PROCESSORS_MAX]; /* by the processor's number: index among the nodes */
} topology;

void topology_detect(topology *topology);
/* The processors of the node with this index (0 … nodes − 1). */
void topology_node_set(const topology *topology, uint32_t node, cpu_set_t *set);

#endif
