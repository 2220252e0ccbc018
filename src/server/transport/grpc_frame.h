/* What gRPC adds to HTTP: five bytes in front of every message (a flag and the length, big-endian),
 * statuses of its own in trailers, and texts that are percent-encoded there. Used by the carrier,
 * which finds messages in bodies, and by server/api/grpc/, which writes them. Nothing here can fail
 * but for memory. */
#ifndef AVO_SERVER_GRPC_FRAME_H
#define AVO_SERVER_GRPC_FRAME_H

#include "base/buffer.h"

#define GRPC_PREFIX_BYTES      5u
#define GRPC_MESSAGE_BYTES_MAX ((size_t)4 << 20)
#define GRPC_TEXT_BYTES_MAX    1024u /* of an error's text: it travels as a header */

typedef struct grpc_prefix {
    bool compressed;
    size_t size; /* of the message */
} grpc_prefix;

static inline grpc_prefix grpc_prefix_read(const char bytes[static GRPC_PREFIX_BYTES]) {
    const unsigned char *b = (const unsigned char *)bytes;
    return (grpc_prefix){b[0] != 0, (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 |
                                        (size_t)b[4]};
}

static inline void grpc_prefix_write(char bytes[static GRPC_PREFIX_BYTES], size_t size) {
    bytes[0] = 0; /* not compressed */
    for (unsigned i = 0; i < 4; i++)
        bytes[1 + i] = (char)(size >> (24 - 8 * i) & 0xFF);
}

/* grpc-status for a status of HTTP; 0 for those below 300. */
unsigned grpc_status_of(unsigned http);
/* As grpc-message has it; cut after GRPC_TEXT_BYTES_MAX bytes. */
AVO_MUST_USE avo_status grpc_text_write(const char *text, buffer *out);
/* "100m", "5S" and the like into seconds; false where it is none. */
bool grpc_timeout_read(const char *text, double *seconds);

#endif
