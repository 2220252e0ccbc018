/* Processor features, usable threads and memory limits of this process (Linux). */
#include "base/cpu.h"

#include "base/cpu_int.h"
#include "base/number.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void) {
    uint32_t low;
    uint32_t high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Linux lends the 8 KB of tile registers only to processes that ask; threads inherit the answer. It
 * says no where a thread's signal stack could not hold them, or when it does not know the question
 * (before 5.16). */
static bool ask_for_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

cpu_features cpu_features_detect(void) {
    cpu_features features = {0};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return features;
    uint64_t enabled = read_xcr0();
    bool os_avx = (enabled & 0x6) == 0x6;
    bool os_avx512 = (enabled & 0xE6) == 0xE6;
    bool os_amx = (enabled & 0x60000) == 0x60000;
    bool fma_f16c = (c & bit_FMA) && (c & bit_F16C);
    uint32_t a7, b7, c7, d7;
    if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7))
        return features;
    features.avx2 = os_avx && fma_f16c && (b7 & bit_AVX2);
    uint32_t needed = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    features.avx512 = os_avx512 && features.avx2 && (b7 & needed) == needed;
    features.avx512_vnni = features.avx512 && (c7 & bit_AVX512VNNI);
    /* Bit 24: the tiles themselves. What is computed from them is in AVX-512's registers. */
    bool tiles = os_amx && features.avx512_vnni && (d7 >> 24 & 1) && ask_for_tiles();
    features.amx_int8 = tiles && (d7 >> 25 & 1);
    features.amx_bf16 = tiles && (d7 >> 22 & 1);
    if (features.avx512 && a7 >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
        features.avx512_bf16 = a >> 5 & 1;
    return features;
}
#else
cpu_features cpu_features_detect(void) {
    return (cpu_features){0};
}
#endif

void cpu_features_text(const cpu_features *features, char *text, size_t capacity) {
    const struct {
        bool has;
        const char *name;
    } all[] = {{features->avx2, "avx2"},
               {features->avx512, "avx512"},
               {features->avx512_vnni, "avx512_vnni"},
               {features->avx512_bf16, "avx512_bf16"},
               {features->amx_int8, "amx_int8"},
               {features->amx_bf16, "amx_bf16"}};
    size_t used = 0;
    snprintf(text, capacity, "none");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (!all[i].has)
            continue;
        int wrote =
            snprintf(text + used, capacity - used, "%s%s", used > 0 ? " " : "", all[i].name);
        if (wrote < 0 || (size_t)wrote >= capacity - used)
            return;
        used += (size_t)wrote;
    }
}

/* The value behind "key…:" or "key value" of the first line that begins with `key`. */
static bool read_line_of(const char *path, const char *key, char *value, size_t capacity) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        char *begin = line + strlen(key);
        begin += strspn(begin, " \t:");
        begin[strcspn(begin, "\n")] = '\0';
        snprintf(value, capacity, "%s", begin);
        found = true;
    }
    fclose(file);
    return found;
}

void cpu_name(char *text, size_t capacity) {
    if (!read_line_of("/proc/cpuinfo", "model name", text, capacity))
        snprintf(text, capacity, "unknown");
}

/* ---- Control groups (version 2) ---- */

/* Calls `visit` with this process's folder and every one above it: a limit on any level binds. */
static void cgroup_walk(const char *root, void (*visit)(void *context, const char *folder),
                        void *context) {
    char path[512];
    char file[1024];
    snprintf(file, sizeof(file), "%s/proc/self/cgroup", root);
    if (!read_line_of(file, "0::", path, sizeof(path)))
        return;
    char folder[1024];
    int top = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup", root);
    int length = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s", root, path);
    if (top < 0 || length < top || (size_t)length >= sizeof(folder))
        return;
    for (;;) {
        while (length > top && folder[length - 1] == '/')
            length--;
        folder[length] = '\0';
        visit(context, folder);
        if (length == top)
            return;
        while (length > top && folder[length - 1] != '/')
            length--;
    }
}

static bool read_cgroup(const char *folder, const char *file, const char *key, char *value,
                        size_t capacity) {
    char path[1100];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return read_line_of(path, key, value, capacity);
}

static void visit_quota(void *context, const char *folder) {
    uint32_t *threads = context;
    char value[64];
    if (!read_cgroup(folder, "cpu.max", "", value, sizeof(value)))
        return;
    char *rest;
    double quota = number_from_text(value, &rest); /* "max" is 0: no quota */
    double period = number_from_text(rest, NULL);
    if (quota > 0 && period > 0 && quota < period * *threads)
        *threads = (uint32_t)((quota + period - 1) / period);
}

uint32_t cpu_quota_threads(const char *root, uint32_t threads) {
    cgroup_walk(root, visit_quota, &threads);
    return threads == 0 ? 1 : threads;
}

uint32_t cpu_usable_threads(void) {
    uint32_t threads = 1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        threads = (uint32_t)CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return cpu_quota_threads("", threads);
}

static uint64_t meminfo_bytes(const char *root, const char *key) {
    char path[1024];
    char value[64];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (!read_line_of(path, key, value, sizeof(value)))
        return 0;
    return strtoull(value, NULL, 10) * 1024;
}

/* A number of a control file; false when it is absent or "max". */
static bool cgroup_bytes(const char *folder, const char *file, const char *key, uint64_t *bytes) {
    char value[64];
    if (!read_cgroup(folder, file, key, value, sizeof(value)) || value[0] < '0' || value[0] > '9')
        return false;
    *bytes = strtoull(value, NULL, 10);
    return true;
}

static void visit_memory(void *context, const char *folder) {
    memory_limit *limit = context;
    uint64_t most = UINT64_MAX;
    uint64_t high;
    uint64_t used;
    bool limited = cgroup_bytes(folder, "memory.max", "", &most);
    if (cgroup_bytes(folder, "memory.high", "", &high) && high < most) {
        most = high; /* past it the kernel slows the process down rather than killing it */
        limited = true;
    }
    if (!limited || !cgroup_bytes(folder, "memory.current", "", &used))
        return;
    /* Cached files count as used but give way, as in MemAvailable: a mapped model must not make
     * the memory it was read into look lost. */
    const char *const cached[] = {"inactive_file", "active_file"};
    for (size_t i = 0; i < sizeof(cached) / sizeof(cached[0]); i++) {
        uint64_t bytes;
        if (cgroup_bytes(folder, "memory.stat", cached[i], &bytes))
            used -= bytes < used ? bytes : used;
    }
    uint64_t headroom = most > used ? most - used : 0;
    if (headroom < limit->available_bytes)
        *limit = (memory_limit){headroom, most, "cgroup"};
}

memory_limit memory_limit_under(const char *root) {
    memory_limit limit = {.available_bytes = meminfo_bytes(root, "MemAvailable"),
                          .total_bytes = meminfo_bytes(root, "MemTotal"),
                          .source = "system"};
    cgroup_walk(root, visit_memory, &limit);
    return limit;
}

memory_limit memory_limit_detect(void) {
    return memory_limit_under("");
}

uint64_t memory_peak_bytes(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (uint64_t)usage.ru_maxrss * 1024;
}
