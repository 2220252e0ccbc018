/* protobuf's wire format. */
#include "server/api/grpc/wire.h"

bool wire_read_varint(cursor *cursor, uint64_t *value) {
    uint64_t read = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint8_t byte = 0;
        if (!cursor_read_u8(cursor, &byte) || (shift == 63 && byte > 1))
            return false;
        read |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = read;
            return true;
        }
    }
    return false;
}

static bool read_bytes(cursor *cursor, wire_field *field) {
    uint64_t size = 0;
    if (!wire_read_varint(cursor, &size) || size > cursor_left(cursor))
        return false;
    field->bytes.size = (size_t)size;
    return cursor_take(cursor, (size_t)size, &field->bytes.data);
}

bool wire_read(cursor *cursor, wire_field *field) {
    uint64_t tag = 0;
    uint32_t word = 0;
    *field = (wire_field){0};
    if (!wire_read_varint(cursor, &tag) || tag >> 3 == 0 || tag >> 3 > WIRE_NUMBER_MAX)
        return false;
    field->number = (uint32_t)(tag >> 3);
    field->type = (wire_type)(tag & 7);
    switch (field->type) {
    case WIRE_VARINT:
        return wire_read_varint(cursor, &field->value);
    case WIRE_FIXED64:
        return cursor_read_u64(cursor, &field->value);
    case WIRE_BYTES:
        return read_bytes(cursor, field);
    case WIRE_FIXED32:
        if (!cursor_read_u32(cursor, &word))
            return false;
        field->value = word;
        return true;
    default:
        return false;
    }
}

avo_status wire_write_varint(buffer *out, uint64_t value) {
    uint8_t bytes[10];
    size_t size = 0;
    do {
        bytes[size++] = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    return buffer_append(out, bytes, size);
}

avo_status wire_write_tag(buffer *out, uint32_t number, wire_type type) {
    return wire_write_varint(out, (uint64_t)number << 3 | type);
}

avo_status wire_write_bytes(buffer *out, uint32_t number, text_view bytes) {
    AVO_TRY(wire_write_tag(out, number, WIRE_BYTES));
    AVO_TRY(wire_write_varint(out, bytes.size));
    return buffer_append(out, bytes.data, bytes.size);
}
