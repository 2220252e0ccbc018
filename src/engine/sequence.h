/* A sequence is one answer while it is generated: a session, a sampler, the grammar, the stop
 * strings and the limits of a request. It takes the logits of a finished step and says which tokens
 * it accepted and whether the answer is over. avo_generate and the scheduler both generate with it,
 * and nothing else draws tokens, so the same request gives the same bytes from both.
 *
 * A step may hold draft tokens behind the row that the timeline owes. Verifying them is drawing as
 * ever: the token behind row j is drawn from row j, keyed by its position, and row j + 1 counts
 * while that token equals the draft that was computed there. Grammar, penalties, stops and limits
 * see drawn tokens alone, so an answer does not depend on the drafts.
 *
 * Drawing and text may run on different threads:
 *   sequence        the thread that leads the engine. It decodes text only where stop strings must
 *                   be found, and notes how many bytes of it each token releases;
 *   sequence_text   decodes for a listener, once, and shows what was released.
 */
#ifndef AVO_ENGINE_SEQUENCE_H
#define AVO_ENGINE_SEQUENCE_H

#include "base/buffer.h"
#include "sample/grammar.h"
#include "sample/sample.h"
#include "tokenizer/tokenizer.h"

#define SEQUENCE_TEXT_MAX   ((size_t)1 << 20) /* bytes that one token can release */
#define SEQUENCE_TEXT_FIRST ((size_t)4096)    /* reserved: enough for any usual token */

/* ---- Drawing ---- */

typedef struct sequence_options {
    const avo_model *model;
    const avo_allocator *allocator;
    const avo_request *request;   /* its limits, stops and grammar; must outlive the sequence */
    const avo_sampling *sampling; /* likewise */
    uint32_t context_max;         /* tokens of the timeline; UINT32_MAX: no end, in ring mode */
    sampler_room *sampler_room;   /* shared by sequences of one thread; NULL: one of its own */
    buffer *text_buffer; /* likewise, for text in which stop strings are looked for; reserved */
} sequence_options;

typedef struct sequence {
    sequence_options options;
    stop_matcher *stops;  /* NULL: none asked for */
    decode_stream stream; /* for these */
    uint32_t drawn;       /* tokens of the answer */
    avo_finish finish;    /* once it is over */
    int32_t stop_token;   /* the token that ended it; −1: none */
    /* While it has a session: */
    avo_session *session;
    sampler *sampler;
    grammar_matcher *matcher; /* NULL: any answer */
    uint64_t answer_from;     /* position of the first token drawn, forgotten ones included */
    uint64_t *going_on;       /* [2][mask_words] tokens that do not end it; NULL: no least length */
    uint32_t mask_words;
} sequence;

/* Checks and copies the stop strings. Refused where they need a tokenizer that the model lacks. */
AVO_MUST_USE avo_status sequence_open(sequence *sequence, const sequence_options *options,
                                      avo_error *error);
void sequence_close(sequence *sequence);

/* Gives it a session, and what it draws with. Of `timeline`, which is the session's or will be,
 * `prompt` tokens stand before the answer and sequence->drawn belong to it. */
AVO_MUST_USE avo_status sequence_begin(sequence *sequence, avo_session *session,
                                       const int32_t *timeline, size_t prompt, avo_error *error);
/* More of the prompt, behind that. */
void sequence_see_prompt(sequence *sequence, const int32_t *tokens, size_t count);
/* Takes the session away: the request is preempted, or over. */
void sequence_end(sequence *sequence);

/* What the next step of a batch must keep of its logits: nothing yet … */
void batch_want_nothing(avo_batch *batch);
/* … and what this sequence draws from. Between clearing and the step. */
void sequence_want(const sequence *sequence, avo_batch *batch);

/* Takes an accepted token. `released`: bytes of text that may be shown with it, of all that was
 * decoded and not shown yet; only where there are stop strings. False: end the answer. */
typedef bool (*sequence_take)(void *context, const sample_choice *choice, uint32_t released);

/* A finished step with rows of the sequence's session: the row that was owed, then those of
 * `draft_count` drafts. */
typedef struct sequence_step {
    avo_batch *batch;
    const int32_t *drafts; /* may lie where `take` writes */
    uint32_t draft_count;
    sequence_take take;
    void *context;
    const struct draft_policy *policy; /* NULL: exact; draft_policy.h, for the laboratory */
} sequence_step;

typedef struct sequence_outcome {
    uint32_t accepted; /* tokens: 1 … 1 + drafts; fewer only after a failure */
    bool finished;     /* sequence->finish says how */
} sequence_outcome;

/* Draws row by row and accepts. The session keeps the accepted tokens, the last of them not
 * computed yet, and pages up to there. Allocates nothing. */
AVO_MUST_USE avo_status sequence_accept(sequence *sequence, const sequence_step *step,
                                        sequence_outcome *outcome, avo_error *error);

/* Samples from the `row`-th logits of any session's rows as the sequence would at this position,
 * without accepting: for drafts. The choice's arrays live until the next call. */
AVO_MUST_USE avo_status sequence_sample(const sequence *sequence, const avo_session *session,
                                        avo_batch *batch, size_t row, uint64_t position,
                                        sample_choice *choice, avo_error *error);

/* Whether the answer ends with this token, which then has no text. */
bool sequence_stops_at(const sequence *sequence, int32_t token);

/* ---- Text ---- */

typedef struct sequence_text {
    bool exists; /* the model has a tokenizer */
    decode_stream stream;
    buffer *out; /* the newest text; may be shared by texts of one thread */
    char *held;  /* [STOP_STRING_BYTES_MAX] text that was not released; NULL: no stop strings */
    size_t held_bytes;
} sequence_text;

/* `out` has SEQUENCE_TEXT_MAX for its limit and SEQUENCE_TEXT_FIRST reserved, so that usual tokens
 * allocate nothing. `held` is needed where there are stop strings. */
void sequence_text_open(sequence_text *text, const avo_model *model, buffer *out, char *held);

/* Decodes a token (`ends`: sequence_stops_at) and gives what may be shown with it: `released` bytes
 * where there are stop strings, else all that is whole. Lives until the next call. */
AVO_MUST_USE avo_status sequence_text_push(sequence_text *text, int32_t token, bool ends,
                                           uint32_t released, text_view *shown, avo_error *error);

/* Behind the last token: shows text that was held back and is text after all, half a character or
 * the beginning of a stop string, in up to two pieces. *finish becomes AVO_FINISH_STOP_STRING where
 * half a character completed a stop string. `stops` is the sequence's, which draws no more. */
typedef void (*sequence_show)(void *context, text_view text);
AVO_MUST_USE avo_status sequence_text_finish(sequence_text *text, stop_matcher *stops,
                                             avo_finish *finish, sequence_show show, void *context,
                                             avo_error *error);

/* Names the stop in a result that has its finish. The string is the matcher's own copy. */
void sequence_name_stop(const sequence *sequence, avo_result *result);

#endif
