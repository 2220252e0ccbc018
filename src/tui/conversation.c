/* Messages in memory and on disk. */
#include "tui/conversation.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json_writer.h"

#include <stdlib.h>
#include <string.h>

void conversation_init(conversation *conversation) {
    memset(conversation, 0, sizeof(*conversation));
    buffer_init(&conversation->system, NULL, CONVERSATION_BYTES_MAX);
}

void conversation_free(conversation *conversation) {
    conversation_cut(conversation, 0);
    free(conversation->messages);
    buffer_free(&conversation->system);
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
    if (buffer_terminate(&added->text) != AVO_OK)
        return NULL;
    conversation->count++;
    return added;
}

avo_status message_append(message *message, text_view text) {
    AVO_TRY(buffer_append(&message->text, text.data, text.size));
    return buffer_terminate(&message->text);
}

void conversation_cut(conversation *conversation, size_t count) {
    while (conversation->count > count)
        buffer_free(&conversation->messages[--conversation->count].text);
}

void conversation_remove(conversation *conversation, size_t index) {
    buffer_free(&conversation->messages[index].text);
    conversation->count--;
    memmove(conversation->messages + index, conversation->messages + index + 1,
            (conversation->count - index) * sizeof(conversation->messages[0]));
}

avo_status conversation_set_system(conversation *conversation, text_view text) {
    buffer replaced;
    buffer_init(&replaced, NULL, CONVERSATION_BYTES_MAX);
    avo_status status = buffer_append(&replaced, text.data, text.size);
    if (status == AVO_OK)
        status = buffer_terminate(&replaced);
    if (status != AVO_OK) {
        buffer_free(&replaced);
        return status;
    }
    buffer_free(&conversation->system);
    conversation->system = replaced;
    return AVO_OK;
}

static const char *role_of(speaker speaker) {
    return speaker == SPEAKER_USER ? "user" : "assistant";
}

size_t conversation_messages(const conversation *conversation, avo_message *out) {
    size_t count = 0;
    if (conversation->system.size > 0)
        out[count++] = (avo_message){"system", conversation->system.data};
    for (size_t i = 0; i < conversation->count; i++) {
        const message *message = &conversation->messages[i];
        if (message->speaker != SPEAKER_NOTE)
            out[count++] = (avo_message){role_of(message->speaker), message->text.data};
    }
    return count;
}

/* ---- Files ---- */

static void write_message(json_writer *w, const char *role, const buffer *text) {
    json_object_begin(w);
    json_member_string(w, "role", role);
    json_member_text(w, "content", buffer_text(text));
    json_end(w);
}

static avo_status write_json(const conversation *conversation, const char *model, buffer *out) {
    json_writer w = json_writer_indented(out, 2);
    json_object_begin(&w);
    json_member_string(&w, "model", model == NULL ? "" : model);
    json_member_array_begin(&w, "messages");
    if (conversation->system.size > 0)
        write_message(&w, "system", &conversation->system);
    for (size_t i = 0; i < conversation->count; i++) {
        const message *message = &conversation->messages[i];
        if (message->speaker != SPEAKER_NOTE)
            write_message(&w, role_of(message->speaker), &message->text);
    }
    json_end(&w);
    json_end(&w);
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

static avo_status read_message(conversation *into, const json_value *value, size_t index,
                               const char *path, avo_error *error) {
    text_view role = {"", 0}, content = {"", 0};
    if (value->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: message %zu is not an object", path,
                           index);
    AVO_TRY(json_get_string(value, "role", &role, error));
    AVO_TRY(json_get_string(value, "content", &content, error));
    if (memchr(content.data, 0, content.size) != NULL)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: message %zu contains a zero byte", path,
                           index);
    if (text_equal(role, text_from("system")) && index == 0)
        return conversation_set_system(into, content);
    bool user = text_equal(role, text_from("user"));
    if (!user && !text_equal(role, text_from("assistant")))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: message %zu has role \"%.*s\", must be user or assistant (system "
                           "only as the first)",
                           path, index, TEXT_ARGUMENT(role));
    message *added = conversation_add(into, user ? SPEAKER_USER : SPEAKER_ASSISTANT);
    if (added == NULL)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: more than %u messages, or out of memory",
                           path, CONVERSATION_MESSAGES_MAX);
    return message_append(added, content);
}

static avo_status read_json(conversation *into, text_view text, const char *path, arena *arena,
                            avo_error *error) {
    json_value root;
    avo_error inner = {0};
    if (json_parse(arena, text, &root, &inner) != AVO_OK)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %s", path, inner.text);
    const json_value *messages = json_find(&root, "messages");
    if (messages == NULL || messages->kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: lacks an array \"messages\"", path);
    for (size_t i = 0; i < messages->array.count; i++)
        AVO_TRY(read_message(into, &messages->array.items[i], i, path, error));
    return AVO_OK;
}

avo_status conversation_load(conversation *conversation, const char *path, avo_error *error) {
    struct conversation read;
    file_map map;
    arena arena;
    AVO_TRY(file_map_open(path, &map, error));
    if (map.bytes.size > CONVERSATION_BYTES_MAX) {
        size_t bytes = map.bytes.size;
        file_map_close(&map);
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%s: the file has %zu bytes, must have at most %zu", path, bytes,
                           CONVERSATION_BYTES_MAX);
    }
    conversation_init(&read);
    arena_init(&arena, NULL, SIZE_MAX);
    text_view text = {map.bytes.size > 0 ? (const char *)map.bytes.data : "", map.bytes.size};
    avo_status status = read_json(&read, text, path, &arena, error);
    arena_free(&arena);
    file_map_close(&map);
    if (status != AVO_OK) {
        conversation_free(&read);
        return status;
    }
    conversation_free(conversation);
    *conversation = read;
    return AVO_OK;
}
