/* product_bytes.c once more, with the products of AVX-VNNI. */
#include "device/cpu/avx2/product_bytes.c"
