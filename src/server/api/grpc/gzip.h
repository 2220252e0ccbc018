/* Messages that are compressed with gzip, as grpc-encoding says. The caller's buffers have limits:
 * a message that grows past GRPC_MESSAGE_BYTES_MAX is refused while it is inflated. */
#ifndef AVO_GRPC_GZIP_H
#define AVO_GRPC_GZIP_H

#include "base/buffer.h"

#define GRPC_GZIP_BYTES_MIN                                                                        \
    ((size_t)1024) /* of an answer's message: a shorter one gains nothing                          \
                    */

/* Appends what the bytes inflate to. AVO_ERROR_FORMAT: they are damaged, or not one gzip stream;
 * AVO_ERROR_LIMIT: longer than the buffer may be. */
AVO_MUST_USE avo_status gzip_inflate(bytes_view bytes, buffer *out);
/* Appends the bytes, compressed. */
AVO_MUST_USE avo_status gzip_deflate(bytes_view bytes, buffer *out);

#endif
