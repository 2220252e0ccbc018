/* Options, keys and drafts of sequences. */
#include "engine/drafting.h"

#include "engine/engine_int.h"

#include <stddef.h>
#include <string.h>

_Static_assert(DRAFTS_MAX <= TELEMETRY_DRAFTS_MAX, "every position has its counter");

#define CORPUS_TOKENS 65536 /* of earlier answers, of all tenants together */
#define CORPUS_KEYS   256

static avo_status check_tokens(uint32_t draft_tokens, avo_error *error) {
    if (draft_tokens <= DRAFTS_MAX)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "draft_tokens is %u, must be at most %d",
                       draft_tokens, DRAFTS_MAX);
}

/* Sources that a kind of heads is lacking for: left out of auto, refused by name. */
static avo_status plan_heads(const avo_engine_options *options, speculation_options *plan,
                             avo_error *error) {
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++) {
        draft_kinds bit = DRAFT_BIT(draft_heads_kind((heads_kind)kind));
        bool there = false;
        for (size_t i = 0; i < options->draft_heads_count; i++)
            there = there || options->draft_heads[i]->config.kind == (heads_kind)kind;
        if (there || (plan->kinds & bit) == 0)
            continue;
        plan->kinds &= ~bit;
        if (!plan->automatic)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "speculate names the source %s, but there are no such draft heads; "
                               "give a file (--draft-heads)",
                               heads_kind_name((heads_kind)kind));
    }
    return AVO_OK;
}

avo_status drafting_plan(const avo_engine_options *options, speculation_options *plan,
                         avo_error *error) {
    *plan = (speculation_options){.corpus = {.tokens_max = CORPUS_TOKENS, .keys_max = CORPUS_KEYS}};
    AVO_TRY(draft_kinds_parse(options->speculate, &plan->kinds, error));
    plan->automatic = plan->kinds == DRAFTS_AUTO;
    AVO_TRY(plan_heads(options, plan, error));
    bool has_model = (plan->kinds & DRAFT_BIT(DRAFT_MODEL)) != 0;
    if (options->draft_model == NULL && plan->automatic)
        plan->kinds &= ~DRAFT_BIT(DRAFT_MODEL);
    else if (options->draft_model == NULL && has_model)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "speculate names the source model, but there is no draft model; give one "
            "(--draft-model)");
    else if (options->draft_model != NULL && plan->kinds != DRAFTS_OFF && !has_model)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "there is a draft model, but speculate is \"%.60s\"; add the source "
                           "model",
                           options->speculate);
    AVO_TRY(draft_controller_parse(options->draft_controller, &plan->controller, error));
    AVO_TRY(check_tokens(options->draft_tokens, error));
    plan->draft_tokens = options->draft_tokens == 0 ? DRAFTS_DEFAULT : options->draft_tokens;
    return AVO_OK;
}

avo_status drafting_check(const avo_request *request, avo_error *error) {
    draft_kinds kinds;
    AVO_TRY(draft_kinds_parse(request->speculate, &kinds, error));
    return check_tokens(request->draft_tokens, error);
}

/* Answers are shared as prefixes are, between equal adapters and salts, but never between tenants:
 * whoever sees how fast an answer comes could tell what others were answered. A session that no
 * scheduler opened has its salt in its root, which no later process knows. */
static corpus_key key_of(const corpus *corpus, const avo_request *request,
                         const avo_session *session) {
    struct {
        corpus_key tenant, salt;
        uint64_t given[2];
        prefix_root root;
        uint8_t adapters[SESSION_ADAPTERS_KEY_BYTES];
    } content = {0};
    if (corpus == NULL)
        return (corpus_key){{0, 0}};
    const char *const names[] = {request->tenant, request->cache_salt};
    corpus_key *const keys[] = {&content.tenant, &content.salt};
    for (uint32_t i = 0; i < 2; i++) {
        content.given[i] = names[i] != NULL;
        if (names[i] != NULL)
            *keys[i] = corpus_key_of(corpus, names[i], strlen(names[i]));
    }
    if (!session->engine->led)
        content.root = session->root;
    size_t bytes = session_adapters_key(session, content.adapters);
    return corpus_key_of(corpus, &content, offsetof(__typeof__(content), adapters) + bytes);
}

drafter *drafting_take(speculation *shared, const draft_sources *sources,
                       const avo_request *request, const avo_sampling *sampling,
                       avo_session *session) {
    drafter_options options = {.draft_tokens = request->draft_tokens};
    avo_error error;
    if (shared == NULL || draft_kinds_parse(request->speculate, &options.kinds, &error) != AVO_OK)
        return NULL;
    if (options.kinds == DRAFTS_AUTO) /* all that the engine has, n-grams too if it was told so */
        options.kinds = ~DRAFTS_OFF;
    options.temperature = sampling->temperature;
    options.key = key_of(speculation_corpus(shared), request, session);
    drafter *drafter = drafter_take(shared, &options);
    if (drafter != NULL && sources->heads != NULL)
        draft_heads_attach(sources->heads, drafter, session);
    return drafter;
}

/* Text that the grammar leaves no choice about needs no model. */
static void force(const sequence *sequence, const drafter *drafter, uint32_t most, draft *draft) {
    *draft = (struct draft){.kind = DRAFT_GRAMMAR};
    if (sequence->matcher != NULL && drafter_uses(drafter, DRAFT_GRAMMAR))
        draft->count = grammar_matcher_forced(sequence->matcher,
                                              most < DRAFTS_MAX ? most : DRAFTS_MAX, draft->tokens);
}

void drafting_give(const draft_sources *sources, drafter *drafter) {
    if (sources->model != NULL && drafter != NULL)
        draft_model_forget(sources->model, drafter);
    if (sources->heads != NULL && drafter != NULL)
        draft_heads_forget(sources->heads, drafter);
    drafter_give(drafter);
}

void drafting_propose(const draft_sources *sources, draft_request *requests, uint32_t count,
                      const draft_time *time) {
    for (uint32_t i = 0; i < count; i++) {
        draft_request *request = &requests[i];
        uint32_t limit = drafter_limit(request->drafter);
        request->most = request->most < limit ? request->most : limit;
        request->draft->count = 0;
        if (time->hopeless && !drafter_insists(request->drafter))
            request->most = 0;
        if (request->most == 0)
            continue; /* what the timeline has new is read later */
        drafter_look(request->drafter, &request->timeline, request->most);
        force(request->sequence, request->drafter, request->most, request->draft);
    }
    if (sources->model != NULL && count > 0)
        draft_model_propose(sources->model, requests, count, time);
    if (sources->heads != NULL && count > 0)
        draft_heads_propose(sources->heads, requests, count, time);
    for (uint32_t i = 0; i < count; i++) {
        if (requests[i].most == 0)
            continue;
        draft given = *requests[i].draft;
        drafter_propose(requests[i].drafter, &requests[i].timeline, &given, requests[i].most,
                        requests[i].draft);
    }
}

step_cost engine_cost_guess(const avo_engine *engine) {
    const avo_model *model = engine->model;
    double step = (double)model->weight_bytes / 20.0; /* ns at 20 GB/s */
    double row = (double)model->parameters / 200.0;   /* 400 GFLOP/s */
    double head = (double)model->view.vocabulary * (double)model->view.width;
    step_cost cost = {.context_token = 50.0,
                      .draft_token = 10.0,
                      .adapter = step * 0.02,
                      .scored_row = head / 200.0};
    /* Hopeful about few rows: too high a guess would never be tried, and never be put right. */
    const step_cost_point points[] = {{1, step},
                                      {4, step * 1.05},
                                      {8, step * 1.3},
                                      {16, step * 1.8},
                                      {512, step * 1.8 + row * 496}};
    step_cost_fit(&cost, points, sizeof(points) / sizeof(points[0]));
    return cost;
}
