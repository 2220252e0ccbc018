/* Arithmetic on sizes from files: false instead of wrapping. The only way such numbers are added
 * or multiplied. */
#ifndef AVO_BASE_CHECKED_H
#define AVO_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_add(size_t a, size_t b, size_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool size_multiply(size_t a, size_t b, size_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool u64_multiply(uint64_t a, uint64_t b, uint64_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}

/* Rounds up to a multiple of `step` (a power of two); false when that would wrap. */
static inline bool size_round_up(size_t value, size_t step, size_t *rounded) {
    if (__builtin_add_overflow(value, step - 1, rounded))
        return false;
    *rounded &= ~(step - 1);
    return true;
}

static inline size_t size_min(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t size_max(size_t a, size_t b) {
    return a > b ? a : b;
}

#endif
