/* Opening a template and rendering it: the entry of the module. */
#include "base/utf8.h"
#include "tokenizer/template/render_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

avo_status chat_template_open(text_view source, const avo_allocator *allocator, chat_template **out,
                              avo_error *error) {
    *out = NULL;
    chat_template *chat = allocator_take(allocator, sizeof(*chat));
    if (chat == NULL)
        return status_no_memory(error, "a chat template", sizeof(*chat));
    *chat = (chat_template){.allocator = allocator};
    arena_init(&chat->arena, allocator, TEMPLATE_MEMORY_MAX);
    avo_status status = jinja_parse(chat, source, error);
    if (status != AVO_OK) {
        chat_template_close(chat);
        return status;
    }
    *out = chat;
    return AVO_OK;
}

void chat_template_close(chat_template *chat) {
    if (chat == NULL)
        return;
    const avo_allocator *allocator = chat->allocator;
    arena_free(&chat->arena);
    allocator_give(allocator, chat, sizeof(*chat));
}

void chat_template_output_init(chat_template_output *output, const avo_allocator *allocator) {
    *output = (chat_template_output){0};
    buffer_init(&output->text, allocator, TEMPLATE_OUTPUT_MAX);
}

void chat_template_output_free(chat_template_output *output) {
    allocator_give(output->text.allocator, output->trusted,
                   output->trusted_capacity_ * sizeof(text_span));
    allocator_give(output->text.allocator, output->generated,
                   output->generated_capacity_ * sizeof(text_span));
    buffer_free(&output->text);
    *output = (chat_template_output){.text = output->text};
}

bool chat_template_has_generation(const chat_template *chat) {
    return chat->has_generation;
}

/* ---- Failures ---- */

static avo_status fail_here(jinja_render *render, avo_status status, const char *text) {
    size_t offset = render->node == NULL ? 0 : render->node->offset;
    return jinja_fail_at(render->error, render->chat->source, offset, status, "%s", text);
}

avo_status jinja_fail(jinja_render *render, const char *format, ...) {
    char text[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return fail_here(render, AVO_ERROR_TEMPLATE, text);
}

avo_status jinja_unsupported(jinja_render *render, const char *what) {
    return jinja_fail(render, "%s is not supported", what);
}

avo_status jinja_limit(jinja_render *render, const char *what) {
    return fail_here(render, AVO_ERROR_LIMIT, what);
}

avo_status jinja_out_of_steps(jinja_render *render) {
    render->steps_left = 0;
    return fail_here(render, AVO_ERROR_LIMIT, "the chat template takes more steps than allowed");
}

avo_status jinja_take(jinja_render *render, size_t count, size_t size, void *out) {
    size_t bytes;
    void *memory = NULL;
    if (!__builtin_mul_overflow(count == 0 ? 1 : count, size, &bytes)) {
        memory = arena_take(&render->arena, bytes);
        /* The arena takes blocks of at most 4 MiB ahead of need. */
        if (memory == NULL && bytes < TEMPLATE_MEMORY_MAX / 2 &&
            render->arena.used_bytes + bytes + ((size_t)8 << 20) <= TEMPLATE_MEMORY_MAX)
            return fail_here(render, AVO_ERROR_MEMORY, "out of memory");
    }
    if (memory == NULL)
        return fail_here(render, AVO_ERROR_LIMIT,
                         "the chat template takes more memory than allowed");
    memcpy(out, &memory, sizeof(memory));
    return AVO_OK;
}

/* ---- Variables ---- */

/* Templates build special tokens from roles ("<|" + message.role + "|>"). A role that is one of the
 * words all chats use is no text of a user's making: it counts as the template's own. */
static bool is_plain_role(text_view key, const json_value *value) {
    static const char *const roles[] = {"system",   "user",      "assistant",
                                        "tool",     "developer", "model",
                                        "function", "ipython",   "observation"};
    if (!text_is(key, "role") || value->kind != JSON_STRING)
        return false;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (text_is(value->string, roles[i]))
            return true;
    return false;
}

static avo_status from_object(jinja_render *render, const json_value *json, jinja_value *out) {
    jinja_dict *dict;
    AVO_TRY(jinja_dict_new(render, json->object.count, &dict));
    for (size_t i = 0; i < json->object.count; i++) {
        jinja_value key;
        jinja_value value;
        AVO_TRY(jinja_text_new(render, json->object.members[i].key, JINJA_UNTRUSTED, &key));
        const json_value *from = &json->object.members[i].value;
        if (is_plain_role(json->object.members[i].key, from))
            AVO_TRY(jinja_text_new(render, from->string, JINJA_TRUSTED, &value));
        else
            AVO_TRY(jinja_from_json(render, from, &value));
        AVO_TRY(jinja_dict_set(render, dict, key, value));
    }
    *out = (jinja_value){.kind = JINJA_DICT, .dict = dict};
    return AVO_OK;
}

static avo_status from_array(jinja_render *render, const json_value *json, jinja_value *out) {
    jinja_sequence *list;
    AVO_TRY(jinja_sequence_new(render, json->array.count, &list));
    for (size_t i = 0; i < json->array.count; i++)
        AVO_TRY(jinja_from_json(render, &json->array.items[i], &list->items[i]));
    list->count = json->array.count;
    *out = (jinja_value){.kind = JINJA_LIST, .sequence = list};
    return AVO_OK;
}

static avo_status from_container(jinja_render *render, const json_value *json, jinja_value *out) {
    if (render->value_depth >= JINJA_VALUE_DEPTH_MAX)
        return jinja_limit(render, "variables nested too deeply");
    render->value_depth++;
    AVO_TRY(json->kind == JSON_ARRAY ? from_array(render, json, out)
                                     : from_object(render, json, out));
    render->value_depth--;
    return AVO_OK;
}

avo_status jinja_from_json(jinja_render *render, const json_value *json, jinja_value *out) {
    *out = (jinja_value){.kind = JINJA_NONE};
    switch (json->kind) {
    case JSON_NULL:
        return AVO_OK;
    case JSON_BOOLEAN:
        *out = (jinja_value){.kind = JINJA_BOOLEAN, .boolean = json->boolean};
        return AVO_OK;
    case JSON_INTEGER:
        *out = (jinja_value){.kind = JINJA_INTEGER, .integer = json->integer};
        return AVO_OK;
    case JSON_NUMBER:
        *out = (jinja_value){.kind = JINJA_NUMBER, .number = json->number};
        return AVO_OK;
    case JSON_STRING:
        return jinja_text_new(render, json->string, JINJA_UNTRUSTED, out);
    case JSON_ARRAY:
    case JSON_OBJECT:
        return from_container(render, json, out);
    }
    return AVO_OK;
}

static avo_status set_token(jinja_render *render, uint32_t symbol, const char *name,
                            text_view token) {
    if (token.size == 0 || !text_is(jinja_view_of(render->chat->symbols[symbol].text), name))
        return AVO_OK;
    return jinja_text_new(render, token, JINJA_TRUSTED, &render->globals[symbol]);
}

/* What each name of the template means before it runs. */
static avo_status set_globals(jinja_render *render) {
    const chat_template *chat = render->chat;
    const chat_template_input *input = render->input;
    AVO_TRY(jinja_take(render, chat->symbol_count, sizeof(jinja_value), &render->globals));
    for (uint32_t i = 0; i < chat->symbol_count; i++) {
        const jinja_symbol *symbol = &chat->symbols[i];
        const json_value *json = json_find_text(input->variables, jinja_view_of(symbol->text));
        if (json != NULL)
            AVO_TRY(jinja_from_json(render, json, &render->globals[i]));
        else if (symbol->function != FUNCTION_NONE)
            render->globals[i] =
                (jinja_value){.kind = JINJA_FUNCTION, .function = symbol->function};
        AVO_TRY(set_token(render, i, "bos_token", input->begin_token));
        AVO_TRY(set_token(render, i, "eos_token", input->end_token));
        AVO_TRY(set_token(render, i, "unk_token", input->unknown_token));
        AVO_TRY(set_token(render, i, "pad_token", input->padding_token));
    }
    return AVO_OK;
}

/* ---- Rendering ---- */

/* A copy of `spans` in the place of what *held has space for. */
static bool copy_spans(const avo_allocator *allocator, const text_span *spans, size_t count,
                       text_span **held, size_t *capacity) {
    if (count > *capacity) {
        text_span *larger = allocator_take_array(allocator, count, sizeof(*larger));
        if (larger == NULL)
            return false;
        allocator_give(allocator, *held, *capacity * sizeof(*larger));
        *held = larger;
        *capacity = count;
    }
    if (count > 0)
        memcpy(*held, spans, count * sizeof(*spans));
    return true;
}

static avo_status hand_over(jinja_render *render, const jinja_builder *result,
                            chat_template_output *output) {
    const avo_allocator *allocator = output->text.allocator;
    if (buffer_append(&output->text, result->data, result->size) != AVO_OK ||
        !copy_spans(allocator, result->spans, result->span_count, &output->trusted,
                    &output->trusted_capacity_) ||
        !copy_spans(allocator, render->generated, render->generated_count, &output->generated,
                    &output->generated_capacity_))
        return fail_here(render, AVO_ERROR_MEMORY, "out of memory for the rendered text");
    output->trusted_count = result->span_count;
    output->generated_count = render->generated_count;
    output->generated_inside = render->generated_inside;
    return AVO_OK;
}

static avo_status render_all(jinja_render *render, chat_template_output *output) {
    const chat_template *chat = render->chat;
    AVO_TRY(set_globals(render));
    AVO_TRY(jinja_scope_new(render, NULL, chat->hidden, chat->hidden_count, &render->scope));
    jinja_builder result;
    jinja_builder_init(&result, render);
    render->output = &result;
    render->page = &result;
    AVO_TRY(jinja_run(render, chat->body));
    return hand_over(render, &result, output);
}

avo_status chat_template_render(const chat_template *chat, const chat_template_input *input,
                                chat_template_output *output, avo_error *error) {
    jinja_render render = {.chat = chat,
                           .input = input,
                           .error = error,
                           .steps_left =
                               input->steps_max == 0 ? TEMPLATE_STEPS_MAX : input->steps_max};
    output->text.size = 0;
    output->trusted_count = 0;
    output->generated_count = 0;
    output->generated_inside = false;
    arena_init(&render.arena, output->text.allocator, TEMPLATE_MEMORY_MAX);
    avo_status status = render_all(&render, output);
    if (status != AVO_OK)
        output->text.size = 0;
    arena_free(&render.arena);
    return status;
}

/* ---- The usual variables ---- */

static json_value string_value(const char *text) {
    return (json_value){.kind = JSON_STRING, .string = text_from(text)};
}

avo_status chat_template_messages(arena *arena, const avo_message *messages, size_t count,
                                  bool add_generation_prompt, json_value *out, avo_error *error) {
    json_member *members = arena_take_array(arena, 4, sizeof(*members));
    json_value *items = arena_take_array(arena, count == 0 ? 1 : count, sizeof(*items));
    json_member *fields = arena_take_array(arena, count == 0 ? 1 : count, 2 * sizeof(*fields));
    if (members == NULL || items == NULL || fields == NULL)
        return status_fail(error, AVO_ERROR_MEMORY, "out of memory for %zu chat messages", count);
    for (size_t i = 0; i < count; i++) {
        if (messages[i].role == NULL || messages[i].content == NULL)
            return status_fail(error, AVO_ERROR_ARGUMENT, "chat message %zu: %s is missing", i,
                               messages[i].role == NULL ? "role" : "content");
        json_member *pair = fields + 2 * i;
        pair[0] = (json_member){TEXT_LITERAL("role"), string_value(messages[i].role)};
        pair[1] = (json_member){TEXT_LITERAL("content"), string_value(messages[i].content)};
        items[i] = (json_value){.kind = JSON_OBJECT, .object = {.members = pair, .count = 2}};
    }
    members[0] = (json_member){TEXT_LITERAL("messages"),
                               {.kind = JSON_ARRAY, .array = {.items = items, .count = count}}};
    members[1] = (json_member){TEXT_LITERAL("add_generation_prompt"),
                               {.kind = JSON_BOOLEAN, .boolean = add_generation_prompt}};
    /* As transformers does: known names without a value are none, not undefined. */
    members[2] = (json_member){TEXT_LITERAL("tools"), {.kind = JSON_NULL}};
    members[3] = (json_member){TEXT_LITERAL("documents"), {.kind = JSON_NULL}};
    *out = (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = 4}};
    return AVO_OK;
}
