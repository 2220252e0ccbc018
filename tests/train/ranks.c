/* Data-parallel training, AVO_TEST_THREADS: ranks in threads of this process give the bytes of one,
 * also when they continue what another number of ranks has begun; a rank that leaves, or that has
 * other data, is an error on all others. */
#include "train/calls.h"

#include "train/micro.h"

#include <pthread.h>
#include <semaphore.h>

#define RANKS_MAX 4

typedef struct rank {
    const train_run_options *options;
    transport *transport;
    const char *data; /* NULL: that of the options */
    train_summary summary;
    avo_error error;
    avo_status status;
} rank;

/* What the last rank does at its exchange number `at`. */
typedef enum fault_kind { NONE, DIES, HANGS } fault_kind;
static struct {
    fault_kind kind;
    uint32_t at, exchanges;
    const transport_operations *real;
    sem_t over; /* the others have failed */
} fault;

static avo_status begin_faulty(transport *transport, const group_part *send,
                               const group_part *receive, avo_error *error) {
    if (++fault.exchanges < fault.at)
        return fault.real->begin(transport, send, receive, error);
    while (fault.kind == HANGS && sem_wait(&fault.over) != 0) {
    }
    return status_fail(error, AVO_ERROR_DEVICE, "this rank dies");
}

static void make_faulty(transport *transport, transport_operations *own) {
    fault.real = transport->operations;
    fault.exchanges = 0;
    *own = *fault.real;
    own->begin = begin_faulty;
    transport->operations = own;
}

static void *run_rank(void *context) {
    rank *own = context;
    train_run_options options = *own->options;
    options.transport = own->transport;
    if (own->data != NULL)
        options.settings.data.items[0] = own->data;
    own->status = train_run(w.model, &options, &own->summary, &own->error);
    if (own->status != AVO_OK && fault.kind == HANGS && own->transport->rank == 0)
        sem_post(&fault.over);
    transport_close(own->transport);
    return NULL;
}

typedef struct job {
    const char *output, *task, *rest;
    uint32_t ranks; /* 0: without a transport */
    bool resume;
    uint64_t stop_at;
    const char *other_data; /* of the last rank */
    uint64_t timeout_ns;    /* 0: long */
} job;

static bool stop(void *context, const train_step_info *info) {
    return info->evaluation || info->step != *(const uint64_t *)context;
}

/* The run of rank 0; `all` gets those of all. */
static rank run_job(const job *job, rank all[RANKS_MAX]) {
    char settings[1024], path[600];
    json_value root;
    arena arena;
    train_run_options options = {.engine = AVO_ENGINE_OPTIONS_INIT,
                                 .output = in_folder(job->output, path),
                                 .resume = job->resume,
                                 .rank_timeout_ns = 60000000000u};
    uint64_t stop_at = job->stop_at;
    transport_operations faulty;
    if (job->timeout_ns > 0)
        options.rank_timeout_ns = job->timeout_ns;
    arena_init(&arena, NULL, SIZE_MAX);
    settings_of(settings, w.texts, job->rest);
    train_settings_init(&options.settings, TRAIN_SFT);
    if (strcmp(job->task, "dpo") == 0)
        train_settings_init(&options.settings, TRAIN_DPO);
    assert_ok_error(json_parse(&arena, text_from(settings), &root, &w.error), &w.error);
    assert_ok_error(
        train_settings_read(&options.settings, &root, false, &arena, "settings", &w.error),
        &w.error);
    assert_ok_error(train_settings_finish(&options.settings, &w.error), &w.error);
    options.settings.threads = 1;
    if (stop_at > 0) {
        options.on_step = stop;
        options.on_step_context = &stop_at;
    }
    transport *transports[RANKS_MAX] = {NULL};
    uint32_t ranks = job->ranks > 0 ? job->ranks : 1;
    if (job->ranks > 0)
        assert_ok_error(transport_local(NULL, ranks, transports, &w.error), &w.error);
    if (fault.kind != NONE)
        make_faulty(transports[ranks - 1], &faulty);
    pthread_t threads[RANKS_MAX];
    for (uint32_t r = 0; r < ranks; r++) {
        all[r] = (rank){.options = &options, .transport = transports[r]};
        all[r].data = r > 0 && r == ranks - 1 ? job->other_data : NULL;
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &all[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    arena_free(&arena);
    return all[0];
}

static void run_good(const job *job, const char *like) {
    rank all[RANKS_MAX];
    run_job(job, all);
    for (uint32_t r = 0; r < (job->ranks > 0 ? job->ranks : 1); r++) {
        if (job->stop_at == 0)
            assert_ok_error(all[r].status, &all[r].error);
        else
            assert_int_equal(all[r].status, AVO_ERROR_CANCELLED);
        if (all[r].status == AVO_OK)
            assert_true(all[r].summary.loss == all[0].summary.loss);
    }
    if (like != NULL)
        assert_same_file(like, job->output, ADAPTER);
}

#define REST "\"steps\": 4, \"batch\": 5, \"lr\": 0.01, \"save_every\": 2, \"micro_batch\": "

static void any_number_of_ranks_gives_the_same_bytes(void **state) {
    (void)state;
    const char *rest = REST "1";
    run_good(&(job){.output = "alone", .task = "sft", .rest = rest}, NULL);
    run_good(&(job){.output = "one", .task = "sft", .rest = rest, .ranks = 1}, "alone");
    run_good(&(job){.output = "two", .task = "sft", .rest = rest, .ranks = 2}, "alone");
    run_good(&(job){.output = "four", .task = "sft", .rest = rest, .ranks = 4}, "alone");
    /* More ranks than micro-batches, and one that is not whole. */
    rest = REST "2";
    run_good(&(job){.output = "pairs", .task = "sft", .rest = rest}, NULL);
    run_good(&(job){.output = "pairs-four", .task = "sft", .rest = rest, .ranks = 4}, "pairs");
    /* Several ranks without the setting have micro-batches of one sample. */
    rest = "\"steps\": 4, \"batch\": 5, \"lr\": 0.01, \"save_every\": 2";
    run_good(&(job){.output = "default", .task = "sft", .rest = rest, .ranks = 3}, "alone");
}

static void a_run_is_continued_by_others(void **state) {
    (void)state;
    job first = {.output = "parts", .task = "sft", .rest = REST "1", .ranks = 3, .stop_at = 2};
    run_good(&first, NULL);
    job second = {.output = "parts",
                  .task = "sft",
                  .rest = REST "1",
                  .resume = true,
                  .ranks = 2,
                  .stop_at = 3};
    run_good(&second, NULL);
    job last = {.output = "parts", .task = "sft", .rest = REST "1", .resume = true};
    run_good(&last, "alone");
}

static void evaluations_are_divided(void **state) {
    (void)state;
    char rest[900];
    snprintf(rest, sizeof(rest), REST "2, \"eval_every\": 2, \"valid\": \"%s\"", w.texts);
    rank all[RANKS_MAX];
    rank alone = run_job(&(job){.output = "eval-one", .task = "sft", .rest = rest}, all);
    assert_ok_error(alone.status, &alone.error);
    rank three =
        run_job(&(job){.output = "eval-three", .task = "sft", .rest = rest, .ranks = 3}, all);
    assert_ok_error(three.status, &three.error);
    assert_true(three.summary.best == alone.summary.best);
    assert_int_equal(three.summary.best_step, alone.summary.best_step);
    assert_same_file("eval-one/best", "eval-three/best", ADAPTER);
}

/* At any exchange: of the beginning, of a step, of its end. */
static void a_rank_that_dies_is_an_error(void **state) {
    (void)state;
    rank all[RANKS_MAX];
    fault.kind = DIES;
    for (fault.at = 1; fault.at < 8; fault.at++) {
        char output[32];
        snprintf(output, sizeof(output), "dies-%u", fault.at);
        run_job(&(job){.output = output, .task = "sft", .rest = REST "1", .ranks = 3}, all);
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(all[r].status, AVO_ERROR_DEVICE);
            assert_non_null(strstr(all[r].error.text, "has left"));
        }
    }
    /* What rank 0 had written continues without the others. */
    fault.at = 12;
    job parts = {.output = "dead", .task = "sft", .rest = REST "1", .ranks = 2};
    run_job(&parts, all);
    assert_int_equal(all[0].status, AVO_ERROR_DEVICE);
    fault.kind = NONE;
    parts.ranks = 0;
    parts.resume = true;
    run_good(&parts, "alone");
}

static void a_rank_that_hangs_is_an_error(void **state) {
    (void)state;
    rank all[RANKS_MAX];
    fault.kind = HANGS;
    fault.at = 4;
    assert_int_equal(sem_init(&fault.over, 0, 0), 0);
    run_job(&(job){.output = "hangs",
                   .task = "sft",
                   .rest = REST "1",
                   .ranks = 2,
                   .timeout_ns = 300000000},
            all);
    fault.kind = NONE;
    sem_destroy(&fault.over);
    assert_refused(all[0].status, AVO_ERROR_DEVICE, &all[0].error,
                   "rank 1 has not answered for 0.3 s");
}

static void ranks_must_agree(void **state) {
    (void)state;
    rank all[RANKS_MAX];
    char other[600];
    write_text(other, "other.jsonl", "{\"text\": \"a dog\"}\n{\"text\": \"the cat\"}\n");
    run_job(
        &(job){
            .output = "differ", .task = "sft", .rest = REST "1", .ranks = 2, .other_data = other},
        all);
    for (uint32_t r = 0; r < 2; r++)
        assert_refused(all[r].status, AVO_ERROR_ARGUMENT, &all[r].error,
                       "rank 1 has other data than rank 0");
    run_job(&(job){.output = "dpo", .task = "dpo", .rest = "\"steps\": 1", .ranks = 2}, all);
    assert_true(all[0].status != AVO_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_gives_the_same_bytes),
        cmocka_unit_test(a_run_is_continued_by_others),
        cmocka_unit_test(evaluations_are_divided),
        cmocka_unit_test(a_rank_that_dies_is_an_error),
        cmocka_unit_test(a_rank_that_hangs_is_an_error),
        cmocka_unit_test(ranks_must_agree),
    };
    return cmocka_run_group_tests_name("train/ranks", tests, setup, teardown);
}
