/* AMX tiles in plain C, in the place of device/cpu/amx/amx_tiles.h: the same functions on a state
 * in memory, checked more strictly than the processor does where that costs nothing. */
#ifndef AVO_EMULATED_AMX_TILES_H
#define AVO_EMULATED_AMX_TILES_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct tile_configuration {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;

typedef struct emulated_tiles {
    tile_configuration configuration; /* palette 0: none */
    uint8_t tile[8][16][64];
    uint64_t configured; /* how often, and how often released: a test compares */
    uint64_t released;
    uint64_t products;
} emulated_tiles;
extern _Thread_local emulated_tiles emulated;

static inline void tiles_configure(const tile_configuration *configuration) {
    assert(configuration->palette == 1 && configuration->start_row == 0);
    for (int i = 0; i < 14; i++)
        assert(configuration->reserved[i] == 0);
    for (int i = 0; i < 16; i++) {
        assert(configuration->rows[i] <= (i < 8 ? 16 : 0));
        assert(configuration->row_bytes[i] <= (i < 8 ? 64 : 0));
        assert((configuration->rows[i] == 0) == (configuration->row_bytes[i] == 0));
    }
    emulated.configuration = *configuration;
    memset(emulated.tile, 0, sizeof(emulated.tile));
    emulated.configured++;
}

static inline void tiles_release(void) {
    emulated.configuration.palette = 0;
    emulated.released++;
}

static inline void tile_check(int tile) {
    assert(emulated.configuration.palette == 1 && tile >= 0 && tile < 8);
    assert(emulated.configuration.rows[tile] > 0);
}

static inline void tile_zero(int tile) {
    tile_check(tile);
    memset(emulated.tile[tile], 0, sizeof(emulated.tile[tile]));
}

static inline void tile_load(int tile, const void *base, size_t stride) {
    tile_zero(tile);
    for (size_t row = 0; row < emulated.configuration.rows[tile]; row++)
        memcpy(emulated.tile[tile][row], (const uint8_t *)base + row * stride,
               emulated.configuration.row_bytes[tile]);
}

static inline void tile_load_once(int tile, const void *base, size_t stride) {
    tile_load(tile, base, stride);
}

static inline void tile_store(int tile, void *base, size_t stride) {
    tile_check(tile);
    for (size_t row = 0; row < emulated.configuration.rows[tile]; row++)
        memcpy((uint8_t *)base + row * stride, emulated.tile[tile][row],
               emulated.configuration.row_bytes[tile]);
}

static inline void tile_product(int c, int a, int b) {
    tile_check(c);
    tile_check(a);
    tile_check(b);
    const tile_configuration *now = &emulated.configuration;
    assert(now->rows[c] == now->rows[a] && now->row_bytes[c] == now->row_bytes[b]);
    assert(now->row_bytes[a] == 4 * now->rows[b]);
    assert(c != a && c != b && a != b);
    for (size_t row = 0; row < now->rows[c]; row++)
        for (size_t column = 0; column < now->row_bytes[c] / 4u; column++) {
            int32_t sum;
            memcpy(&sum, &emulated.tile[c][row][4 * column], sizeof(sum));
            for (size_t i = 0; i < now->row_bytes[a]; i++)
                sum += (int8_t)emulated.tile[a][row][i] *
                       (int8_t)emulated.tile[b][i / 4][4 * column + i % 4];
            memcpy(&emulated.tile[c][row][4 * column], &sum, sizeof(sum));
        }
    emulated.products++;
}

#endif
