/* Inside pack/: the list of tensors to write, and how they are converted. */
#ifndef AVO_PACK_PACK_INT_H
#define AVO_PACK_PACK_INT_H

#include "base/arena.h"
#include "formats/avo.h"
#include "pack/pack.h"

typedef enum pack_role {
    PACK_ROLE_VECTOR,
    PACK_ROLE_MATRIX,
    PACK_ROLE_EMBEDDING,
    PACK_ROLE_POSITION,
    PACK_ROLE_HEAD,
    PACK_ROLE_QKV,          /* fused; the bias too */
    PACK_ROLE_UP,           /* fused with the gate where it has twice the rows; the bias too */
    PACK_ROLE_ROUTER,       /* of experts: stays exact */
    PACK_ROLE_GATE_EXPERTS, /* all experts of a layer; each becomes a matrix of its own */
    PACK_ROLE_UP_EXPERTS,
    PACK_ROLE_DOWN_EXPERTS,
    PACK_ROLE_GATE_UP_EXPERTS, /* gate and up behind one another in each */
    PACK_ROLE_DROPPED          /* the configuration holds it: rotation factors */
} pack_role;
/* One tensor of the file and where its numbers come from. */
typedef struct pack_item {
    uint32_t group, rank; /* the order of writing: layers, and places within */
    char name[64];
    uint32_t rows, k; /* a vector has one row */
    bool vector;
    pack_role role;
    bool looked_up;  /* an embedding that is no head */
    bool named;      /* by pack_options.tensors: --bits leaves it alone */
    bool twice;      /* the embedding again, as head */
    quant_type type; /* in the file */
    quant_layout layout;
    bool copied;       /* type and layout are the source's: bytes go over as they are */
    bool repacked;     /* the type is the source's: blocks move into panels, nothing is rounded */
    bool plus_one;     /* a norm that wants 1 added */
    bytes_view forget; /* pages of the source that can be given back at the end; may be empty */
    weight_view from;  /* data NULL: random */
    const source_tensor *tensor; /* that it is, or is a part of; NULL: random */
    uint64_t random_seed;
    float random_centre, random_deviation;
    const pack_change *change; /* NULL: none */
    double error, energy;      /* once converted: of the outputs that were measured */
} pack_item;

typedef struct pack_list {
    arena *arena;
    pack_item *items;
    uint32_t count, capacity;
} pack_list;

AVO_MUST_USE avo_status pack_list_add(pack_list *list, const pack_item *item, avo_error *error);

/* order.c: the place of a canonical name. False: no part of any architecture. */
typedef struct pack_place {
    uint32_t group, rank;
    pack_role role;
    bool norm_weight;
    uint32_t layer; /* of a layer's tensor */
    bool in_layer;
} pack_place;
bool pack_place_of(text_view name, uint32_t layers, pack_place *place);
/* Writing order. */
void pack_list_sort(pack_list *list);

/* choose.c: type and layout in the file, from role, from.type and from.layout. `tied`: the
 * embedding is the head too. */
void pack_choose(pack_type type, pack_look_up look_up, pack_role role, bool tied, bool cut_fits,
                 pack_item *item);
/* pack_options.tensors; refuses what names no matrix or no type. */
AVO_MUST_USE avo_status pack_choose_named(const char *text, pack_list *list, avo_error *error);
/* Whether the embedding of a model with a tied head is to have a type of its own. */
bool pack_look_up_splits(pack_type type, pack_look_up look_up);

/* Sets type and layout. */
void pack_set(pack_item *item, quant_type type, quant_layout layout);

/* budget.c: a type for every matrix, so that all tensors together have options->bits per weight at
 * most. */
AVO_MUST_USE avo_status pack_budget(pack_list *list, const char *name, const pack_options *options,
                                    avo_error *error);

/* list.c: all tensors of a source. `tied`: whether the head is the embedding in the file. */
AVO_MUST_USE avo_status pack_list_source(const model_source *source, pack_type type,
                                         pack_look_up look_up, pack_list *list, bool *tied,
                                         avo_error *error);
/* shapes.c: all tensors of a known shape, and its configuration. */
AVO_MUST_USE avo_status pack_list_random(const char *shape, uint64_t seed, pack_type type,
                                         pack_list *list, model_config *config, avo_error *error);
/* Row `row` of a random matrix. */
void pack_random_row(const pack_item *item, size_t row, float *out);

/* convert.c: the rows of a unit, 16 rows or what is left of them, as numbers [rows][k]. */
static inline size_t pack_unit_rows(const pack_item *item, size_t unit) {
    size_t left = item->rows - unit * QUANT_PANEL_ROWS;
    return left < QUANT_PANEL_ROWS ? left : QUANT_PANEL_ROWS;
}
static inline size_t pack_units(const pack_item *item) {
    return ((size_t)item->rows + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS;
}
void pack_decode_unit(const pack_item *item, size_t unit, size_t rows, float *numbers);
/* The first number that cannot be written. */
typedef struct pack_fault {
    bool found;
    uint32_t row, column;
    float value;
    bool moments; /* no number is at fault, but a calibration by which all errors are infinite */
} pack_fault;
/* False: a number is not finite or larger than `largest`. */
bool pack_check_unit(const pack_item *item, float largest, size_t unit, size_t rows,
                     const float *numbers, pack_fault *found);
/* The error that names it. `name` is the model's, `type` what the item was to become. */
AVO_MUST_USE avo_status pack_report_fault(const pack_item *item, quant_type type, const char *name,
                                          const pack_options *options, const pack_fault *found,
                                          avo_error *error);
/* Where converted weights go: whole rows (or panels) of `item`, in order. */
typedef struct pack_sink {
    void *context;
    avo_status (*append)(void *context, const pack_item *item, const uint8_t *data, size_t bytes,
                         avo_error *error);
} pack_sink;
/* Converts the items in order. `name` is the model's, for messages. */
AVO_MUST_USE avo_status pack_convert(pack_list *list, const char *name, const pack_options *options,
                                     const pack_sink *sink, avo_error *error);

/* pack.c, for folder.c too. */
#define PACK_LIST_BYTES_MAX ((size_t)64 << 20)
/* What changes is neither copied nor repacked. */
void pack_mark_changes(pack_list *list, const pack_change *change);
/* Once converted. */
void pack_fill_report(const pack_list *list, uint64_t file_bytes, pack_report *report);
/* folder.c: what pack_source does where options->folder. */
AVO_MUST_USE avo_status pack_folder(const model_source *source, const char *path,
                                    const pack_options *options, pack_report *report,
                                    avo_error *error);

#endif
