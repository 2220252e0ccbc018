/* fast_tile: many rows. A tile is eight panels × N rows; two warpgroups multiply four panels each
 * from a ring of slabs in shared memory, which a warp of a third group fills. Blocks stay and take
 * one tile after the other, all tiles of the same panels close together; where all rows fit one
 * tile, a block takes a share of all panels, as fast_few does. Needs the instructions of compute
 * capability 9.0a; other cards take fast_few for a few rows at a time, with the same chains. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FAST_TILE_H
#define AVO_DEVICE_CUDA_KERNELS_FAST_TILE_H

#include "device/cuda/kernels/fast.h"

#define FAST_TILE_A (FAST_TILE_PANELS * FAST_SLAB_BYTES)

typedef struct fast_tile_at {
    uint32_t panel, panels; /* of all matrices, one behind the other */
    uint32_t group, groups; /* of eight rows */
} fast_tile_at;

EXACT_INLINE uint32_t fast_tiles(const fast_call *call, uint32_t rows) {
    return (call->panels + FAST_TILE_PANELS - 1) / FAST_TILE_PANELS *
           ((call->groups * 8 + rows - 1) / rows);
}

/* The block's tile number i; false: it has no more. */
EXACT_INLINE bool fast_tile_of(const fast_call *call, const kernel_place *at, uint32_t rows,
                               uint32_t i, fast_tile_at *tile) {
    uint32_t across = (call->groups * 8 + rows - 1) / rows, number = at->x + i * at->blocks;
    uint32_t end = call->panels;
    tile->panel = number / across * FAST_TILE_PANELS;
    tile->group = number % across * (rows / 8);
    if (call->shares) {
        tile->panel =
            (uint32_t)((uint64_t)call->panels * at->x / at->blocks) + i * FAST_TILE_PANELS;
        tile->group = 0;
        end = (uint32_t)((uint64_t)call->panels * (at->x + 1) / at->blocks);
    }
    if (tile->panel >= end)
        return false;
    tile->panels = end - tile->panel < FAST_TILE_PANELS ? end - tile->panel : FAST_TILE_PANELS;
    tile->groups = call->groups - tile->group;
    tile->groups = tile->groups < rows / 8 ? tile->groups : rows / 8;
    return true;
}

#ifdef CARD_GROUPS

template <uint32_t rows> struct fast_ring {
    enum { bytes = FAST_TILE_A + rows * FAST_SLAB * 2 };
};

/* A warp: all tiles of the block, slab by slab. */
template <uint32_t rows>
EXACT_INLINE void fast_tile_fetch(const fast_call *call, const kernel_place *at, uint8_t *ring,
                                  uint64_t *full, uint64_t *empty) {
    uint32_t lane = at->thread % 32, stage = 0, parity = 1;
    fast_tile_at own;
    for (uint32_t i = 0; fast_tile_of(call, at, rows, i, &own); i++) {
        const uint8_t *from = call->x + (uint64_t)own.group * 1024;
        uint64_t further = (uint64_t)call->groups * 1024;
        uint32_t to = FAST_TILE_A, bytes = own.groups * 1024;
        if (lane < own.panels) {
            uint32_t inside = own.panel + lane, matrix = fast_matrix_of(call, &inside);
            from = call->one[matrix].data + (uint64_t)inside * call->slabs * FAST_SLAB_BYTES;
            further = bytes = FAST_SLAB_BYTES;
            to = lane * FAST_SLAB_BYTES;
        }
        for (uint32_t slab = 0; slab < call->slabs; slab++) {
            bar_wait(&empty[stage], parity);
            if (lane == 0)
                bar_expect(&full[stage], own.panels * FAST_SLAB_BYTES + own.groups * 1024);
            __syncwarp();
            if (lane < own.panels || lane == FAST_TILE_PANELS)
                bulk_copy(ring + (size_t)stage * fast_ring<rows>::bytes + to, from, bytes,
                          &full[stage]);
            from += further;
            if (++stage == call->depth) {
                stage = 0;
                parity ^= 1;
            }
        }
    }
}

/* 16 outputs of the warp's panel, of `rows` rows, which lie in `give`. */
static __device__ __noinline__ void fast_give_slowly(const fast_call *call, uint32_t panel,
                                                     uint32_t row0, uint32_t rows,
                                                     const float *give, uint32_t lane) {
    uint32_t inside = panel, matrix = fast_matrix_of(call, &inside);
    for (uint32_t i = lane; i < rows * FAST_PANEL / 2; i += 32) {
        uint32_t row = i / 8, line = i % 8 * 2;
        const float *y = give + row * FAST_GIVE_STRIDE + line;
        fast_store(call, matrix, inside, line, row0 + row, y[0], y[1]);
    }
}

/* Up and gate of eight outputs; a lane has a row. */
static __device__ __noinline__ void fast_give_pairs(const fast_call *call, uint32_t panel,
                                                    uint32_t row, const float *give) {
    uint32_t word[4], output = panel * 8;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        float4 y = *(const float4 *)(const void *)(give + 4 * i);
        uint32_t first = output + 2 * i;
        y.x = fast_biased(&call->one[0].to, first, y.x);
        y.y = fast_biased(&call->gate, first, y.y);
        y.z = fast_biased(&call->one[0].to, first + 1, y.z);
        y.w = fast_biased(&call->gate, first + 1, y.w);
        word[i] = fast_number(fast_activation(call->activation, y.y) * y.x, call->brain) |
                  (uint32_t)fast_number(fast_activation(call->activation, y.w) * y.z, call->brain)
                      << 16;
    }
    *(uint4 *)(void *)(call->next + fast_many_place(call->groups, row, output)) =
        make_uint4(word[0], word[1], word[2], word[3]);
}

/* The panel's outputs of all rows of the tile: by way of shared memory, so that lanes store 16
 * bytes and a row's are next to each other. */
template <uint32_t rows>
EXACT_INLINE void fast_tile_give(const fast_call *call, const fast_tile_at *own, uint32_t panel,
                                 uint32_t lane, const float *d, float *give) {
    const uint32_t together = rows < FAST_GIVE ? rows : FAST_GIVE;
    uint32_t inside = panel, matrix = fast_matrix_of(call, &inside);
    const fast_output *to = &call->one[matrix].to;
    bool pairs = call->paired && call->activated && call->next != NULL && call->next_many &&
                 to->out == NULL && (inside + 1) * 8 <= call->one[0].outputs;
    bool fours = !call->paired && (inside + 1) * FAST_PANEL <= call->one[matrix].outputs &&
                 to->stride % 4 == 0 && (uint64_t)to->out % 16 == 0;
    float4 bias = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float *out = to->out + inside * FAST_PANEL + lane % 4 * 4;
    if (fours && to->bias != NULL) {
        const float *from = to->bias + inside * FAST_PANEL + lane % 4 * 4;
        bias = make_float4(from[0], from[1], from[2], from[3]);
    }
#pragma unroll
    for (uint32_t first = 0; first < rows; first += together) {
        uint32_t row0 = own->group * 8 + first, left = call->rows > row0 ? call->rows - row0 : 0;
        left = left < together ? left : together;
        float4 old[together / 8];
        if (fours && to->add)
#pragma unroll
            for (uint32_t i = 0; i < together / 8; i++)
                if (i * 8 + lane / 4 < left)
                    old[i] = __ldcg((const float4 *)(const void *)(out + (row0 + i * 8 + lane / 4) *
                                                                             to->stride));
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < together / 8; i++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                give[(i * 8 + lane % 4 * 2 + j % 2) * FAST_GIVE_STRIDE + j / 2 * 8 + lane / 4] =
                    d[first / 2 + 4 * i + j];
        __syncwarp();
        if (pairs) {
            if (lane < left)
                fast_give_pairs(call, inside, row0 + lane, give + lane * FAST_GIVE_STRIDE);
        } else if (!fours) {
            fast_give_slowly(call, panel, row0, left, give, lane);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < together / 8; i++) {
                uint32_t row = i * 8 + lane / 4;
                float4 y =
                    *(const float4 *)(const void *)(give + row * FAST_GIVE_STRIDE + lane % 4 * 4);
                if (to->bias != NULL)
                    y = make_float4(y.x + bias.x, y.y + bias.y, y.z + bias.z, y.w + bias.w);
                if (to->add)
                    y = make_float4(
                        fmaf(y.x, to->add_scale, old[i].x), fmaf(y.y, to->add_scale, old[i].y),
                        fmaf(y.z, to->add_scale, old[i].z), fmaf(y.w, to->add_scale, old[i].w));
                if (row < left)
                    *(float4 *)(void *)(out + (row0 + row) * to->stride) = y;
            }
        }
    }
}

template <uint32_t rows, bool brain>
EXACT_INLINE void fast_tile_multiply(const fast_call *call, const kernel_place *at, uint8_t *ring,
                                     uint64_t *full, uint64_t *empty, float *give) {
    uint32_t half = at->thread / 128 - 1, warp = at->thread / 32 % 4, lane = at->thread % 32;
    uint32_t stage = 0, parity = 0;
    fast_tile_at own;
    for (uint32_t i = 0; fast_tile_of(call, at, rows, i, &own); i++) {
        if (half * 4 >= own.panels) { /* the other half has all of them */
            for (uint32_t slab = 0; slab < call->slabs; slab++) {
                bar_wait(&full[stage], parity);
                if (lane == 0)
                    bar_arrive(&empty[stage]);
                if (++stage == call->depth) {
                    stage = 0;
                    parity ^= 1;
                }
            }
            continue;
        }
        float d[rows / 2];
#pragma unroll
        for (uint32_t j = 0; j < rows / 2; j++)
            d[j] = 0.0f;
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
        if (half * 4 + warp < own.panels)
            fast_tile_give<rows>(call, &own, own.panel + half * 4 + warp, lane, d, give);
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
                                        give +
                                            (at->thread / 32 - 4) * FAST_GIVE * FAST_GIVE_STRIDE);
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
    fast_tile_at own;
    for (uint32_t number = 0; fast_tile_of(call, at, rows, number, &own); number++)
        for (uint32_t i = 0; i < own.panels; i++) {
            uint32_t inside = own.panel + i, matrix = fast_matrix_of(call, &inside);
            fast_panel(call, matrix, inside, own.group * 8, own.groups * 8, true);
        }
}

#define FAST_TILE_KERNEL(rows)                                                                     \
    EXACT_INLINE void kernel_fast_tile##rows(const fast_call *call, kernel_place *at) {            \
        fast_tile_block(call, at, rows);                                                           \
    }

#endif

FAST_TILE_KERNEL(64)
FAST_TILE_KERNEL(128)
FAST_TILE_KERNEL(256)

#endif
