/* Draft heads: passes over rows of all requests that want drafts. */
#include "engine/draft_heads_int.h"

#include "base/clock.h"
#include "base/mathf.h"

#include <math.h>
#include <string.h>

#define LEARN_RATE     0.1
#define PASS_ERROR_MAX 3.0

/* ---- Vectors ---- */

/* out = x / √(mean(x²) + ε) · weight; weight NULL: 1. Eight sums, which the compiler keeps in
 * registers. */
static void norm_vector(const float *x, const float *weight, float epsilon, size_t width,
                        float *out) {
    float sums[8] = {0}, sum = 0.0f;
    size_t i = 0;
    for (; i + 8 <= width; i += 8)
        for (size_t lane = 0; lane < 8; lane++)
            sums[lane] += x[i + lane] * x[i + lane];
    for (; i < width; i++)
        sum += x[i] * x[i];
    for (size_t lane = 0; lane < 8; lane++)
        sum += sums[lane];
    float factor = 1.0f / sqrtf(sum / (float)width + epsilon);
    for (i = 0; i < width; i++)
        out[i] = x[i] * factor * (weight != NULL ? weight[i] : 1.0f);
}

static float dot_product(const float *a, const float *b, size_t width) {
    float sums[8] = {0}, sum = 0.0f;
    size_t i = 0;
    for (; i + 8 <= width; i += 8)
        for (size_t lane = 0; lane < 8; lane++)
            sums[lane] += a[i + lane] * b[i + lane];
    for (; i < width; i++)
        sum += a[i] * b[i];
    for (size_t lane = 0; lane < 8; lane++)
        sum += sums[lane];
    return sum;
}

static void embed(const draft_heads *own, int32_t token, float *out) {
    weight_decode_row(&own->target->model->view.embedding, (size_t)token, out);
}

/* ---- Batches ---- */

static void batch_begin(head_batch *batch) {
    batch->rows = batch->segments = 0;
}

/* A row for each token of one request, at these positions of its cache. */
static void batch_add(const draft_heads *own, head_batch *batch, uint32_t request, uint32_t drafter,
                      uint32_t position, uint32_t count) {
    uint32_t segment = batch->segments++;
    batch->request[segment] = request;
    batch->segment[segment] =
        (batch_segment){.first = batch->rows,
                        .rows = count,
                        .pages = own->pages + (size_t)drafter * kv_pages_for(HEADS_CONTEXT)};
    for (uint32_t i = 0; i < count; i++) {
        batch->position[batch->rows] = position + i;
        batch->row_segment[batch->rows++] = segment;
    }
}

static batch_view rows_of(const head_batch *batch, const float *input) {
    return (batch_view){.rows = batch->rows,
                        .token = batch->token,
                        .input = input,
                        .position = batch->position,
                        .row_segment = batch->row_segment,
                        .segment = batch->segment,
                        .segments = batch->segments,
                        .logit_row = batch->logit_row,
                        .logit_rows = batch->rows};
}

/* The whole product of all rows. */
static bool run_product(const head_program *program, head_batch *batch, const float *input) {
    for (uint32_t i = 0; i < batch->rows; i++)
        batch->logit_row[i] = i;
    batch_view view = rows_of(batch, input);
    view.logits_whole = true;
    return head_program_run(program, &view);
}

static bool read_row(const head_program *program, uint32_t row, const float **out) {
    avo_error error;
    return device_read_logits(program->stream, row, out, &error) == AVO_OK;
}

/* ---- EAGLE: from states to the layers' inputs ---- */

/* [state; E[token]] of a row, normed where the form has it so. What EAGLE-3's first layer adds its
 * outputs to is the state. */
static void join_row(draft_heads *own, const head_unit *unit, uint32_t number) {
    const avo_heads *heads = unit->heads;
    const heads_config *config = &heads->config;
    size_t width = own->width;
    float *row = own->batch.joined + number * 2 * width, *x = own->batch.x + number * width;
    float epsilon = (float)config->norm_epsilon;
    if (config->form == HEADS_FORM_EAGLE3 && !config->norm_residual)
        memcpy(x, row, width * sizeof(*x));
    embed(own, own->batch.token[number], row + width);
    if (config->form == HEADS_FORM_EAGLE)
        return;
    norm_vector(row, heads->state_norm, epsilon, width, row);
    norm_vector(row + width, heads->token_norm, epsilon, width, row + width);
    if (config->norm_residual)
        memcpy(x, row, width * sizeof(*x));
}

/* x = input · [norm(state); norm(E[token])] + bias; the states are the first halves of `joined`,
 * which are normed in place. */
static bool run_input(draft_heads *own, const head_unit *unit) {
    head_batch *batch = &own->batch;
    const avo_heads *heads = unit->heads;
    size_t width = own->width;
    for (uint32_t i = 0; i < batch->rows; i++)
        join_row(own, unit, i);
    if (heads->config.form == HEADS_FORM_EAGLE3)
        return true;
    if (!run_product(&unit->input, batch, batch->joined))
        return false;
    for (uint32_t i = 0; i < batch->rows; i++) {
        const float *x;
        float *out = batch->x + i * width;
        if (!read_row(&unit->input, i, &x))
            return false;
        for (size_t k = 0; k < width; k++)
            out[k] = x[k] + (heads->input_bias != NULL ? heads->input_bias[k] : 0.0f);
    }
    return true;
}

/* The state of every row from its taps, which lie in `fused`. */
static bool run_fuse(draft_heads *own, const head_unit *unit) {
    head_batch *batch = &own->batch;
    size_t width = own->width;
    bool fuses = unit->heads->config.form != HEADS_FORM_EAGLE;
    if (fuses && !run_product(&unit->fuse, batch, batch->fused))
        return false;
    for (uint32_t i = 0; i < batch->rows; i++) {
        const float *state = batch->fused + i * width;
        if (fuses && !read_row(&unit->fuse, i, &state))
            return false;
        memcpy(batch->joined + i * 2 * width, state, width * sizeof(float));
    }
    return true;
}

static void norm_taps(const draft_heads *own, const head_unit *unit, uint32_t drafter,
                      uint32_t position, float *out) {
    const avo_heads *heads = unit->heads;
    const norm_view *final = &own->target->model->view.final_norm;
    size_t width = own->width;
    const float *taps = head_ring_row(own, drafter, position);
    for (uint32_t i = 0; i < heads->config.taps; i++, out += width) {
        const float *tap = taps + unit->tap[i] * width;
        if (heads->config.form == HEADS_FORM_AVOCET)
            norm_vector(tap, heads->tap_norm + i * width, (float)heads->config.norm_epsilon, width,
                        out);
        else if (heads->config.form == HEADS_FORM_EAGLE)
            norm_vector(tap, final->weight, final->epsilon, width, out);
        else
            memcpy(out, tap, width * sizeof(*out));
    }
}

/* ---- Layers ---- */

static bool is_eagle(const head_unit *unit) {
    return unit->heads->config.kind == HEADS_EAGLE;
}

/* Rows [*first, *end) that the newest token's row needs, of which those before *first are in the
 * cache; false: taps are missing. Row r of EAGLE has the tap of position r and token r + 1, row r
 * of a distilled draft token r. */
static bool rows_wanted(const draft_heads *own, const head_unit *unit, const draft_request *request,
                        uint32_t *first, uint32_t *end) {
    uint32_t number = drafter_number(request->drafter), begin = 0;
    head_rows *rows = &unit->rows[number];
    *end = request->timeline.count;
    if (is_eagle(unit)) {
        const head_feed *feed = &own->feed[number];
        *end -= 1;
        begin = feed->begin;
        if (*end == 0 || feed->end < *end || begin >= *end)
            return false;
    }
    /* Asked again about the same timeline: its last row is computed again. */
    if (rows->base + rows->count >= *end && rows->base < *end)
        rows->count = *end - 1 - rows->base;
    bool goes_on = rows->begun && rows->base + rows->count >= begin &&
                   rows->base + rows->count < *end &&
                   *end - rows->base + DRAFTS_MAX <= HEADS_CONTEXT &&
                   *end - rows->base - rows->count <= HEADS_FEED_MAX;
    if (!goes_on) {
        uint32_t window = unit->heads->config.window;
        uint32_t most = window > 0 && window < HEADS_BEGIN_ROWS ? window : HEADS_BEGIN_ROWS;
        *first = *end - begin > most ? *end - most : begin;
        *rows = (head_rows){.base = *first, .begun = true};
        const uint32_t pages = kv_pages_for(HEADS_CONTEXT);
        rows->begun = head_program_clear(&unit->layers, number * pages, pages);
        return rows->begun;
    }
    *first = rows->base + rows->count;
    return true;
}

/* Rows [first, end) of one request, which follow those in its cache. */
static void add_range(draft_heads *own, const head_unit *unit, const draft_request *request,
                      uint32_t index, uint32_t first, uint32_t end) {
    uint32_t number = drafter_number(request->drafter);
    head_batch *batch = &own->batch;
    uint32_t row = batch->rows, ahead = is_eagle(unit) ? 1 : 0;
    size_t width = own->width, fused = unit->heads->config.taps * width;
    batch_add(own, batch, index, number, first - unit->rows[number].base, end - first);
    for (uint32_t r = first; r < end; r++, row++) {
        batch->token[row] = request->timeline.tokens[r + ahead];
        if (is_eagle(unit))
            norm_taps(own, unit, number, r, batch->fused + row * fused);
        else
            embed(own, batch->token[row], batch->x + row * width);
    }
}

/* The rows that one request lacks; false: none this time. */
static bool add_rows(draft_heads *own, const head_unit *unit, draft_request *request,
                     uint32_t index) {
    uint32_t first, end;
    if (!rows_wanted(own, unit, request, &first, &end))
        return false;
    if (end - first > own->rows_max - own->batch.rows) {
        drafter_model_behind(request->drafter);
        return false;
    }
    add_range(own, unit, request, index, first, end);
    return true;
}

/* A step of the layers. */
static batch_view layer_rows(const draft_heads *own, const head_unit *unit) {
    batch_view view = rows_of(&own->batch, own->batch.x);
    if (is_eagle(unit) && unit->heads->config.form == HEADS_FORM_EAGLE3)
        view.attention_input = own->batch.joined;
    return view;
}

/* The likeliest tokens by output rows of few bits, of which the model's own rows choose one. */
#define CANDIDATES 2

/* The model's rows have more bits than those that the heads got of them. */
static bool has_better_rows(const draft_heads *own, const head_unit *unit) {
    const heads_config *config = &unit->heads->config;
    return config->kind == HEADS_EAGLE && !config->output &&
           unit->heads->layers.head.weight.type == QUANT_Q4_1 &&
           own->target->model->view.head.weight.type != QUANT_Q4_1;
}

/* Logits of each request's last row. */
static bool run_layers(draft_heads *own, const head_unit *unit) {
    head_batch *batch = &own->batch;
    for (uint32_t i = 0; i < batch->segments; i++)
        batch->logit_row[i] = batch->segment[i].first + batch->segment[i].rows - 1;
    batch_view view = layer_rows(own, unit);
    view.logit_rows = batch->segments;
    view.logits_whole = own->whole;
    view.top = has_better_rows(own, unit) ? CANDIDATES : 1;
    return head_program_run(&unit->layers, &view);
}

/* Rows with true taps stay in the cache. */
static void keep_rows(const draft_heads *own, const head_unit *unit,
                      const draft_request *requests) {
    const head_batch *batch = &own->batch;
    for (uint32_t i = 0; i < batch->segments; i++)
        unit->rows[drafter_number(requests[batch->request[i]].drafter)].count +=
            batch->segment[i].rows;
}

/* Computes K and V of all but the last `left` rows that a request lacks, in several passes. */
static bool feed_rows(draft_heads *own, const head_unit *unit, draft_request *requests,
                      uint32_t index, uint32_t left) {
    head_batch *batch = &own->batch;
    uint32_t first, end;
    for (uint32_t pass = 0; rows_wanted(own, unit, &requests[index], &first, &end); pass++) {
        if (end - first <= left)
            return true;
        if (pass == HEADS_FEED_PASSES) {
            drafter_model_behind(requests[index].drafter);
            return false; /* goes on behind the next step */
        }
        uint32_t count = end - first - left;
        batch_begin(batch);
        add_range(own, unit, &requests[index], index, first,
                  first + (count < own->rows_max ? count : own->rows_max));
        if (is_eagle(unit) && !(run_fuse(own, unit) && run_input(own, unit)))
            return false;
        batch_view view = layer_rows(own, unit);
        view.logit_rows = 0;
        if (!head_program_run(&unit->layers, &view))
            return false;
        keep_rows(own, unit, requests);
    }
    return false;
}

/* ---- Drafts ---- */

/* Which of the candidates is the likeliest by the model's own rows, and its logit. `state`: the
 * output of the layers' row. */
static uint32_t choose_candidate(draft_heads *own, const head_unit *unit, const logit_top *top,
                                 const float *state, double *logit) {
    const model_view *view = &unit->heads->layers;
    size_t width = own->width;
    float *normed = own->batch.joined, *row = normed + width; /* the pass is over */
    uint32_t best = 0;
    if (view->final_norm.kind == NORM_RMS)
        norm_vector(state, view->final_norm.weight, view->final_norm.epsilon, width, normed);
    else
        memcpy(normed, state, width * sizeof(*normed));
    for (uint32_t i = 0; i < top->count && i < CANDIDATES; i++) {
        weight_decode_row(&own->target->model->view.head.weight,
                          (size_t)unit->heads->frequent[top->token[i]], row);
        double sum = (double)dot_product(normed, row, width);
        if (i > 0 && sum <= *logit)
            continue;
        *logit = sum;
        best = i;
    }
    return best;
}

/* One more token of a draft; false: the heads are not sure of anything. `state` may be NULL. */
static bool take_token(draft_heads *own, const head_unit *unit, draft_request *request,
                       const logit_top *top, const float *state) {
    struct draft *out = request->draft;
    if (top->count == 0 || !(top->log_sum >= 0.0 && top->log_sum < 1e6))
        return false;
    double logit = (double)top->logit[0];
    uint32_t best = state == NULL ? 0 : choose_candidate(own, unit, top, state, &logit);
    double logprob = fmin(logit - (double)top->logit[0] - top->log_sum, 0.0);
    out->tokens[out->count] = unit->heads->frequent[top->token[best]];
    out->grade[out->count] = draft_grade(expf((float)logprob));
    out->count++;
    drafter_rate(request->drafter, out);
    return true;
}

static bool goes_on(const draft_request *request, double least) {
    const struct draft *out = request->draft;
    return out->count < request->most &&
           (drafter_decides(request->drafter) ||
            drafter_goes_on(request->drafter, (double)out->survival[out->count - 1], least));
}

/* A draft for every request of the pass. */
static bool take_tokens(draft_heads *own, const head_unit *unit, draft_request *requests,
                        double least) {
    const head_batch *batch = &own->batch;
    const logit_top *top;
    const float *states = NULL;
    avo_error error;
    if (device_read_top(unit->layers.stream, &top, &error) != AVO_OK ||
        (has_better_rows(own, unit) &&
         device_read_tap(unit->layers.stream, 0, 0, batch->rows, &states, &error) != AVO_OK))
        return false;
    for (uint32_t i = 0; i < batch->segments; i++) {
        draft_request *request = &requests[batch->request[i]];
        const float *state = states == NULL ? NULL : states + batch->logit_row[i] * own->width;
        request->going = take_token(own, unit, request, &top[i], state) && goes_on(request, least);
    }
    return true;
}

/* The next row of all that go on, whose state is the output of their row before; false: none. */
static bool add_next(draft_heads *own, const head_unit *unit, const draft_request *requests) {
    head_batch *batch = &own->batch;
    size_t width = own->width;
    uint32_t before = batch->segments;
    const float *states;
    avo_error error;
    if (is_eagle(unit)) {
        if (device_read_tap(unit->layers.stream, 0, 0, batch->rows, &states, &error) != AVO_OK)
            return false;
        for (uint32_t i = 0, kept = 0; i < before; i++)
            if (requests[batch->request[i]].going)
                memcpy(batch->joined + (size_t)kept++ * 2 * width,
                       states + (size_t)batch->logit_row[i] * width, width * sizeof(float));
    }
    batch_begin(batch);
    for (uint32_t i = 0; i < before; i++) {
        const draft_request *request = &requests[batch->request[i]];
        const struct draft *out = request->draft;
        uint32_t number = drafter_number(request->drafter), row = batch->rows;
        if (!request->going)
            continue;
        batch->token[row] = out->tokens[out->count - 1];
        if (!is_eagle(unit))
            embed(own, batch->token[row], batch->x + row * width);
        batch_add(own, batch, batch->request[i], number, unit->rows[number].count + out->count - 1,
                  1);
    }
    return batch->rows > 0;
}

static double pass_ns(const draft_heads *own, const head_unit *unit, uint32_t requests) {
    return own->assumed_ns > 0 ? own->assumed_ns : unit->pass_ns[heads_pass_class(requests)];
}

/* What a pass with one row for each request takes. One that was interrupted says little. */
static void learn(head_unit *unit, const head_batch *batch, uint64_t begin_ns) {
    double taken = (double)(clock_now_ns() - begin_ns);
    double *learned = &unit->pass_ns[heads_pass_class(batch->segments)];
    if (batch->rows != batch->segments)
        return;
    taken = taken < PASS_ERROR_MAX * *learned ? taken : PASS_ERROR_MAX * *learned;
    *learned += LEARN_RATE * (taken - *learned);
}

static bool has_time(const draft_heads *own, const head_unit *unit, uint32_t requests,
                     const draft_time *time, uint64_t end_ns) {
    return time->left_ns == 0 ||
           (double)clock_now_ns() + pass_ns(own, unit, requests) < (double)end_ns;
}

static void propose_layers(draft_heads *own, head_unit *unit, draft_request *requests,
                           const draft_time *time, double least, uint64_t end_ns) {
    head_batch *batch = &own->batch;
    uint64_t begin = clock_now_ns();
    if (is_eagle(unit) && !(run_fuse(own, unit) && run_input(own, unit)))
        return;
    if (!run_layers(own, unit))
        return;
    keep_rows(own, unit, requests);
    while (take_tokens(own, unit, requests, least)) {
        learn(unit, batch, begin);
        begin = clock_now_ns();
        if (!has_time(own, unit, own->batch.segments, time, end_ns) ||
            !add_next(own, unit, requests) || (is_eagle(unit) && !run_input(own, unit)) ||
            !run_layers(own, unit))
            return;
    }
}

/* ---- Medusa ---- */

/* The row of one request: its state, and the token behind it. */
static bool add_medusa(draft_heads *own, const head_unit *unit, const draft_request *request,
                       uint32_t index) {
    const avo_heads *heads = unit->heads;
    const norm_view *final = &own->target->model->view.final_norm;
    uint32_t number = drafter_number(request->drafter), count = request->timeline.count;
    const head_feed *feed = &own->feed[number];
    head_batch *batch = &own->batch;
    if (count < 2 || feed->end < count - 1 || feed->begin > count - 2 ||
        (batch->rows + 1) * heads->config.heads > own->rows_max)
        return false;
    size_t width = own->width;
    float *row = batch->joined + batch->rows * width * (heads->config.token ? 2 : 1);
    const float *taps = head_ring_row(own, number, count - 2);
    norm_vector(taps + unit->tap[0] * width, final->weight, (float)heads->config.norm_epsilon,
                width, row);
    if (heads->config.token) {
        embed(own, request->timeline.tokens[count - 1], row + width);
        norm_vector(row + width, NULL, (float)heads->config.norm_epsilon, width, row + width);
    }
    batch_add(own, batch, index, number, 0, 1);
    return true;
}

/* x + SiLU(inner + bias) */
static void residual_block(const float *x, const float *inner, const float *bias, size_t width,
                           float *out) {
    for (size_t k = 0; k < width; k++) {
        float sum = bias != NULL ? inner[k] + bias[k] : inner[k];
        out[k] = x[k] + sum * math_sigmoid(sum);
    }
}

/* m = n + SiLU(state · n + token · u + bias), a row for each head of each request. */
static bool run_states(draft_heads *own, const head_unit *unit) {
    head_batch *batch = &own->batch;
    const heads_config *config = &unit->heads->config;
    const float *bias = unit->heads->state_bias;
    size_t width = own->width;
    if (!run_product(&unit->input, batch, batch->joined))
        return false;
    for (uint32_t i = 0; i < batch->rows; i++) {
        const float *inner, *state = batch->joined + i * width * (config->token ? 2 : 1);
        float *out = batch->x + (size_t)i * config->heads * width;
        if (!read_row(&unit->input, i, &inner))
            return false;
        for (size_t k = 0; k < config->heads; k++)
            residual_block(state, inner + k * width, bias != NULL ? bias + k * width : NULL, width,
                           out + k * width);
    }
    return true;
}

/* One more block of every head. The product gives the block of every head for every row, of which
 * a row needs that of its own. */
static bool run_block(draft_heads *own, const head_unit *unit, uint32_t block) {
    head_batch *batch = &own->batch;
    size_t width = own->width, heads = unit->heads->config.heads;
    const float *bias = unit->heads->state_bias;
    if (!run_product(&unit->block[block], batch, batch->x))
        return false;
    for (uint32_t i = 0; i < batch->rows; i++) {
        size_t head = i % heads;
        const float *inner;
        float *x = batch->x + i * width;
        if (!read_row(&unit->block[block], i, &inner))
            return false;
        residual_block(x, inner + head * width,
                       bias != NULL ? bias + (block * heads + head) * width : NULL, width, x);
    }
    return true;
}

/* What the output rows are multiplied with, a row of the batch for each head of each request. */
static bool run_heads(draft_heads *own, const head_unit *unit) {
    head_batch *batch = &own->batch;
    const heads_config *config = &unit->heads->config;
    if (!run_states(own, unit))
        return false;
    batch->rows *= config->heads;
    for (uint32_t i = 0; i < batch->rows; i++) {
        batch->position[i] = 0;
        batch->row_segment[i] = i / config->heads;
    }
    for (uint32_t block = 1; block < config->blocks; block++)
        if (!run_block(own, unit, block))
            return false;
    return true;
}

/* The highest logit of each of these rows. */
static const logit_top *run_output(const draft_heads *own, const head_program *program,
                                   const float *input, uint32_t rows) {
    const head_batch *batch = &own->batch;
    const logit_top *top;
    avo_error error;
    for (uint32_t i = 0; i < rows; i++)
        batch->logit_row[i] = i;
    batch_view view = rows_of(batch, input);
    view.rows = view.logit_rows = rows;
    view.logits_whole = own->whole;
    view.top = 1;
    if (!head_program_run(program, &view) ||
        device_read_top(program->stream, &top, &error) != AVO_OK)
        return NULL;
    return top;
}

/* Drafts of head `head` of every request that goes on. */
static void take_head(draft_heads *own, const head_unit *unit, draft_request *requests,
                      const logit_top *top, uint32_t first, uint32_t step) {
    const head_batch *batch = &own->batch;
    for (uint32_t i = 0; i < batch->segments; i++) {
        draft_request *request = &requests[batch->request[i]];
        request->going = request->going && request->draft->count < request->most &&
                         take_token(own, unit, request, &top[first + i * step], NULL);
    }
}

/* Heads with an output matrix each. */
static void run_outputs(draft_heads *own, head_unit *unit, draft_request *requests) {
    head_batch *batch = &own->batch;
    size_t width = own->width;
    uint32_t heads = unit->heads->config.heads, count = batch->segments;
    for (uint32_t head = 0; head < heads; head++) {
        for (uint32_t i = 0; i < count; i++)
            memcpy(batch->joined + i * width, batch->x + ((size_t)i * heads + head) * width,
                   width * sizeof(float));
        const logit_top *top = run_output(own, &unit->output[head], batch->joined, count);
        if (top == NULL)
            return;
        take_head(own, unit, requests, top, 0, 1);
    }
}

static void propose_medusa(draft_heads *own, head_unit *unit, draft_request *requests) {
    head_batch *batch = &own->batch;
    uint32_t heads = unit->heads->config.heads, count = batch->segments;
    uint64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < count; i++)
        requests[batch->request[i]].going = true;
    if (!run_heads(own, unit))
        return;
    if (unit->heads->config.output) {
        run_outputs(own, unit, requests);
    } else {
        const logit_top *top = run_output(own, &unit->layers, batch->x, batch->rows);
        for (uint32_t head = 0; top != NULL && head < heads; head++)
            take_head(own, unit, requests, top, head, heads);
    }
    batch->rows = count;
    learn(unit, batch, begin);
}

/* ---- All kinds ---- */

static void propose_unit(draft_heads *own, heads_kind kind, draft_request *requests, uint32_t count,
                         const draft_time *time) {
    head_unit *unit = &own->unit[kind];
    draft_kind source = draft_heads_kind(kind);
    if (!heads_gather_more(unit->heads, HEADS_GATHER_ROWS))
        return; /* no drafts before all rows are there */
    /* As for a draft model: what the token before a draft must survive for the draft to pay. */
    double least = draft_time_least(time, pass_ns(own, unit, count), count);
    uint64_t end_ns = clock_now_ns() + (uint64_t)time->left_ns;
    /* Rows of each request that the last pass has room for. */
    uint32_t left = count < own->rows_max ? own->rows_max / count : 1;
    for (uint32_t i = 0; i < count; i++) {
        draft_request *request = &requests[i];
        request->going = request->most > 0 && request->draft->count == 0 &&
                         drafter_uses(request->drafter, source) &&
                         request->sequence->session->ring_window == 0 &&
                         drafter_try_model(request->drafter, least);
        if (!request->going)
            continue;
        *request->draft = (struct draft){.kind = source, .graded = true};
        if (kind != HEADS_MEDUSA)
            request->going = feed_rows(own, unit, requests, i, left);
    }
    batch_begin(&own->batch);
    for (uint32_t i = 0; i < count; i++) {
        bool going = requests[i].going;
        requests[i].going = false;
        if (going && kind == HEADS_MEDUSA)
            (void)add_medusa(own, unit, &requests[i], i);
        else if (going)
            (void)add_rows(own, unit, &requests[i], i);
    }
    if (own->batch.rows == 0 || !has_time(own, unit, own->batch.segments, time, end_ns))
        return;
    if (kind == HEADS_MEDUSA)
        propose_medusa(own, unit, requests);
    else
        propose_layers(own, unit, requests, time, least, end_ns);
}

void draft_heads_propose(draft_heads *own, draft_request *requests, uint32_t count,
                         const draft_time *time) {
    static const heads_kind order[] = {HEADS_EAGLE, HEADS_LAYERS, HEADS_MEDUSA};
    for (uint32_t i = 0; i < HEADS_KINDS; i++)
        if (own->unit[order[i]].heads != NULL && count > 0)
            propose_unit(own, order[i], requests, count, time);
}
