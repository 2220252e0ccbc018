/* Products of few rows: one launch with the norm, the activation and the quantising in it, where
 * all matrices of a place have one type that the kernels know. */
#include "device/cuda/step_int.h"

#include "device/cuda/kernels/few.h"

#include <assert.h>
#include <string.h>

#define FEW_WARPS (FEW_THREADS / 32)
#define FEW_SLOTS (40 * 1024)  /* bytes, at most, unless that is too little for one piece */
#define FEW_ALONE (116 * 1024) /* with more than that no two blocks share a multiprocessor */
#define FEW_STAGE (64 * 1024)  /* bytes of rows that are staged at once, as far as one fits */

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

/* Rounds, for `panels` of a block, and the bytes of shared memory: all in one round if their slots
 * are small enough; else panels, then their k is divided, and there are slots for two rounds. */
static uint32_t set_rounds(few_call *call, uint32_t panels, bool q4r, uint32_t most) {
    uint32_t each = call->paired ? 2 : 1, rows = call->input.rows;
    uint32_t pieces = (call->input.k + (q4r ? 255 : 127)) / (q4r ? 256 : 128);
    few_part part;
    call->own = panels;
    call->last = (uint32_t)(call->panel_bytes - (uint64_t)(pieces - 1) * piece_bytes(q4r));
    uint64_t words = few_lay(call, FEW_WARPS, (float *)(uintptr_t)4096, &part);
    uint64_t room = most / 4 > words ? most / 4 - words : 0;
    uint64_t one = rows * (call->whole ? 16 : piece_steps(q4r) * SLOT); /* of a panel and piece */
    uint64_t fit = (room < FEW_SLOTS / 4 ? room : FEW_SLOTS / 4) / one;
    uint64_t parts = call->whole ? 1 : pieces;
    call->together = panels;
    call->span = pieces;
    uint64_t slots = panels * parts * one;
    if (panels * parts > fit) {
        fit /= 2;
        fit = fit > panels + each ? fit - panels : fit / 2; /* what is kept lies behind them */
        uint64_t span = fit / panels;
        if (call->whole || panels > FEW_WARPS) {
            call->together = (uint32_t)(fit / parts) / each * each;
            call->together = call->together < each ? each : call->together;
            span = fit / call->together;
        }
        uint64_t even = FEW_WARPS / call->together; /* all warps have the same number of pieces */
        span = even > 1 && span > even ? span / even * even : span;
        span = span < 1 ? 1 : span < parts ? span : parts;
        call->span = call->whole ? pieces : (uint32_t)span;
        slots = 2 * call->together * span * one + 16 * (uint64_t)call->together * rows;
    }
    uint32_t stage = input_stage_words(&call->input);
    words += slots < stage ? stage : slots;
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

/* The input is made by a kernel of its own. */
static void make_ready(cuda_step *step, const few_input *input) {
    ready_call call = {.input = *input, .out = step->scratch->ready};
    call.input.together = 1;
    uint32_t k = (input->k + INPUT_K - 1) / INPUT_K * INPUT_K, words = input->rows * NORM_WORDS;
    words += (input->norm.kind != CALL_NORM_NONE ? k : 0) + (input->direct ? 0 : k);
    cuda_launch launch = {.kernel = CUDA_KERNEL_ready,
                          .x = (k / INPUT_K + FEW_WARPS - 1) / FEW_WARPS,
                          .y = input->rows,
                          .z = 1,
                          .threads = FEW_THREADS,
                          .shared = 4 * words};
    step_launch(step, &launch, &call);
}

bool few_products(cuda_step *step, const cuda_site *site, const cuda_product *products,
                  size_t count, const activation_kind *pair) {
    const cuda_tuning *tuning = step->tuning;
    const cuda_limits *limits = &step->port->limits;
    if (tuning->rung < 2 || (site->norm != NULL && adapt_norms(step)) || site->rows == 0 ||
        site->rows > FEW_ROWS || !of_one_type(products, count) ||
        fast_computes(step, products, count))
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
    uint32_t each = call.paired ? 2 : 1, most = call.panels / each;
    launch.x = most < limits->multiprocessors ? most : limits->multiprocessors;
    uint32_t panels = (most + launch.x - 1) / launch.x * each;
    bool floats = call.input.form == CALL_FLOAT;
    if (floats && site->rows > FEW_FLOAT_ROWS)
        return false;
    call.input.direct = call.input.norm.kind == CALL_NORM_NONE && !site->activated && !floats;
    call.depth = tuning->depth < 1 ? 1 : tuning->depth;
    call.whole = tuning->whole > 0 && panels >= tuning->whole;
    few_input given = call.input;
    bool ready = !floats && site->rows * ((site->k + 255) / 256) > tuning->ready;
    if (ready) {
        call.input.ready = step->scratch->ready;
        call.input.norm.kind = CALL_NORM_NONE;
        call.input.direct = true;
    }
    launch.shared = floats ? set_ring(&call, panels, tuning->lines, limits->shared)
                           : set_rounds(&call, panels, type == QUANT_Q4R, limits->shared);
    if (launch.shared > limits->shared)
        return false;
    uint32_t room = site->rows > 2 && tuning->room == 0 ? FEW_ALONE : tuning->room * 1024;
    if (!floats && launch.shared < room && room <= limits->shared)
        launch.shared = room;
    if (ready)
        make_ready(step, &given);
    call.ahead = (uint64_t)tuning->ahead * 1024;
    step_launch(step, &launch, &call);
    return true;
}
