/* What this process really has: instruction sets that CPU *and* operating system allow, usable
 * processors (affinity, cgroup quota), memory limits. */
#ifndef AVO_BASE_CPU_H
#define AVO_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cpu_features {
    bool avx2;     /* with FMA and F16C */
    bool avx_vnni; /* with avx2: vpdpbusd in 256 bits */
    bool avx512;   /* F, BW, DQ, VL */
    bool avx512_vnni;
    bool avx512_bf16;
    bool amx_int8; /* with avx512_vnni; processor, XCR0 and the kernel's permission */
    bool amx_bf16;
    bool neon_dot; /* NEON with dot products (sdot) */
} cpu_features;

/* Asks the kernel for AMX's registers where the processor has them: the whole process then may use
 * them, and its signal frames grow. Call it before threads install small signal stacks. */
cpu_features cpu_features_detect(void);
/* "avx2 avx512 avx512_vnni", or "none"; always terminated. */
void cpu_features_text(const cpu_features *features, char *text, size_t capacity);
/* The processor's own name, or "unknown". */
void cpu_name(char *text, size_t capacity);

/* Processors this process may use: affinity mask and cgroup quota (cpu.max, or cpu.cfs_quota_us of
 * version 1; rounded up); at least 1. SMT siblings count as processors: where two of them share a
 * core, the second hides waits of the first, which unpacking weights and reading memory have many
 * of, and virtual machines mostly do not say which are siblings anyway. */
uint32_t cpu_usable_threads(void);

typedef struct cpu_threads {
    uint32_t online;   /* processors of the machine */
    uint32_t affinity; /* of these, those of the affinity mask */
    uint32_t cores;    /* physical cores that these are */
    uint32_t nodes;    /* NUMA nodes that these are on */
    double quota;      /* of the cgroup, in processors; 0: none */
    uint32_t usable;   /* cpu_usable_threads() */
    uint32_t decode;   /* of these, how many can compute all the time: the quota rounded down. One
                          more would be stopped for the rest of every period, all others with it. */
} cpu_threads;
cpu_threads cpu_threads_detect(void);
/* With how many threads an engine begins, and why: "16 processors of 32 (8 cores) allowed, quota
 * 8.0, decode 8 of 8, prefill 8". */
void cpu_threads_text(const cpu_threads *threads, char *text, size_t capacity);
/* In sentences: what decoding (or prefill) begins with, and what limits it: "decode: 7 of 8
 * threads, the cgroup's quota of 7.5 processors rounded down, because …". */
void cpu_threads_explain(const cpu_threads *threads, bool decode, char *text, size_t capacity);

/* For loops that wait for another processor. */
static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

typedef struct memory_limit {
    uint64_t available_bytes; /* the smaller of cgroup headroom and MemAvailable */
    uint64_t total_bytes;
    const char *source; /* "cgroup", "system", or "sysinfo" where /proc cannot be read */
} memory_limit;
memory_limit memory_limit_detect(void);

/* Largest resident size so far, in bytes. */
uint64_t memory_peak_bytes(void);

/* Memory that this process has in RAM now; 0 where that is not said. */
uint64_t process_resident_bytes(void);

#endif
