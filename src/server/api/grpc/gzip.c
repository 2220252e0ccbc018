/* gzip by zlib, piece by piece into a bounded buffer. */
#include "server/api/grpc/gzip.h"

#include <zlib.h>

#define GZIP_ONLY (MAX_WBITS + 16)
#define PIECE     ((size_t)16 << 10)
#define LEVEL     1 /* answers are compressed by the thread that delivers everybody's tokens */

/* Moves what a step has written into the buffer. */
static avo_status give(z_stream *stream, uint8_t *piece, buffer *out) {
    avo_status status = buffer_append(out, piece, PIECE - stream->avail_out);
    stream->next_out = piece;
    stream->avail_out = PIECE;
    return status;
}

static void begin(z_stream *stream, bytes_view bytes, uint8_t *piece) {
    stream->next_in = (Bytef *)(uintptr_t)bytes.data;
    stream->avail_in = (uInt)bytes.size;
    stream->next_out = piece;
    stream->avail_out = PIECE;
}

avo_status gzip_inflate(bytes_view bytes, buffer *out) {
    uint8_t piece[PIECE];
    z_stream stream = {0};
    avo_status status = AVO_OK;
    int result = Z_OK;
    if (bytes.size > UINT32_MAX)
        return AVO_ERROR_LIMIT;
    if (inflateInit2(&stream, GZIP_ONLY) != Z_OK)
        return AVO_ERROR_MEMORY;
    begin(&stream, bytes, piece);
    while (result == Z_OK && status == AVO_OK) {
        result = inflate(&stream, Z_NO_FLUSH);
        status = give(&stream, piece, out);
    }
    bool whole = result == Z_STREAM_END && stream.avail_in == 0;
    inflateEnd(&stream);
    if (status != AVO_OK || whole)
        return status;
    return result == Z_MEM_ERROR ? AVO_ERROR_MEMORY : AVO_ERROR_FORMAT;
}

avo_status gzip_deflate(bytes_view bytes, buffer *out) {
    uint8_t piece[PIECE];
    z_stream stream = {0};
    avo_status status = AVO_OK;
    int result = Z_OK;
    if (bytes.size > UINT32_MAX)
        return AVO_ERROR_LIMIT;
    if (deflateInit2(&stream, LEVEL, Z_DEFLATED, GZIP_ONLY, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return AVO_ERROR_MEMORY;
    begin(&stream, bytes, piece);
    while (result == Z_OK && status == AVO_OK) {
        result = deflate(&stream, Z_FINISH);
        status = give(&stream, piece, out);
    }
    deflateEnd(&stream);
    return status != AVO_OK || result == Z_STREAM_END ? status : AVO_ERROR_MEMORY;
}
