/* Adapters of random numbers, made in memory: for measurements and tests. */
#ifndef AVO_ADAPTERS_RANDOM_H
#define AVO_ADAPTERS_RANDOM_H

#include "adapters/adapters.h"

/* Besides A and B of the matrices. */
enum {
    ADAPTER_RANDOM_GAINS = 1,            /* DoRA: on every matrix */
    ADAPTER_RANDOM_OFFSETS = 2,          /* biases */
    ADAPTER_RANDOM_NORMS = 4,            /* weights of all norms, biases where the base has some */
    ADAPTER_RANDOM_EMBEDDING = 8,        /* low rank */
    ADAPTER_RANDOM_EMBEDDING_WHOLE = 16, /* a row for every token */
    ADAPTER_RANDOM_WHOLE = 32,           /* no A: matrices trained as a whole */
    ADAPTER_RANDOM_SHARED = 64           /* q, k and v, gate and up have one A */
};

typedef struct adapter_random_options {
    uint64_t seed;
    uint32_t rank;     /* 1…ADAPTER_RANK_MAX */
    uint32_t matrices; /* bit n: adapter_matrix n */
    uint32_t parts;    /* ADAPTER_RANDOM_… */
    quant_type type;   /* QUANT_Q8C, QUANT_F16, QUANT_F32 */
    float strength;    /* norm of what is added to a matrix, over the matrix's own */
} adapter_random_options;

/* One reference belongs to the caller. What is added is the same numbers for every type, but for
 * their rounding. */
AVO_MUST_USE avo_status adapter_random(const adapter_base *base,
                                       const adapter_random_options *options,
                                       const avo_allocator *allocator, avo_adapter **out,
                                       avo_error *error);

#endif
