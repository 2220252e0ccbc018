/* Fields of JSON bodies, by table: one row says a field's name, where it may stand, its type, range
 * and meaning. The same rows check requests, make /openapi.json and are compared with docs/api.md.
 */
#ifndef AVO_SERVER_API_FIELDS_H
#define AVO_SERVER_API_FIELDS_H

#include "chat/fields.h"
#include "server/api/schema.h"

/* ---- What is wrong with a request ---- */

typedef struct api_fault {
    unsigned status;  /* of HTTP; 0: nothing is wrong */
    const char *code; /* NULL: none */
    char param[96];   /* the field; empty: none */
    char text[AVO_ERROR_TEXT_MAX];
} api_fault;

/* Always false, so that a failure is one line. `param` may be NULL. */
bool fault_set(api_fault *fault, unsigned status, const char *param, const char *code,
               const char *format, ...) __attribute__((format(printf, 5, 6)));
/* 400 for a field. */
#define FAULT_FIELD(fault, param, ...) fault_set(fault, 400, param, "invalid_value", __VA_ARGS__)
bool fault_no_memory(api_fault *fault);
/* What is wrong with a conversation: 400, or 503 without memory. Always false. */
bool fault_from_chat(api_fault *fault, const chat_fault *wrong);

/* ---- Bodies ---- */

typedef enum api_body {
    BODY_CHAT = 1 << 0,
    BODY_COMPLETION = 1 << 1,
    BODY_RESPONSE = 1 << 2,
    BODY_MESSAGE = 1 << 3,
    BODY_COUNT = 1 << 4, /* /v1/messages/count_tokens */
    BODY_EMBEDDING = 1 << 5,
    BODY_TOKENIZE = 1 << 6,
    BODY_DETOKENIZE = 1 << 7,
    BODY_LOAD = 1 << 8,
    BODY_UNLOAD = 1 << 9,
    BODY_SCALES = 1 << 10, /* /lora-adapters: an array, not an object */
    BODY_LLAMA = 1 << 11,  /* /completion */
    BODY_INFILL = 1 << 12,
    BODY_TEMPLATE = 1 << 13,        /* /apply-template */
    BODY_LLAMA_EMBEDDING = 1 << 14, /* /embedding */
    BODY_OLLAMA_CHAT = 1 << 15,     /* /api/chat, … */
    BODY_OLLAMA_GENERATE = 1 << 16,
    BODY_OLLAMA_EMBED = 1 << 17,
    BODY_OLLAMA_VECTOR = 1 << 18, /* /api/embeddings */
    BODY_OLLAMA_NAME = 1 << 19,   /* bodies that name a model: show, pull */
    BODY_OPTIONS = 1 << 20,       /* no body of its own: `options` in ollama's */
    BODY_NONE = 0
} api_body;
#define BODY_VECTORS                                                                               \
    (BODY_EMBEDDING | BODY_LLAMA_EMBEDDING | BODY_OLLAMA_EMBED | BODY_OLLAMA_VECTOR)
#define BODY_ANSWERS (BODY_CHAT | BODY_COMPLETION | BODY_RESPONSE | BODY_MESSAGE)

typedef struct api_field {
    const char *name;
    uint32_t bodies; /* api_body, together */
    chat_field_kind kind;
    double minimum, maximum;
    size_t offset;        /* in api_request */
    const schema *schema; /* of FIELD_VALUE; else NULL */
    const char *text;     /* what it means */
} api_field;

typedef struct api_request api_request; /* api_int.h */

extern const api_field api_field_table[];
extern const size_t api_field_count;

/* Fields that a body of this kind must have, comma separated; "": none. */
const char *api_required(api_body body);

/* The members of the body's tree into the request, which holds the defaults. Unknown ones are
 * refused. Strings are copied into its arena. */
AVO_MUST_USE bool api_fields_read(api_request *request, api_fault *fault);
/* A FIELD_VALUE of the body; NULL: absent, null, or no field of such a body. */
const json_value *api_field_of(const api_request *request, const char *name);

/* A string value, terminated, without zero bytes, of at most `maximum` bytes. */
AVO_MUST_USE bool api_read_string(const json_value *value, const char *param, size_t maximum,
                                  arena *arena, const char **out, api_fault *fault);
/* An integer value in a range: 3 and 3.0. */
AVO_MUST_USE bool api_read_integer(const json_value *value, const char *param, int64_t minimum,
                                   int64_t maximum, int64_t *out, api_fault *fault);
AVO_MUST_USE bool api_read_number(const json_value *value, const char *param, double minimum,
                                  double maximum, double *out, api_fault *fault);

#endif
