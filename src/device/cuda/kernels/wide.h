/* Products of many rows with Q4R weights by Hopper's warpgroups (wgmma_s8.h): integers over 256 k,
 * then one fma for each output, in the order of k, so the same bits as everywhere. A number times
 * its multiplier fits a byte: a warp makes signed bytes of one panel (16 outputs) in registers, and
 * the rows of x lie in shared memory as the cores read them.
 *
 * x is written in that order by kernel_wide_x (wide_rows.h), in blocks of 256 k (zeros behind k)
 * and 8 rows: 16 cores of 128 bytes, a core 8 rows of 16 bytes. Weights are read without being
 * shuffled, so of each 32 k of x the words of four (0 … 7) lie in the order 0, 2, 4, 6, 1, 3, 5, 7:
 * the low nibbles of a lane's word are one, the high nibbles the next.
 *
 * A block fills stages of 256 k by copies in bulk; the last warp that has used a stage fills it
 * again, with what comes next in the block's sequence of tiles. Warpgroups have panels of their own
 * (`groups`), and with few rows share out the steps of k (`splits`): then the chains of fma go from
 * one to the next through shared memory. Called by device/cuda/wide.c; cannot fail. */
#ifndef AVO_DEVICE_CUDA_KERNELS_WIDE_H
#define AVO_DEVICE_CUDA_KERNELS_WIDE_H

#include "device/cuda/kernels/input.h"
#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/wgmma_s8.h"

#define WIDE_SUPER   (EXACT_Q4R_SUPER_LINES * EXACT_LINE)
#define WIDE_PANELS  4 /* of a warpgroup */
#define WIDE_ROOM    (227 * 1024)
#define WIDE_BARRIER 512 /* bytes of a bulk_barrier, at most */
#define WIDE_USED    16
#define WIDE_TABLE   256 /* bytes of a warp: multipliers */

/* What a kernel is compiled for. */
typedef struct wide_form {
    uint32_t rows;   /* of a tile: 16, 32, 64, 128, 192 */
    uint32_t groups; /* warpgroups with panels of their own */
    uint32_t splits; /* warpgroups that share a panel's k; with more than one, `groups` is 1 */
} wide_form;

#ifdef __CUDACC__
#define WIDE_OWN_WARPS 1
#define FREE_WARPS(at, ...)                                                                        \
    do {                                                                                           \
        __VA_ARGS__;                                                                               \
    } while (0)
#else
#define WIDE_OWN_WARPS      16
#define FREE_WARPS(at, ...) CUDA_WARPS(at, __VA_ARGS__)
#endif

typedef struct wide_lane {
    float f[WGMMA_GROUPS][4];
} wide_lane;

/* ---- Shared memory: stages; barriers; how many warps have used each stage; chains under way;
 * multipliers ---- */

EXACT_INLINE uint32_t wide_stage_bytes(const wide_form *form) {
    uint32_t bytes = form->rows * (256 + 4) + form->groups * WIDE_PANELS * WIDE_SUPER;
    return (bytes + 127) / 128 * 128;
}

EXACT_INLINE uint32_t wide_relay_bytes(const wide_form *form) {
    return form->splits > 1 ? form->rows * 16 * WIDE_PANELS * 4 : 0;
}

EXACT_INLINE uint32_t wide_tables_bytes(const wide_form *form) {
    return form->groups * form->splits * WIDE_PANELS * WIDE_TABLE;
}

EXACT_INLINE uint32_t wide_stages(const wide_form *form) {
    return (WIDE_ROOM - wide_relay_bytes(form) - wide_tables_bytes(form)) /
           (wide_stage_bytes(form) + WIDE_BARRIER + WIDE_USED);
}

EXACT_INLINE uint32_t wide_table_place(const wide_form *form) {
    return wide_stages(form) * (wide_stage_bytes(form) + WIDE_BARRIER + WIDE_USED) +
           wide_relay_bytes(form);
}

EXACT_INLINE uint32_t wide_shared(const wide_form *form) {
    return wide_table_place(form) + wide_tables_bytes(form);
}

EXACT_INLINE uint8_t *wide_stage(const wide_form *form, const kernel_place *at, uint32_t number) {
    return (uint8_t *)(void *)at->shared + number % wide_stages(form) * wide_stage_bytes(form);
}

EXACT_INLINE float *wide_scales(const wide_form *form, uint8_t *stage) {
    return (float *)(void *)(stage + form->rows * 256);
}

EXACT_INLINE uint8_t *wide_panel(const wide_form *form, uint8_t *stage, uint32_t panel) {
    return stage + form->rows * (256 + 4) + panel * WIDE_SUPER;
}

EXACT_INLINE bulk_barrier *wide_barrier(const wide_form *form, const kernel_place *at,
                                        uint32_t number) {
    uint32_t stages = wide_stages(form);
    return (bulk_barrier *)(void *)((uint8_t *)(void *)at->shared +
                                    stages * wide_stage_bytes(form) +
                                    number % stages * WIDE_BARRIER);
}

EXACT_INLINE uint32_t *wide_used(const wide_form *form, const kernel_place *at, uint32_t number) {
    uint32_t stages = wide_stages(form);
    return (uint32_t *)(void *)((uint8_t *)(void *)at->shared +
                                stages * (wide_stage_bytes(form) + WIDE_BARRIER) +
                                number % stages * WIDE_USED);
}

/* [rows / 2 · 4][128] of the thread in its warpgroup. */
EXACT_INLINE float *wide_relay(const wide_form *form, const kernel_place *at) {
    return at->shared + wide_stages(form) * (wide_stage_bytes(form) + WIDE_BARRIER + WIDE_USED) / 4;
}

/* ---- Filling ---- */

/* A panel of the call's matrices, which are one behind the other. */
typedef struct wide_place {
    uint32_t matrix, panel;
} wide_place;

EXACT_INLINE wide_place wide_find(const wide_call *call, uint32_t panel) {
    wide_place place = {0, panel};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i + 1 < LINEAR_CALLS; i++)
        if (place.matrix == i && i + 1 < call->matrices && place.panel >= call->one[i].panels) {
            place.panel -= call->one[i].panels;
            place.matrix = i + 1;
        }
    return place;
}

EXACT_INLINE const uint8_t *wide_data(const wide_call *call, const wide_place *place) {
    const uint8_t *data = place->matrix == 0   ? call->one[0].data
                          : place->matrix == 1 ? call->one[1].data
                                               : call->one[2].data;
    return data + place->panel * call->panel_bytes;
}

/* Step number `number` of the block's sequence on its way, by a warp. */
EXACT_INLINE void wide_fill(const wide_form *form, const wide_call *call, const kernel_place *at,
                            uint32_t number) {
    uint32_t tile = at->x + number / call->steps * at->blocks, step = number % call->steps;
    if (tile >= call->tiles)
        return;
    uint32_t row = tile % call->row_tiles * form->rows, rows = call->padded - row;
    uint32_t panel = tile / call->row_tiles * form->groups * WIDE_PANELS;
    uint32_t panels = call->panels - panel;
    rows = rows < form->rows ? rows : form->rows;
    panels = panels < form->groups * WIDE_PANELS ? panels : form->groups * WIDE_PANELS;
    uint64_t behind = call->panel_bytes - (uint64_t)step * WIDE_SUPER;
    uint32_t bytes = behind < WIDE_SUPER ? (uint32_t)behind : WIDE_SUPER;
    uint8_t *stage = wide_stage(form, at, number);
    bulk_barrier *barrier = wide_barrier(form, at, number);
    EACH_LANE(at, own)
    if (lane == 0)
        bulk_expect(barrier, rows * (256 + 4) + panels * bytes);
    warp_meet();
    EACH_LANE(at, own) {
        if (lane == 0)
            bulk_copy(barrier, stage, call->number + ((uint64_t)step * call->padded + row) * 256,
                      rows * 256);
        else if (lane == 1)
            bulk_copy(barrier, wide_scales(form, stage),
                      call->scale + (uint64_t)step * call->padded + row, rows * 4);
        else if (lane - 2 < panels) {
            wide_place place = wide_find(call, panel + lane - 2);
            bulk_copy(barrier, wide_panel(form, stage, lane - 2),
                      wide_data(call, &place) + (uint64_t)step * WIDE_SUPER, bytes);
        }
    }
}

/* The warp does not read the stage any more. */
EXACT_INLINE void wide_release(const wide_form *form, const wide_call *call, const kernel_place *at,
                               uint32_t number) {
    uint32_t *used = wide_used(form, at, number), before = 0;
    warp_meet();
#ifdef __CUDA_ARCH__
    if (at->thread % WARP == 0)
        before = atomicAdd(used, 1);
    before = __shfl_sync(0xffffffffu, before, 0);
#else
    before = (*used)++;
#endif
    if (before + 1 < form->groups * WIDE_PANELS)
        return;
    if (at->thread % WARP == 0)
        *used = 0;
    wide_fill(form, call, at, number + wide_stages(form));
}

/* ---- One step ---- */

/* A warp's lanes have outputs 2 (lane / 4) and the next one of its panel: rows lane / 4 and eight
 * more of the cores' sixteen, so that weights are read and results written in pairs. */
#define WIDE_OUTPUT(lane) (2 * ((lane) / 4))

/* [2 · 8][16] bytes of the warp: signed multipliers of sub-blocks 2 · pair and, behind those, the
 * odd ones. */
EXACT_INLINE int8_t *wide_table(const wide_form *form, const kernel_place *at) {
    return (int8_t *)(void *)((uint8_t *)(void *)at->shared + wide_table_place(form)) +
           warp_of(at) * WIDE_TABLE;
}

/* A lane makes the multipliers of four outputs of a pair. Magnitudes are below 16, so that neither
 * 16 more nor 16 less carries from byte to byte. */
EXACT_INLINE void wide_multipliers(const kernel_place *at, const uint8_t *super, int8_t *table) {
    EACH_LANE(at, own) {
        uint32_t pair = lane / 4, four = lane % 4;
        uint32_t both = exact_load_word(super + EXACT_LINE + 4 * lane);
        uint32_t signs = exact_load_word(super + 32 + 4 * pair) >> 4 * four;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t odd = 0; odd < 2; odd++) {
            uint32_t magnitude = both >> 4 * odd & 0x0f0f0f0fu;
            uint32_t mask = (signs >> 16 * odd & 15u) * 0x00204081u & 0x01010101u;
            mask *= 0xffu;
            uint32_t more =
                ((0x10101010u + magnitude) & ~mask) | ((0x10101010u - magnitude) & mask);
            *(uint32_t *)(void *)(table + (odd * 8 + pair) * 16 + 4 * four) =
                ((more | 0x80808080u) - 0x10101010u) ^ 0x80808080u;
        }
    }
    warp_meet();
}

/* What a lane reads of 32 k: its line's words of both outputs, and their multipliers. */
typedef struct wide_raw {
    uint32_t word[2];
    uint32_t multipliers; /* two signed bytes */
} wide_raw;

EXACT_INLINE void wide_read(const kernel_place *at, const uint8_t *super, const int8_t *table,
                            uint32_t pair, uint32_t head, wide_raw *raw) {
    EACH_LANE(at, own) {
        uint32_t four = lane % 4;
        const uint8_t *line = super + head + (pair * 4 + four) * EXACT_LINE + 4 * WIDE_OUTPUT(lane);
        load_pair(line, raw[own].word);
        raw[own].multipliers = exact_load_half((const uint8_t *)table + (four / 2 * 8 + pair) * 16 +
                                               WIDE_OUTPUT(lane));
    }
}

/* Weights of 32 k of the warp's panel. */
EXACT_INLINE void wide_words(const kernel_place *at, const wide_raw *raw, wgmma_words *out) {
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t m = (uint32_t)(int32_t)(int8_t)(raw[own].multipliers >> 8 * half);
            uint32_t zero = 0x80808080u - m * 0x08080808u, word = raw[own].word[half];
            /* (number - 8) · multiplier: 128 more is between 8 and 248, so no byte carries. */
            out[own].of[half] = ((word & 0x0f0f0f0fu) * m + zero) ^ 0x80808080u;
            out[own].of[half + 2] = ((word >> 4 & 0x0f0f0f0fu) * m + zero) ^ 0x80808080u;
        }
    }
}

EXACT_INLINE void wide_multiply(const wide_form *form, const kernel_place *at, const uint8_t *super,
                                const uint8_t *x, uint32_t subs, wgmma_sums *sum) {
    uint32_t head = (subs <= 8 ? 2 : 3) * EXACT_LINE;
    int8_t *table = wide_table(form, at);
    wgmma_words words[2][OWN_LANES];
    wide_raw raw[2][OWN_LANES];
    wide_multipliers(at, super, table);
    wide_read(at, super, table, 0, head, raw[0]);
    wide_words(at, raw[0], words[0]);
    wide_read(at, super, table, 1, head, raw[1]);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t pair = 0; pair < 8; pair++) {
        wgmma_begin();
        wgmma_multiply(form->rows, words[pair % 2], x + pair * 2 * WGMMA_CORE, pair > 0, sum);
        if (pair == 7)
            break;
        if (pair > 0)
            WGMMA_WAIT(1);
        wide_words(at, raw[(pair + 1) % 2], words[(pair + 1) % 2]);
        if (pair < 6)
            wide_read(at, super, table, pair + 2, head, raw[pair % 2]);
    }
    WGMMA_END();
}

EXACT_INLINE void wide_add(const wide_form *form, const kernel_place *at, const uint8_t *super,
                           const float *scales, const wgmma_sums *sum, wide_lane *lanes) {
    EACH_LANE(at, own) {
        float scale[2];
        for (uint32_t half = 0; half < 2; half++)
            scale[half] = exact_from_half(exact_load_half(super + 2 * (WIDE_OUTPUT(lane) + half)));
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t group = 0; group < form->rows / 8; group++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++) {
                float *f = &lanes[own].f[group][i];
                float other = scales[8 * group + 2 * (lane % 4) + i % 2];
                *f = fmaf((float)sum[own].of[group][i], scale[i / 2] * other, *f);
            }
    }
}

/* Chains from the warpgroup that had the step before, or 0; and to the one that has the next. */
EXACT_INLINE void wide_take(const wide_form *form, const kernel_place *at, bool first,
                            wide_lane *lanes) {
    const float *relay = wide_relay(form, at) + at->thread % (4 * WARP);
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < form->rows / 2; i++)
            lanes[own].f[i / 4][i % 4] = first ? 0.0f : relay[i * 4 * WARP + own];
    }
}

EXACT_INLINE void wide_give(const wide_form *form, const kernel_place *at, const wide_lane *lanes) {
    float *relay = wide_relay(form, at) + at->thread % (4 * WARP);
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < form->rows / 2; i++)
            relay[i * 4 * WARP + own] = lanes[own].f[i / 4][i % 4];
    }
}

EXACT_INLINE void wide_await(uint32_t group) {
#ifdef __CUDA_ARCH__
    asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
#else
    (void)group;
#endif
}

EXACT_INLINE void wide_pass(uint32_t group) {
#ifdef __CUDA_ARCH__
    asm volatile("bar.arrive %0, 256;" ::"r"(group + 1) : "memory");
#else
    (void)group;
#endif
}

/* Results of eight rows' pairs at a time: what they are added to is loaded before any is stored. */
EXACT_INLINE void wide_finish(const wide_form *form, const wide_call *call, const kernel_place *at,
                              uint32_t tile, uint32_t panel, const wide_lane *lanes) {
    uint32_t first = tile % call->row_tiles * form->rows;
    wide_place place = wide_find(call, panel);
    const few_matrix *one = place.matrix == 0   ? &call->one[0]
                            : place.matrix == 1 ? &call->one[1]
                                                : &call->one[2];
    uint64_t stride = one->out_stride;
    EACH_LANE(at, own) {
        uint32_t output = place.panel * 16 + WIDE_OUTPUT(lane), row = first + 2 * (lane % 4);
        bool pairs = output + 1 < one->outputs && stride % 2 == 0;
        float bias[2] = {0.0f, 0.0f};
        bool biased = one->bias != NULL;
        for (uint32_t i = 0; i < 2 && biased; i++)
            bias[i] = output + i < one->outputs ? one->bias[output + i] : 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t part = 0; part < (form->rows / 8 + 3) / 4; part++) {
            float y[4][4], old[4][4];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 16; i++) {
                uint32_t group = part * 4 + i / 4, c = i % 4;
                if (group >= form->rows / 8)
                    continue;
                const float *out = one->out + (uint64_t)(row + 8 * group + c % 2) * stride + output;
                bool there = row + 8 * group + c % 2 < call->rows && output + c / 2 < one->outputs;
                y[i / 4][c] = lanes[own].f[group][c];
                if (biased)
                    y[i / 4][c] += bias[c / 2];
                old[i / 4][c] = one->add && there ? out[c / 2] : 0.0f;
            }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 8; i++) {
                uint32_t group = part * 4 + i / 2, c = i % 2;
                if (group >= form->rows / 8 || row + 8 * group + c >= call->rows)
                    continue;
                float *out = one->out + (uint64_t)(row + 8 * group + c) * stride + output;
                float low = y[i / 2][c], high = y[i / 2][c + 2];
                if (one->add) {
                    low = fmaf(low, one->add_scale, old[i / 2][c]);
                    high = fmaf(high, one->add_scale, old[i / 2][c + 2]);
                }
                if (pairs) {
                    store_pair(out, low, high);
                } else if (output < one->outputs) {
                    out[0] = low;
                    if (output + 1 < one->outputs)
                        out[1] = high;
                }
            }
        }
    }
}

EXACT_INLINE void wide_zero(const wide_form *form, const kernel_place *at, wide_lane *lanes) {
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < form->rows / 2; i++)
            lanes[own].f[i / 4][i % 4] = 0.0f;
    }
}

/* Step number `number` of the block's sequence: step `step` of a tile. */
EXACT_INLINE void wide_step(const wide_form *form, const wide_call *call, const kernel_place *at,
                            uint32_t number, uint32_t tile, uint32_t step, bool last,
                            wide_lane *lanes) {
    uint32_t group = warp_of(at) / WIDE_PANELS;
    if (form->splits > 1 && number % form->splits != group)
        return;
    uint32_t panel = (form->splits > 1 ? 0 : group * WIDE_PANELS) + warp_of(at) % WIDE_PANELS;
    uint32_t left = call->k - step * 256, subs = left < 256 ? (left + 15) / 16 : 16;
    uint8_t *stage = wide_stage(form, at, number), *super = wide_panel(form, stage, panel);
    wgmma_sums sum[OWN_LANES];
    bulk_wait(wide_barrier(form, at, number), number / wide_stages(form) % 2);
    wide_multiply(form, at, super, stage, subs, sum);
    if (form->splits > 1) {
        if (number > 0)
            wide_await(group);
        wide_take(form, at, step == 0, lanes);
    }
    wide_add(form, at, super, wide_scales(form, stage), sum, lanes);
    if (form->splits > 1) {
        if (step + 1 < call->steps)
            wide_give(form, at, lanes);
        if (!last || step + 1 < call->steps)
            wide_pass((group + 1) % form->splits);
    }
    wide_release(form, call, at, number);
    panel += tile / call->row_tiles * form->groups * WIDE_PANELS;
    if (form->splits > 1 && step + 1 == call->steps && panel < call->panels)
        wide_finish(form, call, at, tile, panel, lanes);
}

/* Behind all steps of a tile, of warpgroups that have panels of their own. */
EXACT_INLINE void wide_last(const wide_form *form, const wide_call *call, const kernel_place *at,
                            uint32_t tile, wide_lane *lanes) {
    uint32_t panel = tile / call->row_tiles * form->groups * WIDE_PANELS + warp_of(at);
    if (form->splits == 1 && panel < call->panels)
        wide_finish(form, call, at, tile, panel, lanes);
}

EXACT_INLINE void wide_open(const wide_form *form, const kernel_place *at) {
    for (uint32_t i = at->thread; i < wide_stages(form); i += at->threads) {
        bulk_open(wide_barrier(form, at, i));
        *wide_used(form, at, i) = 0;
    }
}

EXACT_INLINE void wide_first(const wide_form *form, const wide_call *call, const kernel_place *at) {
    if (warp_of(at) == 0)
        for (uint32_t i = 0; i < wide_stages(form); i++)
            wide_fill(form, call, at, i);
}

/* A block for each multiprocessor, or for each tile. */
EXACT_INLINE void wide_compute(const wide_form *form, const wide_call *call, kernel_place *at) {
    wide_lane lanes[WIDE_OWN_WARPS][OWN_LANES];
    uint32_t number = 0;
    CUDA_EACH(at, wide_open(form, at));
    FREE_WARPS(at, wide_first(form, call, at));
#define WIDE_LANES (lanes[WIDE_OWN_WARPS == 1 ? 0 : warp_of(at)])
    for (uint32_t tile = at->x; tile < call->tiles; tile += at->blocks) {
        bool last = tile + at->blocks >= call->tiles;
        if (form->splits == 1)
            FREE_WARPS(at, wide_zero(form, at, WIDE_LANES));
        for (uint32_t step = 0; step < call->steps; step++, number++)
            FREE_WARPS(at, wide_step(form, call, at, number, tile, step, last, WIDE_LANES));
        FREE_WARPS(at, wide_last(form, call, at, tile, WIDE_LANES));
    }
#undef WIDE_LANES
}

#define WIDE_KERNEL(n, g, s)                                                                       \
    EXACT_INLINE void kernel_wide_##n(const wide_call *call, kernel_place *at) {                   \
        if (!WIDE_THERE)                                                                           \
            return;                                                                                \
        const wide_form form = {n, g, s};                                                          \
        wide_compute(&form, call, at);                                                             \
    }
#if defined(__CUDACC__)
#define WIDE_THERE WGMMA_CARD
#else
#define WIDE_THERE 1
#endif
WIDE_KERNEL(192, WIDE_GROUPS_192, WIDE_SPLITS_192)
WIDE_KERNEL(128, WIDE_GROUPS_128, WIDE_SPLITS_128)
WIDE_KERNEL(64, WIDE_GROUPS_64, WIDE_SPLITS_64)
WIDE_KERNEL(32, WIDE_GROUPS_32, WIDE_SPLITS_32)
WIDE_KERNEL(16, WIDE_GROUPS_16, WIDE_SPLITS_16)

#endif
