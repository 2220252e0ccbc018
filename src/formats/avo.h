/* The .avo file, byte by byte (docs/format.md says the same in prose), its writer and its sums.
 * Everything is little-endian, and every struct here lies in the file as it stands.
 *
 *   header     256 bytes at offset 0
 *   sections   manifest, names, config, tokenizer, template, generation, notes: in this order, each
 *              at a multiple of 8, each with its sum in the header; an absent one has no bytes
 *   tensors    from data_offset, a multiple of 4096, in the order in which a forward pass reads
 *              them; each at a multiple of 64, each layer at a multiple of 4096, so that matrices
 *              of one fused product (q, k, v; gate, up) follow each other without a gap
 *
 * Opening reads the header and the small sections and checks their sums; tensors, tokenizer and
 * template are used where they lie and summed by avo_source_verify alone.
 */
#ifndef AVO_FORMATS_AVO_H
#define AVO_FORMATS_AVO_H

#include "formats/source.h"

#define AVO_MAGIC            "AVOCET\r\n"
#define AVO_VERSION          1u
#define AVO_DATA_ALIGNMENT   4096u
#define AVO_TENSOR_ALIGNMENT 64u
#define AVO_NOTES_MAX        64u
#define AVO_NOTE_BYTES_MAX   ((size_t)1 << 16) /* of the whole section */
#define AVO_TOKENIZER_MAX    ((uint64_t)1 << 30)

typedef enum avo_section_kind {
    AVO_MANIFEST,   /* tensor_count × avo_tensor_entry */
    AVO_NAMES,      /* the tensors' names, one after another */
    AVO_CONFIG,     /* avo_config_record and its arrays */
    AVO_TOKENIZER,  /* the tokenizer's image */
    AVO_TEMPLATE,   /* the chat template, UTF-8 */
    AVO_GENERATION, /* avo_generation_record */
    AVO_NOTES,      /* count, then lengths and texts of keys and values */
    AVO_SECTION_COUNT
} avo_section_kind;

typedef struct avo_section {
    uint64_t offset, bytes;
    uint64_t sum; /* XXH3 */
} avo_section;

typedef struct avo_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* 256 */
    uint64_t file_bytes;
    /* The same numbers as in the config section, for readers that want no more. */
    uint32_t architecture, layers, width, feed_forward, heads, kv_heads, head_size, vocabulary;
    uint32_t context;
    uint32_t tensor_count;
    avo_section section[AVO_SECTION_COUNT];
    uint64_t data_offset;
    uint64_t reserved; /* 0 */
    uint64_t sum;      /* of the header with this field 0 */
} avo_header;
_Static_assert(sizeof(avo_header) == 256, "the header is 256 bytes");

typedef struct avo_tensor_entry {
    uint32_t name_offset, name_bytes; /* in the names section */
    uint32_t type, layout;            /* quant.h; ROWS or PANELS */
    uint32_t rank;                    /* 1 (ROWS only) or 2 */
    uint32_t reserved;                /* 0 */
    uint64_t shape[2];                /* [rows, k]; of a vector [k, 1] */
    uint64_t offset, bytes;           /* in the file */
    uint64_t sum;                     /* XXH3 */
} avo_tensor_entry;
_Static_assert(sizeof(avo_tensor_entry) == 64, "an entry is 64 bytes");

enum {
    AVO_FLAG_TIED_HEAD = 1,
    AVO_FLAG_NORM_AFTER = 2,
    AVO_FLAG_NO_FINAL_NORM = 4,
    AVO_FLAG_ROPE_INTERLEAVED = 8,
    AVO_FLAG_ROPE_TRUNCATE = 16,
    AVO_FLAGS_ALL = 31
};

/* model_config without what no longer applies: norms have their 1 added, nothing is transposed.
 * Behind it: double short_factor[factor_count], long_factor[factor_count]; uint8 windowed[layers],
 * rotary[layers], with experts also experts[layers]; zeros to a multiple of 8. A later writer may
 * append fields: record_bytes grows, and a reader that does not know them accepts the file when
 * they are all zero. Records of dense models end in front of `experts`. */
typedef struct avo_config_record {
    uint32_t record_bytes;
    uint32_t architecture, layers, width, feed_forward, heads, kv_heads, head_size, vocabulary;
    uint32_t context, embedding_width, activation, flags;
    uint32_t rotary_dims, rope_kind, rope_original_context, factor_count;
    uint32_t position_offset, positions, window;
    double norm_epsilon, rope_base, rope_base_local;
    double rope_factor, rope_low_frequency_factor, rope_high_frequency_factor;
    double rope_beta_fast, rope_beta_slow, rope_attention_factor, rope_mscale, rope_mscale_all_dim;
    double attention_scale, embedding_scale, residual_scale, logit_scale;
    double attention_softcap, logit_softcap;
    uint32_t experts, experts_used, expert_feed_forward, shared_feed_forward, router;
    uint32_t router_normalised;
} avo_config_record;
_Static_assert(sizeof(avo_config_record) == 240, "a config record is 240 bytes");
#define AVO_CONFIG_RECORD_DENSE 216u /* bytes of it in files of dense models */

/* NaN or −1 where nothing is said. */
typedef struct avo_generation_record {
    int32_t token_begin;
    uint32_t stop_token_count;
    int32_t stop_tokens[SOURCE_STOP_TOKENS_MAX];
    float temperature, top_p, min_p, typical_p, repetition_penalty;
    int32_t top_k;
} avo_generation_record;
_Static_assert(sizeof(avo_generation_record) == 96, "a generation record is 96 bytes");

typedef struct avo_note {
    text_view key, value; /* "name", "source", "license", "origin", "writer" */
} avo_note;
/* The note with the digest (source_digest) of the model that was packed, in hexadecimal digits. */
#define AVO_ORIGIN_KEY   "origin"
#define AVO_ORIGIN_BYTES 16

/* ---- Reading what model_source does not hold ---- */

/* The header of an open .avo source. */
avo_header avo_source_header(const model_source *source);
/* How many notes there are, and one of them. */
uint32_t avo_source_note_count(const model_source *source);
avo_note avo_source_note(const model_source *source, uint32_t index);
/* The digest of the model that this file was packed from; 0: the file does not say. It is what the
 * writer claims: good for finding files that go with a model, not for security. */
uint64_t avo_source_origin(const model_source *source);

/* Sums everything: sections, then tensors. The error names the first that differs. */
AVO_MUST_USE avo_status avo_source_verify(const model_source *source,
                                          avo_progress_function progress, void *context,
                                          avo_error *error);

/* ---- Writing ---- */

typedef struct avo_content_tensor {
    char name[64];
    quant_type type;
    quant_layout layout;
    uint32_t rank;
    uint64_t shape[2];
    bool new_page; /* begins at a multiple of 4096 */
    /* set by avo_writer_open */
    uint64_t offset, bytes;
    uint64_t sum; /* by avo_writer_append */
} avo_content_tensor;

/* What is going to be written; belongs to the caller and outlives the writer. */
typedef struct avo_content {
    const model_config *config; /* norm_plus_one and transposed are not carried */
    const generation_defaults *generation;
    bytes_view tokenizer;
    text_view chat_template;
    const avo_note *notes;
    uint32_t note_count;
    avo_content_tensor *tensors;
    uint32_t tensor_count;
} avo_content;

typedef struct avo_writer avo_writer;

/* Lays the file out and writes everything in front of the tensors; false sizes are refused. The
 * file appears under `path` only by avo_writer_commit. */
AVO_MUST_USE avo_status avo_writer_open(const avo_allocator *allocator, const char *path,
                                        avo_content *content, avo_writer **writer,
                                        avo_error *error);
/* The bytes of the tensors one after another, in pieces of any size that do not cross from one
 * tensor into the next. */
AVO_MUST_USE avo_status avo_writer_append(avo_writer *writer, const void *data, size_t bytes,
                                          avo_error *error);
uint64_t avo_writer_file_bytes(const avo_writer *writer);
/* Both free the writer; commit fails (and leaves nothing) when bytes are missing. */
AVO_MUST_USE avo_status avo_writer_commit(avo_writer *writer, avo_error *error);
void avo_writer_abort(avo_writer *writer);

#endif
