/* linear_word.c once more, with the products of AVX-VNNI. */
#include "device/cpu/avx2/linear_word.c"
