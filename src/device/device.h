/* What computes. A device owns memory, holds weights, adapters and KV pages in it, and computes
 * steps on streams. The engine knows devices through this header alone and never dereferences
 * device memory: it may lie on another card or behind a network.
 *
 * Life of an engine's device: open · plan · open streams · prepare weights on the first stream ·
 * take memory for KV pages · steps · close everything in reverse order. Opening a device takes no
 * memory worth mentioning and starts no thread, so that a memory plan can be made with it.
 *
 * One thread uses a stream at a time. Two streams of one device may compute at the same time where
 * device_info.parallel says so.
 * Every call that can fail returns a status with a text; a call that failed has changed nothing
 * that the caller can see, and the device stays usable.
 */
#ifndef AVO_DEVICE_DEVICE_H
#define AVO_DEVICE_DEVICE_H

#include "base/allocator.h"
#include "device/layer.h"
#include "telemetry/telemetry.h"

typedef struct device device;
typedef struct device_driver device_driver;
typedef struct device_stream device_stream;   /* computes one step at a time */
typedef struct device_weights device_weights; /* a model's weights as the device reads them */
typedef struct weights_store weights_store;   /* store.h */

/* ---- Limits ---- */
#define DEVICE_STREAMS_MAX    2
#define DEVICE_RANKS_MAX      64  /* processes that compute a model together */
#define DEVICE_TAPS_MAX       256 /* layers whose hidden states a step can keep */
#define DEVICE_ARITHMETIC_MAX 8   /* bytes of device_info.bits, its zero included */
#define LAYERS_FITTING        UINT32_MAX

/* ---- Choice ---- */

typedef struct device_options {
    const avo_allocator *allocator;
    const char *name; /* "auto" or NULL, "cpu", or one of device_names; "NAME:PARAMETERS" */
    uint32_t threads; /* CPU: workers of a step; 0: at most as many as this process may use, chosen
                         by measurement */
    uint32_t streams; /* that will be opened */
    /* CPU: where memory lies and workers run, as in avo_engine_options. */
    const char *huge_pages, *numa, *pin;
    bool lock;
    /* "exact" or "fast" (device_info.arithmetic); NULL: the device's choice for a model whose
     * matrices are mostly 16-bit floats (`floats`), or not. */
    const char *arithmetic;
    bool floats;
    /* Asked about each device that was opened; one that is refused is closed. NULL: any will do. */
    avo_status (*accept)(void *context, const device *device, avo_error *error);
    void *accept_context;
    avo_log_function log; /* which devices were passed over, and why; NULL: nobody listens */
    void *log_context;
} device_options;

/* Opens the device that `name` asks for. "auto" tries all drivers from the highest priority down,
 * "cpu" all of that kind: a device that does not work here, fails to open or is not accepted is
 * passed over. Wrong options and a lack of host memory end the search, because the next device
 * would fail as well. A device asked for by its own name is never replaced by another one. A name
 * that this machine cannot serve is an error that lists those it can. */
AVO_MUST_USE avo_status device_open(const device_options *options, device **out, avo_error *error);
void device_close(device *device);
/* What is asked for: the option, else AVO_DEVICE, else its older name AVO_ISA, else "auto". *from
 * becomes "option", the name of the variable, or "best". */
const char *device_asked(const char *option, const char **from);
/* The name of the device that device_open would try first for `name`; opens nothing. */
AVO_MUST_USE avo_status device_find(const char *name, const char **found, avo_error *error);
/* "ref avx2 avx512": devices that work here, best last; always terminated. */
void device_names(char *text, size_t capacity);

/* Threads of the host that compute, and where they and their memory are placed. */
typedef struct device_cpu {
    uint32_t threads; /* workers of a step; 0: the device has none, and nothing below is set */
    uint32_t decode_threads; /* of these, in steps with few rows, to begin with */
    bool tuned;              /* steps are measured, and their workers chosen by that */
    uint32_t numa_nodes;
    const char *huge_pages, *numa, *pin; /* what options and system come to; constant strings */
    bool huge, lock;
} device_cpu;

typedef struct device_info {
    const char *name;       /* "avx512" */
    const char *kind;       /* "cpu" */
    const char *arithmetic; /* "ref", "exact" or "fast"; constant */
    /* Devices with the same text compute the same bits: pages and saved sessions move between them.
     * As session files spell it: "ref"; "fast" for exact arithmetic, because it had that name
     * first; "tc90" for fast arithmetic on cards of compute capability 9.0. At most
     * DEVICE_ARITHMETIC_MAX bytes, which opening checks. */
    const char *bits;
    /* Steps read whole KV pages and mask positions that were not written: NaN in them would spread,
     * so that a page must be zeroed before its first step. */
    bool whole_pages;
    kv_type kv_default; /* how K and V are stored where nobody asks for a type */
    bool experts;       /* computes mixtures of experts, too */
    bool observes;      /* shows the inputs of matrices to an observer */
    bool parallel;      /* two streams compute at the same time; else it computes one step at a time
                           and is opened with one stream */
    bool divides;       /* a model's first layers are another device's (device_divide) */
    uint32_t layers_asked; /* with `divides`: layers that the device itself computes, of the number
                              that is stored; LAYERS_FITTING: as many as fit */
    device_cpu cpu;
    /* Memory: `host` devices share the host's, and both plans must fit it together. */
    bool host;
    uint64_t memory_available;
    const char *memory_limit; /* where that number comes from */
} device_info;
const device_info *device_describe(const device *device);
/* Of the host, as given when it was opened. */
const avo_allocator *device_allocator(const device *device);

/* ---- Memory ---- */

/* A block of device memory. `address` means something to the device alone; a place in a block is
 * the block and an offset. */
typedef struct device_memory {
    uint8_t *address;
    size_t bytes;
    void *owner; /* the device's own note */
} device_memory;

/* What device_memory_take takes for `bytes`, rounded as the device rounds; false when it wraps. */
bool device_memory_round(const device *device, size_t bytes, uint64_t *rounded);
/* The contents are undefined. `what` names the block in an error. */
AVO_MUST_USE avo_status device_memory_take(device *device, size_t bytes, const char *what,
                                           device_memory *out, avo_error *error);
/* A block of {0} may be given, too. */
void device_memory_give(device *device, device_memory *memory);
/* Copies and zeroing are complete when the call returns, and work that is started afterwards on any
 * stream sees them. They do not wait for work that was started before: the caller waits for it
 * first (device_wait) where that work touches the same bytes; other bytes of the block may be in
 * use. */
AVO_MUST_USE avo_status device_copy_in(device *device, const device_memory *to, size_t offset,
                                       const void *from, size_t bytes, avo_error *error);
AVO_MUST_USE avo_status device_copy_out(device *device, void *to, const device_memory *from,
                                        size_t offset, size_t bytes, avo_error *error);
/* Within the device; the ranges do not overlap. */
AVO_MUST_USE avo_status device_copy_across(device *device, const device_memory *to,
                                           size_t to_offset, const device_memory *from,
                                           size_t from_offset, size_t bytes, avo_error *error);
AVO_MUST_USE avo_status device_zero(device *device, const device_memory *memory, size_t offset,
                                    size_t bytes, avo_error *error);

/* Where K and V are stored: pages of one block of device memory. A page holds KV_PAGE_TOKENS
 * consecutive positions of one session, for every layer and KV head the tiles that kv_tile.h
 * describes, in that layout on every device. */
typedef struct device_kv {
    kv_type type;
    device_memory memory;
    size_t page_bytes;
    const size_t *layer_offset; /* [layers] bytes from a page's begin to the layer's first head */
} device_kv;

/* Takes kv->memory for `pages` pages of the model's; the rest of *kv is filled in. */
AVO_MUST_USE avo_status device_pages_take(device *device, const model_view *model, uint32_t pages,
                                          device_kv *kv, avo_error *error);

/* ---- Weights and adapters ---- */

/* How prepared weights lie in one block: equal keys mean the same matrices at the same places. */
typedef struct weights_layout {
    uint64_t bytes;
    uint64_t key[2];
} weights_layout;

/* Keeps prepared weights from one process to the next (model/panel_cache.h). */
typedef struct weights_keeper {
    /* The block with this layout, at a multiple of 4096, as long as the model is open; NULL: there
     * is none. It was not compared with its sums. */
    const uint8_t *(*find)(void *context, const weights_layout *layout);
    /* Sums of the found block: how many pieces it has (at most TEAM_ITEMS_MAX), and whether one of
     * them has its sum. Any thread. */
    uint32_t (*pieces)(void *context);
    bool (*is_right)(void *context, uint32_t piece);
    /* A sum was wrong: the block is not found again. */
    void (*reject)(void *context);
    /* Weights were prepared, and stay where they are until the model's store closes. */
    void (*offer)(void *context, const weights_layout *layout, const uint8_t *data);
    void *context;
} weights_keeper;

/* Where a model's weights come from. */
typedef struct weights_source {
    const model_view *model; /* host memory, rotation tables included */
    const char *path;        /* for errors */
    uint64_t file_bytes;     /* of all tensors as stored */
    bool divisible; /* another process can open the same weights by `path`, so that several can
                       compute a part each */
    weights_store *store; /* of the model: prepared weights that its engines share; may be NULL */
    /* Layers that model->layer has, where the model computes only the first of them; 0: all. They
     * are prepared together, so that a model and its early exit share them. */
    uint32_t layers_stored;
    uint32_t
        part_layers; /* the model has the first so many layers of another one; 0: it is whole */
    /* Tells the owner of the file that its pages were read for the last time, or are wanted in huge
     * pages; NULL: there is no file. */
    void (*forget)(void *context);
    void (*ask_huge)(void *context);
    void *context;
    avo_progress_function progress; /* by the caller's thread; NULL: silent */
    void *progress_context;
    const weights_keeper *keeper; /* NULL: nobody keeps what is prepared */
} weights_source;

/* Matrices that are treated alike. */
typedef struct weights_group {
    quant_type from, to;
    quant_layout layout; /* of `from` */
    bool repacked;       /* else used in place */
    uint32_t matrices;
    uint64_t bytes; /* as computed with */
} weights_group;
#define WEIGHTS_GROUPS_MAX 32

typedef struct weights_plan {
    uint64_t mapped_bytes;  /* of the file, still read by steps: matrices, embeddings, norms */
    uint64_t copied_bytes;  /* device memory for repacked or uploaded weights */
    uint64_t missing_bytes; /* of these, not there yet: 0 once another engine has built them */
    uint64_t kept_bytes;    /* of mapped_bytes: what the keeper has, instead of repacking */
    uint32_t ranks;         /* that share the model; the bytes above are rank 0's. 0: nobody does */
    uint64_t rank_bytes[DEVICE_RANKS_MAX]; /* mapped and copied by each */
    uint32_t groups;
    weights_group group[WEIGHTS_GROUPS_MAX];
} weights_plan;

/* From shapes alone, nothing is read. Refuses what the device cannot compute: a type, or experts.
 */
AVO_MUST_USE avo_status device_weights_plan(const device *device, const weights_source *source,
                                            weights_plan *plan, avo_error *error);
/* Adds a group of another device's plan. */
void weights_plan_join(weights_plan *plan, const weights_group *group);
/* Repacks, uploads, or uses in place, with the workers of `stream`. */
AVO_MUST_USE avo_status device_weights_open(device_stream *stream, const weights_source *source,
                                            device_weights **out, avo_error *error);
void device_weights_close(device_weights *weights);
/* Shapes, types and numbers of the prepared model; what `data` points at is the device's. */
const model_view *device_weights_view(const device_weights *weights);

/* An adapter as the device reads it. */
typedef struct device_adapter {
    const adapter_view *view; /* what a batch's runs point at; its data is the device's */
    uint64_t bytes;           /* of device memory; 0: used in place */
    void *own;
} device_adapter;

/* The device uses adapters where they are: opening one takes no memory and no time, and its view
 * must live until it is closed. Else opening copies everything out of `view`. */
bool device_adapters_in_place(const device *device);
AVO_MUST_USE avo_status device_adapter_open(device *device, const adapter_view *view,
                                            const model_view *model, device_adapter *out,
                                            avo_error *error);
/* While no step runs that uses it. An adapter of {0} is closed, too. */
void device_adapter_close(device *device, device_adapter *adapter);

/* ---- Streams ---- */

typedef struct stream_shape stream_shape;
struct stream_shape {
    const model_view *model; /* shapes alone are read */
    uint32_t index;          /* 0 or 1 */
    uint32_t rows_max;
    uint32_t logits_max; /* rows with whole logits */
    uint32_t head_rows;  /* rows that the head computes together, at least logits_max */
    uint32_t context_max;
    uint32_t adapter_rank_max;
    uint32_t pairs_max; /* of any rotation table */
    /* A stream that computes nothing while this one computes, of the same kind of device: a CPU
     * device uses its workers instead of threads that would get in each other's way, and the
     * scratch that they need within a step. NULL: none. */
    device_stream *beside;
    const stream_shape *lender; /* device_stream_bytes: the shape that `beside` will have */
    uint32_t taps;
    uint32_t tap[DEVICE_TAPS_MAX]; /* ascending: hidden states before this layer, or, the number of
                                      layers, behind the last one */
};

/* Device memory of a stream; false when it wraps. */
bool device_stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes);
AVO_MUST_USE avo_status device_stream_open(device *device, const stream_shape *shape,
                                           device_stream **out, avo_error *error);
void device_stream_close(device_stream *stream);
/* Workers of the next steps, or the most of them where the device chooses; for devices without
 * threads this does nothing. While nobody computes on the stream. */
void device_stream_resize(device_stream *stream, uint32_t threads);
/* Workers that an observer is called by. */
uint32_t device_stream_workers(const device_stream *stream);
/* From now on phases and the processor's counters are reported there. */
void device_stream_report(device_stream *stream, telemetry_engine *telemetry);
/* How steps are computed. */
typedef struct stream_figures {
    uint32_t phases; /* of the last step: how often its workers wait for one another; 0: unknown */
    /* Which numbers of workers were found to be best: "decode 6 of 8, prefill 8; …"; empty where
     * the device does not choose. */
    char threads[160];
    /* What steps have exchanged with other ranks: "120 exchanges a step, …"; empty: there are none.
     */
    char ranks[160];
} stream_figures;
/* While nobody computes on the stream. */
stream_figures device_stream_figures(const device_stream *stream);
/* How many bytes a second steps of this stream can read. */
AVO_MUST_USE avo_status device_stream_measure(device_stream *stream, double *bytes_per_second,
                                              avo_error *error);

/* ---- Models on two devices ---- */

/* What is to be divided, as it will be opened. */
typedef struct device_division {
    const weights_source *source;
    const stream_shape *shape; /* [streams] */
    uint32_t streams;
    kv_type kv_type;
    uint32_t kv_pages;
    uint64_t bytes_max; /* of the second part, where as many layers as fit are asked for */
} device_division;

/* One device's part: its layers, and the memory that they take. */
typedef struct device_part {
    const char *name; /* of the device; constant */
    uint32_t first_layer, layers;
    weights_plan weights;
    uint64_t kv_bytes, scratch_bytes;
} device_part;
#define DEVICE_PARTS 2

/* Where device_info.divides says so, before streams and weights are opened: decides which layers
 * the device computes itself (part[1], with the head), and which another one in the host's memory
 * (part[0], with the embedding). All that is opened later of this model is divided like that; other
 * models, such as draft heads, are the device's own. A later call decides anew. */
AVO_MUST_USE avo_status device_divide(device *device, const device_division *division,
                                      device_part part[DEVICE_PARTS], avo_error *error);

/* ---- Steps ---- */

/* Observes the input of each matrix: calibration. Every worker calls `see` with the same x, which
 * does not change while it looks. */
typedef enum observed_input {
    OBSERVED_ATTENTION,    /* of query, key and value */
    OBSERVED_OUTPUT,       /* of the attention's output projection */
    OBSERVED_FEED_FORWARD, /* of gate and up */
    OBSERVED_DOWN,
    OBSERVED_HEAD, /* layer 0, as those behind it; rows that want logits */
    OBSERVED_PROJECT_IN,
    OBSERVED_PROJECT_OUT,
    OBSERVED_INPUTS
} observed_input;

typedef struct step_observer {
    void (*see)(void *context, uint32_t worker, uint32_t layer, observed_input input,
                const float *x, size_t stride, uint32_t rows, uint32_t k);
    void *context;
} step_observer;

typedef struct device_step {
    const device_weights *weights;
    const batch_view *batch; /* host memory, unchanged until the step was waited for */
    const device_kv *kv;
    const step_observer *observer; /* NULL: none; only where device_info.observes */
    bool tracing;                  /* phases are reported one by one */
} device_step;

typedef enum device_work {
    DEVICE_FORWARD, /* the whole step: embed, layers, and logits of the rows that want them */
    /* Once more from what the last forward left; `batch` names other rows that want logits. */
    DEVICE_HEAD, /* their logits */
    DEVICE_NORM  /* their hidden states behind the last norm, any number of rows */
} device_work;

/* Starts the work; it may go on when this returns. Exactly one device_wait follows a start that
 * succeeded. */
AVO_MUST_USE avo_status device_start(device_stream *stream, device_work work,
                                     const device_step *step, avo_error *error);
AVO_MUST_USE avo_status device_wait(device_stream *stream, avo_error *error);

/* Results, in host memory that lives until the stream's next start; hidden states (normed and
 * tapped rows) only until they are read again. What survives which work:
 *
 *   taps                   until the next DEVICE_FORWARD
 *   top and whole logits   until the next DEVICE_FORWARD or DEVICE_HEAD, whose rows they then are
 *   normed rows            until the next start of any work
 *
 * So logits of a forward pass can be read behind DEVICE_NORM, and taps behind both. Results that
 * the batch did not ask for, or whose work failed, are undefined. */
/* The highest logits of all rows that want logits, where the batch asks for some (`top`). */
AVO_MUST_USE avo_status device_read_top(device_stream *stream, const logit_top **top,
                                        avo_error *error);
/* All logits of one of these rows, where the batch asks for them (`logits_whole`). */
AVO_MUST_USE avo_status device_read_logits(device_stream *stream, uint32_t row,
                                           const float **logits, avo_error *error);
/* Logits of some tokens of one of these rows, under the same condition, into `chosen` [count]:
 * where few matter, the others need not leave the device. */
AVO_MUST_USE avo_status device_read_chosen(device_stream *stream, uint32_t row,
                                           const int32_t *tokens, uint32_t count, float *chosen,
                                           avo_error *error);
/* Rows of DEVICE_NORM: [count][width]. */
AVO_MUST_USE avo_status device_read_normed(device_stream *stream, uint32_t count,
                                           const float **rows, avo_error *error);
/* Hidden states of rows [first, first + count) of the batch at the stream's tap number `tap`. */
AVO_MUST_USE avo_status device_read_tap(device_stream *stream, uint32_t tap, uint32_t first,
                                        uint32_t count, const float **rows, avo_error *error);

#endif
