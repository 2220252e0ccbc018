/* linear_block.c once more, with the products of AVX-VNNI. */
#include "device/cpu/avx2/linear_block.c"
