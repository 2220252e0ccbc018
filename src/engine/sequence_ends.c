/* The least length of an answer, and the end of one that repeats itself. Both are functions of the
 * request and the tokens alone: an answer that is computed again, with or without drafts, ends at
 * the same token. */
#include "engine/engine_int.h"
#include "engine/sequence.h"
#include "engine/sequence_int.h"

/* ---- The least length ---- */

static void forbid(uint64_t *mask, uint32_t vocabulary, int32_t token) {
    if (token >= 0 && (uint32_t)token < vocabulary)
        mask[token / 64] &= ~((uint64_t)1 << token % 64);
}

avo_status sequence_hold(sequence *sequence, avo_error *error) {
    const avo_request *request = sequence->options.request;
    if (sequence->drawn >= request->min_new_tokens)
        return AVO_OK;
    uint32_t vocabulary = sequence->options.model->view.vocabulary;
    sequence->mask_words = (vocabulary + 63) / 64;
    uint64_t *masks = allocator_take_array(sequence->options.allocator,
                                           (size_t)sequence->mask_words * 2, sizeof(*masks));
    if (masks == NULL)
        return status_no_memory(error, "min_new_tokens",
                                (size_t)sequence->mask_words * 2 * sizeof(*masks));
    sequence->going_on = masks;
    for (uint32_t i = 0; i < vocabulary; i++)
        masks[i / 64] |= (uint64_t)1 << i % 64;
    for (size_t i = 0; i < request->stop_token_count; i++)
        forbid(masks, vocabulary, request->stop_tokens[i]);
    for (uint32_t i = 0; i < vocabulary && !request->ignore_end; i++)
        if (avo_model_token_ends(sequence->options.model, (int32_t)i))
            forbid(masks, vocabulary, (int32_t)i);
    sampler_constrain(sequence->sampler);
    return AVO_OK;
}

void sequence_let_go(sequence *sequence) {
    if (sequence->going_on != NULL)
        allocator_give(sequence->options.allocator, sequence->going_on,
                       (size_t)sequence->mask_words * 2 * sizeof(*sequence->going_on));
    sequence->going_on = NULL;
}

const uint64_t *sequence_without_ends(const sequence *sequence, const uint64_t *allowed) {
    if (sequence->going_on == NULL || sequence->drawn >= sequence->options.request->min_new_tokens)
        return allowed;
    if (allowed == NULL)
        return sequence->going_on;
    uint64_t *both = sequence->going_on + sequence->mask_words, any = 0;
    for (uint32_t i = 0; i < sequence->mask_words; i++)
        any |= both[i] = allowed[i] & sequence->going_on[i];
    return any != 0 ? both : allowed; /* the grammar allows ends alone: it is complete */
}

/* ---- Repetition ---- */

/* The last `total` of the tokens before `end` are one pattern again and again. */
static bool is_periodic(const int32_t *end, uint32_t pattern, uint64_t total) {
    for (uint64_t i = 1; i + pattern <= total; i++)
        if (*(end - i) != *(end - i - pattern))
            return false;
    return true;
}

bool sequence_repeats(const sequence *sequence) {
    const avo_repetition *repetition = &sequence->options.request->repetition;
    const avo_session *session = sequence->session;
    if (repetition->pattern_max == 0)
        return false;
    uint64_t known = session->count - (session->forgotten > 0 ? session->ring_keep : 0);
    if (known > sequence->drawn)
        known = sequence->drawn;
    const int32_t *end = session->tokens + session->count;
    uint32_t pattern = repetition->pattern_min > 0 ? repetition->pattern_min : 1;
    for (; pattern <= repetition->pattern_max; pattern++) {
        uint64_t total = (uint64_t)pattern * repetition->count_min;
        if (total <= known && is_periodic(end, pattern, total))
            return true;
    }
    return false;
}
