/* Earlier answers in a file: what one scheduler saved, the next one drafts from; files that are
 * damaged or of another model are refused; saving while requests run changes no answer; and events
 * say which tokens were drafts. AVO_TEST_THREADS */
#include "sched/serving.h"

#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

static void scratch_path(char path[512], const char *name) {
    snprintf(path, 512, "%s/%s", test_scratch_folder(), name);
}

typedef struct listener {
    int32_t ids[EVENTS_MAX];
    uint32_t count, drafted;
    avo_result result;
    atomic_int ended;
} listener;

typedef struct place {
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    avo_error error;
} place;

static avo_status place_open(place *p, uint32_t seed, const char *speculate, const char *corpus) {
    *p = (place){0};
    const char *path = tiny_model_write(test_scratch_folder(), seed);
    assert_ok_error(avo_model_open(path, NULL, &p->model, &p->error), &p->error);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = 256;
    options.sessions_max = 3;
    options.speculate = speculate;
    options.draft_controller = "fixed"; /* drafts that do not depend on the clock */
    assert_ok_error(avo_engine_open(p->model, &options, &p->engine, &p->error), &p->error);
    avo_scheduler_options scheduling = AVO_SCHEDULER_OPTIONS_INIT;
    scheduling.draft_corpus = corpus;
    return avo_scheduler_open(p->engine, &scheduling, &p->scheduler, &p->error);
}

static void place_close(place *p) {
    avo_scheduler_close(p->scheduler);
    avo_engine_close(p->engine);
    avo_model_close(p->model);
}

static bool listen_to(void *context, const avo_event *event) {
    listener *l = context;
    if (event->kind == AVO_EVENT_TOKEN && event->token->token >= 0) {
        l->ids[l->count++] = event->token->token;
        l->drafted += event->token->drafted;
    } else if (event->kind == AVO_EVENT_FINISHED) {
        l->result = *event->result;
    }
    if (event->kind == AVO_EVENT_FINISHED || event->kind == AVO_EVENT_FAILED)
        atomic_fetch_add(&l->ended, 1);
    return true;
}

#define ANSWER 60

static avo_request request_for(listener *l, const char *tenant) {
    static const int32_t prompt[] = {5, 40, 17, 9, 33, 21, 8, 50, 12, 13};
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = sizeof(prompt) / sizeof(prompt[0]);
    request.max_new_tokens = ANSWER;
    request.ignore_end = true;
    request.tenant = tenant;
    request.on_event = listen_to;
    request.on_event_context = l;
    *l = (listener){.ids = {0}};
    return request;
}

static void answer(place *p, listener *l, const char *tenant) {
    avo_request request = request_for(l, tenant);
    assert_ok_error(avo_scheduler_submit(p->scheduler, &request, NULL, NULL, &p->error), &p->error);
    while (atomic_load(&l->ended) == 0)
        pause_ms(1);
    assert_int_equal(l->count, ANSWER);
}

static void the_next_one_drafts_from_it(void **state) {
    (void)state;
    place p;
    listener plain, first, again, other;
    assert_ok(place_open(&p, 3, "off", NULL));
    answer(&p, &plain, NULL);
    assert_int_equal(plain.drafted + plain.result.drafted_tokens, 0);
    place_close(&p);
    char path[512];
    scratch_path(path, "drafts.corpus");
    (void)unlink(path);
    assert_ok(place_open(&p, 3, "corpus", path)); /* none is there yet */
    answer(&p, &first, "one");
    assert_ok_error(avo_scheduler_save_corpus(p.scheduler, path, &p.error), &p.error);
    place_close(&p);
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_ok_error(place_open(&p, 3, "corpus", path), &p.error);
    answer(&p, &again, "one");
    answer(&p, &other, "two");
    assert_memory_equal(first.ids, plain.ids, sizeof(plain.ids));
    assert_memory_equal(again.ids, plain.ids, sizeof(plain.ids));
    assert_memory_equal(other.ids, plain.ids, sizeof(plain.ids));
    /* The whole answer is known to its tenant, and to nobody else. */
    assert_true(again.result.accepted_tokens > ANSWER * 3 / 4);
    assert_int_equal(other.result.accepted_tokens, first.result.accepted_tokens);
    assert_true(other.result.accepted_tokens < ANSWER / 2);
    /* Events say the same; the last token may be a draft that was no gain. */
    assert_in_range(again.drafted, again.result.accepted_tokens, again.result.accepted_tokens + 1);
    place_close(&p);
}

static void refused(uint32_t seed, const char *speculate, const char *path, avo_status status,
                    const char *text) {
    place p;
    assert_int_equal(place_open(&p, seed, speculate, path), status);
    if (strstr(p.error.text, text) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", p.error.text, text);
    assert_null(p.scheduler);
    place_close(&p);
}

static void wrong_files_are_refused(void **state) {
    (void)state;
    place p;
    listener l;
    char path[512];
    scratch_path(path, "other.corpus");
    assert_ok(place_open(&p, 3, NULL, NULL));
    answer(&p, &l, NULL);
    assert_ok_error(avo_scheduler_save_corpus(p.scheduler, path, &p.error), &p.error);
    assert_refused(avo_scheduler_save_corpus(p.scheduler, "/nowhere/at/all", &p.error),
                   AVO_ERROR_IO, &p.error, "/nowhere");
    place_close(&p);
    refused(4, NULL, path, AVO_ERROR_ARGUMENT, "another model");
    refused(3, "off", path, AVO_ERROR_ARGUMENT, "\"corpus\"");
    refused(3, "suffix", path, AVO_ERROR_ARGUMENT, "\"corpus\"");
    assert_int_equal(truncate(path, 150), 0);
    refused(3, NULL, path, AVO_ERROR_FORMAT, "bytes");
    assert_ok(file_write(path, "text", 4, NULL));
    refused(3, NULL, path, AVO_ERROR_FORMAT, "too short");
    assert_ok(place_open(&p, 3, "suffix", NULL));
    assert_refused(avo_scheduler_save_corpus(p.scheduler, path, &p.error), AVO_ERROR_ARGUMENT,
                   &p.error, "\"corpus\"");
    place_close(&p);
}

typedef struct saver {
    place *p;
    atomic_int stop;
    int saved;
} saver;

static void *save_often(void *context) {
    saver *s = context;
    char path[512];
    scratch_path(path, "often.corpus");
    do {
        avo_error error = {0};
        if (avo_scheduler_save_corpus(s->p->scheduler, path, &error) == AVO_OK)
            s->saved++;
    } while (atomic_load(&s->stop) == 0);
    return NULL;
}

/* Two threads save all the while, also while nothing runs, and until the scheduler closes. */
static void saving_while_requests_run(void **state) {
    (void)state;
    place p;
    listener plain, l;
    assert_ok(place_open(&p, 3, NULL, NULL));
    saver savers[2] = {{.p = &p}, {.p = &p}};
    pthread_t threads[2];
    answer(&p, &plain, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, save_often, &savers[i]), 0);
    for (int i = 0; i < 6; i++) {
        answer(&p, &l, NULL);
        assert_memory_equal(l.ids, plain.ids, sizeof(plain.ids));
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&savers[i].stop, 1);
        pthread_join(threads[i], NULL);
        assert_true(savers[i].saved > 0);
    }
    place_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_one_drafts_from_it),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(saving_while_requests_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
