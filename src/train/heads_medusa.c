/* Medusa heads: for row r with n, the model's normed state, and u, the normed embedding of the
 * token behind it,
 *
 *   m = n + SiLU(i),   i = state · n + token · u       di = dm · SiLU'(i)
 *
 * Nothing below the heads is trained, so no derivative by n or u is wanted. */
#include "train/heads_int.h"

#include "base/mathf.h"

typedef struct medusa_task {
    const heads_span *span;
    uint32_t draft;
} medusa_task;

static const train_parameter *matrix_of(const heads_span *span, uint32_t draft, bool token) {
    return &span->core->parameters.item[2 * draft + (token ? 1 : 0)];
}

/* n and u. */
static void input_rows(void *context, size_t begin, size_t end) {
    const heads_span *span = context;
    const struct train_heads *heads = span->heads;
    const train_core *core = span->core;
    uint32_t width = heads->config.width;
    for (size_t row = begin; row < end; row++) {
        size_t position = span->begin + row;
        float *u = heads->medusa.token + row * width;
        core->loops->norm(&core->net.view->final_norm,
                          heads->tap[0] + (span->span->first + position) * width, width,
                          heads->medusa.normed + row * width);
        heads_embed(core, span->span->sequence->tokens[position + 1], u);
        core->loops->norm(&heads->unit, u, width, u);
    }
}

static void output_numbers(void *context, size_t begin, size_t end) {
    const medusa_task *task = context;
    const struct train_heads *heads = task->span->heads;
    const float *inner = heads->medusa.inner[task->draft], *n = heads->medusa.normed;
    float *out = heads->output[task->draft];
    for (size_t i = begin; i < end; i++)
        out[i] = n[i] + inner[i] * math_sigmoid(inner[i]);
}

static heads_product product_of(const heads_span *span, uint32_t draft, bool token) {
    const medusa_buffers *b = &span->heads->medusa;
    return (heads_product){.parameter = matrix_of(span, draft, token),
                           .columns = span->heads->config.width,
                           .x = token ? b->token : b->normed,
                           .y = b->inner[draft],
                           .rows = span->rows};
}

void medusa_forward(const heads_span *span) {
    train_core *core = span->core;
    size_t numbers = (size_t)span->rows * span->heads->config.width;
    train_each(core, span->rows, 8, input_rows, (void *)(uintptr_t)span);
    for (uint32_t k = 0; k < span->heads->drafts; k++) {
        medusa_task task = {span, k};
        heads_product state = product_of(span, k, false), token = product_of(span, k, true);
        heads_multiply(core, &state, false);
        heads_multiply(core, &token, true);
        train_each(core, numbers, 8192, output_numbers, &task);
    }
}

static void inner_numbers(void *context, size_t begin, size_t end) {
    const medusa_task *task = context;
    const struct train_heads *heads = task->span->heads;
    const float *dout = heads->doutput[task->draft];
    float *inner = heads->medusa.inner[task->draft];
    for (size_t i = begin; i < end; i++) {
        float s = math_sigmoid(inner[i]);
        inner[i] = dout[i] * (s + inner[i] * s * (1.0f - s));
    }
}

void medusa_backward(const heads_span *span) {
    train_core *core = span->core;
    size_t numbers = (size_t)span->rows * span->heads->config.width;
    for (uint32_t k = 0; k < span->heads->drafts; k++) {
        medusa_task task = {span, k};
        heads_product state = product_of(span, k, false), token = product_of(span, k, true);
        train_each(core, numbers, 8192, inner_numbers, &task);
        heads_multiply_back(core, &state, state.y, NULL, false);
        heads_multiply_back(core, &token, token.y, NULL, false);
    }
}
