/* Products of many rows with Q4R weights on a card that has Hopper's warpgroups: the rows of x in
 * the order that the cores read, then one launch for all matrices of a place. */
#include "device/cuda/step_int.h"

#include "device/cuda/kernels/wide.h"

/* Tiles of 128 rows from here on: below, the same rows in smaller tiles. */
#define WIDE_LARGE 65
#define ROWS_MANY  256

static bool all_q4r(const cuda_product *products, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const weight_view *weight = &products[i].linear->weight;
        if (weight->data == NULL || weight->type != QUANT_Q4R ||
            weight->k != products[0].linear->weight.k)
            return false;
    }
    return count > 0;
}

static void set_matrices(wide_call *call, const cuda_product *products, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const weight_view *weight = &products[i].linear->weight;
        uint32_t panels = (weight->rows + 15) / 16;
        call->one[i] = (few_matrix){.data = weight->data,
                                    .bias = products[i].linear->bias,
                                    .out = products[i].out,
                                    .out_stride = products[i].out_stride,
                                    .add_scale = products[i].add_scale,
                                    .add = products[i].add,
                                    .outputs = weight->rows,
                                    .panels = panels};
        call->panels += panels;
    }
    call->matrices = (uint32_t)count;
}

static void prepare(cuda_step *step, const cuda_site *site, const wide_call *call) {
    static const norm_view none = {.kind = NORM_NONE};
    prepare_call own = {.out = {.number = (int8_t *)(uintptr_t)call->number,
                                .scale = (float *)(uintptr_t)call->scale,
                                .form = CALL_A8R},
                        .x = site->x,
                        .stride = site->k,
                        .index = site->index,
                        .gate = site->gate,
                        .k = site->k,
                        .staged = site->k <= PREPARE_STAGED,
                        .activated = site->activated,
                        .activation = (uint32_t)site->activation,
                        .padded = call->padded,
                        .norm = step_norm(step, site->norm == NULL ? &none : site->norm,
                                          site->place, site->layer, site->rows, site->head)};
    /* Few rows: many threads for each. Many: small blocks, of which some add norms up while others
     * rotate. */
    bool normed = own.norm.kind != CALL_NORM_NONE;
    uint32_t row = normed && own.staged ? site->k * 4 : 0;
    uint32_t threads = site->rows < ROWS_MANY ? PREPARE_THREADS : PREPARE_THREADS / 2;
    uint32_t parts = (call->steps + threads / WARP - 1) / (threads / WARP);
    own.parts = normed ? 1 : parts;
    cuda_launch launch = {CUDA_KERNEL_wide_x,    site->rows, own.parts, 1, threads,
                          NORM_SHARED * 4 + row, CUDA_BEHIND};
    step_launch(step, &launch, &own);
}

typedef struct wide_choice {
    cuda_kernel kernel;
    wide_form form;
} wide_choice;

static uint32_t tiles_of(const wide_form *form, uint32_t rows, uint32_t panels) {
    uint32_t each = form->groups * WIDE_PANELS;
    return (rows + form->rows - 1) / form->rows * ((panels + each - 1) / each);
}

/* Large tiles read less for each product, and leave more multiprocessors idle in the last round. */
static const wide_choice *choose(uint32_t rows, uint32_t panels, uint32_t multiprocessors) {
    static const wide_choice choices[] = {
        {CUDA_KERNEL_wide_16, {16, WIDE_GROUPS_16, WIDE_SPLITS_16}},
        {CUDA_KERNEL_wide_32, {32, WIDE_GROUPS_32, WIDE_SPLITS_32}},
        {CUDA_KERNEL_wide_64, {64, WIDE_GROUPS_64, WIDE_SPLITS_64}},
        {CUDA_KERNEL_wide_128, {128, WIDE_GROUPS_128, WIDE_SPLITS_128}},
        {CUDA_KERNEL_wide_192, {192, WIDE_GROUPS_192, WIDE_SPLITS_192}},
    };
    if (rows < WIDE_LARGE)
        return &choices[rows <= 16 ? 0 : rows <= 32 ? 1 : 2];
    return &choices[tiles_of(&choices[4].form, rows, panels) < 2 * multiprocessors ? 3 : 4];
}

bool wide_products(cuda_step *step, const cuda_site *site, const cuda_product *products,
                   size_t count) {
    const cuda_limits *limits = &step->port->limits;
    if (step->tuning->wide == 0 || site->rows < step->tuning->wide || !limits->groups ||
        step->batch->runs > 0 || !all_q4r(products, count))
        return false;
    wide_call call = {.k = site->k,
                      .steps = (site->k + 255) / 256,
                      .rows = site->rows,
                      .padded = (site->rows + 7) / 8 * 8};
    set_matrices(&call, products, count);
    const wide_choice *choice = choose(site->rows, call.panels, limits->multiprocessors);
    const wide_form *form = &choice->form;
    if (wide_shared(form) > limits->shared ||
        !weight_panel_bytes(QUANT_Q4R, site->k, &call.panel_bytes))
        return false;
    call.row_tiles = (site->rows + form->rows - 1) / form->rows;
    call.tiles = tiles_of(form, site->rows, call.panels);
    call.number = step->scratch->wide;
    call.scale =
        (const float *)(const void *)(step->scratch->wide + (size_t)call.steps * call.padded * 256);
    prepare(step, site, &call);
    cuda_launch launch = {.kernel = choice->kernel,
                          .x = call.tiles < limits->multiprocessors ? call.tiles
                                                                    : limits->multiprocessors,
                          .y = 1,
                          .z = 1,
                          .threads = 4 * WARP * form->groups * form->splits,
                          .shared = wide_shared(form)};
    step_launch(step, &launch, &call);
    return true;
}
