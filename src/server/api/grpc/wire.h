/* protobuf's wire format: tags, four wire types, nothing of messages (message.h).
 *
 * Own code rather than protobuf-c: that library generates code from .proto files, copies every
 * message into structures of its own by one malloc per string, and has no maximum for what a small
 * message may become. The format itself is two pages. Reading goes through the bounded cursor:
 * a read past the end, a varint of more than ten bytes or more than 64 bits, a field number out of
 * range and the two wire types of groups, which proto3 does not have, are refused. */
#ifndef AVO_GRPC_WIRE_H
#define AVO_GRPC_WIRE_H

#include "base/buffer.h"

typedef enum wire_type {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5
} wire_type;

#define WIRE_NUMBER_MAX ((1u << 29) - 1)

typedef struct wire_field {
    uint32_t number;
    wire_type type;
    uint64_t value;   /* of the types but WIRE_BYTES; fixed ones as their bits */
    bytes_view bytes; /* of WIRE_BYTES */
} wire_field;

/* The next field; false where the bytes are no field. Callers stop where cursor_left is 0. */
AVO_MUST_USE bool wire_read(cursor *cursor, wire_field *field);
AVO_MUST_USE bool wire_read_varint(cursor *cursor, uint64_t *value);

AVO_MUST_USE avo_status wire_write_varint(buffer *out, uint64_t value);
AVO_MUST_USE avo_status wire_write_tag(buffer *out, uint32_t number, wire_type type);
AVO_MUST_USE avo_status wire_write_bytes(buffer *out, uint32_t number, text_view bytes);

#endif
