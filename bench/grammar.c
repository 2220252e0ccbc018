/* What constrained output costs: opening a grammar, the mask of every step, and a whole answer with
 * and without. For the default model the masks should stay below 5 % of a decode step.
 *
 * Answers with and without follow each other, and which comes first alternates; the cost is the
 * median of their ratios, with half of them in brackets.
 *
 *   ninja bench_grammar && bench/bench_grammar MODEL [TOKENS [PAIRS]]
 */
#include "sample/grammar.h"
#include "base/clock.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 4096
#define PAIRS_MAX 101

typedef struct grammar_sample {
    const char *name;
    avo_grammar_kind kind;
    const char *text;
    const char *answer;
} grammar_sample;

static const char person[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
    "\"integer\",\"minimum\":0,\"maximum\":150},\"email\":{\"type\":\"string\",\"format\":"
    "\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40},"
    "\"maxItems\":8},\"address\":{\"type\":\"object\",\"properties\":{\"street\":{\"type\":"
    "\"string\"},\"city\":{\"type\":\"string\"},\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9]{"
    "5}"
    "$\"}},\"required\":[\"street\",\"city\"],\"additionalProperties\":false},\"kind\":{\"enum\":["
    "\"admin\",\"user\",\"guest\"]}},\"required\":[\"name\",\"age\",\"address\",\"kind\"],"
    "\"additionalProperties\":false}";
static const char person_answer[] =
    "{\"name\": \"Ada Lovelace\", \"age\": 36, \"email\": \"ada@example.org\", \"tags\": [\"first "
    "programmer\", \"mathematics\", \"poetical science\"], \"address\": {\"street\": \"12 St "
    "James's "
    "Square\", \"city\": \"London\", \"zip\": \"12345\"}, \"kind\": \"admin\"}";
static const char tree[] =
    "{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"label\":{\"type\":\"string\"},"
    "\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/node\"}}},\"required\":["
    "\"label\",\"children\"],\"additionalProperties\":false}},\"$ref\":\"#/$defs/node\"}";
static const char tree_answer[] =
    "{\"label\": \"root\", \"children\": [{\"label\": \"left side\", \"children\": [{\"label\": "
    "\"deep\", \"children\": []}]}, {\"label\": \"right\", \"children\": []}]}";
static const char json_answer[] =
    "{\n  \"id\": 17,\n  \"text\": \"It was the best of times, it was the worst of times.\",\n  "
    "\"values\": [1, 2.5, -3e4, true, null],\n  \"nested\": {\"a\": {\"b\": [\"c\", {\"d\": "
    "1}]}}\n}";
static const char gbnf[] = "root ::= line+\n"
                           "line ::= \"- \" word (\" \" word)* [.!?] \"\\n\"\n"
                           "word ::= [A-Za-z]+ | number\n"
                           "number ::= [0-9]+ (\".\" [0-9]+)?\n";
static const char gbnf_answer[] = "- The first of 3 points is this.\n- Another one follows it "
                                  "directly!\n- And 2.5 percent are left?\n";

static const grammar_sample samples[] = {
    {"person schema", AVO_GRAMMAR_JSON_SCHEMA, person, person_answer},
    {"recursive schema", AVO_GRAMMAR_JSON_SCHEMA, tree, tree_answer},
    {"any JSON object", AVO_GRAMMAR_JSON, NULL, json_answer},
    {"GBNF list", AVO_GRAMMAR_GBNF, gbnf, gbnf_answer},
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_times(const char *what, double *us, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += us[i];
    qsort(us, count, sizeof(*us), compare);
    printf("    %-22s %7.1f us mean %7.1f p50 %7.1f p99 %8.1f max\n", what, sum / (double)count,
           us[count / 2], us[count - 1 - count / 100], us[count - 1]);
}

static void die(const char *what, const avo_error *error) {
    fprintf(stderr, "%s: %s\n", what, error->text);
    exit(1);
}

/* Each step of an answer: the mask, then following the token that the text has there. */
static void measure_masks(const avo_model *model, const grammar_sample *sample,
                          avo_grammar *grammar, const char *pass) {
    static int32_t ids[STEPS_MAX];
    static double mask_us[STEPS_MAX];
    static double follow_us[STEPS_MAX];
    avo_error error;
    size_t count = 0;
    if (avo_tokenize(model, sample->answer, strlen(sample->answer), AVO_TOKENIZE_PLAIN, ids,
                     STEPS_MAX, &count, &error) != AVO_OK)
        die("tokenize", &error);
    grammar_matcher *matcher = NULL;
    if (grammar_matcher_open(grammar, NULL, 0, NULL, &matcher, &error) != AVO_OK)
        die("matcher", &error);
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *allowed;
        uint64_t begin = clock_now_ns();
        if (grammar_matcher_mask(matcher, &allowed, &error) != AVO_OK)
            die("mask", &error);
        uint64_t middle = clock_now_ns();
        /* A tokenizer that puts a space in front begins with one that no grammar wants. */
        bool fits = (allowed[(uint32_t)ids[i] / 64] >> ((uint32_t)ids[i] % 64) & 1) != 0;
        if (!fits && i == 0)
            continue;
        if (!fits || grammar_matcher_follow(matcher, ids[i], &error) != AVO_OK) {
            fprintf(stderr, "%s: token %zu does not fit\n", sample->name, i);
            exit(1);
        }
        uint64_t end = clock_now_ns();
        mask_us[done] = (double)(middle - begin) * 1e-3;
        follow_us[done++] = (double)(end - middle) * 1e-3;
    }
    char what[64];
    (void)snprintf(what, sizeof(what), "%s, mask", pass);
    print_times(what, mask_us, done);
    (void)snprintf(what, sizeof(what), "%s, follow", pass);
    print_times(what, follow_us, done);
    grammar_matcher_close(matcher);
}

/* Milliseconds a token. */
static double measure_answer(avo_engine *engine, const avo_model *model, avo_grammar *grammar,
                             uint32_t tokens, double temperature) {
    avo_error error;
    avo_session *session = NULL;
    int32_t ids[256];
    size_t count = 0;
    avo_message message = {"user", "Describe a person as JSON."};
    if (avo_chat_tokenize(model, &message, 1, NULL, ids, 256, &count, &error) != AVO_OK &&
        avo_tokenize(model, message.content, strlen(message.content), AVO_TOKENIZE_BEGIN, ids, 256,
                     &count, &error) != AVO_OK)
        die("prompt", &error);
    if (avo_session_open(engine, NULL, &session, &error) != AVO_OK)
        die("session", &error);
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = (float)temperature;
    sampling.top_p = temperature > 0.0 ? 0.95f : 1.0f;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = ids;
    request.token_count = count;
    request.max_new_tokens = tokens;
    request.sampling = &sampling;
    request.ignore_end = true;
    request.grammar = grammar;
    avo_result result = AVO_RESULT_INIT;
    if (avo_generate(engine, session, &request, &result, &error) != AVO_OK)
        die("generate", &error);
    avo_session_close(session);
    return result.decode_seconds * 1e3 / (double)(result.new_tokens - 1);
}

static void measure_pairs(avo_engine *engine, const avo_model *model, avo_grammar *grammar,
                          uint32_t tokens, uint32_t pairs, double temperature) {
    double cost[PAIRS_MAX], ms[2][PAIRS_MAX];
    for (uint32_t pair = 0; pair <= pairs; pair++) { /* the first one warms up */
        uint32_t at = pair == 0 ? 0 : pair - 1;
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t with = (pair + i) % 2;
            ms[with][at] =
                measure_answer(engine, model, with == 1 ? grammar : NULL, tokens, temperature);
        }
        cost[at] = (ms[1][at] / ms[0][at] - 1.0) * 100.0;
    }
    qsort(cost, pairs, sizeof(*cost), compare);
    qsort(ms[0], pairs, sizeof(*ms[0]), compare);
    qsort(ms[1], pairs, sizeof(*ms[1]), compare);
    printf("    temperature %.1f: %.3f ms a token without, %.3f with: %+.1f %% (%+.1f ... %+.1f)\n",
           temperature, ms[0][pairs / 2], ms[1][pairs / 2], cost[pairs / 2], cost[pairs / 4],
           cost[pairs - 1 - pairs / 4]);
}

int main(int count, char **arguments) {
    avo_error error;
    avo_model *model = NULL;
    avo_engine *engine = NULL;
    uint32_t tokens = count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 10) : 128;
    uint32_t pairs = count > 3 ? (uint32_t)strtoul(arguments[3], NULL, 10) : 9;
    pairs = pairs < 1 ? 1 : pairs > PAIRS_MAX ? PAIRS_MAX : pairs;
    if (count < 2 || avo_model_open(arguments[1], NULL, &model, &error) != AVO_OK)
        die("bench_grammar MODEL [TOKENS]", &error);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = 1024;
    if (avo_engine_open(model, &options, &engine, &error) != AVO_OK)
        die("engine", &error);
    printf("%s: %u tokens\n", arguments[1], model->view.vocabulary);
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        avo_grammar *grammar = NULL;
        uint64_t begin = clock_now_ns();
        if (avo_grammar_open(model, samples[i].kind, samples[i].text, NULL, &grammar, &error) !=
            AVO_OK)
            die(samples[i].name, &error);
        double ms = (double)(clock_now_ns() - begin) * 1e-6;
        grammar_counts counts = grammar_count(grammar);
        printf("  %s: opened in %.1f ms%s, %u states, %u masks in %.1f MB, %.1f M nodes visited\n",
               samples[i].name, ms, i == 0 ? " with the trie of tokens" : "", counts.states,
               counts.masks, (double)counts.mask_bytes * 1e-6, (double)counts.visits * 1e-6);
        measure_masks(model, &samples[i], grammar, "first");
        measure_masks(model, &samples[i], grammar, "again");
        measure_pairs(engine, model, grammar, tokens, pairs, 0.0);
        measure_pairs(engine, model, grammar, tokens, pairs, 0.8);
        avo_grammar_close(grammar);
    }
    avo_engine_close(engine);
    avo_model_close(model);
    return 0;
}
