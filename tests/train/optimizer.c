/* AdamW, clipping, Muon and schedules against PyTorch's numbers (tools/oracle/train_optimizer.py);
 * the same bits for any number of threads; what cannot be done is refused.
 * AVO_TEST_THREADS */
#include "support/support.h"

#include "support/expected.h"
#include "train/optimizer.h"

#include <math.h>

#define STEPS 12

/* The numbers of the script of that name. */
static void fill(float *values, size_t count, int64_t seed, float scale) {
    for (size_t i = 0; i < count; i++) {
        int64_t n = (int64_t)i;
        int64_t mixed = (n * 2654435761 + seed * 40503 + n * n * 97) % 65536;
        values[i] = (float)((double)mixed / 32768 - 1) * scale;
    }
}

static team *open_team(uint32_t threads) {
    avo_error error = {0};
    team *team;
    assert_ok_error(team_open(NULL, threads, &team, &error), &error);
    return team;
}

static const optimizer_options defaults = {.beta1 = 0.9,
                                           .beta2 = 0.99,
                                           .epsilon = 1e-8,
                                           .lora_plus = 1.0,
                                           .momentum = 0.95,
                                           .muon_rate = 1.0};

static void compare(const char *name, const double *values, const float *found, size_t count,
                    double bound) {
    for (size_t i = 0; i < count; i++)
        if (!(fabs(values[i] - (double)found[i]) <= bound))
            fail_msg("%s[%zu]: %.9g, not %.9g", name, i, (double)found[i], values[i]);
}

/* One parameter through all steps, as the script does. */
static void run(optimizer_options options, train_role role, uint32_t rows, uint32_t k, int64_t seed,
                bool grows, const schedule *schedule, const char *name, double bound) {
    float value[64], gradient[64];
    double expected[EXPECTED_MAX], norms[EXPECTED_MAX];
    size_t count = (size_t)rows * k, norm_count = 0;
    char norm_name[64];
    train_parameter item = {"w", role, rows, k, value, gradient};
    train_parameters parameters = {.item = &item, .count = 1, .numbers = count};
    optimizer *optimizer;
    avo_error error = {0};
    options.team = open_team(1);
    fill(value, count, role == TRAIN_MATRIX && options.kind == OPTIMIZER_MUON ? 2 : 1, 1.0f);
    const char *path = test_fixture_path("train/optimizer.txt");
    assert_int_equal(expected_read(path, name, expected), count);
    if (grows) {
        snprintf(norm_name, sizeof(norm_name), "%s-norms", name);
        norm_count = expected_read(path, norm_name, norms);
        assert_int_equal(norm_count, STEPS);
    }
    assert_ok_error(optimizer_open(&options, &parameters, &optimizer, &error), &error);
    for (int step = 0; step < STEPS; step++) {
        double norm;
        fill(gradient, count, seed + step, grows ? 0.5f + (float)step : 1.0f);
        assert_ok_error(optimizer_step(optimizer, (uint64_t)step + 1,
                                       schedule_rate(schedule, (uint64_t)step + 1), &norm, &error),
                        &error);
        if (grows && !(fabs(norm - norms[step]) <= 1e-6 * norms[step]))
            fail_msg("%s: norm %g, not %g", name, norm, norms[step]);
    }
    compare(name, expected, value, count, bound);
    optimizer_close(optimizer);
    team_close(options.team);
}

static void adamw_is_torchs(void **state) {
    (void)state;
    schedule constant = {.rate = 0.01};
    run(defaults, TRAIN_LORA_A, 7, 5, 100, true, &constant, "adamw", 1e-6);
    optimizer_options options = defaults;
    options.weight_decay = 0.1;
    options.clip = 3.0;
    run(options, TRAIN_LORA_A, 7, 5, 100, true, &constant, "adamw-clip-decay", 1e-6);
    options.weight_decay = 0.01;
    options.clip = 0.0;
    schedule cosine = {.kind = SCHEDULE_COSINE, .rate = 0.01, .warmup = 3, .steps = STEPS};
    run(options, TRAIN_MATRIX, 7, 5, 100, true, &cosine, "adamw-cosine", 1e-6);
}

static void muon_is_torchs(void **state) {
    (void)state;
    schedule constant = {.rate = 0.02};
    optimizer_options options = defaults;
    options.kind = OPTIMIZER_MUON;
    options.weight_decay = 0.1;
    run(options, TRAIN_MATRIX, 6, 10, 300, false, &constant, "muon-6x10", 1e-5);
    run(options, TRAIN_MATRIX, 10, 6, 300, false, &constant, "muon-10x6", 1e-5);
    /* PyTorch itself rounds to bfloat16. */
    run(options, TRAIN_MATRIX, 6, 10, 300, false, &constant, "muon-6x10-bf16", 5e-3);
    run(options, TRAIN_MATRIX, 10, 6, 300, false, &constant, "muon-10x6-bf16", 5e-3);
}

static void schedules(void **state) {
    (void)state;
    schedule s = {.kind = SCHEDULE_LINEAR, .rate = 1.0, .warmup = 2, .steps = 12};
    assert_float_equal(schedule_rate(&s, 1), 0.0, 0.0);
    assert_float_equal(schedule_rate(&s, 2), 0.5, 0.0);
    assert_float_equal(schedule_rate(&s, 3), 1.0, 0.0);
    assert_float_equal(schedule_rate(&s, 8), 0.5, 1e-15);
    assert_float_equal(schedule_rate(&s, 13), 0.0, 0.0);
    assert_float_equal(schedule_rate(&s, 20), 0.0, 0.0);
    s.end = 0.1;
    assert_float_equal(schedule_rate(&s, 8), 0.55, 1e-15);
    s.kind = SCHEDULE_COSINE;
    assert_float_equal(schedule_rate(&s, 8), 0.55, 1e-12);
    assert_float_equal(schedule_rate(&s, 13), 0.1, 1e-12);
    s.kind = SCHEDULE_CONSTANT;
    assert_float_equal(schedule_rate(&s, 13), 1.0, 0.0);
    s = (schedule){.kind = SCHEDULE_COSINE, .rate = 2.0, .steps = 4};
    assert_float_equal(schedule_rate(&s, 1), 2.0, 0.0);
}

/* ---- Several parameters ---- */

enum { PARAMETERS = 5, NUMBERS = 40000 + 30 * 70 + 70 * 30 + 90 + 17 * 6 };

typedef struct many {
    train_parameter items[PARAMETERS];
    train_parameters parameters;
    float values[NUMBERS], gradients[NUMBERS];
} many;

static void many_init(many *m) {
    static const uint32_t shapes[PARAMETERS][2] = {
        {20, 2000}, {30, 70}, {70, 30}, {1, 90}, {17, 6}};
    static const train_role roles[PARAMETERS] = {TRAIN_LORA_A, TRAIN_MATRIX, TRAIN_MATRIX,
                                                 TRAIN_VECTOR, TRAIN_LORA_B};
    size_t at = 0;
    for (size_t i = 0; i < PARAMETERS; i++) {
        m->items[i] = (train_parameter){"w",          roles[i],       shapes[i][0],
                                        shapes[i][1], m->values + at, m->gradients + at};
        at += (size_t)shapes[i][0] * shapes[i][1];
    }
    assert_int_equal(at, NUMBERS);
    m->parameters = (train_parameters){.item = m->items, .count = PARAMETERS, .numbers = NUMBERS};
    fill(m->values, NUMBERS, 7, 1.0f);
}

static void run_many(many *m, const optimizer_options *options, uint64_t from, uint64_t to) {
    optimizer *optimizer;
    avo_error error = {0};
    double norm;
    assert_ok_error(optimizer_open(options, &m->parameters, &optimizer, &error), &error);
    for (uint64_t step = from; step <= to; step++) {
        fill(m->gradients, NUMBERS, (int64_t)step, 1.0f);
        assert_ok_error(optimizer_step(optimizer, step, 0.01, &norm, &error), &error);
    }
    optimizer_close(optimizer);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    static many one, other;
    optimizer_options options = defaults;
    options.kind = OPTIMIZER_MUON;
    options.clip = 1.0;
    options.weight_decay = 0.1;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        many *m = threads == 1 ? &one : &other;
        many_init(m);
        options.team = open_team(threads);
        run_many(m, &options, 1, 4);
        team_close(options.team);
        if (threads > 1)
            assert_memory_equal(one.values, other.values, sizeof(one.values));
    }
}

/* What a checkpoint keeps is all there is: another optimizer with it goes on with the same bits. */
static void state_is_complete(void **state) {
    (void)state;
    static many whole, parts;
    optimizer_options options = defaults;
    optimizer *first, *second;
    avo_error error = {0};
    double norm;
    options.kind = OPTIMIZER_MUON;
    options.team = open_team(1);
    many_init(&whole);
    run_many(&whole, &options, 1, 5);
    many_init(&parts);
    assert_ok_error(optimizer_open(&options, &parts.parameters, &first, &error), &error);
    assert_ok_error(optimizer_open(&options, &parts.parameters, &second, &error), &error);
    for (uint64_t step = 1; step <= 5; step++) {
        fill(parts.gradients, NUMBERS, (int64_t)step, 1.0f);
        assert_ok_error(optimizer_step(step <= 3 ? first : second, step, 0.01, &norm, &error),
                        &error);
        optimizer_state from, to;
        for (uint32_t i = 0; step == 3 && optimizer_state_at(first, i, &from); i++) {
            assert_true(optimizer_state_at(second, i, &to));
            assert_string_equal(from.kind, to.kind);
            assert_true((from.data == NULL) == (to.data == NULL));
            if (from.data != NULL)
                memcpy(to.data, from.data,
                       sizeof(float) * from.parameter->rows * from.parameter->k);
        }
    }
    assert_memory_equal(whole.values, parts.values, sizeof(whole.values));
    optimizer_close(first);
    optimizer_close(second);
    team_close(options.team);
}

static void roles_differ(void **state) {
    (void)state;
    float values[3] = {1, 1, 1}, gradients[3] = {0, 0, 0};
    train_parameter items[3] = {{"a", TRAIN_LORA_A, 1, 1, values, gradients},
                                {"b", TRAIN_LORA_B, 1, 1, values + 1, gradients + 1},
                                {"n", TRAIN_VECTOR, 1, 1, values + 2, gradients + 2}};
    train_parameters parameters = {.item = items, .count = 3, .numbers = 3};
    optimizer_options options = defaults;
    optimizer *optimizer;
    avo_error error = {0};
    double norm;
    options.team = open_team(1);
    options.weight_decay = 0.5;
    options.lora_plus = 4.0;
    assert_ok_error(optimizer_open(&options, &parameters, &optimizer, &error), &error);
    assert_ok_error(optimizer_step(optimizer, 1, 0.1, &norm, &error), &error);
    assert_float_equal(norm, 0.0, 0.0);
    assert_float_equal(values[0], 0.95f, 1e-7);
    assert_float_equal(values[1], 0.8f, 1e-7); /* four times the rate */
    assert_float_equal(values[2], 1.0f, 0.0);  /* does not decay */
    gradients[1] = NAN;
    assert_refused(optimizer_step(optimizer, 2, 0.1, &norm, &error), AVO_ERROR_ARGUMENT, &error,
                   "the gradient of b is not finite");
    assert_float_equal(values[0], 0.95f, 1e-7);
    optimizer_close(optimizer);
    team_close(options.team);
}

static void memory_can_fail(void **state) {
    (void)state;
    static many m;
    test_allocator allocator;
    optimizer_options options = defaults;
    optimizer *optimizer;
    options.kind = OPTIMIZER_MUON;
    options.team = open_team(1);
    many_init(&m);
    for (size_t fail = 1;; fail++) {
        avo_error error = {0};
        test_allocator_init(&allocator);
        allocator.fail_at = fail;
        options.allocator = &allocator.allocator;
        avo_status status = optimizer_open(&options, &m.parameters, &optimizer, &error);
        if (status == AVO_OK) {
            assert_int_equal(allocator.live_bytes, optimizer_bytes(&options, &m.parameters));
            optimizer_close(optimizer);
            assert_int_equal(allocator.live, 0);
            assert_true(fail > 5);
            break;
        }
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_null(optimizer);
        assert_int_equal(allocator.live, 0);
    }
    team_close(options.team);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_torchs),   cmocka_unit_test(muon_is_torchs),
        cmocka_unit_test(schedules),         cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(state_is_complete), cmocka_unit_test(roles_differ),
        cmocka_unit_test(memory_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
