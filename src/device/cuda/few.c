/* Products of few rows: one launch with the norm, the activation and the quantising in it, where
 * all matrices of a place have one type that the kernels know. */
#include "device/cuda/step_int.h"

#include "device/cuda/kernels/walk.h"

#include <assert.h>
#include <string.h>

_Static_assert(FEW_ROWS <= LINEAR_ROWS, "rows");

#define FEW_STAGE (64 * 1024) /* bytes of rows that are staged at once, as far as one fits */

/* CUDA_KERNELS: none. */
static cuda_kernel kernel_of(quant_type type) {
    return type == QUANT_Q4R                         ? CUDA_KERNEL_few_q4r
           : type == QUANT_Q8B || type == QUANT_Q8_0 ? CUDA_KERNEL_few_q8b
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
static uint32_t set_rounds(few_call *call, uint32_t panels, uint32_t steps, uint32_t most) {
    uint32_t each = call->paired ? 2 : 1, slots = steps * call->input.rows * SLOT;
    if (call->whole)
        slots = call->input.rows * 16;
    few_desk desk;
    uint64_t words = few_desk_lay(&call->input, (float *)(uintptr_t)4096, &desk);
    uint64_t room = most / 4 > words ? most / 4 - words : 0;
    if ((uint64_t)panels * slots <= room) {
        call->together = panels;
        return (uint32_t)(4 * (words + panels * slots));
    }
    uint32_t together = (uint32_t)(room / 2 / slots) / each * each;
    call->together = together < each ? each : together;
    words += 2 * (uint64_t)call->together * slots;
    return words > UINT32_MAX / 4 ? UINT32_MAX : (uint32_t)(4 * words);
}

/* The same for floats: the ring, with as many lines as fit, and a chain for each thread. */
static uint32_t set_ring(few_call *call, uint32_t panels, uint32_t lines, uint32_t most) {
    uint32_t most_panels = FEW_THREADS / 16 / call->input.rows / 2 * 2;
    call->together = panels < most_panels ? panels : most_panels;
    few_desk desk;
    uint64_t bytes = 4 * (uint64_t)few_desk_lay(&call->input, (float *)(uintptr_t)4096, &desk);
    bytes += FEW_THREADS * 4;
    uint64_t slots = bytes < most ? (most - bytes) / (FEW_RING * EXACT_LINE) / call->together : 0;
    uint64_t fit = slots > 1 ? (slots - 1) / 2 * 2 : 0; /* one is not used */
    call->lines = lines / call->together / 2 * 2;
    call->lines = call->lines < fit ? call->lines : (uint32_t)fit;
    call->lines = call->lines < 16 ? 16 : call->lines;
    bytes += (uint64_t)FEW_RING * call->together * (call->lines + 1) * EXACT_LINE;
    return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

/* ---- Rung 3: several phases in one kernel ---- */

/* CUDA_KERNELS: none. */
static cuda_kernel walking(cuda_kernel kernel) {
    return kernel == CUDA_KERNEL_few_q4r     ? CUDA_KERNEL_walk_q4r
           : kernel == CUDA_KERNEL_few_q8b   ? CUDA_KERNEL_walk_q8b
           : kernel == CUDA_KERNEL_few_float ? CUDA_KERNEL_walk_float
                                             : CUDA_KERNELS;
}

void few_flush(cuda_step *step) {
    cuda_launch launch = step->walk_launch;
    if (step->walk.phases == 0)
        return;
    walk_call call = step->walk;
    step->walk.phases = 0;
    step_launch(step, &launch, &call);
}

/* False: not in such a kernel. */
static bool few_joins(cuda_step *step, const few_call *given, cuda_kernel kernel) {
    const cuda_tuning *tuning = step->tuning;
    const cuda_limits *limits = &step->port->limits;
    few_call call = *given;
    walk_desk desk;
    kernel = walking(kernel);
    if (tuning->rung < 3 || !limits->early || kernel == CUDA_KERNELS)
        return false;
    bool floats = kernel == CUDA_KERNEL_walk_float;
    uint32_t threads = floats ? WALK_FLOAT_THREADS : FEW_THREADS;
    uint32_t depth = tuning->depth < 1 ? 1 : tuning->depth;
    uint32_t ring = 4 * walk_lay(depth, threads / 32, floats, (float *)(uintptr_t)4096, &desk);
    uint32_t each = call.paired ? 2 : 1, blocks = limits->multiprocessors;
    uint32_t panels = (call.panels / each + blocks - 1) / blocks * each;
    uint32_t steps = call.type == QUANT_Q4R ? (call.input.k + 255) / 256 : (call.input.k + 31) / 32;
    call.input.direct = call.input.norm.kind == CALL_NORM_NONE && !floats;
    call.whole = floats || (tuning->whole > 0 && panels >= tuning->whole);
    uint32_t shared = ring < limits->shared
                          ? ring + set_rounds(&call, panels, steps, limits->shared - ring)
                          : UINT32_MAX;
    if (shared > limits->shared || shared < ring)
        return false;
    if (step->walk.phases == WALK_PHASES ||
        (step->walk.phases > 0 && step->walk_launch.kernel != kernel))
        few_flush(step);
    if (step->walk.phases == 0) {
        step->walk_launch =
            (cuda_launch){.kernel = kernel, .x = blocks, .y = 1, .z = 1, .threads = threads};
        if (tuning->early == 0)
            step->walk_launch.begin = CUDA_TOGETHER;
        step->walk.depth = depth;
        step->walk.met = step->scratch->met;
    }
    step->walk.phase[step->walk.phases++] = call;
    if (step->walk_launch.shared < shared)
        step->walk_launch.shared = shared;
    return true;
}

bool few_products(cuda_step *step, const cuda_site *site, const cuda_product *products,
                  size_t count, const activation_kind *pair) {
    const cuda_tuning *tuning = step->tuning;
    const cuda_limits *limits = &step->port->limits;
    if (tuning->rung < 2 || step->batch->runs > 0 || site->rows == 0 || site->rows > FEW_ROWS ||
        !of_one_type(products, count) || fast_computes(step, products, count))
        return false;
    quant_type type = products[0].linear->weight.type;
    few_call call = {
        .input = input_of(site, type), .matrices = (uint32_t)count, .type = (uint32_t)type};
    cuda_launch launch = {.kernel = kernel_of(type), .y = 1, .z = 1, .threads = FEW_THREADS};
    uint64_t panel_bytes;
    if (launch.kernel == CUDA_KERNELS ||
        !weight_panel_bytes(type, products[0].linear->weight.k, &panel_bytes))
        return false;
    call.panel_bytes = panel_bytes;
    for (size_t i = 0; i < count; i++)
        set_matrix(&products[i], &call, (uint32_t)i);
    if (pair != NULL) {
        call.paired = true;
        call.activation = (uint32_t)*pair;
    }
    if (few_joins(step, &call, launch.kernel))
        return true;
    uint32_t each = call.paired ? 2 : 1, most = call.panels / each;
    launch.x = most < limits->multiprocessors ? most : limits->multiprocessors;
    uint32_t steps = type == QUANT_Q4R ? (site->k + 255) / 256 : (site->k + 31) / 32;
    uint32_t panels = (most + launch.x - 1) / launch.x * each;
    bool floats = call.input.form == CALL_FLOAT;
    call.whole = tuning->whole > 0 && panels >= tuning->whole;
    launch.shared = floats ? set_ring(&call, panels, tuning->lines, limits->shared)
                           : set_rounds(&call, panels, steps, limits->shared);
    if (launch.shared > limits->shared)
        return false;
    call.ahead = (uint64_t)tuning->ahead * 1024;
    step_launch(step, &launch, &call);
    return true;
}
