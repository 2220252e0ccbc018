/* Lossy acceptance of drafts, for the laboratory alone. By default a draft is accepted where the
 * sequence samples that very token, so drafts never change an answer. These policies accept more
 * and thereby change it. Nothing in the public interface, the server or a request can select one:
 * only a program that includes this header, and only on an engine of its own. */
#ifndef AVO_ENGINE_DRAFT_POLICY_H
#define AVO_ENGINE_DRAFT_POLICY_H

#include "base/cursor.h"
#include "engine/engine.h"

/* X(name, text, help). Probabilities are the model's at the request's temperature (1 where it is
 * greedy), before penalties and filters. */
#define DRAFT_POLICY_TABLE(X)                                                                      \
    X(EXACT, "exact", "the sampled token; lossless")                                               \
    X(THRESHOLD, "threshold", "drafts at least this likely; lossy")                                \
    X(TOP_K, "top-k", "drafts among so many likeliest tokens; lossy")                              \
    X(TYPICAL, "typical",                                                                          \
      "drafts likelier than min(e, sqrt(e) exp(-entropy)), as Medusa does; lossy")

typedef enum draft_policy_kind {
#define DRAFT_POLICY_ENUM(name, text, help) POLICY_##name,
    DRAFT_POLICY_TABLE(DRAFT_POLICY_ENUM)
#undef DRAFT_POLICY_ENUM
        POLICIES
} draft_policy_kind;

typedef struct draft_policy {
    draft_policy_kind kind;
    double value; /* a probability, or for top-k a number of tokens */
} draft_policy;

const char *draft_policy_name(draft_policy_kind kind);
/* "exact", "threshold:0.3", "top-k:4", "typical:0.3". */
AVO_MUST_USE avo_status draft_policy_parse(text_view text, draft_policy *policy, avo_error *error);
static inline bool draft_policy_lossy(const draft_policy *policy) {
    return policy->kind != POLICY_EXACT;
}

/* Whether a lossy policy accepts `token`; false for exact. *logprob is the token's. */
bool draft_policy_allows(const draft_policy *policy, const float *logits, uint32_t vocabulary,
                         double temperature, int32_t token, float *logprob);

/* Of avo_generate, from its next call on. NULL: exact. It outlives its use. */
void engine_draft_policy(avo_engine *engine, const draft_policy *policy);

#endif
