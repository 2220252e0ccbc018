/* The compiled kernels, for cards of the architectures that CMakeLists.txt names and, as PTX that
 * the driver compiles, for later ones. */
#include "device/cuda/port.h"

#ifdef AVO_CUDA_IMAGES
#define IMAGE(name, file)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".balign 16\n"                                                                         \
            ".hidden avo_cuda_" #name "\n"                                                         \
            ".globl avo_cuda_" #name "\n"                                                          \
            "avo_cuda_" #name ":\n"                                                                \
            ".incbin \"" file "\"\n"                                                               \
            ".byte 0\n"                                                                            \
            ".previous\n");                                                                        \
    extern const uint8_t avo_cuda_##name[]
IMAGE(products, AVO_CUDA_IMAGE_products);
IMAGE(few, AVO_CUDA_IMAGE_few);
IMAGE(rows, AVO_CUDA_IMAGE_rows);
IMAGE(fast, AVO_CUDA_IMAGE_fast);
IMAGE(fast_attend, AVO_CUDA_IMAGE_fast_attend);

avo_status cuda_image_check(avo_error *error) {
    (void)error;
    return AVO_OK;
}

const void *cuda_image(uint32_t unit) {
    const uint8_t *const images[CUDA_UNITS] = {avo_cuda_products, avo_cuda_few, avo_cuda_rows,
                                               avo_cuda_fast, avo_cuda_fast_attend};
    return images[unit];
}
#else
avo_status cuda_image_check(avo_error *error) {
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "this build has no CUDA kernels: nvcc was not found when it was made");
}

const void *cuda_image(uint32_t unit) {
    (void)unit;
    return NULL;
}
#endif
