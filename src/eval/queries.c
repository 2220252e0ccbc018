/* Items to token ids, split as lm-eval splits them: a continuation's tokens are those of context
 * and continuation together, without as many as the context alone has. White space at the end of a
 * context belongs to the continuation. */
#include "eval/items.h"

#include "model/model.h"

#include <string.h>

typedef struct tokenizing {
    const eval_task *task;
    const items_options *options;
    eval_items *items;
    encoder *encoder;
    chat_template_output rendered; /* chat: of the item */
    buffer text;                   /* context and continuation */
    id_list ids;
    avo_error *error;
} tokenizing;

static avo_status append(tokenizing *t, text_view text) {
    if (buffer_append(&t->text, text.data, text.size) != AVO_OK)
        return status_no_memory(t->error, "a prompt", t->text.size + text.size);
    return AVO_OK;
}

/* Ids of the first `bytes` of the text. Only what the chat template wrote may hold special tokens.
 */
static avo_status encode(tokenizing *t, size_t bytes) {
    encode_options options = {.add_begin = !t->options->no_begin && !t->options->chat};
    text_span *last = NULL;
    text_span whole = {0, 0};
    if (t->options->chat) {
        options.special = options.trusted_given = true;
        options.trusted = t->rendered.trusted;
        options.trusted_count = t->rendered.trusted_count;
        while (options.trusted_count > 0 &&
               t->rendered.trusted[options.trusted_count - 1].begin >= bytes)
            options.trusted_count--;
        if (options.trusted_count > 0 && options.trusted[options.trusted_count - 1].end > bytes) {
            last = &t->rendered.trusted[options.trusted_count - 1];
            whole = *last;
            last->end = bytes;
        }
    }
    t->ids.count = 0;
    text_view text = {buffer_text(&t->text).data, bytes};
    avo_status status = encoder_run(t->encoder, text, &options, &t->ids, t->error);
    if (last != NULL)
        *last = whole;
    return status;
}

static avo_status keep(tokenizing *t, eval_query *query, const int32_t *ids, size_t count) {
    uint32_t most = t->options->context;
    uint32_t answer = t->task->kind == TASK_GENERATE ? t->task->max_tokens : 0;
    if (answer >= most)
        return status_fail(t->error, AVO_ERROR_CONTEXT,
                           "answers may have %u tokens, but the context holds %u; raise --ctx or "
                           "lower max_tokens",
                           answer, most);
    size_t cut = count > most - answer ? count - (most - answer) : 0;
    if (cut >= query->from && cut > 0 && t->task->kind != TASK_GENERATE)
        return status_fail(t->error, AVO_ERROR_CONTEXT,
                           "the continuation has %zu tokens, the context holds %u; raise --ctx",
                           count - query->from, most);
    int32_t *copy = arena_take_array(&t->items->arena, count - cut, sizeof(int32_t));
    if (copy == NULL)
        return status_no_memory(t->error, "a prompt", count * sizeof(int32_t));
    memcpy(copy, ids + cut, (count - cut) * sizeof(int32_t));
    query->tokens = copy;
    query->count = (uint32_t)(count - cut);
    query->from -= (uint32_t)cut;
    query->truncated = cut > 0;
    t->items->truncated += query->truncated;
    if (query->count + answer > t->items->tokens_max)
        t->items->tokens_max = query->count + answer;
    return AVO_OK;
}

/* Where there is no context: the BOS token, or the EOS token of models without one. */
static avo_status keep_alone(tokenizing *t, eval_query *query) {
    tokenizer_info info = tokenizer_describe(t->options->model->tokenizer);
    int32_t first = info.begin >= 0 ? info.begin : info.end;
    if (first < 0)
        return status_fail(t->error, AVO_ERROR_UNSUPPORTED,
                           "the prompt is empty and the model has no BOS token to start from");
    if (t->ids.count == 0 || t->ids.ids[0] != first) {
        if (id_list_append(&t->ids, first) != AVO_OK)
            return status_no_memory(t->error, "a prompt", t->ids.count * sizeof(int32_t));
        memmove(t->ids.ids + 1, t->ids.ids, (t->ids.count - 1) * sizeof(int32_t));
        t->ids.ids[0] = first;
    }
    query->from = 1;
    return AVO_OK;
}

/* `query` asks for the likelihood of a continuation of item->context, which is the text already. */
static avo_status add_continuation(tokenizing *t, const eval_item *item, text_view delimiter,
                                   text_view continuation, eval_query *query) {
    t->text.size = item->context.size;
    AVO_TRY(append(t, delimiter));
    AVO_TRY(append(t, continuation));
    if (item->context.size > 0) {
        AVO_TRY(encode(t, text_strip_end(item->context).size));
        query->from = (uint32_t)t->ids.count;
    }
    AVO_TRY(encode(t, t->text.size));
    if (query->from == 0)
        AVO_TRY(keep_alone(t, query));
    if (t->ids.count <= query->from)
        return status_fail(t->error, AVO_ERROR_FORMAT, "the continuation \"%.*s\" has no tokens",
                           TEXT_ARGUMENT(continuation));
    return keep(t, query, t->ids.ids, t->ids.count);
}

static avo_status add_generation(tokenizing *t, eval_query *query) {
    AVO_TRY(encode(t, t->text.size));
    query->from = (uint32_t)t->ids.count;
    if (t->ids.count == 0)
        AVO_TRY(keep_alone(t, query));
    return keep(t, query, t->ids.ids, t->ids.count);
}

static avo_status render_chat(tokenizing *t, const eval_item *item) {
    avo_message message = {"user", item->context.data};
    model_chat chat = {.messages = &message, .message_count = 1, .now = 1};
    if (strlen(message.content) != item->context.size)
        return status_fail(t->error, AVO_ERROR_FORMAT, "the prompt contains a zero byte");
    AVO_TRY(model_render_chat(t->options->model, &chat, &t->rendered, t->error));
    return append(t, buffer_text(&t->rendered.text));
}

/* The text in front of an answer; a delimiter comes before a prefix only between two characters
 * that are no white space. */
static avo_status compose(tokenizing *t, eval_item *item) {
    t->text.size = 0;
    text_view prefix = item->prefix, first = {prefix.data, prefix.size > 0 ? 1 : 0};
    if (t->options->chat)
        AVO_TRY(render_chat(t, item));
    else
        AVO_TRY(append(t, item->context));
    text_view before = buffer_text(&t->text);
    bool spaced = text_strip_end(before).size < before.size || text_strip(first).size < first.size;
    if (before.size > 0 && prefix.size > 0 && !spaced && !t->options->chat)
        AVO_TRY(append(t, t->task->delimiter));
    AVO_TRY(append(t, prefix));
    const char *copy = arena_copy_text(&t->items->arena, t->text.data, t->text.size);
    if (copy == NULL)
        return status_no_memory(t->error, "a prompt", t->text.size);
    item->context = (text_view){copy, t->text.size};
    return AVO_OK;
}

static avo_status tokenize_item(tokenizing *t, eval_item *item) {
    eval_query *query = &t->items->query[item->first_query];
    AVO_TRY(compose(t, item));
    if (t->task->kind == TASK_GENERATE)
        return add_generation(t, query);
    if (t->task->kind == TASK_CONTINUATION)
        return add_continuation(t, item, (text_view){"", 0}, item->target, query);
    text_view delimiter = t->options->chat ? (text_view){"", 0} : t->task->delimiter;
    for (uint32_t i = 0; i < item->choices; i++)
        AVO_TRY(add_continuation(t, item, delimiter, item->choice[i], query + i));
    return AVO_OK;
}

avo_status items_tokenize(const eval_task *task, const items_options *options, eval_items *items,
                          avo_error *error) {
    const avo_model *model = options->model;
    if (model->tokenizer == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: the model has no tokenizer",
                           model->source->path);
    tokenizing t = {.task = task, .options = options, .items = items, .error = error};
    const avo_allocator *allocator = items->arena.allocator;
    chat_template_output_init(&t.rendered, allocator);
    buffer_init(&t.text, allocator, SIZE_MAX);
    id_list_init(&t.ids, allocator);
    items->query = arena_take_array(&items->arena, items->query_count, sizeof(eval_query));
    avo_status status =
        items->query == NULL
            ? status_no_memory(error, "queries", items->query_count * sizeof(eval_query))
            : encoder_open(model->tokenizer, &t.encoder, error);
    for (uint32_t i = 0; status == AVO_OK && i < items->count; i++) {
        status = tokenize_item(&t, &items->item[i]);
        if (status != AVO_OK)
            status = status_prefix(error, status, "document %u", i + 1);
    }
    encoder_close(t.encoder);
    id_list_free(&t.ids);
    buffer_free(&t.text);
    chat_template_output_free(&t.rendered);
    return status;
}
