/* The compiled kernels, for cards of the architectures that CMakeLists.txt names and, as PTX that
 * the driver compiles, for later ones. */
#include "device/cuda/port.h"

#ifdef AVO_CUDA_IMAGE
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".hidden avo_cuda_image\n"
        ".globl avo_cuda_image\n"
        "avo_cuda_image:\n"
        ".incbin \"" AVO_CUDA_IMAGE "\"\n"
        ".byte 0\n"
        ".previous\n");
extern const uint8_t avo_cuda_image[];

avo_status cuda_image_check(avo_error *error) {
    (void)error;
    return AVO_OK;
}

const void *cuda_image(void) {
    return avo_cuda_image;
}
#else
avo_status cuda_image_check(avo_error *error) {
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "this build has no CUDA kernels: nvcc was not found when it was made");
}

const void *cuda_image(void) {
    return NULL;
}
#endif
