/* The CUDA device. Exact arithmetic has the bits of the CPU devices but ref, so that sessions,
 * pages and prefixes move between them; fast arithmetic (fast.c) has bits of its own. Kernels are
 * in kernels/; everything here is host code.
 *
 * A step: the host looks up embeddings and computes angles as CPU devices do, one block of inputs
 * goes to the card, kernels run in order in one queue, results come back. KV pages, weights,
 * adapters and scratch are the card's memory; embeddings stay in the host's. */
#ifndef AVO_DEVICE_CUDA_CUDA_H
#define AVO_DEVICE_CUDA_CUDA_H

#include "base/arena.h"
#include "base/team.h"
#include "device/cpu/activation.h"
#include "device/cpu/backend.h"
#include "device/cuda/port.h"
#include "device/driver.h"

extern const device_driver device_cuda;

/* Ways to compute a step, all with the same bits. */
typedef struct cuda_tuning {
    uint32_t rung;   /* of docs/cuda.md: 1 or 2 */
    uint32_t graph;  /* steps of few rows are recorded once */
    uint32_t early;  /* kernels begin before the one in front has ended */
    uint32_t ahead;  /* KiB of weights that a block then fetches */
    uint32_t pair;   /* gate and up, and the activation, in one kernel */
    uint32_t whole;  /* panels of a block from which warps take whole ones; 0: never */
    uint32_t depth;  /* pieces of weights that a warp has on their way */
    uint32_t ready;  /* 256 k of rows from which a kernel of its own makes the input */
    uint32_t room;   /* KiB of shared memory that a block of few rows takes at least */
    uint32_t lines;  /* of float weights that are on their way together */
    uint32_t tile;   /* rows from which Q4R products run on tensor cores; 0: never */
    uint32_t wide;   /* rows from which they run on warpgroups, where the card has them; 0: never */
    uint32_t tiles;  /* attention of many rows reads each page once for all rows of a tile */
    uint32_t make;   /* fast arithmetic: norms of few rows in the product's kernel */
    uint32_t attend; /* attention of few rows: 1: as that of many */
} cuda_tuning;

cuda_tuning cuda_tuning_usual(void);
/* "NAME=NUMBER" of `length` characters; false: there is no such. */
bool cuda_tuning_read(const char *text, size_t length, cuda_tuning *tuning);

typedef struct cuda_device {
    device base;
    cuda_port *port;
    cuda_tuning tuning;
    bool fast; /* matrices of 16-bit floats are computed on tensor cores */
    char bits[DEVICE_ARITHMETIC_MAX];
} cuda_device;

static inline cuda_device *cuda_of(device *device) {
    return (cuda_device *)(void *)device;
}

/* With a port, which the device then owns, whether this succeeds or not. *out is closed after a
 * failure, too. */
AVO_MUST_USE avo_status cuda_open_with(const device_driver *driver, const device_options *options,
                                       cuda_port *port, const cuda_tuning *tuning, device **out,
                                       avo_error *error);

/* ---- Copies that are complete when they return ---- */

AVO_MUST_USE avo_status cuda_copy_in(cuda_device *cuda, uint8_t *to, const void *from, size_t bytes,
                                     avo_error *error);
AVO_MUST_USE avo_status cuda_copy_out(cuda_device *cuda, void *to, const uint8_t *from,
                                      size_t bytes, avo_error *error);

/* ---- Types ---- */

/* False for floats and Q4R, which have kernels of their own. */
bool cuda_shape_of(quant_type type, exact_shape *shape);
/* The kernel of products with the type; CUDA_KERNELS: there is none. */
cuda_kernel cuda_linear_kernel(quant_type type);

/* ---- The fast arithmetic ---- */

/* Whether all matrices of a place are 16-bit floats of one type and k: then they lie in slabs. */
bool fast_matrices(const weight_view *const *weights, size_t count);
/* Whether up and gate do, in the same panels. */
bool fast_paired(const layer_view *layer);
uint32_t fast_slabs(uint32_t k);
uint64_t fast_bytes(uint32_t rows, uint32_t k);
/* Of `rows` rows as an input. */
uint64_t fast_input_bytes(uint64_t rows, uint64_t k);

/* ---- Weights and adapters ---- */

typedef struct cuda_weights {
    device_weights base;
    model_view host; /* embeddings and rotation tables, where the host reads them */
    arena arena;
    uint8_t *memory; /* of the card */
} cuda_weights;

AVO_MUST_USE avo_status cuda_weights_plan(const device *device, const weights_source *source,
                                          weights_plan *plan, avo_error *error);
AVO_MUST_USE avo_status cuda_weights_open(device_stream *stream, const weights_source *source,
                                          device_weights *weights, avo_error *error);
void cuda_weights_close(device_weights *weights);
AVO_MUST_USE avo_status cuda_adapter_open(device *device, const adapter_view *view,
                                          const model_view *model, adapter_copy *copy,
                                          avo_error *error);
void cuda_adapter_close(device *device, adapter_copy *copy);

/* ---- Streams ---- */

/* Device addresses of a stream's buffers, [rows_max] rows unless said otherwise. */
typedef struct cuda_scratch {
    float *hidden, *normed, *query, *key, *value, *attended, *gate, *up, *projected;
    uint8_t *query_form;          /* [rows][heads][attend_query_stride] */
    uint8_t *form[PRODUCT_FORMS]; /* activation_bytes(rows_max, longest input) */
    uint8_t *wide;                /* rows in the order of wide.h: numbers, then scales */
    uint8_t *ready;               /* of few rows: input in its form (kernel_ready) */
    float *low_rank;              /* [rows][rank] A·x of one run and matrix */
    uint8_t *low_rank_form;
    float *part;       /* of attention of few rows: [FEW_ROWS][heads][splits][16 + head size] */
    uint32_t *arrived; /* [rows][heads] */
    float *logits;     /* [head_rows][vocabulary] */
    head_sum *sums;
    float *chunk_logit;
    int32_t *chunk_token;
    uint32_t *chunk_count;
    head_top *top; /* [head_rows] */
    float *tap;    /* [taps][rows][width] */
    uint8_t *input;
    /* The fast arithmetic's inputs, of any product and of down. */
    uint8_t *fast_x, *fast_next;
} cuda_scratch;

/* Inputs of a step: laid out in host memory and copied to the same places on the card. */
typedef struct cuda_input {
    size_t hidden, cosine, sine, position, row_pages, tile, pages, logit_row,
        target;    /* tile: [rows][2], first row and rows */
    size_t tables; /* of adapters: rewound when it is full */
    size_t bytes;
} cuda_input;

/* A step that was recorded, and of what shape: everything in it that is not in the card's memory.
 */
#define CUDA_GRAPHS 8
typedef struct cuda_recording {
    cuda_graph *graph; /* NULL: none */
    const void *weights, *pool;
    device_work work;
    uint32_t rows, logit_rows, top, splits, pages;
    bool target, alone;
} cuda_recording;

typedef struct cuda_stream {
    device_stream base;
    uint32_t chunks; /* of the vocabulary */
    team *team;      /* the host's part of steps */
    uint32_t workers;
    uint8_t *memory;
    size_t memory_bytes;
    cuda_scratch scratch;
    cuda_input input;
    size_t tables_used;
    uint8_t *host_input; /* pinned */
    /* The host's part of a step. */
    scratch_view host;
    uint8_t *host_scratch;
    size_t host_scratch_bytes;
    uint8_t *host_output; /* pinned: tops, then sums */
    stream_results results;
    uint32_t top_rows; /* that the work in flight computes */
    cuda_recording recording[CUDA_GRAPHS];
    uint32_t next_recording;
} cuda_stream;

static inline cuda_stream *cuda_stream_of(device_stream *stream) {
    return (cuda_stream *)(void *)stream;
}

/* Bytes on the card, and where everything is; memory NULL: sizes alone. False when they wrap. */
bool cuda_scratch_lay(const stream_shape *shape, bool fast, uint8_t *memory, cuda_scratch *scratch,
                      cuda_input *input, size_t *bytes);
AVO_MUST_USE avo_status cuda_start(device_stream *stream, device_work work, const device_step *step,
                                   avo_error *error);

extern const stream_operations cuda_stream_operations;

#endif
