/* sched/scheduler with a registry: adapters are loaded, replaced and unloaded while requests run.
 * Whoever asks after a load gets the new version, requests in flight keep theirs, nothing stale is
 * served and nothing is left over. AVO_TEST_THREADS */
#include "sched/serving.h"

#include <sys/stat.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CYCLES 300
#else
#define CYCLES 10000
#endif
#define VERSIONS 3
#define TRAFFIC  3 /* threads */
#define NAMES    4 /* that traffic uses, and cycles change */
#define BASE     VERSIONS

typedef struct registry_world {
    world world;
    avo_registry *registry;
    char folder[VERSIONS][128];
    question question;
    seen answer[VERSIONS + 1]; /* of each version, and of the base alone */
    atomic_bool stop;
    atomic_int asked, failed;
} registry_world;

static void open_versions(registry_world *r) {
    world *w = &r->world;
    dice dice = {200, 0};
    roll_question(&r->question, &dice);
    r->question.token_count = 40;
    r->question.max_new_tokens = 3;
    r->question.stop_count = 0;
    r->question.stop_token = -1;
    r->question.ignore_end = true;
    r->question.sampling = (avo_sampling)AVO_SAMPLING_INIT;
    for (int i = 0; i < VERSIONS; i++) {
        snprintf(r->folder[i], sizeof(r->folder[i]), "version-%d", i);
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), r->folder[i]);
        mkdir(path, 0755);
        tiny_adapter_write(path, (uint64_t)i + 1);
        avo_adapter *adapter;
        assert_ok_error(avo_adapter_open(w->model, path, NULL, &adapter, &w->error), &w->error);
        r->question.uses[0] = (avo_adapter_use){adapter, 1.0f};
        r->question.use_count = 1;
        generate_alone(w, &r->question, &r->answer[i]);
        avo_adapter_close(adapter);
        r->question.use_count = 0;
    }
    generate_alone(w, &r->question, &r->answer[BASE]);
    for (int i = 0; i < VERSIONS; i++) /* they can be told apart by the first token's logprob */
        for (int n = i + 1; n <= BASE; n++)
            assert_true(
                memcmp(&r->answer[i].event[0], &r->answer[n].event[0], sizeof(seen_token)) != 0);
}

static void registry_world_open(registry_world *r, uint64_t memory_max) {
    memset(r, 0, sizeof(*r));
    world_options options = WORLD_OPTIONS;
    world_open(&r->world, &options);
    avo_scheduler_close(r->world.scheduler);
    avo_registry_options registry = AVO_REGISTRY_OPTIONS_INIT;
    registry.root = test_scratch_folder();
    registry.memory_max = memory_max;
    world *w = &r->world;
    assert_ok_error(avo_registry_open(w->model, &registry, &r->registry, &w->error), &w->error);
    options.scheduler.registry = r->registry;
    assert_ok_error(avo_scheduler_open(w->engine, &options.scheduler, &w->scheduler, &w->error),
                    &w->error);
    open_versions(r);
}

static void registry_world_close(registry_world *r) {
    avo_scheduler_close(r->world.scheduler);
    r->world.scheduler = NULL;
    avo_registry_close(r->registry);
    world_close(&r->world); /* counts what was not given back */
}

/* Which of the answers it is; −1: none of them. */
static int version_of(const registry_world *r, const seen *seen) {
    for (int i = 0; i <= BASE; i++)
        if (seen->count == r->answer[i].count &&
            memcmp(seen->event, r->answer[i].event, seen->count * sizeof(seen_token)) == 0)
            return i;
    return -1;
}

/* Asks by name and waits. */
static void ask(registry_world *r, const char *name, seen *seen) {
    memset(seen, 0, sizeof(*seen));
    avo_request request = request_of(&r->question, NULL);
    avo_named_adapter named = {name, 1.0f};
    request.named_adapters = &named;
    request.named_adapter_count = 1;
    avo_error error = {0};
    assert_ok_error(
        avo_scheduler_batch(r->world.scheduler, &request, 1, NULL, on_event, seen, &error), &error);
}

/* Traffic: any version is right, the base never; a name that is not there fails by name. */
static void *traffic(void *context) {
    registry_world *r = context;
    seen *seen_it = malloc(sizeof(*seen_it));
    for (int n = 0; seen_it != NULL && !atomic_load(&r->stop); n++) {
        char name[16];
        snprintf(name, sizeof(name), "style-%d", n % NAMES);
        ask(r, name, seen_it);
        atomic_fetch_add(&r->asked, 1);
        int version = version_of(r, seen_it);
        bool missing = seen_it->error.status == AVO_ERROR_NOT_FOUND && seen_it->count == 0;
        if (!missing && (version < 0 || version == BASE))
            atomic_fetch_add(&r->failed, 1);
    }
    free(seen_it);
    return NULL;
}

static void cycles_under_traffic(void **state) {
    (void)state;
    static registry_world r;
    registry_world_open(&r, 0);
    world *w = &r.world;
    pthread_t thread[TRAFFIC];
    for (int i = 0; i < TRAFFIC; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, traffic, &r), 0);
    static seen seen_it;
    dice dice = {201, 0};
    int loaded[NAMES];
    for (int i = 0; i < NAMES; i++)
        loaded[i] = -1;
    for (int cycle = 0; cycle < CYCLES || atomic_load(&r.asked) <= 10; cycle++) {
        char name[16];
        uint32_t which = roll(&dice, NAMES);
        snprintf(name, sizeof(name), "style-%u", which);
        if (loaded[which] >= 0 && roll(&dice, 3) == 0) {
            assert_ok_error(avo_registry_unload(r.registry, name, &w->error), &w->error);
            loaded[which] = -1;
        } else {
            int version = (int)roll(&dice, VERSIONS);
            uint32_t flags = roll(&dice, 2) == 0 ? AVO_REGISTRY_LAZY : 0;
            assert_ok_error(
                avo_registry_load(r.registry, name, r.folder[version], flags, &w->error),
                &w->error);
            loaded[which] = version;
        }
        if (cycle % 4 != 0)
            continue;
        ask(&r, name, &seen_it); /* what was just done is what counts */
        if (loaded[which] < 0)
            assert_int_equal(seen_it.error.status, AVO_ERROR_NOT_FOUND);
        else
            assert_int_equal(version_of(&r, &seen_it), loaded[which]);
    }
    atomic_store(&r.stop, true);
    for (int i = 0; i < TRAFFIC; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&r.failed), 0);
    print_message("%d cycles, %d requests meanwhile\n", CYCLES, atomic_load(&r.asked));
    registry_world_close(&r);
}

/* A request that runs keeps its version though the name is replaced, then gone. */
static void in_flight_keeps_its_version(void **state) {
    (void)state;
    static registry_world r;
    registry_world_open(&r, 0);
    world *w = &r.world;
    assert_ok_error(avo_registry_load(r.registry, "style", r.folder[0], 0, &w->error), &w->error);
    r.question.max_new_tokens = 120;
    static seen alone, flying;
    memset(&flying, 0, sizeof(flying));
    memset(&alone, 0, sizeof(alone));
    avo_adapter *adapter;
    assert_ok_error(avo_registry_take(r.registry, "style", &adapter, &w->error), &w->error);
    r.question.uses[0] = (avo_adapter_use){adapter, 1.0f};
    r.question.use_count = 1;
    generate_alone(w, &r.question, &alone);
    r.question.use_count = 0;
    avo_adapter_close(adapter);
    avo_request request = request_of(&r.question, &flying);
    avo_named_adapter named = {"style", 1.0f};
    request.named_adapters = &named;
    request.named_adapter_count = 1;
    assert_ok_error(avo_scheduler_submit(w->scheduler, &request, NULL, NULL, &w->error), &w->error);
    while (atomic_load(&flying.tokens_now) < 2 && atomic_load(&flying.ended) == 0)
        pause_ms(0);
    assert_ok_error(avo_registry_load(r.registry, "style", r.folder[1], 0, &w->error), &w->error);
    assert_ok_error(avo_registry_unload(r.registry, "style", &w->error), &w->error);
    assert_true(avo_scheduler_drain(w->scheduler, PATIENCE));
    same_answer(&flying, &alone);
    registry_world_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cycles_under_traffic),
                                       cmocka_unit_test(in_flight_keeps_its_version)};
    return cmocka_run_group_tests_name("sched/scheduler_registry", tests, NULL, NULL);
}
