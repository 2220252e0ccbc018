/* A ClientHello (RFC 8446, 4.1.2), which may come in several records: version, random, session,
 * ciphers, compressions, extensions. Numbers are big-endian. */
#include "server/transport/client_hello.h"

#define RECORD_HANDSHAKE 22
#define CLIENT_HELLO     1
#define EXTENSION_ALPN   16

/* A number of some bytes. */
static bool take_number(cursor *cursor, size_t bytes, size_t *number) {
    const uint8_t *data;
    *number = 0;
    if (!cursor_take(cursor, bytes, &data))
        return false;
    for (size_t i = 0; i < bytes; i++)
        *number = *number << 8 | data[i];
    return true;
}

/* Bytes with their length in front. */
static bool take_vector(cursor *from, size_t length_bytes, cursor *out) {
    size_t size;
    const uint8_t *data;
    if (!take_number(from, length_bytes, &size) || !cursor_take(from, size, &data))
        return false;
    *out = cursor_over((bytes_view){data, size});
    return true;
}

/* The records' contents one behind the other, as far as they have come. False: behind these comes
 * something that is not of the handshake. */
static bool flatten(bytes_view bytes, uint8_t *out, size_t *size) {
    cursor in = cursor_over(bytes);
    *size = 0;
    while (cursor_left(&in) > 0 && *size < HELLO_BYTES_MAX) {
        const uint8_t *data;
        size_t type, length;
        cursor rest = in;
        if (!take_number(&rest, 1, &type) || type != RECORD_HANDSHAKE)
            return false;
        if (!cursor_skip(&rest, 2) || !take_number(&rest, 2, &length))
            return true;
        if (length == 0)
            return false; /* would never end */
        length = length < cursor_left(&rest) ? length : cursor_left(&rest);
        length = length < HELLO_BYTES_MAX - *size ? length : HELLO_BYTES_MAX - *size;
        if (!cursor_take(&rest, length, &data))
            return false;
        memcpy(out + *size, data, length);
        *size += length;
        in = rest;
    }
    return true;
}

static bool lists(cursor names, const char *protocol) {
    size_t wanted = strlen(protocol);
    cursor name;
    while (take_vector(&names, 1, &name))
        if (name.size == wanted && memcmp(name.data, protocol, wanted) == 0)
            return true;
    return false;
}

static bool body_offers(cursor body, const char *protocol) {
    cursor skipped, extensions, data, names;
    size_t type;
    if (!cursor_skip(&body, 2 + 32) || !take_vector(&body, 1, &skipped) ||
        !take_vector(&body, 2, &skipped) || !take_vector(&body, 1, &skipped) ||
        !take_vector(&body, 2, &extensions))
        return false;
    while (take_number(&extensions, 2, &type) && take_vector(&extensions, 2, &data))
        if (type == EXTENSION_ALPN)
            return take_vector(&data, 2, &names) && lists(names, protocol);
    return false;
}

hello_answer hello_offers(bytes_view bytes, const char *protocol) {
    uint8_t flat[HELLO_BYTES_MAX];
    size_t size, type, length;
    const uint8_t *data;
    hello_answer incomplete = flatten(bytes, flat, &size) ? HELLO_PARTIAL : HELLO_LACKS;
    cursor hello = cursor_over((bytes_view){flat, size});
    if (!take_number(&hello, 1, &type))
        return incomplete;
    if (type != CLIENT_HELLO)
        return HELLO_LACKS;
    if (!take_number(&hello, 3, &length))
        return incomplete;
    if (length > HELLO_BYTES_MAX - 4)
        return HELLO_LACKS;
    if (!cursor_take(&hello, length, &data))
        return incomplete;
    return body_offers(cursor_over((bytes_view){data, length}), protocol) ? HELLO_OFFERS
                                                                          : HELLO_LACKS;
}
