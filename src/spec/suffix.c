/* The tree of contexts. */
#include "spec/suffix_int.h"

#include "base/allocator.h"
#include "base/checked.h"

#include <assert.h>
#include <string.h>

#define HEADS_MIN 16

/* ---- Memory ---- */

/* One head for about two tokens: a power of two between half and a whole window. */
static uint32_t heads_for(uint32_t tokens_max) {
    uint32_t heads = HEADS_MIN;
    while (heads < tokens_max / 2)
        heads *= 2;
    return heads;
}

size_t suffix_options_bytes(const suffix_options *options) {
    size_t capacity = (size_t)options->tokens_max + options->length_max;
    size_t per_token = sizeof(suffix_node) + sizeof(int32_t);
    if (options->owners)
        per_token += sizeof(uint32_t);
    return sizeof(suffix_index) + capacity * per_token +
           heads_for(options->tokens_max) * sizeof(uint32_t);
}

size_t suffix_index_bytes(uint32_t tokens_max) {
    return suffix_options_bytes(
        &(suffix_options){.tokens_max = tokens_max, .length_max = SUFFIX_LENGTH_MAX});
}

/* The state of an index that knows nothing; a break stands before the stream. */
static void start(suffix_index *index) {
    index->lap = 0;
    index->end = 1;
    index->best = (suffix_found){0};
    index->tokens[0] = SUFFIX_BREAK;
    if (index->owners != NULL)
        index->owners[0] = 0;
}

avo_status suffix_options_open(const suffix_options *options, const avo_allocator *allocator,
                               suffix_index **out, avo_error *error) {
    assert(options->length_max >= 1 && options->length_max <= SUFFIX_LENGTH_MAX);
    if (options->tokens_max == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "lookup index: tokens_max must be 1 to %u",
                           SUFFIX_TOKENS_MAX);
    if (options->tokens_max > SUFFIX_TOKENS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "lookup index: tokens_max is %u, at most %u",
                           options->tokens_max, SUFFIX_TOKENS_MAX);
    size_t bytes = suffix_options_bytes(options);
    suffix_index *index = allocator_take(allocator, bytes);
    if (index == NULL)
        return status_no_memory(error, "the lookup index", bytes);
    uint32_t capacity = options->tokens_max + options->length_max;
    *index = (suffix_index){.allocator = allocator,
                            .bytes = bytes,
                            .window = options->tokens_max,
                            .length_max = options->length_max,
                            .capacity = capacity,
                            .head_mask = heads_for(options->tokens_max) - 1};
    index->nodes = (suffix_node *)(void *)(index + 1);
    index->heads = (uint32_t *)(void *)(index->nodes + capacity);
    index->tokens = (int32_t *)(void *)(index->heads + index->head_mask + 1);
    if (options->owners)
        index->owners = (uint32_t *)(void *)(index->tokens + capacity);
    memset(index->heads, 0, ((size_t)index->head_mask + 1) * sizeof(uint32_t));
    start(index);
    *out = index;
    return AVO_OK;
}

avo_status suffix_index_open(uint32_t tokens_max, const avo_allocator *allocator,
                             suffix_index **out, avo_error *error) {
    suffix_options options = {.tokens_max = tokens_max, .length_max = SUFFIX_LENGTH_MAX};
    return suffix_options_open(&options, allocator, out, error);
}

void suffix_index_close(suffix_index *index) {
    if (index != NULL)
        allocator_give(index->allocator, index, index->bytes);
}

/* ---- Contexts ---- */

/* A context that is searched for, newest token first. */
typedef struct context {
    uint32_t length; /* tokens */
    uint32_t total;  /* symbols to compare: a break behind them where the document begins there */
    uint32_t owner;
    int32_t symbols[SUFFIX_LENGTH_MAX + 1];
} context;

static uint32_t *head_of(const suffix_index *index, uint32_t owner, int32_t token) {
    return &index
                ->heads[suffix_scatter((uint32_t)token ^ suffix_scatter(owner)) & index->head_mask];
}

/* Symbol `at` of the context of a position, counted backwards. */
static int32_t symbol(const suffix_index *index, uint32_t position, uint32_t at) {
    return index->tokens[suffix_slot(index, position - 1 - at)];
}

static bool is_present(const suffix_index *index, uint32_t position) {
    return position != SUFFIX_NONE && index->end - position <= index->window;
}

static void read_context(const suffix_index *index, context *context) {
    uint32_t slot = suffix_slot(index, index->end - 1);
    context->length = 0;
    context->owner = index->owner;
    while (context->length < index->length_max) {
        int32_t token = index->tokens[slot];
        context->symbols[context->length] = token;
        if (token == SUFFIX_BREAK)
            break;
        context->length++;
        slot = slot == 0 ? index->capacity - 1 : slot - 1;
    }
    context->total = context->length < index->length_max ? context->length + 1 : context->length;
}

/* Compares from symbol `from` on, those before being equal. Returns the equal ones, at most
 * context->total; *after tells whether the position's context is ordered after this one. */
static uint32_t compare(const suffix_index *index, const context *context, uint32_t position,
                        uint32_t from, bool *after) {
    if (from == 0 && index->owners != NULL) {
        uint32_t owner = index->owners[suffix_slot(index, position)];
        if (owner != context->owner) {
            *after = owner > context->owner;
            return 0;
        }
    }
    uint32_t equal = from;
    int32_t found = 0;
    while (equal < context->total &&
           (found = symbol(index, position, equal)) == context->symbols[equal])
        equal++;
    if (equal < context->total)
        *after =
            suffix_scatter((uint32_t)found) > suffix_scatter((uint32_t)context->symbols[equal]);
    return equal;
}

/* The token behind the context of a position. The newest one has none yet: it is not in the tree
 * while that is searched. */
static int32_t next_token(const suffix_index *index, uint32_t position) {
    return index->tokens[suffix_slot(index, position)];
}

/* Notes a node of the walk. A break is no token of the match. */
static void note(const suffix_index *index, suffix_found *best, const context *context,
                 uint32_t position, uint32_t equal) {
    uint32_t length = equal < context->length ? equal : context->length;
    if (length > best->length) {
        uint32_t shorter = best->at; /* SUFFIX_NONE at first */
        *best = (suffix_found){
            .length = length, .at = position, .seen = 1, .agreed = 1, .shorter = shorter};
    } else if (length == best->length && length > 0) {
        best->seen++;
        best->agreed += next_token(index, position) == next_token(index, best->at);
    }
}

/* The newest context becomes the root of its tree: the walk down divides the old tree into the
 * contexts before it and those after it. */
static suffix_found insert(suffix_index *index, const context *context) {
    uint32_t *head = head_of(index, context->owner, context->symbols[0]);
    suffix_node *node = &index->nodes[suffix_slot(index, index->end)];
    uint32_t *before = &node->before, *after = &node->after; /* where the next part is hung */
    uint32_t equal_before = 0, equal_after = 0;              /* with the last nodes hung there */
    suffix_found best = {0};
    uint32_t position = *head;
    *head = index->end;
    for (uint32_t step = 0; step < SUFFIX_STEPS_MAX && is_present(index, position); step++) {
        suffix_node *old = &index->nodes[suffix_slot(index, position)];
        uint32_t known = equal_before < equal_after ? equal_before : equal_after;
        bool is_after = false;
        uint32_t equal = compare(index, context, position, known, &is_after);
        note(index, &best, context, position, equal);
        if (equal == context->total) {
            *before = old->before;
            *after = old->after;
            return best;
        }
        if (is_after) {
            *after = position;
            after = &old->before;
            equal_after = equal;
            position = old->before;
        } else {
            *before = position;
            before = &old->after;
            equal_before = equal;
            position = old->after;
        }
    }
    *before = *after = SUFFIX_NONE;
    return best;
}

static suffix_found find(const suffix_index *index, const context *context) {
    uint32_t equal_before = 0, equal_after = 0;
    suffix_found best = {0};
    uint32_t position = *head_of(index, context->owner, context->symbols[0]);
    for (uint32_t step = 0; step < SUFFIX_STEPS_MAX && is_present(index, position); step++) {
        const suffix_node *old = &index->nodes[suffix_slot(index, position)];
        uint32_t known = equal_before < equal_after ? equal_before : equal_after;
        bool is_after = false;
        uint32_t equal = compare(index, context, position, known, &is_after);
        note(index, &best, context, position, equal);
        if (equal == context->total)
            break;
        if (is_after) {
            equal_after = equal;
            position = old->before;
        } else {
            equal_before = equal;
            position = old->after;
        }
    }
    return best;
}

/* ---- The stream ---- */

void suffix_index_clear(suffix_index *index) {
    /* A head left over would come to life once positions start anew. Those of tokens that were
     * forgotten can be anywhere. */
    bool some_forgotten = suffix_oldest(index) > 1;
    if (some_forgotten || index->end > index->head_mask) {
        memset(index->heads, 0, ((size_t)index->head_mask + 1) * sizeof(uint32_t));
    } else {
        for (uint32_t position = 1; position < index->end; position++) {
            uint32_t slot = suffix_slot(index, position);
            uint32_t owner = index->owners == NULL ? 0 : index->owners[slot];
            *head_of(index, owner, index->tokens[slot]) = SUFFIX_NONE;
        }
    }
    start(index);
}

static void append(suffix_index *index, int32_t token) {
    uint32_t slot = suffix_slot(index, index->end);
    index->tokens[slot] = token;
    if (index->owners != NULL)
        index->owners[slot] = index->owner;
    index->end++;
    if (index->end - index->lap == index->capacity)
        index->lap = index->end;
    if (index->end == UINT32_MAX) /* once in four thousand million tokens */
        suffix_index_clear(index);
}

static void insert_newest(suffix_index *index) {
    context context;
    read_context(index, &context);
    index->best = context.length > 0 ? insert(index, &context) : (suffix_found){0};
}

void suffix_index_push(suffix_index *index, int32_t token) {
    assert(token >= 0);
    if (index->owners != NULL)
        insert_newest(index);
    append(index, token);
    if (index->owners == NULL)
        insert_newest(index);
}

void suffix_index_break(suffix_index *index) {
    append(index, SUFFIX_BREAK);
    index->best = (suffix_found){0};
}

void suffix_index_begin(suffix_index *index, uint32_t owner) {
    assert(index->owners != NULL);
    index->owner = owner;
    suffix_index_break(index);
}

uint32_t suffix_index_length(const suffix_index *index) {
    uint32_t pushed = index->end - 1;
    return pushed < index->window ? pushed : index->window;
}

/* ---- Drafts ---- */

static uint32_t copy(const suffix_index *index, uint32_t at, uint32_t most, bool onward,
                     int32_t *drafts) {
    uint32_t stored = index->end - at;
    for (uint32_t i = 0; i < most; i++) {
        if (i >= stored && !onward)
            return i;
        int32_t token = i < stored ? index->tokens[suffix_slot(index, at + i)] : drafts[i - stored];
        if (token == SUFFIX_BREAK)
            return i;
        drafts[i] = token;
    }
    return most;
}

static suffix_vote vote_of(const suffix_index *index, const suffix_found *found) {
    bool agreed = found->agreed == found->seen;
    if (found->seen == 1) {
        if (found->shorter == SUFFIX_NONE)
            return SUFFIX_ALONE;
        agreed = next_token(index, found->shorter) == next_token(index, found->at);
    }
    return agreed ? SUFFIX_AGREED : SUFFIX_DISPUTED;
}

static suffix_match propose(const suffix_index *index, const suffix_found *found, uint32_t most,
                            bool onward, int32_t *drafts) {
    if (found->length == 0)
        return (suffix_match){0};
    return (suffix_match){.length = found->length,
                          .count = copy(index, found->at, most, onward, drafts),
                          .seen = found->seen,
                          .vote = vote_of(index, found),
                          .back = index->end - found->at};
}

suffix_match suffix_index_propose(const suffix_index *index, uint32_t most, int32_t *drafts) {
    return propose(index, &index->best, most, true, drafts);
}

suffix_match suffix_index_propose_of(const suffix_index *index, uint32_t owner,
                                     const int32_t *tokens, size_t count, uint32_t most,
                                     int32_t *drafts) {
    assert(index->owners != NULL);
    context context = {.owner = owner};
    context.length = (uint32_t)size_min(count, index->length_max);
    if (context.length == 0)
        return (suffix_match){0};
    /* No break behind them: the first node that shares them all is the answer. */
    context.total = context.length;
    for (uint32_t i = 0; i < context.length; i++)
        context.symbols[i] = tokens[count - 1 - i];
    suffix_found found = find(index, &context);
    return propose(index, &found, most, false, drafts);
}
