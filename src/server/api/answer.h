/* One answer of one or more choices, from submission to the last byte.
 *
 * Threads: the connection's thread or a reader submits; everything after that happens in the
 * scheduler's delivery thread, under the answer's lock; where the scheduler is full between two
 * choices, a thread asks it again. When the client goes, whoever sees it only sets a mark
 * and cancels: it never takes the lock, which may be held by who waits for it (exchange.h).
 */
#ifndef AVO_SERVER_API_ANSWER_H
#define AVO_SERVER_API_ANSWER_H

#include "server/api/api_int.h"

typedef struct answer answer;

typedef enum choice_state { CHOICE_HELD, CHOICE_SUBMITTED, CHOICE_OVER } choice_state;

typedef struct choice {
    answer *answer;
    uint32_t index, prompt; /* prompt × best_of + i, and whose answer it is */
    choice_state state;
    atomic_ullong number; /* the scheduler's; 0: not known yet */
    bool begun;           /* a token has come, or its end: the prompt is computed */
    bool opened;          /* a stream has told its beginning */
    bool closed;          /* its end was told, or is in its text */
    buffer text;          /* for the user */
    buffer reasoning;     /* where it is kept apart */
    /* Log-probabilities as JSON, items separated by commas, since the last that a stream told:
     * chat and responses use the first, completions all four (tokens, logprobs, tops, offsets). */
    buffer entries[4];
    buffer prompt_entries; /* of prompt_logprobs, of the first choice of each prompt */
    uint64_t characters;   /* of text that entries stand for */
    bool echoed;
    chat_parser *parser;   /* NULL: calls and reasoning are text */
    size_t calls_told;     /* to their end */
    bool call_open;        /* the next one has begun */
    size_t arguments_told; /* bytes of its arguments */
    uint64_t tokens_seen, reasoning_tokens;
    double logprob_sum;
    avo_result result;
} choice;

/* How a family of endpoints writes. `out` gets text to be sent at once. */
typedef struct answer_writer {
    const char *id_prefix;
    const char *stream_type; /* NULL: server-sent events */
    bool all_tokens;         /* `token` is called without logprobs, too */
    const char *chunk;       /* of OpenAI's two older endpoints: "object" of what a stream sends */
    /* `piece` to `finish` are called for whole answers, too, and write nothing then: the parts of
     * their output stand in the order in which they came. */
    bool in_order;
    /* Of a stream, once, before anything else. */
    avo_status (*begin)(answer *a, buffer *out);
    /* One token of prompt or answer into the choice's entries, where logprobs were asked for. */
    avo_status (*token)(answer *a, choice *c, const avo_token_event *token);
    /* Of a stream: text, which may be empty while there are entries and calls are not looked for;
     * reasoning, where it was asked for; a call (its name, pieces of its arguments, its end); a
     * choice's end. */
    avo_status (*piece)(answer *a, choice *c, text_view text, buffer *out);
    avo_status (*reasoning)(answer *a, choice *c, text_view text, buffer *out);
    avo_status (*call_begin)(answer *a, choice *c, size_t index, const tool_call *call,
                             buffer *out);
    avo_status (*call_piece)(answer *a, choice *c, size_t index, text_view arguments, buffer *out);
    avo_status (*call_end)(answer *a, choice *c, size_t index, const tool_call *call, buffer *out);
    avo_status (*finish)(answer *a, choice *c, buffer *out);
    avo_status (*end)(answer *a, buffer *out);
    avo_status (*error)(answer *a, const api_fault *fault, buffer *out);
    /* Without a stream. */
    avo_status (*whole)(answer *a, buffer *out);
    /* An embedding into the choice's text, as soon as it is there: at the end of a long list
     * writing all of them would keep everybody's streams waiting. */
    avo_status (*vector)(answer *a, choice *c, const avo_result *result);
} answer_writer;

/* A part of the output: text, or a call. */
typedef struct segment {
    bool is_call;
    size_t begin, end;               /* of the choice's text; or the call's number */
    size_t first_entry, entries_end; /* bytes of the answer's entries; of text */
} segment;
#define SEGMENTS_MAX (2 * CHAT_CALLS_MAX + 2)

struct answer {
    api *api;
    exchange *exchange;
    api_request *request;
    const answer_writer *writer;
    atomic_uint references;
    atomic_bool gone;
    pthread_mutex_t lock;
    char id[64];
    uint64_t number; /* what the ids of its calls are made from */
    int64_t created;
    choice *choices;
    uint32_t choice_count, over, in_flight;
    uint64_t arrived_ns; /* from when deadlines count */
    bool spoken;         /* a token has come, of any choice */
    bool waits;          /* for room in the scheduler, in the API's list */
    answer *room_next;
    bool streaming, done;
    api_fault fault; /* of the first thing that went wrong */
    double retry_seconds;
    buffer out; /* what a stream sends next */
    /* Of /v1/responses, and of streams of /v1/messages: events, and parts of the output so far. */
    uint32_t sequence;
    segment *segments; /* [SEGMENTS_MAX]; NULL: the writer is not in_order */
    uint32_t segment_count;
    uint32_t call_segment; /* of the call that is told, or was last */
    bool text_open;        /* the last segment is text that goes on */
    buffer entries;        /* log-probabilities of all segments of text */
};

/* Answers a request that was read, now or later; it is the answer's from then on. */
void answer_request(api *api, exchange *exchange, api_request *r, const answer_writer *writer);
/* A writer's `vector`, of all embeddings. */
avo_status embedding_vector(answer *a, choice *c, const avo_result *result);
/* Members of llama.cpp's generation_settings. */
void llama_write_settings(json_writer *w, const avo_sampling *sampling, const avo_request *request,
                          bool stream, const char *grammar);
/* What ollama's answers begin with. */
void ollama_write_head(json_writer *w, const char *model);
/* Reads the exchange's body and answers now or later; refuses one that is wrong. */
void answer_body(api *api, exchange *exchange, api_body body, const answer_writer *writer);

/* ---- For writers ---- */

bool ends_in_calls(const choice *c);        /* none of which the answer's end has cut */
const char *finish_name(const choice *c);   /* "stop", "length", "tool_calls" */
const char *finish_detail(const choice *c); /* "deadline", "context"; NULL: nothing special */
const char *stopped_by(const choice *c);    /* which stop text; NULL: none */
size_t choice_calls(const choice *c);       /* complete by now */
const tool_call *choice_call(const choice *c, size_t index);
/* The id of a call, the same whenever it is asked for: "call_…". */
void choice_call_id(const choice *c, size_t index, const char *prefix, char *id, size_t capacity);

/* The text of its prompt, which is no conversation; `flags` are avo_detokenize's. */
AVO_MUST_USE avo_status choice_prompt(const choice *c, uint32_t flags, buffer *text);

typedef struct answer_usage {
    uint64_t prompt_tokens, cached_tokens, new_tokens, reasoning_tokens;
    uint64_t drafted_tokens, accepted_tokens; /* draft tokens; 0: none were verified */
    double queue_seconds, first_token_seconds, total_seconds, tokens_per_second;
} answer_usage;
answer_usage usage_of(const answer *a);
/* "usage":{…} as OpenAI's clients know it. */
void write_usage(json_writer *w, const answer *a);
/* Draft tokens by OpenAI's names, "accepted_prediction_tokens" and "rejected_prediction_tokens",
 * where any were verified. */
void write_drafts(json_writer *w, const answer_usage *usage);
/* "timings":{…} */
void write_timings(json_writer *w, const answer_usage *usage);
/* The shortest text that is this float again; −9999 where it is −∞, null where it is none. */
void write_logprob(json_writer *w, float value);
/* What precedes another item in a list of entries. */
AVO_MUST_USE avo_status entries_begin(buffer *entries);
/* A token as OpenAI's clients know it, as another item: {"token","logprob","bytes","top_logprobs"}.
 */
AVO_MUST_USE avo_status write_logprob_entry(const answer *a, const avo_token_event *token,
                                            buffer *entries);
/* "prompt_logprobs" of the choice's prompt, as vLLM has them, where they were asked for. */
void write_prompt_logprobs(json_writer *w, const choice *c);
AVO_MUST_USE avo_status write_prompt_entry(choice *c, const avo_token_event *token);
/* Why a choice ended, and the seed that gives it again: "finish_reason", "stop_reason", "seed". */
void write_choice_end(json_writer *w, const choice *c);
/* An event of a stream: what precedes its JSON (`name` may be NULL), and what follows it. */
AVO_MUST_USE avo_status event_begin(buffer *out, const char *name);
AVO_MUST_USE avo_status event_end(const json_writer *w);
/* The members that every object of OpenAI's two older endpoints begins with. */
void write_openai_head(json_writer *w, const answer *a, const char *object);
/* Their streams begin with nothing, tell errors as data, and end with the usage and [DONE]. */
avo_status stream_begin(answer *a, buffer *out);
avo_status stream_error(answer *a, const api_fault *fault, buffer *out);
avo_status stream_end(answer *a, buffer *out);

#endif
