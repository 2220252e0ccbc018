/* Counters of the processor through perf_event, each of one thread, in user space. Counting costs
 * nothing; whoever exports reads. Where the kernel does not allow it or the machine has none, the
 * reason is kept. */
#ifndef AVO_TELEMETRY_HARDWARE_H
#define AVO_TELEMETRY_HARDWARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum hardware_event {
    HARDWARE_CYCLES,
    HARDWARE_INSTRUCTIONS,
    HARDWARE_CACHE_REFERENCES,
    HARDWARE_CACHE_MISSES,
    HARDWARE_EVENTS
} hardware_event;

typedef struct hardware_counters {
    _Atomic int descriptor[HARDWARE_EVENTS]; /* + 1; 0: does not count */
    _Atomic uint64_t past[HARDWARE_EVENTS];  /* of threads before this one */
    _Atomic int failure; /* errno of the first one that could not be opened; 0: none */
} hardware_counters;

/* The calling thread counts from now on; whoever counted here before has stopped. */
void hardware_open(hardware_counters *counters);
void hardware_close(hardware_counters *counters);
/* False: this one does not count, and never did. Scaled up where the kernel let it count only for a
 * part of the time. */
bool hardware_read(const hardware_counters *counters, hardware_event event, uint64_t *value);
const char *hardware_name(hardware_event event);
/* Why there are none, in words, for an errno of perf_event_open. */
void hardware_reason(int failure, char *text, size_t capacity);
/* Where the kernel refuses it, with what to do; `paranoid` is kernel.perf_event_paranoid. */
void hardware_refusal(int paranoid, char *text, size_t capacity);

#endif
