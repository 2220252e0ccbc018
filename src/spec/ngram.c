/* Prompt lookup. */
#include "spec/ngram.h"

#include "base/allocator.h"
#include "spec/suffix_int.h"

struct ngram_index {
    const avo_allocator *allocator;
    suffix_index *contexts;
    uint32_t length_min;
};

static ngram_options with_defaults(const ngram_options *options) {
    ngram_options full = *options;
    if (full.length_min == 0)
        full.length_min = full.length_max == 1 ? 1 : NGRAM_LENGTH_MIN_DEFAULT;
    if (full.length_max == 0)
        full.length_max =
            full.length_min > NGRAM_LENGTH_MAX_DEFAULT ? full.length_min : NGRAM_LENGTH_MAX_DEFAULT;
    return full;
}

static suffix_options contexts_of(const ngram_options *full) {
    return (suffix_options){.tokens_max = full->tokens_max, .length_max = full->length_max};
}

size_t ngram_index_bytes(const ngram_options *options) {
    ngram_options full = with_defaults(options);
    suffix_options contexts = contexts_of(&full);
    return sizeof(ngram_index) + suffix_options_bytes(&contexts);
}

avo_status ngram_index_open(const ngram_options *options, const avo_allocator *allocator,
                            ngram_index **out, avo_error *error) {
    ngram_options full = with_defaults(options);
    if (full.length_min > full.length_max || full.length_max > NGRAM_LENGTH_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "n-gram lookup: lengths are %u to %u, must lie within 1 to %d",
                           full.length_min, full.length_max, NGRAM_LENGTH_MAX);
    ngram_index *index = allocator_take(allocator, sizeof(*index));
    if (index == NULL)
        return status_no_memory(error, "the n-gram index", sizeof(*index));
    *index = (ngram_index){.allocator = allocator, .length_min = full.length_min};
    suffix_options contexts = contexts_of(&full);
    avo_status status = suffix_options_open(&contexts, allocator, &index->contexts, error);
    if (status != AVO_OK) {
        allocator_give(allocator, index, sizeof(*index));
        return status;
    }
    *out = index;
    return AVO_OK;
}

void ngram_index_close(ngram_index *index) {
    if (index == NULL)
        return;
    suffix_index_close(index->contexts);
    allocator_give(index->allocator, index, sizeof(*index));
}

void ngram_index_clear(ngram_index *index) {
    suffix_index_clear(index->contexts);
}

void ngram_index_push(ngram_index *index, int32_t token) {
    suffix_index_push(index->contexts, token);
}

suffix_match ngram_index_propose(const ngram_index *index, uint32_t most, int32_t *drafts) {
    if (index->contexts->best.length < index->length_min)
        return (suffix_match){0};
    return suffix_index_propose(index->contexts, most, drafts);
}
