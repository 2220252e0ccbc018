/* What this process really has: instruction sets that CPU *and* operating system allow, usable
 * processors (affinity, cgroup quota), memory limits. */
#ifndef AVO_BASE_CPU_H
#define AVO_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cpu_features {
    bool avx2;   /* with FMA and F16C */
    bool avx512; /* F, BW, DQ, VL */
    bool avx512_vnni;
    bool avx512_bf16;
    bool amx_int8; /* with avx512_vnni; processor, XCR0 and the kernel's permission */
    bool amx_bf16;
} cpu_features;

/* Asks the kernel for AMX's registers where the processor has them: the whole process then may use
 * them, and its signal frames grow. Call it before threads install small signal stacks. */
cpu_features cpu_features_detect(void);
/* "avx2 avx512 avx512_vnni", or "none"; always terminated. */
void cpu_features_text(const cpu_features *features, char *text, size_t capacity);
/* The processor's own name, or "unknown". */
void cpu_name(char *text, size_t capacity);

/* Processors this process may use: affinity mask and cgroup cpu.max (rounded up); at least 1. */
uint32_t cpu_usable_threads(void);

typedef struct memory_limit {
    uint64_t available_bytes; /* the smaller of cgroup headroom and MemAvailable */
    uint64_t total_bytes;
    const char *source; /* "cgroup" or "system" */
} memory_limit;
memory_limit memory_limit_detect(void);

/* Largest resident size so far, in bytes. */
uint64_t memory_peak_bytes(void);

#endif
