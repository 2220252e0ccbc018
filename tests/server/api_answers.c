/* Answers on exchanges of the test's own (AVO_TEST_THREADS): clients that go and that read too
 * slowly, a scheduler that is full or is closed in the middle, lists that are longer than its
 * queue. Whatever happens, there is exactly one end. */
#include "api_fixture.h"

#include "base/clock.h"
#include "base/random.h"

#define LONG "\"prompt\":\"hello\",\"ignore_eos\":true,\"max_tokens\":150"

/* ---- Tests ---- */

/* What the pulse heard; the scheduler, which may hang, is not asked (it would say 0). */
static void test_health_asks_nobody(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 4, 64);
    static const char *const paths[] = {"/health", "/ready"};
    for (int i = 0; i < 2; i++) {
        kept asked;
        ask(&asked, "");
        asked.base.asked.method = "GET";
        asked.base.asked.path = paths[i];
        handle(&asked);
        finish(&asked);
        assert_int_equal(asked.status, 200);
        assert_non_null(strstr(asked.body.data, "\"running\":3,\"waiting\":4,\"steps\":5,"));
        done(&asked);
    }
    fixture_close(&w);
}

static void test_closed_in_the_middle(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 4, 64);
    kept streamed[3], whole;
    for (int i = 0; i < 3; i++) {
        ask(&streamed[i], "{" LONG ",\"stream\":true,\"n\":4}");
        handle(&streamed[i]);
    }
    ask(&whole, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"],\"n\":8}");
    handle(&whole);
    for (bool speaks = false; !speaks; pause_shortly()) { /* until the first one does */
        pthread_mutex_lock(&streamed[0].lock);
        speaks = streamed[0].writes > 2;
        pthread_mutex_unlock(&streamed[0].lock);
    }
    close_scheduler(&w);
    for (int i = 0; i < 3; i++) {
        finish(&streamed[i]);
        const char *error = strstr(streamed[i].body.data, "shutting_down");
        if (error == NULL) /* a choice that had still to be submitted */
            error = strstr(streamed[i].body.data, "overloaded");
        if (streamed[i].streams > 0 && error == NULL) /* it was faster */
            assert_non_null(strstr(streamed[i].body.data, "[DONE]"));
        if (streamed[i].streams > 0 && error != NULL)
            assert_null(strstr(streamed[i].body.data, "[DONE]"));
        if (streamed[i].streams == 0)
            assert_int_equal(streamed[i].status, 503);
        done(&streamed[i]);
    }
    finish(&whole);
    assert_true(whole.status == 503 || whole.status == 200);
    done(&whole);
    fixture_close(&w);
}

static void test_slow_reader_is_cancelled(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 2, 64);
    kept slow;
    ask(&slow, "{" LONG ",\"stream\":true,\"n\":8}");
    slow.writes_max = 3;
    handle(&slow);
    finish(&slow);
    assert_null(strstr(slow.body.data, "[DONE]"));
    assert_true(slow.usage.prompt_tokens > 0 && slow.usage.new_tokens > 0); /* they were computed */
    nothing_left(&w);
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w.scheduler, &info);
    assert_true(info.new_tokens < 8 * 150);
    done(&slow);
    fixture_close(&w);
}

static void test_client_goes(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 2, 64);
    for (int round = 0; round < 20; round++) {
        kept gone;
        ask(&gone, round % 2 == 0 ? "{" LONG ",\"n\":6}" : "{" LONG ",\"n\":6,\"stream\":true}");
        handle(&gone);
        const struct timespec pause = {0, round * 300000L};
        nanosleep(&pause, NULL);
        atomic_store(&gone.left, true);
        pthread_mutex_lock(&gone.lock); /* as the HTTP half does: no end while this runs */
        if (gone.gone != NULL)
            gone.gone(gone.gone_context);
        pthread_mutex_unlock(&gone.lock);
        finish(&gone);
        done(&gone);
    }
    nothing_left(&w);
    fixture_close(&w);
}

/* The server ends it, and its client is there to hear why. */
static void test_called_off(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 2, 64);
    for (int round = 0; round < 20; round++) {
        kept asked;
        bool stream = round % 2 == 1;
        ask(&asked, stream ? "{" LONG ",\"n\":6,\"stream\":true}" : "{" LONG ",\"n\":6}");
        handle(&asked);
        const struct timespec pause = {0, round * 300000L};
        nanosleep(&pause, NULL);
        while (!ended(&asked)) {
            pthread_mutex_lock(&asked.lock);
            if (asked.gone != NULL)
                asked.gone(asked.gone_context);
            pthread_mutex_unlock(&asked.lock);
            pause_shortly();
        }
        finish(&asked);
        assert_int_not_equal(asked.status, 499);
        const char *error = strstr(asked.body.data, "shutting_down");
        if (asked.streams > 0) /* or it was faster */
            assert_true((error != NULL) != (strstr(asked.body.data, "[DONE]") != NULL));
        else
            assert_int_equal(asked.status, error != NULL ? 503 : 200);
        done(&asked);
    }
    nothing_left(&w);
    fixture_close(&w);
}

/* Before anything was submitted: choices that wait for the first one have their end, too. */
static void test_client_has_gone(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 2, 64);
    const char *const bodies[] = {"{" LONG "}", "{" LONG ",\"n\":2}",
                                  "{" LONG ",\"n\":6,\"stream\":true}",
                                  "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":3}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        kept gone;
        ask(&gone, bodies[i]);
        gone.gone_already = true;
        handle(&gone);
        finish(&gone);
        assert_int_equal(gone.status, 499);
        done(&gone);
    }
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w.scheduler, &info);
    assert_int_equal(info.submitted, 0);
    fixture_close(&w);
}

static void test_full(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 1, 2);
    int refused = 0;
    while (refused == 0) { /* the engine may have been faster than this thread */
        kept many[12];
        for (int i = 0; i < 12; i++) {
            ask(&many[i], "{" LONG "}");
            handle(&many[i]);
        }
        for (int i = 0; i < 12; i++) {
            finish(&many[i]);
            assert_true(many[i].status == 200 || many[i].status == 503);
            refused += many[i].status == 503;
            assert_int_equal(many[i].retry_after, many[i].status == 503);
            done(&many[i]);
        }
        assert_true(refused < 12);
    }
    fixture_close(&w);
}

static void test_list_longer_than_the_queue(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 2, 2);
    char body[1024] = "{\"max_tokens\":3,\"n\":2,\"seed\":1,\"prompt\":[\"p\"";
    for (int i = 0; i < 40; i++)
        memcpy(body + strlen(body), ",\"p\"", 5);
    memcpy(body + strlen(body), "]}", 3);
    kept long_list;
    ask(&long_list, body);
    handle(&long_list);
    finish(&long_list);
    assert_int_equal(long_list.status, 200);
    assert_non_null(strstr(long_list.body.data, "\"index\":81,"));
    assert_null(strstr(long_list.body.data, "\"index\":82,"));
    done(&long_list);
    fixture_close(&w);
}

/* ---- Deadlines ---- */

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        count++;
    return count;
}

/* A step that fails fails its request alone, whole and in a stream, and says so. */
static void test_device_that_fails(void **state) {
    (void)state;
    fixture w;
    fixture_open_on(&w, "remote:every=97", 2, 64);
    unsigned failed[2] = {0}, answered[2] = {0};
    for (size_t i = 0; i < 500 && (failed[0] * answered[0] * failed[1] * answered[1] == 0); i++) {
        kept asked;
        /* Of random lengths: requests of equal ones could be in step with the failures. */
        random_block random = random_at(1, 2, i);
        size_t kind = random.words[0] & 1;
        char body[96];
        snprintf(body, sizeof(body), "{\"prompt\":\"once\",\"max_tokens\":%u,\"stream\":%s}",
                 1 + random.words[1] % 6, kind == 1 ? "true" : "false");
        ask(&asked, body);
        handle(&asked);
        finish(&asked);
        bool good = strstr(asked.body.data, "device_failed") == NULL;
        if (!good && asked.streams == 0)
            assert_int_equal(asked.status, 500);
        if (!good)
            assert_non_null(strstr(asked.body.data, "send it again: device remote: "));
        assert_null(strstr(asked.body.data, "internal_error"));
        (good ? answered : failed)[kind]++;
        done(&asked);
    }
    assert_true(failed[0] > 0 && answered[0] > 0 && failed[1] > 0 && answered[1] > 0);
    fixture_close(&w);
}

/* They count from when the request came, not from when a choice is submitted. */
static void test_deadline_that_has_passed(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 2, 64);
    static const char *const bodies[] = {"{" LONG ",\"n\":3,\"deadline_ms\":5000}",
                                         "{" LONG ",\"n\":3,\"deadline_ms\":5000,\"stream\":true}",
                                         "{" LONG ",\"first_token_deadline_ms\":5000}"};
    for (size_t i = 0; i < 3; i++) {
        kept late;
        ask(&late, bodies[i]);
        late.base.asked.arrived_ns = clock_now_ns() - 6000000000u;
        handle(&late);
        finish(&late);
        assert_int_equal(late.status, 504);
        assert_non_null(strstr(late.body.data, "deadline_exceeded"));
        done(&late);
    }
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w.scheduler, &info);
    assert_int_equal(info.submitted, 0);
    fixture_close(&w);
}

/* Whenever it passes, every choice has one end, or the whole is 504. */
static void test_deadline_in_the_middle(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 1, 64);
    for (int round = 0; round < 26; round++) {
        kept asked;
        bool stream = round % 2 == 1;
        char body[256];
        snprintf(body, sizeof(body), "{" LONG ",\"n\":6,\"deadline_ms\":%d,\"stream\":%s}",
                 round < 24 ? 1 + round * 4 : 1000000, stream ? "true" : "false");
        ask(&asked, body);
        handle(&asked);
        finish(&asked);
        if (asked.status == 200) {
            assert_int_equal(count_of(asked.body.data, "\"finish_reason\":\"length\""), 6);
            assert_int_equal(count_of(asked.body.data, "[DONE]"), stream);
        } else {
            assert_int_equal(asked.status, 504);
            assert_true(round < 24);
        }
        done(&asked);
    }
    fixture_close(&w);
}

/* ---- Room ---- */

typedef struct crowd {
    avo_scheduler *scheduler;
    atomic_bool over;
} crowd;

static bool ignore_event(void *context, const avo_event *event) {
    (void)context;
    (void)event;
    return true;
}

/* Others, who fill the queue again as soon as there is room. */
static void *crowd_main(void *context) {
    crowd *crowd = context;
    avo_request request = AVO_REQUEST_INIT;
    request.text = "other";
    request.max_new_tokens = 8;
    request.ignore_end = true;
    request.on_event = ignore_event;
    while (!atomic_load(&crowd->over)) {
        avo_error error = {0};
        if (avo_scheduler_submit(crowd->scheduler, &request, NULL, NULL, &error) != AVO_OK)
            pause_shortly();
    }
    return NULL;
}

/* Where a choice has been computed, the others wait for room: nothing is thrown away. */
static void test_choices_wait_for_room(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 1, 1);
    crowd crowd = {.scheduler = w.scheduler};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, crowd_main, &crowd), 0);
    int answered = 0;
    while (answered < 4) {
        kept asked;
        bool stream = answered % 2 == 1;
        ask(&asked, stream ? "{\"prompt\":\"a\",\"max_tokens\":4,\"n\":3,\"ignore_eos\":true,"
                             "\"stream\":true}"
                           : "{\"prompt\":\"a\",\"max_tokens\":4,\"n\":3,\"ignore_eos\":true}");
        handle(&asked);
        finish(&asked);
        if (asked.streams > 0 || asked.usage.new_tokens > 0) {
            assert_int_equal(asked.status, 200);
            assert_int_equal(count_of(asked.body.data, "\"finish_reason\":\"length\""), 3);
            assert_null(strstr(asked.body.data, "\"error\""));
            answered++;
        } else {
            assert_int_equal(asked.status, 503); /* before anything was computed */
            pause_shortly();
        }
        done(&asked);
    }
    atomic_store(&crowd.over, true);
    pthread_join(thread, NULL);
    nothing_left(&w);
    fixture_close(&w);
}

/* ---- Large bodies ---- */

/* A conversation with a call whose arguments are `bytes` of numbers. */
static void write_arguments(buffer *body, size_t bytes, const char *end) {
    buffer_init(body, NULL, SIZE_MAX);
    assert_ok(buffer_append_text(
        body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
              "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[1"));
    for (size_t i = 0; i < bytes / 2; i++)
        assert_ok(buffer_append_text(body, ",1"));
    assert_ok(buffer_append_text(body, end));
    assert_ok(buffer_append_text(body, "\"}}]}]}"));
    assert_ok(buffer_terminate(body));
}

/* Every family's body is read by a reader, not by the thread that everybody's streams need. */
static void test_large_bodies_are_read_elsewhere(void **state) {
    (void)state;
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                        "/v1/messages", "/v1/embeddings"};
    fixture w;
    fixture_open(&w, 2, 64);
    char *large = malloc(20001);
    memset(large, 'x', 20000);
    large[20000] = '\0';
    for (int size = 0; size < 2; size++)
        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
            kept asked;
            ask(&asked, size == 0 ? "not JSON" : large);
            asked.base.asked.path = paths[i];
            handle(&asked);
            finish(&asked);
            assert_int_equal(asked.status, 400);
            assert_int_equal(pthread_equal(asked.sender, pthread_self()) != 0, size == 0);
            done(&asked);
        }
    free(large);
    fixture_close(&w);
}

/* More than can wait: refused at once, and everybody has one answer. */
static void test_too_many_large_bodies(void **state) {
    (void)state;
    enum { MANY = API_UNREAD_MAX + 200 };
    fixture w;
    fixture_open(&w, 2, 64);
    buffer body;
    write_arguments(&body, 40000, "}"); /* which is no JSON, as is seen at the end */
    kept *many = calloc(MANY, sizeof(*many));
    int refused = 0;
    atomic_store(&readers_held, true);
    for (int i = 0; i < MANY; i++) {
        ask(&many[i], body.data);
        many[i].base.asked.path = "/v1/chat/completions";
        handle(&many[i]);
    }
    atomic_store(&readers_held, false);
    for (int i = 0; i < MANY; i++) {
        finish(&many[i]);
        assert_true(many[i].status == 400 || many[i].status == 503);
        assert_int_equal(many[i].retry_after, many[i].status == 503);
        refused += many[i].status == 503;
        done(&many[i]);
    }
    assert_true(refused > 0 && refused <= MANY - API_UNREAD_MAX);
    free(many);
    buffer_free(&body);
    fixture_close(&w);
}

static void test_arguments_that_no_context_holds(void **state) {
    (void)state;
    fixture w;
    fixture_open(&w, 2, 64);
    for (int i = 0; i < 2; i++) {
        buffer body; /* no JSON at its end, which is told where the end is read */
        write_arguments(&body, i == 0 ? 1000 : API_ARGUMENTS_BYTES_MIN + 1000, "}");
        kept asked;
        ask(&asked, body.data);
        asked.base.asked.path = "/v1/chat/completions";
        handle(&asked);
        finish(&asked);
        assert_int_equal(asked.status, 400);
        assert_non_null(
            strstr(asked.body.data, i == 0 ? "are not JSON" : "context_length_exceeded"));
        done(&asked);
        buffer_free(&body);
    }
    fixture_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health_asks_nobody),
        cmocka_unit_test(test_closed_in_the_middle),
        cmocka_unit_test(test_slow_reader_is_cancelled),
        cmocka_unit_test(test_client_goes),
        cmocka_unit_test(test_called_off),
        cmocka_unit_test(test_client_has_gone),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_list_longer_than_the_queue),
        cmocka_unit_test(test_device_that_fails),
        cmocka_unit_test(test_deadline_that_has_passed),
        cmocka_unit_test(test_deadline_in_the_middle),
        cmocka_unit_test(test_choices_wait_for_room),
        cmocka_unit_test(test_large_bodies_are_read_elsewhere),
        cmocka_unit_test(test_too_many_large_bodies),
        cmocka_unit_test(test_arguments_that_no_context_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
