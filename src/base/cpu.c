/* Processor features, usable threads and memory limits of this process (Linux). */
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void) {
    uint32_t low;
    uint32_t high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
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
    features.amx_int8 = os_amx && (d7 >> 25 & 1);
    features.amx_bf16 = os_amx && (d7 >> 22 & 1);
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

/* Folder of this process's cgroup (version 2) below the usual mount point. */
static bool cgroup_folder(char *folder, size_t capacity) {
    char path[256];
    if (!read_line_of("/proc/self/cgroup", "0::", path, sizeof(path)))
        return false;
    int length = snprintf(folder, capacity, "/sys/fs/cgroup%s", strcmp(path, "/") == 0 ? "" : path);
    return length > 0 && (size_t)length < capacity;
}

static bool read_cgroup(const char *folder, const char *file, char *value, size_t capacity) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return read_line_of(path, "", value, capacity);
}

uint32_t cpu_usable_threads(void) {
    uint32_t threads = 1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        threads = (uint32_t)CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    /* A quota on any level up to the root binds. */
    char folder[300];
    if (cgroup_folder(folder, sizeof(folder))) {
        for (;;) {
            char value[64];
            double quota;
            double period;
            if (read_cgroup(folder, "cpu.max", value, sizeof(value)) &&
                sscanf(value, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0) {
                uint32_t allowed = (uint32_t)((quota + period - 1) / period);
                if (allowed < threads)
                    threads = allowed;
            }
            char *slash = strrchr(folder, '/');
            if (slash == NULL || strcmp(folder, "/sys/fs/cgroup") == 0)
                break;
            *slash = '\0';
        }
    }
    return threads == 0 ? 1 : threads;
}

static uint64_t meminfo_bytes(const char *key) {
    char value[64];
    if (!read_line_of("/proc/meminfo", key, value, sizeof(value)))
        return 0;
    return strtoull(value, NULL, 10) * 1024;
}

memory_limit memory_limit_detect(void) {
    memory_limit limit = {.available_bytes = meminfo_bytes("MemAvailable"),
                          .total_bytes = meminfo_bytes("MemTotal"),
                          .source = "system"};
    char folder[300];
    if (!cgroup_folder(folder, sizeof(folder)))
        return limit;
    for (;;) {
        char maximum[64];
        char current[64];
        if (read_cgroup(folder, "memory.max", maximum, sizeof(maximum)) &&
            read_cgroup(folder, "memory.current", current, sizeof(current)) &&
            strncmp(maximum, "max", 3) != 0) {
            uint64_t most = strtoull(maximum, NULL, 10);
            uint64_t used = strtoull(current, NULL, 10);
            uint64_t headroom = most > used ? most - used : 0;
            if (headroom < limit.available_bytes)
                limit = (memory_limit){headroom, most, "cgroup"};
        }
        char *slash = strrchr(folder, '/');
        if (slash == NULL || strcmp(folder, "/sys/fs/cgroup") == 0)
            break;
        *slash = '\0';
    }
    return limit;
}

uint64_t memory_peak_bytes(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (uint64_t)usage.ru_maxrss * 1024;
}
