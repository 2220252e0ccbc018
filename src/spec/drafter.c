/* Drafters: feeding, looking up, comparing with what came. */
#include "spec/drafter.h"

#include "spec/controller.h"
#include "spec/ngram.h"
#include "spec/passage.h"
#include "spec/suffix.h"

#include <string.h>

#define MODEL_FADE        0.9f  /* a sequence remembers about 10 drafts of models */
#define MODEL_SHARED_FADE 0.98f /* all of like temperatures together about 50 */
#define MODEL_PRIOR_COUNT 12.0f /* observations that the first guess is worth */
/* Where computed drafts do not pay they are tried now and then, of all sequences together in this
 * part of the time. */
#define PROBE_SHARE 0.004
#define PROBE_COST  2.0 /* of what pays for a draft: a try also reads what was left out before */
#define MODEL_COST_MAX                                                                             \
    0.7f /* of a step: a dearer draft gains too little even where all are right */
#define LOOKUP_GAIN_ENOUGH 1.0f /* drafts that lookups get accepted in a step, for nothing */
#define LOOKUP_FADE        0.9f
#define TEMPERATURES       3    /* classes of them, each with a record */
#define HOT_DOUBT          0.3f /* of usual rates, above temperature 1 */
/* Tokens read before one step, about 2 ms; a longer prompt takes more steps. */
#define FEED_MAX 4096

/* A proposal that is compared with the tokens that come. */
typedef struct shadow {
    draft draft; /* count 0: none */
    uint32_t checked;
} shadow;

/* What sequences of like temperatures have in common. */
typedef struct shared_record {
    record record;
    record_cell model;  /* first tokens of computed drafts: where the next sequence begins */
    double probe_saved; /* for the next try of a draft that does not pay; 1: the time of a token */
} shared_record;

struct drafter {
    speculation *shared;
    bool taken;
    draft_kinds kinds;
    controller controller;
    corpus_key key;
    uint64_t position; /* tokens of the timeline that were read */
    suffix_index *suffix;
    ngram_index *ngram;
    shared_record *shared_record; /* of its temperature */
    record own;
    passage passage;
    shadow shadows[DRAFT_KINDS + 1]; /* the last one: of the passage */
    float model_rate;                /* how often the first token of computed drafts was right */
    float lookup_gain;               /* moving average of accepted drafts of other sources */
    draft_kind proposed;             /* last */
    draft found;                     /* by lookups, for the step at hand */
    bool looked;                     /* they were asked */
    bool readable;                   /* the whole timeline was read */
    bool model_behind;
    bool model_hit; /* the first token of the last computed draft was right */
};

struct speculation {
    const avo_allocator *allocator;
    speculation_options options;
    shared_record records[TEMPERATURES];
    corpus *corpus;
    const draft_source *custom;
    drafter *drafters; /* [options.drafters] */
};

/* ---- Opening ---- */

static uint32_t index_tokens(const speculation_options *options) {
    return options->context_max < DRAFT_INDEX_TOKENS ? options->context_max : DRAFT_INDEX_TOKENS;
}

static bool has(draft_kinds kinds, draft_kind kind) {
    return (kinds & DRAFT_BIT(kind)) != 0;
}

static bool has_corpus(const speculation_options *options) {
    return has(options->kinds, DRAFT_CORPUS) && options->corpus.tokens_max > 0;
}

uint64_t speculation_bytes(const speculation_options *options) {
    uint64_t each = sizeof(drafter);
    if (has(options->kinds, DRAFT_SUFFIX))
        each += suffix_index_bytes(index_tokens(options));
    if (has(options->kinds, DRAFT_NGRAM))
        each += ngram_index_bytes(&(ngram_options){.tokens_max = index_tokens(options)});
    return sizeof(speculation) + each * options->drafters +
           (has_corpus(options) ? corpus_bytes(&options->corpus) : 0);
}

static avo_status open_drafter(speculation *shared, drafter *drafter, avo_error *error) {
    const speculation_options *options = &shared->options;
    drafter->shared = shared;
    if (has(options->kinds, DRAFT_SUFFIX))
        AVO_TRY(
            suffix_index_open(index_tokens(options), shared->allocator, &drafter->suffix, error));
    if (has(options->kinds, DRAFT_NGRAM))
        AVO_TRY(ngram_index_open(&(ngram_options){.tokens_max = index_tokens(options)},
                                 shared->allocator, &drafter->ngram, error));
    return AVO_OK;
}

static avo_status open_parts(speculation *shared, avo_error *error) {
    const speculation_options *options = &shared->options;
    size_t count = options->drafters;
    /* Heads of SmolLM2 on its own answers (docs/heads.md); above 1 nearly anything may come. */
    static const float model_prior[TEMPERATURES] = {.6f, .48f, .2f};
    for (uint32_t i = 0; i < TEMPERATURES; i++) {
        record_begin(&shared->records[i].record);
        shared->records[i].model =
            (record_cell){MODEL_PRIOR_COUNT * model_prior[i], MODEL_PRIOR_COUNT};
    }
    record_doubt(&shared->records[TEMPERATURES - 1].record, HOT_DOUBT);
    shared->drafters = allocator_take_array(shared->allocator, count, sizeof(drafter));
    if (shared->drafters == NULL)
        return status_no_memory(error, "drafters", count * sizeof(drafter));
    for (size_t i = 0; i < count; i++)
        AVO_TRY(open_drafter(shared, &shared->drafters[i], error));
    return has_corpus(options)
               ? corpus_open(&options->corpus, shared->allocator, &shared->corpus, error)
               : AVO_OK;
}

avo_status speculation_open(const speculation_options *options, const avo_allocator *allocator,
                            speculation **out, avo_error *error) {
    *out = NULL;
    speculation *shared = allocator_take_array(allocator, 1, sizeof(*shared));
    if (shared == NULL)
        return status_no_memory(error, "speculation", sizeof(*shared));
    shared->allocator = allocator;
    shared->options = *options;
    avo_status status = open_parts(shared, error);
    if (status != AVO_OK) {
        speculation_close(shared);
        return status;
    }
    *out = shared;
    return AVO_OK;
}

void speculation_close(speculation *shared) {
    if (shared == NULL)
        return;
    for (uint32_t i = 0; shared->drafters != NULL && i < shared->options.drafters; i++) {
        suffix_index_close(shared->drafters[i].suffix);
        ngram_index_close(shared->drafters[i].ngram);
    }
    corpus_close(shared->corpus);
    allocator_give(shared->allocator, shared->drafters, shared->options.drafters * sizeof(drafter));
    allocator_give(shared->allocator, shared, sizeof(*shared));
}

void speculation_custom(speculation *shared, const draft_source *source) {
    shared->custom = source;
}

void speculation_control(speculation *shared, draft_controller controller) {
    shared->options.controller = controller;
}

corpus *speculation_corpus(speculation *shared) {
    return shared->corpus;
}

/* ---- Taking ---- */

/* Greedy, as usual, and where nearly anything may come. */
static uint32_t temperature_class(float temperature) {
    return !(temperature > 0.0f) ? 0 : temperature <= 1.0f ? 1 : 2;
}

drafter *drafter_take(speculation *shared, const drafter_options *options) {
    draft_kinds kinds = options->kinds & shared->options.kinds;
    uint32_t most = options->draft_tokens;
    if (kinds == DRAFTS_OFF)
        return NULL;
    if (most == 0 || most > shared->options.draft_tokens)
        most = shared->options.draft_tokens;
    for (uint32_t i = 0; i < shared->options.drafters; i++) {
        drafter *drafter = &shared->drafters[i];
        if (drafter->taken)
            continue;
        drafter->taken = true;
        drafter->kinds = kinds;
        drafter->key = options->key;
        drafter->position = 0;
        drafter->shared_record = &shared->records[temperature_class(options->temperature)];
        drafter->model_rate =
            drafter->shared_record->model.right / drafter->shared_record->model.asked;
        drafter->lookup_gain = 0;
        drafter->looked = false;
        drafter->found.count = 0;
        drafter->model_behind = false;
        drafter->model_hit = false;
        controller_begin(&drafter->controller, shared->options.controller, most);
        record_clear(&drafter->own);
        drafter->passage.active = false;
        memset(drafter->shadows, 0, sizeof(drafter->shadows));
        if (drafter->suffix != NULL)
            suffix_index_clear(drafter->suffix);
        if (drafter->ngram != NULL)
            ngram_index_clear(drafter->ngram);
        return drafter;
    }
    return NULL;
}

void drafter_give(drafter *drafter) {
    if (drafter != NULL)
        drafter->taken = false;
}

bool drafter_uses(const drafter *drafter, draft_kind kind) {
    return has(drafter->kinds, kind);
}

uint32_t drafter_number(const drafter *drafter) {
    return (uint32_t)(drafter - drafter->shared->drafters);
}

void drafter_rate(const drafter *drafter, draft *draft) {
    record_rate(&drafter->own, &drafter->shared_record->record, draft);
}

uint32_t drafter_limit(const drafter *drafter) {
    return drafter->controller.most;
}

bool drafter_decides(const drafter *drafter) {
    return controller_decides(&drafter->controller);
}

bool drafter_insists(const drafter *drafter) {
    return drafter_decides(drafter) ||
           (drafter->shared->custom != NULL && has(drafter->kinds, DRAFT_CUSTOM));
}

/* Tokens that a model's draft is expected to add to those of the lookup at hand. */
static double model_gain(const drafter *drafter) {
    double rate = (double)drafter->model_rate, found = 0;
    if (drafter->found.count > 0 && drafter->found.kind != DRAFT_CUSTOM)
        found = (double)draft_worth(&drafter->found);
    return rate * (1 + rate * (1 + rate)) - found;
}

/* A draft that does not pay is tried where enough time was saved for it, or the last one was right
 * after all. */
static bool may_probe(drafter *drafter, double least) {
    double *saved = &drafter->shared_record->probe_saved, cost = PROBE_COST * least;
    bool hit = drafter->model_hit;
    drafter->model_hit = false;
    *saved += PROBE_SHARE;
    if (!hit && *saved < cost)
        return false;
    *saved -= hit ? 0 : cost;
    return true;
}

bool drafter_try_model(drafter *drafter, double least) {
    if (drafter_decides(drafter))
        return true;
    if (least > MODEL_COST_MAX || drafter->lookup_gain > LOOKUP_GAIN_ENOUGH)
        return false;
    if (drafter->found.count > 0 && model_gain(drafter) < least)
        return false;
    if (drafter->model_behind) {
        drafter->model_behind = false;
        return true;
    }
    return (double)drafter->model_rate > least || may_probe(drafter, least);
}

bool drafter_goes_on(const drafter *drafter, double survival, double least) {
    return survival * (double)drafter->model_rate > least;
}

void drafter_model_behind(drafter *drafter) {
    drafter->model_behind = true;
}

/* ---- Reading the timeline ---- */

/* How often the first token of what a model computed was right, here and everywhere. */
static void note_model(drafter *drafter, bool right) {
    record_cell *all = &drafter->shared_record->model;
    drafter->model_rate = MODEL_FADE * drafter->model_rate + (right ? 1 - MODEL_FADE : 0);
    drafter->model_hit = right;
    all->asked = all->asked * MODEL_SHARED_FADE + 1.0f;
    all->right = all->right * MODEL_SHARED_FADE + (right ? 1.0f : 0.0f);
}

/* The token that came where a proposal said what would come. */
static void compare(drafter *drafter, uint32_t kind, int32_t token) {
    shadow *shadow = &drafter->shadows[kind];
    draft *draft = &shadow->draft;
    if (draft->count == 0)
        return;
    bool right = draft->tokens[shadow->checked] == token;
    record_note(&drafter->own, draft, shadow->checked, right);
    record_note(&drafter->shared_record->record, draft, shadow->checked, right);
    if (draft_kind_computes(draft->kind) && shadow->checked == 0)
        note_model(drafter, right);
    shadow->checked++;
    if (!right || shadow->checked == draft->count)
        draft->count = 0;
}

static void read_token(drafter *drafter, int32_t token) {
    for (uint32_t kind = 0; kind <= DRAFT_KINDS; kind++)
        compare(drafter, kind, token);
    if (has(drafter->kinds, DRAFT_SUFFIX))
        suffix_index_push(drafter->suffix, token);
    if (has(drafter->kinds, DRAFT_NGRAM))
        ngram_index_push(drafter->ngram, token);
}

/* False: the timeline is longer than what is read at a time. */
static bool read_timeline(drafter *drafter, const draft_timeline *timeline) {
    uint64_t missing = timeline->position - drafter->position;
    if (missing > timeline->count) /* dropped by a ring before they were read */
        missing = timeline->count;
    uint64_t kept = index_tokens(&drafter->shared->options);
    if (missing > kept) /* the index would forget them */
        missing = kept;
    uint64_t now = missing < FEED_MAX ? missing : FEED_MAX;
    const int32_t *tokens = timeline->tokens + timeline->count - missing;
    uint64_t first = timeline->position - missing;
    for (uint64_t i = 0; i < now; i++) {
        passage_follow(&drafter->passage, timeline, first + i, tokens[i]);
        read_token(drafter, tokens[i]);
    }
    drafter->position = timeline->position - (missing - now);
    return now == missing;
}

/* ---- Proposing ---- */

/* Keeps a proposal for the comparison unless an earlier one is still being compared. */
static void keep_shadow(drafter *drafter, const draft *draft) {
    bool resumed = draft->vote == RECORD_RESUMED;
    shadow *shadow = &drafter->shadows[resumed ? (uint32_t)DRAFT_KINDS : draft->kind];
    if (shadow->draft.count > 0 || draft->count == 0)
        return;
    shadow->draft = *draft;
    shadow->checked = 0;
}

/* A candidate: `best` becomes the better one. */
static void offer(drafter *drafter, draft *candidate, uint32_t most, draft *best) {
    candidate->count = candidate->count < most ? candidate->count : most;
    record_rate(&drafter->own, &drafter->shared_record->record, candidate);
    keep_shadow(drafter, candidate);
    if (candidate->count > 0 && (best->count == 0 || draft_worth(candidate) > draft_worth(best)))
        *best = *candidate;
}

static void take_match(draft *candidate, draft_kind kind, suffix_match match) {
    candidate->kind = kind;
    candidate->match = match.length;
    candidate->vote = match.vote;
    candidate->count = match.count;
}

/* Where the suffix is short because the copy has just differed from its source. */
static void offer_passage(drafter *drafter, const draft_timeline *timeline, uint32_t length,
                          uint32_t most, draft *best) {
    draft candidate = {.kind = DRAFT_SUFFIX, .vote = RECORD_RESUMED};
    if (length >= PASSAGE_RUN_LEAST)
        return;
    candidate.count =
        passage_propose(&drafter->passage, timeline, most, candidate.tokens, &candidate.match);
    offer(drafter, &candidate, most, best);
}

static void offer_lookups(drafter *drafter, const draft_timeline *timeline, uint32_t most,
                          draft *best) {
    draft candidate = {.always = false};
    if (has(drafter->kinds, DRAFT_SUFFIX)) {
        suffix_match match = suffix_index_propose(drafter->suffix, most, candidate.tokens);
        take_match(&candidate, DRAFT_SUFFIX, match);
        offer(drafter, &candidate, most, best);
        passage_found(&drafter->passage, timeline->position - match.back, match.length);
        offer_passage(drafter, timeline, match.length, most, best);
    }
    if (has(drafter->kinds, DRAFT_NGRAM)) {
        take_match(&candidate, DRAFT_NGRAM,
                   ngram_index_propose(drafter->ngram, most, candidate.tokens));
        offer(drafter, &candidate, most, best);
    }
    if (has(drafter->kinds, DRAFT_CORPUS) && drafter->shared->corpus != NULL) {
        take_match(&candidate, DRAFT_CORPUS,
                   corpus_propose(drafter->shared->corpus, drafter->key, timeline->tokens,
                                  timeline->count, most, candidate.tokens));
        offer(drafter, &candidate, most, best);
    }
}

/* A source that was put there on purpose comes before all others. */
static bool ask_custom(const drafter *drafter, const draft_timeline *timeline, uint32_t most,
                       draft *out) {
    const draft_source *source = drafter->shared->custom;
    if (source == NULL || !has(drafter->kinds, DRAFT_CUSTOM))
        return false;
    most = most < source->drafts_max ? most : source->drafts_max;
    *out = (draft){.kind = DRAFT_CUSTOM, .always = true};
    if (most > 0)
        out->count =
            source->propose(source->context, timeline->tokens, timeline->count, most, out->tokens);
    for (uint32_t i = 0; i < out->count; i++)
        out->survival[i] = 1.0f;
    return out->count > 0;
}

void drafter_look(drafter *drafter, const draft_timeline *timeline, uint32_t most) {
    draft *found = &drafter->found;
    drafter->looked = true;
    drafter->readable = true;
    if (ask_custom(drafter, timeline, most, found))
        return;
    *found = (draft){.count = 0};
    most = most < drafter->controller.most ? most : drafter->controller.most;
    drafter->readable = read_timeline(drafter, timeline);
    if (drafter->readable && most > 0)
        offer_lookups(drafter, timeline, most, found);
}

void drafter_propose(drafter *drafter, const draft_timeline *timeline, const draft *given,
                     uint32_t most, draft *out) {
    if (!drafter->looked)
        drafter_look(drafter, timeline, most);
    drafter->looked = false;
    *out = drafter->found;
    if (!drafter->readable || out->always || most == 0)
        return;
    most = most < drafter->controller.most ? most : drafter->controller.most;
    if (given != NULL && given->count > 0) {
        draft candidate = *given;
        offer(drafter, &candidate, most, out);
    }
    drafter->proposed = out->kind;
    if (out->count == 0 || !controller_decides(&drafter->controller))
        return;
    uint32_t limit = controller_limit(&drafter->controller);
    out->count = out->count < limit ? out->count : limit;
    out->always = true;
}

void drafter_verified(drafter *drafter, uint32_t drafted, uint32_t accepted) {
    float looked_up = draft_kind_computes(drafter->proposed) ? 0.0f : (float)accepted;
    drafter->lookup_gain = LOOKUP_FADE * drafter->lookup_gain + (1 - LOOKUP_FADE) * looked_up;
    controller_verified(&drafter->controller, drafted, accepted);
}

void drafter_learn(drafter *drafter, const int32_t *tokens, uint32_t count) {
    if (has(drafter->kinds, DRAFT_CORPUS) && drafter->shared->corpus != NULL)
        corpus_add(drafter->shared->corpus, drafter->key, tokens, count);
}
