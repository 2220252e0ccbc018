/* Memory in huge pages, locked or interleaved on request (Linux). */
#include "base/region.h"

#include "base/allocator.h"
#include "base/checked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MEMORY_POLICY_INTERLEAVE 3 /* linux/mempolicy.h: no libnuma for one number */

bool region_round(size_t bytes, bool huge, size_t *rounded) {
    bool large = huge && bytes >= REGION_HUGE_BYTES;
    return size_round_up(bytes, large ? REGION_HUGE_BYTES : REGION_PAGE_BYTES, rounded);
}

/* Address space at a multiple of `alignment`: more is taken, and what is too much given back. */
static uint8_t *map_aligned(size_t bytes, size_t alignment) {
    size_t more;
    if (!size_add(bytes, alignment, &more))
        return NULL;
    uint8_t *begin = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED)
        return NULL;
    size_t front = (alignment - (uintptr_t)begin % alignment) % alignment;
    if (front > 0)
        munmap(begin, front);
    if (alignment > front)
        munmap(begin + front + bytes, alignment - front);
    return begin + front;
}

static uint8_t *take(const avo_allocator *allocator, size_t bytes, size_t alignment) {
    if (allocator != NULL)
        return allocator->allocate(allocator->context, bytes, alignment);
    return map_aligned(bytes, alignment);
}

static bool interleave(const region *region, uint64_t nodes) {
    if ((nodes & (nodes - 1)) == 0)
        return false; /* none, or a single one: nothing to spread over */
    unsigned long mask = (unsigned long)nodes;
    return syscall(SYS_mbind, region->data, region->bytes, MEMORY_POLICY_INTERLEAVE, &mask,
                   sizeof(mask) * 8 + 1, 0) == 0;
}

avo_status region_open(const avo_allocator *allocator, size_t bytes, const region_options *options,
                       const char *what, region *out, avo_error *error) {
    *out = (region){.allocator = allocator};
    size_t rounded;
    if (!region_round(bytes, options->huge, &rounded))
        return status_no_memory(error, what, bytes);
    size_t alignment = rounded % REGION_HUGE_BYTES == 0 ? REGION_HUGE_BYTES : REGION_PAGE_BYTES;
    uint8_t *data = take(allocator, rounded, alignment);
    if (data == NULL)
        return status_no_memory(error, what, rounded);
    out->data = data;
    out->bytes = rounded;
    if (options->huge && rounded >= REGION_HUGE_BYTES)
        out->huge = madvise(data, rounded, MADV_HUGEPAGE) == 0;
    else if (allocator == NULL)
        (void)madvise(data, rounded, MADV_NOHUGEPAGE); /* off is off, where all get them too */
    out->interleaved = interleave(out, options->interleave);
    if (!options->lock)
        return AVO_OK;
    /* Locked as they are written, so that first touch still decides where they lie. */
    avo_status status = AVO_OK;
    if (mlock2(data, rounded, MLOCK_ONFAULT) == 0)
        out->locked = true;
    else
        status = region_lock(data, rounded, what, error);
    if (status != AVO_OK)
        region_close(out);
    else
        out->locked = true;
    return status;
}

void region_close(region *region) {
    if (region->data == NULL)
        return;
    if (region->locked)
        (void)munlock(region->data, region->bytes);
    if (region->allocator != NULL)
        region->allocator->release(region->allocator->context, region->data, region->bytes);
    else
        munmap(region->data, region->bytes);
    *region = (struct region){0};
}

avo_status region_lock(const void *data, size_t bytes, const char *what, avo_error *error) {
    if (mlock(data, bytes) == 0)
        return AVO_OK;
    int reason = errno;
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < bytes)
        return status_fail(error, AVO_ERROR_MEMORY,
                           "cannot lock %zu MiB of %s: RLIMIT_MEMLOCK is %llu KiB; raise it "
                           "(ulimit -l, LimitMEMLOCK=) or do not lock",
                           bytes >> 20, what, (unsigned long long)(limit.rlim_cur >> 10));
    return status_fail(
        error, AVO_ERROR_MEMORY,
        "cannot lock %zu MiB of %s: %s (RLIMIT_MEMLOCK counts all locked memory of the process)",
        bytes >> 20, what, strerror(reason));
}

/* "7f00…-7f10… rw-p …": the range of a mapping; false for the lines about it. */
static bool parse_range(const char *line, uintptr_t *begin, uintptr_t *end) {
    char *rest;
    *begin = strtoull(line, &rest, 16);
    if (rest == line || *rest != '-')
        return false;
    const char *second = rest + 1;
    *end = strtoull(second, &rest, 16);
    return rest != second && *rest == ' ';
}

uint64_t region_huge_bytes(const void *data, size_t bytes) {
    static const char key[] = "AnonHugePages:";
    FILE *file = fopen("/proc/self/smaps", "re");
    if (file == NULL)
        return 0;
    uintptr_t first = (uintptr_t)data;
    bool inside = false;
    uint64_t huge = 0;
    char line[512];
    while (fgets(line, sizeof(line), file) != NULL) {
        uintptr_t begin;
        uintptr_t end;
        if (parse_range(line, &begin, &end))
            inside = begin < first + bytes && end > first;
        else if (inside && strncmp(line, key, sizeof(key) - 1) == 0)
            huge += strtoull(line + sizeof(key) - 1, NULL, 10) << 10;
    }
    fclose(file);
    return huge < bytes ? huge : bytes;
}

huge_pages huge_pages_under(const char *root) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/sys/kernel/mm/transparent_hugepage/enabled", root);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return HUGE_PAGES_NONE;
    char line[128] = "";
    bool read = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    if (read && strstr(line, "[always]") != NULL)
        return HUGE_PAGES_ALWAYS;
    return read && strstr(line, "[madvise]") != NULL ? HUGE_PAGES_ASKED : HUGE_PAGES_NONE;
}

const char *huge_pages_name(huge_pages pages) {
    switch (pages) {
    case HUGE_PAGES_ASKED:
        return "madvise";
    case HUGE_PAGES_ALWAYS:
        return "always";
    case HUGE_PAGES_NONE:
        break;
    }
    return "none";
}
