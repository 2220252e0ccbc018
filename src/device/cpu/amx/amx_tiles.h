/* The tile instructions as functions: the one header that touches tile registers. Kernels include
 * it with angle brackets, so that a build may put another one of the same name in its place:
 * tests/device/emulated/ has one in plain C, with which the kernels' logic is tested on machines
 * without AMX.
 *
 * Own assembly rather than the compilers' intrinsics: gcc 12 tells the optimiser about 8 of the 64
 * bytes of a configuration and about none that a load reads, and clang 14's do not mix with it.
 * Here configuring, loading and storing are seen as touching all memory; the arithmetic between
 * them stays free to move.
 *
 * Tile numbers are constants, 0…7.
 */
#ifndef AVO_DEVICE_CPU_AMX_TILES_H
#define AVO_DEVICE_CPU_AMX_TILES_H

#include <stddef.h>
#include <stdint.h>

#define TILE_INLINE static inline __attribute__((always_inline))

/* What LDTILECFG reads: palette 1 has 8 tiles of up to 16 rows of up to 64 bytes. */
typedef struct tile_configuration {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;
_Static_assert(sizeof(tile_configuration) == 64, "the instruction reads 64 bytes");

/* From here to tiles_release, this thread has tiles; both are cheap beside one panel's product. */
TILE_INLINE void tiles_configure(const tile_configuration *configuration) {
    __asm__ volatile("ldtilecfg %0" ::"m"(*configuration) : "memory");
}

TILE_INLINE void tiles_release(void) {
    __asm__ volatile("tilerelease" ::: "memory");
}

/* Rows of the tile from `base`, base + stride, … */
TILE_INLINE void tile_load(const int tile, const void *base, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(base), "r"(stride), "i"(tile)
                     : "memory");
}

/* The same of rows that are not needed again soon. */
TILE_INLINE void tile_load_once(const int tile, const void *base, size_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(base), "r"(stride), "i"(tile)
                     : "memory");
}

TILE_INLINE void tile_store(const int tile, void *base, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(base), "r"(stride), "i"(tile)
                     : "memory");
}

TILE_INLINE void tile_zero(const int tile) {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
}

/* c[m][n] += Σ over i: a[m][i] · b[i / 4][4n + i % 4]; bytes of both with sign, sums of 32 bits. */
TILE_INLINE void tile_product(const int c, const int a, const int b) {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
}

#endif
