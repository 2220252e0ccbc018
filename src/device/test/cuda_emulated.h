/* A device for tests: the CUDA device with its kernels computed by the processor, block by block
 * and thread by thread. All host code of the device is the real one; only the card is not. Its
 * memory is behind a wall, as the remote device's is, and any call can be made to fail as the
 * driver's would.
 *
 * Name: "cuda-emulated" or "cuda-emulated:PARAMETER,…" with
 *   fail=N       call number N fails, counted from 1 over all calls that may fail
 *   lost=N       so do all calls from number N on
 *   code=N       what they return (default: 719, a kernel failed)
 *   memory=MIB   how much memory the card has
 * It is never chosen by "auto". */
#ifndef AVO_DEVICE_TEST_CUDA_EMULATED_H
#define AVO_DEVICE_TEST_CUDA_EMULATED_H

#include "device/driver.h"

extern const device_driver device_cuda_emulated;

#endif
