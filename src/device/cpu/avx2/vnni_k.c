/* linear_k.c once more, with the products of AVX-VNNI. */
#include "device/cpu/avx2/linear_k.c"
