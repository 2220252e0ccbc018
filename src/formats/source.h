/* One model source, whatever the file: configuration, tokenizer source, chat template, generation
 * defaults, named tensors in place. Everything in it was checked against the file and against the
 * limits below before it got here; nothing above this module parses model files.
 */
#ifndef AVO_FORMATS_SOURCE_H
#define AVO_FORMATS_SOURCE_H

#include "base/arena.h"
#include "base/cursor.h"
#include "base/file.h"
#include "base/json.h"
#include "quant/quant.h"

/* ---- Limits: what a file may ask for ---- */
#define SOURCE_FILES_MAX        1024
#define SOURCE_TENSORS_MAX      65536 /* 94 layers of 128 experts with 3 matrices each */
#define SOURCE_RANK_MAX         4
#define SOURCE_NAME_MAX         256
#define SOURCE_LAYERS_MAX       1024
#define SOURCE_WIDTH_MAX        65536
#define SOURCE_FEED_FORWARD_MAX 1048576
#define SOURCE_HEADS_MAX        1024
#define SOURCE_EXPERTS_MAX      1024
#define SOURCE_EXPERTS_USED_MAX 64
#define SOURCE_HEAD_SIZE_MAX    1024
#define SOURCE_VOCABULARY_MAX   4194304
#define SOURCE_CONTEXT_MAX      16777216
#define SOURCE_TEMPLATE_MAX     ((size_t)1 << 20)
#define SOURCE_STOP_TOKENS_MAX  16
#define SOURCE_JSON_BYTES_MAX   ((size_t)256 << 20) /* of one JSON file */

typedef enum source_format {
    SOURCE_SAFETENSORS,
    SOURCE_GGUF,
    SOURCE_LLAMA2C,
    SOURCE_AVO
} source_format;
const char *source_format_name(source_format format);

/* How tensors are called. GGUF's names ("blk.0.attn_q.weight") serve llama2.c and .avo too. */
typedef enum source_naming { SOURCE_NAMES_HF, SOURCE_NAMES_GGUF } source_naming;

typedef struct source_tensor {
    text_view name;
    quant_type type;
    quant_layout layout;
    uint32_t rank;
    uint64_t shape[SOURCE_RANK_MAX]; /* outermost first, as PyTorch prints it; unused ones are 1 */
    const uint8_t *data;             /* in the mapped file */
    uint64_t bytes;
    uint32_t file; /* index into model_source.files */
} source_tensor;

/* ---- Configuration: the same fields for every format ---- */

typedef enum source_architecture {
    ARCHITECTURE_LLAMA, /* also TinyLlama, SmolLM2 and everything with its shape */
    ARCHITECTURE_MISTRAL,
    ARCHITECTURE_QWEN2,
    ARCHITECTURE_QWEN3,
    ARCHITECTURE_SMOLLM3,
    ARCHITECTURE_GEMMA3,
    ARCHITECTURE_PHI3,
    ARCHITECTURE_GPT2,
    ARCHITECTURE_OPT,
    ARCHITECTURE_MIXTRAL,
    ARCHITECTURE_QWEN2_MOE,
    ARCHITECTURE_QWEN3_MOE,
    ARCHITECTURE_OLMOE,
    ARCHITECTURE_GRANITE_MOE,
    ARCHITECTURE_GPT_OSS,
    ARCHITECTURE_COUNT
} source_architecture;
/* "llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma3", "phi3", "gpt2", "opt", "mixtral",
 * "qwen2moe", "qwen3moe", "olmoe", "granitemoe", "gpt-oss": numbers are written into .avo files */
const char *source_architecture_name(source_architecture architecture);

typedef enum rope_scaling_kind {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_YARN,
    ROPE_LLAMA3,
    ROPE_LONGROPE,
    ROPE_FACTORS /* GGUF: frequencies divided by the tensor rope_freqs.weight */
} rope_scaling_kind;

typedef struct rope_scaling {
    rope_scaling_kind kind;
    double factor;
    uint32_t original_context;                          /* 0: not given */
    double low_frequency_factor, high_frequency_factor; /* llama3 */
    double beta_fast, beta_slow;                        /* yarn */
    double attention_factor;                            /* 0: not given, computed */
    double mscale, mscale_all_dim;                      /* yarn; 0: not given */
    bool truncate;                                      /* yarn; default true */
    const double *short_factor, *long_factor; /* longrope and factors: [rotary_dims / 2] */
    uint32_t factor_count;
} rope_scaling;

typedef enum source_activation {
    SOURCE_ACTIVATION_SILU,
    SOURCE_ACTIVATION_GELU_TANH,
    SOURCE_ACTIVATION_GELU_ERF,
    SOURCE_ACTIVATION_RELU,
    SOURCE_ACTIVATION_SWIGLU_CLIPPED /* gpt-oss */
} source_activation;

/* How a router's logits become weights of experts. */
typedef enum source_router {
    SOURCE_ROUTER_SOFTMAX,    /* softmax over all experts, then the highest */
    SOURCE_ROUTER_TOP_SOFTMAX /* the highest, then softmax over these */
} source_router;

typedef struct model_config {
    source_architecture architecture;
    uint32_t layers, width, feed_forward, heads, kv_heads, head_size, vocabulary, context;
    uint32_t embedding_width; /* OPT-350m; else = width */
    double norm_epsilon;
    source_activation activation;
    bool tied_head;
    bool norm_plus_one; /* norm weights want 1 added (Gemma safetensors, not GGUF) */
    bool norm_after;    /* OPT-350m */
    bool no_final_norm; /* OPT-350m */
    bool transposed;    /* GPT-2 safetensors: linear weights lie in COLUMNS */
    /* positions */
    uint32_t rotary_dims;  /* of head_size; 0: no rotation anywhere */
    bool rope_interleaved; /* GGUF llama/mistral/smollm and llama2.c; HF is half-split */
    double rope_base;
    double rope_base_local;   /* Gemma 3's windowed layers; 0: as rope_base */
    rope_scaling rope;        /* windowed layers with a base of their own are not scaled */
    uint32_t position_offset; /* OPT: 2 */
    uint32_t positions;       /* rows of the learned positions, the offset's included; 0: none */
    /* per layer, [layers] each */
    const uint8_t *layer_windowed; /* 1: sees `window` positions only */
    const uint8_t *layer_rotary;   /* 0: no rotation here (SmolLM3) */
    uint32_t window;               /* 0: none */
    /* experts; `experts` 0: all layers are dense, and the others are 0 */
    uint32_t experts, experts_used, expert_feed_forward;
    uint32_t shared_feed_forward; /* of the expert that every row uses; 0: none */
    source_router router;
    bool router_normalised;       /* weights of the chosen experts sum up to 1 */
    const uint8_t *layer_experts; /* [layers] 0: the layer is dense; NULL without experts */
    /* multipliers; 0: not given, the architecture's own rule */
    double attention_scale, embedding_scale, residual_scale, logit_scale;
    double attention_softcap, logit_softcap;
} model_config;

/* ---- Tokenizer source ---- */

typedef enum tokenizer_source_kind {
    TOKENIZER_SOURCE_NONE,
    TOKENIZER_SOURCE_JSON,          /* tokenizer.json */
    TOKENIZER_SOURCE_SENTENCEPIECE, /* tokenizer.model */
    TOKENIZER_SOURCE_GGUF,          /* metadata keys tokenizer.ggml.* */
    TOKENIZER_SOURCE_LLAMA2C,       /* tokenizer.bin */
    TOKENIZER_SOURCE_IMAGE          /* compiled, from a .avo */
} tokenizer_source_kind;

typedef struct gguf_metadata gguf_metadata; /* formats/gguf.h */

typedef struct tokenizer_source {
    tokenizer_source_kind kind;
    bytes_view data;               /* the file or section; empty for GGUF */
    bytes_view config;             /* tokenizer_config.json; may be empty */
    const gguf_metadata *metadata; /* GGUF only */
    uint32_t vocabulary;           /* tokens the model has logits for; 0: not known */
    const char *name;              /* the file, for messages */
} tokenizer_source;

/* ---- Generation defaults: NAN or −1 where the file says nothing ---- */

typedef struct generation_defaults {
    int32_t token_begin;
    int32_t stop_tokens[SOURCE_STOP_TOKENS_MAX];
    uint32_t stop_token_count;
    float temperature, top_p, min_p, typical_p, repetition_penalty;
    int32_t top_k; /* 0: off */
} generation_defaults;
/* Nothing was said. */
void generation_defaults_init(generation_defaults *defaults);

/* The numbers among them, to walk over all. */
typedef enum generation_field {
    GENERATION_TEMPERATURE,
    GENERATION_TOP_P,
    GENERATION_MIN_P,
    GENERATION_TYPICAL_P,
    GENERATION_REPETITION_PENALTY,
    GENERATION_FIELD_COUNT
} generation_field;
/* "temperature", "top_p", … */
const char *generation_field_name(generation_field field);
/* NAN: not said. */
float generation_number(const generation_defaults *defaults, generation_field field);

/* ---- The source ---- */

typedef struct source_file {
    const char *path;
    file_map map;
    bool borrowed; /* the bytes belong to somebody else: source_open_memory */
} source_file;

typedef struct model_source {
    arena arena; /* everything below that is not in a mapped file */
    source_format format;
    source_naming naming;
    const char *path;
    source_file *files;
    uint32_t file_count, file_capacity;
    source_tensor *tensors; /* in file order */
    uint32_t tensor_count, tensor_capacity;
    name_index tensor_index;
    model_config config;
    tokenizer_source tokenizer;
    text_view chat_template; /* empty: none */
    generation_defaults generation;
    text_view name;            /* general.name or the like; may be empty */
    const gguf_metadata *gguf; /* NULL for other formats */
    json_value *config_json;   /* HF config.json; NULL for other formats */
    text_view heads;           /* safetensors: the metadata "avocet.heads"; empty: none */
} model_source;

/* Opens a folder with safetensors, a .gguf, a .avo or a llama2.c .bin, by content rather than by
 * name. On failure the error names file, field and value. */
AVO_MUST_USE avo_status source_open(const char *path, const avo_allocator *allocator,
                                    model_source **source, avo_error *error);
/* The tensors alone of a safetensors or GGUF file that lies in memory, whatever they are of: for
 * adapters. `name` is for messages. Configuration and tokenizer stay empty; a GGUF's metadata is
 * there. `bytes` outlives the source. */
AVO_MUST_USE avo_status source_open_tensors(bytes_view bytes, const char *name,
                                            const avo_allocator *allocator, model_source **source,
                                            avo_error *error);
void source_close(model_source *source);

/* Gives the memory of the mapped files back (file_map_forget); what is read again comes back. */
void source_forget(const model_source *source);
/* Asks for the mapped files in huge pages. File systems with large folios then read 2 MiB at a time
 * and map them whole; others go on as before. */
void source_ask_huge(const model_source *source);

/* Refuses to write over a file of the model. */
AVO_MUST_USE avo_status source_spare(const model_source *source, const char *path,
                                     avo_error *error);

/* Which model this is: of configuration, names, types and shapes, and a sample of the weights
 * (digest.c says why a sample). The same in every process. Reads a few kilobytes of each tensor. */
uint64_t source_digest(const model_source *source);
/* The same of every number of all tensors: reads the whole model. */
uint64_t source_digest_whole(const model_source *source);

/* NULL when there is none. O(1). */
const source_tensor *source_find(const model_source *source, text_view name);
/* Elements of a tensor (its shape was checked). */
uint64_t source_tensor_elements(const source_tensor *tensor);

#endif
