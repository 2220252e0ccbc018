/* Messages of protobuf as JSON trees, and back, by tables that the build makes of proto/
 * (tools/protos). What crosses between gRPC and the endpoints is JSON, so both interfaces read the
 * same requests and say the same answers.
 *
 *   scalars    numbers, booleans; bytes are strings, whatever is in them
 *   strings    must be UTF-8
 *   NAME_json  a string field that holds JSON is the member NAME with that value
 *   repeated   arrays; absent where there is none
 *   maps       objects
 *   floats     of a repeated field, when written, may be a string of their bytes, little-endian
 *
 * As in every reader of protobuf, of a scalar that comes twice the last one counts, and messages
 * that come twice are merged. Unknown fields are refused in our own messages, as the REST API
 * refuses unknown members, and skipped in those of others. */
#ifndef AVO_GRPC_MESSAGE_H
#define AVO_GRPC_MESSAGE_H

#include "base/json.h"

#define PROTO_DEPTH_MAX 16u

typedef enum proto_kind {
    PROTO_DOUBLE,
    PROTO_FLOAT,
    PROTO_INT64,
    PROTO_UINT64,
    PROTO_INT32, /* enums, too */
    PROTO_UINT32,
    PROTO_BOOL,
    PROTO_STRING,
    PROTO_BYTES,
    PROTO_JSON,
    PROTO_MESSAGE,
    PROTO_MAP
} proto_kind;

typedef struct proto_message proto_message;

typedef struct proto_field {
    const char *name, *member; /* as the .proto has it, and in JSON */
    uint32_t number;
    proto_kind kind;
    bool repeated; /* true for maps */
    const proto_message *message;
} proto_field;

struct proto_message {
    const char *name;          /* in full */
    const proto_field *fields; /* by number */
    size_t count;
    bool strict; /* unknown fields are refused */
};

typedef struct proto_method {
    const char *path; /* "/package.Service/Method" */
    const proto_message *input, *output;
    bool client_streams, server_streams;
} proto_method;

typedef struct proto_file {
    const char *name;
    bytes_view descriptor; /* FileDescriptorProto */
    const char *const *symbols;
    size_t symbol_count;
} proto_file;

/* Made by the build. */
extern const proto_file proto_files[];
extern const size_t proto_file_count;
extern const proto_method proto_methods[];
extern const size_t proto_method_count;
extern const char *const proto_services[]; /* names in full */
extern const size_t proto_service_count;

/* `bytes` as an object; strings point into them, so both live as long as the tree. AVO_ERROR_FORMAT
 * with the field's name, AVO_ERROR_MEMORY where the arena or the memory is full. */
AVO_MUST_USE avo_status proto_read(const proto_message *message, bytes_view bytes, arena *arena,
                                   json_value *out, avo_error *error);
/* The members of an object that the message has; others are left out. Numbers become strings where
 * the field is one, null in a repeated float is NaN. AVO_ERROR_FORMAT where a value does not fit.
 */
AVO_MUST_USE avo_status proto_write(const proto_message *message, const json_value *object,
                                    buffer *out, avo_error *error);

/* ---- Trees by hand ---- */

/* `members` and `items` must live as long as the tree. */
json_value tree_object(json_member *members, size_t count);
json_value tree_array(json_value *items, size_t count);
json_value tree_text(text_view text);
json_value tree_integer(int64_t number);
json_value tree_boolean(bool boolean);
json_value tree_number(double number);

#endif
