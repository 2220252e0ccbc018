/* Guarded memory: one mapping per block, a page without access on either side. */
#include "support/guard.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)

static size_t inner_bytes(size_t size) {
    return (size + PAGE - 1) / PAGE * PAGE;
}

void *guard_take(size_t size) {
    size_t inner = inner_bytes(size);
    uint8_t *map =
        mmap(NULL, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        abort();
    if (inner > 0 && mprotect(map + PAGE, inner, PROT_READ | PROT_WRITE) != 0)
        abort();
    uint8_t *memory = map + PAGE + inner - size;
    memset(memory, 0xA5, size);
    return memory;
}

void guard_give(void *memory, size_t size) {
    size_t inner = inner_bytes(size);
    munmap((uint8_t *)memory + size - inner - PAGE, inner + 2 * PAGE);
}
