/* The CUDA driver library: the few functions that are used, declared here and found when the first
 * device is opened. Building needs no CUDA headers, running no CUDA runtime, and machines without
 * the library run the same binary. */
#ifndef AVO_DEVICE_CUDA_LIBRARY_H
#define AVO_DEVICE_CUDA_LIBRARY_H

#include "base/status.h"

typedef int cu_result; /* 0: success */
typedef int cu_device;
typedef uint64_t cu_address;
typedef struct cu_context_s *cu_context;
typedef struct cu_module_s *cu_module;
typedef struct cu_function_s *cu_function;
typedef struct cu_stream_s *cu_stream;
typedef struct cu_graph_s *cu_graph;
typedef struct cu_graph_exec_s *cu_graph_exec;

#define CU_OUT_OF_MEMORY 2
#define CU_NO_DEVICE     100
#define CU_NO_BINARY     209 /* for this card, and none that can be compiled for it */

#define CU_MULTIPROCESSORS      16 /* attributes of a device */
#define CU_COMPUTE_MAJOR        75
#define CU_COMPUTE_MINOR        76
#define CU_SHARED_MAX           97 /* bytes that a block may ask for */
#define CU_SHARED_DYNAMIC       8  /* of a function: bytes of shared memory at most */
#define CU_SHARED_SHARE         9  /* of a function: percent of the first cache for that */
#define CU_STREAM_NOT_BLOCKING  1
#define CU_CAPTURE_THREAD       1     /* only calls of this thread are looked at */
#define CUDA_DRIVER_VERSION_MIN 12000 /* 12.0 */

/* How a kernel is launched. `early`: it may begin before the one in front has ended, and waits for
 * it itself. */
#define CU_ATTRIBUTE_EARLY 6
typedef struct cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        int number;
    } value;
} cu_launch_attribute;
typedef struct cu_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned attribute_count;
} cu_launch_config;

/* X(member, symbol, arguments) */
#define CUDA_LIBRARY_TABLE(X)                                                                      \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(version, "cuDriverGetVersion", (int *version))                                               \
    X(error_name, "cuGetErrorName", (cu_result result, const char **name))                         \
    X(device_count, "cuDeviceGetCount", (int *count))                                              \
    X(device_get, "cuDeviceGet", (cu_device * device, int index))                                  \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))     \
    X(context_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))        \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                         \
    X(context_set, "cuCtxSetCurrent", (cu_context context))                                        \
    X(memory_info, "cuMemGetInfo_v2", (size_t * left, size_t * total))                             \
    X(module_load, "cuModuleLoadData", (cu_module * module, const void *image))                    \
    X(module_unload, "cuModuleUnload", (cu_module module))                                         \
    X(function_get, "cuModuleGetFunction",                                                         \
      (cu_function * function, cu_module module, const char *name))                                \
    X(function_set, "cuFuncSetAttribute", (cu_function function, int attribute, int value))        \
    X(memory_take, "cuMemAlloc_v2", (cu_address * address, size_t bytes))                          \
    X(memory_give, "cuMemFree_v2", (cu_address address))                                           \
    X(host_take, "cuMemAllocHost_v2", (void **memory, size_t bytes))                               \
    X(host_give, "cuMemFreeHost", (void *memory))                                                  \
    X(copy_in, "cuMemcpyHtoDAsync_v2",                                                             \
      (cu_address to, const void *from, size_t bytes, cu_stream stream))                           \
    X(copy_out, "cuMemcpyDtoHAsync_v2",                                                            \
      (void *to, cu_address from, size_t bytes, cu_stream stream))                                 \
    X(copy_across, "cuMemcpyDtoDAsync_v2",                                                         \
      (cu_address to, cu_address from, size_t bytes, cu_stream stream))                            \
    X(fill, "cuMemsetD8Async",                                                                     \
      (cu_address to, unsigned char byte, size_t bytes, cu_stream stream))                         \
    X(stream_open, "cuStreamCreate", (cu_stream * stream, unsigned flags))                         \
    X(stream_close, "cuStreamDestroy_v2", (cu_stream stream))                                      \
    X(stream_wait, "cuStreamSynchronize", (cu_stream stream))                                      \
    X(launch, "cuLaunchKernelEx",                                                                  \
      (const cu_launch_config *config, cu_function function, void **arguments, void **extra))      \
    X(capture_begin, "cuStreamBeginCapture_v2", (cu_stream stream, int mode))                      \
    X(capture_end, "cuStreamEndCapture", (cu_stream stream, cu_graph * graph))                     \
    X(graph_build, "cuGraphInstantiateWithFlags",                                                  \
      (cu_graph_exec * out, cu_graph graph, unsigned long long flags))                             \
    X(graph_free, "cuGraphDestroy", (cu_graph graph))                                              \
    X(graph_launch, "cuGraphLaunch", (cu_graph_exec graph, cu_stream stream))                      \
    X(graph_close, "cuGraphExecDestroy", (cu_graph_exec graph))

typedef struct cuda_library {
    void *handle;
#define X(member, symbol, arguments) cu_result(*member) arguments;
    CUDA_LIBRARY_TABLE(X)
#undef X
} cuda_library;

/* AVO_ERROR_UNSUPPORTED: there is no such library here, or an older one. */
AVO_MUST_USE avo_status cuda_library_open(cuda_library *library, avo_error *error);
void cuda_library_close(cuda_library *library);

#endif
