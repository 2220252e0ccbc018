/* Batches: files of requests that are answered when nobody else waits, as OpenAI's Batch API has
 * them. What a batch is, and the thread that answers them; batch_line.c makes exchanges of lines,
 * batch_record.c keeps batches on disk, batch_api.c has the endpoints.
 *
 * A batch's life: validating → in_progress → finalizing → completed, or failed (its input is
 * wrong), cancelling → cancelled, expired (not done within its window).
 *
 * One thread per server does everything but compute: it checks inputs, starts lines, at most
 * `lines_max` at once and only while no request waits in the scheduler, and appends answers to the
 * output file. A line is an exchange like that of a client, handled by the same endpoint, in the
 * lowest class. An answer is on disk (written, not synced) before it is counted, so a process that
 * is killed keeps what was done; the rest is computed after the restart, and a line that was cut
 * off is computed again. Files are the store's (store.h); FOLDER/batch_ID.json is the batch.
 */
#ifndef AVO_SERVER_API_BATCH_H
#define AVO_SERVER_API_BATCH_H

#include "server/api/api_int.h"
#include "server/store.h"

#define BATCHES_MAX            1024 /* known, of all keys */
#define BATCHES_KEY_MAX        64   /* of one key that are not over */
#define BATCHES_LOADED_MAX     4    /* worked on at once */
#define BATCH_LINES_MAX        50000
#define BATCH_LINE_BYTES_MAX   ((size_t)1 << 20)
#define BATCH_CUSTOM_BYTES_MAX 512
#define BATCH_PROBLEMS_MAX     32 /* told of a wrong input */
#define BATCH_METADATA_MAX     ((size_t)16 << 10)
#define BATCH_SECONDS          86400        /* the only window, as with OpenAI */
#define BATCH_KEPT_SECONDS     (30 * 86400) /* an ended batch is known for so long */

typedef enum batch_status {
    BATCH_VALIDATING,
    BATCH_IN_PROGRESS,
    BATCH_FINALIZING,
    BATCH_COMPLETED,
    BATCH_FAILED,
    BATCH_EXPIRED,
    BATCH_CANCELLING,
    BATCH_CANCELLED,
    BATCH_STATUSES
} batch_status;

typedef struct batch_endpoint {
    const char *path;
    void (*answer)(api *api, exchange *exchange);
} batch_endpoint;
/* NULL: batches cannot have it. */
const batch_endpoint *batch_endpoint_of(text_view path);

typedef enum batch_work { LINE_WAITS, LINE_ANSWERED, LINE_IN_FLIGHT } batch_work;

typedef struct batch {
    char id[STORE_ID_MAX];
    char owner[KEY_NAME_MAX + 1];
    const batch_endpoint *endpoint;
    char input[STORE_ID_MAX], output[STORE_ID_MAX], errors[STORE_ID_MAX];
    batch_status status;
    int64_t created, expires;     /* expires: of its window */
    int64_t at[BATCH_STATUSES];   /* when it got each status; 0: not yet */
    int64_t output_seconds;       /* life of its output files */
    uint32_t total, done, failed; /* lines; done: with status 200 */
    char *metadata;               /* JSON; NULL: null */
    char *problems;               /* JSON objects, comma separated; NULL: none */

    /* While it is worked on: the thread's own. */
    char *found;                          /* problems, until the batch ends with them */
    uint32_t count, was_done, was_failed; /* lines, and those that an earlier run has answered */
    bool loaded, ends_early; /* ends_early: cancelled, or expired: in-flight lines are dropped */
    file_map map;
    uint64_t *lines; /* [count + 1] offsets of lines that are not blank */
    uint8_t *over;   /* [count] a batch_work */
    uint32_t next, in_flight;
    bool quota; /* its key has no tokens left now */
} batch;

typedef struct batch_line batch_line;

typedef struct batches {
    api *api;
    store *store;
    uint32_t lines_max;
    pthread_t thread;
    bool runs;

    pthread_mutex_t lock; /* of what endpoints see; held while records are written */
    batch *items[BATCHES_MAX];
    size_t count;
    uint32_t loaded, in_flight, turn; /* the thread's own */
    int64_t expire_next;              /* of files, Unix seconds; 0: none does. The thread's own */

    /* Of lines, which the scheduler's threads bring back: never held for long. */
    pthread_mutex_t lines_lock;
    pthread_cond_t work;
    bool ends, woken;
    batch_line *finished; /* to be written */
    batch_line *flying;   /* being answered */
} batches;

/* ---- files.c: what both families of endpoints need ---- */
/* The key's name, to which files and batches belong. */
const char *api_owner(const exchange *exchange);
/* False: the server keeps nothing, and the exchange is answered; likewise below. */
bool api_has_state(const api *api, exchange *exchange);
bool api_read_limit(exchange *exchange, uint32_t *limit);
/* The part of the path behind `prefix`; NULL: too long for an id. */
const char *api_path_id(const exchange *exchange, const char *prefix, char id[static STORE_ID_MAX]);

/* ---- batch_run.c ---- */
AVO_MUST_USE avo_status batches_open(api *api, batches **out, avo_error *error);
/* Lines in flight are dropped: the next start computes them. NULL is ignored. */
void batches_close(batches *batches);
/* There is something to do; lines_lock is not held. */
void batches_wake(batches *batches);
/* The lock is held; NULL: none of this owner. */
batch *batches_find(batches *batches, const char *owner, const char *id);
bool batch_is_over(const batch *batch);
/* Status, time and record; the lock is held. */
void batch_set(batches *batches, batch *batch, batch_status status);

/* ---- batch_line.c ---- */
typedef struct batch_text { /* a line of an input */
    text_view custom_id;
    const json_value *body;
} batch_text;
/* Reads a line; false: fault->text says what is wrong with it. */
AVO_MUST_USE bool batch_text_read(const batch_endpoint *endpoint, text_view line, arena *arena,
                                  batch_text *out, api_fault *fault);
/* Begins to answer a line. `keys`: a reference is taken. False: no memory. */
AVO_MUST_USE bool batch_line_start(batches *batches, batch *batch, uint32_t index,
                                   server_keys *keys, const server_key *key);
/* Whoever answers it is told to stop. */
void batch_line_cancel(batch_line *line);
batch_line *batch_line_next(batch_line *line);
batch *batch_line_batch(const batch_line *line);
uint32_t batch_line_index(const batch_line *line);
/* Its answer as a line of an output; *good: of the output file, else of the error file; *again: it
 * found no room, or was cancelled, and has none. Also charges its key. */
AVO_MUST_USE avo_status batch_line_write(batch_line *line, buffer *out, bool *good, bool *again);
void batch_line_free(batch_line *line);
/* A line that was never answered. */
AVO_MUST_USE avo_status batch_line_missed(const batch *batch, uint32_t index, const char *code,
                                          const char *text, buffer *out);
/* The index in an output line's id; false: it is none of this batch. */
bool batch_line_index_of(const batch *batch, text_view line, uint32_t *index);

/* ---- batch_record.c ---- */
AVO_MUST_USE avo_status batch_save(const store *store, const batch *batch, avo_error *error);
/* NULL: damaged. */
batch *batch_read(const store *store, const char *name);
void batch_erase(const store *store, const batch *batch);
void batch_free(batch *batch);
/* Maps the input, finds its lines, and what an earlier run has answered. False: it cannot be; the
 * batch has its problem then. */
AVO_MUST_USE bool batch_load(batches *batches, batch *batch);
void batch_unload(batch *batch);
/* Adds to `found`, of line `line` (0: of the whole). */
void batch_problem(batch *batch, const char *code, uint32_t line, const char *text);
const char *batch_status_name(batch_status status);

#endif
