/* /v1/embeddings: hidden states of prompts as vectors. */
#include "server/api/answer.h"
#include "server/api/helpers.h"

#include "base/number.h"

#include <math.h>
#include <stdlib.h>

static double unit_scale(const float *numbers, uint32_t width) {
    double sum = 0.0;
    for (uint32_t i = 0; i < width; i++)
        sum += (double)numbers[i] * (double)numbers[i];
    return sum > 0.0 ? 1.0 / sqrt(sum) : 0.0;
}

static avo_status write_base64(const unsigned char *bytes, size_t count, buffer *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    AVO_TRY(buffer_append_text(out, "\""));
    AVO_TRY(buffer_reserve(out, (count + 2) / 3 * 4));
    for (size_t i = 0; i < count; i += 3) {
        uint32_t word = (uint32_t)bytes[i] << 16;
        if (i + 1 < count)
            word |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < count)
            word |= bytes[i + 2];
        char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                        i + 1 < count ? digits[word >> 6 & 63] : '=',
                        i + 2 < count ? digits[word & 63] : '='};
        AVO_TRY(buffer_append(out, four, 4));
    }
    return buffer_append_text(out, "\"");
}

/* By the fast way to write a float: there are thousands. */
static avo_status write_number(float number, buffer *out) {
    char text[NUMBER_TEXT_MAX];
    if (isfinite(number))
        return buffer_append(out, text, number_write_float(text, number));
    json_writer w = json_writer_of(out);
    write_logprob(&w, number);
    return json_writer_status(&w);
}

static avo_status write_numbers(const float *numbers, uint32_t width, bool base64, buffer *out) {
    if (base64)
        return write_base64((const unsigned char *)numbers, width * sizeof(float), out);
    AVO_TRY(buffer_reserve(out, (size_t)width * 13 + 2));
    AVO_TRY(buffer_append_text(out, "["));
    for (uint32_t i = 0; i < width; i++) {
        if (i > 0)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(write_number(numbers[i], out));
    }
    return buffer_append_text(out, "]");
}

avo_status embedding_vector(answer *a, choice *c, const avo_result *result) {
    const api_request *r = a->request;
    uint32_t width = result->embedding_width;
    if (r->dimensions > 0 && r->dimensions < width)
        width = r->dimensions;
    float *numbers = result->embedding == NULL ? NULL : malloc(width * sizeof(*numbers));
    if (numbers == NULL)
        return AVO_ERROR_MEMORY;
    double scale = r->normalize ? unit_scale(result->embedding, width) : 1.0;
    for (uint32_t i = 0; i < width; i++)
        numbers[i] = (float)((double)result->embedding[i] * scale);
    avo_status status = write_numbers(numbers, width, r->base64, &c->text);
    free(numbers);
    return status;
}

/* In the delivery thread, where others' tokens wait: no piece is copied twice. */
static avo_status embedding_whole(answer *a, buffer *out) {
    answer_usage usage = usage_of(a);
    size_t bytes = 1024;
    for (uint32_t i = 0; i < a->choice_count; i++)
        bytes += a->choices[i].text.size + 64;
    AVO_TRY(buffer_reserve(out, bytes));
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "object", "list");
    json_member_array_begin(&w, "data");
    for (uint32_t i = 0; i < a->choice_count; i++) {
        json_object_begin(&w);
        json_member_string(&w, "object", "embedding");
        json_member_u64(&w, "index", i);
        json_member_raw(&w, "embedding", buffer_text(&a->choices[i].text));
        json_end(&w);
    }
    json_end(&w);
    json_member_string(&w, "model", a->request->model);
    json_member_object_begin(&w, "usage");
    json_member_u64(&w, "prompt_tokens", usage.prompt_tokens);
    json_member_u64(&w, "total_tokens", usage.prompt_tokens);
    write_timings(&w, &usage);
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}

/* Never streamed. */
static const answer_writer embedding_writer = {
    .id_prefix = "emb-", .whole = embedding_whole, .vector = embedding_vector};

static void answer_embedding(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_EMBEDDING, &embedding_writer);
}

void endpoint_embedding(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_embedding);
}
