/* Processors, cores and nodes from sysfs (Linux). What a file does not say counts as the simple
 * case: a core for every processor, one node. */
#include "base/topology_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void topology_parse_list(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    for (;;) {
        char *rest;
        unsigned long first = strtoul(text, &rest, 10);
        if (rest == text || first >= TOPOLOGY_PROCESSORS_MAX)
            return;
        unsigned long last = first;
        if (*rest == '-') {
            text = rest + 1;
            last = strtoul(text, &rest, 10);
            if (rest == text)
                return;
        }
        for (unsigned long i = first; i <= last && i < TOPOLOGY_PROCESSORS_MAX; i++)
            CPU_SET(i, set);
        if (*rest != ',')
            return;
        text = rest + 1;
    }
}

/* An empty set where there is no such file. */
static void read_list(const char *path, cpu_set_t *set) {
    char line[4096];
    CPU_ZERO(set);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(line, sizeof(line), file) != NULL)
        topology_parse_list(line, set);
    fclose(file);
}

/* Processors that share a core with `processor`, itself included. */
static void read_siblings(const char *root, unsigned processor, cpu_set_t *siblings) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
             root, processor);
    read_list(path, siblings);
    CPU_SET(processor, siblings);
}

/* Orders the processors: the first of every core, then the second of every core, … */
static void order_processors(const char *root, const cpu_set_t *mask, topology *topology) {
    static const uint8_t later_max = 8; /* processors of a core, at most */
    uint8_t rank[TOPOLOGY_PROCESSORS_MAX] = {0};
    for (unsigned i = 0; i < TOPOLOGY_PROCESSORS_MAX; i++) {
        if (!CPU_ISSET(i, mask))
            continue;
        cpu_set_t siblings;
        read_siblings(root, i, &siblings);
        for (unsigned before = 0; before < i && rank[i] < later_max - 1; before++)
            if (CPU_ISSET(before, &siblings) && CPU_ISSET(before, mask))
                rank[i]++;
        topology->cores += rank[i] == 0;
    }
    for (uint8_t now = 0; now < later_max; now++)
        for (unsigned i = 0; i < TOPOLOGY_PROCESSORS_MAX; i++)
            if (CPU_ISSET(i, mask) && rank[i] == now)
                topology->order[topology->processors++] = (uint16_t)i;
}

static void find_nodes(const char *root, const cpu_set_t *mask, topology *topology) {
    char path[1024];
    cpu_set_t online;
    snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", root);
    read_list(path, &online);
    for (unsigned node = 0; node < TOPOLOGY_NODES_MAX; node++) {
        cpu_set_t set;
        if (!CPU_ISSET(node, &online))
            continue;
        snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%u/cpulist", root, node);
        read_list(path, &set);
        CPU_AND(&set, &set, mask);
        if (CPU_COUNT(&set) == 0)
            continue; /* memory alone, or none of ours */
        for (unsigned i = 0; i < TOPOLOGY_PROCESSORS_MAX; i++)
            if (CPU_ISSET(i, &set))
                topology->node_of[i] = (uint8_t)topology->nodes;
        topology->node_mask |= (uint64_t)1 << node;
        topology->nodes++;
    }
    if (topology->nodes == 0) {
        topology->nodes = 1;
        topology->node_mask = 1;
    }
}

void topology_under(const char *root, const cpu_set_t *mask, topology *topology) {
    memset(topology, 0, sizeof(*topology));
    order_processors(root, mask, topology);
    find_nodes(root, mask, topology);
    if (topology->processors == 0) {
        topology->processors = 1;
        topology->cores = 1;
    }
}

void topology_detect(topology *topology) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        for (long i = 0; i < online && i < TOPOLOGY_PROCESSORS_MAX; i++)
            CPU_SET((size_t)i, &mask);
    }
    topology_under("", &mask, topology);
}

void topology_node_set(const topology *topology, uint32_t node, cpu_set_t *set) {
    CPU_ZERO(set);
    for (uint32_t i = 0; i < topology->processors; i++)
        if (topology->node_of[topology->order[i]] == node)
            CPU_SET(topology->order[i], set);
}
