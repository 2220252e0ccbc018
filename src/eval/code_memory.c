/* How much memory the processes of one run use together: limits of resources hold for each process
 * alone, and sixteen of them could fill the machine. */
#include "eval/code_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEPTH_MAX 64

typedef struct memory_walk {
    uint64_t bytes;
    uint32_t processes_left;
} memory_walk;

/* Into `text`, terminated; 0: the process is gone, or the kernel does not have the file. */
static size_t read_text(const char *path, char *text, size_t capacity) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    ssize_t got = read(descriptor, text, capacity - 1);
    close(descriptor);
    text[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* Resident pages without those of files and of shared memory, which code_filter.c refuses. */
static void add_process(memory_walk *walk, long process) {
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/%ld/statm", process);
    if (read_text(path, text, sizeof(text)) == 0)
        return;
    char *end = text;
    (void)strtoull(end, &end, 10);
    unsigned long long resident = strtoull(end, &end, 10), shared = strtoull(end, &end, 10);
    if (resident > shared)
        walk->bytes += (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void add_tree(memory_walk *walk, long process, unsigned depth);

/* A thread has the processes that it started. */
static void add_children(memory_walk *walk, long process, const char *thread, unsigned depth) {
    char path[384], text[4096];
    snprintf(path, sizeof(path), "/proc/%ld/task/%s/children", process, thread);
    if (read_text(path, text, sizeof(text)) == 0)
        return;
    for (char *at = text, *end; walk->processes_left > 0; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at || child <= 0)
            return;
        add_tree(walk, child, depth + 1);
    }
}

static void add_tree(memory_walk *walk, long process, unsigned depth) {
    char path[64];
    if (walk->processes_left == 0 || depth > DEPTH_MAX)
        return;
    walk->processes_left--;
    add_process(walk, process);
    snprintf(path, sizeof(path), "/proc/%ld/task", process);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;)
        if (entry->d_name[0] != '.')
            add_children(walk, process, entry->d_name, depth);
    closedir(threads);
}

uint64_t code_memory_used(pid_t process, uint32_t processes_max) {
    memory_walk walk = {.processes_left = processes_max};
    add_tree(&walk, process, 0);
    return walk.bytes;
}
