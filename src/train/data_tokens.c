/* Texts and conversations to tokens, and which of them count.
 *
 * A conversation is rendered and tokenized as a whole, as for inference. Which bytes the assistant
 * says comes from the template's {% generation %} blocks; a template without them is rendered again
 * for the beginning of the conversation up to each of the assistant's messages, once with the
 * beginning of an answer and once with the answer, and the tokens are compared: what the second has
 * and the first has not is the answer. A token that begins before an answer and ends in it counts.
 */
#include "train/data_int.h"

#include <string.h>

#define TEMPLATE_NOW   1767225600 /* 2026-01-01 */
#define SEGMENTS_BYTES ((size_t)8 << 20)

avo_status data_encoder_open(data_encoder *encoder, const avo_model *model,
                             const avo_allocator *allocator, int64_t now, avo_error *error) {
    *encoder = (data_encoder){.model = model,
                              .now = now == 0 ? TEMPLATE_NOW : now,
                              .mask = "everything",
                              .end_token = -1};
    id_list_init(&encoder->ids, allocator);
    id_list_init(&encoder->other, allocator);
    buffer_init(&encoder->wanted, allocator, SIZE_MAX);
    chat_template_output_init(&encoder->rendered, allocator);
    chat_template_output_init(&encoder->prefix, allocator);
    /* Fails with the reason where the model has no tokenizer. */
    AVO_TRY(
        model_encode_text(model, NULL, TEXT_LITERAL(""), AVO_TOKENIZE_PLAIN, &encoder->ids, error));
    encoder->end_token = tokenizer_describe(model->tokenizer).end;
    if (encoder->end_token < 0 && model->source->generation.stop_token_count > 0)
        encoder->end_token = model->source->generation.stop_tokens[0];
    AVO_TRY(encode_cache_open(model->tokenizer, SEGMENTS_BYTES, &encoder->cache, error));
    AVO_TRY(encoder_open(model->tokenizer, &encoder->encoder, error));
    encoder_use(encoder->encoder, encoder->cache);
    return AVO_OK;
}

void data_encoder_close(data_encoder *encoder) {
    encoder_close(encoder->encoder);
    encode_cache_close(encoder->cache);
    id_list_free(&encoder->ids);
    id_list_free(&encoder->other);
    buffer_free(&encoder->wanted);
    chat_template_output_free(&encoder->rendered);
    chat_template_output_free(&encoder->prefix);
}

static avo_status no_memory(avo_error *error) {
    return status_fail(error, AVO_ERROR_MEMORY, "out of memory for the tokens of a sample");
}

/* A mask of the tokens: all `value`, the first one 0. */
static avo_status fill_mask(data_encoder *encoder, int value, avo_error *error) {
    encoder->wanted.size = 0;
    if (encoder->ids.count == 0)
        return AVO_OK;
    if (buffer_reserve(&encoder->wanted, encoder->ids.count) != AVO_OK)
        return no_memory(error);
    memset(encoder->wanted.data, value, encoder->ids.count);
    encoder->wanted.data[0] = 0;
    encoder->wanted.size = encoder->ids.count;
    return AVO_OK;
}

static void want(data_encoder *encoder, size_t begin, size_t end) {
    for (size_t i = begin == 0 ? 1 : begin; i < end; i++)
        encoder->wanted.data[i] = 1;
}

static size_t common_tokens(const id_list *a, const id_list *b) {
    size_t count = 0;
    while (count < a->count && count < b->count && a->ids[count] == b->ids[count])
        count++;
    return count;
}

/* ---- Texts ---- */

static avo_status append_text(data_encoder *encoder, text_view text, bool begin, id_list *ids,
                              avo_error *error) {
    return model_encode_text(encoder->model, encoder->encoder, text,
                             begin ? AVO_TOKENIZE_BEGIN : AVO_TOKENIZE_PLAIN, ids, error);
}

static avo_status append_end(data_encoder *encoder, avo_error *error) {
    if (encoder->end_token < 0)
        return AVO_OK;
    return id_list_append(&encoder->ids, encoder->end_token) == AVO_OK ? AVO_OK : no_memory(error);
}

avo_status data_encode_text(data_encoder *encoder, text_view text, avo_error *error) {
    encoder->ids.count = 0;
    AVO_TRY(append_text(encoder, text, true, &encoder->ids, error));
    AVO_TRY(append_end(encoder, error));
    return fill_mask(encoder, 1, error);
}

/* The prompt has the tokens that it has alone, as for inference: where tokens of the joined text
 * would reach across, both parts are tokenized for themselves. */
avo_status data_encode_pair(data_encoder *encoder, text_view prompt, text_view answer,
                            avo_error *error) {
    buffer *joined = &encoder->rendered.text;
    id_list *ids = &encoder->ids;
    encoder->mask = "the completion";
    joined->size = ids->count = encoder->other.count = 0;
    if (buffer_append(joined, prompt.data, prompt.size) != AVO_OK ||
        buffer_append(joined, answer.data, answer.size) != AVO_OK)
        return no_memory(error);
    AVO_TRY(append_text(encoder, prompt, true, &encoder->other, error));
    AVO_TRY(append_text(encoder, buffer_text(joined), true, ids, error));
    size_t begin = encoder->other.count;
    if (common_tokens(ids, &encoder->other) < begin) {
        ids->count = 0;
        AVO_TRY(append_text(encoder, prompt, true, ids, error));
        AVO_TRY(append_text(encoder, answer, false, ids, error));
    }
    AVO_TRY(append_end(encoder, error));
    AVO_TRY(fill_mask(encoder, 0, error));
    want(encoder, begin, ids->count);
    return AVO_OK;
}

/* ---- Conversations ---- */

static avo_status render(const data_encoder *encoder, const json_value *messages, size_t count,
                         const json_value *tools, bool prompt, chat_template_output *out,
                         avo_error *error) {
    json_value part = *messages;
    part.array.count = count;
    json_member members[2] = {{TEXT_LITERAL("messages"), part}, {TEXT_LITERAL("tools"), *tools}};
    json_value variables = {
        .kind = JSON_OBJECT,
        .object = {.members = members, .count = tools->kind == JSON_NULL ? 1 : 2}};
    if (encoder->model->chat_template == NULL && encoder->model->template_error.status == AVO_OK)
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "the model has no chat template, which messages need; give prompt and "
                           "completion (sft), chosen and rejected, or text as strings");
    model_chat chat = {
        .variables = &variables, .no_generation_prompt = !prompt, .now = encoder->now};
    return model_render_chat(encoder->model, &chat, out, error);
}

/* The tokens of the beginning of a conversation into encoder->other. */
static avo_status encode_prefix(data_encoder *encoder, const json_value *messages, size_t count,
                                const json_value *tools, bool prompt, avo_error *error) {
    encoder->other.count = 0;
    AVO_TRY(render(encoder, messages, count, tools, prompt, &encoder->prefix, error));
    return model_encode_rendered(encoder->model, encoder->encoder, &encoder->prefix, SIZE_MAX,
                                 &encoder->other, error);
}

avo_status data_encode_render(data_encoder *encoder, const json_value *messages,
                              const json_value *tools, bool prompt, avo_error *error) {
    encoder->ids.count = 0;
    AVO_TRY(
        render(encoder, messages, messages->array.count, tools, prompt, &encoder->rendered, error));
    AVO_TRY(model_encode_rendered(encoder->model, encoder->encoder, &encoder->rendered, SIZE_MAX,
                                  &encoder->ids, error));
    return fill_mask(encoder, 0, error);
}

/* How many tokens begin before byte `at` of the rendered text; *within: the last one of them goes
 * on behind it. */
static avo_status tokens_before(data_encoder *encoder, size_t at, size_t *count, bool *within,
                                avo_error *error) {
    encoder->other.count = 0;
    AVO_TRY(model_encode_rendered(encoder->model, encoder->encoder, &encoder->rendered, at,
                                  &encoder->other, error));
    *count = common_tokens(&encoder->ids, &encoder->other);
    *within = *count < encoder->other.count;
    return AVO_OK;
}

static avo_status mask_generated(data_encoder *encoder, size_t after, avo_error *error) {
    const chat_template_output *rendered = &encoder->rendered;
    encoder->mask = "the template's generation blocks";
    for (size_t i = 0; i < rendered->generated_count; i++) {
        if (rendered->generated[i].begin < after)
            continue;
        size_t begin, end;
        bool within;
        AVO_TRY(tokens_before(encoder, rendered->generated[i].begin, &begin, &within, error));
        AVO_TRY(tokens_before(encoder, rendered->generated[i].end, &end, &within, error));
        want(encoder, begin, end + within < encoder->ids.count ? end + within : encoder->ids.count);
    }
    return AVO_OK;
}

static bool ends_turn(const data_encoder *encoder, int32_t id) {
    return id == encoder->end_token || avo_model_token_ends(encoder->model, id);
}

/* White space that templates write, as vocabularies do. */
static bool is_space(const data_encoder *encoder, int32_t id) {
    static const char *const spaces[] = {"\xC4\x8A", "\xC4\x8A\xC4\x8A", "\n",
                                         "<0x0A>",   "\xC4\xA0",         "\xE2\x96\x81"};
    text_view piece = tokenizer_piece(encoder->model->tokenizer, id);
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
        if (text_is(piece, spaces[i]))
            return true;
    return false;
}

/* Templates write a line end behind the token that ends a turn; the model never has to. */
static size_t without_space(const data_encoder *encoder, size_t begin, size_t end) {
    size_t last = end;
    while (last > begin && is_space(encoder, encoder->ids.ids[last - 1]))
        last--;
    return last > begin &&
                   tokenizer_is_special(encoder->model->tokenizer, encoder->ids.ids[last - 1])
               ? last
               : end;
}

/* The end of an answer that has other tokens where it is the last of a conversation, as in
 * encoder->other; both have `common` first tokens in common. 0: it cannot be found. */
static size_t find_other_end(const data_encoder *encoder, size_t begin, size_t common) {
    const id_list *ids = &encoder->ids, *other = &encoder->other;
    size_t rest = common;
    while (rest < other->count &&
           (is_space(encoder, other->ids[rest]) || ends_turn(encoder, other->ids[rest]) ||
            tokenizer_is_special(encoder->model->tokenizer, other->ids[rest])))
        rest++;
    if (rest == other->count && common > begin)
        return common; /* a token behind the last message */
    /* The answer itself differs, by a block of reasoning: it ends with the same two tokens. */
    size_t end = begin, last = other->count;
    while (end < ids->count && !ends_turn(encoder, ids->ids[end]))
        end++;
    while (last > 0 && !ends_turn(encoder, other->ids[last - 1]))
        last--;
    bool same = end < ids->count && last > 0 && ids->ids[end] == other->ids[last - 1] &&
                (end == begin || (last > 1 && ids->ids[end - 1] == other->ids[last - 2]));
    return same ? end + 1 : 0;
}

static avo_status fail_history(size_t message, avo_error *error) {
    return status_fail(error, AVO_ERROR_TEMPLATE,
                       "the chat template writes message %zu, or those before it, differently when "
                       "more messages follow, so what the assistant says cannot be found; use a "
                       "template with {%% generation %%} blocks",
                       message);
}

/* Where the answer that is message `at` begins and ends among the tokens of the conversation. */
static avo_status find_answer(data_encoder *encoder, const json_value *messages,
                              const json_value *tools, size_t at, size_t *begin, size_t *end,
                              avo_error *error) {
    const id_list *ids = &encoder->ids;
    AVO_TRY(encode_prefix(encoder, messages, at, tools, true, error));
    *begin = common_tokens(ids, &encoder->other);
    if (*begin < encoder->other.count && at > 0) {
        /* The beginning of an answer that is yet to come differs from that of one that is there
         * (an opened block of reasoning); the messages before it must not. */
        AVO_TRY(encode_prefix(encoder, messages, at, tools, false, error));
        size_t common = common_tokens(ids, &encoder->other);
        if (common < encoder->other.count && find_other_end(encoder, 0, common) != common)
            return fail_history(at, error);
    }
    AVO_TRY(encode_prefix(encoder, messages, at + 1, tools, false, error));
    *end = common_tokens(ids, &encoder->other);
    if (*end < encoder->other.count)
        *end = find_other_end(encoder, *begin, *end);
    if (*end <= *begin && *end == 0)
        return fail_history(at, error);
    *end = without_space(encoder, *begin, *end);
    /* Some models end an answer with the token that begins the next message. */
    if (*end > *begin && *end < ids->count && !ends_turn(encoder, ids->ids[*end - 1]) &&
        ends_turn(encoder, ids->ids[*end]))
        ++*end;
    return AVO_OK;
}

static avo_status mask_prefixes(data_encoder *encoder, const json_value *messages,
                                const json_value *tools, size_t first, avo_error *error) {
    encoder->mask = "comparing prefixes of the conversation";
    for (size_t i = first; i < messages->array.count; i++) {
        size_t begin = 0, end = 0;
        if (!data_message_is(&messages->array.items[i], "assistant"))
            continue;
        AVO_TRY(find_answer(encoder, messages, tools, i, &begin, &end, error));
        want(encoder, begin, end);
    }
    return AVO_OK;
}

avo_status data_encode_chat(data_encoder *encoder, const json_value *messages,
                            const json_value *tools, size_t first, avo_error *error) {
    AVO_TRY(data_encode_render(encoder, messages, tools, false, error));
    const chat_template_output *rendered = &encoder->rendered;
    bool blocks = rendered->generated_count > 0 && !rendered->generated_inside;
    if (!blocks)
        return mask_prefixes(encoder, messages, tools, first, error);
    size_t after = 0;
    if (first > 0) {
        AVO_TRY(render(encoder, messages, first, tools, false, &encoder->prefix, error));
        text_view before = buffer_text(&encoder->prefix.text);
        text_view text = buffer_text(&rendered->text);
        while (after < before.size && after < text.size && before.data[after] == text.data[after])
            after++;
    }
    return mask_generated(encoder, after, error);
}
