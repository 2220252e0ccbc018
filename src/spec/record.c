/* Acceptance rates, and where they begin. */
#include "spec/record.h"

#include <string.h>

#define OWN_FADE     0.94f  /* a sequence remembers about 16 observations of a cell */
#define SHARED_FADE  0.998f /* an engine about 500 */
#define SHARED_COUNT 4.0f   /* observations that the shared rate is worth to a sequence */
#define PRIOR_COUNT  16.0f  /* observations that a prior is worth to an engine */

/* Rates at which the first draft token was right, by class of match length, and how often a later
 * one is right behind right ones: means of WikiText-2 and the prompts of Spec-Bench (bench_lookup).
 * Text that repeats itself does far better, and a record learns that within a few tokens. */
static const float first_prior[RECORD_VOTES][RECORD_MATCHES] = {
    [SUFFIX_ALONE] = {.20f, .36f, .45f, .54f, .64f, .78f, .81f, .95f},
    [SUFFIX_AGREED] = {.60f, .74f, .78f, .82f, .88f, .90f, .95f, .95f},
    [SUFFIX_DISPUTED] = {.08f, .14f, .22f, .30f, .46f, .62f, .76f, .88f},
    /* By how far the copy is astray; the last: it goes on. */
    [RECORD_RESUMED] = {.45f, .40f, .35f, .30f, .25f, .20f, .20f, .85f}};
static const float later_prior[RECORD_MATCHES] = {.38f, .45f, .50f, .55f, .65f, .75f, .80f, .93f};
#define RESUMED_LATER 0.85f
#define GRAMMAR_PRIOR 0.85f
#define CUSTOM_PRIOR  0.5f
static const float model_prior[DRAFT_GRADES] = {.1f, .2f, .35f, .5f, .65f, .8f, .9f, .95f};
#define RATE_MAX 0.99f

_Static_assert(DRAFT_GRADES == RECORD_MATCHES, "grades and matches share the cells");

static uint32_t match_class(uint32_t match) {
    static const uint32_t longest[RECORD_MATCHES - 1] = {1, 2, 3, 4, 6, 9, 15};
    uint32_t class = 0;
    while (class < RECORD_MATCHES - 1 && match > longest[class])
        class ++;
    return class;
}

/* Of a token of a draft: how sure its source is, or else how much of the timeline it found again.
 */
static uint32_t token_class(const draft *draft, uint32_t token) {
    return draft->graded ? draft->grade[token] : match_class(draft->match);
}

static uint32_t place_class(uint32_t place) {
    return place < RECORD_PLACES ? place : RECORD_PLACES - 1;
}

void record_clear(record *own) {
    memset(own, 0, sizeof(*own));
    own->fade = OWN_FADE;
}

static float prior(draft_kind kind, uint32_t class, uint32_t vote, uint32_t place) {
    if (kind == DRAFT_GRAMMAR)
        return GRAMMAR_PRIOR;
    if (draft_kind_computes(kind))
        return model_prior[class];
    if (kind == DRAFT_CUSTOM)
        return CUSTOM_PRIOR;
    if (place > 0 && vote == RECORD_RESUMED)
        return RESUMED_LATER;
    return place == 0 ? first_prior[vote][class] : later_prior[class];
}

static void begin_class(record *shared, draft_kind kind, uint32_t class) {
    for (uint32_t vote = 0; vote < RECORD_VOTES; vote++)
        for (uint32_t place = 0; place < RECORD_PLACES; place++)
            shared->cell[kind][class][vote][place] =
                (record_cell){PRIOR_COUNT * prior(kind, class, vote, place), PRIOR_COUNT};
}

void record_begin(record *shared) {
    shared->fade = SHARED_FADE;
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++)
        for (uint32_t class = 0; class < RECORD_MATCHES; class ++)
            begin_class(shared, (draft_kind)kind, class);
}

void record_doubt(record *shared, float factor) {
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++)
        for (uint32_t class = 0; class < RECORD_MATCHES; class ++)
            for (uint32_t vote = 0; vote < RECORD_VOTES; vote++)
                for (uint32_t place = 0; place < RECORD_PLACES; place++)
                    if (kind != DRAFT_GRAMMAR && kind != DRAFT_CUSTOM)
                        shared->cell[kind][class][vote][place].right *= factor;
}

void record_note(record *record, const draft *draft, uint32_t place, bool right) {
    record_cell *cell =
        &record->cell[draft->kind][token_class(draft, place)][draft->vote][place_class(place)];
    cell->asked = cell->asked * record->fade + 1.0f;
    cell->right = cell->right * record->fade + (right ? 1.0f : 0.0f);
}

void record_rate(const record *own, const record *shared, draft *draft) {
    float survival = 1.0f;
    for (uint32_t i = 0; i < draft->count; i++) {
        uint32_t class = token_class(draft, i);
        record_cell mine = own->cell[draft->kind][class][draft->vote][place_class(i)];
        record_cell all = shared->cell[draft->kind][class][draft->vote][place_class(i)];
        float rate =
            (mine.right + SHARED_COUNT * all.right / all.asked) / (mine.asked + SHARED_COUNT);
        survival *= rate < RATE_MAX ? rate : RATE_MAX;
        draft->survival[i] = survival;
    }
}

float draft_worth(const draft *draft) {
    float worth = 0.0f;
    for (uint32_t i = 0; i < draft->count; i++)
        worth += draft->survival[i];
    return worth;
}
