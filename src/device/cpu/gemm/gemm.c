/* Calls are cut into pieces: a range of n and of k whose packed B fits the shared scratch. As many
 * pieces as fit together make a program of two phases: all workers pack B, then all compute tiles,
 * each packing the rows of A that it needs. Pieces of one call that differ in k come in order, in
 * programs of their own. */
#include "device/cpu/gemm.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/region.h"
#include "device/cpu/gemm/pack.h"

#include <assert.h>
#include <string.h>

#define PIECES_MAX     32
#define ROWS_OF_ITEM   128 /* A of a block of k stays in the second cache */
#define ROWS_LEAST     32
#define ROWS_IN_PLACE  28
#define STRIPS_LEAST   4
#define ITEMS_A_WORKER 3
#define BLOCKS_TRIED   8 /* divisions of m and of n that are compared */
#define CHUNKS_TRIED   4
#define SIZE_MAX_M     ((size_t)1 << 28)

typedef struct gemm_piece {
    const gemm_call *call;
    gemm_form form;
    size_t strip, strips; /* of n */
    size_t begin, count;  /* of k */
    float *packed;        /* blocks of k, each all strips; NULL: read in place */
    /* Packing: items are parts of part_strips × part_k of a block of k. */
    size_t part_strips, part_k;
    uint32_t packing; /* items of this piece and of those before */
    /* Computing: items are rows × chunk strips. */
    size_t rows, chunk;
    uint32_t computing; /* the same */
} gemm_piece;

struct gemm {
    const avo_allocator *allocator;
    team *team;
    gemm_kernels kernels;
    uint32_t workers; /* that have room */
    region shared;
    gemm_room *rooms;
    /* The program at hand. */
    gemm_piece piece[PIECES_MAX];
    uint32_t pieces;
    size_t used; /* floats of `shared` */
};

/* ---- Opening ---- */

avo_status gemm_open(const avo_allocator *allocator, const char *isa, team *team, gemm **out,
                     avo_error *error) {
    *out = NULL;
    gemm_kernels kernels;
    if (!gemm_kernels_of(isa, &kernels))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "matrix products: instruction set '%.40s' is unknown or not available "
                           "on this machine; 'plain' always is",
                           isa);
    uint32_t workers = team_size(team);
    gemm *g = allocator_take(allocator, sizeof(*g));
    if (g == NULL)
        return status_no_memory(error, "matrix products", sizeof(*g));
    memset(g, 0, sizeof(*g));
    g->allocator = allocator;
    g->team = team;
    g->kernels = kernels;
    g->workers = workers;
    g->rooms = allocator_take(allocator, workers * sizeof(*g->rooms));
    avo_status status = g->rooms != NULL
                            ? AVO_OK
                            : status_no_memory(error, "matrix products' buffers of the workers",
                                               workers * sizeof(*g->rooms));
    const region_options options = {.huge = true};
    AVO_THEN(status, region_open(allocator, GEMM_SHARED_BYTES, &options,
                                 "packed operands of matrix products", &g->shared, error));
    if (status != AVO_OK) {
        gemm_close(g);
        return status;
    }
    *out = g;
    return AVO_OK;
}

void gemm_close(gemm *gemm) {
    if (gemm == NULL)
        return;
    region_close(&gemm->shared);
    allocator_give(gemm->allocator, gemm->rooms, gemm->workers * sizeof(*gemm->rooms));
    allocator_give(gemm->allocator, gemm, sizeof(*gemm));
}

bool gemm_has_bf16(const gemm *gemm) {
    return gemm->kernels.tile_bf16 != NULL;
}

const char *gemm_isa(const gemm *gemm) {
    return gemm->kernels.name;
}

/* ---- Items ---- */

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static size_t strips_of(size_t columns) {
    return divide_up(columns, GEMM_STRIP);
}

/* Floats that a piece takes. */
static size_t packed_floats(gemm_form form, size_t strips, size_t count) {
    return gemm_steps(form, count) * strips * GEMM_STRIP;
}

/* The piece that has item number `item`, which becomes its own; `end` tells its last item. */
static const gemm_piece *piece_of(const gemm *g, uint32_t (*end)(const gemm_piece *),
                                  uint32_t *item) {
    const gemm_piece *piece = g->piece;
    while (*item >= end(piece))
        piece++;
    if (piece > g->piece)
        *item -= end(piece - 1);
    return piece;
}

static uint32_t end_of_packing(const gemm_piece *piece) {
    return piece->packing;
}

static uint32_t end_of_computing(const gemm_piece *piece) {
    return piece->computing;
}

/* The strips of the block of k that begins `offset` behind the piece's first. */
static float *block_of(const gemm_piece *piece, size_t offset) {
    return piece->packed == NULL
               ? NULL
               : piece->packed + packed_floats(piece->form, piece->strips, offset);
}

static void pack_item(const gemm *g, const gemm_piece *piece, uint32_t item, gemm_room *room) {
    size_t across = divide_up(piece->strips, piece->part_strips);
    size_t offset = item / across * piece->part_k, strip = item % across * piece->part_strips;
    size_t block_k = gemm_block_k(piece->form), block = offset / block_k * block_k;
    size_t stride = gemm_steps(piece->form, size_min(piece->count - block, block_k)) * GEMM_STRIP;
    gemm_part part = {.strip = piece->strip + strip,
                      .strips = size_min(piece->strips - strip, piece->part_strips),
                      .begin = piece->begin + offset,
                      .count = size_min(piece->count - offset, piece->part_k)};
    float *out = block_of(piece, block) + strip * stride +
                 gemm_steps(piece->form, offset - block) * GEMM_STRIP;
    gemm_pack_strips(&g->kernels, piece->call, piece->form, &part, out, stride, room);
}

/* All tiles of rows × strips for one block of k: B's strips stay in the first cache while rows of A
 * pass by. Rows are divided evenly. */
static void compute_block(const gemm *g, const gemm_piece *piece, const gemm_tile *block,
                          size_t rows, size_t strips) {
    const gemm_kernels *kernels = &g->kernels;
    size_t tiles = divide_up(rows, kernels->rows);
    gemm_tile tile = *block;
    size_t columns = block->columns;
    for (size_t strip = 0; strip < strips; strip += kernels->strips) {
        tile.b = block->b + strip * block->strip_stride;
        tile.columns =
            (uint32_t)size_min(columns - strip * GEMM_STRIP, kernels->strips * GEMM_STRIP);
        for (size_t i = 0; i < tiles; i++) {
            size_t row = i * rows / tiles;
            tile.rows = (uint32_t)((i + 1) * rows / tiles - row);
            tile.a = block->a + row * GEMM_A_STRIDE;
            tile.c = block->c + row * block->c_stride + strip * GEMM_STRIP;
            if (piece->form == GEMM_FORM_PAIRS)
                kernels->tile_bf16(&tile);
            else
                kernels->tile(&tile);
        }
    }
}

static void compute_item(const gemm *g, const gemm_piece *piece, uint32_t item, gemm_room *room) {
    const gemm_call *call = piece->call;
    size_t across = divide_up(piece->strips, piece->chunk);
    size_t first = item / across * piece->rows, strip = item % across * piece->chunk;
    size_t rows = size_min(call->m - first, piece->rows);
    size_t strips = size_min(piece->strips - strip, piece->chunk);
    size_t column = (piece->strip + strip) * GEMM_STRIP;
    const size_t block_k = gemm_block_k(piece->form);
    for (size_t offset = 0; offset < piece->count; offset += block_k) {
        size_t count = size_min(piece->count - offset, block_k);
        size_t begin = piece->begin + offset, steps = gemm_steps(piece->form, count);
        gemm_pack_rows(&g->kernels, call, piece->form, first, rows, begin, count, room);
        gemm_tile block = {.a = room->a,
                           .b = block_of(piece, offset) + strip * steps * GEMM_STRIP,
                           .strip_stride = steps * GEMM_STRIP,
                           .b_step = GEMM_STRIP,
                           .k = steps,
                           .c = call->c + first * call->c_stride + column,
                           .c_stride = call->c_stride,
                           .columns = (uint32_t)size_min(call->n - column, strips * GEMM_STRIP),
                           .scale = call->scale,
                           .add = call->add || begin > 0};
        if (piece->packed == NULL) {
            block.b = call->b.data + begin * call->b.row_stride + column;
            block.strip_stride = GEMM_STRIP;
            block.b_step = call->b.row_stride;
        }
        compute_block(g, piece, &block, rows, strips);
    }
}

static void pack_items(const void *context, uint32_t argument, team_items *items) {
    const gemm *g = context;
    (void)argument;
    for (uint32_t item; team_take(items, &item);) {
        const gemm_piece *piece = piece_of(g, end_of_packing, &item);
        pack_item(g, piece, item, &g->rooms[items->worker]);
    }
}

static void compute_items(const void *context, uint32_t argument, team_items *items) {
    const gemm *g = context;
    (void)argument;
    for (uint32_t item; team_take(items, &item);) {
        const gemm_piece *piece = piece_of(g, end_of_computing, &item);
        compute_item(g, piece, item, &g->rooms[items->worker]);
    }
}

/* ---- Pieces ---- */

static void run_pieces(gemm *g) {
    if (g->pieces == 0)
        return;
    const gemm_piece *last = &g->piece[g->pieces - 1];
    const team_phase phases[] = {{.compute = pack_items, .items = last->packing},
                                 {.compute = compute_items, .items = last->computing}};
    team_run(g->team, phases, 2, g);
    g->pieces = 0;
    g->used = 0;
}

/* What an item of rows × strips takes for each k, as products: packing a row of A takes as long as
 * about two strips of it, reading B as long as about four rows. */
static size_t item_cost(size_t rows, size_t strips) {
    return (rows + 4) * (strips + 2);
}

/* Items of rows × strips, in blocks × chunks: at least ITEMS_A_WORKER for each worker where there
 * is enough to do, of a size at which the worker with the most has the least. */
static uint32_t divide(const gemm *g, gemm_piece *piece) {
    const gemm_operand *a = &piece->call->a;
    const size_t m = piece->call->m, step = g->kernels.strips, workers = team_size(g->team);
    /* A transposed weight is decoded GEMM_BLOCK_K of its columns at a time. */
    const bool fixed = a->weight != NULL && a->transposed;
    const size_t fewest = divide_up(m, fixed ? GEMM_PACK_ROWS : ROWS_OF_ITEM);
    const size_t most = fixed ? fewest : size_max(fewest, divide_up(m, ROWS_LEAST));
    size_t least = SIZE_MAX;
    for (size_t blocks = fewest; blocks <= size_min(most, fewest + BLOCKS_TRIED); blocks++) {
        size_t rows = divide_up(divide_up(m, blocks), QUANT_PANEL_ROWS) * QUANT_PANEL_ROWS;
        rows = fixed ? GEMM_PACK_ROWS : rows;
        size_t real = divide_up(m, rows), enough = divide_up(ITEMS_A_WORKER * workers, real);
        for (size_t chunks = enough; chunks <= enough + CHUNKS_TRIED; chunks++) {
            size_t strips = divide_up(divide_up(piece->strips, chunks), step) * step;
            strips = size_max(strips, size_min(STRIPS_LEAST, piece->strips));
            size_t items = real * divide_up(piece->strips, strips);
            size_t longest = divide_up(items, workers) * item_cost(rows, strips);
            if (longest < least) {
                least = longest;
                piece->rows = rows;
                piece->chunk = strips;
            }
        }
    }
    return (uint32_t)(divide_up(m, piece->rows) * divide_up(piece->strips, piece->chunk));
}

static void add_piece(gemm *g, gemm_piece piece, bool in_place) {
    size_t floats = in_place ? 0 : packed_floats(piece.form, piece.strips, piece.count);
    assert(floats <= GEMM_SHARED_BYTES / sizeof(float));
    if (g->pieces == PIECES_MAX || g->used + floats > GEMM_SHARED_BYTES / sizeof(float))
        run_pieces(g);
    bool by_k = gemm_pack_by_k(&piece.call->b);
    piece.part_strips = by_k ? GEMM_PACK_STRIPS : GEMM_PACK_AREA / GEMM_BLOCK_K;
    piece.part_k = GEMM_PACK_AREA / piece.part_strips;
    size_t packing =
        divide_up(piece.count, piece.part_k) * divide_up(piece.strips, piece.part_strips);
    uint32_t computing = divide(g, &piece);
    const gemm_piece *last = g->pieces > 0 ? &g->piece[g->pieces - 1] : NULL;
    piece.packing = (in_place ? 0 : (uint32_t)packing) + (last != NULL ? last->packing : 0);
    piece.computing = computing + (last != NULL ? last->computing : 0);
    piece.packed = in_place ? NULL : (float *)(void *)g->shared.data + g->used;
    g->used += floats;
    g->piece[g->pieces++] = piece;
}

/* Packing B, which reads and writes it once, does not pay for a few rows. */
static bool reads_in_place(const gemm_call *call) {
    return call->m <= ROWS_IN_PLACE && call->precision == GEMM_F32 && call->b.weight == NULL &&
           call->b.column_stride == 1;
}

static void add_call(gemm *g, const gemm_call *call) {
    gemm_piece piece = {.call = call};
    if (call->precision == GEMM_BF16)
        piece.form = gemm_has_bf16(g) ? GEMM_FORM_PAIRS : GEMM_FORM_ROUNDED;
    size_t room = GEMM_SHARED_BYTES / sizeof(float) / GEMM_STRIP; /* strips times steps */
    size_t all = strips_of(call->n), whole = call->n / GEMM_STRIP;
    if (reads_in_place(call) && whole > 0) {
        piece.strips = whole;
        piece.count = call->k;
        add_piece(g, piece, true);
        piece.strip = whole;
    }
    size_t k_most = room / GEMM_PACK_STRIPS / GEMM_BLOCK_MAX * GEMM_BLOCK_MAX;
    size_t most = room / gemm_steps(piece.form, size_min(call->k, k_most));
    most = most < all ? most / GEMM_PACK_STRIPS * GEMM_PACK_STRIPS : all;
    for (; piece.strip < all; piece.strip += piece.strips) {
        piece.strips = size_min(all - piece.strip, most);
        for (piece.begin = 0; piece.begin < call->k; piece.begin += piece.count) {
            if (piece.begin > 0)
                run_pieces(g); /* what comes before it in k */
            piece.count = size_min(call->k - piece.begin, k_most);
            add_piece(g, piece, false);
        }
    }
}

/* A sum of nothing. */
static void clear(const gemm_call *call) {
    for (size_t row = 0; row < call->m && !call->add; row++)
        memset(call->c + row * call->c_stride, 0, call->n * sizeof(float));
}

static bool operand_fits(const gemm_operand *operand, size_t rows, size_t columns) {
    const weight_view *weight = operand->weight;
    if (weight == NULL)
        return operand->data != NULL;
    return operand->data == NULL && weight->rows == (operand->transposed ? columns : rows) &&
           weight->k == (operand->transposed ? rows : columns);
}

void gemm_run(gemm *g, const gemm_call *calls, size_t count) {
    assert(team_size(g->team) <= g->workers);
    for (size_t i = 0; i < count; i++) {
        const gemm_call *call = &calls[i];
        assert(call->m <= SIZE_MAX_M && call->c_stride >= call->n);
        if (call->m == 0 || call->n == 0)
            continue;
        if (call->k == 0) {
            clear(call);
            continue;
        }
        assert(operand_fits(&call->a, call->m, call->k));
        assert(operand_fits(&call->b, call->k, call->n));
        add_call(g, call);
    }
    run_pieces(g);
}
