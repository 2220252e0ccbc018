/* The sampler: checks options once, keeps what penalties look at, and draws. See sample.h for the
 * order of things. A draw is four passes over the vocabulary at most and allocates nothing. */
#include "sample/sample.h"

#include "base/arena.h"
#include "base/mathf.h"
#include "base/random.h"
#include "sample/sample_int.h"

#include <float.h>

/* The generator's stream for token draws; other users of a request's seed take other streams. */
#define STREAM_TOKENS 0

struct sampler {
    const avo_allocator *allocator;
    arena arena;
    avo_sampling options; /* `bias` points into the arena */
    uint32_t vocabulary;
    bool penalises;
    const logit_loops *loops;
    candidate_set set;
    /* Only where a penalty is on: */
    uint32_t *output_counts; /* [vocabulary] */
    uint8_t *seen;           /* [vocabulary] 1: in `seen_ids` already */
    int32_t *seen_ids;       /* each token of prompt and output once, in order of appearance */
    uint32_t seen_count;
    avo_logprob top[AVO_TOP_LOGPROBS_MAX];
    bool constrained;
    const uint64_t *allowed; /* of the next draw; NULL: all */
};

struct sampler_room {
    const avo_allocator *allocator;
    arena arena;
    uint32_t vocabulary;
    candidate_set set;
};

/* ---- Opening ---- */

/* The borders are rounded as the value was. */
static avo_status check_range(const char *name, float value, double minimum, double maximum,
                              avo_error *error) {
    if (value >= (float)minimum && value <= (float)maximum)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s is %g, must be %g to %g", name, (double)value,
                       minimum, maximum);
}

static avo_status check_options(const avo_sampling *options, uint32_t vocabulary,
                                avo_error *error) {
    const struct {
        const char *name;
        float value;
        double minimum, maximum;
    } numbers[] = {{"temperature", options->temperature, SAMPLING_TEMPERATURE},
                   {"top_p", options->top_p, SAMPLING_PROBABILITY},
                   {"min_p", options->min_p, SAMPLING_PROBABILITY},
                   {"typical_p", options->typical_p, SAMPLING_TYPICAL},
                   {"repetition_penalty", options->repetition_penalty, SAMPLING_REPETITION},
                   {"presence_penalty", options->presence_penalty, SAMPLING_PENALTY},
                   {"frequency_penalty", options->frequency_penalty, SAMPLING_PENALTY}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        AVO_TRY(check_range(numbers[i].name, numbers[i].value, numbers[i].minimum,
                            numbers[i].maximum, error));
    if (options->top_logprobs > AVO_TOP_LOGPROBS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "top_logprobs is %u, must be at most %d",
                           options->top_logprobs, AVO_TOP_LOGPROBS_MAX);
    if (options->bias == NULL && options->bias_count > 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "bias_count is %zu, but bias is NULL",
                           options->bias_count);
    for (size_t i = 0; i < options->bias_count; i++) {
        const avo_logit_bias *bias = &options->bias[i];
        if (bias->token < 0 || (uint32_t)bias->token >= vocabulary)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "logit bias for token %d: tokens must be 0 to %u", bias->token,
                               vocabulary - 1);
        if (isnan(bias->bias) || bias->bias > FLT_MAX)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "logit bias of token %d is %g, must be finite or -inf", bias->token,
                               (double)bias->bias);
    }
    return AVO_OK;
}

static avo_status take_set(arena *arena, size_t vocabulary, candidate_set *set, avo_error *error) {
    set->ids = arena_take_array(arena, vocabulary, sizeof(*set->ids));
    set->scores = arena_take_array(arena, vocabulary, sizeof(*set->scores));
    set->weights = arena_take_array(arena, vocabulary, sizeof(*set->weights));
    set->keys = arena_take_array(arena, vocabulary, sizeof(*set->keys));
    if (set->ids != NULL && set->scores != NULL && set->weights != NULL && set->keys != NULL)
        return AVO_OK;
    return status_no_memory(error, "the sampler", vocabulary * 4 * sizeof(float));
}

static avo_status allocate(sampler *sampler, avo_error *error) {
    size_t vocabulary = sampler->vocabulary;
    bool complete = true;
    if (sampler->penalises) {
        sampler->output_counts = arena_take_array(&sampler->arena, vocabulary, sizeof(uint32_t));
        sampler->seen = arena_take_array(&sampler->arena, vocabulary, sizeof(uint8_t));
        sampler->seen_ids = arena_take_array(&sampler->arena, vocabulary, sizeof(int32_t));
        complete =
            sampler->output_counts != NULL && sampler->seen != NULL && sampler->seen_ids != NULL;
    }
    size_t bias_count = sampler->options.bias_count;
    if (bias_count > 0) {
        avo_logit_bias *copy = arena_take_array(&sampler->arena, bias_count, sizeof(*copy));
        complete = complete && copy != NULL;
        if (copy != NULL)
            memcpy(copy, sampler->options.bias, bias_count * sizeof(*copy));
        sampler->options.bias = copy;
    }
    if (!complete)
        return status_no_memory(error, "the sampler", vocabulary * 4 * sizeof(float));
    return AVO_OK;
}

/* An older caller's struct is shorter; what it does not know stays off. */
static avo_status take_options(const avo_sampling *options, uint32_t vocabulary,
                               avo_sampling *known, avo_error *error) {
    *known = (avo_sampling)AVO_SAMPLING_INIT;
    if (vocabulary == 0 || vocabulary > INT32_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the vocabulary has %u tokens, must have 1 to 2147483647", vocabulary);
    if (options->size < sizeof(options->size) + sizeof(options->temperature))
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "size of the sampling options is %zu; initialise them with AVO_SAMPLING_INIT",
            options->size);
    memcpy(known, options, options->size < sizeof(*known) ? options->size : sizeof(*known));
    return check_options(known, vocabulary, error);
}

avo_status sampler_check(const avo_sampling *options, uint32_t vocabulary, avo_error *error) {
    avo_sampling known;
    return take_options(options, vocabulary, &known, error);
}

/* `set`: somebody else's working memory; NULL: its own. */
static avo_status open_with(const candidate_set *set, const avo_sampling *options,
                            uint32_t vocabulary, const avo_allocator *allocator, sampler **out,
                            avo_error *error) {
    *out = NULL;
    avo_sampling known;
    AVO_TRY(take_options(options, vocabulary, &known, error));
    sampler *sampler = allocator_take_array(allocator, 1, sizeof(*sampler));
    if (sampler == NULL)
        return status_no_memory(error, "the sampler", sizeof(*sampler));
    sampler->allocator = allocator;
    sampler->options = known;
    sampler->vocabulary = vocabulary;
    sampler->loops = set != NULL ? set->loops : logit_loops_best();
    sampler->penalises = known.repetition_penalty != 1.0f || known.presence_penalty != 0.0f ||
                         known.frequency_penalty != 0.0f;
    arena_init(&sampler->arena, allocator, SIZE_MAX);
    avo_status status = AVO_OK;
    if (set != NULL)
        sampler->set = *set;
    else
        status = take_set(&sampler->arena, vocabulary, &sampler->set, error);
    sampler->set.loops = sampler->loops;
    AVO_THEN(status, allocate(sampler, error));
    if (status != AVO_OK) {
        sampler_close(sampler);
        return status;
    }
    *out = sampler;
    return AVO_OK;
}

avo_status sampler_open(const avo_sampling *options, uint32_t vocabulary,
                        const avo_allocator *allocator, sampler **out, avo_error *error) {
    return open_with(NULL, options, vocabulary, allocator, out, error);
}

avo_status sampler_open_in(sampler_room *room, const avo_sampling *options,
                           const avo_allocator *allocator, sampler **out, avo_error *error) {
    return open_with(&room->set, options, room->vocabulary, allocator, out, error);
}

avo_status sampler_room_open(uint32_t vocabulary, const avo_allocator *allocator,
                             sampler_room **out, avo_error *error) {
    *out = NULL;
    sampler_room *room = allocator_take_array(allocator, 1, sizeof(*room));
    if (room == NULL)
        return status_no_memory(error, "the sampler", sizeof(*room));
    room->allocator = allocator;
    room->vocabulary = vocabulary;
    arena_init(&room->arena, allocator, SIZE_MAX);
    avo_status status = take_set(&room->arena, vocabulary, &room->set, error);
    room->set.loops = logit_loops_best();
    if (status != AVO_OK) {
        sampler_room_close(room);
        return status;
    }
    *out = room;
    return AVO_OK;
}

void sampler_room_close(sampler_room *room) {
    if (room == NULL)
        return;
    arena_free(&room->arena);
    allocator_give(room->allocator, room, sizeof(*room));
}

void sampler_close(sampler *sampler) {
    if (sampler == NULL)
        return;
    arena_free(&sampler->arena);
    allocator_give(sampler->allocator, sampler, sizeof(*sampler));
}

/* ---- What penalties look at ---- */

static bool note_seen(sampler *sampler, int32_t token) {
    if (!sampler->penalises || token < 0 || (uint32_t)token >= sampler->vocabulary)
        return false;
    if (sampler->seen[token] == 0) {
        sampler->seen[token] = 1;
        sampler->seen_ids[sampler->seen_count++] = token;
    }
    return true;
}

void sampler_see_prompt(sampler *sampler, const int32_t *tokens, size_t count) {
    for (size_t i = 0; i < count; i++)
        (void)note_seen(sampler, tokens[i]);
}

void sampler_see_output(sampler *sampler, int32_t token) {
    if (note_seen(sampler, token) && sampler->output_counts[token] < UINT32_MAX)
        sampler->output_counts[token]++;
}

void sampler_see_nothing(sampler *sampler) {
    for (uint32_t i = 0; i < sampler->seen_count; i++) {
        int32_t token = sampler->seen_ids[i];
        sampler->seen[token] = 0;
        sampler->output_counts[token] = 0;
    }
    sampler->seen_count = 0;
}

/* ---- Drawing ---- */

static avo_status check_logits(const sampler *sampler, const float *logits, float *highest,
                               float *lowest, avo_error *error) {
    const uint32_t vocabulary = sampler->vocabulary;
    if (!sampler->loops->range(logits, vocabulary, highest, lowest))
        for (uint32_t i = 0; i < vocabulary; i++)
            if (!(logits[i] <= FLT_MAX))
                return status_fail(
                    error, AVO_ERROR_ARGUMENT,
                    "the logit of token %u is %g; the weights or the computation are broken", i,
                    (double)logits[i]);
    if (*highest == -INFINITY)
        return status_fail(error, AVO_ERROR_ARGUMENT, "all %u logits are -inf", vocabulary);
    return AVO_OK;
}

double sample_log_sum(const float *logits, uint32_t vocabulary, float highest) {
    return sample_log(logit_loops_plain.sum(logits, vocabulary, highest));
}

/* The highest logits, highest first, of equals the lower id first: insertion into a short list. */
static uint32_t find_top(const float *logits, uint32_t vocabulary, uint32_t wanted,
                         avo_logprob *top) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < vocabulary && wanted > 0; i++) {
        if (count == wanted && logits[i] <= top[count - 1].logprob)
            continue;
        uint32_t at = count < wanted ? count++ : count - 1;
        for (; at > 0 && top[at - 1].logprob < logits[i]; at--)
            top[at] = top[at - 1];
        top[at] = (avo_logprob){(int32_t)i, logits[i]};
    }
    return count;
}

static float bounded(float score) {
    return score > FLT_MAX ? FLT_MAX : score;
}

static void apply_bias(const avo_sampling *options, float *scores) {
    for (size_t i = 0; i < options->bias_count; i++) {
        float *score = &scores[options->bias[i].token];
        *score = bounded(*score + options->bias[i].bias);
    }
}

static void apply_penalties(const sampler *sampler, float *scores) {
    const avo_sampling *options = &sampler->options;
    for (uint32_t i = 0; i < sampler->seen_count; i++) {
        int32_t token = sampler->seen_ids[i];
        float score = scores[token];
        score = score < 0.0f ? score * options->repetition_penalty
                             : bounded(score / options->repetition_penalty);
        uint32_t count = sampler->output_counts[token];
        if (count > 0)
            score -= options->presence_penalty + (float)count * options->frequency_penalty;
        scores[token] = bounded(score);
    }
}

/* The first token with this score. */
static int32_t token_with(const float *scores, uint32_t vocabulary, float score) {
    uint32_t token = 0;
    while (token + 1 < vocabulary && scores[token] != score)
        token++;
    return (int32_t)token;
}

/* What top-k left, narrowed by the other filters, and one of it. */
static int32_t draw_kept(sampler *sampler, float highest, uint64_t position) {
    const avo_sampling *options = &sampler->options;
    candidate_set *set = &sampler->set;
    candidates_weigh(set, highest, options->temperature);
    candidates_top_p(set, options->top_p);
    candidates_min_p(set, options->min_p);
    candidates_typical(set, options->typical_p, highest, options->temperature);
    return set
        ->ids[candidates_pick(set, random_uniform_at(options->seed, STREAM_TOKENS, position))];
}

/* No filter takes a token away. */
static bool keeps_all(const avo_sampling *options, uint32_t vocabulary) {
    return (options->top_k == 0 || options->top_k >= vocabulary) && options->top_p >= 1.0f &&
           options->min_p <= 0.0f && options->typical_p >= 1.0f;
}

/* One of all tokens: as draw_filtered does it, without a list of them. */
static int32_t draw_whole(sampler *sampler, const float *logits, float highest, uint64_t position) {
    const avo_sampling *options = &sampler->options;
    candidate_set *set = &sampler->set;
    set->count = sampler->vocabulary;
    set->loops->weigh(logits, set->count, highest, options->temperature, set->weights);
    return (int32_t)candidates_pick(set, random_uniform_at(options->seed, STREAM_TOKENS, position));
}

/* Leaves out those that cannot be drawn; `all`: there are none. */
static int32_t draw_filtered(sampler *sampler, float highest, bool all, uint64_t position) {
    candidate_set *set = &sampler->set;
    set->count = all ? sampler->vocabulary : 0;
    for (uint32_t i = 0; all && i < sampler->vocabulary; i++)
        set->ids[i] = (int32_t)i;
    for (uint32_t i = 0; !all && i < sampler->vocabulary; i++)
        if (set->scores[i] > -INFINITY) {
            set->scores[set->count] = set->scores[i];
            set->ids[set->count++] = (int32_t)i;
        }
    candidates_top_k(set, sampler->options.top_k);
    return draw_kept(sampler, highest, position);
}

/* ---- Allowed tokens alone ---- */

void sampler_constrain(sampler *sampler) {
    sampler->constrained = true;
}

bool sampler_constrained(const sampler *sampler) {
    return sampler->constrained;
}

void sampler_allow(sampler *sampler, const uint64_t *allowed) {
    sampler->allowed = allowed;
}

static bool is_allowed(const sampler *sampler, int32_t token) {
    return sampler->allowed == NULL ||
           (sampler->allowed[(uint32_t)token / 64] >> ((uint32_t)token % 64) & 1) != 0;
}

static void forbid_others(const sampler *sampler, float *scores) {
    for (uint32_t w = 0; w * 64 < sampler->vocabulary; w++) {
        uint64_t forbidden = ~sampler->allowed[w];
        if (forbidden == 0)
            continue;
        uint32_t end = w * 64 + 64 < sampler->vocabulary ? w * 64 + 64 : sampler->vocabulary;
        for (uint32_t i = w * 64; i < end; i++, forbidden >>= 1)
            scores[i] = forbidden & 1 ? -INFINITY : scores[i];
    }
}

/* ---- Drawing from the highest alone ---- */

uint32_t sampler_top(const sampler *sampler) {
    const avo_sampling *options = &sampler->options;
    if (sampler->penalises || options->bias_count > 0)
        return 0;
    bool greedy = !(options->temperature > 0.0f);
    /* One more than top-k keeps: it shows whether others are equal to the last. */
    uint32_t wanted = greedy ? 1 : options->top_k + 1;
    if ((!greedy && options->top_k == 0) || options->top_k >= LOGIT_TOP_MAX)
        return 0;
    if (sampler->constrained && !greedy)
        wanted = LOGIT_TOP_MAX; /* some of the highest are not allowed */
    return wanted > options->top_logprobs ? wanted : options->top_logprobs;
}

/* The allowed ones of the highest; false where others that are not here may count. */
static bool filter_top(const sampler *sampler, const logit_top *top, logit_top *allowed) {
    bool greedy = !(sampler->options.temperature > 0.0f);
    uint32_t wanted = greedy ? 1 : sampler->options.top_k + 1;
    uint32_t own = sampler_top(sampler); /* others in the batch may have asked for more */
    allowed->count = 0;
    for (uint32_t i = 0; i < top->count && i < own; i++)
        if (is_allowed(sampler, top->token[i])) {
            allowed->logit[allowed->count] = top->logit[i];
            allowed->token[allowed->count++] = top->token[i];
        }
    return allowed->count >= wanted;
}

/* The tokens that top-k keeps, in order of ids; false when it may keep some that are not here. */
static bool keep_top(sampler *sampler, const logit_top *top) {
    candidate_set *set = &sampler->set;
    uint32_t k = sampler->options.top_k;
    uint32_t kept = top->count < k ? top->count : k;
    while (kept < top->count && top->logit[kept] == top->logit[k - 1])
        kept++;
    if (kept == top->count && top->count > k)
        return false;
    set->count = 0;
    for (uint32_t i = 0; i < kept; i++) {
        if (!(top->logit[i] > -INFINITY))
            continue;
        size_t at = set->count++;
        for (; at > 0 && set->ids[at - 1] > top->token[i]; at--) {
            set->ids[at] = set->ids[at - 1];
            set->scores[at] = set->scores[at - 1];
        }
        set->ids[at] = top->token[i];
        set->scores[at] = top->logit[i];
    }
    return true;
}

/* Some logits are broken: looking at all of them says which. */
static bool is_broken(const logit_top *top) {
    return !(top->log_sum <= DBL_MAX) || top->count == 0 || !(top->logit[0] > -INFINITY);
}

/* A token of the highest. */
static void choose_top(sampler *sampler, const logit_top *top, int32_t token,
                       sample_choice *choice) {
    float highest = top->logit[0];
    uint32_t listed = sampler->options.top_logprobs;
    choice->logprob = 0.0f;
    choice->top_count = listed < top->count ? listed : top->count;
    for (uint32_t i = 0; i < top->count; i++) {
        float logprob = (float)((double)top->logit[i] - (double)highest - top->log_sum);
        if (i < choice->top_count)
            sampler->top[i] = (avo_logprob){top->token[i], logprob};
        if (top->token[i] == token)
            choice->logprob = logprob;
    }
    choice->token = token;
    choice->top = sampler->top;
}

void sampler_draw_top(sampler *sampler, const logit_top *top, uint64_t position,
                      sample_choice *choice, bool *undecided) {
    *undecided = is_broken(top);
    if (*undecided)
        return;
    logit_top filtered;
    const logit_top *from = top;
    if (sampler->allowed != NULL) {
        *undecided = !filter_top(sampler, top, &filtered);
        if (*undecided)
            return;
        from = &filtered;
    }
    int32_t token = from->token[0];
    if (sampler->options.temperature > 0.0f) {
        *undecided = !keep_top(sampler, from);
        if (*undecided)
            return;
        token = draw_kept(sampler, from->logit[0], position);
    }
    choose_top(sampler, top, token, choice);
}

uint32_t sampler_likely_top(const sampler *sampler) {
    const avo_sampling *options = &sampler->options;
    bool narrows = options->top_p < 1.0f || options->min_p > 0.0f;
    bool plain = !sampler->penalises && options->bias_count == 0 && options->typical_p >= 1.0f;
    return plain && narrows && options->temperature > 0.0f && options->top_k == 0 ? LOGIT_TOP_MAX
                                                                                  : 0;
}

void sampler_try_top(sampler *sampler, const logit_top *top, uint64_t position,
                     sample_choice *choice, bool *undecided) {
    const avo_sampling *options = &sampler->options;
    candidate_set *set = &sampler->set;
    *undecided = sampler->allowed != NULL || is_broken(top) ||
                 !candidates_narrow(set, top, sampler->vocabulary, options->temperature,
                                    options->top_p, options->min_p);
    if (*undecided)
        return;
    size_t place = candidates_pick(set, random_uniform_at(options->seed, STREAM_TOKENS, position));
    choose_top(sampler, top, set->ids[place], choice);
}

uint32_t sampler_list_allowed(sampler *sampler, const int32_t **tokens, float **logits) {
    candidate_set *set = &sampler->set;
    set->count = 0;
    for (uint32_t w = 0; sampler->allowed != NULL && w * 64 < sampler->vocabulary; w++)
        for (uint64_t bits = sampler->allowed[w]; bits != 0; bits &= bits - 1) {
            uint32_t token = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (token < sampler->vocabulary)
                set->ids[set->count++] = (int32_t)token;
        }
    *tokens = set->ids;
    *logits = set->scores;
    return (uint32_t)set->count;
}

/* Leaves out those that cannot be drawn. The place of the highest, the first of several; SIZE_MAX:
 * none is left. */
static size_t keep_possible(candidate_set *set) {
    size_t kept = 0, highest = SIZE_MAX;
    for (size_t i = 0; i < set->count; i++) {
        if (!(set->scores[i] > -INFINITY))
            continue;
        set->ids[kept] = set->ids[i];
        set->scores[kept] = set->scores[i];
        if (highest == SIZE_MAX || set->scores[kept] > set->scores[highest])
            highest = kept;
        kept++;
    }
    set->count = kept;
    return highest;
}

bool sampler_draw_allowed(sampler *sampler, const logit_top *top, uint64_t position,
                          sample_choice *choice) {
    candidate_set *set = &sampler->set;
    if (sampler->allowed == NULL || !(top->log_sum <= DBL_MAX) || top->count == 0)
        return false;
    size_t best = keep_possible(set);
    if (best == SIZE_MAX)
        return false;
    int32_t token = set->ids[best];
    float logit = set->scores[best];
    if (sampler->options.temperature > 0.0f) {
        candidates_top_k(set, sampler->options.top_k);
        token = draw_kept(sampler, logit, position);
        for (size_t i = 0; i < set->count; i++)
            logit = set->ids[i] == token ? set->scores[i] : logit;
    }
    double highest = (double)top->logit[0];
    uint32_t listed = sampler->options.top_logprobs;
    choice->token = token;
    choice->logprob = (float)((double)logit - highest - top->log_sum);
    choice->top_count = listed < top->count ? listed : top->count;
    choice->top = sampler->top;
    for (uint32_t i = 0; i < choice->top_count; i++)
        sampler->top[i] =
            (avo_logprob){top->token[i], (float)((double)top->logit[i] - highest - top->log_sum)};
    return true;
}

/* Bias, penalties and the grammar's mask on a copy of the logits; its highest score. */
static avo_status change_scores(sampler *sampler, const float *logits, float *highest,
                                avo_error *error) {
    float *scores = sampler->set.scores, lowest;
    memcpy(scores, logits, sampler->vocabulary * sizeof(*scores));
    apply_bias(&sampler->options, scores);
    if (sampler->penalises)
        apply_penalties(sampler, scores);
    if (sampler->allowed != NULL)
        forbid_others(sampler, scores);
    (void)sampler->loops->range(scores, sampler->vocabulary, highest, &lowest);
    if (*highest > -INFINITY)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s",
                       sampler->allowed != NULL
                           ? "logit bias and penalties forbid every token that the grammar allows"
                           : "logit bias and penalties forbid every token; allow at least one");
}

/* `highest` and `lowest` of the logits. */
static avo_status choose(sampler *sampler, const float *logits, float highest, float lowest,
                         uint64_t position, int32_t *token, avo_error *error) {
    const avo_sampling *options = &sampler->options;
    const uint32_t vocabulary = sampler->vocabulary;
    bool changed = sampler->penalises || options->bias_count > 0 || sampler->allowed != NULL;
    bool greedy = !(options->temperature > 0.0f), all = !changed && lowest > -INFINITY;
    if (changed)
        AVO_TRY(change_scores(sampler, logits, &highest, error));
    if (greedy) {
        *token = token_with(changed ? sampler->set.scores : logits, vocabulary, highest);
        return AVO_OK;
    }
    if (all && keeps_all(options, vocabulary)) {
        *token = draw_whole(sampler, logits, highest, position);
        return AVO_OK;
    }
    if (!changed)
        memcpy(sampler->set.scores, logits, vocabulary * sizeof(*logits));
    *token = draw_filtered(sampler, highest, all, position);
    return AVO_OK;
}

avo_status sampler_draw(sampler *sampler, const float *logits, uint64_t position,
                        sample_choice *choice, avo_error *error) {
    return sampler_draw_found(sampler, logits, NULL, position, choice, error);
}

avo_status sampler_draw_found(sampler *sampler, const float *logits, const logit_top *found,
                              uint64_t position, sample_choice *choice, avo_error *error) {
    const uint32_t vocabulary = sampler->vocabulary;
    float highest_logit = 0.0f, lowest = 0.0f;
    AVO_TRY(check_logits(sampler, logits, &highest_logit, &lowest, error));

    int32_t token;
    AVO_TRY(choose(sampler, logits, highest_logit, lowest, position, &token, error));
    double log_total = found != NULL
                           ? found->log_sum
                           : sample_log(sampler->loops->sum(logits, vocabulary, highest_logit));
    uint32_t top_count = find_top(logits, vocabulary, sampler->options.top_logprobs, sampler->top);
    for (uint32_t i = 0; i < top_count; i++)
        sampler->top[i].logprob =
            (float)((double)sampler->top[i].logprob - (double)highest_logit - log_total);
    choice->token = token;
    choice->logprob = (float)((double)logits[token] - (double)highest_logit - log_total);
    choice->top = sampler->top;
    choice->top_count = top_count;
    return AVO_OK;
}
