/* perf_event_open, and what it says no with. */
#include "telemetry/hardware.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint64_t config;
} events[HARDWARE_EVENTS] = {
    [HARDWARE_CYCLES] = {"cycles", PERF_COUNT_HW_CPU_CYCLES},
    [HARDWARE_INSTRUCTIONS] = {"instructions", PERF_COUNT_HW_INSTRUCTIONS},
    [HARDWARE_CACHE_REFERENCES] = {"cache_references", PERF_COUNT_HW_CACHE_REFERENCES},
    [HARDWARE_CACHE_MISSES] = {"cache_misses", PERF_COUNT_HW_CACHE_MISSES},
};

const char *hardware_name(hardware_event event) {
    return events[event].name;
}

static int open_event(uint64_t config) {
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.type = PERF_TYPE_HARDWARE;
    attr.size = sizeof(attr);
    attr.config = config;
    attr.exclude_kernel = 1; /* what is allowed where perf_event_paranoid is 2 */
    attr.exclude_hv = 1;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void hardware_open(hardware_counters *counters) {
    hardware_close(counters);
    for (int i = 0; i < HARDWARE_EVENTS; i++) {
        int descriptor = open_event(events[i].config);
        if (descriptor >= 0)
            atomic_store(&counters->descriptor[i], descriptor + 1);
        else if (atomic_load(&counters->failure) == 0)
            atomic_store(&counters->failure, errno);
    }
}

/* Value, time for which it was enabled, time for which it really counted. */
static uint64_t read_event(int descriptor) {
    uint64_t words[3] = {0};
    if (read(descriptor, words, sizeof(words)) != (ssize_t)sizeof(words) || words[2] == 0)
        return 0;
    return words[2] >= words[1]
               ? words[0]
               : (uint64_t)((double)words[0] * ((double)words[1] / (double)words[2]));
}

void hardware_close(hardware_counters *counters) {
    for (int i = 0; i < HARDWARE_EVENTS; i++) {
        int descriptor = atomic_exchange(&counters->descriptor[i], 0);
        if (descriptor == 0)
            continue;
        atomic_fetch_add(&counters->past[i], read_event(descriptor - 1));
        close(descriptor - 1);
    }
}

bool hardware_read(const hardware_counters *counters, hardware_event event, uint64_t *value) {
    int descriptor = atomic_load(&counters->descriptor[event]);
    uint64_t past = atomic_load(&counters->past[event]);
    *value = past + (descriptor == 0 ? 0 : read_event(descriptor - 1));
    return descriptor != 0 || past > 0;
}

/* kernel.perf_event_paranoid; −2: not to be read. */
static int paranoid_level(void) {
    char text[16] = "";
    int file = open("/proc/sys/kernel/perf_event_paranoid", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    if (file >= 0)
        close(file);
    return got > 0 ? (int)strtol(text, NULL, 10) : -2;
}

/* 2 is enough for a process's own counters in user space, which is all that is asked for. */
void hardware_refusal(int paranoid, char *text, size_t capacity) {
    if (paranoid > 2)
        snprintf(text, capacity,
                 "no hardware counters: the kernel does not allow them (kernel.perf_event_paranoid "
                 "is %d); set it to 2 with sysctl or grant CAP_PERFMON",
                 paranoid);
    else
        snprintf(text, capacity,
                 "no hardware counters: perf_event_open is refused, usually by a container's "
                 "seccomp filter; allow it there, and set kernel.perf_event_paranoid to at most 2");
}

void hardware_reason(int failure, char *text, size_t capacity) {
    const char *why = strerror(failure);
    if (failure == EACCES || failure == EPERM) {
        hardware_refusal(paranoid_level(), text, capacity);
        return;
    }
    if (failure == ENOENT || failure == EOPNOTSUPP || failure == ENODEV)
        why = "this machine has no counters (a virtual machine without a PMU?)";
    else if (failure == ENOSYS)
        why = "the kernel was built without perf_event";
    snprintf(text, capacity, "no hardware counters: %s", why);
}
