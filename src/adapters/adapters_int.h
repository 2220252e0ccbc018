/* Inside adapters/: what readers find (a draft), and how a draft becomes an adapter.
 *
 * A *module* is what PEFT calls one: "model.layers.0.self_attn.qkv_proj". A *site* is a place of
 * the adapter_view: query, key, value, … A fused module fills several sites. An *array* is one
 * run of numbers of a site: down, up, gain, offset, … All arrays of an adapter have a fixed order,
 * that of a forward pass, in which they are laid out, summed into the digest and written to files.
 */
#ifndef AVO_ADAPTERS_ADAPTERS_INT_H
#define AVO_ADAPTERS_ADAPTERS_INT_H

#include "adapters/adapters.h"
#include "base/file.h"
#include "base/region.h"
#include "formats/gguf.h"

#include <pthread.h>

/* ---- Modules (modules.c) ---- */

typedef enum module_role {
    MODULE_ATTENTION_NORM,
    MODULE_QUERY,
    MODULE_KEY,
    MODULE_VALUE,
    MODULE_QKV, /* fused: query, key, value */
    MODULE_QUERY_NORM,
    MODULE_KEY_NORM,
    MODULE_OUTPUT,
    MODULE_ATTENTION_POST_NORM,
    MODULE_FEED_FORWARD_NORM,
    MODULE_GATE,
    MODULE_UP,
    MODULE_GATE_UP, /* fused: gate, up */
    MODULE_DOWN,
    MODULE_FEED_FORWARD_POST_NORM,
    MODULE_LAYER_ROLES,
    MODULE_EMBEDDING = MODULE_LAYER_ROLES,
    MODULE_FINAL_NORM,
    MODULE_HEAD,
    MODULE_ROLES
} module_role;
#define MODULE_TOP_ROLES (MODULE_ROLES - MODULE_LAYER_ROLES)

static inline bool module_is_norm(module_role role) {
    return role == MODULE_ATTENTION_NORM || role == MODULE_QUERY_NORM || role == MODULE_KEY_NORM ||
           role == MODULE_ATTENTION_POST_NORM || role == MODULE_FEED_FORWARD_NORM ||
           role == MODULE_FEED_FORWARD_POST_NORM || role == MODULE_FINAL_NORM;
}

/* What the readers have found for one module. Tensors point into the source. */
typedef struct module_draft {
    const char *name;               /* for messages; NULL while nothing was found or expected */
    const source_tensor *down, *up; /* the two halves of a low rank */
    const source_tensor *up_bias;   /* added behind `up`, scaled like it */
    const source_tensor *magnitude; /* DoRA */
    const source_tensor *weight;    /* trained as a whole */
    const uint32_t *token_row;      /* [vocabulary], or NULL: `weight` has those rows only */
    const source_tensor *bias;      /* the same */
    const source_tensor *copy;      /* of the base's weights, as PEFT saves beside embeddings */
    bool targeted;                  /* by the configuration: both halves must be there */
    bool saved;                     /* the configuration wants it as a whole */
    bool bias_saved;                /* the configuration wants its bias */
    uint32_t rank;
    double scale;
} module_draft;

typedef struct adapter_draft {
    const adapter_base *base;
    const char *path;      /* for messages */
    arena *arena;          /* names */
    module_draft *modules; /* [module_count] by module_index */
    uint32_t module_count;
    const char *method;
    bool dora;
    bool rows_interleaved; /* rows of q and k lie as GGUF's llamas have them */
    bool look_rows;        /* the embedding's A is [vocabulary][rank], not transposed */
    bool transposed;       /* whole weights of layers lie [k][rows]: GPT-2's own */
    bool norm_plus_one;    /* whole norms want 1 added: Gemma's own */
    uint32_t modules_expected;
} adapter_draft;

uint32_t module_count(const model_config *config);
uint32_t module_index(const model_config *config, uint32_t layer, module_role role);
/* The role and layer of an index. */
module_role module_role_of(const model_config *config, uint32_t index, uint32_t *layer);

/* How Hugging Face calls the modules of an architecture: everything in front of "layers." is the
 * wrapper ("model."). NULL when the architecture has no such module. */
const char *module_suffix(source_architecture architecture, module_role role);
/* "model.layers.0.self_attn.q_proj"; false when there is no such module or it does not fit. */
bool module_name(const model_config *config, const char *wrapper, uint32_t index, char *out,
                 size_t capacity);
/* The index of a module's name, and its wrapper where that is not yet known (*wrapper NULL);
 * UINT32_MAX when the architecture has no such module or the wrapper is another one. */
uint32_t module_find(const model_config *config, text_view name, const char **wrapper);
/* The wrapper of a causal language model of this architecture. */
const char *module_wrapper(source_architecture architecture);
/* The index of GGUF's name without ".weight": "blk.0.attn_q", "token_embd", "output". */
uint32_t module_find_gguf(const model_config *config, text_view name);

/* ---- PEFT's configuration (peft_config.c) ---- */

typedef struct peft_names {
    bool given;
    bool pattern; /* `text` is a regular expression */
    text_view text;
    const json_value *list; /* array of strings */
} peft_names;

typedef struct peft_config {
    uint32_t rank;
    double alpha;
    bool rslora, dora, lora_bias;
    bool all_linear;
    bool tie_ensured;         /* ensure_weight_tying */
    const json_value *tokens; /* trainable_token_indices: array of integers, or NULL */
    text_view tokens_of;      /* the module they are of; empty: the embedding */
    enum { PEFT_BIAS_NONE, PEFT_BIAS_ALL, PEFT_BIAS_LORA } bias;
    peft_names targets, excludes, layers_pattern;
    const json_value *saves;  /* modules_to_save: array of strings, or NULL */
    const json_value *layers; /* layers_to_transform: array of integers, an integer, or NULL */
    const json_value *ranks;  /* rank_pattern: object, or NULL */
    const json_value *alphas; /* alpha_pattern */
} peft_config;

/* Reads and checks the file; refuses by name what would change results and is not supported. The
 * tree lies in `arena`, strings also in `bytes`. */
AVO_MUST_USE avo_status peft_config_read(arena *arena, bytes_view bytes, const char *path,
                                         peft_config *config, avo_error *error);

/* ---- Which modules a configuration means (peft_match.c) ---- */

typedef struct peft_matcher peft_matcher;

/* Compiles every pattern of the configuration once. */
AVO_MUST_USE avo_status peft_matcher_open(const peft_config *config, const avo_allocator *allocator,
                                          peft_matcher **out, avo_error *error);
void peft_matcher_close(peft_matcher *matcher);

typedef struct peft_match {
    bool targeted; /* by LoRA */
    bool saved;    /* modules_to_save */
    uint32_t rank;
    double alpha;
} peft_match;
/* `linear` and `head`: what "all-linear" asks. */
AVO_MUST_USE avo_status peft_matcher_ask(const peft_matcher *matcher, text_view module, bool linear,
                                         bool head, peft_match *match, avo_error *error);

/* ---- Readers: fill the draft ---- */

#define TOKEN_ROW_NONE UINT32_MAX /* of module_draft.token_row: as the base has it */

AVO_MUST_USE avo_status peft_read(adapter_draft *draft, const model_source *source,
                                  const peft_config *config, const avo_allocator *allocator,
                                  avo_error *error);
AVO_MUST_USE avo_status gguf_adapter_read(adapter_draft *draft, const model_source *source,
                                          avo_error *error);
/* What holds for both: halves, shapes, ranks (draft.c). */
AVO_MUST_USE avo_status draft_check(const adapter_draft *draft, avo_error *error);

/* ---- Sites and arrays (arrays.c) ---- */

typedef enum adapter_part {
    PART_DOWN,
    PART_UP,
    PART_GAIN,
    PART_OFFSET,
    PART_LOOK,
    PART_NORM_WEIGHT,
    PART_NORM_BIAS
} adapter_part;

typedef enum adapter_site {
    SITE_ATTENTION_NORM,
    SITE_QUERY,
    SITE_KEY,
    SITE_VALUE,
    SITE_QUERY_NORM,
    SITE_KEY_NORM,
    SITE_OUTPUT,
    SITE_ATTENTION_POST_NORM,
    SITE_FEED_FORWARD_NORM,
    SITE_GATE,
    SITE_UP,
    SITE_DOWN,
    SITE_FEED_FORWARD_POST_NORM,
    SITE_EMBEDDING,
    SITE_FINAL_NORM,
    SITE_HEAD
} adapter_site;

typedef struct adapter_array {
    uint32_t layer; /* UINT32_MAX: of the whole model */
    adapter_site site;
    adapter_part part;
    weight_view *matrix;  /* DOWN, UP, LOOK */
    const float **floats; /* the others */
} adapter_array;

uint32_t array_count(uint32_t layers);
/* `layers` are the view's own, writable. */
adapter_array array_at(adapter_view *view, adapter_layer *layers, uint32_t layer_count,
                       uint32_t index);
/* The deltas, NULL for other sites. */
adapter_delta *site_delta(adapter_view *view, adapter_layer *layer, adapter_site site);
/* The norm, NULL for other sites. */
adapter_norm *site_adapter_norm(adapter_view *view, adapter_layer *layer, adapter_site site);
/* The sites that a module fills, at least one; the count. */
#define MODULE_SITES_MAX 3
uint32_t module_sites(module_role role, adapter_site sites[MODULE_SITES_MAX]);
/* The base's matrix of a site; NULL where the site has none or the model has no such matrix. */
const linear_view *site_linear(const model_view *base, uint32_t layer, adapter_site site);
/* And its norm. */
const norm_view *site_norm(const model_view *base, uint32_t layer, adapter_site site,
                           uint32_t *width);
/* Entries of a float array: rows of the matrix, or width of the norm; 0 where there is none. */
uint32_t array_floats(const model_view *base, const adapter_array *array);
/* Bytes of a matrix; its shape was checked. */
uint64_t view_bytes(const weight_view *view);

/* Gains, norms and bytes, from the arrays. */
void adapter_sum_up(avo_adapter *adapter, uint32_t layer_count);
/* The digest of all arrays and scales. */
void adapter_digest(const adapter_view *view, uint32_t layer_count, const model_view *base,
                    uint64_t digest[2]);

/* ---- From draft to adapter (build.c) ---- */

struct adapter_storage {
    arena arena; /* the adapter's own texts, layers and modules */
    region region;
    file_map map;         /* of a packed file */
    const char *map_path; /* that file, whatever folder the process goes to */
    adapter_base base;
    adapter_layer *layers;
    adapter_module *modules;
    pthread_mutex_t mutex;  /* of the norms, which are computed when first asked for */
    uint32_t *module_index; /* [modules_matched] as module_index numbers them */
    double *norms;          /* [modules_matched] */
    bool norms_known;
    /* The registry's (registry.c): what counts its bytes until it is closed, the close that this
     * stands in front of, and the next one of those that are to be given back. */
    struct registry_meter *meter;
    void (*close)(avo_adapter *adapter);
    avo_adapter *next;
};

AVO_MUST_USE avo_status adapter_build(const adapter_draft *draft, const adapter_options *options,
                                      avo_adapter *adapter, avo_error *error);
/* Asks whoever counts memory (adapter_options.admit) for what the adapter has and `more` bytes. */
AVO_MUST_USE avo_status adapter_admit(const adapter_options *options, const avo_adapter *adapter,
                                      uint64_t more, avo_error *error);
/* The index of the row in a file's tensor that belongs to row `row` of the base's matrix. */
uint32_t draft_row(const adapter_draft *draft, adapter_site site, uint32_t row);

/* ---- Packed files (packed_read.c) ---- */

bool packed_is(bytes_view bytes);
/* The file keeps the type it was packed with. */
AVO_MUST_USE avo_status packed_open(avo_adapter *adapter, bytes_view bytes, avo_error *error);

/* ---- Opening (open.c) ---- */

#define ADAPTER_CONFIG_NAME  "adapter_config.json"
#define ADAPTER_WEIGHTS_NAME "adapter_model.safetensors"
#define ADAPTER_PICKLE_NAME  "adapter_model.bin"

/* Where the files of an adapter really lie, and how they are called in messages. */
typedef struct adapter_files {
    const char *shown;
    const char *config;  /* adapter_config.json; NULL: a GGUF or packed file */
    const char *weights; /* or that file */
    const char *config_shown, *weights_shown;
    const char *folder; /* where both are looked for again; NULL: it is one file */
    bool changed;       /* told: they are not what they were when they were opened */
} adapter_files;
/* A folder without its configuration, or without weights that are read. */
AVO_MUST_USE avo_status adapter_no_config(const char *shown, avo_error *error);
AVO_MUST_USE avo_status adapter_no_weights(const char *shown, bool pickle, avo_error *error);
/* Refused, and `changed`, where a file was written meanwhile or one of the two replaced: of a
 * folder that is being changed nobody knows whether both belong together. */
AVO_MUST_USE avo_status adapter_open_files(const adapter_base *base, adapter_files *files,
                                           const adapter_options *options,
                                           const avo_allocator *allocator, avo_adapter **out,
                                           avo_error *error);
/* Files that lie in memory: for tests and fuzzing. `config` of size 0: a GGUF or packed file. */
AVO_MUST_USE avo_status adapter_open_memory(const adapter_base *base, bytes_view config,
                                            bytes_view weights, const char *shown,
                                            const adapter_options *options,
                                            const avo_allocator *allocator, avo_adapter **out,
                                            avo_error *error);

#endif
