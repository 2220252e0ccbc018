/* What the readers share. Only this folder includes it (and its tests and fuzz entries).
 *
 * A reader gets a loader: the source being built and where its files come from. It maps every file
 * it needs through the loader, so that the source owns the maps, fills tensors, configuration,
 * tokenizer source and generation defaults, and leaves cleaning up to source_close.
 */
#ifndef AVO_FORMATS_FORMATS_INT_H
#define AVO_FORMATS_FORMATS_INT_H

#include "formats/gguf.h"
#include "formats/source.h"

/* ---- The loader (source.c) ---- */

/* A file that lies in memory. */
typedef struct memory_file {
    const char *name; /* as a path without folder */
    bytes_view bytes; /* outlives the source */
} memory_file;

typedef struct source_loader {
    model_source *source;
    const char *folder;        /* of the model's files; "." where the path has none */
    const memory_file *memory; /* in place of the disk; NULL: the disk */
    size_t memory_count;
    bool tensors_only; /* no configuration, no tokenizer: source_open_tensors */
} source_loader;

/* For tests and fuzzing: files[0] is what is opened, the others are what lies beside it. */
AVO_MUST_USE avo_status source_open_memory(const memory_file *files, size_t count,
                                           const avo_allocator *allocator, model_source **source,
                                           avo_error *error);

/* Maps a file and keeps it with the source; *index is its place in source->files. */
AVO_MUST_USE avo_status source_file_open(source_loader *loader, const char *path, uint32_t *index,
                                         avo_error *error);
/* The same for `name` in the model's folder; when there is none *index is SOURCE_NO_FILE. */
#define SOURCE_NO_FILE UINT32_MAX
AVO_MUST_USE avo_status source_file_beside(source_loader *loader, const char *name, uint32_t *index,
                                           avo_error *error);

static inline bytes_view source_file_bytes(const model_source *source, uint32_t index) {
    return source->files[index].map.bytes;
}

/* A terminated copy in the source's arena. */
AVO_MUST_USE avo_status source_copy_text(model_source *source, text_view text, const char **copy,
                                         avo_error *error);
/* `count` cleared items in the source's arena. */
AVO_MUST_USE avo_status source_take(model_source *source, size_t count, size_t size,
                                    const char *what, void **items, avo_error *error);
/* Room for `count` tensors in all; keeps those that are there. */
AVO_MUST_USE avo_status source_tensors_reserve(model_source *source, uint64_t count,
                                               avo_error *error);
/* The last step of a reader: sorts nothing, indexes names, refuses a name that appears twice. */
AVO_MUST_USE avo_status source_tensors_index(model_source *source, avo_error *error);
/* Refuses tensors from `first` on (all of one file) that share bytes of `data`. With `gapless`,
 * also bytes of it that belong to none. */
AVO_MUST_USE avo_status source_tensors_cover(model_source *source, uint32_t first, bytes_view data,
                                             bool gapless, const char *path, avo_error *error);

/* Parses JSON of a file into `arena`; the error names the file. A tree that hits the arena's limit
 * is AVO_ERROR_LIMIT. */
AVO_MUST_USE avo_status source_json(arena *arena, bytes_view bytes, const char *file,
                                    json_value *root, avo_error *error);

/* What JSON trees may take, so that opening takes no more than 64 MiB beside the file: a
 * safetensors header (30,000 tensors), the list of shards that is there at the same time,
 * config.json, whose tree stays, and the other files, of which there is one at a time. */
#define SOURCE_HEADER_TREE_MAX ((size_t)40 << 20)
#define SOURCE_INDEX_TREE_MAX  ((size_t)12 << 20)
#define SOURCE_CONFIG_TREE_MAX ((size_t)8 << 20)
#define SOURCE_OTHER_TREE_MAX  ((size_t)32 << 20)

/* ---- Readers; files[0] is mapped ---- */

AVO_MUST_USE avo_status gguf_source_open(source_loader *loader, avo_error *error);
AVO_MUST_USE avo_status llama2c_source_open(source_loader *loader, avo_error *error);
AVO_MUST_USE avo_status safetensors_source_open(source_loader *loader, avo_error *error);
/* A folder; no file is mapped yet. */
AVO_MUST_USE avo_status safetensors_folder_open(source_loader *loader, avo_error *error);
/* avo_read.c */
AVO_MUST_USE avo_status avo_source_open(model_source *source, avo_error *error);

/* ---- GGUF (gguf_metadata.c) ---- */

#define GGUF_VALUES_MAX  65536
#define GGUF_STRINGS_MAX SOURCE_VOCABULARY_MAX /* in all arrays together: 32 MiB of offsets */
#define GGUF_DEPTH_MAX   4                     /* of arrays in arrays */

/* Reads `count` key-value pairs at the cursor. */
AVO_MUST_USE avo_status gguf_metadata_read(arena *arena, cursor *cursor, uint64_t count,
                                           const char *file, gguf_metadata *metadata,
                                           avo_error *error);

/* Tokenizer source, template and generation defaults (gguf_tokenizer.c). */
AVO_MUST_USE avo_status gguf_tokenizer_source(model_source *source, avo_error *error);

/* ---- Configuration ---- */

/* From GGUF metadata and tensors (config_gguf.c). */
AVO_MUST_USE avo_status config_from_gguf(model_source *source, avo_error *error);
/* From a parsed config.json (config_hf.c); `file` for messages. */
AVO_MUST_USE avo_status config_from_hf(model_source *source, const json_value *root,
                                       const char *file, avo_error *error);

/* bos_token_id and eos_token_id (a number or a list) of a config or generation config. */
AVO_MUST_USE avo_status hf_token_ids(model_source *source, const json_value *object,
                                     const char *file, bool *ends_given, avo_error *error);
/* Everything in the folder but the weights: config.json, generation_config.json, tokenizer and chat
 * template (hf_folder.c). Tensors are indexed already. */
AVO_MUST_USE avo_status hf_folder_read(source_loader *loader, avo_error *error);

/* ---- Generation defaults (generation.c; what neighbours use is in source.h) ---- */

/* Sets what a file says; out of the sampler's range is AVO_ERROR_FORMAT that names `key`. */
AVO_MUST_USE avo_status generation_number_set(generation_defaults *defaults, generation_field field,
                                              double number, const char *file, const char *key,
                                              avo_error *error);
/* 0 and −1 both mean "off" to those who write these files. */
AVO_MUST_USE avo_status generation_top_k_set(generation_defaults *defaults, int64_t top_k,
                                             const char *file, const char *key, avo_error *error);
/* Adds once; AVO_ERROR_LIMIT past SOURCE_STOP_TOKENS_MAX. Negative ids are ignored. */
AVO_MUST_USE avo_status generation_stop_add(generation_defaults *defaults, int64_t token,
                                            const char *file, avo_error *error);
/* All of it at once: what a .avo holds or is to hold. */
AVO_MUST_USE avo_status generation_check(const generation_defaults *defaults, uint32_t vocabulary,
                                         const char *file, avo_error *error);

/* ---- What all configurations share (config.c) ---- */

/* The per-layer tables, with windows and rotation everywhere or nowhere. */
AVO_MUST_USE avo_status config_layers_fill(model_source *source, bool windowed, bool rotary,
                                           avo_error *error);
/* What must hold whatever the format: relations between the fields. */
AVO_MUST_USE avo_status config_check(const model_config *config, const char *file,
                                     avo_error *error);

#endif
