/* Measurements of an engine and of single operations, each beside what the machine can do at most
 * (device/cpu/limits.h), taken in the same run just before.
 *
 * Tokens are pseudo-random, so that nothing is easier than it would be in earnest. A case is
 * measured once for nothing, then `repeats` times, each time with the limits of that moment; the
 * medians count and the spread is shown.
 */
#ifndef AVO_BENCH_BENCH_H
#define AVO_BENCH_BENCH_H

#include "base/json_writer.h"
#include "device/cpu/limits.h"
#include "device/cpu/ops.h"
#include "device/layer.h"
#include "tokenizer/tokenizer.h"

#define BENCH_LIST_MAX      32
#define BENCH_REPEATS_MAX   100
#define BENCH_RESULTS_MAX   4096
#define BENCH_HEAD_SIZE_MAX 512

/* ---- Figures ---- */

typedef enum bench_kind { BENCH_PREFILL, BENCH_DECODE, BENCH_OPERATION } bench_kind;
const char *bench_kind_name(bench_kind kind);

/* One line of a table. What the machine was able to do just before is part of it. */
typedef struct bench_result {
    bench_kind kind;
    char model[64];   /* the model's name, or of an operation: "linear q4r 5632×2048" */
    char backend[16]; /* "ref", "avx2", … */
    char kv[8];       /* "f32", "int8"; "" where there is none */
    uint32_t tokens;  /* of a prompt, or steps of decoding; rows of an operation */
    uint32_t batch;   /* sessions that decode together */
    uint32_t depth;   /* tokens in the session before */
    uint32_t threads;
    uint32_t phases; /* of the last step; 0: unknown */
    uint32_t repeats;
    double seconds; /* median of a whole measurement */
    double tps;     /* tokens (rows) a second: median, slowest, fastest */
    double tps_low, tps_high;
    double gbps; /* bytes that must be read (of a tokenizer: of text), over the time */
    double gops; /* 2 × weights × rows and attention, over the time */
    /* Of what either limit allows: medians of every time's own share. The limit that binds by the
     * medians below is `bound`, and its share is `share`. */
    double read_share, arithmetic_share, share;
    limit_bound bound;
    double read_gbps; /* the limits, medians of those before every time; 0: not known, and then
                         its share is 0 as well */
    double integer_gops;
    double floating_gops;
} bench_result;

typedef struct bench_results {
    bench_result *item; /* [capacity], the caller's */
    size_t count, capacity;
} bench_results;

/* Room for one more result. */
AVO_MUST_USE avo_status bench_results_next(bench_results *results, bench_result **next,
                                           avo_error *error);

/* One time: how long it took, and what the machine did just before. */
typedef struct bench_sample {
    double seconds;
    machine_limits limits;
} bench_sample;

/* Sorts the values; at least one. */
double bench_median(double *values, uint32_t count);

/* Fills repeats, seconds, tps, gbps, gops, shares, bound and the limits from `repeats` runs of
 * `work`. */
void bench_conclude(const bench_sample *samples, uint32_t repeats, double tokens,
                    const limit_work *work, bench_result *result);

/* ---- What a step has to do ---- */

/* Rows of one step: `sessions` that hold `depth` tokens each and add `rows` tokens each, `logits`
 * of which get logits. Adds to `work`. */
void bench_step_work(const model_view *model, kv_type kv, bool floats, uint32_t sessions,
                     uint32_t depth, uint32_t rows, uint32_t logits, limit_work *work);

/* Attention of one layer alone: `rows` rows behind `depth` positions of one session. */
void bench_attention_work(const layer_view *layer, kv_type kv, bool floats, uint32_t depth,
                          uint32_t rows, limit_work *work);

/* ---- The machine ---- */

/* Memory to read and the limits of a number of threads; measured anew every time: thoroughly where
 * the last time was of another instruction set or number of threads, else shortly. */
typedef struct bench_machine bench_machine;
AVO_MUST_USE avo_status bench_machine_open(size_t read_bytes, bench_machine **out,
                                           avo_error *error);
void bench_machine_close(bench_machine *machine);
AVO_MUST_USE avo_status bench_machine_measure(bench_machine *machine, const char *isa,
                                              uint32_t threads, machine_limits *limits,
                                              avo_error *error);

/* ---- The engine ---- */

typedef struct bench_list {
    uint32_t item[BENCH_LIST_MAX];
    size_t count;
} bench_list;

uint32_t bench_largest(const bench_list *list); /* 0 of none */
size_t bench_positives(const bench_list *list); /* how many are not 0 */

typedef struct bench_engine_options {
    bench_list prompt, generate, batch, depth, threads; /* threads 0: all that may be used */
    const char *kv_type[BENCH_LIST_MAX];                /* NULL: the engine's choice */
    size_t kv_types;
    const char *isa[BENCH_LIST_MAX]; /* the same */
    size_t isas;
    uint32_t repeats;
    bool compute_depth; /* a depth is a prompt that was really computed, not copies of one page */
    avo_engine_options place; /* where things lie, who listens; the rest is set for every case */
    avo_progress_function progress;
} bench_engine_options;

/* Lines that bench_engine will add. */
uint64_t bench_engine_cases(const bench_engine_options *options);

/* Every prompt length at every depth, then every generation at every batch and depth, for every
 * number of threads. `name` is what the results call the model. */
AVO_MUST_USE avo_status bench_engine(const avo_model *model, const char *name,
                                     const bench_engine_options *options, bench_machine *machine,
                                     bench_results *results, avo_error *error);

/* ---- Single operations ---- */

/* A matrix, and the heads of an attention layer. */
typedef struct bench_shape {
    uint32_t outputs, k;
} bench_shape;
typedef struct bench_heads {
    uint32_t heads, kv_heads, size; /* heads a multiple of kv_heads, size ≤ BENCH_HEAD_SIZE_MAX */
} bench_heads;

typedef struct bench_operation_options {
    const char *isa;    /* NULL: the best there is */
    bench_list threads; /* at least 1 each */
    uint32_t repeats;
    size_t walk_bytes; /* of matrices, of K and V, that one time goes through: past every cache */
    avo_progress_function progress; /* NULL: silent */
    /* Products of every shape in every type with every number of rows. */
    bool linear;
    bench_shape shape[BENCH_LIST_MAX];
    size_t shapes;
    quant_type type[BENCH_LIST_MAX]; /* in PANELS */
    size_t types;
    bench_list rows; /* of activations */
    /* General products of training (device/cpu/gemm.h), of the same shapes, types and rows. */
    bool gemm;
    /* What stands between products, on rows as wide as the shapes' inputs. */
    bool between;
    /* Attention: one row behind every depth but 0, and every prompt behind every depth. */
    bool attention;
    bench_heads heads[BENCH_LIST_MAX];
    size_t heads_count;
    kv_type kv_type[KV_TYPE_COUNT];
    size_t kv_types;
    bench_list depth, prompt;
} bench_operation_options;

/* Lines that bench_operations will add. */
uint64_t bench_operation_cases(const bench_operation_options *options);

AVO_MUST_USE avo_status bench_operations(const bench_operation_options *options,
                                         bench_machine *machine, bench_results *results,
                                         avo_error *error);

/* ---- The tokenizer ---- */

typedef struct bench_tokenizer_options {
    const tokenizer *tokenizer;
    const char *name; /* of the results, behind "encode lines" and the like */
    text_view text;
    uint32_t repeats;
    avo_progress_function progress; /* NULL: silent */
} bench_tokenizer_options;

#define BENCH_TOKENIZER_CASES 3
/* Encodes the text line by line and whole, and decodes the ids: BENCH_TOKENIZER_CASES lines, on one
 * thread and by its own clock, so that neighbours do not count. Nothing is carried from one time to
 * the next. */
AVO_MUST_USE avo_status bench_tokenizer(const bench_tokenizer_options *options,
                                        bench_machine *machine, bench_results *results,
                                        avo_error *error);

/* Appends about `bytes` of text that nobody wrote, the same every time: sentences of common and of
 * made-up words, numbers, some code, some of other scripts. */
AVO_MUST_USE avo_status bench_text(size_t bytes, buffer *out);

/* ---- Lower rungs of the ladder ---- */

/* FP32 as one writes it down, one thread, on one matrix of outputs × k that stands for `weights`
 * numbers. */
AVO_MUST_USE avo_status bench_plain_loops(const char *name, bench_kind kind, uint32_t outputs,
                                          uint32_t k, double weights, uint32_t rows,
                                          uint32_t repeats, bench_machine *machine,
                                          bench_results *results, avo_error *error);

typedef struct bench_unfused_options {
    const char *name; /* of the result */
    const char *isa;
    uint32_t threads, rows, repeats;
    const avo_engine_options *place; /* NULL: as it comes */
} bench_unfused_options;

/* The products of a model's step one after the other, each a call of the team. */
AVO_MUST_USE avo_status bench_unfused(const avo_model *model, const bench_unfused_options *options,
                                      bench_machine *machine, bench_results *results,
                                      avo_error *error);

/* ---- Tables ---- */

typedef struct bench_report {
    const char *cpu;
    const char *features;
    uint32_t threads; /* usable */
    const bench_results *results;
} bench_report;

AVO_MUST_USE avo_status bench_write_markdown(const bench_report *report, buffer *out);
AVO_MUST_USE avo_status bench_write_csv(const bench_report *report, buffer *out);
AVO_MUST_USE avo_status bench_write_json(const bench_report *report, buffer *out);
/* The member "machine" of every JSON report. */
void bench_machine_json(json_writer *w, const bench_report *report);

#endif
