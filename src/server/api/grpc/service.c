/* Methods, and the message in a body. */
#include "server/api/grpc/grpc_int.h"
#include "server/api/grpc/gzip.h"
#include "server/api/helpers.h"

#include <stdio.h>

#define OIP        "/inference.GRPCInferenceService/"
#define OWN        "/avocet.v1.Inference/"
#define REFLECTION "ServerReflection/ServerReflectionInfo"
#define READS      SERVER_CALL_READS
#define OPEN       (SERVER_CALL_READS | SERVER_CALL_OPEN)

static const grpc_entry entries[] = {
    {OWN "Chat", 0, method_forward, "POST", "/v1/chat/completions", true},
    {OWN "Complete", 0, method_tokens, "POST", "/v1/completions", true},
    {OWN "Embed", 0, method_embed, "POST", "/v1/embeddings", true},
    {OWN "Tokenize", 0, method_forward, "POST", "/tokenize", false},
    {OWN "ListModels", READS, method_forward, "GET", "/v1/models", false},
    {OWN "LoadAdapter", 0, method_forward, "POST", "/v1/load_lora_adapter", false},
    {OWN "UnloadAdapter", 0, method_forward, "POST", "/v1/unload_lora_adapter", false},
    {OIP "ServerLive", OPEN, method_live, NULL, NULL, false},
    {OIP "ServerReady", OPEN, method_ready, NULL, NULL, false},
    {OIP "ServerMetadata", READS, method_server, NULL, NULL, false},
    {OIP "ModelReady", READS, method_model_ready, NULL, NULL, false},
    {OIP "ModelMetadata", READS, method_model, NULL, NULL, false},
    {OIP "ModelInfer", 0, method_infer, "POST", "/v1/completions", true},
    {OIP "ModelStreamInfer", SERVER_CALL_CONVERSES, method_infer, "POST", "/v1/completions", true},
    {"/grpc.health.v1.Health/Check", OPEN, method_health, NULL, NULL, false},
    {"/grpc.health.v1.Health/Watch", OPEN | SERVER_CALL_WATCHES, method_watch, NULL, NULL, false},
    {"/grpc.reflection.v1." REFLECTION, READS | SERVER_CALL_CONVERSES, method_reflect, NULL, NULL,
     false},
    {"/grpc.reflection.v1alpha." REFLECTION, READS | SERVER_CALL_CONVERSES, method_reflect, NULL,
     NULL, false},
};

static const grpc_entry *entry_of(const char *path) {
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (strcmp(entries[i].path, path) == 0)
            return &entries[i];
    return NULL;
}

static const proto_method *method_of(const char *path) {
    for (size_t i = 0; i < proto_method_count; i++)
        if (strcmp(proto_methods[i].path, path) == 0)
            return &proto_methods[i];
    return NULL;
}

unsigned grpc_call_of(const char *path) {
    const grpc_entry *entry = entry_of(path);
    return entry == NULL ? 0 : entry->kind;
}

/* ---- Messages ---- */

/* Inflates a message into `plain`, which has the limit of messages. */
static bool inflate_message(exchange *exchange, bytes_view *message, buffer *plain) {
    const char *coding = exchange_header(exchange, "grpc-encoding");
    if (coding == NULL || strcmp(coding, "gzip") != 0) {
        exchange_fail(exchange, 501, NULL, "content_encoding",
                      "grpc-encoding %.40s is not supported; use gzip or identity",
                      coding == NULL ? "is missing, which" : coding);
        return false;
    }
    avo_status status = gzip_inflate(*message, plain);
    if (status == AVO_ERROR_LIMIT)
        exchange_fail(exchange, 413, NULL, "message_too_large",
                      "the message inflates to more than %zu bytes", GRPC_MESSAGE_BYTES_MAX);
    else if (status == AVO_ERROR_FORMAT)
        exchange_fail(exchange, 400, NULL, "bad_request",
                      "the message is compressed, but it is not one whole gzip stream");
    else if (status != AVO_OK)
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
    *message = (bytes_view){(const uint8_t *)plain->data, plain->size};
    return status == AVO_OK;
}

/* The only message of a body; `plain` has its bytes where it was compressed. */
static bool unframe(exchange *exchange, bytes_view *out, buffer *plain) {
    text_view body = exchange_asked(exchange)->body;
    if (body.size < GRPC_PREFIX_BYTES) {
        exchange_fail(exchange, 400, NULL, "bad_request", "the request has no message");
        return false;
    }
    grpc_prefix prefix = grpc_prefix_read(body.data);
    if (prefix.size != body.size - GRPC_PREFIX_BYTES) {
        exchange_fail(exchange, 400, NULL, "bad_request",
                      "the message announces %zu bytes, found %zu", prefix.size,
                      body.size - GRPC_PREFIX_BYTES);
        return false;
    }
    *out = (bytes_view){(const uint8_t *)body.data + GRPC_PREFIX_BYTES, prefix.size};
    return !prefix.compressed || inflate_message(exchange, out, plain);
}

static bool read_timeout(grpc_call *call) {
    const char *text = exchange_header(call->outer, "grpc-timeout");
    if (text == NULL)
        return true;
    if (!grpc_timeout_read(text, &call->timeout)) {
        grpc_call_fail(call, 400, "grpc-timeout must be up to eight digits and one of H M S m u n");
        return false;
    }
    if (call->timeout <= 0.0) {
        grpc_call_fail(call, 504, "the deadline passed before the first token");
        return false;
    }
    if (call->timeout > GRPC_TIMEOUT_MAX)
        call->timeout = 0.0;
    return true;
}

static void answer_message(api *api, exchange *exchange) {
    const char *path = exchange_asked(exchange)->path;
    bytes_view bytes;
    buffer plain;
    buffer_init(&plain, NULL, GRPC_MESSAGE_BYTES_MAX);
    if (!unframe(exchange, &bytes, &plain)) {
        buffer_free(&plain);
        return;
    }
    grpc_call *call = grpc_call_open(api, exchange, entry_of(path), method_of(path));
    if (call == NULL) {
        buffer_free(&plain);
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
        return;
    }
    call->plain = plain;
    call->gzip = plain.data != NULL;
    avo_error error = {0};
    json_value message;
    arena_init(&call->texts, NULL, GRPC_TREE_BYTES_FIXED + GRPC_TREE_BYTES_EACH * bytes.size);
    avo_status status = proto_read(call->method->input, bytes, &call->texts, &message, &error);
    if (status != AVO_OK)
        grpc_call_fail(call,
                       status != AVO_ERROR_MEMORY ? 400
                       : call->texts.limit_hit    ? 413
                                                  : 503,
                       error.text);
    else if (read_timeout(call))
        call->entry->answer(call, &message);
    grpc_call_release(call);
}

void grpc_handle(api *api, exchange *exchange) {
    const char *path = exchange_asked(exchange)->path;
    if (entry_of(path) == NULL || method_of(path) == NULL)
        exchange_fail(exchange, 501, NULL, "not_found", "no such method: %.200s", path);
    else
        helper_answer(api, exchange, answer_message);
}

/* ---- Methods that endpoints answer ---- */

void method_forward(grpc_call *call, json_value *message) {
    grpc_call_forward(call, message);
}

/* "prompt_tokens": [{"ids": […]}, …] is "prompt": [[…], …], and so is "input". */
static void name_tokens(json_value *message, const char *texts, const char *tokens) {
    const json_value none = {.kind = JSON_ARRAY};
    for (size_t i = 0; i < message->object.count; i++) {
        json_member *member = &message->object.members[i];
        if (!text_is(member->key, tokens))
            continue;
        member->key = text_from(texts); /* beside a text it is there twice, which is refused */
        for (size_t t = 0; t < member->value.array.count; t++) {
            const json_value *ids = json_find(&member->value.array.items[t], "ids");
            member->value.array.items[t] = ids == NULL ? none : *ids;
        }
    }
}

void method_tokens(grpc_call *call, json_value *message) {
    name_tokens(message, "prompt", "prompt_tokens");
    grpc_call_forward(call, message);
}

/* ---- Embeddings ---- */

static int digit_of(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
                                  : 63;
}

/* Base64 as the endpoint has written it. */
static bool decode(arena *arena, text_view *text) {
    uint8_t *bytes = arena_take(arena, text->size / 4 * 3 + 1);
    size_t size = 0;
    if (bytes == NULL)
        return false;
    for (size_t i = 0; i + 4 <= text->size; i += 4) {
        const char *four = text->data + i;
        uint32_t word = 0;
        for (size_t d = 0; d < 4; d++)
            word = word << 6 | (uint32_t)(four[d] == '=' ? 0 : digit_of(four[d]));
        bytes[size++] = (uint8_t)(word >> 16);
        bytes[size++] = (uint8_t)(word >> 8);
        bytes[size++] = (uint8_t)word;
        size -= (size_t)(four[2] == '=') + (size_t)(four[3] == '=');
    }
    *text = (text_view){(const char *)bytes, size};
    return true;
}

/* The numbers are little-endian floats in both forms, so that they need not be read: thousands of
 * vectors would keep the thread that delivers everybody's tokens. */
static avo_status convert_vectors(grpc_call *call, const json_value *answer, json_value *message,
                                  bool *told) {
    (void)message; /* the answer itself */
    (void)told;
    const json_value *list = json_find(answer, "data");
    for (size_t i = 0; list != NULL && list->kind == JSON_ARRAY && i < list->array.count; i++) {
        json_value *item = &list->array.items[i];
        for (size_t m = 0; item->kind == JSON_OBJECT && m < item->object.count; m++) {
            json_member *member = &item->object.members[m];
            if (text_is(member->key, "embedding") && member->value.kind == JSON_STRING &&
                !decode(&call->parts, &member->value.string))
                return AVO_ERROR_MEMORY;
        }
    }
    return AVO_OK;
}

void method_embed(grpc_call *call, json_value *message) {
    size_t count = message->object.count;
    json_member *members = arena_take_array(&call->texts, count + 1, sizeof(*members));
    if (members == NULL) {
        grpc_call_fail(call, 503, "out of memory");
        return;
    }
    if (count > 0)
        memcpy(members, message->object.members, count * sizeof(*members));
    members[count] =
        (json_member){TEXT_LITERAL("encoding_format"), tree_text(TEXT_LITERAL("base64"))};
    json_value request = tree_object(members, count + 1);
    name_tokens(&request, "input", "input_tokens");
    call->convert = convert_vectors;
    grpc_call_forward(call, &request);
}
