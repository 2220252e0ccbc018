/* Monotonic time. */
#ifndef AVO_BASE_CLOCK_H
#define AVO_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ns(void);
/* Time that the calling thread has had a processor. */
uint64_t clock_thread_ns(void);

static inline double clock_seconds(uint64_t begin_ns, uint64_t end_ns) {
    return (double)(end_ns - begin_ns) * 1e-9;
}

#endif
