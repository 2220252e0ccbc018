/* Speculation: draft tokens that a step verifies together with the token that it owes anyway.
 *
 * A *draft source* guesses the tokens behind a timeline. The step computes a row for each of them,
 * the sequence samples every row as it would have sampled it one step later, and accepts while its
 * own choice equals the draft (engine/sequence.h). So drafts change how many steps an answer takes
 * and never a byte of it.
 *
 * This module is pure: no engine, no device, no threads, no clock, and nothing is allocated after
 * opening. It owns the sources that look tokens up (suffix.h, ngram.h, corpus.h), the record of how
 * often drafts were right (record.h), and the choice of how many rows they get (choose.h) at what
 * cost (cost.h). A drafter (drafter.h) is one sequence's view of all of this.
 */
#ifndef AVO_SPEC_SPEC_H
#define AVO_SPEC_SPEC_H

#include "base/status.h"

/* ---- Limits ---- */
#define DRAFTS_MAX 16 /* draft tokens of one sequence in one step */
#define DRAFTS_DEFAULT                                                                             \
    15 /* with the owed token, the rows that one pass over the weights serves                      \
        */
#define DRAFTERS_MAX       64   /* sequences with drafts; more of them leave no time for drafts */
#define DRAFT_INDEX_TOKENS 8192 /* newest tokens of a timeline that a drafter looks up */

/* X(name, text, help). Where several sources have drafts, the best record wins; of equals, the
 * first. */
#define DRAFT_OFFERED_TABLE(X)                                                                     \
    X(GRAMMAR, "grammar", "tokens that the grammar leaves no choice about")                        \
    X(SUFFIX, "suffix", "what followed the longest repeated end of prompt and answer")             \
    X(NGRAM, "ngram", "what followed the last two or three tokens before")                         \
    X(CORPUS, "corpus", "what followed in earlier answers of the same tenant")                     \
    X(MODEL, "model", "tokens of a smaller model (--draft-model)")                                 \
    X(EAGLE, "eagle", "guesses of EAGLE layers from hidden states (--draft-heads)")                \
    X(MEDUSA, "medusa", "guesses of Medusa heads from hidden states (--draft-heads)")              \
    X(LAYERS, "layers", "guesses of a distilled draft (--draft-heads)")
/* With the one that users are not told of: only a program that is linked with us can have it. */
#define DRAFT_SOURCE_TABLE(X)                                                                      \
    DRAFT_OFFERED_TABLE(X)                                                                         \
    X(CUSTOM, "custom", "a source of the program's own")

typedef enum draft_kind {
#define DRAFT_SOURCE_ENUM(name, text, help) DRAFT_##name,
    DRAFT_SOURCE_TABLE(DRAFT_SOURCE_ENUM)
#undef DRAFT_SOURCE_ENUM
        DRAFT_KINDS
} draft_kind;

const char *draft_kind_name(draft_kind kind);
/* A network computes it: drafts cost time, and say how sure they are. */
static inline bool draft_kind_computes(draft_kind kind) {
    return kind == DRAFT_MODEL || kind == DRAFT_EAGLE || kind == DRAFT_MEDUSA ||
           kind == DRAFT_LAYERS;
}

/* A set of sources, one bit each. */
typedef uint32_t draft_kinds;
#define DRAFT_BIT(kind) ((draft_kinds)1 << (kind))
#define DRAFTS_OFF      ((draft_kinds)0)
/* All but n-grams: a suffix finds all that they find. */
#define DRAFTS_AUTO ((DRAFT_BIT(DRAFT_KINDS) - 1) & ~DRAFT_BIT(DRAFT_NGRAM))

/* "off", "auto" (DRAFTS_AUTO) or names separated by commas. NULL: auto. */
AVO_MUST_USE avo_status draft_kinds_parse(const char *text, draft_kinds *kinds, avo_error *error);
/* The same; `field` is what errors call it. */
AVO_MUST_USE avo_status draft_kinds_read(const char *field, const char *text, draft_kinds *kinds,
                                         avo_error *error);

/* ---- Controllers: who decides how many of the drafts are verified ---- */

#define DRAFT_CONTROLLER_TABLE(X)                                                                  \
    X(COST, "cost", "as many as raise the expected tokens per second")                             \
    X(FIXED, "fixed", "always as many as there are, up to --draft-tokens")                         \
    X(STEP, "step", "one more after a step that accepted all, one fewer otherwise")                \
    X(RATE, "rate", "as many as keep 60 % of the drafts accepted")                                 \
    X(EMA, "ema", "as many as a moving average of accepted drafts, and one")

typedef enum draft_controller {
#define DRAFT_CONTROLLER_ENUM(name, text, help) CONTROLLER_##name,
    DRAFT_CONTROLLER_TABLE(DRAFT_CONTROLLER_ENUM)
#undef DRAFT_CONTROLLER_ENUM
        CONTROLLERS
} draft_controller;

const char *draft_controller_name(draft_controller controller);
/* NULL: cost. */
AVO_MUST_USE avo_status draft_controller_parse(const char *text, draft_controller *controller,
                                               avo_error *error);

/* ---- Drafts ---- */

/* A timeline of `count` tokens, of which the newest is number `position` (from 1) of all that the
 * sequence ever had: more than `count` where a ring has dropped some. */
typedef struct draft_timeline {
    const int32_t *tokens;
    uint32_t count;
    uint64_t position;
} draft_timeline;

/* Drafts for one sequence in one step. */
typedef struct draft {
    int32_t tokens[DRAFTS_MAX];
    float survival[DRAFTS_MAX]; /* probability that this one and all before it are right */
    uint32_t count;
    draft_kind kind;
    uint32_t match;            /* tokens of the timeline that were found again; 0: not a lookup */
    uint32_t vote;             /* suffix_vote of that match, or RECORD_RESUMED; 0 where none is */
    bool graded;               /* the source says how sure it is: */
    uint8_t grade[DRAFTS_MAX]; /* draft_grade of each token */
    bool always; /* verified however unlikely: the caller or its controller wants it so */
} draft;

/* A class for the probability that a source gives its own token. */
#define DRAFT_GRADES 8
uint8_t draft_grade(float probability);

/* Guesses for tests and experiments: what comes behind a timeline of `count` tokens, up to `most`
 * ids of the vocabulary into `drafts`; returns how many. Wrong ones cost time and change nothing
 * else. Called by the thread that leads the engine. */
typedef struct draft_source {
    uint32_t (*propose)(void *context, const int32_t *timeline, uint32_t count, uint32_t most,
                        int32_t *drafts);
    void *context;
    uint32_t drafts_max; /* that it is asked for; at most DRAFTS_MAX */
} draft_source;

#endif
