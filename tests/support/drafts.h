/* A source of draft tokens that knows the answers: it proposes them, others, or a mixture. */
#ifndef AVO_TESTS_SUPPORT_DRAFTS_H
#define AVO_TESTS_SUPPORT_DRAFTS_H

#include "base/random.h"
#include "engine/engine.h"

#include <string.h>

typedef enum drafting_kind {
    DRAFTS_RIGHT, /* as much of the answer as is left, but its last token, which ends it */
    DRAFTS_WRONG, /* as many as are wanted, the first of them wrong */
    DRAFTS_MIXED  /* any number, wrong from a random one on, or none */
} drafting_kind;

/* One answer, found by its prompt. */
typedef struct drafted_answer {
    const int32_t *prompt, *answer;
    size_t prompt_count, answer_count;
} drafted_answer;

typedef struct drafting {
    drafting_kind kind;
    const drafted_answer *answers;
    size_t answer_count;
    uint32_t vocabulary;
    uint64_t seed, calls;
    uint64_t proposed; /* tokens */
} drafting;

/* The answer that the timeline is a part of; NULL: none. */
static inline const drafted_answer *drafted(const drafting *d, const int32_t *timeline,
                                            uint32_t count) {
    for (size_t i = 0; i < d->answer_count; i++) {
        const drafted_answer *a = &d->answers[i];
        size_t drawn = count - a->prompt_count;
        if (count >= a->prompt_count && drawn <= a->answer_count &&
            memcmp(timeline, a->prompt, a->prompt_count * sizeof(int32_t)) == 0 &&
            memcmp(timeline + a->prompt_count, a->answer, drawn * sizeof(int32_t)) == 0)
            return a;
    }
    return NULL;
}

static inline uint32_t draft_propose(void *context, const int32_t *timeline, uint32_t count,
                                     uint32_t most, int32_t *drafts) {
    drafting *d = context;
    random_block r = random_at(d->seed, 9, d->calls++);
    const drafted_answer *a = drafted(d, timeline, count);
    size_t drawn = a == NULL ? 0 : count - a->prompt_count;
    size_t left = a == NULL ? 0 : a->answer_count - drawn;
    uint32_t wanted = d->kind == DRAFTS_MIXED ? r.words[0] % (most + 1) : most;
    if (d->kind == DRAFTS_RIGHT && left <= wanted)
        wanted = left > 0 ? (uint32_t)left - 1 : 0;
    uint32_t wrong = d->kind == DRAFTS_RIGHT   ? UINT32_MAX
                     : d->kind == DRAFTS_WRONG ? 0
                                               : r.words[1] % (most + 2);
    for (uint32_t i = 0; i < wanted; i++) {
        drafts[i] = i < left ? a->answer[drawn + i] : (int32_t)(r.words[2] % d->vocabulary);
        if (i >= wrong)
            drafts[i] = (int32_t)(((uint32_t)drafts[i] + 1 + r.words[3] % 7) % d->vocabulary);
    }
    d->proposed += wanted;
    return wanted;
}

static inline draft_source draft_source_of(drafting *d, uint32_t drafts_max) {
    return (draft_source){draft_propose, d, drafts_max};
}

#endif
