/* Matrix products, cut into parts that workers take. */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"
#include "device/cpu/linear_run.h"

/* Parts for every worker, so that they level out: wished for with many rows, and with few, or
 * where blocks of rows would have to be smaller. A small team gains nothing by it with few rows,
 * and each part prepares its rows anew: 16 rows on two cores lose 4 % with three parts. With
 * adapters a larger team has more of them: an A of rank 32 is two panels, so most workers have none
 * and go ahead, and 16 threads lose two to four points less of a step with six parts than three. */
#define WORKER_PARTS     6
#define WORKER_PARTS_MIN 3
#define TEAM_SMALL       4
#define EVEN_OF          16 /* a cut is even when its longest share is 1/16 too long at most */

/* Where a kernel's call costs little to begin (op_table.small_rows) a larger team has more of them:
 * with many rows, and with few. */
#define SMALL_PARTS     12
#define SMALL_PARTS_MIN 6

/* Blocks of rows: the input of one stays in a core's own cache while panels stream past (the caches
 * that matter have 1 to 2 MB); the more rows, the less unpacking weighs. */
#define BLOCK_BYTES 1048576
#define BLOCK_ROWS  256
#define BLOCK_LEAST 64
#define BLOCK_STEP  16 /* rows of a tile */

/* Chunks of panels: with more rows kernels take more of them side by side; with few, a chunk is
 * long enough to stream. */
#define CHUNK_STEP_MAX 4
#define CHUNK_BYTES    16384
_Static_assert(CHUNK_STEP_MAX *QUANT_PANEL_ROWS *BLOCK_ROWS <= FAST_PART_NUMBERS, "a least part");

/* ---- Cutting ---- */

static size_t divide_up(size_t number, size_t by) {
    return (number + by - 1) / by;
}

/* Rows of `blocks` blocks that differ by less than a tile. */
static size_t block_rows(size_t rows, size_t blocks) {
    return divide_up(divide_up(rows, blocks), BLOCK_STEP) * BLOCK_STEP;
}

/* How a phase's parts are wished for. */
typedef struct part_wish {
    size_t parts; /* of every worker */
    size_t step;  /* panels that a kernel takes side by side */
    bool even;    /* all workers with as many */
} part_wish;

static part_wish wish_of(const step_view *step, size_t rows, quant_type type) {
    size_t workers = team_size(step->team);
    bool many = rows >= BLOCK_LEAST;
    bool uneven = step->batch->runs > 0;
    part_wish wish = {.parts = many                    ? WORKER_PARTS
                               : workers <= TEAM_SMALL ? 1
                               : uneven                ? WORKER_PARTS
                                                       : WORKER_PARTS_MIN,
                      .step = rows <= 8 ? 1
                              : many    ? CHUNK_STEP_MAX
                                        : 2};
    size_t least = step->backend->ops->small_rows[panel_index_of(type)];
    if (least == 0 || rows < least || workers <= TEAM_SMALL)
        return wish;
    return (part_wish){.parts = many ? SMALL_PARTS : SMALL_PARTS_MIN,
                       .step = panels_form(type) == PRODUCT_A8R ? 2 : 1,
                       .even = true};
}

static size_t chunk_panels(size_t rows, const weight_view *weight, size_t wanted, size_t step) {
    uint64_t bytes = 0; /* of a panel */
    if (rows < BLOCK_LEAST && panels_bytes(weight->type, weight->k, &bytes) && bytes > 0)
        wanted = size_max(wanted, CHUNK_BYTES / (size_t)bytes);
    size_t most = FAST_PART_NUMBERS / QUANT_PANEL_ROWS / rows / step;
    return size_max(size_min(divide_up(wanted, step), most), 1) * step;
}

/* Of chunks from `most` down to a quarter, in steps, the one with which the longest share is
 * shortest. */
static size_t chunk_even(size_t panels, size_t blocks, size_t workers, size_t most, size_t step) {
    size_t best = most;
    size_t shortest = SIZE_MAX;
    for (size_t chunk = most; chunk >= step && chunk * 4 >= most; chunk -= step) {
        size_t share = divide_up(divide_up(panels, chunk) * blocks, workers) * chunk;
        if (share < shortest) {
            best = chunk;
            shortest = share;
        }
    }
    return best;
}

fast_cut fast_cut_make(const step_view *step, uint32_t rows, const fast_panels *of) {
    fast_cut cut = {.rows = rows, .panels = of->panels};
    size_t workers = team_size(step->team);
    part_wish wish = wish_of(step, rows, of->weight->type);
    size_t fitting = BLOCK_BYTES / activation_stride(size_max(of->weight->k, 1));
    size_t most = size_max(size_min(fitting, BLOCK_ROWS), BLOCK_STEP);
    size_t blocks = divide_up(rows, most);
    for (;; blocks *= 2) {
        cut.block = (uint32_t)block_rows(rows, blocks);
        blocks = divide_up(rows, cut.block);
        size_t wanted = divide_up(of->panels * blocks, workers * wish.parts);
        cut.chunk = chunk_panels(size_min(cut.block, rows), of->weight, wanted, wish.step);
        if (of->granule > 1)
            cut.chunk = size_max(cut.chunk / of->granule, 1) * of->granule;
        else if (wish.even)
            cut.chunk = chunk_even(of->panels, blocks, workers, cut.chunk, wish.step);
        cut.chunks = divide_up(of->panels, cut.chunk);
        cut.items = blocks * cut.chunks;
        if (cut.items >= workers * WORKER_PARTS_MIN || cut.block < 2 * BLOCK_LEAST)
            return cut;
    }
}

size_t fast_chunk_wish(const step_view *step, const weight_view *weight, size_t panels) {
    part_wish wish = wish_of(step, 1, weight->type);
    size_t wanted = divide_up(panels, team_size(step->team) * wish.parts);
    return chunk_panels(1, weight, wanted, wish.step);
}

bool fast_cut_even(const step_view *step, uint32_t rows, const fast_panels *of) {
    fast_cut cut = fast_cut_make(step, rows, of);
    size_t workers = team_size(step->team);
    size_t longest = divide_up(cut.items, workers);
    return longest * workers * EVEN_OF <= cut.items * (EVEN_OF + 1) &&
           size_min(cut.block, rows) * cut.chunk * QUANT_PANEL_ROWS <= FAST_PART_NUMBERS;
}

bool fast_cut_take(const fast_cut *cut, team_items *items, fast_part *part) {
    uint32_t item;
    if (!team_take(items, &item))
        return false;
    size_t row = item / cut->chunks * cut->block;
    part->row_begin = (uint32_t)row;
    part->row_end = (uint32_t)size_min(row + cut->block, cut->rows);
    part->first = item % cut->chunks * cut->chunk;
    part->last = size_min(part->first + cut->chunk, cut->panels);
    return true;
}

/* ---- Products ---- */

void fast_product_part(const step_view *step, const fast_worker *own, const fast_input *input,
                       const fast_product *product, const fast_part *part, float *out) {
    const weight_view *weight = &product->linear->weight;
    activation_view x =
        activation_from(&input->form[panels_form(weight->type)], part->row_begin, 0);
    x.rows = part->row_end - part->row_begin;
    linear_call call = {.weight = weight,
                        .bias = product->linear->bias,
                        .x = &x,
                        .out = out,
                        .out_stride = product->out_stride,
                        .end = product->end,
                        .add_scale = product->add_scale};
    if (input->site != NULL && product->end == LINEAR_ADD &&
        run_gains(step->batch, input->site->layer, input->site->matrix[product->slot])) {
        call.out = product->aside + (out - product->out);
        call.end = LINEAR_STORE;
    }
    linear_run(step->backend->ops, &call, part->first, part->last, own->linear);
    if (input->site != NULL)
        fast_adapt_part(step, own, input, product, part, call.out, out);
}

/* The matrices stand behind one another, as one row of panels. */
static fast_cut products_cut(const step_view *step, uint32_t rows, const fast_product *products,
                             size_t count) {
    fast_panels all = {.weight = &products[0].linear->weight, .granule = 1};
    for (size_t i = 0; i < count; i++)
        all.panels += weight_panels(&products[i].linear->weight);
    return fast_cut_make(step, rows, &all);
}

size_t fast_products_items(const step_view *step, uint32_t rows, const fast_product *products,
                           size_t count) {
    return products_cut(step, rows, products, count).items;
}

void fast_products(const step_view *step, const fast_worker *own, const fast_input *input,
                   const fast_product *products, size_t count, team_items *items) {
    uint32_t rows = input->form[panels_form(products[0].linear->weight.type)].rows;
    fast_cut cut = products_cut(step, rows, products, count);
    fast_part part;
    while (fast_cut_take(&cut, items, &part)) {
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            size_t panels = weight_panels(&products[i].linear->weight);
            fast_part own_part = part;
            own_part.first = part.first > at ? part.first - at : 0;
            own_part.last = part.last > at ? size_min(part.last - at, panels) : 0;
            if (own_part.first < own_part.last)
                fast_product_part(step, own, input, &products[i], &own_part,
                                  products[i].out + part.row_begin * products[i].out_stride);
            at += panels;
        }
    }
}
