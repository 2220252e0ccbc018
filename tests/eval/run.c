/* AVO_TEST_THREADS
 * Runs of tasks: responses against the batch interface, the same for any batch, threads and cache;
 * samples files that are continued, cut or refused; pairs against figures computed elsewhere. */
#include "support/support.h"

#include "base/file.h"
#include "eval/report.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOCUMENTS 12

static const char choice_task[] = "{\"name\":\"pick\",\"kind\":\"choice\",\"prompt\":\"{{q}}\","
                                  "\"choices\":\"{{c | tojson}}\",\"target\":\"{{g}}\"}";
static const char continuation_task[] =
    "{\"name\":\"goon\",\"kind\":\"continuation\",\"prompt\":\"{{q}}\",\"target\":\" {{c[0]}}\"}";
/* More than 64 tokens of shots, which are computed first. */
static const char generate_task[] =
    "{\"name\":\"make\",\"kind\":\"generate\",\"prompt\":\"{{q}}\",\"target\":\"{{c[g]}}\","
    "\"max_tokens\":9,\"stop\":[\"e\",\"zz\"],\"shots\":{\"examples\":["
    "{\"q\":\"once upon a time there was one\",\"c\":[\"shot\"],\"g\":0},"
    "{\"q\":\"and another one of the same kind\",\"c\":[\"as long\"],\"g\":0}]},"
    "\"filters\":[{\"name\":\"plain\"},{\"name\":\"word\",\"steps\":[{\"regex\":\"\\\\w+\"}]}]}";

typedef struct world {
    avo_model *model;
    char documents_text[4096];
    eval_documents documents;
} world;

typedef struct how {
    uint32_t threads, batch, rows;
    bool no_cache;
    uint64_t kv_tokens; /* 0: as many as the batch may need */
} how;

static int open_world(void **state) {
    static world w;
    avo_error error = {0};
    size_t at = 0;
    if (avo_model_open(tiny_model_write(test_scratch_folder(), 5), NULL, &w.model, &error) !=
        AVO_OK) {
        print_error("%s\n", error.text);
        return -1;
    }
    for (int i = 0; i < DOCUMENTS; i++)
        at += (size_t)snprintf(
            w.documents_text + at, sizeof(w.documents_text) - at,
            "{\"q\":\"%.*sonce upon %d \",\"c\":[\"the a%d\",\"time\",\"\xc3\xa4%d\"],\"g\":%d}\n",
            i, "the a time b", i, i, i * 7, i % 3);
    *state = &w;
    return documents_open(text_from(w.documents_text), "documents", 0, NULL, &w.documents,
                          &error) == AVO_OK
               ? 0
               : -1;
}

static int close_world(void **state) {
    world *w = *state;
    documents_close(&w->documents);
    avo_model_close(w->model);
    return 0;
}

static eval_task *task_of(const char *json) {
    eval_task *task = NULL;
    avo_error error = {0};
    assert_ok_error(task_open(text_from(json), "t.json", NULL, &task, &error), &error);
    return task;
}

static eval_run_options options_of(const world *w) {
    return (eval_run_options){.items = {.model = w->model, .context = TINY_CONTEXT},
                              .documents = &w->documents};
}

static avo_status ask(const world *w, const eval_task *task, eval_run *run, const how *how,
                      avo_error *error) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_scheduler_options scheduling = AVO_SCHEDULER_OPTIONS_INIT;
    avo_engine *engine = NULL;
    avo_scheduler *scheduler = NULL;
    eval_ask_engine(task, &run->items, how->batch, &options);
    options.threads = how->threads;
    options.rows_max = how->rows;
    options.kv_tokens = how->kv_tokens > 0 ? how->kv_tokens : options.kv_tokens;
    scheduling.no_prefix_cache = how->no_cache;
    AVO_TRY(avo_engine_open(w->model, &options, &engine, error));
    avo_status status = avo_scheduler_open(engine, &scheduling, &scheduler, error);
    AVO_THEN(status, eval_run_ask(run, scheduler, error));
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
    return status;
}

static void run_whole(const world *w, const eval_task *task, const eval_run_options *options,
                      const how *how, eval_run *run) {
    avo_error error = {0};
    assert_ok_error(eval_run_open(task, options, NULL, run, &error), &error);
    if (eval_run_remaining(run) > 0)
        assert_ok_error(ask(w, task, run, how, &error), &error);
    assert_ok_error(samples_finish(run, &error), &error);
    assert_int_equal(run->done, run->items.count);
}

static const char *samples_path(const char *name) {
    static char path[3][4096];
    static int turn;
    char *own = path[turn++ % 3];
    snprintf(own, 4096, "%s/%s.jsonl", test_scratch_folder(), name);
    return own;
}

/* ---- The same bytes ---- */

static void read_file(const char *path, buffer *text) {
    file_map map;
    avo_error error = {0};
    buffer_init(text, NULL, SIZE_MAX);
    assert_ok_error(file_map_open(path, &map, &error), &error);
    if (map.bytes.size > 0)
        assert_ok(buffer_append(text, map.bytes.data, map.bytes.size));
    file_map_close(&map);
}

static void same_files(const char *a, const char *b) {
    buffer left, right;
    read_file(a, &left);
    read_file(b, &right);
    assert_int_equal(left.size, right.size);
    assert_true(left.size > 0);
    assert_memory_equal(left.data, right.data, left.size);
    buffer_free(&left);
    buffer_free(&right);
}

static void any_batch_and_threads(void **state) {
    const world *w = *state;
    static const how hows[] = {{1, 1, 64, true, 0},
                               {1, 3, 17, false, 0},
                               {2, 16, 512, false, 0},
                               {2, 5, 8, true, 0},
                               {1, 8, 32, false, 256}}; /* the last preempts */
    const char *const tasks[] = {choice_task, continuation_task, generate_task};
    for (size_t t = 0; t < 3; t++) {
        eval_task *task = task_of(tasks[t]);
        for (size_t i = 0; i < 5; i++) {
            eval_run run;
            eval_run_options options = options_of(w);
            options.samples_path = samples_path(i == 0 ? "first" : "again");
            (void)unlink(options.samples_path);
            run_whole(w, task, &options, &hows[i], &run);
            eval_run_close(&run);
            if (i > 0)
                same_files(samples_path("first"), samples_path("again"));
        }
        task_close(task);
    }
}

/* ---- The right ones ---- */

/* Σ log p of tokens from `from` on, and whether each is the most likely one. */
static double plain_logprob(avo_engine *engine, const eval_query *query, bool *greedy) {
    avo_session *session;
    avo_batch *batch;
    float logprobs[TINY_CONTEXT];
    avo_logprob tops[TINY_CONTEXT];
    double sum = 0;
    uint32_t rows = query->count - 1;
    *greedy = true;
    assert_ok(avo_session_open(engine, NULL, &session, NULL));
    assert_ok(avo_batch_open(engine, &batch, NULL));
    assert_ok(avo_batch_add_scored(batch, session, query->tokens, query->count, 0));
    assert_ok(avo_step(engine, batch));
    assert_ok(avo_batch_score(batch, session, 0, rows, query->tokens + 1, 1, logprobs, tops));
    for (uint32_t i = query->from; i < query->count; i++) {
        sum += (double)logprobs[i - 1];
        *greedy = *greedy && tops[i - 1].token == query->tokens[i];
    }
    avo_batch_close(batch);
    avo_session_close(session);
    return sum;
}

static void likelihoods_are_those_of_the_batch(void **state) {
    const world *w = *state;
    eval_task *task = task_of(choice_task);
    eval_run run;
    eval_run_options options = options_of(w);
    avo_engine_options engine_options = AVO_ENGINE_OPTIONS_INIT;
    avo_engine *engine = NULL;
    engine_options.threads = 1;
    engine_options.rows_max = TINY_CONTEXT;
    run_whole(w, task, &options, &(how){1, 4, 64, false, 0}, &run);
    assert_ok(avo_engine_open(w->model, &engine_options, &engine, NULL));
    double right = 0, right_normed = 0;
    for (uint32_t i = 0; i < run.items.count; i++) {
        const eval_item *item = &run.items.item[i];
        static const double characters[] = {6, 4, 0};
        uint32_t best = 0, best_normed = 0;
        double logprob[3], normed[3];
        for (uint32_t k = 0; k < 3; k++) {
            bool greedy;
            double length = k < 2 ? characters[k] : 0;
            if (k == 0)
                length = i < 10 ? 6 : 7;
            if (k == 2)
                length = i * 7 < 10 ? 2 : 3;
            logprob[k] = plain_logprob(engine, &run.items.query[item->first_query + k], &greedy);
            normed[k] = logprob[k] / length;
            best = logprob[k] > logprob[best] ? k : best;
            best_normed = normed[k] > normed[best_normed] ? k : best_normed;
        }
        assert_int_equal(run.score[2 * i], best == item->gold);
        assert_int_equal(run.score[2 * i + 1], best_normed == item->gold);
        right += best == item->gold;
        right_normed += best_normed == item->gold;
    }
    eval_figure figure = eval_run_figure(&run, 0);
    double mean = right / DOCUMENTS;
    assert_true(fabs(figure.value - mean) < 1e-15);
    assert_true(fabs(figure.error - sqrt(mean * (1 - mean) / (DOCUMENTS - 1))) < 1e-15);
    assert_true(fabs(eval_run_figure(&run, 1).value - right_normed / DOCUMENTS) < 1e-15);
    eval_run_close(&run);
    task_close(task);

    task = task_of(continuation_task);
    run_whole(w, task, &options, &(how){1, 4, 64, false, 0}, &run);
    double sum = 0;
    for (uint32_t i = 0; i < run.items.count; i++) {
        bool greedy;
        double logprob = plain_logprob(engine, &run.items.query[i], &greedy);
        assert_true(run.score[2 * i + 1] == logprob);
        assert_int_equal(run.score[2 * i], greedy);
        sum += logprob;
    }
    assert_true(fabs(eval_run_figure(&run, 1).value - exp(-sum / DOCUMENTS)) < 1e-9);
    eval_run_close(&run);
    task_close(task);
    avo_engine_close(engine);
}

/* ---- Splitting ---- */

/* "a b " + "c": the blank at the end belongs to the continuation. */
static void blanks_belong_to_the_continuation(void **state) {
    const world *w = *state;
    eval_task *task = task_of(continuation_task);
    eval_items items;
    avo_error error = {0};
    items_options options = {.model = w->model, .context = TINY_CONTEXT};
    assert_ok_error(items_open(task, &w->documents, NULL, &options, NULL, &items, &error), &error);
    for (uint32_t i = 0; i < items.count; i++) {
        int32_t ids[TINY_CONTEXT];
        size_t count = 0;
        text_view context = text_strip_end(items.item[i].context);
        assert_int_equal(context.size + 1, items.item[i].context.size);
        assert_ok(avo_tokenize(w->model, context.data, context.size, AVO_TOKENIZE_BEGIN, ids,
                               TINY_CONTEXT, &count, &error));
        assert_int_equal(items.query[i].from, count);
        assert_memory_equal(items.query[i].tokens, ids, count * sizeof(ids[0]));
    }
    items_close(&items);
    /* Cut from the left where the context is small; the continuation must fit. */
    options.context = 12;
    assert_ok_error(items_open(task, &w->documents, NULL, &options, NULL, &items, &error), &error);
    assert_true(items.truncated > 0);
    assert_int_equal(items.tokens_max, 12);
    items_close(&items);
    options.context = 2;
    assert_refused(items_open(task, &w->documents, NULL, &options, NULL, &items, &error),
                   AVO_ERROR_CONTEXT, &error, "the context holds 2; raise --ctx");
    task_close(task);
    task = task_of(generate_task);
    options.context = 9;
    assert_refused(items_open(task, &w->documents, NULL, &options, NULL, &items, &error),
                   AVO_ERROR_CONTEXT, &error, "answers may have 9 tokens, but the context holds 9");
    task_close(task);
}

static void wrong_documents_are_refused(void **state) {
    const world *w = *state;
    static const struct {
        const char *task, *document, *part;
    } cases[] = {
        {choice_task, "{\"c\":[\"a\",\"b\"],\"g\":0}", "document 1: \"prompt\": "},
        {choice_task, "{\"q\":\"a\",\"c\":[\"a\",\"b\"]}", "'g' is undefined"},
        {choice_task, "{\"q\":\"a\",\"c\":[\"a\",\"b\"],\"g\":2}",
         "\"target\" is \"2\", must be one of the choices or its number, 0 to 1"},
        {choice_task, "{\"q\":\"a\",\"c\":[\"a\",\"b\"],\"g\":\"c\"}", "\"target\" is \"c\""},
        {choice_task, "{\"q\":\"a\",\"c\":[\"a\"],\"g\":0}", "a JSON array of 2 to 64 strings"},
        {choice_task, "{\"q\":\"a\",\"c\":[1,2],\"g\":0}", "a JSON array of 2 to 64 strings"},
        {choice_task, "{\"q\":\"a\",\"c\":\"ab\",\"g\":0}", "a JSON array of 2 to 64 strings"},
        {"{\"name\":\"t\",\"kind\":\"generate\",\"prompt\":\"p\",\"target\":\"t\",\"shots\":"
         "{\"from\":\"f\",\"count\":2}}",
         "{}", "needs 2 shots, of which there are only 1"},
        {"{\"name\":\"t\",\"kind\":\"generate\",\"prompt\":\"p\",\"target\":\"t\",\"shots\":"
         "{\"examples\":[[]]}}",
         "{}", "document 1: shot 1: must be an object"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eval_task *task = task_of(cases[i].task);
        eval_documents documents;
        eval_items items;
        avo_error error = {0};
        items_options options = {.model = w->model, .context = TINY_CONTEXT};
        assert_ok(documents_open(text_from(cases[i].document), "d", 0, NULL, &documents, &error));
        avo_status status =
            items_open(task, &documents, &documents, &options, NULL, &items, &error);
        if (status == AVO_OK || strstr(error.text, cases[i].part) == NULL)
            fail_msg("case %zu: expected \"%s\": %s", i, cases[i].part, error.text);
        documents_close(&documents);
        task_close(task);
    }
}

/* ---- Samples files ---- */

static void cut(const char *from, const char *to, size_t bytes) {
    buffer text;
    avo_error error = {0};
    read_file(from, &text);
    assert_true(bytes <= text.size);
    assert_ok_error(file_write(to, text.data, bytes, &error), &error);
    buffer_free(&text);
}

/* As a process that was killed leaves it, at every kind of place. */
static void a_run_goes_on(void **state) {
    const world *w = *state;
    eval_task *task = task_of(generate_task);
    eval_run run;
    eval_run_options options = options_of(w);
    const how how = {1, 4, 64, false, 0};
    options.samples_path = samples_path("whole");
    run_whole(w, task, &options, &how, &run);
    double scores[DOCUMENTS * 2];
    memcpy(scores, run.score, sizeof(scores));
    eval_run_close(&run);
    buffer text;
    read_file(options.samples_path, &text);
    options.resume = true;
    for (size_t part = 0; part <= 10; part++) {
        size_t bytes = part == 10 ? text.size : part == 9 ? text.size - 1 : text.size * part / 9;
        cut(samples_path("whole"), samples_path("part"), bytes);
        options.samples_path = samples_path("part");
        run_whole(w, task, &options, &how, &run);
        assert_true(part == 0 ? run.restored == 0 : run.restored < DOCUMENTS || part == 10);
        assert_true(run.restored > 0 || part < 2);
        assert_memory_equal(run.score, scores, sizeof(scores));
        eval_run_close(&run);
        same_files(samples_path("whole"), samples_path("part"));
    }
    buffer_free(&text);
    /* Fewer documents: nothing of the file is lost. */
    eval_documents few;
    assert_ok(documents_open(text_from(w->documents_text), "documents", 5, NULL, &few, NULL));
    options.documents = &few;
    run_whole(w, task, &options, &how, &run);
    assert_int_equal(run.restored, 5);
    eval_run_close(&run);
    same_files(samples_path("whole"), samples_path("part"));
    documents_close(&few);
    task_close(task);
}

static void refuses_samples(const eval_task *task, const eval_run_options *options,
                            const char *part) {
    eval_run run;
    avo_error error = {0};
    avo_status status = eval_run_open(task, options, NULL, &run, &error);
    assert_true(status != AVO_OK);
    if (strstr(error.text, part) == NULL)
        fail_msg("expected \"%s\": %s", part, error.text);
}

/* Documents are written as they end; a complete file has them in order. */
static void any_order_is_continued(void **state) {
    const world *w = *state;
    eval_task *task = task_of(choice_task);
    eval_run run;
    avo_error error = {0};
    eval_run_options options = options_of(w);
    const how how = {1, 4, 64, false, 0};
    options.samples_path = samples_path("ordered");
    run_whole(w, task, &options, &how, &run);
    eval_run_close(&run);
    buffer text, turned;
    read_file(options.samples_path, &text);
    buffer_init(&turned, NULL, SIZE_MAX);
    size_t first = (size_t)((char *)memchr(text.data, '\n', text.size) - text.data) + 1;
    assert_ok(buffer_append(&turned, text.data + first, text.size - first));
    assert_ok(buffer_append(&turned, text.data, first));
    options.samples_path = samples_path("turned");
    assert_ok_error(file_write(options.samples_path, turned.data, turned.size, &error), &error);
    options.resume = true;
    run_whole(w, task, &options, &how, &run);
    assert_int_equal(run.restored, DOCUMENTS);
    eval_run_close(&run);
    same_files(samples_path("ordered"), samples_path("turned"));
    /* Twice the same document. */
    assert_ok(buffer_append(&turned, text.data, first));
    assert_ok_error(file_write(options.samples_path, turned.data, turned.size, &error), &error);
    refuses_samples(task, &options, "the sample of document 1 is damaged");
    buffer_free(&text);
    buffer_free(&turned);
    task_close(task);
}

static void other_samples_are_refused(void **state) {
    const world *w = *state;
    eval_task *task = task_of(choice_task), *other = task_of(continuation_task);
    eval_run run;
    avo_error error = {0};
    eval_run_options options = options_of(w);
    options.samples_path = samples_path("own");
    run_whole(w, task, &options, &(how){1, 4, 64, false, 0}, &run);
    double scores[DOCUMENTS * 2];
    buffer text;
    read_file(options.samples_path, &text);
    assert_ok_error(samples_compare(&run, buffer_text(&text), "own", scores, &error), &error);
    assert_memory_equal(run.score, scores, sizeof(scores));
    text_view half = {text.data, text.size / 2};
    assert_refused(samples_compare(&run, half, "own", scores, &error), AVO_ERROR_ARGUMENT, &error,
                   "own has the samples of 6 documents, needed are 12");
    eval_run_close(&run);
    refuses_samples(task, &options, "exists and is not empty");
    options.resume = true;
    refuses_samples(other, &options, "was answered with another model, task, data or option");
    options.kv_type = "f32";
    refuses_samples(task, &options, "document 1 was answered with another");
    options.kv_type = NULL;
    options.items.no_begin = true;
    refuses_samples(task, &options, "document 1 was answered with another");
    static const char *const wrong[][2] = {
        {"{}\n", "line 1 is no sample"},
        {"{\"doc_id\":}\n", "line 1 is no sample"},
        {"{\"doc_id\":99999999999,\n", "line 1 is no sample"},
        {"{\"doc_id\":0,\n", "the sample of document 1 is damaged"},
        {"{\"doc_id\":3,\"digest\":7}\n", "the sample of document 4 is damaged"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_ok_error(file_write(options.samples_path, wrong[i][0], strlen(wrong[i][0]), &error),
                        &error);
        refuses_samples(task, &options, wrong[i][1]);
    }
    options.samples_path = "/nowhere/at/all.jsonl";
    refuses_samples(task, &options, "/nowhere/at/all.jsonl: cannot write");
    /* Prompts of another task. */
    options = options_of(w);
    run_whole(w, other, &options, &(how){1, 4, 64, false, 0}, &run);
    assert_refused(samples_compare(&run, buffer_text(&text), "own", scores, &error),
                   AVO_ERROR_ARGUMENT, &error, "own: document 1 has another prompt");
    eval_run_close(&run);
    buffer_free(&text);
    task_close(task);
    task_close(other);
}

/* ---- Stopping ---- */

static bool refuse_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    (void)total;
    return done < *(const uint64_t *)context;
}

static void a_cancelled_run_keeps_what_it_has(void **state) {
    const world *w = *state;
    eval_task *task = task_of(generate_task);
    uint64_t limit = 3;
    eval_run run;
    avo_error error = {0};
    eval_run_options options = options_of(w);
    options.samples_path = samples_path("stopped");
    options.progress = refuse_progress;
    options.progress_context = &limit;
    const how how = {1, 1, 64, false, 0};
    assert_ok_error(eval_run_open(task, &options, NULL, &run, &error), &error);
    assert_refused(ask(w, task, &run, &how, &error), AVO_ERROR_CANCELLED, &error,
                   "cancelled after");
    assert_true(run.done >= limit && run.done <= DOCUMENTS);
    uint32_t done = run.done;
    eval_run_close(&run);
    options.resume = true;
    options.progress = NULL;
    run_whole(w, task, &options, &how, &run);
    assert_int_equal(run.restored, done);
    eval_run_close(&run);
    task_close(task);
}

/* ---- Memory ---- */

static void memory_that_runs_out(void **state) {
    const world *w = *state;
    const char *const tasks[] = {choice_task, continuation_task, generate_task};
    for (size_t t = 0; t < 3; t++) {
        eval_task *task = task_of(tasks[t]);
        avo_status status = AVO_ERROR_MEMORY;
        for (size_t fail = 1; status != AVO_OK; fail++) {
            test_allocator allocator;
            avo_error error = {0};
            eval_run run;
            eval_run_options options = options_of(w);
            test_allocator_init(&allocator);
            allocator.fail_at = fail;
            status = eval_run_open(task, &options, &allocator.allocator, &run, &error);
            if (status == AVO_OK)
                eval_run_close(&run);
            else if (status != AVO_ERROR_MEMORY)
                fail_msg("allocation %zu: %s", fail, error.text);
            assert_int_equal(allocator.live, 0);
            assert_true(fail < 20000);
        }
        task_close(task);
    }
}

/* ---- Pairs ---- */

static void pairs_as_scipy(void **state) {
    (void)state;
    /* scipy.stats.binomtest(lost, gained + lost).pvalue; the interval by numpy: mean ± 1.96 s/√n.
     */
    static const struct {
        uint64_t both, gained, lost, neither;
        double p, low, high;
    } cases[] = {
#include "pairs_figures.h"
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eval_pairs pairs = {0}, half = {0};
        for (uint64_t k = 0; k < cases[i].both; k++)
            pairs_add(&pairs, 1, 1);
        for (uint64_t k = 0; k < cases[i].gained; k++)
            pairs_add(&pairs, 1, 0);
        for (uint64_t k = 0; k < cases[i].lost; k++)
            pairs_add(&half, 0, 1);
        for (uint64_t k = 0; k < cases[i].neither; k++)
            pairs_add(&half, 0, 0);
        pairs_merge(&pairs, &half);
        pairs_result result = pairs_conclude(&pairs);
        assert_int_equal(pairs.gained, cases[i].gained);
        assert_int_equal(pairs.lost, cases[i].lost);
        assert_true(fabs(result.p - cases[i].p) <= 1e-9 * cases[i].p + 1e-300);
        assert_true(fabs(result.low - cases[i].low) < 1e-12);
        assert_true(fabs(result.high - cases[i].high) < 1e-12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_batch_and_threads),
        cmocka_unit_test(likelihoods_are_those_of_the_batch),
        cmocka_unit_test(blanks_belong_to_the_continuation),
        cmocka_unit_test(wrong_documents_are_refused),
        cmocka_unit_test(a_run_goes_on),
        cmocka_unit_test(any_order_is_continued),
        cmocka_unit_test(other_samples_are_refused),
        cmocka_unit_test(a_cancelled_run_keeps_what_it_has),
        cmocka_unit_test(memory_that_runs_out),
        cmocka_unit_test(pairs_as_scipy),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
