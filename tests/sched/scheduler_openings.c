/* sched/scheduler while adapters are being opened: nobody waits but those who asked for them, and
 * these can end meanwhile; files that are written over while requests run; batches whose requests
 * are wrong. AVO_TEST_THREADS */
#include "sched/serving.h"

#include "adapters/adapters.h"

#include <fcntl.h>
#include <sys/stat.h>

typedef struct shop {
    world world;
    avo_registry *registry;
    char folder[2][4096], packed[4096];
    question question;
    avo_scheduler *closes;
} shop;

static void shop_open(shop *p, const world_options *given) {
    memset(p, 0, sizeof(*p));
    world_options options = *given;
    world *w = &p->world;
    world_open(w, &options);
    avo_scheduler_close(w->scheduler);
    assert_ok_error(avo_registry_open(w->model, NULL, &p->registry, &w->error), &w->error);
    options.scheduler.registry = p->registry;
    assert_ok_error(avo_scheduler_open(w->engine, &options.scheduler, &w->scheduler, &w->error),
                    &w->error);
    for (int i = 0; i < 2; i++) {
        snprintf(p->folder[i], sizeof(p->folder[i]), "%s/opening-%d", test_scratch_folder(), i);
        mkdir(p->folder[i], 0755);
        tiny_adapter_write(p->folder[i], (uint64_t)i + 1);
    }
    snprintf(p->packed, sizeof(p->packed), "%s/opening.avoa", test_scratch_folder());
    dice dice = {300, 0};
    roll_question(&p->question, &dice);
    p->question.token_count = 40;
    p->question.max_new_tokens = 4;
    p->question.stop_count = 0;
    p->question.stop_token = -1;
    p->question.ignore_end = true;
    p->question.sampling = (avo_sampling)AVO_SAMPLING_INIT;
}

static void shop_close(shop *p) {
    avo_scheduler_close(p->world.scheduler);
    p->world.scheduler = NULL;
    avo_registry_close(p->registry);
    world_close(&p->world);
}

static uint64_t submit(shop *p, const char *name, double first_token_deadline, seen *seen) {
    world *w = &p->world;
    avo_request request = request_of(&p->question, seen);
    avo_named_adapter named = {name, 1.0f};
    request.named_adapters = &named;
    request.named_adapter_count = name != NULL;
    request.first_token_deadline = first_token_deadline;
    uint64_t number;
    assert_ok_error(avo_scheduler_submit(w->scheduler, &request, &number, NULL, &w->error),
                    &w->error);
    return number;
}

static void wait_until(const atomic_int *number, int value) {
    while (atomic_load(number) != value)
        pause_ms(1);
}

static void gate_close(shop *p) {
    atomic_store(&p->world.counting.gate_bytes, sizeof(avo_adapter));
}

static void gate_open(shop *p) {
    atomic_store(&p->world.counting.gate_bytes, 0);
}

/* Two adapters that cannot be opened for now, several requests for each: requests without one
 * finish, those that are cancelled or late are told, and the others go on when it is there. */
static void an_opening_holds_up_nobody_else(void **state) {
    (void)state;
    enum { COLD = 6 };
    static shop p;
    static seen cold[COLD], other, cancelled, late, alone[2];
    memset(cold, 0, sizeof(cold));
    memset(alone, 0, sizeof(alone));
    other = cancelled = late = (seen){0};
    world_options options = WORLD_OPTIONS;
    shop_open(&p, &options);
    world *w = &p.world;
    for (int i = 0; i < 2; i++) {
        avo_adapter *adapter;
        assert_ok_error(avo_adapter_open(w->model, p.folder[i], NULL, &adapter, &w->error),
                        &w->error);
        p.question.uses[0] = (avo_adapter_use){adapter, 1.0f};
        p.question.use_count = 1;
        generate_alone(w, &p.question, &alone[i]);
        p.question.use_count = 0;
        avo_adapter_close(adapter);
        char name[32];
        snprintf(name, sizeof(name), "cold-%d", i);
        assert_ok_error(
            avo_registry_load(p.registry, name, p.folder[i], AVO_REGISTRY_LAZY, &w->error),
            &w->error);
    }
    gate_close(&p);
    for (int i = 0; i < COLD; i++)
        (void)submit(&p, i % 2 == 0 ? "cold-0" : "cold-1", 0.0, &cold[i]);
    wait_until(&w->counting.at_gate, 2);
    uint64_t number = submit(&p, "cold-0", 0.0, &cancelled);
    (void)submit(&p, "cold-1", 0.03, &late);
    (void)submit(&p, NULL, 0.0, &other);
    wait_until(&other.ended, 1);
    assert_int_equal(other.error.status, AVO_OK);
    assert_true(avo_scheduler_cancel(w->scheduler, number));
    wait_until(&cancelled.ended, 1);
    assert_int_equal(cancelled.finish, AVO_FINISH_CANCELLED);
    wait_until(&late.ended, 1);
    assert_int_equal(late.finish, AVO_FINISH_DEADLINE);
    for (int i = 0; i < COLD; i++)
        assert_int_equal(atomic_load(&cold[i].ended), 0);
    assert_int_equal(atomic_load(&w->counting.at_gate), 2); /* each is opened once */
    gate_open(&p);
    for (int i = 0; i < COLD; i++) {
        wait_until(&cold[i].ended, 1);
        same_answer(&cold[i], &alone[i % 2]);
    }
    shop_close(&p);
}

static void *open_gate_while_closing(void *context) {
    shop *p = context;
    wait_until_closing(p->closes);
    gate_open(p);
    return NULL;
}

/* Whatever is parked when the scheduler is closed ends cancelled, once. */
static void closed_while_an_adapter_is_opened(void **state) {
    (void)state;
    static shop p;
    static seen cold[5];
    memset(cold, 0, sizeof(cold));
    world_options options = WORLD_OPTIONS;
    shop_open(&p, &options);
    world *w = &p.world;
    assert_ok_error(
        avo_registry_load(p.registry, "cold", p.folder[0], AVO_REGISTRY_LAZY, &w->error),
        &w->error);
    gate_close(&p);
    for (int i = 0; i < 5; i++) {
        (void)submit(&p, "cold", i == 4 ? 1000.0 : 0.0, &cold[i]);
        if (i == 0)
            wait_until(&w->counting.at_gate, 1);
    }
    pthread_t thread;
    p.closes = w->scheduler;
    assert_int_equal(pthread_create(&thread, NULL, open_gate_while_closing, &p), 0);
    avo_scheduler_close(w->scheduler);
    w->scheduler = NULL;
    pthread_join(thread, NULL);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(&cold[i].ended), 1);
        assert_int_equal(cold[i].finish, AVO_FINISH_CANCELLED);
    }
    shop_close(&p);
}

/* What cannot be opened fails for all who asked, those who came meanwhile included. */
static void an_opening_that_fails(void **state) {
    (void)state;
    static shop p;
    static seen bad[5];
    memset(bad, 0, sizeof(bad));
    world_options options = WORLD_OPTIONS;
    shop_open(&p, &options);
    world *w = &p.world;
    char config[5000];
    snprintf(config, sizeof(config), "%s/adapter_config.json", p.folder[1]);
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    assert_true(fputs("{}", file) >= 0);
    fclose(file);
    assert_ok_error(avo_registry_load(p.registry, "bad", p.folder[1], AVO_REGISTRY_LAZY, &w->error),
                    &w->error);
    gate_close(&p);
    for (int i = 0; i < 5; i++) {
        (void)submit(&p, "bad", 0.0, &bad[i]);
        if (i == 1)
            wait_until(&w->counting.at_gate, 1);
    }
    gate_open(&p);
    for (int i = 0; i < 5; i++) {
        wait_until(&bad[i].ended, 1);
        assert_int_equal(bad[i].error.status, AVO_ERROR_FORMAT);
        assert_non_null(strstr(bad[i].error.text, "adapter_config.json"));
    }
    shop_close(&p);
}

/* A packed file that is touched while requests run, some of which are preempted: they began with
 * it, and finish with it. */
static void touched_while_requests_run(void **state) {
    (void)state;
    enum { COUNT = 4 };
    static shop p;
    static seen flying[COUNT], alone;
    uint32_t preemptions = 0;
    memset(&alone, 0, sizeof(alone));
    world_options options = WORLD_OPTIONS;
    options.kv_tokens = 192;
    options.scheduler.no_prefix_cache = true; /* what is preempted begins from nothing */
    shop_open(&p, &options);
    world *w = &p.world;
    avo_adapter *adapter;
    assert_ok_error(avo_adapter_open(w->model, p.folder[0], NULL, &adapter, &w->error), &w->error);
    assert_ok_error(avo_adapter_pack(adapter, p.packed, &w->error), &w->error);
    p.question.max_new_tokens = 140;
    p.question.uses[0] = (avo_adapter_use){adapter, 1.0f};
    p.question.use_count = 1;
    generate_alone(w, &p.question, &alone);
    avo_adapter_close(adapter);
    assert_ok_error(avo_registry_load(p.registry, "packed", p.packed, 0, &w->error), &w->error);
    for (int round = 0; round < 2; round++) { /* by name, then by handle */
        avo_adapter *handle = NULL;
        memset(flying, 0, sizeof(flying));
        p.question.use_count = round == 0 ? 0 : 1;
        if (round == 1)
            assert_ok_error(avo_adapter_open(w->model, p.packed, NULL, &handle, &w->error),
                            &w->error);
        p.question.uses[0].adapter = handle;
        for (int i = 0; i < COUNT; i++)
            (void)submit(&p, round == 0 ? "packed" : NULL, 0.0, &flying[i]);
        for (int i = 0; i < COUNT - 1; i++) /* the last one waits for pages */
            while (atomic_load(&flying[i].tokens_now) < 1 && atomic_load(&flying[i].ended) == 0)
                pause_ms(0);
        struct timespec times[2] = {{.tv_sec = 1000000 + round}, {.tv_sec = 1000000 + round}};
        assert_int_equal(utimensat(AT_FDCWD, p.packed, times, 0), 0);
        for (int i = 0; i < COUNT; i++) {
            wait_until(&flying[i].ended, 1);
            same_answer(&flying[i], &alone);
            preemptions += flying[i].result.preemptions;
        }
        if (round == 1) { /* whoever comes now is told */
            static seen after;
            memset(&after, 0, sizeof(after));
            (void)submit(&p, NULL, 0.0, &after);
            wait_until(&after.ended, 1);
            assert_int_equal(after.error.status, AVO_ERROR_FORMAT);
            assert_non_null(strstr(after.error.text, "changed on disk"));
        }
        avo_adapter_close(handle);
    }
    assert_true(preemptions > 0);
    shop_close(&p);
}

/* ---- Batches whose requests are wrong ---- */

typedef struct wrong_batch {
    world *world;
    atomic_int heard, most, stop_at;
} wrong_batch;

static bool on_wrong_event(void *context, const avo_event *event) {
    wrong_batch *b = context;
    assert_int_equal(event->kind, AVO_EVENT_FAILED);
    assert_int_equal(event->index, atomic_load(&b->heard)); /* in order */
    pthread_mutex_lock(&b->world->scheduler->lock);
    int live = (int)b->world->scheduler->live;
    pthread_mutex_unlock(&b->world->scheduler->lock);
    if (live > atomic_load(&b->most))
        atomic_store(&b->most, live);
    atomic_fetch_add(&b->heard, 1);
    while (atomic_load(&b->heard) == atomic_load(&b->stop_at))
        pause_ms(1);
    return true;
}

static void *call_wrong(void *context) {
    wrong_batch *b = context;
    enum { WRONG = 3000 };
    avo_request *requests = calloc(WRONG, sizeof(*requests));
    assert_non_null(requests);
    for (int i = 0; i < WRONG; i++)
        requests[i] = (avo_request)AVO_REQUEST_INIT; /* without a prompt */
    avo_error error = {0};
    assert_ok_error(
        avo_scheduler_batch(b->world->scheduler, requests, WRONG, NULL, on_wrong_event, b, &error),
        &error);
    assert_int_equal(atomic_load(&b->heard), WRONG);
    free(requests);
    return NULL;
}

/* Requests that fail at once are bounded like all others, and take nobody's room. */
static void wrong_requests_are_bounded(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.waiting_max = 4;
    world_open(&w, &options);
    exam e = exam_make(&w, 1, 310);
    static wrong_batch b;
    b = (wrong_batch){.world = &w, .stop_at = 10};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_wrong, &b), 0);
    wait_until(&b.heard, 10);
    pause_ms(50);        /* the batch goes on as far as it may */
    exam_submit(&w, &e); /* there is room */
    atomic_store(&b.stop_at, 0);
    pthread_join(thread, NULL);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(atomic_load(&e.seen[0].ended), 1);
    assert_true(atomic_load(&b.most) <= (int)SCHEDULER_REJECTED_MAX + 1);
    exam_free(&e);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_opening_holds_up_nobody_else),
                                       cmocka_unit_test(closed_while_an_adapter_is_opened),
                                       cmocka_unit_test(an_opening_that_fails),
                                       cmocka_unit_test(touched_while_requests_run),
                                       cmocka_unit_test(wrong_requests_are_bounded)};
    return cmocka_run_group_tests_name("sched/scheduler_openings", tests, NULL, NULL);
}
