/* linear_q8r.c once more, with the products of AVX-VNNI. */
#include "device/cpu/avx2/linear_q8r.c"
