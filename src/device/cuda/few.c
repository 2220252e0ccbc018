/* Products of few rows: one launch with the norm, the activation and the quantising in it, where
 * all matrices of a place have one type that the kernels know. */
#include "device/cuda/step_int.h"

#include "device/cuda/kernels/few.h"

#include <assert.h>

_Static_assert(FEW_ROWS <= LINEAR_ROWS, "rows");

#define FEW_RING_LINES 256 /* of all panels, at once */
#define FEW_Q4R_BYTES  ((uint64_t)4 << 20)
#define FEW_STAGE      (64 * 1024) /* bytes of rows that are staged at once, as far as one fits */

/* CUDA_KERNELS: none. */
static cuda_kernel kernel_of(quant_type type, bool wide) {
    return type == QUANT_Q4R ? (wide ? CUDA_KERNEL_few_q4r_wide : CUDA_KERNEL_few_q4r)
           : type == QUANT_Q8B || type == QUANT_Q8_0
               ? (wide ? CUDA_KERNEL_few_q8b_wide : CUDA_KERNEL_few_q8b)
           : type == QUANT_F16 || type == QUANT_BF16 ? CUDA_KERNEL_few_float
                                                     : CUDA_KERNELS;
}

static bool of_one_type(const cuda_product *products, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const weight_view *weight = &products[i].linear->weight;
        if (weight->data == NULL || weight->type != products[0].linear->weight.type ||
            weight->k != products[0].linear->weight.k)
            return false;
    }
    return true;
}

static void set_matrix(const cuda_product *product, few_call *call, uint32_t i) {
    const weight_view *weight = &product->linear->weight;
    uint32_t panels = (weight->rows + 15) / 16;
    call->one[i] = (few_matrix){.data = weight->data,
                                .bias = product->linear->bias,
                                .out = product->out,
                                .out_stride = product->out_stride,
                                .add_scale = product->add_scale,
                                .add = product->add,
                                .outputs = weight->rows,
                                .panels = panels};
    call->panels += panels;
}

static few_input input_of(const cuda_site *site, quant_type type) {
    few_input input = {.x = site->x,
                       .gate = site->gate,
                       .index = site->index,
                       .stride = site->k,
                       .k = site->k,
                       .rows = site->rows,
                       .form = (uint32_t)panels_form(type),
                       .activated = site->activated,
                       .activation = (uint32_t)site->activation};
    if (site->norm != NULL)
        input.norm = (norm_call){.kind = (uint32_t)site->norm->kind,
                                 .epsilon = site->norm->epsilon,
                                 .weight = site->norm->weight,
                                 .bias = site->norm->bias};
    uint32_t fit = FEW_STAGE / (4 * input.k);
    if (input.form == CALL_FLOAT) /* stay there */
        fit = input.rows;
    input.together = fit < 1 ? 1 : fit < input.rows ? fit : input.rows;
    return input;
}

/* Panels of a round and bytes of shared memory, for `panels` of a block. */
static uint32_t set_rounds(few_call *call, uint32_t panels, uint32_t steps) {
    uint32_t each = call->paired ? 2 : 1, slots = steps * call->input.rows;
    uint32_t together = FEW_SLOTS / slots / each * each;
    together = together < each ? each : together;
    together = together < panels ? together : panels;
    call->together = together;
    few_desk desk;
    uint32_t words = few_desk_lay(&call->input, (float *)(uintptr_t)4096, &desk);
    uint64_t bytes =
        4 * ((uint64_t)words + (together < panels ? 2u : 1u) * together * slots * SLOT);
    return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

/* The same for floats: the ring, and a chain for each thread. */
static uint32_t set_ring(few_call *call, uint32_t panels) {
    uint32_t most = FEW_THREADS / 16 / call->input.rows / 2 * 2;
    call->together = panels < most ? panels : most;
    uint32_t lines = FEW_RING_LINES / call->together / 2 * 2;
    call->lines = lines < 16 ? 16 : lines;
    few_desk desk;
    uint64_t bytes = 4 * (uint64_t)few_desk_lay(&call->input, (float *)(uintptr_t)4096, &desk);
    bytes += (uint64_t)FEW_RING * call->together * (call->lines + 1) * 64 + FEW_THREADS * 4;
    return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

/* One row of larger Q4R matrices is faster by rung 1's kernels, unless these are wide
 * (docs/cuda.md). */
static bool too_large(const few_call *call, quant_type type, const cuda_tuning *tuning) {
    return type == QUANT_Q4R && tuning->wide == 0 && call->input.rows == 1 &&
           call->panels * call->panel_bytes > FEW_Q4R_BYTES;
}

bool few_products(cuda_step *step, const cuda_site *site, const cuda_product *products,
                  size_t count, const activation_kind *pair) {
    const cuda_tuning *tuning = step->tuning;
    const cuda_limits *limits = &step->port->limits;
    if (tuning->rung < 2 || step->batch->runs > 0 || site->rows == 0 || site->rows > FEW_ROWS ||
        !of_one_type(products, count))
        return false;
    quant_type type = products[0].linear->weight.type;
    few_call call = {
        .input = input_of(site, type), .matrices = (uint32_t)count, .type = (uint32_t)type};
    cuda_launch launch = {
        .kernel = kernel_of(type, tuning->wide), .y = 1, .z = 1, .threads = FEW_THREADS};
    uint64_t panel_bytes;
    if (launch.kernel == CUDA_KERNELS ||
        !weight_panel_bytes(type, products[0].linear->weight.k, &panel_bytes))
        return false;
    call.panel_bytes = panel_bytes;
    for (size_t i = 0; i < count; i++)
        set_matrix(&products[i], &call, (uint32_t)i);
    if (too_large(&call, type, tuning))
        return false;
    if (pair != NULL) {
        call.paired = true;
        call.activation = (uint32_t)*pair;
    }
    uint32_t each = call.paired ? 2 : 1, most = call.panels / each;
    launch.x = most < limits->multiprocessors ? most : limits->multiprocessors;
    uint32_t steps = type == QUANT_Q4R ? (site->k + 255) / 256 : (site->k + 31) / 32;
    uint32_t panels = (most + launch.x - 1) / launch.x * each;
    launch.shared =
        call.input.form == CALL_FLOAT ? set_ring(&call, panels) : set_rounds(&call, panels, steps);
    if (launch.shared > limits->shared)
        return false;
    uint64_t own = panel_bytes * ((call.panels + launch.x - 1) / launch.x);
    uint64_t ahead = (uint64_t)tuning->ahead * 1024;
    call.ahead = (uint32_t)(own < ahead ? own : ahead);
    step_launch(step, &launch, &call);
    return true;
}
