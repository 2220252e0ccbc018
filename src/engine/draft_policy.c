/* Lossy policies: reading them, and what they accept. */
#include "engine/draft_policy.h"

#include "base/number.h"
#include "engine/engine_int.h"
#include "sample/sample.h"

#include <math.h>
#include <string.h>

#define TOP_K_MAX 1000.0

static const char *const names[POLICIES] = {
#define DRAFT_POLICY_NAME(name, text, help) text,
    DRAFT_POLICY_TABLE(DRAFT_POLICY_NAME)
#undef DRAFT_POLICY_NAME
};

const char *draft_policy_name(draft_policy_kind kind) {
    return names[kind];
}

void engine_draft_policy(avo_engine *engine, const draft_policy *policy) {
    engine->draft_policy = policy != NULL && draft_policy_lossy(policy) ? policy : NULL;
}

static avo_status refuse(text_view text, avo_error *error) {
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "policy \"%.*s\" must be exact, threshold:P, top-k:N or typical:P, with P "
                       "above 0 and at most 1 and N from 1 to %g",
                       text.size < 40 ? (int)text.size : 40, text.data, TOP_K_MAX);
}

static bool kind_of(text_view name, draft_policy_kind *kind) {
    for (uint32_t i = 0; i < POLICIES; i++)
        if (text_equal(name, text_from(names[i]))) {
            *kind = (draft_policy_kind)i;
            return true;
        }
    return false;
}

avo_status draft_policy_parse(text_view text, draft_policy *policy, avo_error *error) {
    char number[32];
    const char *colon = text.size > 0 ? memchr(text.data, ':', text.size) : NULL;
    text_view name = {text.data, colon == NULL ? text.size : (size_t)(colon - text.data)};
    *policy = (draft_policy){.kind = POLICY_EXACT};
    if (!kind_of(name, &policy->kind) || draft_policy_lossy(policy) != (colon != NULL))
        return refuse(text, error);
    if (colon == NULL)
        return AVO_OK;
    size_t digits = text.size - name.size - 1;
    if (digits == 0 || digits >= sizeof(number))
        return refuse(text, error);
    memcpy(number, colon + 1, digits);
    number[digits] = '\0';
    if (strspn(number, "0123456789.") != digits)
        return refuse(text, error);
    char *end;
    policy->value = number_from_text(number, &end);
    bool whole = policy->kind == POLICY_TOP_K;
    bool good = *end == '\0' && policy->value > 0 && policy->value <= (whole ? TOP_K_MAX : 1.0) &&
                (!whole || policy->value == floor(policy->value));
    return good ? AVO_OK : refuse(text, error);
}

/* ---- Accepting ---- */

static float highest_of(const float *logits, uint32_t vocabulary) {
    float highest = logits[0];
    for (uint32_t i = 1; i < vocabulary; i++)
        highest = logits[i] > highest ? logits[i] : highest;
    return highest;
}

/* The token is among the likeliest; of equals the lower ids come first, as in sampling. */
static bool among(const float *logits, uint32_t vocabulary, int32_t token, double most) {
    uint32_t before = 0, own = (uint32_t)token;
    for (uint32_t i = 0; i < vocabulary; i++)
        before += logits[i] > logits[own] || (logits[i] == logits[own] && i < own);
    return before < most;
}

/* Σ e^x and Σ x·e^x over x = (logit − highest) / temperature. */
typedef struct weight {
    double sum, moment;
} weight;

static weight weigh(const float *logits, uint32_t vocabulary, float highest, double temperature) {
    weight all = {0, 0};
    for (uint32_t i = 0; i < vocabulary; i++) {
        double x = ((double)logits[i] - (double)highest) / temperature;
        double e = exp(x);
        all.sum += e;
        all.moment += e > 0 ? x * e : 0; /* a forbidden token has x = −infinity */
    }
    return all;
}

bool draft_policy_allows(const draft_policy *policy, const float *logits, uint32_t vocabulary,
                         double temperature, int32_t token, float *logprob) {
    float highest = highest_of(logits, vocabulary);
    double above = (double)logits[token] - (double)highest;
    *logprob = (float)(above - sample_log_sum(logits, vocabulary, highest));
    if (policy->kind == POLICY_TOP_K)
        return among(logits, vocabulary, token, policy->value);
    if (policy->kind == POLICY_EXACT)
        return false;
    temperature = temperature > 0 ? temperature : 1.0;
    weight all = weigh(logits, vocabulary, highest, temperature);
    double probability = exp(above / temperature) / all.sum;
    if (policy->kind == POLICY_THRESHOLD)
        return probability >= policy->value;
    double entropy = log(all.sum) - all.moment / all.sum;
    return probability > fmin(policy->value, sqrt(policy->value) * exp(-entropy));
}
