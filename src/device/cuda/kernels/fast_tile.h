/* fast_tile: many rows. A tile is 128 outputs × N rows; two warpgroups multiply 64 outputs each from
 * a ring of slabs in shared memory, which a warp of a third group fills. Blocks stay and take one
 * tile after the other, all tiles of the same outputs close together. Needs the instructions of
 * compute capability 9.0a; other cards take fast_few for 16 rows at a time, with the same chain. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FAST_TILE_H
#define AVO_DEVICE_CUDA_KERNELS_FAST_TILE_H

#include "device/cuda/kernels/fast.h"

#define FAST_TILE_A (FAST_TILE_PANELS * FAST_SLAB_BYTES)

/* Rows whose outputs a warpgroup stores together, by way of shared memory. */
#define FAST_GIVE        32
#define FAST_GIVE_STRIDE 68


typedef struct fast_tile_at {
    uint32_t matrix, panel; /* the first of the tile's, in the matrix */
    uint32_t panels;        /* of it that the matrix has */
    uint32_t group, groups; /* of eight rows */
} fast_tile_at;

EXACT_INLINE uint32_t fast_tiles(const fast_call *call, uint32_t rows) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->matrices; i++)
        count += (call->one[i].panels + FAST_TILE_PANELS - 1) / FAST_TILE_PANELS;
    return count * ((call->groups * 8 + rows - 1) / rows);
}

EXACT_INLINE fast_tile_at fast_tile_of(const fast_call *call, uint32_t rows, uint32_t tile) {
    uint32_t across = (call->groups * 8 + rows - 1) / rows;
    fast_tile_at at;
    at.group = tile % across * (rows / 8);
    at.groups = call->groups - at.group < rows / 8 ? call->groups - at.group : rows / 8;
    tile /= across;
    at.matrix = 0;
    for (;;) {
        uint32_t own = (call->one[at.matrix].panels + FAST_TILE_PANELS - 1) / FAST_TILE_PANELS;
        if (tile < own)
            break;
        tile -= own;
        at.matrix++;
    }
    at.panel = tile * FAST_TILE_PANELS;
    at.panels = call->one[at.matrix].panels - at.panel;
    at.panels = at.panels < FAST_TILE_PANELS ? at.panels : FAST_TILE_PANELS;
    return at;
}

#ifdef CARD_GROUPS

template <uint32_t rows> struct fast_ring {
    enum { bytes = FAST_TILE_A + rows * FAST_SLAB * 2 };
};

/* A warp: all tiles of the block, slab by slab. */
template <uint32_t rows>
EXACT_INLINE void fast_tile_fetch(const fast_call *call, const kernel_place *at, uint8_t *ring,
                                  uint64_t *full, uint64_t *empty) {
    uint32_t lane = at->thread % 32, stage = 0, parity = 1, tiles = fast_tiles(call, rows);
    for (uint32_t tile = at->x; tile < tiles; tile += at->blocks) {
        fast_tile_at own = fast_tile_of(call, rows, tile);
        const uint8_t *weights = call->one[own.matrix].data +
                                 (uint64_t)(own.panel + lane) * call->slabs * FAST_SLAB_BYTES;
        const uint8_t *x = call->x + (uint64_t)own.group * 1024;
        for (uint32_t slab = 0; slab < call->slabs; slab++) {
            uint8_t *to = ring + (size_t)stage * fast_ring<rows>::bytes;
            bar_wait(&empty[stage], parity);
            if (lane == 0)
                bar_expect(&full[stage], own.panels * FAST_SLAB_BYTES + own.groups * 1024);
            __syncwarp();
            if (lane < own.panels)
                bulk_copy(to + lane * FAST_SLAB_BYTES, weights + (uint64_t)slab * FAST_SLAB_BYTES,
                          FAST_SLAB_BYTES, &full[stage]);
            else if (lane == FAST_TILE_PANELS)
                bulk_copy(to + FAST_TILE_A, x + (uint64_t)slab * call->groups * 1024,
                          own.groups * 1024, &full[stage]);
            if (++stage == call->depth) {
                stage = 0;
                parity ^= 1;
            }
        }
    }
}

/* The 128 threads of a warpgroup. */
EXACT_INLINE void half_meet(uint32_t half) {
    asm volatile("bar.sync %0, 128;" ::"r"(half + 1) : "memory");
}

/* Outputs of some rows that lie in shared memory as [row][64 outputs of the half]. */
static __device__ __noinline__ void fast_tile_give(const fast_call *call, const fast_tile_at *own,
                                                   uint32_t half, uint32_t first, uint32_t thread,
                                                   const float *give) {
    uint32_t row0 = own->group * 8 + first, left = call->rows > row0 ? call->rows - row0 : 0;
    uint32_t rows = left < FAST_GIVE ? left : FAST_GIVE, panel0 = own->panel + half * 4;
    const fast_matrix *one = &call->one[own->matrix];
    if (call->paired) {
        uint32_t panel = panel0 + thread / 32, row = thread % 32;
        if (row < rows && panel < one->panels)
            fast_pairs(call, panel, row0 + row, give + row * FAST_GIVE_STRIDE + thread / 32 * 16);
        return;
    }
    uint32_t output = panel0 * FAST_PANEL + thread % 64;
    if (output >= one->outputs)
        return;
    float bias = one->to.bias != NULL ? one->to.bias[output] : 0.0f;
#pragma unroll 4
    for (uint32_t row = thread / 64; row < rows; row += 2) {
        float y = give[row * FAST_GIVE_STRIDE + thread % 64];
        fast_give(&one->to, row0 + row, output, one->to.bias != NULL ? y + bias : y);
    }
}

template <uint32_t rows, bool brain>
EXACT_INLINE void fast_tile_multiply(const fast_call *call, const kernel_place *at, uint8_t *ring,
                                     uint64_t *full, uint64_t *empty, float *give) {
    uint32_t half = at->thread / 128 - 1, warp = at->thread / 32 % 4, lane = at->thread % 32;
    uint32_t stage = 0, parity = 0, tiles = fast_tiles(call, rows);
    for (uint32_t tile = at->x; tile < tiles; tile += at->blocks) {
        fast_tile_at own = fast_tile_of(call, rows, tile);
        float d[rows / 2];
#pragma unroll
        for (uint32_t i = 0; i < rows / 2; i++)
            d[i] = 0.0f;
        uint32_t before = 0;
        for (uint32_t slab = 0; slab < call->slabs; slab++) {
            uint32_t from = card_shared(ring + (size_t)stage * fast_ring<rows>::bytes);
            uint64_t a = group_operand(from + half * (FAST_TILE_A / 2));
            uint64_t b = group_operand(from + FAST_TILE_A);
            bar_wait(&full[stage], parity);
            group_begin();
#pragma unroll
            for (uint32_t step = 0; step < FAST_SLAB / 16; step++)
                group_product<rows, brain>::add(d, a + step * GROUP_STEP, b + step * GROUP_STEP);
            group_commit();
            group_wait<1>();
            if (slab > 0 && lane == 0)
                bar_arrive(&empty[before]);
            before = stage;
            if (++stage == call->depth) {
                stage = 0;
                parity ^= 1;
            }
        }
        group_wait<0>();
        if (lane == 0)
            bar_arrive(&empty[before]);
#pragma unroll
        for (uint32_t first = 0; first < rows; first += FAST_GIVE) {
#pragma unroll
            for (uint32_t i = 0; i < (rows < FAST_GIVE ? rows : FAST_GIVE) / 8; i++)
#pragma unroll
                for (uint32_t j = 0; j < 4; j++)
                    give[(i * 8 + lane % 4 * 2 + j % 2) * FAST_GIVE_STRIDE + warp * 16 +
                         j / 2 * 8 + lane / 4] = d[first / 2 + 4 * i + j];
            half_meet(half);
            fast_tile_give(call, &own, half, first, at->thread % 128, give);
            half_meet(half);
        }
    }
}

template <uint32_t rows, bool brain>
static __device__ __forceinline__ void fast_tile_block(const fast_call *call, kernel_place *at) {
    uint64_t *full = (uint64_t *)(void *)at->shared, *empty = full + FAST_TILE_STAGES;
    float *give = (float *)(void *)((uint8_t *)(void *)at->shared + 1024);
    uint8_t *ring = (uint8_t *)(void *)at->shared + FAST_TILE_HEAD;
    if (at->thread == 0) {
        for (uint32_t i = 0; i < call->depth; i++) {
            bar_open(&full[i], 1);
            bar_open(&empty[i], 8);
        }
        bars_ready();
    }
    place_let_next();
    __syncthreads();
    place_wait();
    if (at->thread < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (at->thread < 32)
            fast_tile_fetch<rows>(call, at, ring, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        fast_tile_multiply<rows, brain>(call, at, ring, full, empty,
                                        give + (at->thread / 128 - 1) * FAST_GIVE * FAST_GIVE_STRIDE);
    }
}

#define FAST_TILE_KERNEL(rows)                                                                     \
    EXACT_INLINE void kernel_fast_tile##rows(const fast_call *call, kernel_place *at) {            \
        if (call->brain)                                                                           \
            fast_tile_block<rows, true>(call, at);                                                 \
        else                                                                                       \
            fast_tile_block<rows, false>(call, at);                                                \
    }

#elif defined(__CUDACC__)

#define FAST_TILE_KERNEL(rows)                                                                     \
    EXACT_INLINE void kernel_fast_tile##rows(const fast_call *call, kernel_place *at) {            \
        (void)call;                                                                                \
        (void)at;                                                                                  \
    }

#else

static inline void fast_tile_block(const fast_call *call, const kernel_place *at, uint32_t rows) {
    for (uint32_t tile = at->x; tile < fast_tiles(call, rows); tile += at->blocks) {
        fast_tile_at own = fast_tile_of(call, rows, tile);
        for (uint32_t i = 0; i < own.panels; i++)
            fast_panel(call, own.matrix, own.panel + i, own.group * 8, own.groups * 8, true);
    }
}

#define FAST_TILE_KERNEL(rows)                                                                     \
    EXACT_INLINE void kernel_fast_tile##rows(const fast_call *call, kernel_place *at) {            \
        fast_tile_block(call, at, rows);                                                           \
    }

#endif

FAST_TILE_KERNEL(16)
FAST_TILE_KERNEL(32)
FAST_TILE_KERNEL(64)
FAST_TILE_KERNEL(128)
FAST_TILE_KERNEL(256)

#endif
