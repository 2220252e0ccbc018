/* Session files: a timeline with its K and V, little-endian.
 *
 *   offset                        what
 *   0                             session_header, 256 bytes
 *   256                           adapters of the session, session_file_adapter each, by digest
 *   behind them                   tokens, 4 bytes each
 *   at the next multiple of 64    pages of K and V as the pool has them (kv_tile.h), page_bytes
 *                                 each, as many as the computed tokens need; positions behind the
 *                                 last computed one are zero
 *
 * Sums are XXH3 of 64 bits. Nothing is converted: a file is for the model, adapters, KV type and
 * arithmetic it was made with, and everybody else refuses it by name.
 */
#ifndef AVO_ENGINE_SESSION_FILE_H
#define AVO_ENGINE_SESSION_FILE_H

#include "base/cursor.h"
#include "base/status.h"

#define SESSION_FILE_MAGIC   "AVOSESS" /* with its zero: 8 bytes */
#define SESSION_FILE_VERSION 1

typedef struct session_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* 256 */
    uint64_t file_bytes;
    uint64_t model_digest; /* source_digest */
    char kv_type[8];       /* "f16", filled with zeros */
    char arithmetic[8];    /* device_info.bits: "ref", "fast" (exact arithmetic), "tc90", … */
    uint32_t rope_context; /* as the engine was asked for */
    uint32_t page_tokens;
    uint64_t page_bytes;
    uint32_t tokens, computed; /* of the timeline; of these, how many have K and V */
    uint32_t adapters;
    uint32_t reserved_word; /* zero */
    uint64_t forgotten;     /* tokens that a ring's turns have left out: draws go on behind them */
    uint8_t reserved[152];  /* zero */
    uint64_t body_sum;      /* of everything behind the header */
    uint64_t header_sum;    /* of everything before this field */
} session_header;
_Static_assert(sizeof(session_header) == 256, "the header's size is part of the format");

typedef struct session_file_adapter {
    uint64_t digest[2];
    float weight;
    uint32_t reserved; /* zero */
} session_file_adapter;
_Static_assert(sizeof(session_file_adapter) == 24, "part of the format");

/* The bytes of a file into an empty session; `path` is for messages. */
AVO_MUST_USE avo_status session_file_load(avo_session *session, bytes_view bytes, const char *path,
                                          avo_error *error);

#endif
