/* Part of avocet.h, which includes it: grammars. The rules at the head of avocet.h hold here, too.
 */
#ifndef AVO_AVOCET_GRAMMAR_H
#define AVO_AVOCET_GRAMMAR_H

#ifndef AVOCET_H
#error "include avocet.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A constraint on answers, compiled once for a model's vocabulary. Any number of requests and
 * threads can share it. Tokens that the grammar does not allow have probability 0. If it allows no
 * token, the answer ends: it is never left unconstrained. */
typedef struct avo_grammar avo_grammar;

typedef enum avo_grammar_kind {
    AVO_GRAMMAR_GBNF = 0,        /* rules as in llama.cpp; the answer matches rule "root" */
    AVO_GRAMMAR_JSON_SCHEMA = 1, /* JSON text of a value that the schema accepts */
    AVO_GRAMMAR_JSON = 2,        /* any JSON object; `text` is not used */
    AVO_GRAMMAR_REGEX = 3        /* a regular expression that matches the whole answer */
} avo_grammar_kind;

typedef struct avo_grammar_options {
    size_t size; /* sizeof(avo_grammar_options) */
    /* The answer is unconstrained until it contains this text; then it follows the grammar until
     * that is complete, and is unconstrained again. NULL: constrained from the start. */
    const char *trigger;
    /* The answer follows the grammar if it begins, after white space, with '{' or '['; otherwise it
     * is unconstrained. Cannot be combined with a trigger. */
    bool json_or_text;
} avo_grammar_options;
#define AVO_GRAMMAR_OPTIONS_INIT                                                                   \
    { sizeof(avo_grammar_options), NULL, false }

/* Fails, naming the part, if the text has an unsupported construct (including schema keywords that
 * would otherwise be ignored), matches no finite text, exceeds the limits, or takes more than 64
 * million steps to compile (steps, not time: the same text always gives the same result). An answer
 * whose token masks are too expensive fails with AVO_ERROR_LIMIT, without affecting other requests:
 * 16 million visits of the vocabulary's trie for one mask, and for all masks of an answer 64
 * million plus 524,288 per token. docs/grammar.md explains the counting. The model must outlive the
 * grammar. */
AVO_API AVO_MUST_USE avo_status avo_grammar_open(const avo_model *model, avo_grammar_kind kind,
                                                 const char *text,
                                                 const avo_grammar_options *options,
                                                 avo_grammar **grammar, avo_error *error);
/* Adds a reference and returns its argument. Any thread. */
AVO_API avo_grammar *avo_grammar_share(avo_grammar *grammar);
AVO_API void avo_grammar_close(avo_grammar *grammar);

typedef struct avo_grammar_info {
    size_t size; /* sizeof(avo_grammar_info), set by the caller */
    uint32_t states;
    uint64_t memory_bytes; /* current size; grows with new token masks, up to 128 MiB */
} avo_grammar_info;
#define AVO_GRAMMAR_INFO_INIT                                                                      \
    { sizeof(avo_grammar_info), 0, 0 }
/* Any thread. */
AVO_API void avo_grammar_describe(avo_grammar *grammar, avo_grammar_info *info);

/* Opens a grammar or returns one that is already open; *grammar is a reference for the caller. */
typedef avo_status (*avo_grammar_function)(void *context, avo_grammar **grammar, avo_error *error);

#ifdef __cplusplus
}
#endif
#endif
