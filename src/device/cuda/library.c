/* Finding the CUDA driver library. */
#include "device/cuda/library.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY_NAME "libcuda.so.1"

avo_status cuda_library_open(cuda_library *library, avo_error *error) {
    memset(library, 0, sizeof(*library));
    library->handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "the NVIDIA driver's library " LIBRARY_NAME " was not found");
    const char *missing = NULL;
    void *found;
#define X(member, symbol, arguments)                                                               \
    found = dlsym(library->handle, symbol);                                                        \
    memcpy(&library->member, &found, sizeof(found));                                               \
    missing = found == NULL ? symbol : missing;
    CUDA_LIBRARY_TABLE(X)
#undef X
    if (missing == NULL)
        return AVO_OK;
    cuda_library_close(library);
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "the NVIDIA driver's " LIBRARY_NAME " lacks %s; install a newer driver",
                       missing);
}

void cuda_library_close(cuda_library *library) {
    if (library->handle != NULL)
        dlclose(library->handle);
    library->handle = NULL;
}
