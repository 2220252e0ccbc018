/* Avocet: an LLM inference engine. This is the whole public interface.
 *
 * The few things there are:
 *   avo_model    weights, tokenizer and chat template of one file or folder. Immutable once open,
 *                so any number of engines and threads may share it.
 *   avo_engine   what computes: thread team, KV pool, scratch. Everything is allocated when it is
 *                opened; a step allocates nothing. Used by one thread at a time.
 *   avo_session  one timeline of tokens in an engine's KV pool.
 *   avo_batch    what the next step computes: rows of any number of sessions together.
 *   avo_adapter  LoRA and the like for one model: chosen per session, mixed freely in a batch.
 *   avo_registry names for adapters: loaded, replaced and unloaded while requests run.
 *   avo_scheduler many requests on one engine: queues, fairness, deadlines, cancellation.
 *   avo_grammar  what an answer may be: a JSON schema or a grammar, compiled to token masks.
 *   avo_telemetry counters, histograms and spans of engines and schedulers, and their exporters.
 *
 * The same request gives the same bytes whatever else is in the batch, however a prompt is cut
 * into chunks and however many threads run.
 *
 * Ownership: whoever opens closes, in reverse order (batch and session before engine, engine
 * before model). A close of NULL does nothing. Pointers handed out point into the object that
 * was asked and live as long as stated. Strings are UTF-8.
 *
 * Errors: a function that can fail returns avo_status and, where the caller gave an avo_error,
 * writes a text that names what is wrong. After a failure no out-parameter owns anything.
 * The library never prints, never exits and keeps no global state.
 *
 * Arguments must not be NULL unless a comment says so; an avo_error and options may always be.
 * Files are mapped: whoever cuts one short while it is open takes the program down (SIGBUS), and
 * whoever writes into one changes what is computed. Write beside and rename. A packed adapter that
 * was written in place is refused by the next session that asks for it, and opened anew by a
 * registry.
 *
 * Options structs begin with their own size: initialise them with AVO_..._INIT, so that a program
 * built against an older header keeps working with a newer library.
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

/* X(name, number, text). Numbers are part of the ABI: never reused, only added to. */
#define AVO_STATUS_TABLE(X)                                                                        \
    X(AVO_OK, 0, "ok")                                                                             \
    X(AVO_ERROR_MEMORY, 1, "out of memory")                                                        \
    X(AVO_ERROR_IO, 2, "input or output failed")                                                   \
    X(AVO_ERROR_FORMAT, 3, "the file is damaged or not what it claims to be")                      \
    X(AVO_ERROR_UNSUPPORTED, 4, "valid, but not supported")                                        \
    X(AVO_ERROR_ARGUMENT, 5, "an argument is wrong")                                               \
    X(AVO_ERROR_LIMIT, 6, "a stated maximum was exceeded")                                         \
    X(AVO_ERROR_CONTEXT, 7, "the context is too small")                                            \
    X(AVO_ERROR_FULL, 8, "no room left, try again later")                                          \
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

/* "0.1.0"; the library's own, which may differ from the header's. */
AVO_API const char *avo_version(void);

/* ---- Hooks ------------------------------------------------------------------------------ */

/* Where memory comes from. `allocate` returns NULL when there is none; alignment is a power of
 * two. `release` gets the size that was asked for. Mapped files do not pass through here. */
typedef struct avo_allocator {
    void *context;
    void *(*allocate)(void *context, size_t size, size_t alignment);
    void (*release)(void *context, void *memory, size_t size);
} avo_allocator;

/* Long work reports how far it is. Returning false cancels it: opening a model then gives
 * AVO_ERROR_CANCELLED. */
typedef bool (*avo_progress_function)(void *context, const char *what, uint64_t done,
                                      uint64_t total);

/* Whoever wants to know what the library has decided gets it here, a line at a time, without a
 * newline; the text lives for the call only. */
typedef void (*avo_log_function)(void *context, const char *line);

/* Takes a piece of an export; false ends it (AVO_ERROR_CANCELLED). */
typedef bool (*avo_write_function)(void *context, const char *text, size_t bytes);

/* ---- How an answer ends ----------------------------------------------------------------- */

typedef enum avo_finish {
    AVO_FINISH_STOP_TOKEN = 0, /* a token that ends generation */
    AVO_FINISH_STOP_STRING = 1,
    AVO_FINISH_LENGTH = 2,    /* max_new_tokens reached */
    AVO_FINISH_CONTEXT = 3,   /* the context is full */
    AVO_FINISH_CANCELLED = 4, /* the callback said so */
    AVO_FINISH_DEADLINE = 5   /* a deadline has passed */
} avo_finish;

/* ---- Telemetry -------------------------------------------------------------------------- */

/* Counters, histograms and spans of everything that it was given to: engines and schedulers. Fixed
 * in size; recording takes no lock and no memory. Any thread may export at any time. */
typedef struct avo_telemetry avo_telemetry;

typedef struct avo_telemetry_options {
    size_t size;           /* sizeof(avo_telemetry_options) */
    uint32_t spans_max;    /* kept per thread, the newest; 0: 32768 */
    uint32_t adapters_max; /* with counters of their own, others are counted together; 0: 64 */
    bool hardware;         /* count cycles, instructions and cache misses where the kernel allows */
    /* What exporters call the model; copied. NULL: the name of the first engine's file or folder.
     */
    const char *model_name;
} avo_telemetry_options;
#define AVO_TELEMETRY_OPTIONS_INIT                                                                 \
    { sizeof(avo_telemetry_options), 0, 0, false, NULL }

AVO_API AVO_MUST_USE avo_status avo_telemetry_open(const avo_telemetry_options *options,
                                                   const avo_allocator *allocator,
                                                   avo_telemetry **telemetry, avo_error *error);
/* After the engines and schedulers that use it. */
AVO_API void avo_telemetry_close(avo_telemetry *telemetry);

typedef enum avo_telemetry_form {
    AVO_TELEMETRY_PROMETHEUS = 0, /* text format 0.0.4, vLLM's names and our own */
    AVO_TELEMETRY_JSON = 1,       /* one object: what a dashboard shows */
    AVO_TELEMETRY_CSV = 2         /* every counter and histogram, a line each */
} avo_telemetry_form;
AVO_API AVO_MUST_USE avo_status avo_telemetry_export(avo_telemetry *telemetry,
                                                     avo_telemetry_form form,
                                                     avo_write_function write, void *context,
                                                     avo_error *error);

/* Spans within steps are recorded only while tracing is on; calls are counted. */
AVO_API void avo_telemetry_trace_begin(avo_telemetry *telemetry);
AVO_API void avo_telemetry_trace_end(avo_telemetry *telemetry);
/* Spans of the last `seconds` as a Chrome trace, which Perfetto reads, too. Those of an engine or
 * scheduler that has closed are there until the next one opens. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_trace_write(avo_telemetry *telemetry, double seconds,
                                                          avo_write_function write, void *context,
                                                          avo_error *error);

/* Who gets a trace: asked now and then whether it is still wanted (NULL: always), then given it. */
typedef struct avo_trace_reader {
    bool (*wanted)(void *context);
    avo_write_function write;
    void *context;
} avo_trace_reader;
/* Traces for `seconds` and gives all spans of that time: rings are emptied while it lasts, up to
 * `spans_max` of 40 bytes (0: no limit). What was lost is said in the trace: "spans_dropped" where
 * there was no more room, "spans_overwritten" where a ring was faster. One at a time; another one
 * is refused with AVO_ERROR_LIMIT. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_trace_record(avo_telemetry *telemetry, double seconds,
                                                           uint64_t spans_max,
                                                           const avo_trace_reader *reader,
                                                           avo_error *error);

/* Appends a row of everything to a CSV file, which gets a header when it is new; a file with
 * another first line is refused. Rates are those since the row before, so let one file have a
 * telemetry's rows. A file of more than `bytes_max` (0: of any size) becomes "path.1", replacing an
 * older one, and a new one begins. Without telemetry: makes sure that it can be written. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_history(avo_telemetry *telemetry, const char *path,
                                                      uint64_t bytes_max, avo_error *error);

/* How one answer came, for tables of answers. What is negative is not known. */
typedef struct avo_answer_times {
    size_t size; /* sizeof(avo_answer_times) */
    const char *model_name;
    avo_finish finish;
    uint32_t prompt_tokens, new_tokens;
    double load_seconds, tokenize_seconds, prefill_seconds, first_token_seconds;
    double prefill_rate, decode_rate; /* tokens a second */
    const double *token_seconds;      /* [token_count] what each took; the first: since the begin */
    size_t token_count;
} avo_answer_times;
#define AVO_ANSWER_TIMES_INIT                                                                      \
    {                                                                                              \
        sizeof(avo_answer_times), NULL, AVO_FINISH_STOP_TOKEN, 0, 0, -1.0, -1.0, -1.0, -1.0, -1.0, \
            -1.0, NULL, 0                                                                          \
    }

/* Appends a row of CSV to a file, which gets a header when it is new; a file with another first
 * line is refused. Rows of several processes stay whole. Without times: makes sure that it can be
 * written. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_append(const char *path,
                                                     const avo_answer_times *times,
                                                     avo_error *error);
/* The header and the row. */
AVO_API AVO_MUST_USE avo_status avo_telemetry_row(const avo_answer_times *times,
                                                  avo_write_function write, void *context,
                                                  avo_error *error);

/* ---- Model ------------------------------------------------------------------------------ */

typedef struct avo_model avo_model;

typedef struct avo_model_options {
    size_t size;                    /* sizeof(avo_model_options) */
    const avo_allocator *allocator; /* NULL: malloc. Must outlive the model. */
    avo_progress_function progress; /* while opening, and while the first engine repacks weights, by
                                       the thread that opens; NULL: silent */
    void *progress_context;
} avo_model_options;
#define AVO_MODEL_OPTIONS_INIT                                                                     \
    { sizeof(avo_model_options), NULL, NULL, NULL }

/* Opens a folder with safetensors, a .gguf, a .avo or a llama2.c .bin file. */
AVO_API AVO_MUST_USE avo_status avo_model_open(const char *path, const avo_model_options *options,
                                               avo_model **model, avo_error *error);
AVO_API void avo_model_close(avo_model *model);

typedef struct avo_model_info {
    size_t size;              /* sizeof(avo_model_info), set by the caller */
    const char *architecture; /* "llama", "gemma3", …; lives as long as the model */
    const char *format;       /* "gguf", "safetensors", "llama2c", "avo" */
    uint32_t layers;
    uint32_t width;      /* of the hidden state */
    uint32_t vocabulary; /* logits per row */
    uint32_t context;    /* longest the model was made for */
    uint64_t parameters;
    uint64_t weight_bytes; /* as stored */
    int32_t token_begin;   /* −1 where the model has none */
    bool has_tokenizer;
    bool has_chat_template;
} avo_model_info;
#define AVO_MODEL_INFO_INIT                                                                        \
    { sizeof(avo_model_info), NULL, NULL, 0, 0, 0, 0, 0, 0, -1, false, false }

AVO_API void avo_model_describe(const avo_model *model, avo_model_info *info);

/* True where generation ends after this token. */
AVO_API bool avo_model_token_ends(const avo_model *model, int32_t token);

/* ---- Tokenizer -------------------------------------------------------------------------- */

enum {
    AVO_TOKENIZE_PLAIN = 0,   /* special tokens in the text stay text */
    AVO_TOKENIZE_SPECIAL = 1, /* special tokens in the text count as such */
    AVO_TOKENIZE_BEGIN = 2,   /* put the begin token in front where the model wants one */
    AVO_TOKENIZE_CONTINUE = 4 /* detokenizing: the text continues another, so that a space in front
                                 stays */
};

/* Writes up to `capacity` ids and always the full count; AVO_ERROR_LIMIT when they differ.
 * A text may have more ids than bytes: ask for the count first (capacity 0). Any bytes are
 * accepted. */
AVO_API AVO_MUST_USE avo_status avo_tokenize(const avo_model *model, const char *text, size_t bytes,
                                             uint32_t flags, int32_t *ids, size_t capacity,
                                             size_t *count, avo_error *error);

/* The inverse; `text` is not terminated, `bytes` is the full length. Special tokens appear only
 * with AVO_TOKENIZE_SPECIAL. */
AVO_API AVO_MUST_USE avo_status avo_detokenize(const avo_model *model, const int32_t *ids,
                                               size_t count, uint32_t flags, char *text,
                                               size_t capacity, size_t *bytes, avo_error *error);

/* A JSON value that was parsed once. Immutable: any number of requests and threads may share it. */
typedef struct avo_value avo_value;
AVO_API AVO_MUST_USE avo_status avo_value_open(const char *json, size_t bytes,
                                               const avo_allocator *allocator, avo_value **value,
                                               avo_error *error);
/* Another reference, for another owner; returns its argument. Any thread. */
AVO_API avo_value *avo_value_share(avo_value *value);
AVO_API void avo_value_close(avo_value *value);

typedef struct avo_message {
    const char *role; /* "system", "user", "assistant", … */
    const char *content;
} avo_message;

typedef struct avo_chat_options {
    size_t size;               /* sizeof(avo_chat_options) */
    bool no_generation_prompt; /* do not open the assistant's turn at the end */
    int64_t now;               /* Unix time that templates see; 0: the clock's */
    /* An object of more variables for the template: tools, documents, enable_thinking, …; with
     * "messages" in it, they replace the array, which may then be empty. NULL: none. Requests take
     * a reference. */
    avo_value *variables;
} avo_chat_options;
#define AVO_CHAT_OPTIONS_INIT                                                                      \
    { sizeof(avo_chat_options), false, 0, NULL }

/* Renders messages with the model's own template and tokenizes the result. Text from messages and
 * variables can never turn into special tokens. Counts as in avo_tokenize. */
AVO_API AVO_MUST_USE avo_status avo_chat_tokenize(const avo_model *model,
                                                  const avo_message *messages, size_t message_count,
                                                  const avo_chat_options *options, int32_t *ids,
                                                  size_t capacity, size_t *count, avo_error *error);

/* AVO_OK where avo_chat_tokenize can work; AVO_ERROR_NOT_FOUND where the model has no template;
 * else why not: no tokenizer, or a template that is not understood. */
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
    uint32_t threads;      /* 0: as many as this process may really use */
    uint32_t context_max;  /* tokens of one session; 0: the model's own, fitted to memory */
    uint32_t sessions_max; /* 0: 1 */
    uint32_t rows_max;     /* rows of one step; 0: 512 */
    uint32_t logits_max;   /* rows of one step that may ask for logits; 0: sessions_max */
    uint64_t kv_tokens;    /* tokens in the KV pool; 0: sessions_max × context_max */
    uint64_t memory_max;   /* bytes this engine may allocate; 0: what the system has free */
    /* LongRoPE models have two sets of rotations, for contexts up to their original one and for
     * longer ones. This says for which context the rotations are set; 0: the model's own. It alone
     * decides, so that context_max, which may depend on free memory, never changes a result. */
    uint32_t rope_context;
    /* How keys and values are stored: "f32", "f16", "bf16", "int8" or "fp8". NULL: "f32" where the
     * reference computes, "f16" otherwise. Fewer bytes read faster and hold longer contexts. */
    const char *kv_type;
    /* What computes: "auto", "cpu" (the best CPU device), "ref", "avx2", "avx512", "amx". NULL: the
     * environment variable AVO_DEVICE (or AVO_ISA, its older name), else "auto": the fastest that
     * processor and operating system support. All but "ref" compute the same bits. */
    const char *device;
    /* Where weights lie. Huge pages: "auto" (NULL) for what is repacked at load, and for mapped
     * files where the file system can; "on" takes a copy of mapped panels too, "off" none. */
    const char *huge_pages;
    /* NUMA: "first-touch" (NULL): repacked weights lie on the node of the worker that computes with
     * them, and workers stay on their nodes; "interleave": spread evenly; "off": as it comes. */
    const char *numa;
    /* Workers stay on one processor ("core") or on the processors of one NUMA node ("node"), the
     * caller's own thread during steps only; "none" (NULL) leaves that to the system and to
     * `numa`. */
    const char *pin;
    bool lock; /* keep everything in memory (mlock); fails where RLIMIT_MEMLOCK is too low */
    /* Once, when the engine has opened: the instruction set and why, then threads and placement.
     * NULL: silent. */
    avo_log_function log;
    void *log_context;
    /* Largest sum of the ranks of one session's adapters; scratch is planned for it. 0: 256. */
    uint32_t adapter_rank_max;
    avo_telemetry *telemetry; /* shared with schedulers of this engine; NULL: none */
    /* Steps that can be computed at the same time, each on its own threads: 2 for a scheduler with
     * `cores`, which takes scratch for a second step and at least two threads; 0: 1. */
    uint32_t streams;
    /* Layers whose hidden states every step keeps for avo_batch_tap, ascending and at most 16: n is
     * the residual stream in front of layer n, the number of layers is the one behind the last
     * layer, before the final norm. Each takes rows_max × width floats of scratch. */
    const uint32_t *taps;
    size_t tap_count;
} avo_engine_options;
#define AVO_ENGINE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(avo_engine_options), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, false,   \
            NULL, NULL, 0, NULL, 0, NULL, 0                                                        \
    }

/* The model is not changed and may be shared by any number of engines. */
AVO_API AVO_MUST_USE avo_status avo_engine_open(const avo_model *model,
                                                const avo_engine_options *options,
                                                avo_engine **engine, avo_error *error);
AVO_API void avo_engine_close(avo_engine *engine);
/* The device it computes with: "avx512". */
AVO_API const char *avo_engine_device(const avo_engine *engine);
/* Measures how many bytes a second its threads can read from memory, which bounds decoding; its
 * telemetry shows that as the limit. Takes about a tenth of a second and up to 512 MiB, which are
 * given back. AVO_ERROR_ARGUMENT while a scheduler has the engine. */
AVO_API AVO_MUST_USE avo_status avo_engine_measure(avo_engine *engine, double *bytes_per_second,
                                                   avo_error *error);

/* The memory plan: what an engine takes, computed without loading or allocating anything. */
typedef struct avo_plan {
    size_t size;           /* sizeof(avo_plan), set by the caller */
    uint64_t weight_bytes; /* mapped from the file and read there */
    uint64_t repack_bytes; /* copied at load; shared by all engines of the model */
    uint64_t kv_bytes;
    uint64_t scratch_bytes;
    uint64_t available_bytes; /* the limit they must fit */
    const char *limit;        /* where that limit comes from: "memory_max", "cgroup", "system" */
    uint32_t threads;
    uint32_t context_max;
    uint32_t kv_pages;
    uint32_t kv_page_tokens;
    const char *kv_type;    /* "f32", … */
    const char *device;     /* "ref", "avx2", … */
    const char *huge_pages; /* what options and kernel come to: "auto", "on", "off", "none" */
    const char *numa;       /* "first-touch", "interleave", "off" */
    const char *pin;        /* "none", "core", "node" */
    uint32_t numa_nodes;
    bool lock;
    const char *device_from; /* why this device: "option", "AVO_DEVICE", "AVO_ISA", "best" */
    uint64_t session_bytes;  /* tokens of all sessions, accounts of the KV pages, rings' batch */
    uint32_t streams;
    uint64_t stream_bytes;   /* of scratch_bytes, for the second stream */
    const char *device_kind; /* "cpu" */
    const char *arithmetic;  /* "ref" or "fast": devices with the same one compute the same bits */
    /* True: the device uses the host's memory, and everything must fit available_bytes. False:
     * weights, KV and scratch must fit available_bytes on the device, sessions
     * host_available_bytes. */
    bool host_memory;
    uint64_t host_available_bytes;
} avo_plan;
#define AVO_PLAN_INIT                                                                              \
    {                                                                                              \
        sizeof(avo_plan), 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, false, \
            NULL, 0, 0, 0, NULL, NULL, false, 0                                                    \
    }

AVO_API AVO_MUST_USE avo_status avo_engine_plan(const avo_model *model,
                                                const avo_engine_options *options, avo_plan *plan,
                                                avo_error *error);

/* An adapter and how much of it. Weights are exact: what each adapter adds is multiplied and
 * summed; negative ones subtract. */
typedef struct avo_adapter avo_adapter;
typedef struct avo_adapter_use {
    avo_adapter *adapter;
    float weight;
} avo_adapter_use;
#define AVO_ADAPTERS_MAX 8 /* of one session */

typedef struct avo_session_options {
    size_t size; /* sizeof(avo_session_options) */
    /* The session takes references of its own. An adapter may stand here once. */
    const avo_adapter_use *adapters;
    size_t adapter_count;
    /* Cached prefixes are shared only between sessions with the same salt; NULL: none. */
    const char *cache_salt;
    /* Ring mode, for conversations without end: when the timeline reaches `ring_window` tokens, the
     * first `ring_keep` stay, of the others the older half is forgotten and what is left is
     * computed again at its new positions, exactly as if the conversation had been that, by the
     * call that adds the token which no longer fits. However many tokens are added at once, the
     * timeline is the one that adding them one by one gives. Memory and context stay constant.
     * 0: off. */
    uint32_t ring_window, ring_keep;
} avo_session_options;
#define AVO_SESSION_OPTIONS_INIT                                                                   \
    { sizeof(avo_session_options), NULL, 0, NULL, 0, 0 }

/* `options` may be NULL. */
AVO_API AVO_MUST_USE avo_status avo_session_open(avo_engine *engine,
                                                 const avo_session_options *options,
                                                 avo_session **session, avo_error *error);
AVO_API void avo_session_close(avo_session *session);
/* Tokens of the timeline. The last one of an answer may not have been computed yet; whatever comes
 * next, a batch or a generation, computes it first. */
AVO_API uint32_t avo_session_length(const avo_session *session);
/* Forgets everything from `length` on. */
AVO_API AVO_MUST_USE avo_status avo_session_truncate(avo_session *session, uint32_t length,
                                                     avo_error *error);
/* The tokens of the timeline; valid until the session changes. */
AVO_API const int32_t *avo_session_tokens(const avo_session *session);
/* Another session with the same timeline, adapters and salt. Pages are shared until one of both
 * writes. */
AVO_API AVO_MUST_USE avo_status avo_session_fork(const avo_session *session, avo_session **fork,
                                                 avo_error *error);
/* Fills an empty session with the longest prefix of `tokens` that live or past sessions with the
 * same adapters and salt have computed: whole pages, and never the last token. The result is
 * bit-identical to computing them. *reused (may be NULL): how many tokens that were. */
AVO_API AVO_MUST_USE avo_status avo_session_reuse(avo_session *session, const int32_t *tokens,
                                                  size_t count, size_t *reused, avo_error *error);
/* Timeline, K and V into a file (written beside, checked sums, renamed) and back into an empty
 * session. Refused where model, adapters, KV type or version differ from those of the file. */
AVO_API AVO_MUST_USE avo_status avo_session_save(const avo_session *session, const char *path,
                                                 avo_error *error);
AVO_API AVO_MUST_USE avo_status avo_session_restore(avo_session *session, const char *path,
                                                    avo_error *error);

/* What the KV pool holds now. */
typedef struct avo_kv_info {
    size_t size; /* sizeof(avo_kv_info), set by the caller */
    uint32_t page_tokens, pages;
    uint32_t pages_free, pages_cached,
        pages_used; /* cached: kept for prefixes, given away freely */
    uint64_t prefix_queried_tokens, prefix_hit_tokens;
} avo_kv_info;
#define AVO_KV_INFO_INIT                                                                           \
    { sizeof(avo_kv_info), 0, 0, 0, 0, 0, 0, 0 }
AVO_API void avo_engine_kv(const avo_engine *engine, avo_kv_info *info);

AVO_API AVO_MUST_USE avo_status avo_batch_open(avo_engine *engine, avo_batch **batch,
                                               avo_error *error);
AVO_API void avo_batch_close(avo_batch *batch);
AVO_API void avo_batch_clear(avo_batch *batch);

/* Appends tokens to a session's timeline, with logits for the last one. A session may be added
 * once per step. `count` may be 0 where the timeline ends with a token not yet computed. On failure
 * batch and session are as before and avo_batch_error has the text. Where a ring turns, what is
 * left of the timeline is computed here, by steps of its own, which make logits of earlier steps
 * invalid (of every batch of this engine); clearing the batch does not turn it back, and only
 * tokens added since can have logits. */
AVO_API AVO_MUST_USE avo_status avo_batch_add(avo_batch *batch, avo_session *session,
                                              const int32_t *tokens, size_t count);
/* The same; the last `logits` tokens get logits (0: none, count: all). */
AVO_API AVO_MUST_USE avo_status avo_batch_add_scored(avo_batch *batch, avo_session *session,
                                                     const int32_t *tokens, size_t count,
                                                     size_t logits);

/* Computes the batch. On success the sessions have grown by their tokens; on failure nothing has
 * changed and avo_batch_error has the text. */
AVO_API AVO_MUST_USE avo_status avo_step(avo_engine *engine, avo_batch *batch);

AVO_API const avo_error *avo_batch_error(const avo_batch *batch);

/* Logits of a session's `index`-th scored token in the step just done, `vocabulary` floats; NULL
 * when there are none. Valid until the engine's next step, of whichever batch, or the clear. */
AVO_API const float *avo_batch_logits(const avo_batch *batch, const avo_session *session,
                                      size_t index);

/* Of the step just done: how likely other tokens are behind its rows. A session's rows are counted
 * from 0, what its timeline owed included, and none of them needs logits of its own. logprobs[i] is
 * that of next[i] behind row first + i, tops[i × top …] (NULL where `top` is 0) are the `top` most
 * likely tokens there. Bit-identical however rows are put together. The step's own logits are gone
 * afterwards; rows can be scored until the engine's next step, of whichever batch. */
AVO_API AVO_MUST_USE avo_status avo_batch_score(avo_batch *batch, const avo_session *session,
                                                size_t first, size_t count, const int32_t *next,
                                                uint32_t top, float *logprobs, avo_logprob *tops);
/* Of the step just done: hidden states behind the last norm of a session's rows, [count][width];
 * NULL when there are no such rows. Valid until the next call of this or of avo_batch_score, or the
 * engine's next step, of whichever batch. */
AVO_API const float *avo_batch_hidden(avo_batch *batch, const avo_session *session, size_t first,
                                      size_t count);

/* Of the step just done: hidden states of a session's rows at one of the engine's `taps` (`layer`),
 * [count][width]; NULL when there are no such rows or the layer is not tapped. Valid until the next
 * call or the engine's next step, of whichever batch. */
AVO_API const float *avo_batch_tap(avo_batch *batch, const avo_session *session, uint32_t layer,
                                   size_t first, size_t count);

/* ---- Adapters ----------------------------------------------------------------------------- */

typedef struct avo_adapter_options {
    size_t size;      /* sizeof(avo_adapter_options) */
    const char *type; /* how it is stored for computing: "q8" (NULL), "f16", "f32". A packed file
                         keeps the type it was packed with. */
} avo_adapter_options;
#define AVO_ADAPTER_OPTIONS_INIT                                                                   \
    { sizeof(avo_adapter_options), NULL }

/* A PEFT folder (adapter_config.json, adapter_model.safetensors), a GGUF adapter or a packed file.
 * Whatever does not fit the model is refused by name. Opened with one reference; the model must
 * outlive it. */
AVO_API AVO_MUST_USE avo_status avo_adapter_open(const avo_model *model, const char *path,
                                                 const avo_adapter_options *options,
                                                 avo_adapter **adapter, avo_error *error);
/* Another reference, for another owner; returns its argument. Any thread. */
AVO_API avo_adapter *avo_adapter_share(avo_adapter *adapter);
/* Gives a reference back; the last one closes. Sessions hold their own. */
AVO_API void avo_adapter_close(avo_adapter *adapter);

/* Proof that it is applied: what was matched, and how much it changes. */
typedef struct avo_adapter_info {
    size_t size; /* sizeof(avo_adapter_info), set by the caller */
    const char *path;
    const char *method; /* "lora", "rslora", "dora" */
    const char *type;   /* as stored for computing */
    char digest[33];    /* of everything that changes a result, in hexadecimal */
    uint32_t modules_matched, modules_expected;
    uint32_t rank_max;     /* of one matrix */
    uint64_t bytes;        /* that a step with it reads */
    uint64_t memory_bytes; /* taken from the allocator */
    bool idle;             /* it changes nothing: B, or every scale, is zero */
} avo_adapter_info;
#define AVO_ADAPTER_INFO_INIT                                                                      \
    { sizeof(avo_adapter_info), NULL, NULL, NULL, {0}, 0, 0, 0, 0, 0, false }
AVO_API void avo_adapter_describe(const avo_adapter *adapter, avo_adapter_info *info);

typedef struct avo_adapter_module {
    size_t size;      /* sizeof(avo_adapter_module), set by the caller */
    const char *name; /* "model.layers.0.self_attn.q_proj"; lives as long as the adapter */
    const char *kind; /* "lora", "dora", "embedding", "full", "norm", "bias" */
    uint32_t rank;
    double scale;
    double norm; /* Frobenius norm of what is added to the weights; NaN where memory was short */
} avo_adapter_module;
#define AVO_ADAPTER_MODULE_INIT                                                                    \
    { sizeof(avo_adapter_module), NULL, NULL, 0, 0.0, 0.0 }
/* False when `index` is not below modules_matched. */
AVO_API bool avo_adapter_module_at(const avo_adapter *adapter, size_t index,
                                   avo_adapter_module *module);
/* Writes the kernels' own layout, which opens instantly. What depends on the model's weights (DoRA,
 * trained matrices, norms, biases) names that model, by its configuration, its tensors' names,
 * types and shapes and a sample of their numbers: enough to tell models apart, no proof that a
 * model's file is whole. Saved sessions name theirs in the same way. */
AVO_API AVO_MUST_USE avo_status avo_adapter_pack(const avo_adapter *adapter, const char *path,
                                                 avo_error *error);

/* Names for adapters. Thousands may be known; they are opened when first used, and closed again,
 * least recently used first, when their memory is needed. Any thread may call any of these. */
typedef struct avo_registry avo_registry;
typedef struct avo_registry_options {
    size_t size;         /* sizeof(avo_registry_options) */
    const char *root;    /* paths are looked up here and cannot leave it; NULL: any path */
    uint64_t memory_max; /* of all open adapters together, those that were replaced or unloaded and
                            are still used included; 0: no limit */
    const char *type;    /* as in avo_adapter_options */
} avo_registry_options;
#define AVO_REGISTRY_OPTIONS_INIT                                                                  \
    { sizeof(avo_registry_options), NULL, 0, NULL }

AVO_API AVO_MUST_USE avo_status avo_registry_open(const avo_model *model,
                                                  const avo_registry_options *options,
                                                  avo_registry **registry, avo_error *error);
AVO_API void avo_registry_close(avo_registry *registry);
enum {
    AVO_REGISTRY_PINNED = 1, /* never closed for memory */
    AVO_REGISTRY_LAZY = 2    /* opened when first used */
};
/* Makes a name known or replaces what it means; requests in flight keep the version they began
 * with. A failure leaves everything as it was. */
AVO_API AVO_MUST_USE avo_status avo_registry_load(avo_registry *registry, const char *name,
                                                  const char *path, uint32_t flags,
                                                  avo_error *error);
AVO_API AVO_MUST_USE avo_status avo_registry_unload(avo_registry *registry, const char *name,
                                                    avo_error *error);
/* A reference of the version that the name means now, to be closed by the caller. */
AVO_API AVO_MUST_USE avo_status avo_registry_take(avo_registry *registry, const char *name,
                                                  avo_adapter **adapter, avo_error *error);
typedef struct avo_registry_entry {
    size_t size; /* sizeof of the library's structure */
    const char *name, *path;
    bool open, pinned;
    uint64_t memory_bytes;
    uint32_t users;
    uint64_t version;
    char digest[33]; /* empty while it was never open */
} avo_registry_entry;
/* In order of names; the entry lives for the call. The callback must not call the registry. */
AVO_API void avo_registry_list(avo_registry *registry,
                               void (*see)(void *context, const avo_registry_entry *entry),
                               void *context);

/* ---- Sampling ----------------------------------------------------------------------------- */

typedef struct avo_logit_bias {
    int32_t token;
    float bias; /* added to the logit; −INFINITY forbids */
} avo_logit_bias;

typedef struct avo_sampling {
    size_t size;              /* sizeof(avo_sampling) */
    float temperature;        /* 0: greedy */
    uint32_t top_k;           /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float typical_p;          /* 1: off */
    float repetition_penalty; /* 1: off; over prompt and output */
    float presence_penalty;   /* 0: off; over output */
    float frequency_penalty;  /* 0: off; over output */
    uint64_t seed;
    const avo_logit_bias *bias;
    size_t bias_count;
    uint32_t top_logprobs; /* alternatives to report, 0…AVO_TOP_LOGPROBS_MAX */
} avo_sampling;
#define AVO_SAMPLING_INIT                                                                          \
    { sizeof(avo_sampling), 0.0f, 0, 1.0f, 0.0f, 1.0f, 1.0f, 0.0f, 0.0f, 0, NULL, 0, 0 }

/* The model's own recommendation over the defaults of AVO_SAMPLING_INIT. */
AVO_API void avo_model_sampling(const avo_model *model, avo_sampling *sampling);

/* ---- Grammars ----------------------------------------------------------------------------- */

/* What an answer may be. Compiled once for a model's tokens; any number of requests and threads may
 * share it. A token that the grammar does not allow has no probability, and where it allows nothing
 * more the answer ends: it never fails open. */
typedef struct avo_grammar avo_grammar;

typedef enum avo_grammar_kind {
    AVO_GRAMMAR_GBNF = 0,        /* rules like llama.cpp's; the answer is what "root" derives */
    AVO_GRAMMAR_JSON_SCHEMA = 1, /* a value that the schema accepts, its text in JSON */
    AVO_GRAMMAR_JSON = 2         /* any JSON object; no text */
} avo_grammar_kind;

typedef struct avo_grammar_options {
    size_t size; /* sizeof(avo_grammar_options) */
    /* The answer is free until this text appears in it, and what comes after it follows the
     * grammar; when that is complete, the answer is free again. NULL: constrained throughout. */
    const char *trigger;
    /* The answer follows the grammar where it begins, behind white space, with '{' or '[', and is
     * free where it begins with anything else. Not beside a trigger. */
    bool json_or_text;
} avo_grammar_options;
#define AVO_GRAMMAR_OPTIONS_INIT                                                                   \
    { sizeof(avo_grammar_options), NULL, false }

/* Refused by name: what is not understood (a keyword of a schema that would be ignored included),
 * what has no end, what is larger than the limits, what takes more than 64 million steps to compile
 * (steps, never time: the same text is always taken or always refused). An answer whose masks take
 * too much ends with AVO_ERROR_LIMIT, alone: 16 million visits of the vocabulary's trie for one
 * mask, 64 million and 524,288 more with each token for all; docs/grammar.md says how they are
 * counted. The model must outlive it. */
AVO_API AVO_MUST_USE avo_status avo_grammar_open(const avo_model *model, avo_grammar_kind kind,
                                                 const char *text,
                                                 const avo_grammar_options *options,
                                                 avo_grammar **grammar, avo_error *error);
/* Another reference, for another owner; returns its argument. Any thread. */
AVO_API avo_grammar *avo_grammar_share(avo_grammar *grammar);
AVO_API void avo_grammar_close(avo_grammar *grammar);

typedef struct avo_grammar_info {
    size_t size; /* sizeof(avo_grammar_info), set by the caller */
    uint32_t states;
    uint64_t memory_bytes; /* now: masks are added while answers are written, up to 128 MiB */
} avo_grammar_info;
#define AVO_GRAMMAR_INFO_INIT                                                                      \
    { sizeof(avo_grammar_info), 0, 0 }
/* Any thread. */
AVO_API void avo_grammar_describe(avo_grammar *grammar, avo_grammar_info *info);

/* Opens a grammar, or finds one that is open already; *grammar is a reference for the caller. */
typedef avo_status (*avo_grammar_function)(void *context, avo_grammar **grammar, avo_error *error);

/* ---- Requests ----------------------------------------------------------------------------- */

/* One generated token. `text` holds whole characters only and may be empty while one is
 * incomplete or a stop string may be forming. Text that was held back and turns out to be text
 * after all comes at the end, in an event with token −1. */
typedef struct avo_token_event {
    int32_t token;
    uint32_t index;
    const char *text; /* not terminated */
    size_t text_bytes;
    float logprob; /* of the distribution before temperature and filters */
    const avo_logprob *top;
    uint32_t top_count;
} avo_token_event;

/* How a request went. A time is 0 where that part of it never began. */
typedef struct avo_result {
    size_t size; /* avo_generate: set by the caller; in an event: sizeof of the library's struct */
    avo_finish finish;
    /* Which stop ended it. stop_token: the id, with AVO_FINISH_STOP_TOKEN; −1 otherwise, and where
     * the grammar allows nothing more. stop_index: which of the request's stop strings, with
     * AVO_FINISH_STOP_STRING; −1 otherwise. Of strings that end at the same byte the longest, of
     * equal ones the first. */
    int32_t stop_token, stop_index;
    /* That string: of avo_generate the caller's own, in an event it lives for the call. Or NULL. */
    const char *stop_string;
    uint32_t prompt_tokens, reused_tokens, new_tokens;
    uint32_t preemptions;
    double queue_seconds;       /* from submission to the first step with it */
    double prefill_seconds;     /* from there until the prompt is computed */
    double first_token_seconds; /* from submission, or from the call */
    double decode_seconds;      /* from the first token to the end */
    double total_seconds;
    const float *embedding; /* [embedding_width] where pooling was asked for; lives for the call */
    uint32_t embedding_width;
} avo_result;
#define AVO_RESULT_INIT                                                                            \
    {                                                                                              \
        sizeof(avo_result), AVO_FINISH_STOP_TOKEN, -1, -1, NULL, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0,   \
            0.0, NULL, 0                                                                           \
    }

/* avo_generate tells of AVO_EVENT_PREFILL and AVO_EVENT_TOKEN and returns the end; the scheduler
 * tells of everything but AVO_EVENT_PREFILL. */
typedef enum avo_event_kind {
    AVO_EVENT_TOKEN = 0,    /* `token` */
    AVO_EVENT_FINISHED = 1, /* `result`; the last event */
    AVO_EVENT_FAILED = 2,   /* `error`; the last event */
    AVO_EVENT_PROMPT = 3,   /* `token`, of the prompt (prompt_logprobs), before the first answer */
    AVO_EVENT_PREFILL = 4   /* after each chunk of the prompt: `done` of `total` tokens */
} avo_event_kind;

typedef struct avo_event {
    size_t size; /* sizeof of the library's structure */
    avo_event_kind kind;
    uint64_t request; /* the number that submission gave; 0 from avo_generate */
    size_t index;     /* of the request in its avo_scheduler_batch; 0 otherwise */
    const avo_token_event *token;
    const avo_result *result;
    const avo_error *error;
    uint64_t done, total;
} avo_event;
/* Returning false ends the request with AVO_FINISH_CANCELLED. avo_generate calls it on its own
 * thread. The scheduler calls it on a delivery thread, one call at a time for one request, in
 * order. It must not wait for long then: that delays other deliveries, never the engine. It may
 * submit, cancel and describe, but must call neither avo_scheduler_batch nor avo_scheduler_drain
 * nor avo_scheduler_close: they would wait for the thread that they were called by. */
typedef bool (*avo_event_function)(void *context, const avo_event *event);

typedef struct avo_named_adapter {
    const char *name; /* in the scheduler's registry */
    float weight;
} avo_named_adapter;

/* Hidden states behind the last norm, as one vector of the model's width, not normalised. */
typedef enum avo_pooling {
    AVO_POOLING_NONE = 0,
    AVO_POOLING_MEAN = 1, /* over all tokens of the prompt */
    AVO_POOLING_LAST = 2  /* of its last token */
} avo_pooling;

/* What to generate, for avo_generate and for a scheduler. A prompt is one of: tokens; messages,
 * in the array or in chat's variables; text. Submission copies what is pointed at; for avo_generate
 * it must stay until the call returns. Fields marked (scheduler) must keep the value of
 * AVO_REQUEST_INIT in avo_generate, which refuses them by name. */
typedef struct avo_request {
    size_t size; /* sizeof(avo_request) */
    const int32_t *tokens;
    size_t token_count;
    const avo_message *messages; /* rendered with the model's template */
    size_t message_count;
    const avo_chat_options *chat;
    const char *text;                /* continued as it is; terminated */
    uint32_t text_flags;             /* AVO_TOKENIZE_… */
    const avo_adapter_use *adapters; /* (scheduler) a session has its own; or by name: */
    size_t adapter_count;
    const avo_named_adapter *named_adapters; /* (scheduler) */
    size_t named_adapter_count;
    uint32_t max_new_tokens;      /* 0: until the context is full */
    const avo_sampling *sampling; /* NULL: greedy */
    const char *const *stop;      /* strings that end the text and are not part of it */
    size_t stop_count;
    const int32_t *stop_tokens; /* beside the model's own */
    size_t stop_token_count;
    bool ignore_end;     /* go on after the model's end tokens */
    const char *tenant;  /* (scheduler) fairness is between tenants, and their adapters */
    float tenant_weight; /* (scheduler) 0: 1; otherwise 0.001 to 1e9 */
    uint32_t priority;   /* (scheduler) 0…15, 0 is served first; default 8 */
    /* (scheduler) Seconds from submission; 0: none. One that passes ends the request with
     * AVO_FINISH_DEADLINE; one that cannot be met any more, before its prompt is begun, fails it
     * with AVO_ERROR_DEADLINE. */
    double first_token_deadline;
    double deadline;        /* (scheduler) for the whole answer */
    const char *cache_salt; /* (scheduler) prefixes are shared only with requests of equal salt */
    avo_event_function on_event;
    void *on_event_context;
    avo_grammar *grammar; /* a reference is taken; NULL: any answer */
    /* (scheduler) An AVO_EVENT_PROMPT for every token of the prompt: its logprob given those before
     * it (NaN for the first) and sampling's top_logprobs. Nothing is reused of the prefix cache. */
    bool prompt_logprobs;
    bool no_answer;      /* (scheduler) compute the prompt alone; ends with AVO_FINISH_LENGTH */
    avo_pooling pooling; /* (scheduler) the result has an embedding of the prompt; needs no_answer
                          */
    /* (scheduler) Instead of `grammar`, where it must still be compiled: called once, by a
     * tokenizer thread, when there was room for the request. An error fails the request. */
    avo_grammar_function open_grammar;
    void *open_grammar_context;
} avo_request;
#define AVO_REQUEST_INIT                                                                           \
    {                                                                                              \
        sizeof(avo_request), NULL, 0, NULL, 0, NULL, NULL, 0, NULL, 0, NULL, 0, 0, NULL, NULL, 0,  \
            NULL, 0, false, NULL, 0.0f, 8, 0.0, 0.0, NULL, NULL, NULL, NULL, false, false,         \
            AVO_POOLING_NONE, NULL, NULL                                                           \
    }

/* Appends the prompt (none: goes on with the answer) to the session and generates. The session
 * keeps prompt and answer, so that the next turn of a conversation continues it. Draws are keyed by
 * seed and position in the timeline, in ring mode by the place among all tokens that it ever had,
 * which never comes again; penalties see the whole timeline, and nothing that a ring has forgotten.
 * `result` may be NULL. */
AVO_API AVO_MUST_USE avo_status avo_generate(avo_engine *engine, avo_session *session,
                                             const avo_request *request, avo_result *result,
                                             avo_error *error);

/* ---- Scheduler ---------------------------------------------------------------------------- */

/* Many requests on one engine. A thread of its own leads the engine: until the scheduler is closed
 * nobody else may use it. Requests may be submitted and cancelled from any thread. Engine and
 * registry must outlive the scheduler. */
typedef struct avo_scheduler avo_scheduler;

typedef struct avo_scheduler_options {
    size_t size;                 /* sizeof(avo_scheduler_options) */
    uint32_t running_max;        /* requests computed together; 0: the engine's sessions_max */
    uint32_t waiting_max;        /* requests that may wait; 0: 1024 */
    uint64_t waiting_tokens_max; /* their prompts and answers; 0: 16 times the KV pool */
    double token_seconds;        /* wanted time between two tokens of a request while others are
                                    prefilled; 0: 0.2; negative: throughput alone counts */
    double ageing_seconds;       /* waiting that raises a request by one priority; 0: 2 */
    uint32_t tokenizer_threads;  /* they open adapters, too; 0: 2 */
    bool no_prefix_cache;
    avo_registry *registry; /* adapters by name; NULL: requests carry their adapters themselves */
    uint32_t adapters_max;  /* distinct adapters in one step, others take turns; 0: no limit */
    /* How threads are shared between decoding and prompts. "mixed" (NULL): one step holds both.
     * "static": prompts are computed beside decoding, by prefill_threads of the engine's threads.
     * "adaptive": the same where both kinds of work are there and a step with both would hold up
     * decoding, with a share of the threads that follows the load; else all threads do what there
     * is. These two need an engine with two streams. Answers are the same bytes. */
    const char *cores;
    uint32_t prefill_threads; /* static: of prompts, 0: half. adaptive: at most, 0: all but one */
} avo_scheduler_options;
#define AVO_SCHEDULER_OPTIONS_INIT                                                                 \
    { sizeof(avo_scheduler_options), 0, 0, 0, 0.0, 0.0, 0, false, NULL, 0, NULL, 0 }

/* AVO_ERROR_ARGUMENT where sessions or batches of the engine are open or another scheduler has it;
 * none can be opened until the scheduler is closed. */
AVO_API AVO_MUST_USE avo_status avo_scheduler_open(avo_engine *engine,
                                                   const avo_scheduler_options *options,
                                                   avo_scheduler **scheduler, avo_error *error);
/* Ends what runs and waits (AVO_FINISH_CANCELLED), delivers their last events and returns. Calls of
 * other threads that have begun by then end first: a batch with its requests cancelled, a drain
 * with what is left. No new call may begin once this has, since the handle is gone when it returns.
 */
AVO_API void avo_scheduler_close(avo_scheduler *scheduler);
/* Takes nothing new (AVO_ERROR_FULL) and returns when all is done, or after `seconds`; true when
 * nothing is left. */
AVO_API bool avo_scheduler_drain(avo_scheduler *scheduler, double seconds);

/* AVO_ERROR_FULL: queue or tokens are at their maximum; *retry_seconds (may be NULL) says when to
 * try again. Checked before anything is tokenised. A text, or messages together, of more bytes than
 * the context could have in tokens of the longest kind (but 64 KiB are always looked at) are
 * refused with AVO_ERROR_CONTEXT before they are copied. What is wrong with the request itself is
 * said here where it can be seen at once, else by an AVO_EVENT_FAILED. */
AVO_API AVO_MUST_USE avo_status avo_scheduler_submit(avo_scheduler *scheduler,
                                                     const avo_request *request, uint64_t *number,
                                                     double *retry_seconds, avo_error *error);
/* The request ends with AVO_FINISH_CANCELLED within a step. False: it is over, or never was. */
AVO_API bool avo_scheduler_cancel(avo_scheduler *scheduler, uint64_t number);

/* Many requests at once, returning when all have ended: results stream through `on_event` as they
 * come, with the index of the request. `shared` is the default for sampling (NULL: greedy) of
 * requests that have none. One that fails fails alone. */
AVO_API AVO_MUST_USE avo_status avo_scheduler_batch(avo_scheduler *scheduler,
                                                    const avo_request *requests, size_t count,
                                                    const avo_sampling *shared,
                                                    avo_event_function on_event,
                                                    void *on_event_context, avo_error *error);

typedef struct avo_scheduler_info {
    size_t size; /* sizeof(avo_scheduler_info), set by the caller */
    uint32_t waiting, running;
    uint64_t waiting_tokens;
    uint64_t submitted, finished, cancelled, expired, refused, failed, preemptions;
    uint64_t prompt_tokens, reused_tokens, new_tokens, recomputed_tokens;
    uint64_t steps;
    double step_seconds; /* spent in steps */
    double busy_seconds; /* of the engine thread besides steps: drawing, planning */
    /* Processor time of the tokenizer threads and of delivery, listeners included. */
    double tokenizer_seconds, delivery_seconds;
    /* Pages of the KV pool, and tokens that the prefix cache was asked for and had (avo_kv_info),
     * as they were after the last step. */
    uint32_t pages_free, pages_cached, pages_used;
    uint64_t prefix_queried_tokens, prefix_hit_tokens;
    /* With `cores`: of the steps, those of prompts beside others; time spent in them, which is not
     * in step_seconds; and threads of the last one. */
    uint64_t prefill_steps;
    double prefill_seconds;
    uint32_t prefill_threads;
    /* After preemption a request finds tokens that it had computed itself in the cache: these, not
     * among reused_tokens; or computes them again: recomputed_tokens. */
    uint64_t resumed_tokens;
} avo_scheduler_info;
#define AVO_SCHEDULER_INFO_INIT                                                                    \
    {                                                                                              \
        sizeof(avo_scheduler_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0,    \
            0.0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0                                                       \
    }
AVO_API void avo_scheduler_describe(avo_scheduler *scheduler, avo_scheduler_info *info);

#ifdef __cplusplus
}
#endif
#endif
