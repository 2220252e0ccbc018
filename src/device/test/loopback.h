/* A device for tests: "loopback:3" is device "mpi" with its other ranks in threads of this process,
 * connected by sockets. Parameters are those of "mpi" (device/ranks/), and what a rank shall do
 * wrong: "leaves=1@5" (rank 1 at its step 5), "sleeps=1@5", "lacks=1@0" (memory for its weights).
 * Without a number there are two ranks. */
#ifndef AVO_DEVICE_LOOPBACK_H
#define AVO_DEVICE_LOOPBACK_H

#include "device/device.h"

extern const device_driver device_loopback;

#endif
