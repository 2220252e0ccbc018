/* Running the configurations in turn, and taking notes. */
#include "bench/speculate_int.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "engine/draft_heads.h"
#include "engine/draft_notes.h"

#include <stdio.h>
#include <string.h>

#define ROWS_MAX      512u
#define RUN_LENGTH    4   /* tokens of a run that counts as repetition */
#define MEMORY_PERIOD 0.1 /* seconds between two points of the profile, at first */
#define WARM_TOKENS   16u
#define TOKENS_SPARE  1024u

/* ---- Notes ---- */

static void note_memory(lab *lab, bool always) {
    lab_result *result = lab->result;
    double now = clock_seconds(lab->begin_ns, clock_now_ns());
    if (!always && now < lab->memory_next)
        return;
    if (result->memory_count ==
        LAB_MEMORY_MAX) { /* every second point, from now on half as often */
        for (size_t i = 0; i < LAB_MEMORY_MAX / 2; i++)
            result->memory[i] = result->memory[2 * i];
        result->memory_count = LAB_MEMORY_MAX / 2;
        lab->memory_period *= 2;
    }
    avo_kv_info kv = AVO_KV_INFO_INIT;
    if (lab->engine != NULL)
        avo_engine_kv(lab->engine, &kv);
    result->memory[result->memory_count++] =
        (lab_memory){now, process_resident_bytes(), (uint64_t)kv.pages_used * kv.page_tokens};
    lab->memory_next = now + lab->memory_period;
}

static void note_step(void *context, const draft_note *note) {
    lab *lab = context;
    if (!lab->counting)
        return;
    lab_steps *steps = &lab->result->steps[lab->config];
    steps->steps++;
    steps->draft_steps += note->drafted > 0;
    for (uint32_t i = 0; i < note->drafted; i++)
        steps->drafted_at[i]++;
    for (uint32_t i = 0; i < note->accepted; i++)
        steps->accepted_at[i]++;
    if (note->drafted > 0) {
        steps->length[note->accepted]++;
        steps->kind_drafted[note->kind] += note->drafted;
        steps->kind_accepted[note->kind] += note->accepted;
    }
    steps->draft_seconds += (double)note->draft_ns * 1e-9;
    steps->verify_seconds += (double)note->verify_ns * 1e-9;
    steps->host_seconds += (double)note->host_ns * 1e-9;
    lab_cost *cost = &lab->result->cost[note->rows];
    cost->steps++;
    cost->measured_ns += (double)note->verify_ns;
    cost->predicted_ns += note->predicted_ns;
    note_memory(lab, false);
}

static bool on_event(void *context, const avo_event *event) {
    lab *lab = context;
    lab_answer *a = &lab->answer;
    if (event->kind == AVO_EVENT_TOKEN) {
        const avo_token_event *token = event->token;
        if (token->token >= 0 && a->count < lab->options->new_tokens) {
            a->ids[a->count++] = token->token;
            a->logprob += (double)token->logprob;
        }
        if (buffer_append(&a->text, token->text, token->text_bytes) != AVO_OK)
            lab->failure = AVO_ERROR_MEMORY;
    }
    avo_progress_function progress = lab->options->progress;
    if (progress != NULL && !progress(NULL, "answers", lab->done, lab->total))
        lab->stopped = true;
    return lab->failure == AVO_OK && !lab->stopped;
}

/* ---- One answer ---- */

void lab_request(const lab *lab, size_t number, avo_sampling *sampling, avo_request *request) {
    const lab_options *options = lab->options;
    const lab_config *config = &options->config[lab->config];
    const lab_question *question = &lab->questions[number];
    const bench_prompt *prompt = &options->prompts->item[number];
    *sampling = (avo_sampling)AVO_SAMPLING_INIT;
    sampling->temperature = prompt->temperature >= 0 ? prompt->temperature : options->temperature;
    sampling->seed = options->seed + number;
    *request = (avo_request)AVO_REQUEST_INIT;
    request->tokens = question->ids;
    request->token_count = question->count;
    request->max_new_tokens = options->new_tokens;
    request->sampling = sampling;
    request->grammar = question->grammar;
    request->ignore_end = options->ignore_end && question->grammar == NULL;
    request->speculate = config->source;
    request->draft_tokens = config->k;
}

static avo_status generate(lab *lab, size_t number, uint32_t iteration, uint32_t new_tokens,
                           avo_result *result, avo_error *error) {
    const lab_config *config = &lab->options->config[lab->config];
    avo_sampling sampling;
    avo_request request;
    lab_request(lab, number, &sampling, &request);
    request.max_new_tokens = new_tokens;
    request.on_event = on_event;
    request.on_event_context = lab;
    /* Earlier answers to draft from are those with the same salt. */
    char salt[48];
    snprintf(salt, sizeof(salt), "%u/%u/%d", iteration, lab->config, lab->counting);
    avo_session_options session_options = AVO_SESSION_OPTIONS_INIT;
    session_options.cache_salt = salt;
    avo_session *session;
    lab->answer.count = 0;
    lab->answer.logprob = 0;
    lab->answer.text.size = 0;
    *result = (avo_result)AVO_RESULT_INIT;
    AVO_TRY(avo_session_open(lab->engine, &session_options, &session, error));
    engine_draft_control(lab->engine, config->controller);
    engine_draft_policy(lab->engine, &config->policy);
    avo_status status = avo_generate(lab->engine, session, &request, result, error);
    note_memory(lab, false);
    avo_session_close(session);
    engine_draft_policy(lab->engine, NULL);
    AVO_TRY(status);
    if (lab->stopped)
        return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
    return lab->failure == AVO_OK ? AVO_OK
                                  : status_no_memory(error, "an answer", lab->answer.text.size);
}

static bool answers_equal(const lab_answer *a, const lab_answer *b) {
    return a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof(int32_t)) == 0 &&
           text_equal(buffer_text(&a->text), buffer_text(&b->text));
}

static avo_status keep_reference(const lab_answer *answer, lab_answer *reference,
                                 avo_error *error) {
    memcpy(reference->ids, answer->ids, answer->count * sizeof(int32_t));
    reference->count = answer->count;
    reference->logprob = answer->logprob;
    if (buffer_append(&reference->text, answer->text.data, answer->text.size) != AVO_OK)
        return status_no_memory(error, "an answer", answer->text.size);
    return AVO_OK;
}

static void note_quality(const lab *lab, const lab_answer *a, const lab_answer *reference) {
    lab_quality *quality = &lab->result->quality[lab->config];
    uint32_t longest = a->count > reference->count ? a->count : reference->count;
    for (uint32_t i = 0; i < longest; i++)
        quality->different +=
            i >= a->count || i >= reference->count || a->ids[i] != reference->ids[i];
    quality->tokens += longest;
    quality->logprob += a->logprob;
    quality->logprob_tokens += a->count;
}

avo_status lab_take(lab *lab, const lab_taken *taken, avo_error *error) {
    const lab_options *options = lab->options;
    lab_question *question = &lab->questions[taken->number];
    if (lab->config == 0 && taken->iteration == 0)
        AVO_TRY(keep_reference(taken->answer, &question->reference, error));
    size_t first =
        ((size_t)lab->config * lab->question_count + taken->number) * options->iterations;
    lab->result->rate[first + taken->iteration] =
        taken->seconds > 0 ? taken->tokens / taken->seconds : 0;
    bool equal = answers_equal(taken->answer, &question->reference);
    lab_sample_at(lab, question->category, taken->iteration)->equal += equal;
    note_quality(lab, taken->answer, &question->reference);
    const lab_config *config = &options->config[lab->config];
    if (equal || draft_policy_lossy(&config->policy))
        return AVO_OK;
    if (lab->result->different++ == 0) {
        char name[96];
        lab_config_name(config, name, sizeof(name));
        snprintf(lab->result->first_different, sizeof(lab->result->first_different),
                 "%s, prompt %zu (%s), iteration %u", name, taken->number + 1,
                 options->prompts->item[taken->number].category, taken->iteration + 1);
    }
    return AVO_OK;
}

static avo_status take_answer(lab *lab, size_t number, uint32_t iteration, avo_error *error) {
    avo_result given;
    AVO_TRY(generate(lab, number, iteration, lab->options->new_tokens, &given, error));
    lab_taken taken = {.answer = &lab->answer,
                       .number = number,
                       .iteration = iteration,
                       .seconds = given.decode_seconds,
                       .tokens = given.new_tokens > 0 ? given.new_tokens - 1 : 0};
    lab_sample *sample = lab_sample_at(lab, lab->questions[number].category, iteration);
    sample->seconds += taken.seconds;
    sample->tokens += taken.tokens;
    sample->drafted += given.drafted_tokens;
    sample->accepted += given.accepted_tokens;
    sample->resident_bytes += process_resident_bytes(); /* a sum, until all answers are in */
    sample->answers++;
    return lab_take(lab, &taken, error);
}

/* ---- All of them ---- */

static avo_status run_all(lab *lab, avo_error *error) {
    const lab_options *options = lab->options;
    avo_result ignored;
    /* The first steps of an engine also prepare its draft heads. */
    for (lab->config = 0; lab->config < options->configs; lab->config++)
        AVO_TRY(generate(lab, 0, 0, WARM_TOKENS, &ignored, error));
    lab->counting = true;
    if (options->clients > 0)
        return lab_run_clients(lab, error);
    for (uint32_t iteration = 0; iteration < options->iterations; iteration++)
        for (size_t number = 0; number < lab->question_count; number++)
            for (uint32_t i = 0; i < options->configs; i++) {
                /* Who begins changes, but for the references in the first iteration. */
                size_t turn = iteration == 0 ? 0 : iteration + number;
                lab->config = (uint32_t)((i + turn) % options->configs);
                AVO_TRY(take_answer(lab, number, iteration, error));
                lab->done++;
            }
    return AVO_OK;
}

/* Share of an answer's runs of tokens that occurred before in it. */
static void count_runs(const lab_answer *a, uint64_t *runs, uint64_t *repeated) {
    for (uint32_t i = 1; i + RUN_LENGTH <= a->count; i++) {
        bool found = false;
        for (uint32_t j = 0; j < i && !found; j++)
            found = memcmp(&a->ids[i], &a->ids[j], RUN_LENGTH * sizeof(int32_t)) == 0;
        *runs += 1;
        *repeated += found;
    }
}

static void conclude(lab *lab) {
    lab_result *result = lab->result;
    uint64_t runs[LAB_CATEGORIES_MAX] = {0}, repeated[LAB_CATEGORIES_MAX] = {0};
    for (size_t i = 0; i < lab->question_count; i++) {
        uint32_t category = lab->questions[i].category;
        count_runs(&lab->questions[i].reference, &runs[category], &repeated[category]);
    }
    for (uint32_t i = 0; i < result->categories; i++)
        result->repetition[i] = runs[i] > 0 ? (double)repeated[i] / (double)runs[i] : 0;
    size_t samples = (size_t)lab->options->configs * result->categories * lab->options->iterations;
    for (size_t i = 0; i < samples; i++)
        if (result->sample[i].answers > 0)
            result->sample[i].resident_bytes /= result->sample[i].answers;
    const step_cost *learned = engine_draft_cost(lab->engine);
    for (uint32_t rows = 1; rows <= LAB_ROWS_MAX; rows++) {
        lab_cost *cost = &result->cost[rows];
        cost->learned_ns = step_cost_step(learned, rows);
        if (cost->steps == 0)
            continue;
        cost->measured_ns /= (double)cost->steps;
        cost->predicted_ns /= (double)cost->steps;
    }
    note_memory(lab, true);
    result->seconds = clock_seconds(lab->begin_ns, clock_now_ns());
}

/* ---- Opening ---- */

static avo_status find_category(lab_result *result, const char *name, uint32_t *category,
                                avo_error *error) {
    for (*category = 0; *category < result->categories; ++*category)
        if (strcmp(result->category[*category], name) == 0)
            return AVO_OK;
    if (result->categories == LAB_CATEGORIES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %d categories of prompts",
                           LAB_CATEGORIES_MAX);
    result->category[result->categories++] = name;
    return AVO_OK;
}

static avo_status encode(const lab *lab, const bench_prompt *prompt, int32_t *ids, size_t capacity,
                         size_t *count, avo_error *error) {
    const avo_message message = {"user", prompt->text};
    bool chat = !lab->options->raw && avo_chat_check(lab->model, error) != AVO_ERROR_NOT_FOUND;
    if (chat)
        return avo_chat_tokenize(lab->model, &message, 1, NULL, ids, capacity, count, error);
    return avo_tokenize(lab->model, prompt->text, strlen(prompt->text), AVO_TOKENIZE_BEGIN, ids,
                        capacity, count, error);
}

static avo_status open_question(lab *lab, const bench_prompt *prompt, lab_question *question,
                                avo_error *error) {
    arena *arena = &lab->result->arena;
    size_t capacity = strlen(prompt->text) + TOKENS_SPARE;
    question->ids = arena_take_array(arena, capacity, sizeof(int32_t));
    question->reference.ids = arena_take_array(arena, lab->options->new_tokens, sizeof(int32_t));
    buffer_init(&question->reference.text, NULL, SIZE_MAX);
    if (question->ids == NULL || question->reference.ids == NULL)
        return status_no_memory(error, "a prompt", capacity * sizeof(int32_t));
    /* With clients, kinds of prompts are not measured apart. */
    const char *category = lab->options->clients > 0 ? "all" : prompt->category;
    AVO_TRY(find_category(lab->result, category, &question->category, error));
    AVO_TRY(encode(lab, prompt, question->ids, capacity, &question->count, error));
    if (question->count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "a prompt has no tokens");
    return prompt->schema == NULL
               ? AVO_OK
               : avo_grammar_open(lab->model, AVO_GRAMMAR_JSON_SCHEMA, prompt->schema, NULL,
                                  &question->grammar, error);
}

static avo_status open_questions(lab *lab, avo_error *error) {
    const bench_prompts *prompts = lab->options->prompts;
    arena *arena = &lab->result->arena;
    lab->questions = arena_take_array(arena, prompts->count, sizeof(lab_question));
    lab->answer.ids = arena_take_array(arena, lab->options->new_tokens, sizeof(int32_t));
    if (lab->questions == NULL || lab->answer.ids == NULL)
        return status_no_memory(error, "prompts", prompts->count * sizeof(lab_question));
    memset(lab->questions, 0, prompts->count * sizeof(lab_question));
    for (; lab->question_count < prompts->count; lab->question_count++) {
        size_t number = lab->question_count;
        avo_status status =
            open_question(lab, &prompts->item[number], &lab->questions[number], error);
        if (status != AVO_OK) {
            lab->question_count++; /* closed as the others are */
            return status_prefix(error, status, "prompt %zu (%s)", number + 1,
                                 prompts->item[number].category);
        }
    }
    return AVO_OK;
}

static bool has_heads(const avo_engine_options *options, heads_kind kind) {
    for (size_t i = 0; i < options->draft_heads_count; i++)
        if (options->draft_heads[i]->config.kind == kind)
            return true;
    return false;
}

/* All sources that any configuration uses, as avo_engine_options.speculate names them. */
static void name_sources(const lab_options *options, char *text, size_t capacity) {
    draft_kinds all = DRAFT_BIT(DRAFT_SUFFIX), kinds; /* an engine without any learns no costs */
    avo_error error;
    for (uint32_t i = 1; i < options->configs; i++) {
        if (draft_kinds_parse(options->config[i].source, &kinds, &error) != AVO_OK)
            continue;
        bool automatic = kinds == DRAFTS_AUTO;
        for (uint32_t kind = 0; automatic && kind < HEADS_KINDS; kind++)
            if (!has_heads(&options->engine, (heads_kind)kind))
                kinds &= ~DRAFT_BIT(draft_heads_kind((heads_kind)kind));
        if (automatic && options->engine.draft_model == NULL)
            kinds &= ~DRAFT_BIT(DRAFT_MODEL);
        all |= kinds;
    }
    size_t bytes = 0;
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++)
        if ((all & DRAFT_BIT(kind)) != 0)
            bytes += (size_t)snprintf(text + bytes, capacity - bytes, "%s%s", bytes > 0 ? "," : "",
                                      draft_kind_name((draft_kind)kind));
}

static avo_status open_engine(lab *lab, avo_error *error) {
    const lab_options *options = lab->options;
    avo_engine_options own = options->engine;
    avo_model_info info = AVO_MODEL_INFO_INIT;
    char sources[160];
    size_t longest = 0;
    for (size_t i = 0; i < lab->question_count; i++)
        longest = lab->questions[i].count > longest ? lab->questions[i].count : longest;
    avo_model_describe(lab->model, &info);
    uint64_t context = longest + options->new_tokens;
    if (context > info.context)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "the longest prompt has %zu tokens and answers have %u, the model's "
                           "context is %u; use a smaller -n or other prompts",
                           longest, options->new_tokens, info.context);
    name_sources(options, sources, sizeof(sources));
    own.speculate = sources;
    own.draft_tokens = DRAFTS_MAX;
    own.context_max = (uint32_t)context;
    own.sessions_max = options->clients > 0 ? options->clients : 1;
    own.rows_max = ROWS_MAX;
    AVO_TRY(avo_engine_open(lab->model, &own, &lab->engine, error));
    snprintf(lab->result->device, sizeof(lab->result->device), "%s",
             engine_device(lab->engine)->name);
    lab->result->threads = engine_limits_of(lab->engine).threads;
    note_memory(lab, true);
    return AVO_OK;
}

static void *take(lab_result *result, size_t count, size_t size, avo_error *error,
                  avo_status *status) {
    void *taken = arena_take_array(&result->arena, count, size);
    if (taken == NULL)
        *status = status_no_memory(error, "results", count * size);
    else
        memset(taken, 0, count * size);
    return taken;
}

static avo_status open_results(lab *lab, avo_error *error) {
    lab_result *result = lab->result;
    avo_status status = AVO_OK;
    size_t configs = lab->options->configs;
    result->sample = take(result, configs * result->categories * lab->options->iterations,
                          sizeof(lab_sample), error, &status);
    result->rate = take(result, configs * lab->question_count * lab->options->iterations,
                        sizeof(double), error, &status);
    result->prompt_category = take(result, lab->question_count, sizeof(uint32_t), error, &status);
    for (size_t i = 0; status == AVO_OK && i < lab->question_count; i++)
        result->prompt_category[i] = lab->questions[i].category;
    result->steps = take(result, configs, sizeof(lab_steps), error, &status);
    result->quality = take(result, configs, sizeof(lab_quality), error, &status);
    return status;
}

static void close_lab(lab *lab) {
    for (size_t i = 0; i < lab->question_count; i++) {
        avo_grammar_close(lab->questions[i].grammar);
        buffer_free(&lab->questions[i].reference.text);
    }
    buffer_free(&lab->answer.text);
    avo_engine_close(lab->engine);
}

avo_status lab_run(const avo_model *model, const lab_options *options, lab_result *result,
                   avo_error *error) {
    lab lab = {.model = model,
               .options = options,
               .result = result,
               .begin_ns = clock_now_ns(),
               .memory_period = MEMORY_PERIOD,
               .total = (uint64_t)options->configs * options->prompts->count * options->iterations};
    const draft_observer observer = {note_step, &lab};
    avo_status status = AVO_OK;
    memset(result, 0, sizeof(*result));
    arena_init(&result->arena, NULL, SIZE_MAX);
    buffer_init(&lab.answer.text, NULL, SIZE_MAX);
    result->memory = take(result, LAB_MEMORY_MAX, sizeof(lab_memory), error, &status);
    if (status == AVO_OK)
        note_memory(&lab, true);
    AVO_THEN(status, open_questions(&lab, error));
    AVO_THEN(status, open_results(&lab, error));
    AVO_THEN(status, open_engine(&lab, error));
    if (status == AVO_OK) {
        engine_draft_observe(lab.engine, &observer);
        status = run_all(&lab, error);
        engine_draft_observe(lab.engine, NULL);
    }
    if (status == AVO_OK)
        conclude(&lab);
    close_lab(&lab);
    if (status != AVO_OK)
        lab_free(result);
    return status;
}

void lab_free(lab_result *result) {
    arena_free(&result->arena);
}
