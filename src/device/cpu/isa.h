/* The instruction sets of this build. Each folder of kernels describes its own in table.c; the
 * build option AVO_KERNELS chooses the folders. A set builds on the one before it in the list: the
 * tables of operations and limits begin as plain C and each set overwrites what it is faster at. */
#ifndef AVO_DEVICE_CPU_ISA_H
#define AVO_DEVICE_CPU_ISA_H

#include "device/cpu/gemm/kernels.h"
#include "device/cpu/limits.h"
#include "device/cpu/ops.h"
#include "device/gradients.h"
#include "device/logits.h"

typedef struct instruction_set {
    const char *name;  /* "avx2": of its device, too */
    const char *needs; /* for messages: "AVX-512 with VNNI" */
    size_t feature;    /* where cpu_features says that this machine runs it and those before it */
    void (*ops)(op_table *table);
    void (*limits)(limit_table *table);
    const logit_loops *logits; /* NULL: no faster than those before it */
    /* `ops` as processors get it that lack something which it uses where it is there (AVX-VNNI);
     * NULL: it is the same on all. Tests hold both to the same bits. */
    void (*ops_least)(op_table *table);
    void (*gemm)(gemm_kernels *kernels); /* NULL: no faster than those before it */
    const gradient_loops *gradients;     /* the same */
} instruction_set;

/* Those whose folders were compiled exist. */
extern const logit_loops avx2_logits, avx512_logits;
extern const gradient_loops avx2_gradients, avx512_gradients;
extern const instruction_set isa_avx2, isa_avx512, isa_amx, isa_neon;

/* Number `at` of those that this build has and this machine runs, counted from 0 in the order in
 * which tables are stacked; NULL behind the last. */
const instruction_set *isa_at(size_t at);

#endif
