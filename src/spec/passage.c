/* Following a copy past its differences. */
#include "spec/passage.h"

#define MATCH_COPIED 16 /* the record's class of long matches */

/* −1: dropped by a ring, or not there yet. */
static int32_t token_at(const draft_timeline *timeline, uint64_t number, uint64_t end) {
    uint64_t dropped = timeline->position - timeline->count;
    return number < dropped || number >= end ? -1 : timeline->tokens[number - dropped];
}

void passage_found(passage *passage, uint64_t next, uint32_t run) {
    if (run >= PASSAGE_RUN_LEAST)
        *passage = (struct passage){.active = true, .next = next};
}

/* Where a copy that was left takes up its source again: with the next token of the source (one was
 * replaced by some), with the same one (some were inserted), or as many tokens on as have come (as
 * many were replaced). */
static bool takes_up(passage *passage, const draft_timeline *timeline, uint64_t number,
                     int32_t token) {
    const uint64_t steps[] = {1, 0, passage->astray};
    for (uint32_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (token_at(timeline, passage->next + steps[i], number) != token)
            continue;
        passage->next += steps[i] + 1;
        passage->astray = 0;
        return true;
    }
    return false;
}

void passage_follow(passage *passage, const draft_timeline *timeline, uint64_t number,
                    int32_t token) {
    if (!passage->active)
        return;
    if (passage->astray == 0 && token_at(timeline, passage->next, number) == token) {
        passage->next++;
        return;
    }
    if (passage->astray > 0 && takes_up(passage, timeline, number, token))
        return;
    passage->active = ++passage->astray <= PASSAGE_ASTRAY_MAX;
}

uint32_t passage_propose(const passage *passage, const draft_timeline *timeline, uint32_t most,
                         int32_t *drafts, uint32_t *match) {
    uint32_t count = 0;
    *match = passage->astray == 0 ? MATCH_COPIED : passage->astray;
    if (!passage->active)
        return 0;
    uint64_t from = passage->next + (passage->astray > 0);
    for (; count < most; count++) {
        int32_t token = token_at(timeline, from + count, timeline->position);
        if (token < 0)
            break;
        drafts[count] = token;
    }
    return count;
}
