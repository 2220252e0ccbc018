/* A hub's list of a model's files, and which of them to take. */
#ifndef AVO_HUB_LISTING_H
#define AVO_HUB_LISTING_H

#include "hub/hub_int.h"

typedef struct listing_file {
    text_view path; /* passed hub_path_check; in the arena */
    uint64_t bytes;
    char sha256[65];   /* of large files, else "" */
    char git_sha1[41]; /* of the others, else "" */
    bool chosen;
} listing_file;

typedef struct listing {
    arena *arena;
    listing_file *files;
    size_t count;
    size_t capacity;
} listing;

/* Appends one page: [{"type": "file", "path": "…", "size": 1, "oid": "…", "lfs": {"oid": "…",
 * "size": 1}}, …]. A path that would leave the folder refuses the whole list. */
AVO_MUST_USE avo_status listing_parse(listing *listing, text_view page, avo_error *error);
/* After the last page: sorts, and refuses a path that stands there twice. */
AVO_MUST_USE avo_status listing_finish(listing *listing, avo_error *error);

/* Marks what to take. Without patterns: safetensors with configuration and tokenizer; else the one
 * GGUF model, or its Q4_K_M variant (*note then says so; points into `text`). */
AVO_MUST_USE avo_status listing_choose(listing *listing, const char *const *patterns,
                                       size_t pattern_count, char *note, size_t note_capacity,
                                       avo_error *error);

#endif
