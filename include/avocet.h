/* Avocet: an LLM inference engine. This file, with those that it includes at its end, is the whole
 * public interface.
 *
 * Types:
 *   avo_model      weights, tokenizer and chat template of one file or folder. Immutable once
 *                  open: any number of engines and threads can share it.
 *   avo_engine     computes with a model on a device: worker threads, KV pool, scratch. It
 *                  allocates everything when it is opened; a step allocates nothing. Used by one
 *                  thread at a time.
 *   avo_session    one token timeline in an engine's KV pool.
 *   avo_batch      the rows that the next step computes, of any number of sessions.
 *   avo_adapter    a LoRA adapter of one model. Each session has its own; a batch can mix them.
 *   avo_registry   names for adapters that are loaded, replaced and unloaded while requests run.
 *   avo_request    a prompt with its sampling, limits and constraints.
 *   avo_chat       requests from JSON, answers split into content, reasoning and tool calls.
 *   avo_scheduler  runs many requests on one engine: queues, fairness, deadlines, cancellation.
 *   avo_grammar    a JSON schema or a grammar that an answer must follow, compiled to token masks.
 *   avo_train_run  trains adapters and models.
 *   avo_telemetry  counters, histograms and spans of engines and schedulers, with exporters.
 *
 * The same request gives the same bytes, no matter what else is in the batch, how the prompt is
 * split into chunks and how many threads run.
 *
 * Ownership: the caller closes every object it opens, in reverse order (batch and session before
 * engine, engine before model). Closing NULL does nothing. Returned pointers point into the object
 * that was asked and are valid as long as stated. Strings are UTF-8.
 *
 * Errors: a function that can fail returns avo_status and writes an explanation into the avo_error
 * if the caller passes one. After a failure no out-parameter owns anything. The library never
 * prints, never exits and has no global state.
 *
 * Arguments must not be NULL unless a comment says so; an avo_error and options may always be NULL.
 * Files are mapped. Truncating an open file crashes the program (SIGBUS), and writing into it
 * changes results: write a new file and rename it. A packed adapter that was overwritten in place
 * is refused by the next session that uses it, and reopened by a registry.
 *
 * Options structs begin with their own size. Initialise them with AVO_..._INIT, so that a program
 * built with an older header keeps working with a newer library.
 */
#ifndef AVOCET_H
#define AVOCET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AVO_VERSION_MAJOR 0
#define AVO_VERSION_MINOR 1
#define AVO_VERSION_PATCH 0
#define AVO_VERSION_TEXT  "0.1.0"

#if defined(__GNUC__) || defined(__clang__)
#define AVO_API      __attribute__((visibility("default")))
#define AVO_MUST_USE __attribute__((warn_unused_result))
#else
#define AVO_API
#define AVO_MUST_USE
#endif

/* ---- Status and error text -------------------------------------------------------------- */

/* X(name, number, text). The numbers are part of the ABI: new ones are added, none is reused. */
#define AVO_STATUS_TABLE(X)                                                                        \
    X(AVO_OK, 0, "ok")                                                                             \
    X(AVO_ERROR_MEMORY, 1, "out of memory")                                                        \
    X(AVO_ERROR_IO, 2, "input or output failed")                                                   \
    X(AVO_ERROR_FORMAT, 3, "the file is damaged or has another format")                            \
    X(AVO_ERROR_UNSUPPORTED, 4, "valid, but not supported")                                        \
    X(AVO_ERROR_ARGUMENT, 5, "invalid argument")                                                   \
    X(AVO_ERROR_LIMIT, 6, "a limit was exceeded")                                                  \
    X(AVO_ERROR_CONTEXT, 7, "the context is too small")                                            \
    X(AVO_ERROR_FULL, 8, "full, try again later")                                                  \
    X(AVO_ERROR_CANCELLED, 9, "cancelled by the caller")                                           \
    X(AVO_ERROR_NOT_FOUND, 10, "not found")                                                        \
    X(AVO_ERROR_NETWORK, 11, "the network transfer failed")                                        \
    X(AVO_ERROR_TEMPLATE, 12, "the chat template failed")                                          \
    X(AVO_ERROR_DEADLINE, 13, "the deadline cannot be met")                                        \
    X(AVO_ERROR_DEVICE, 14, "the device failed")

typedef enum avo_status {
#define AVO_STATUS_ENUM(name, number, text) name = number,
    AVO_STATUS_TABLE(AVO_STATUS_ENUM)
#undef AVO_STATUS_ENUM
} avo_status;

#define AVO_ERROR_TEXT_MAX 1024

typedef struct avo_error {
    avo_status status;
    char text[AVO_ERROR_TEXT_MAX]; /* one line, always terminated */
} avo_error;

/* The fixed text of a status; never NULL. */
AVO_API const char *avo_status_text(avo_status status);

/* Version of the library, such as "0.1.0"; may differ from the header's. */
AVO_API const char *avo_version(void);

/* ---- Hooks ------------------------------------------------------------------------------ */

/* Memory allocation. `allocate` returns NULL if there is no memory; the alignment is a power of
 * two. `release` gets the size that was allocated. Mapped files do not use the allocator. */
typedef struct avo_allocator {
    void *context;
    void *(*allocate)(void *context, size_t size, size_t alignment);
    void (*release)(void *context, void *memory, size_t size);
} avo_allocator;

/* Reports the progress of a long operation. Returning false cancels it (AVO_ERROR_CANCELLED). */
typedef bool (*avo_progress_function)(void *context, const char *what, uint64_t done,
                                      uint64_t total);

/* Receives log lines, one at a time, without a newline; the text is valid during the call only. */
typedef void (*avo_log_function)(void *context, const char *line);

/* Receives a part of an export. Returning false stops it (AVO_ERROR_CANCELLED). */
typedef bool (*avo_write_function)(void *context, const char *text, size_t bytes);

/* ---- How an answer ends ----------------------------------------------------------------- */

typedef enum avo_finish {
    AVO_FINISH_STOP_TOKEN = 0, /* an EOS token or one of the request's stop tokens */
    AVO_FINISH_STOP_STRING = 1,
    AVO_FINISH_LENGTH = 2,    /* max_new_tokens reached */
    AVO_FINISH_CONTEXT = 3,   /* the context is full */
    AVO_FINISH_CANCELLED = 4, /* by the callback or avo_scheduler_cancel */
    AVO_FINISH_DEADLINE = 5,  /* a deadline of the request has passed */
    AVO_FINISH_REPETITION = 6 /* the answer repeats itself, as the request's `repetition` says */
} avo_finish;

/* ---- Telemetry -------------------------------------------------------------------------- */

/* Counters, histograms and spans of the engines and schedulers that use it. The size is fixed;
 * recording neither locks nor allocates. Any thread can export at any time. */
typedef struct avo_telemetry avo_telemetry;

typedef struct avo_telemetry_options {
    size_t size;           /* sizeof(avo_telemetry_options) */
    uint32_t spans_max;    /* spans kept per thread, the newest ones; 0: 32768 */
    uint32_t adapters_max; /* adapters with their own counters, others share one; 0: 64 */
    bool hardware;         /* count cycles, instructions and cache misses if the kernel allows it */
    /* Model name in exports; copied. NULL: the file or folder name of the first engine's model. */
    const char *model_name;
} avo_telemetry_options;
#define AVO_TELEMETRY_OPTIONS_INIT                                                                 \
    { sizeof(avo_telemetry_options), 0, 0, false, NULL }

AVO_API AVO_MUST_USE avo_status avo_telemetry_open(const avo_telemetry_options *options,
                                                   const avo_allocator *allocator,
                                                   avo_telemetry **telemetry, avo_error *error);
/* Close it after the engines and schedulers that use it. */
AVO_API void avo_telemetry_close(avo_telemetry *telemetry);

typedef enum avo_telemetry_form {
    AVO_TELEMETRY_PROMETHEUS = 0, /* text format 0.0.4, with vLLM's names and our own */
    AVO_TELEMETRY_JSON = 1,       /* one object, the data of the dashboard */
    AVO_TELEMETRY_CSV = 2         /* one line for each counter and histogram */
} avo_telemetry_form;
AVO_API AVO_MUST_USE avo_status avo_telemetry_export(avo_telemetry *telemetry,
                                                     avo_telemetry_form form,
                                                     avo_write_function write, void *context,
                                                     avo_error *error);

/* Turns tracing on and off. Spans within steps are recorded only while it is on. Calls nest. */
AVO_API void avo_telemetry_trace_begin(avo_telemetry *telemetry);
AVO_API void avo_telemetry_trace_end(avo_telemetry *telemetry);
/* Writes the spans of the last `seconds` as a Chrome trace, which Perfetto also reads. Spans of a
 * closed engine or scheduler are kept until the next one opens. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_trace_write(avo_telemetry *telemetry, double seconds,
                                                          avo_write_function write, void *context,
                                                          avo_error *error);

/* Receives a trace. `wanted` is called now and then during the recording and stops it by returning
 * false (NULL: never). */
typedef struct avo_trace_reader {
    bool (*wanted)(void *context);
    avo_write_function write;
    void *context;
} avo_trace_reader;
/* Records for `seconds` and writes all spans of that time, up to `spans_max` of 40 bytes each (0:
 * no limit). Span buffers are emptied during the recording. The trace reports losses:
 * "spans_dropped" above spans_max, "spans_overwritten" if a buffer filled too fast. Only one
 * recording at a time; a second one fails with AVO_ERROR_LIMIT. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_trace_record(avo_telemetry *telemetry, double seconds,
                                                           uint64_t spans_max,
                                                           const avo_trace_reader *reader,
                                                           avo_error *error);

/* Appends a row with all metrics to a CSV file. A new file gets a header; a file with another first
 * line is refused. Rates are averages since the previous row, so use one file per telemetry. A file
 * larger than `bytes_max` (0: no limit) is renamed to "path.1", replacing an older one. If
 * `telemetry` is NULL, only checks that the file can be written. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_history(avo_telemetry *telemetry, const char *path,
                                                      uint64_t bytes_max, avo_error *error);

/* Times of one answer, for tables of answers. Negative values mean unknown. */
typedef struct avo_answer_times {
    size_t size; /* sizeof(avo_answer_times) */
    const char *model_name;
    avo_finish finish;
    uint32_t prompt_tokens, new_tokens;
    double load_seconds, tokenize_seconds, prefill_seconds, first_token_seconds;
    double prefill_rate, decode_rate; /* tokens per second */
    const double *token_seconds;      /* [token_count]; of the first: since the start */
    size_t token_count;
} avo_answer_times;
#define AVO_ANSWER_TIMES_INIT                                                                      \
    {                                                                                              \
        sizeof(avo_answer_times), NULL, AVO_FINISH_STOP_TOKEN, 0, 0, -1.0, -1.0, -1.0, -1.0, -1.0, \
            -1.0, NULL, 0                                                                          \
    }

/* Appends a CSV row to a file. A new file gets a header; a file with another first line is refused.
 * Several processes can append to one file. If `times` is NULL, only checks that the file can be
 * written. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_append(const char *path,
                                                     const avo_answer_times *times,
                                                     avo_error *error);
/* Writes the header and the row. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_row(const avo_answer_times *times,
                                                  avo_write_function write, void *context,
                                                  avo_error *error);

/* ---- Model ------------------------------------------------------------------------------ */

typedef struct avo_model avo_model;

typedef struct avo_model_options {
    size_t size;                    /* sizeof(avo_model_options) */
    const avo_allocator *allocator; /* NULL: malloc. Must outlive the model. */
    avo_progress_function progress; /* called while the model is opened and while the first engine
                                       repacks weights, by the thread that opens; NULL: none */
    void *progress_context;
    /* Opens a draft model of this one (avo_engine_options.draft_model), which must stay open as
     * long as engines use the draft model. The path can then also be "exit:N": the first N layers
     * of this model with its own output head, which takes no memory for weights. NULL: an ordinary
     * model. */
    const avo_model *draft_of;
    /* Folder with the repacked weights of models from earlier runs, which are then mapped instead
     * of repacked. It is made when needed; a file that does not belong to the model, or is damaged,
     * is replaced. NULL: none. */
    const char *panel_cache;
    /* Most bytes of all files in it: those used longest ago are deleted. The file of this model is
     * written while and after it answers for the first time, the rest when it is closed. 0: files
     * are used, and none is written. */
    uint64_t panel_cache_bytes;
    avo_log_function log; /* what becomes of the panel cache; any thread; NULL: none */
    void *log_context;
} avo_model_options;
#define AVO_MODEL_OPTIONS_INIT                                                                     \
    { sizeof(avo_model_options), NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL }

/* Opens a folder with safetensors, or a .gguf, .avo or llama2.c .bin file. */
AVO_API AVO_MUST_USE avo_status avo_model_open(const char *path, const avo_model_options *options,
                                               avo_model **model, avo_error *error);
AVO_API void avo_model_close(avo_model *model);

typedef struct avo_model_info {
    size_t size;              /* sizeof(avo_model_info), set by the caller */
    const char *architecture; /* "llama", "gemma3", …; valid as long as the model */
    const char *format;       /* "gguf", "safetensors", "llama2c", "avo" */
    uint32_t layers;
    uint32_t width;      /* width of the hidden state */
    uint32_t vocabulary; /* logits per row */
    uint32_t context;    /* longest context the model was trained for */
    uint64_t parameters;
    uint64_t weight_bytes; /* size in the file */
    int32_t token_begin;   /* BOS token; −1 if the model has none */
    bool has_tokenizer;
    bool has_chat_template;
} avo_model_info;
#define AVO_MODEL_INFO_INIT                                                                        \
    { sizeof(avo_model_info), NULL, NULL, 0, 0, 0, 0, 0, 0, -1, false, false }

AVO_API void avo_model_describe(const avo_model *model, avo_model_info *info);

/* True if the token ends generation. */
AVO_API bool avo_model_token_ends(const avo_model *model, int32_t token);

/* Draft heads: small networks, trained with the model, that guess the next tokens
 * (avo_engine_options.draft_heads). Answers do not depend on them. Refused if their shapes are not
 * those of the model. The model must outlive them. */
typedef struct avo_heads avo_heads;
AVO_API AVO_MUST_USE avo_status avo_heads_open(const avo_model *model, const char *path,
                                               avo_heads **heads, avo_error *error);
AVO_API void avo_heads_close(avo_heads *heads);

/* ---- Tokenizer -------------------------------------------------------------------------- */

enum {
    AVO_TOKENIZE_PLAIN = 0,   /* special tokens in the text are treated as text */
    AVO_TOKENIZE_SPECIAL = 1, /* special tokens in the text are recognised */
    AVO_TOKENIZE_BEGIN = 2,   /* add the BOS token if the model uses one */
    AVO_TOKENIZE_CONTINUE = 4 /* avo_detokenize: keep a leading space of continued text */
};

/* Writes up to `capacity` ids and sets `count` to the number of ids. AVO_ERROR_LIMIT if the
 * capacity is too small. A text can have more ids than bytes: call with capacity 0 for the count.
 * The text may contain any bytes. */
AVO_API AVO_MUST_USE avo_status avo_tokenize(const avo_model *model, const char *text, size_t bytes,
                                             uint32_t flags, int32_t *ids, size_t capacity,
                                             size_t *count, avo_error *error);

/* The inverse of avo_tokenize. `text` is not terminated; `bytes` is its full length. Special tokens
 * are written only with AVO_TOKENIZE_SPECIAL. */
AVO_API AVO_MUST_USE avo_status avo_detokenize(const avo_model *model, const int32_t *ids,
                                               size_t count, uint32_t flags, char *text,
                                               size_t capacity, size_t *bytes, avo_error *error);

/* A parsed JSON value. Immutable: any number of requests and threads can share it. */
typedef struct avo_value avo_value;
AVO_API AVO_MUST_USE avo_status avo_value_open(const char *json, size_t bytes,
                                               const avo_allocator *allocator, avo_value **value,
                                               avo_error *error);
/* Adds a reference and returns its argument. Any thread. */
AVO_API avo_value *avo_value_share(avo_value *value);
AVO_API void avo_value_close(avo_value *value);

typedef struct avo_message {
    const char *role; /* "system", "developer", "user", "assistant" or "tool" */
    const char *content;
} avo_message;

typedef struct avo_chat_options {
    size_t size;               /* sizeof(avo_chat_options) */
    bool no_generation_prompt; /* do not begin the assistant's turn at the end */
    int64_t now;               /* Unix time that templates see; 0: now */
    /* An object with additional template variables: tools, documents, enable_thinking, … "messages"
     * in it replaces the array of messages, which may then be empty. NULL: none. A request takes a
     * reference. */
    avo_value *variables;
} avo_chat_options;
#define AVO_CHAT_OPTIONS_INIT                                                                      \
    { sizeof(avo_chat_options), false, 0, NULL }

/* Renders messages with the model's chat template and tokenizes the result. Text from messages and
 * variables never becomes a special token. `capacity` and `count` as in avo_tokenize. */
AVO_API AVO_MUST_USE avo_status avo_chat_tokenize(const avo_model *model,
                                                  const avo_message *messages, size_t message_count,
                                                  const avo_chat_options *options, int32_t *ids,
                                                  size_t capacity, size_t *count, avo_error *error);

/* AVO_OK if avo_chat_tokenize works for this model. AVO_ERROR_NOT_FOUND if it has no chat template.
 * Another error explains why not: no tokenizer, or a template with unsupported constructs. */
AVO_API AVO_MUST_USE avo_status avo_chat_check(const avo_model *model, avo_error *error);

/* ---- Engine, sessions, batches ------------------------------------------------------------ */

#define AVO_TOP_LOGPROBS_MAX 20

typedef struct avo_logprob {
    int32_t token;
    float logprob;
} avo_logprob;

typedef struct avo_engine avo_engine;
typedef struct avo_session avo_session;
typedef struct avo_batch avo_batch;

typedef struct avo_engine_options {
    size_t size;           /* sizeof(avo_engine_options) */
    uint32_t threads;      /* worker threads; 0: at most as many as affinity and cgroup quota
                              allow, and of these as many as steps are fastest with */
    uint32_t context_max;  /* largest context of a session; 0: the model's own, fitted to memory */
    uint32_t sessions_max; /* 0: 1 */
    uint32_t rows_max;     /* largest number of rows per step; 0: 512 */
    uint32_t logits_max;   /* largest number of rows with logits per step; 0: sessions_max, and
                              for draft tokens up to 48 more */
    uint64_t kv_tokens;    /* tokens in the KV pool; 0: sessions_max × context_max */
    uint64_t memory_max;   /* bytes this engine may allocate; 0: the free memory of the system */
    /* LongRoPE models have two sets of RoPE factors, for contexts up to the original one and for
     * longer ones. This context selects the set; 0: the model's own. context_max, which can depend
     * on free memory, does not affect it and so never changes a result. */
    uint32_t rope_context;
    /* Type of keys and values: "f32", "f16", "bf16", "int8" or "fp8". NULL: "f32" for the reference
     * device, else "f16". Smaller types are read faster and allow longer contexts. */
    const char *kv_type;
    /* Device: "auto", "cpu" (the best CPU device), "ref", "avx2", "avx512", "amx". NULL: the
     * environment variable AVO_DEVICE (or AVO_ISA, its older name), else "auto": the fastest that
     * the processor and the operating system support. All but "ref" compute the same bits. */
    const char *device;
    /* Huge pages: "auto" (NULL): for repacked weights, and for mapped files if the file system
     * supports it; "on": also copy mapped panels; "off". */
    const char *huge_pages;
    /* NUMA: "first-touch" (NULL): repacked weights are on the node of the worker thread that
     * computes with them, and worker threads stay on their nodes; "interleave": spread evenly;
     * "off": not controlled. */
    const char *numa;
    /* Bind worker threads to one processor ("core") or to the processors of one NUMA node ("node");
     * the caller's own thread only during steps. "none" (NULL): left to the system and `numa`. */
    const char *pin;
    bool lock; /* keep everything in memory (mlock); fails if RLIMIT_MEMLOCK is too low */
    /* Called for each device that was passed over, with the reason; when the engine has opened,
     * with the device and the reason for it, then with threads and placement; when it closes after
     * steps, with the threads that were found best. Valid until then. NULL: none. */
    avo_log_function log;
    void *log_context;
    /* Largest sum of adapter ranks of one session, which scratch is planned for. 0: 256. */
    uint32_t adapter_rank_max;
    avo_telemetry *telemetry; /* also used by schedulers of this engine; NULL: none */
    /* Steps that can be computed at the same time, each on its own threads. A scheduler with
     * `cores` needs 2, which takes scratch for a second step and at least two threads. 0: 1. */
    uint32_t streams;
    /* Layers whose hidden states every step keeps for avo_batch_tap, ascending, at most 256. n is
     * the residual stream before layer n; the number of layers is the one after the last layer,
     * before the final norm. Each takes rows_max × width floats of scratch. */
    const uint32_t *taps;
    size_t tap_count;
    /* Speculative decoding: draft tokens are verified together with the token that a step computes
     * anyway. Answers have the same bytes with and without it. "auto" (NULL): every draft source
     * there is, as many tokens as make answers faster; "off"; or a list of sources: "suffix",
     * "ngram", "corpus", "grammar", "model", "eagle", "medusa", "layers". Requests can use fewer of
     * them. */
    const char *speculate;
    uint32_t draft_tokens; /* most draft tokens of a request in one step; 0: 15; at most 16 */
    /* Who decides how many drafts are verified: "cost" (NULL): their expected gain and cost,
     * learned from steps; or a rule without costs, for comparison: "fixed", "step", "rate", "ema".
     */
    const char *draft_controller;
    /* A smaller model, whose tokens are drafts, too. One with another vocabulary drafts by text,
     * which needs both tokenizers and is slower. It must outlive the engine, which opens a second
     * one for it. NULL: none. */
    const avo_model *draft_model;
    /* Draft heads of this model (avo_heads_open), at most one of each kind, which must outlive the
     * engine. Those whose kind `speculate` leaves out are not used. */
    const avo_heads *const *draft_heads;
    size_t draft_heads_count;
    /* "exact": every device but "ref" computes the same bits. "fast": matrices of 16-bit floats are
     * multiplied on tensor cores; device "cuda" only; other bits than "exact", but the same for
     * every batch and split of a prompt, and on every card of the same compute capability. NULL:
     * the environment variable AVO_ARITHMETIC, else "fast" on device "cuda" for models whose
     * matrices are mostly F16 or BF16, "exact" everywhere else. A saved session can be restored
     * only by an engine that computes the same bits. */
    const char *arithmetic;
    /* For models larger than the card: how many layers the device computes, the last ones and the
     * output head; the CPU computes the others, with the same bits ("exact" arithmetic). A number,
     * or "auto": as many as the device's free memory holds beside KV pages and scratch. NULL: all
     * layers. `device` must have memory of its own; NULL and "auto" stand for "cuda" here. */
    const char *gpu_layers;
    /* For devices with memory of their own: bytes of the host's memory for cached prefixes whose
     * KV pages the device needs for something else. They are copied there and, when a prompt begins
     * with them, back, instead of being computed again. 0: none. */
    uint64_t kv_host_bytes;
} avo_engine_options;
#define AVO_ENGINE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(avo_engine_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, false,   \
            NULL, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, NULL, NULL, 0, NULL, NULL, 0           \
    }

/* Does not change the model, which any number of engines can share. */
AVO_API AVO_MUST_USE avo_status avo_engine_open(const avo_model *model,
                                                const avo_engine_options *options,
                                                avo_engine **engine, avo_error *error);
AVO_API void avo_engine_close(avo_engine *engine);
/* Name of the device, such as "avx512". */
AVO_API const char *avo_engine_device(const avo_engine *engine);
/* Measures how many bytes per second the worker threads read from memory, which limits decoding;
 * telemetry reports it as the limit. Takes about a tenth of a second and temporarily up to 512 MiB.
 * AVO_ERROR_ARGUMENT while a scheduler uses the engine. */
AVO_API AVO_MUST_USE avo_status avo_engine_measure(avo_engine *engine, double *bytes_per_second,
                                                   avo_error *error);

/* The memory plan of an engine, computed without loading or allocating anything. */
typedef struct avo_plan {
    size_t size;           /* sizeof(avo_plan), set by the caller */
    uint64_t weight_bytes; /* mapped from the file and read in place */
    uint64_t repack_bytes; /* copied at load; shared by all engines of the model */
    uint64_t kv_bytes;
    uint64_t scratch_bytes;
    uint64_t available_bytes; /* the limit that everything must fit */
    const char *limit;        /* source of the limit: "memory_max", "cgroup", "system", "sysinfo" */
    uint32_t threads;         /* of the host; 0: the device has none, and huge_pages, numa and pin
                                 are NULL */
    uint32_t context_max;
    uint32_t kv_pages;
    uint32_t kv_page_tokens;
    const char *kv_type;    /* "f32", … */
    const char *device;     /* "ref", "avx2", … */
    const char *huge_pages; /* result of the option and the kernel: "auto", "on", "off", "none" */
    const char *numa;       /* "first-touch", "interleave", "off" */
    const char *pin;        /* "none", "core", "node" */
    uint32_t numa_nodes;
    bool lock;
    const char *device_from; /* reason for this device: "option", "AVO_DEVICE", "AVO_ISA", "best" */
    uint64_t session_bytes;  /* timelines of all sessions, page accounting, a batch for rings */
    uint32_t streams;
    uint64_t stream_bytes;   /* part of scratch_bytes for the second stream */
    const char *device_kind; /* "cpu" */
    const char *arithmetic;  /* "exact", "fast", or "ref", the reference device's */
    /* True: the device uses the host's memory, and everything must fit available_bytes. False:
     * weights, KV and scratch must fit available_bytes on the device, sessions
     * host_available_bytes. */
    bool host_memory;
    uint64_t host_available_bytes;
    uint64_t draft_bytes;       /* of the host, for speculation; not included in session_bytes */
    const char *arithmetic_why; /* reason for `arithmetic`, a phrase */
    /* With gpu_layers: the model's first layers, which the CPU computes, and what they take of the
     * host's memory besides mapped weights. kv_bytes and scratch_bytes are the device's alone. */
    uint32_t cpu_layers;
    uint64_t cpu_bytes;
    uint64_t kv_host_bytes; /* of the host, for cached KV pages; not included in session_bytes */
} avo_plan;
#define AVO_PLAN_INIT                                                                              \
    {                                                                                              \
        sizeof(avo_plan), 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, false, \
            NULL, 0, 0, 0, NULL, NULL, false, 0, 0, NULL, 0, 0, 0                                  \
    }

AVO_API AVO_MUST_USE avo_status avo_engine_plan(const avo_model *model,
                                                const avo_engine_options *options, avo_plan *plan,
                                                avo_error *error);

/* An adapter with a weight. Weights apply exactly: the contribution of each adapter is multiplied
 * by its weight, and all are added. Negative weights subtract. */
typedef struct avo_adapter avo_adapter;
typedef struct avo_adapter_use {
    avo_adapter *adapter;
    float weight;
} avo_adapter_use;
#define AVO_ADAPTERS_MAX 8 /* per session */

typedef struct avo_session_options {
    size_t size; /* sizeof(avo_session_options) */
    /* The session takes references. Each adapter may appear once. */
    const avo_adapter_use *adapters;
    size_t adapter_count;
    /* Cached prefixes are shared only between sessions with the same salt. NULL: none. */
    const char *cache_salt;
    /* Ring mode, for conversations of unlimited length. When the timeline reaches `ring_window`
     * tokens, the call that adds the next token keeps the first `ring_keep`, drops the older half
     * of the others and computes the rest again at its new positions, exactly as if it were a new
     * conversation. Adding many tokens at once gives the same timeline as adding them one by one.
     * Memory and context stay constant. 0: off. */
    uint32_t ring_window, ring_keep;
} avo_session_options;
#define AVO_SESSION_OPTIONS_INIT                                                                   \
    { sizeof(avo_session_options), NULL, 0, NULL, 0, 0 }

/* `options` may be NULL. */
AVO_API AVO_MUST_USE avo_status avo_session_open(avo_engine *engine,
                                                 const avo_session_options *options,
                                                 avo_session **session, avo_error *error);
AVO_API void avo_session_close(avo_session *session);
/* Number of tokens of the timeline. The last token of an answer may not have been computed yet; the
 * next batch or avo_generate computes it first. */
AVO_API uint32_t avo_session_length(const avo_session *session);
/* Removes all tokens from position `length` on. */
AVO_API AVO_MUST_USE avo_status avo_session_truncate(avo_session *session, uint32_t length,
                                                     avo_error *error);
/* The tokens of the timeline; valid until the session changes. */
AVO_API const int32_t *avo_session_tokens(const avo_session *session);
/* Opens another session with the same timeline, adapters and salt. Both share pages until one of
 * them writes. */
AVO_API AVO_MUST_USE avo_status avo_session_fork(const avo_session *session, avo_session **fork,
                                                 avo_error *error);
/* Fills an empty session with the longest prefix of `tokens` in the prefix cache, computed by
 * sessions with the same adapters and salt: whole pages, and never the last token. The result is
 * bit-identical to computing them. *reused (may be NULL) is set to the number of tokens. */
AVO_API AVO_MUST_USE avo_status avo_session_reuse(avo_session *session, const int32_t *tokens,
                                                  size_t count, size_t *reused, avo_error *error);
/* Saves timeline, K and V to a file (with checksums, written to a new file and renamed), and
 * restores them into an empty session. Restoring fails if the model, adapters, KV type or version
 * differ from the file's. */
AVO_API AVO_MUST_USE avo_status avo_session_save(const avo_session *session, const char *path,
                                                 avo_error *error);
AVO_API AVO_MUST_USE avo_status avo_session_restore(avo_session *session, const char *path,
                                                    avo_error *error);

/* State of the KV pool. */
typedef struct avo_kv_info {
    size_t size; /* sizeof(avo_kv_info), set by the caller */
    uint32_t page_tokens, pages;
    uint32_t pages_free, pages_cached,
        pages_used; /* cached: kept for prefixes, reused when pages are needed */
    uint64_t prefix_queried_tokens, prefix_hit_tokens;
    /* With kv_host_bytes: pages that fit the host's memory, cached pages that are there, and how
     * many were copied there and back since the engine was opened. */
    uint32_t pages_host, pages_host_cached;
    uint64_t pages_moved_out, pages_moved_in;
} avo_kv_info;
#define AVO_KV_INFO_INIT                                                                           \
    { sizeof(avo_kv_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
AVO_API void avo_engine_kv(const avo_engine *engine, avo_kv_info *info);

AVO_API AVO_MUST_USE avo_status avo_batch_open(avo_engine *engine, avo_batch **batch,
                                               avo_error *error);
AVO_API void avo_batch_close(avo_batch *batch);
AVO_API void avo_batch_clear(avo_batch *batch);

/* Appends tokens to a session's timeline; the last one gets logits. A session can be added once per
 * step. `count` may be 0 if the last token of the timeline has not been computed yet. On failure
 * batch and session are unchanged and avo_batch_error has the text. If a ring shifts, this call
 * computes the rest of the timeline in steps of its own. These invalidate logits of earlier steps
 * (of every batch of this engine), clearing the batch does not undo them, and only tokens added
 * after the shift can have logits. */
AVO_API AVO_MUST_USE avo_status avo_batch_add(avo_batch *batch, avo_session *session,
                                              const int32_t *tokens, size_t count);
/* The same, but the last `logits` tokens get logits (0: none, count: all). */
AVO_API AVO_MUST_USE avo_status avo_batch_add_scored(avo_batch *batch, avo_session *session,
                                                     const int32_t *tokens, size_t count,
                                                     size_t logits);

/* Computes the batch. On success the timelines include the new tokens. On failure nothing has
 * changed and avo_batch_error has the text. */
AVO_API AVO_MUST_USE avo_status avo_step(avo_engine *engine, avo_batch *batch);

AVO_API const avo_error *avo_batch_error(const avo_batch *batch);

/* Logits of a session's `index`-th row with logits in the last step, `vocabulary` floats. NULL if
 * there are none or the device failed; avo_batch_error has the text. Valid until the engine's next
 * step, of any batch, or the batch is cleared. */
AVO_API const float *avo_batch_logits(avo_batch *batch, const avo_session *session, size_t index);

/* Log-probabilities of tokens after rows of the last step. A session's rows are counted from 0 and
 * include tokens that were still to be computed; they need no logits. logprobs[i] is that of
 * next[i] after row first + i. tops[i × top …] (NULL if `top` is 0) are the `top` most likely
 * tokens there. Bit-identical, no matter how rows are batched. Discards the step's own logits. Rows
 * can be scored until the engine's next step, of any batch. */
AVO_API AVO_MUST_USE avo_status avo_batch_score(avo_batch *batch, const avo_session *session,
                                                size_t first, size_t count, const int32_t *next,
                                                uint32_t top, float *logprobs, avo_logprob *tops);
/* Hidden states after the final norm of a session's rows in the last step, [count][width]. NULL if
 * there are no such rows or the device failed; avo_batch_error has the text. Valid until the next
 * call of this or of avo_batch_score, or until the engine's next step, of any batch. */
AVO_API const float *avo_batch_hidden(avo_batch *batch, const avo_session *session, size_t first,
                                      size_t count);

/* Hidden states of a session's rows in the last step at one of the engine's `taps` (`layer`),
 * [count][width]. NULL if there are no such rows, the layer is not tapped or the device failed;
 * avo_batch_error has the text. Valid until the next
 * call or the engine's next step, of any batch. */
AVO_API const float *avo_batch_tap(avo_batch *batch, const avo_session *session, uint32_t layer,
                                   size_t first, size_t count);

/* ---- Adapters ----------------------------------------------------------------------------- */

typedef struct avo_adapter_options {
    size_t size; /* sizeof(avo_adapter_options) */
    /* Type for computing: "q8" (NULL), "f16", "f32". A packed file keeps its type. */
    const char *type;
} avo_adapter_options;
#define AVO_ADAPTER_OPTIONS_INIT                                                                   \
    { sizeof(avo_adapter_options), NULL }

/* Opens a PEFT folder (adapter_config.json, adapter_model.safetensors), a GGUF adapter or a packed
 * file. An error names any part that does not fit the model. The adapter has one reference; the
 * model must outlive it. */
AVO_API AVO_MUST_USE avo_status avo_adapter_open(const avo_model *model, const char *path,
                                                 const avo_adapter_options *options,
                                                 avo_adapter **adapter, avo_error *error);
/* Adds a reference and returns its argument. Any thread. */
AVO_API avo_adapter *avo_adapter_share(avo_adapter *adapter);
/* Releases a reference; the last one closes the adapter. Sessions hold their own. */
AVO_API void avo_adapter_close(avo_adapter *adapter);

/* Shows that an adapter is applied: the modules it matches and how much it changes. */
typedef struct avo_adapter_info {
    size_t size; /* sizeof(avo_adapter_info), set by the caller */
    const char *path;
    const char *method; /* "lora", "rslora", "dora" */
    const char *type;   /* type for computing */
    char digest[33];    /* of everything that affects results, in hexadecimal */
    uint32_t modules_matched, modules_expected;
    uint32_t rank_max;     /* largest rank of a matrix */
    uint64_t bytes;        /* bytes that a step with it reads */
    uint64_t memory_bytes; /* taken from the allocator */
    bool idle;             /* has no effect: B, or every scale, is zero */
} avo_adapter_info;
#define AVO_ADAPTER_INFO_INIT                                                                      \
    { sizeof(avo_adapter_info), NULL, NULL, NULL, {0}, 0, 0, 0, 0, 0, false }
AVO_API void avo_adapter_describe(const avo_adapter *adapter, avo_adapter_info *info);

typedef struct avo_adapter_module {
    size_t size;      /* sizeof(avo_adapter_module), set by the caller */
    const char *name; /* "model.layers.0.self_attn.q_proj"; valid as long as the adapter */
    const char *kind; /* "lora", "dora", "embedding", "full", "norm", "bias" */
    uint32_t rank;
    double scale;
    double norm; /* Frobenius norm of the change of the weights; NaN if out of memory */
} avo_adapter_module;
#define AVO_ADAPTER_MODULE_INIT                                                                    \
    { sizeof(avo_adapter_module), NULL, NULL, 0, 0.0, 0.0 }
/* False if `index` is not less than modules_matched. */
AVO_API bool avo_adapter_module_at(const avo_adapter *adapter, size_t index,
                                   avo_adapter_module *module);
/* Writes the adapter in the layout that kernels read, which opens instantly. Parts that depend on
 * the base model's weights (DoRA, trained matrices, norms, biases) record which model that is: a
 * digest of its configuration, the names, types and shapes of its tensors and a sample of their
 * values. It tells models apart but does not prove that a model file is intact. Saved sessions use
 * the same digest. */
AVO_API AVO_MUST_USE avo_status avo_adapter_pack(const avo_adapter *adapter, const char *path,
                                                 avo_error *error);

/* Names for adapters. It can hold thousands; an adapter is opened on first use, and closed again,
 * least recently used first, if its memory is needed. Any thread can call these functions. */
typedef struct avo_registry avo_registry;
typedef struct avo_registry_options {
    size_t size;         /* sizeof(avo_registry_options) */
    const char *root;    /* paths are relative to this folder or lie below it; NULL: any path */
    uint64_t memory_max; /* of all open adapters, including replaced and unloaded ones that are
                            still in use; 0: no limit */
    const char *type;    /* as in avo_adapter_options */
} avo_registry_options;
#define AVO_REGISTRY_OPTIONS_INIT                                                                  \
    { sizeof(avo_registry_options), NULL, 0, NULL }

AVO_API AVO_MUST_USE avo_status avo_registry_open(const avo_model *model,
                                                  const avo_registry_options *options,
                                                  avo_registry **registry, avo_error *error);
AVO_API void avo_registry_close(avo_registry *registry);
enum {
    AVO_REGISTRY_PINNED = 1, /* never closed to free memory */
    AVO_REGISTRY_LAZY = 2    /* opened on first use */
};
/* Adds a name or replaces its adapter. Requests in flight keep the version they started with. A
 * failure changes nothing. */
AVO_API AVO_MUST_USE avo_status avo_registry_load(avo_registry *registry, const char *name,
                                                  const char *path, uint32_t flags,
                                                  avo_error *error);
AVO_API AVO_MUST_USE avo_status avo_registry_unload(avo_registry *registry, const char *name,
                                                    avo_error *error);
/* Returns a reference to the current version, which the caller must close. */
AVO_API AVO_MUST_USE avo_status avo_registry_take(avo_registry *registry, const char *name,
                                                  avo_adapter **adapter, avo_error *error);
typedef struct avo_registry_entry {
    size_t size; /* sizeof of the library's structure */
    const char *name, *path;
    bool open, pinned;
    uint64_t memory_bytes;
    uint32_t users;
    uint64_t version;
    char digest[33]; /* empty if it was never open */
} avo_registry_entry;
/* Calls `see` for each entry in order of names. The entry is valid during the call; `see` must not
 * call the registry. */
AVO_API void avo_registry_list(avo_registry *registry,
                               void (*see)(void *context, const avo_registry_entry *entry),
                               void *context);

/* ---- Sampling ----------------------------------------------------------------------------- */

typedef struct avo_logit_bias {
    int32_t token;
    float bias; /* added to the logit; −INFINITY forbids the token */
} avo_logit_bias;

typedef struct avo_sampling {
    size_t size;              /* sizeof(avo_sampling) */
    float temperature;        /* 0: greedy */
    uint32_t top_k;           /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float typical_p;          /* 1: off */
    float repetition_penalty; /* 1: off; applies to prompt and answer */
    float presence_penalty;   /* 0: off; applies to the answer */
    float frequency_penalty;  /* 0: off; applies to the answer */
    uint64_t seed;
    const avo_logit_bias *bias;
    size_t bias_count;
    uint32_t top_logprobs; /* alternatives to report, 0 to AVO_TOP_LOGPROBS_MAX */
} avo_sampling;
#define AVO_SAMPLING_INIT                                                                          \
    { sizeof(avo_sampling), 0.0f, 0, 1.0f, 0.0f, 1.0f, 1.0f, 0.0f, 0.0f, 0, NULL, 0, 0 }

/* Sets the model's recommended values, and the defaults of AVO_SAMPLING_INIT for the others. */
AVO_API void avo_model_sampling(const avo_model *model, avo_sampling *sampling);

/* True if a temperature is recommended for the model: by its files, or by its name where it is one
 * that is known. */
AVO_API bool avo_model_recommends(const avo_model *model);

#include "avocet/grammar.h" /* requests point at grammars */

/* ---- Requests ----------------------------------------------------------------------------- */

/* One generated token. `text` contains whole characters only. It is empty while a character is
 * incomplete or a stop string may be forming; text held back that turns out to be part of the
 * answer comes at the end, in an event with token −1. */
typedef struct avo_token_event {
    int32_t token;
    uint32_t index;
    const char *text; /* not terminated */
    size_t text_bytes;
    float logprob; /* before temperature and filters */
    const avo_logprob *top;
    uint32_t top_count;
    bool drafted; /* it was an accepted draft token; the same step accepted the token before it */
} avo_token_event;

/* The outcome of a request. Times of parts that never began are 0. */
typedef struct avo_result {
    size_t size; /* avo_generate: set by the caller; in an event: the library's sizeof */
    avo_finish finish;
    /* The stop that ended the answer. stop_token: the token id, with AVO_FINISH_STOP_TOKEN; −1
     * otherwise, and if the grammar allowed no further token. stop_index: with
     * AVO_FINISH_STOP_STRING the index of the request's stop string, with AVO_FINISH_STOP_TOKEN
     * that in its stop_tokens; −1 otherwise, and if the token is only the model's own. Of strings
     * that end at the same byte, the longest; of equal ones, the first. */
    int32_t stop_token, stop_index;
    /* The stop string, or NULL. Of avo_generate the caller's; in an event valid during the call. */
    const char *stop_string;
    uint32_t prompt_tokens, reused_tokens, new_tokens;
    uint32_t preemptions;
    double queue_seconds;       /* from submission to its first step */
    double prefill_seconds;     /* from its first step until the prompt is computed */
    double first_token_seconds; /* from submission, or from the call of avo_generate */
    double decode_seconds;      /* from the first token to the end */
    double total_seconds;
    const float *embedding; /* [embedding_width] if pooling was requested; valid during the call */
    uint32_t embedding_width;
    uint32_t drafted_tokens, accepted_tokens; /* draft tokens verified, and of these accepted */
} avo_result;
#define AVO_RESULT_INIT                                                                            \
    {                                                                                              \
        sizeof(avo_result), AVO_FINISH_STOP_TOKEN, -1, -1, NULL, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0,   \
            0.0, NULL, 0, 0, 0                                                                     \
    }

/* avo_generate sends AVO_EVENT_PREFILL and AVO_EVENT_TOKEN and returns the result. The scheduler
 * sends all events but AVO_EVENT_PREFILL. */
typedef enum avo_event_kind {
    AVO_EVENT_TOKEN = 0,    /* `token` */
    AVO_EVENT_FINISHED = 1, /* `result`; the last event */
    AVO_EVENT_FAILED = 2,   /* `error`; the last event */
    AVO_EVENT_PROMPT = 3, /* `token` of the prompt (prompt_logprobs), before the first new token */
    AVO_EVENT_PREFILL = 4 /* after each chunk of the prompt: `done` of `total` tokens */
} avo_event_kind;

typedef struct avo_event {
    size_t size; /* the library's sizeof */
    avo_event_kind kind;
    uint64_t request; /* number from submission; 0 from avo_generate */
    size_t index;     /* index of the request in its avo_scheduler_batch; otherwise 0 */
    const avo_token_event *token;
    const avo_result *result;
    const avo_error *error;
    uint64_t done, total;
} avo_event;
/* Returning false ends the request with AVO_FINISH_CANCELLED. avo_generate calls it on the caller's
 * thread. The scheduler calls it on a delivery thread, one call at a time per request, in order. It
 * must return quickly: waiting delays other deliveries, never the engine. It may submit, cancel and
 * describe, but must not call avo_scheduler_batch, avo_scheduler_drain or avo_scheduler_close,
 * which would wait for this thread. */
typedef bool (*avo_event_function)(void *context, const avo_event *event);

typedef struct avo_named_adapter {
    const char *name; /* in the scheduler's registry */
    float weight;
} avo_named_adapter;

/* Pooled hidden states after the final norm: one vector of the model's width, not normalised. */
typedef enum avo_pooling {
    AVO_POOLING_NONE = 0,
    AVO_POOLING_MEAN = 1, /* over all tokens of the prompt */
    AVO_POOLING_LAST = 2  /* of its last token */
} avo_pooling;

/* A prompt and how to answer it, for avo_generate and for a scheduler. The prompt is one of:
 * tokens; messages, in the array or in chat's variables; text. A scheduler copies everything
 * pointed to; for avo_generate it must stay valid until the call returns. Fields marked (scheduler)
 * must keep their value of AVO_REQUEST_INIT in avo_generate, which otherwise fails and names the
 * field. */
/* Ends an answer whose last tokens are one pattern again and again. A loop of 5 tokens is one of
 * 10, of 15 and so on as well: with pattern_min 16 and count_min 4 loops of any length up to
 * pattern_max are seen, but none in fewer than 64 tokens. */
typedef struct avo_repetition {
    uint32_t pattern_min; /* tokens of the pattern; 0: 1 */
    uint32_t pattern_max; /* at most AVO_REPETITION_PATTERN_MAX; 0: off */
    uint32_t count_min;   /* how often it must have come in a row, at least 2 */
} avo_repetition;
#define AVO_REPETITION_PATTERN_MAX 1024

typedef struct avo_request {
    size_t size; /* sizeof(avo_request) */
    const int32_t *tokens;
    size_t token_count;
    const avo_message *messages; /* rendered with the chat template */
    size_t message_count;
    const avo_chat_options *chat;
    const char *text;                /* plain text to continue; terminated */
    uint32_t text_flags;             /* AVO_TOKENIZE_… */
    const avo_adapter_use *adapters; /* (scheduler) or by name: */
    size_t adapter_count;
    const avo_named_adapter *named_adapters; /* (scheduler) */
    size_t named_adapter_count;
    uint32_t max_new_tokens;      /* at most 16777216; 0: until the context is full */
    const avo_sampling *sampling; /* NULL: greedy */
    const char *const *stop;      /* strings that end the answer and are not part of it */
    size_t stop_count;
    const int32_t *stop_tokens; /* in addition to the model's own */
    size_t stop_token_count;
    bool ignore_end;     /* continue after EOS tokens */
    const char *tenant;  /* (scheduler) unit of fairness, divided among its adapters */
    float tenant_weight; /* (scheduler) 0: 1; otherwise 0.001 to 1e9 */
    uint32_t priority;   /* (scheduler) 0 (served first) to 15; default 8 */
    /* (scheduler) Seconds from submission; 0: none. When a deadline passes, the request ends with
     * AVO_FINISH_DEADLINE. If it can no longer be met before the prompt has started, the request
     * fails with AVO_ERROR_DEADLINE. */
    double first_token_deadline;
    double deadline;        /* (scheduler) for the whole answer */
    const char *cache_salt; /* (scheduler) prefixes are shared only with the same salt */
    avo_event_function on_event;
    void *on_event_context;
    avo_grammar *grammar; /* the request takes a reference; NULL: unconstrained */
    /* (scheduler) Send an AVO_EVENT_PROMPT for every prompt token from prompt_logprobs_from on,
     * with its logprob given the tokens before it (NaN for the first) and sampling's top_logprobs.
     * Of the prefix cache only tokens before that one are reused, and the last of them is not. */
    bool prompt_logprobs;
    bool no_answer;      /* (scheduler) compute the prompt only; ends with AVO_FINISH_LENGTH */
    avo_pooling pooling; /* (scheduler) the result has an embedding of the prompt; needs no_answer
                          */
    /* (scheduler) Compiles the grammar instead of `grammar`: called once, by a tokenizer thread,
     * after the request was accepted into the queue. An error fails the request. */
    avo_grammar_function open_grammar;
    void *open_grammar_context;
    /* As in avo_engine_options, within what the engine was opened with. The answer does not depend
     * on them. */
    const char *speculate;
    uint32_t draft_tokens;
    size_t
        prompt_logprobs_from; /* (scheduler) with prompt_logprobs; less than the prompt's tokens */
    /* (scheduler) KV tokens, in whole pages, that running requests of the tenant may need together
     * at their longest; further ones wait without holding up other tenants. 0: no limit. */
    uint64_t tenant_kv_tokens;
    /* Until the answer has this many tokens it does not end with EOS tokens, stop tokens or stop
     * strings, unless its grammar allows nothing else. */
    uint32_t min_new_tokens;
    avo_repetition repetition; /* ends with AVO_FINISH_REPETITION; all 0: off */
} avo_request;
#define AVO_REQUEST_INIT                                                                           \
    {                                                                                              \
        sizeof(avo_request), NULL, 0, NULL, 0, NULL, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, 0,  \
            NULL, 0, false, NULL, 0.0f, 8, 0.0, 0.0, NULL, NULL, NULL, NULL, false, false,         \
            AVO_POOLING_NONE, NULL, NULL, NULL, 0, 0, 0, 0, {                                      \
            0, 0, 0                                                                                \
        }                                                                                          \
    }

/* Appends the prompt to the session and generates an answer; without a prompt it continues the last
 * answer. The session keeps prompt and answer, so that the next call can continue the conversation.
 * Sampling is keyed by the seed and the position in the timeline; in ring mode, by the number of
 * tokens ever added, which never repeats. Penalties cover the whole timeline without the tokens
 * that a ring has dropped. `result` may be NULL. */
AVO_API AVO_MUST_USE avo_status avo_generate(avo_engine *engine, avo_session *session,
                                             const avo_request *request, avo_result *result,
                                             avo_error *error);

#ifdef __cplusplus
}
#endif

#include "avocet/chat.h"
#include "avocet/scheduler.h"
#include "avocet/train.h"

#endif
