/* For the files that nvcc compiles: a kernel of the table in calls.h, which calls the block's code
 * of its header. */
#ifndef AVO_DEVICE_CUDA_KERNELS_UNIT_H
#define AVO_DEVICE_CUDA_KERNELS_UNIT_H

#pragma nv_diag_suppress 550 /* lanes that a loop does not look at */
#include "device/cuda/kernels/warp.h"

#define CUDA_KERNEL_DEFINE(name, call_type, threads, together, waits)                              \
    extern "C" __global__ void __launch_bounds__(threads, together)                                \
        avo_##name(const __grid_constant__ call_type call) {                                       \
        extern __shared__ float shared[];                                                          \
        kernel_place at = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,                        \
                           blockDim.x, gridDim.x,  shared,     NULL};                              \
        if (!waits)                                                                                \
            place_wait();                                                                          \
        kernel_##name(&call, &at);                                                                 \
    }

#endif
