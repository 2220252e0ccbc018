/* device/ranks: 1 to 4 ranks compute the same bits, whatever is split; a rank that is dead, slow or
 * without memory is a clean error. The ranks are threads here. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/clock.h"
#include "base/random.h"
#include "device/ranks/message.h"
#include "pack/pack.h"
#include "support/adapters.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 12
#define CHUNK  7 /* computed together, the rest one by one */
#define SIDE   3 /* tokens of a second session, under an adapter, beside the first single one */

/* ---- Everything that a device can be asked for ---- */

typedef struct outcome {
    float *number;
    size_t count, room;
} outcome;

static void note(outcome *to, const float *from, size_t count) {
    assert_non_null(from);
    if (to->count + count > to->room) {
        to->room = 2 * (to->count + count);
        to->number = realloc(to->number, to->room * sizeof(float));
        assert_non_null(to->number);
    }
    memcpy(to->number + to->count, from, count * sizeof(float));
    to->count += count;
}

typedef struct subject {
    const char *path, *device, *kv_type;
    uint32_t threads;
} subject;

typedef struct run {
    avo_model *model;
    avo_engine *engine;
    avo_batch *batch;
    avo_adapter *adapter;
    uint32_t vocabulary, width, last_tap;
    int32_t token[TOKENS];
} run;

static void open_run(run *r, const subject *what) {
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    static const adapter_random_options random = {
        4, 5, TEST_MATRICES_ALL, ADAPTER_RANDOM_GAINS | ADAPTER_RANDOM_NORMS, QUANT_Q8C, 0.1f};
    avo_model_info info = {.size = sizeof(info)};
    assert_ok_error(avo_model_open(what->path, NULL, &r->model, &error), &error);
    avo_model_describe(r->model, &info);
    r->vocabulary = info.vocabulary;
    r->width = info.width;
    r->last_tap = info.layers;
    uint32_t taps[2] = {1, info.layers};
    options.taps = taps + (info.layers == 1);
    options.tap_count = info.layers == 1 ? 1 : 2;
    options.device = what->device;
    options.threads = what->threads;
    options.kv_type = what->kv_type;
    options.context_max = 32;
    options.sessions_max = 2;
    options.rows_max = 16;
    options.logits_max = 16;
    assert_ok_error(avo_engine_open(r->model, &options, &r->engine, &error), &error);
    assert_ok_error(avo_batch_open(r->engine, &r->batch, &error), &error);
    r->adapter = test_adapter_make(r->model, &random);
    for (uint32_t i = 0; i < TOKENS; i++)
        r->token[i] = (int32_t)(random_at(5, 0, i).words[0] % r->vocabulary);
}

static void close_run(run *r) {
    adapter_release(r->adapter);
    avo_batch_close(r->batch);
    avo_engine_close(r->engine);
    avo_model_close(r->model);
}

static void note_logits(run *r, const avo_session *session, uint32_t count, outcome *out) {
    for (uint32_t i = 0; i < count; i++)
        note(out, avo_batch_logits(r->batch, session, i), r->vocabulary);
}

/* Taps, logits of other rows with their highest ones, and normed rows. */
static void note_more(run *r, const avo_session *session, outcome *out) {
    float logprobs[CHUNK] = {0};
    avo_logprob tops[CHUNK * 3];
    note(out, avo_batch_tap(r->batch, session, r->last_tap, 0, CHUNK), CHUNK * r->width);
    if (r->last_tap > 1)
        note(out, avo_batch_tap(r->batch, session, 1, 0, CHUNK), CHUNK * r->width);
    assert_ok(avo_batch_score(r->batch, session, 0, CHUNK - 1, r->token + 1, 3, logprobs, tops));
    note(out, logprobs, CHUNK - 1);
    for (int i = 0; i < 3 * (CHUNK - 1); i++) {
        float token = (float)tops[i].token;
        note(out, &token, 1);
        note(out, &tops[i].logprob, 1);
    }
    note(out, avo_batch_hidden(r->batch, session, 0, CHUNK), CHUNK * r->width);
}

static outcome compute(const subject *what) {
    run r;
    outcome out = {0};
    avo_error error = {0};
    avo_session *session, *side, *fork;
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    open_run(&r, what);
    avo_adapter_use use = {r.adapter, 0.75f};
    options.adapters = &use;
    options.adapter_count = 1;
    assert_ok_error(avo_session_open(r.engine, NULL, &session, &error), &error);
    assert_ok_error(avo_session_open(r.engine, &options, &side, &error), &error);
    assert_ok(avo_batch_add_scored(r.batch, session, r.token, CHUNK, 2));
    assert_ok(avo_step(r.engine, r.batch));
    note_logits(&r, session, 2, &out);
    note_more(&r, session, &out);
    for (uint32_t i = CHUNK; i < TOKENS; i++) {
        avo_batch_clear(r.batch);
        assert_ok(avo_batch_add(r.batch, session, r.token + i, 1));
        if (i == CHUNK)
            assert_ok(avo_batch_add_scored(r.batch, side, r.token, SIDE, SIDE));
        assert_ok(avo_step(r.engine, r.batch));
        note_logits(&r, session, 1, &out);
        if (i == CHUNK)
            note_logits(&r, side, SIDE, &out);
    }
    /* A fork copies its last page, on every rank. */
    avo_session_close(side);
    assert_ok_error(avo_session_fork(session, &fork, &error), &error);
    avo_batch_clear(r.batch);
    assert_ok(avo_batch_add(r.batch, fork, r.token, 1));
    assert_ok(avo_step(r.engine, r.batch));
    note_logits(&r, fork, 1, &out);
    avo_session_close(fork);
    avo_session_close(session);
    close_run(&r);
    return out;
}

static void check_same(const subject *what, const outcome *wanted) {
    outcome found = compute(what);
    assert_int_equal(found.count, wanted->count);
    for (size_t i = 0; i < found.count; i++)
        if (memcmp(&found.number[i], &wanted->number[i], sizeof(float)) != 0)
            fail_msg("%s on %s, K and V in %s: number %zu of %zu is %.9g, must be %.9g", what->path,
                     what->device, what->kv_type, i, found.count, (double)found.number[i],
                     (double)wanted->number[i]);
    free(found.number);
}

static void check_all(subject what, const char *const *devices, size_t count) {
    what.device = "cpu";
    what.threads = 2;
    outcome wanted = compute(&what);
    for (size_t i = 0; i < count; i++) {
        what.device = devices[i];
        what.threads = 1 + (uint32_t)i % 2;
        check_same(&what, &wanted);
    }
    free(wanted.number);
}

/* Heads and widths of these are even more uneven than those of real models: some ranks have no KV
 * head, and all but one no part of the vocabulary. */
static void every_architecture(void **state) {
    (void)state;
    static const char *const devices[] = {"loopback:2", "loopback:3", "loopback:4",
                                          "loopback:2,layers", "loopback:4,layers"};
    static const char *const kv_types[] = {"f16", "f32", "int8", "bf16", "fp8"};
    for (size_t i = 0; i < FIXTURE_DENSE; i++) {
        char model[64];
        snprintf(model, sizeof(model), "models/%s", fixture_names[i].name);
        subject what = {.path = test_fixture_path(model), .kv_type = kv_types[i % 5]};
        check_all(what, devices, sizeof(devices) / sizeof(devices[0]));
    }
}

/* ---- Every form that activations are sent in ---- */

enum { WIDTH = 512, HEADS = 8, KV_HEADS = 4, FEED_FORWARD = 512, VOCABULARY = 1100 };

static void put_weights(FILE *file, uint64_t stream, size_t count) {
    float *numbers = malloc(count * sizeof(float));
    assert_non_null(numbers);
    for (size_t i = 0; i < count; i += 4)
        for (size_t j = 0; j < 4 && i + j < count; j++)
            numbers[i + j] = (float)(int32_t)random_at(stream, 1, i / 4).words[j] * 2e-11f;
    assert_int_equal(fwrite(numbers, sizeof(float), count, file), count);
    free(numbers);
}

/* One layer, wide enough that ranks have whole blocks of every form, and three pieces of the
 * vocabulary. */
static void write_wide(const char *path) {
    const int32_t head[7] = {WIDTH, FEED_FORWARD, 1, HEADS, KV_HEADS, VOCABULARY, 32};
    const size_t kv_width = WIDTH / HEADS * KV_HEADS;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, sizeof(head), 1, file), 1);
    put_weights(file, 1, (size_t)VOCABULARY * WIDTH);
    put_weights(file, 2, WIDTH);
    put_weights(file, 3, (size_t)WIDTH * WIDTH + 2 * WIDTH * kv_width + (size_t)WIDTH * WIDTH);
    put_weights(file, 4, WIDTH);
    put_weights(file, 5, (size_t)3 * WIDTH * FEED_FORWARD);
    put_weights(file, 6, WIDTH + 32 * WIDTH / HEADS);
    assert_int_equal(fclose(file), 0);
}

static void every_form(void **state) {
    (void)state;
    static const char *const devices[] = {"loopback:1", "loopback:2", "loopback:3", "loopback:4"};
    static const pack_type types[] = {PACK_Q4, PACK_Q8, PACK_Q4_1};
    char from[256], path[256];
    snprintf(from, sizeof(from), "%s/wide.bin", test_scratch_folder());
    snprintf(path, sizeof(path), "%s/wide.avo", test_scratch_folder());
    write_wide(from);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        pack_options options = {.type = types[i], .threads = 2, .effort = PACK_EFFORT_NONE};
        pack_report report;
        avo_error error;
        assert_ok_error(pack_file(from, path, &options, &report, &error), &error);
        check_all((subject){.path = path, .kv_type = "f16"}, devices, 4);
    }
}

/* ---- Who computes what ---- */

static void check_parts(const cpu_group *group, const layer_view *layer, size_t pieces) {
    size_t heads = 0, attended = 0, width = 0, feed_forward = 0, piece = 0;
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        group_range own = group_heads(group, layer, rank);
        assert_int_equal(own.first, heads);
        heads = own.end;
        own = group_attended(group, layer, rank);
        assert_int_equal(own.first, attended);
        attended = own.end;
        own = group_width(group, 1000, rank);
        assert_true(own.first == width && (own.first % 16 == 0 || own.first == own.end));
        width = own.end;
        own = group_feed_forward(group, layer, rank);
        assert_true(own.first == feed_forward && (own.first % 16 == 0 || own.first == own.end));
        feed_forward = own.end;
        own = group_pieces(group, pieces, rank);
        assert_int_equal(own.first, piece);
        piece = own.end;
    }
    assert_int_equal(heads, layer->kv_heads);
    assert_int_equal(attended, layer->heads * layer->head_size);
    assert_int_equal(width, 1000);
    assert_int_equal(feed_forward, layer->feed_forward);
    assert_int_equal(piece, pieces);
}

static void parts_make_the_whole(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F16, QUANT_Q4_0, QUANT_Q8_0, QUANT_Q4R};
    for (uint32_t ranks = 1; ranks <= GROUP_RANKS_MAX; ranks++)
        for (uint32_t trial = 0; trial < 40; trial++) {
            random_block random = random_at(9, ranks, trial);
            cpu_group group = {.ranks = ranks};
            layer_view layer[30] = {{.kv_heads = 1 + random.words[0] % 12,
                                     .head_size = 2 + random.words[1] % 100,
                                     .feed_forward = 16 + random.words[2] % 9000}};
            layer->heads = layer->kv_heads * (1 + random.words[3] % 7);
            layer->down.weight = (weight_view){
                .type = types[trial % 4], .layout = QUANT_LAYOUT_PANELS, .rows = 64, .k = 64};
            check_parts(&group, layer, trial);
            model_view model = {.layers = trial % 30,
                                .layer = layer,
                                .head = {.weight = {.rows = 512 * trial, .k = 64}}};
            size_t next = 0;
            for (uint32_t rank = 0; rank < ranks; rank++) {
                group_range own = group_layers(&group, &model, rank);
                assert_true(own.first == next || own.first == own.end);
                assert_true(model.layers < ranks || own.first < own.end);
                next = own.end > next ? own.end : next;
            }
            assert_int_equal(next, model.layers);
        }
}

/* ---- Trouble ---- */

static void open_trouble(run *r, const char *device) {
    open_run(r, &(subject){.path = test_fixture_path("models/llama3"),
                           .device = device,
                           .kv_type = "f16",
                           .threads = 1});
}

/* Steps until one fails, whose error is kept. */
static uint32_t step_on(run *r, avo_session *session, avo_error *error) {
    for (uint32_t i = 0; i < TOKENS; i++) {
        avo_batch_clear(r->batch);
        assert_ok(avo_batch_add(r->batch, session, r->token + i, 1));
        if (avo_step(r->engine, r->batch) == AVO_OK)
            continue;
        *error = *avo_batch_error(r->batch);
        return i;
    }
    return TOKENS;
}

/* Steps before the trouble are good, the step with it fails in time, later ones at once. */
static void check_trouble(const char *device, const char *text) {
    run r;
    avo_error error = {0};
    avo_session *session;
    open_trouble(&r, device);
    assert_ok_error(avo_session_open(r.engine, NULL, &session, &error), &error);
    uint64_t begin = clock_now_ns();
    assert_int_equal(step_on(&r, session, &error), 4);
    assert_true(clock_seconds(begin, clock_now_ns()) < 30.0);
    assert_int_equal(error.status, AVO_ERROR_DEVICE);
    assert_non_null(strstr(error.text, text));
    assert_int_equal(step_on(&r, session, &error), 0);
    assert_int_equal(error.status, AVO_ERROR_DEVICE);
    assert_non_null(strstr(error.text, "lost"));
    avo_session_close(session);
    close_run(&r);
}

static void a_dead_rank_is_an_error(void **state) {
    (void)state;
    check_trouble("loopback:2,leaves=1@5", "rank 1 has left");
    check_trouble("loopback:3,leaves=2@5", "has left");
    check_trouble("loopback:3,layers,leaves=1@5", "has left");
}

static void a_slow_rank_is_an_error(void **state) {
    (void)state;
    check_trouble("loopback:2,timeout=1,sleeps=1@5", "rank 1 has not answered for 1.0 s");
}

static void a_rank_without_memory_is_an_error(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model;
    avo_engine *engine;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    assert_ok(avo_model_open(test_fixture_path("models/llama3"), NULL, &model, NULL));
    options.device = "loopback:3,lacks=2@0";
    options.threads = 1;
    assert_int_equal(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_MEMORY);
    assert_non_null(strstr(error.text, "rank 2: out of memory"));
    options.device = "loopback:3";
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    avo_engine_close(engine);
    avo_model_close(model);
}

static void wrong_parameters_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {
        "loopback:0",         "loopback:65",        "loopback:rank",      "loopback:2,ref",
        "loopback:timeout=0", "loopback:timeout=s", "loopback:2,leaves=1"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        avo_error error = {0};
        device_options options = {.name = names[i], .streams = 1, .threads = 1};
        device *device = NULL;
        avo_status status = device_open(&options, &device, &error);
        if (status == AVO_OK)
            fail_msg("%s was opened", names[i]);
        assert_true(status == AVO_ERROR_ARGUMENT || status == AVO_ERROR_UNSUPPORTED);
    }
}

/* ---- Messages ---- */

static const adapter_view *look_up(void *context, uint64_t number) {
    return number == (uint64_t)(uintptr_t)context ? context : NULL;
}

static bool read_back(const uint8_t *data, size_t bytes, void *adapter, batch_room *room) {
    static const batch_limits limits = {8, 8, 64, 100, 2, 40};
    message_reader reader;
    message_step step;
    return message_read(data, bytes, &reader) &&
           message_read_step(&reader, &limits, look_up, adapter, &step, room);
}

static void damaged_messages_are_refused(void **state) {
    (void)state;
    adapter_view adapter = {.digest = {1, 2}};
    const int32_t token[] = {5, 6, 99}, target[] = {7, 8};
    const uint32_t position[] = {30, 31, 3}, row_segment[] = {0, 0, 1}, logit_row[] = {1, 2};
    const uint32_t pages[] = {3, 39};
    const batch_segment segment[] = {{0, 2, pages}, {2, 1, pages + 1}};
    const float factor[] = {0.5f};
    const adapter_run run = {&adapter, 2, 1, factor, ADAPTER_RUN_NONE};
    const size_t layer_offset[] = {0, 640};
    const batch_view batch = {.rows = 3,
                              .token = token,
                              .position = position,
                              .row_segment = row_segment,
                              .segment = segment,
                              .segments = 2,
                              .logit_row = logit_row,
                              .logit_rows = 2,
                              .top = 1,
                              .target = target,
                              .run = &run,
                              .runs = 1};
    const message_step step = {.rows = 3,
                               .segments = 2,
                               .logit_rows = 2,
                               .top = 1,
                               .runs = 1,
                               .layers = 2,
                               .targets = 2,
                               .page_bytes = 1280};
    batch_segment segments[8];
    adapter_run runs[8 * ADAPTERS_OF_ROW];
    batch_room room = {.segment = segments, .run = runs};
    message message;
    message_open(&message, NULL);
    message_begin(&message, MESSAGE_STEP);
    message_add_step(&message, &step, &batch, layer_offset);
    assert_ok(message.status);
    size_t bytes = message.bytes.size;
    uint32_t length = (uint32_t)bytes - 8;
    memcpy(message.bytes.data + 4, &length, sizeof(length));
    assert_true(read_back((uint8_t *)message.bytes.data, bytes, &adapter, &room));
    assert_int_equal(room.batch.rows, 3);
    assert_memory_equal(room.batch.token, token, sizeof(token));
    assert_int_equal(room.segment[1].pages[0], 39);
    assert_ptr_equal(room.run[0].adapter, &adapter);
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *copy = malloc(cut + 1); /* so that a sanitizer sees a byte too many */
        assert_non_null(copy);
        memcpy(copy, message.bytes.data, cut);
        assert_false(read_back(copy, cut, &adapter, &room));
        free(copy);
    }
    for (size_t i = 0; i < bytes; i++)
        for (int bit = 0; bit < 8; bit++) { /* whatever it says, nothing is read outside */
            message.bytes.data[i] = (char)(message.bytes.data[i] ^ (1 << bit));
            (void)read_back((uint8_t *)message.bytes.data, bytes, &adapter, &room);
            message.bytes.data[i] = (char)(message.bytes.data[i] ^ (1 << bit));
        }
    message_close(&message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),
        cmocka_unit_test(every_form),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(a_dead_rank_is_an_error),
        cmocka_unit_test(a_slow_rank_is_an_error),
        cmocka_unit_test(a_rank_without_memory_is_an_error),
        cmocka_unit_test(wrong_parameters_are_refused),
        cmocka_unit_test(damaged_messages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
