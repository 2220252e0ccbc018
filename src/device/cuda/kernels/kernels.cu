/* The kernels of the table in calls.h, as nvcc compiles them: each calls the block's code of its
 * header. */
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/head.h"
#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/rows.h"

#define X(name, call_type)                                                                         \
    extern "C" __global__ void __launch_bounds__(512) avo_##name(const call_type call) {           \
        extern __shared__ float shared[];                                                          \
        kernel_place at = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, blockDim.x, shared};   \
        kernel_##name(&call, &at);                                                                 \
    }
CUDA_KERNEL_TABLE(X)
#undef X
