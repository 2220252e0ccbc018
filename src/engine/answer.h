/* From a step's logits to tokens, text and the reason to end: what every answer goes through,
 * whether avo_generate or the scheduler asked for it, so that the same request gives the same bytes
 * from both.
 *
 * Two halves that may run on different threads:
 *   drawing   needs the logits and decides about the next step: on the thread that leads the
 * engine; text      needs the tokens alone: decoding, stop strings, what may be shown already.
 */
#ifndef AVO_ENGINE_ANSWER_H
#define AVO_ENGINE_ANSWER_H

#include "base/buffer.h"
#include "sample/grammar.h"
#include "sample/sample.h"
#include "tokenizer/tokenizer.h"

/* ---- Drawing ---- */

/* What the next step of this batch keeps of its logits: nothing yet … */
void batch_want_nothing(avo_batch *batch);
/* … and what this sampler looks at besides. Between clearing and the step. */
void batch_want(avo_batch *batch, const sampler *sampler);

/* Draws from the logits of a session's scored token, keyed by the place that the token takes in the
 * timeline. */
AVO_MUST_USE avo_status batch_draw(avo_batch *batch, const avo_session *session, sampler *sampler,
                                   uint64_t position, sample_choice *choice, avo_error *error);

/* Before a draw: which tokens the grammar allows now. `matcher` may be NULL: all. */
AVO_MUST_USE avo_status answer_constrain(grammar_matcher *matcher, sampler *sampler,
                                         avo_error *error);

typedef struct answer_limits {
    const avo_model *model;
    const int32_t *stop_tokens; /* beside the model's own */
    size_t stop_token_count;
    bool ignore_end;
    uint32_t max_new_tokens; /* 0: no limit */
    uint32_t context_max;
} answer_limits;

bool answer_token_stops(const answer_limits *limits, int32_t token);

/* What is known after a token. */
typedef struct answer_state {
    bool ended;        /* it stops (answer_token_stops) */
    bool stopped;      /* its text completes a stop string */
    bool unwanted;     /* whoever listens wants no more */
    uint32_t drawn;    /* tokens, this one included */
    uint32_t computed; /* of the timeline, this one not included */
} answer_state;
/* After a draw: the grammar, if any, follows the token; state->ended where nothing may come behind
 * it. */
AVO_MUST_USE avo_status answer_follow(grammar_matcher *matcher, int32_t token, answer_state *state,
                                      avo_error *error);
/* The first reason to end; false: it goes on. */
bool answer_ends(const answer_limits *limits, const answer_state *state, avo_finish *finish);

/* ---- Text ---- */

#define ANSWER_TEXT_MAX   ((size_t)1 << 20) /* text released by one token: held text and its own */
#define ANSWER_TEXT_FIRST ((size_t)4096)

typedef struct answer_text {
    bool exists; /* the model has a tokenizer */
    decode_stream stream;
    stop_matcher *stops; /* NULL: none asked for */
    buffer *room;        /* the newest text; may be shared by answers of one thread */
} answer_text;

/* `room` has ANSWER_TEXT_MAX for its limit and ANSWER_TEXT_FIRST reserved, room for any usual
 * token, so that nothing is allocated between tokens; it is not touched here. Stop strings need a
 * tokenizer. */
AVO_MUST_USE avo_status answer_text_open(answer_text *text, const avo_model *model,
                                         const char *const *stop, size_t stop_count, buffer *room,
                                         const avo_allocator *allocator, avo_error *error);
void answer_text_close(answer_text *text);

/* Takes a token (`ended`: one that stops and has no text) and gives what may be shown now: text
 * that is complete and cannot become part of a stop string. Lives until the next call. */
AVO_MUST_USE avo_status answer_text_push(answer_text *text, int32_t token, bool ended,
                                         text_view *shown, bool *stopped, avo_error *error);
/* Text that was held back and is text after all: half a character, a stop string that never came.
 * In two parts, each of which may be empty and lives until the next call; *stopped: the last half
 * character was the end of a stop string, and there is no second part. */
AVO_MUST_USE avo_status answer_text_finish(answer_text *text, text_view *shown, bool *stopped,
                                           avo_error *error);
text_view answer_text_rest(answer_text *text);

#endif
