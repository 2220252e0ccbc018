/* Documents become items (a prompt with its choices or its target), and items become queries
 * (token ids). Owns all of their memory; fails for a document that the task's templates do
 * not fit, with its number in the message, and for lack of memory. */
#ifndef AVO_EVAL_ITEMS_H
#define AVO_EVAL_ITEMS_H

#include "eval/task.h"

#define DOCUMENTS_MAX 10000000u

/* Documents of a JSON Lines text, which must outlive them. */
typedef struct eval_documents {
    arena arena;
    json_value *document; /* objects */
    uint32_t count;
    uint32_t total; /* in the text, those above the limit included */
} eval_documents;

/* The first `limit` (0: all). `label` names the file in messages. */
AVO_MUST_USE avo_status documents_open(text_view text, const char *label, uint32_t limit,
                                       const avo_allocator *allocator, eval_documents *documents,
                                       avo_error *error);
void documents_close(eval_documents *documents);

typedef struct eval_item {
    text_view context; /* shots and prompt; after items_tokenize the whole text before an answer */
    text_view prefix;  /* the begin of the answer, which the model continues */
    text_view target;  /* not of TASK_CHOICE */
    text_view *choice; /* TASK_CHOICE, without delimiter */
    uint32_t choices;
    uint32_t gold;        /* TASK_CHOICE */
    uint32_t first_query; /* of `queries` */
    uint32_t queries;
} eval_item;

typedef struct eval_query {
    const int32_t *tokens;
    uint32_t count;
    uint32_t from;  /* the first that is scored; TASK_GENERATE: count */
    bool truncated; /* the prompt was cut at its begin: the context is too small */
} eval_query;

typedef struct eval_items {
    arena arena;
    eval_item *item; /* one for each document */
    uint32_t count;
    eval_query *query;
    uint32_t query_count;
    uint32_t tokens_max; /* of a query, and the answer's */
    uint32_t truncated;  /* queries */
} eval_items;

typedef struct items_options {
    const avo_model *model;
    uint32_t context; /* tokens of prompt and answer together */
    bool chat;        /* prompts are user messages in the model's chat template */
    bool no_begin;    /* no BOS token, also where the tokenizer adds one */
} items_options;

/* `shots`: the documents that shots are drawn from, or NULL where the task has its own. Everything
 * must outlive the items. */
AVO_MUST_USE avo_status items_open(const eval_task *task, const eval_documents *documents,
                                   const eval_documents *shots, const items_options *options,
                                   const avo_allocator *allocator, eval_items *items,
                                   avo_error *error);
void items_close(eval_items *items);

/* ---- queries.c ---- */

/* Tokenizes all items: called by items_open. */
AVO_MUST_USE avo_status items_tokenize(const eval_task *task, const items_options *options,
                                       eval_items *items, avo_error *error);

#endif
