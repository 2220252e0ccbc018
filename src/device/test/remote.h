/* A device for tests: a CPU device behind a wall. What it computes is that device's, bit for bit,
 * but nothing of it is within the host's reach:
 *   - its memory (weights, adapters, KV pages, scratch) cannot be read or written by the host: the
 *     pages are protected except while the device itself works;
 *   - work goes on behind device_start, on a thread of the device; results hold NaN until
 *     device_wait has returned, and again when they need not survive the next work;
 *   - any call that may fail can be made to;
 *   - it wants new KV pages zeroed;
 *   - it asserts that what was opened last is closed first.
 * An engine that works on it dereferences no device memory and reads no result too early.
 *
 * Name: "remote" or "remote:PARAMETER,…" with
 *   DEVICE       the CPU device behind it (default: the fastest that works here)
 *   delay=US     microseconds before work begins
 *   fail=N       call number N fails, counted from 1 over all calls that may fail
 *   every=N      so does every N-th call
 *   lost=N       so do all calls from number N on
 *   memory=MIB   how much memory it says it has
 *   opaque       it says nothing about threads, as a device without any
 *   single       it computes one step at a time
 *   late         work begins only when device_wait is called, on its thread: later than with any
 *                delay, and without the cost of a thread that is woken for every step
 * It is never chosen by "auto". */
#ifndef AVO_DEVICE_TEST_REMOTE_H
#define AVO_DEVICE_TEST_REMOTE_H

#include "device/driver.h"

extern const device_driver device_remote;

/* Adapters that were uploaded so far. */
uint64_t remote_uploads(const device *device);

#endif
