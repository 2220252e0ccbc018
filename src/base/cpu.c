/* Processor features, usable threads and memory limits of this process (Linux). */
#include "base/cpu.h"

#include "base/cpu_int.h"
#include "base/number.h"
#include "base/topology.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#if defined(__x86_64__)
/* Linux lends the 8 KB of tile registers only to processes that ask; threads inherit the answer. It
 * says no where a thread's signal stack could not hold them, or when it does not know the question
 * (before 5.16). */
static bool ask_for_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#endif

#ifdef CPU_FEATURE_ACTIVE
/* Its own x86_cpu_active shifts a 1 into the sign bit. */
static bool is_active(uint32_t feature) {
    const struct cpuid_feature *leaf = __x86_get_cpuid_feature_leaf(feature / 128);
    return leaf->active_array[feature % 128 / 32] >> feature % 32 & 1;
}

/* What the C library (glibc 2.34 or newer) found when the process began: features that the
 * processor has and the operating system saves. A CPUID instruction in a virtual machine is a call
 * to its host and takes 20 us; opening an engine asks several times. */
cpu_features cpu_features_detect(void) {
    cpu_features features = {0};
    features.avx2 = is_active(x86_cpu_AVX2) && is_active(x86_cpu_FMA) && is_active(x86_cpu_F16C);
    features.avx512 = features.avx2 && is_active(x86_cpu_AVX512F) && is_active(x86_cpu_AVX512BW) &&
                      is_active(x86_cpu_AVX512DQ) && is_active(x86_cpu_AVX512VL);
    features.avx512_vnni = features.avx512 && is_active(x86_cpu_AVX512_VNNI);
    features.avx_vnni = features.avx2 && is_active(x86_cpu_AVX_VNNI);
    features.avx512_bf16 = features.avx512 && is_active(x86_cpu_AVX512_BF16);
    bool tiles = features.avx512_vnni && is_active(x86_cpu_AMX_TILE) && ask_for_tiles();
    features.amx_int8 = tiles && is_active(x86_cpu_AMX_INT8);
    features.amx_bf16 = tiles && is_active(x86_cpu_AMX_BF16);
    return features;
}
#else
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
    if (__get_cpuid_max(0, NULL) < 7)
        return features;
    __cpuid(1, a, b, c, d);
    if (!(c & bit_OSXSAVE))
        return features;
    uint64_t enabled = read_xcr0();
    bool os_avx = (enabled & 0x6) == 0x6;
    bool os_avx512 = (enabled & 0xE6) == 0xE6;
    bool os_amx = (enabled & 0x60000) == 0x60000;
    bool fma_f16c = (c & bit_FMA) && (c & bit_F16C);
    uint32_t a7, b7, c7, d7;
    __cpuid_count(7, 0, a7, b7, c7, d7);
    features.avx2 = os_avx && fma_f16c && (b7 & bit_AVX2);
    uint32_t needed = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    features.avx512 = os_avx512 && features.avx2 && (b7 & needed) == needed;
    features.avx512_vnni = features.avx512 && (c7 & bit_AVX512VNNI);
    /* Bit 24: the tiles themselves. What is computed from them is in AVX-512's registers. */
    bool tiles = os_amx && features.avx512_vnni && (d7 >> 24 & 1) && ask_for_tiles();
    features.amx_int8 = tiles && (d7 >> 25 & 1);
    features.amx_bf16 = tiles && (d7 >> 22 & 1);
    if (a7 >= 1) {
        __cpuid_count(7, 1, a, b, c, d);
        features.avx_vnni = features.avx2 && (a >> 4 & 1);
        features.avx512_bf16 = features.avx512 && (a >> 5 & 1);
    }
    return features;
}
#endif
#elif defined(__aarch64__)
#include <sys/auxv.h>

cpu_features cpu_features_detect(void) {
    return (cpu_features){.neon_dot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0};
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
               {features->avx_vnni, "avx_vnni"},
               {features->avx512, "avx512"},
               {features->avx512_vnni, "avx512_vnni"},
               {features->avx512_bf16, "avx512_bf16"},
               {features->amx_int8, "amx_int8"},
               {features->amx_bf16, "amx_bf16"},
               {features->neon_dot, "neon_dot"}};
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

/* ---- Control groups ---- */

/* The process's path in the hierarchy of a controller (version 1), or of all (version 2, the line
 * that begins with "0::"), from proc/self/cgroup: "4:cpu,cpuacct:/a/b". `names` gets the
 * controllers as they are written there, which is what the folder is called. */
static bool cgroup_path(const char *root, const char *controller, char *names, char *path,
                        size_t capacity) {
    char file[1024];
    snprintf(file, sizeof(file), "%s/proc/self/cgroup", root);
    FILE *lines = fopen(file, "re");
    if (lines == NULL)
        return false;
    char line[1024];
    bool found = false;
    while (!found && fgets(line, sizeof(line), lines) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':');
        char *place = list == NULL ? NULL : strchr(list + 1, ':');
        if (place == NULL)
            continue;
        *place = '\0';
        snprintf(names, capacity, "%s", list + 1);
        snprintf(path, capacity, "%s", place + 1);
        if (*controller == '\0') {
            found = strncmp(line, "0:", 2) == 0 && list[1] == '\0';
            continue;
        }
        for (char *rest = list + 1, *one; !found && (one = strsep(&rest, ",")) != NULL;)
            found = strcmp(one, controller) == 0;
    }
    fclose(lines);
    return found;
}

/* Calls `visit` with sys/fs/cgroup/MOUNT/PATH and every folder above it up to the mount: a limit on
 * any level binds. Inside a container the path may be the host's and not exist; the mount then is
 * the container's own. */
static void cgroup_walk_mount(const char *root, const char *mount, const char *path,
                              void (*visit)(void *context, const char *folder), void *context) {
    char folder[1024];
    int top = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s", root, mount);
    int length = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s", root, mount, path);
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

/* Version 2 alone, version 2 beside version 1 ("unified"), and the controller's own hierarchy of
 * version 1. What is not mounted has no files and says nothing. */
static void cgroup_walk(const char *root, const char *controller,
                        void (*visit)(void *context, const char *folder), void *context) {
    char names[300];
    char path[512];
    char mount[310];
    if (cgroup_path(root, "", names, path, sizeof(names))) {
        cgroup_walk_mount(root, "", path, visit, context);
        cgroup_walk_mount(root, "/unified", path, visit, context);
    }
    if (cgroup_path(root, controller, names, path, sizeof(names))) {
        snprintf(mount, sizeof(mount), "/%s", names);
        cgroup_walk_mount(root, mount, path, visit, context);
        snprintf(mount, sizeof(mount), "/%s", controller);
        cgroup_walk_mount(root, mount, path, visit, context);
    }
}

static bool read_cgroup(const char *folder, const char *file, const char *key, char *value,
                        size_t capacity) {
    char path[1100];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return read_line_of(path, key, value, capacity);
}

/* The smallest one binds. */
static void apply_quota(double quota, double period, double *processors) {
    if (quota > 0 && period > 0 && (*processors == 0 || quota / period < *processors))
        *processors = quota / period;
}

static void visit_quota(void *context, const char *folder) {
    char value[64];
    char period[64];
    if (read_cgroup(folder, "cpu.max", "", value, sizeof(value))) {
        char *rest;
        double quota = number_from_text(value, &rest); /* "max" is 0: no quota */
        apply_quota(quota, number_from_text(rest, NULL), context);
    }
    if (read_cgroup(folder, "cpu.cfs_quota_us", "", value, sizeof(value)) && /* −1: no quota */
        read_cgroup(folder, "cpu.cfs_period_us", "", period, sizeof(period)))
        apply_quota(number_from_text(value, NULL), number_from_text(period, NULL), context);
}

double cpu_quota_under(const char *root) {
    double quota = 0;
    cgroup_walk(root, "cpu", visit_quota, &quota);
    return quota;
}

cpu_threads cpu_threads_under(const char *root, uint32_t affinity) {
    cpu_threads threads = {.affinity = affinity, .quota = cpu_quota_under(root)};
    threads.usable = threads.decode = affinity;
    if (threads.quota > 0 && threads.quota < affinity) {
        threads.usable = (uint32_t)ceil(threads.quota);
        threads.decode = threads.quota < 1 ? 1 : (uint32_t)threads.quota;
    }
    return threads;
}

static uint32_t affinity_threads(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

uint32_t cpu_usable_threads(void) {
    return cpu_threads_under("", affinity_threads()).usable;
}

cpu_threads cpu_threads_detect(void) {
    topology topology;
    topology_detect(&topology);
    cpu_threads threads = cpu_threads_under("", affinity_threads());
    threads.cores = topology.cores;
    threads.nodes = topology.nodes;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    threads.online = online > 0 ? (uint32_t)online : threads.affinity;
    return threads;
}

void cpu_threads_text(const cpu_threads *threads, char *text, size_t capacity) {
    char cores[48] = "", quota[32] = "no quota";
    if (threads->affinity < threads->online)
        snprintf(cores, sizeof(cores), " of %u", threads->online);
    size_t used = strlen(cores);
    if (threads->cores < threads->affinity)
        snprintf(cores + used, sizeof(cores) - used, " (%u cores)", threads->cores);
    if (threads->quota > 0)
        snprintf(quota, sizeof(quota), "quota %.1f", threads->quota);
    snprintf(text, capacity, "%u processor%s%s allowed, %s, decode %u of %u, prefill %u",
             threads->affinity, threads->affinity == 1 ? "" : "s", cores, quota, threads->decode,
             threads->usable, threads->usable);
}

void cpu_threads_explain(const cpu_threads *threads, bool decode, char *text, size_t capacity) {
    uint32_t chosen = decode ? threads->decode : threads->usable;
    int used = snprintf(text, capacity, "%s: %u thread%s, ", decode ? "decode" : "prefill", chosen,
                        chosen == 1 ? "" : "s");
    if (used < 0 || (size_t)used >= capacity)
        return;
    text += used;
    capacity -= (size_t)used;
    bool quota = threads->quota > 0 && threads->quota < (double)threads->affinity;
    if (quota && decode)
        snprintf(text, capacity,
                 "the cgroup's quota of %.1f processors rounded down: one more would be stopped "
                 "for the rest of every period, and the others would wait for it",
                 threads->quota);
    else if (quota)
        snprintf(text, capacity, "the cgroup's quota of %.1f processors rounded up",
                 threads->quota);
    else if (threads->affinity < threads->online)
        snprintf(text, capacity, "the %u of %u processors that the affinity mask allows; no quota",
                 threads->affinity, threads->online);
    else
        snprintf(text, capacity, "all %u processors; neither affinity mask nor quota is less",
                 threads->online);
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

/* Cached files count as used but give way, as in MemAvailable: a mapped model must not make the
 * memory it was read into look lost. */
static void apply_memory(const char *folder, const char *const cached[2], uint64_t most,
                         uint64_t used, memory_limit *limit) {
    for (size_t i = 0; i < 2; i++) {
        uint64_t bytes;
        if (cgroup_bytes(folder, "memory.stat", cached[i], &bytes))
            used -= bytes < used ? bytes : used;
    }
    uint64_t headroom = most > used ? most - used : 0;
    if (headroom < limit->available_bytes)
        *limit = (memory_limit){headroom, most, "cgroup"};
}

static void visit_memory(void *context, const char *folder) {
    static const char *const cached_v2[] = {"inactive_file", "active_file"};
    static const char *const cached_v1[] = {"total_inactive_file", "total_active_file"};
    memory_limit *limit = context;
    uint64_t most = UINT64_MAX;
    uint64_t high;
    uint64_t used;
    bool limited = cgroup_bytes(folder, "memory.max", "", &most);
    if (cgroup_bytes(folder, "memory.high", "", &high) && high < most) {
        most = high; /* past it the kernel slows the process down rather than killing it */
        limited = true;
    }
    if (limited && cgroup_bytes(folder, "memory.current", "", &used))
        apply_memory(folder, cached_v2, most, used, limit);
    /* Version 1; a number beyond all memory is its way of saying "max". */
    if (cgroup_bytes(folder, "memory.limit_in_bytes", "", &most) &&
        (limit->total_bytes == 0 || most < limit->total_bytes) &&
        cgroup_bytes(folder, "memory.usage_in_bytes", "", &used))
        apply_memory(folder, cached_v1, most, used, limit);
}

/* For processes that cannot read /proc. Cached files count as used here, so this is the lower bound
 * of MemAvailable. */
static memory_limit memory_free(void) {
    struct sysinfo info;
    memory_limit limit = {.source = "sysinfo"};
    if (sysinfo(&info) == 0) {
        limit.available_bytes = ((uint64_t)info.freeram + info.bufferram) * info.mem_unit;
        limit.total_bytes = (uint64_t)info.totalram * info.mem_unit;
    }
    return limit;
}

memory_limit memory_limit_under(const char *root) {
    memory_limit limit = {.available_bytes = meminfo_bytes(root, "MemAvailable"),
                          .total_bytes = meminfo_bytes(root, "MemTotal"),
                          .source = "system"};
    if (limit.total_bytes == 0)
        limit = memory_free();
    cgroup_walk(root, "memory", visit_memory, &limit);
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

/* The second number of /proc/self/statm, in pages. */
uint64_t process_resident_bytes(void) {
    char text[128];
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t bytes = read(file, text, sizeof(text) - 1);
    close(file);
    ssize_t at = 0;
    while (at < bytes && text[at] != ' ')
        at++;
    uint64_t pages = 0;
    for (at++; at < bytes && text[at] >= '0' && text[at] <= '9'; at++)
        pages = pages * 10 + (uint64_t)(text[at] - '0');
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
