/* Messages in memory and on disk. */
#include "tui/conversation.h"

#include "base/file.h"
#include "base/json_writer.h"
#include "base/value.h"

#include <stdlib.h>
#include <string.h>

void conversation_init(conversation *conversation) {
    memset(conversation, 0, sizeof(*conversation));
    buffer_init(&conversation->system, NULL, CONVERSATION_BYTES_MAX);
    arena_init(&conversation->turns, NULL, SIZE_MAX);
}

void conversation_free(conversation *conversation) {
    conversation_cut(conversation, 0);
    free(conversation->messages);
    buffer_free(&conversation->system);
    arena_free(&conversation->turns);
    avo_value_close(conversation->loaded);
    conversation_init(conversation);
}

message *conversation_add(conversation *conversation, speaker speaker) {
    if (conversation->count == CONVERSATION_MESSAGES_MAX)
        return NULL;
    if (conversation->count == conversation->capacity) {
        size_t capacity = conversation->capacity == 0 ? 32 : conversation->capacity * 2;
        message *larger = realloc(conversation->messages, capacity * sizeof(*larger));
        if (larger == NULL)
            return NULL;
        conversation->messages = larger;
        conversation->capacity = capacity;
    }
    message *added = &conversation->messages[conversation->count];
    *added = (message){.speaker = speaker};
    buffer_init(&added->text, NULL, CONVERSATION_BYTES_MAX);
    buffer_init(&added->spans, NULL, CONVERSATION_BYTES_MAX);
    if (buffer_terminate(&added->text) != AVO_OK)
        return NULL;
    conversation->count++;
    return added;
}

avo_status message_append(message *message, text_view text) {
    AVO_TRY(buffer_append(&message->text, text.data, text.size));
    return buffer_terminate(&message->text);
}

size_t message_span_count(const message *message) {
    return message->spans.size / sizeof(message_span);
}

const message_span *message_span_at(const message *message, size_t index) {
    return (const message_span *)(const void *)message->spans.data + index;
}

avo_status message_append_tokens(message *message, text_view text, bool drafted) {
    if (text.size == 0)
        return AVO_OK;
    AVO_TRY(message_append(message, text));
    size_t count = message_span_count(message);
    message_span *last = (message_span *)(void *)message->spans.data + (count > 0 ? count - 1 : 0);
    if (count > 0 && last->drafted == drafted) {
        last->end = message->text.size;
        return AVO_OK;
    }
    message_span span = {message->text.size, drafted};
    return buffer_append(&message->spans, &span, sizeof(span));
}

static void message_free(message *message) {
    buffer_free(&message->text);
    buffer_free(&message->spans);
}

void conversation_cut(conversation *conversation, size_t count) {
    while (conversation->count > count)
        message_free(&conversation->messages[--conversation->count]);
}

void conversation_remove(conversation *conversation, size_t index) {
    message_free(&conversation->messages[index]);
    conversation->count--;
    memmove(conversation->messages + index, conversation->messages + index + 1,
            (conversation->count - index) * sizeof(conversation->messages[0]));
}

avo_status conversation_set_system(conversation *conversation, text_view text) {
    buffer replaced;
    buffer_init(&replaced, NULL, CONVERSATION_BYTES_MAX);
    avo_status status = buffer_append(&replaced, text.data, text.size);
    AVO_THEN(status, buffer_terminate(&replaced));
    if (status != AVO_OK) {
        buffer_free(&replaced);
        return status;
    }
    buffer_free(&conversation->system);
    conversation->system = replaced;
    return AVO_OK;
}

static const char *role_of(speaker speaker) {
    return speaker == SPEAKER_USER ? "user" : speaker == SPEAKER_TOOL ? "tool" : "assistant";
}

/* System and all messages but notes. */
static bool all_turns(const conversation *conversation, chat_turns *turns, chat_fault *fault) {
    chat_turn system = {.role = "system", .content = buffer_text(&conversation->system)};
    if (system.content.size > 0 && !chat_turn_add(turns, system, fault))
        return false;
    for (size_t i = 0; i < conversation->count; i++) {
        const message *message = &conversation->messages[i];
        chat_turn turn = {.role = role_of(message->speaker),
                          .content = buffer_text(&message->text)};
        if (message->turn != NULL)
            turn = *message->turn;
        if (message->speaker != SPEAKER_NOTE && !chat_turn_add(turns, turn, fault))
            return false;
    }
    return true;
}

avo_status conversation_variables(const conversation *conversation, const chat_format *format,
                                  avo_value **variables, avo_error *error) {
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    chat_fault fault = {0};
    chat_turns turns = {.arena = &arena};
    chat_settings settings = {.dialect = CHAT_COMPLETIONS};
    chat_prompt prompt;
    avo_status status;
    if (all_turns(conversation, &turns, &fault) &&
        chat_prompt_read(format, &turns, &settings, &arena, &prompt, &fault))
        status = value_copy(&prompt.variables, NULL, SIZE_MAX, NULL, variables, error);
    else
        status = status_fail(error, fault.status, "%s", fault.text);
    arena_free(&arena);
    return status;
}

/* ---- Files ---- */

static void write_turn(json_writer *w, const chat_turn *turn) {
    json_object_begin(w);
    json_member_string(w, "role", turn->role);
    json_member_text(w, "content", turn->content);
    if (turn->name.data != NULL)
        json_member_text(w, "name", turn->name);
    if (turn->call_id.data != NULL)
        json_member_text(w, "tool_call_id", turn->call_id);
    if (turn->call_count > 0) {
        json_value calls = {.kind = JSON_ARRAY, .array = {turn->calls, turn->call_count}};
        json_member_tree(w, "tool_calls", &calls);
    }
    json_end(w);
}

static avo_status write_json(const conversation *conversation, const char *model, buffer *out) {
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    chat_fault fault = {0};
    chat_turns turns = {.arena = &arena};
    json_writer w = json_writer_indented(out, 2);
    if (!all_turns(conversation, &turns, &fault))
        json_writer_note(&w, fault.status);
    json_object_begin(&w);
    json_member_string(&w, "model", model == NULL ? "" : model);
    json_member_array_begin(&w, "messages");
    for (size_t i = 0; i < turns.count; i++)
        write_turn(&w, &turns.items[i]);
    json_end(&w);
    json_end(&w);
    arena_free(&arena);
    AVO_TRY(json_writer_status(&w));
    return buffer_append(out, "\n", 1);
}

avo_status conversation_save(const conversation *conversation, const char *path, const char *model,
                             avo_error *error) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = write_json(conversation, model, &out);
    if (status != AVO_OK)
        status = status_no_memory(error, "the conversation", out.size);
    else
        status = file_write(path, out.data, out.size, error);
    buffer_free(&out);
    return status;
}

static avo_status add_text(conversation *into, speaker speaker, text_view text,
                           const chat_turn *turn, avo_error *error) {
    message *added = conversation_add(into, speaker);
    if (added == NULL)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %u messages, or out of memory",
                           CONVERSATION_MESSAGES_MAX);
    added->turn = turn;
    return message_append(added, text);
}

/* For the reader: what was called. */
static avo_status add_calls(conversation *into, const chat_turn *turn, avo_error *error) {
    for (size_t i = 0; i < turn->call_count; i++) {
        const json_value *function = json_find(&turn->calls[i], "function");
        buffer text;
        buffer_init(&text, NULL, CONVERSATION_BYTES_MAX);
        avo_status status =
            buffer_format(&text, "Calls %.*s ", TEXT_ARGUMENT(json_find(function, "name")->string));
        AVO_THEN(status, json_write_value(&text, json_find(function, "arguments")));
        AVO_THEN(status, add_text(into, SPEAKER_NOTE, buffer_text(&text), NULL, error));
        buffer_free(&text);
        AVO_TRY(status);
    }
    return AVO_OK;
}

static avo_status add_turn(conversation *into, const chat_turn *turn, size_t index,
                           avo_error *error) {
    bool plain = turn->call_count == 0 && turn->call_id.data == NULL && turn->name.data == NULL;
    speaker speaker = strcmp(turn->role, "user") == 0   ? SPEAKER_USER
                      : strcmp(turn->role, "tool") == 0 ? SPEAKER_TOOL
                                                        : SPEAKER_ASSISTANT;
    if (strcmp(turn->role, "system") == 0) {
        if (index == 0)
            return conversation_set_system(into, turn->content);
        return status_fail(error, AVO_ERROR_FORMAT,
                           "messages[%zu]: only the first message may have the role system", index);
    }
    AVO_TRY(add_text(into, speaker, turn->content, plain ? NULL : turn, error));
    return add_calls(into, turn, error);
}

static avo_status read_json(conversation *into, text_view text, avo_error *error) {
    AVO_TRY(avo_value_open(text.data, text.size, NULL, &into->loaded, error));
    const json_value *messages = json_find(value_tree(into->loaded), "messages");
    if (messages == NULL || messages->kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT, "has no array \"messages\"");
    chat_fault fault = {0};
    chat_turns turns = {.arena = &into->turns, .arguments_left = SIZE_MAX};
    if (messages->array.count > 0 && !chat_turns_read(&turns, CHAT_COMPLETIONS, messages, &fault))
        return status_fail(error, AVO_ERROR_FORMAT, "%s", fault.text);
    for (size_t i = 0; i < turns.count; i++)
        AVO_TRY(add_turn(into, &turns.items[i], i, error));
    return AVO_OK;
}

avo_status conversation_load(conversation *conversation, const char *path, avo_error *error) {
    struct conversation read;
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    if (map.bytes.size > CONVERSATION_BYTES_MAX) {
        size_t bytes = map.bytes.size;
        file_map_close(&map);
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%s: the file has %zu bytes, must have at most %zu", path, bytes,
                           CONVERSATION_BYTES_MAX);
    }
    conversation_init(&read);
    text_view text = {map.bytes.size > 0 ? (const char *)map.bytes.data : "", map.bytes.size};
    avo_status status = read_json(&read, text, error);
    file_map_close(&map);
    if (status != AVO_OK) {
        conversation_free(&read);
        return status_prefix(error, status, "%s", path);
    }
    conversation_free(conversation);
    *conversation = read;
    return AVO_OK;
}
