/* Calibration: the file holds what the matrices are given, hostile ones are refused, rounding by it
 * makes the error that it states, and less of it. */
#include "support/support.h"

#include "base/allocator.h"
#include "base/file.h"
#include "base/random.h"
#include "engine/observe.h"
#include "pack/calibrate.h"
#include "pack/calibration.h"
#include "pack/factor.h"
#include "pack/pack.h"
#include "quant/feedback.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 90

static const char *scratch_path(const char *name) {
    static char paths[4][4400];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", test_scratch_folder(), name);
    return path;
}

static avo_model *open_model(const char *fixture) {
    avo_model *model = NULL;
    avo_error error = {0};
    assert_ok_error(avo_model_open(test_fixture_path(fixture), NULL, &model, &error), &error);
    return model;
}

static void make_tokens(const avo_model *model, int32_t *tokens) {
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(model, &info);
    for (uint64_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(random_at(5, 0, i).words[0] % info.vocabulary);
}

static calibrate_report calibrate_to(const char *fixture, const char *path, uint32_t threads,
                                     uint64_t memory) {
    avo_model *model = open_model(fixture);
    int32_t tokens[TOKENS];
    make_tokens(model, tokens);
    calibrate_options options = {.context = 40, .threads = threads, .memory = memory, .begin = -1};
    calibrate_report report;
    avo_error error = {0};
    assert_ok_error(calibrate_model(model, tokens, TOKENS, &options, path, &report, &error),
                    &error);
    avo_model_close(model);
    return report;
}

/* ---- The sums ---- */

#define SEEN_K 256
typedef struct seen {
    double sum[SEEN_K][SEEN_K];
    uint64_t rows;
} seen;

/* Layer 1's down projection. */
static void look(void *context, uint32_t worker, uint32_t layer, observed_input input,
                 const float *x, size_t stride, uint32_t rows, uint32_t k) {
    seen *seen = context;
    if (worker != 0 || layer != 1 || input != OBSERVED_DOWN)
        return;
    assert_true(k <= SEEN_K);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < k; i++)
            for (uint32_t j = 0; j < k; j++)
                seen->sum[i][j] += (double)x[row * stride + i] * (double)x[row * stride + j];
    seen->rows += rows;
}

static void moments_are_those_of_the_inputs(void **state) {
    (void)state;
    const char *path = scratch_path("moments.cal");
    calibrate_report report = calibrate_to("models/llama2.gguf", path, 2, 0);
    assert_int_equal(report.tokens, TOKENS);
    assert_int_equal(report.passes, 1);
    avo_model *model = open_model("models/llama2.gguf");
    int32_t tokens[TOKENS];
    make_tokens(model, tokens);
    static seen seen;
    memset(&seen, 0, sizeof(seen));
    step_observer observer = {look, &seen};
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = TOKENS;
    options.rows_max = TOKENS;
    avo_engine *engine;
    avo_batch *batch;
    assert_ok_error(engine_open_observed(model, &options, &observer, &engine, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    for (size_t begin = 0; begin < TOKENS; begin += 40) {
        avo_session *session;
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        size_t count = begin + 40 < TOKENS ? 40 : TOKENS - begin;
        avo_batch_clear(batch);
        assert_ok(avo_batch_add_scored(batch, session, tokens + begin, count, 1));
        assert_ok(avo_step(engine, batch));
        avo_session_close(session);
    }
    avo_batch_close(batch);
    avo_engine_close(engine);
    avo_model_close(model);
    calibration file;
    assert_ok_error(calibration_open(path, &file, &error), &error);
    const calibration_entry *entry = calibration_find(&file, "blk.1.ffn_down");
    assert_non_null(entry);
    assert_int_equal(entry->samples, seen.rows);
    assert_null(calibration_find(&file, "blk.9.ffn_down"));
    size_t k = entry->k;
    float *moments = malloc(k * k * sizeof(float));
    assert_ok_error(calibration_read(&file, entry, moments, &error), &error);
    double largest = 0;
    for (size_t i = 0; i < k; i++)
        largest = fmax(largest, seen.sum[i][i] / (double)seen.rows);
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++)
            assert_true(fabs((double)moments[i * k + j] - seen.sum[i][j] / (double)seen.rows) <
                        1e-5 * largest);
    free(moments);
    calibration_close(&file);
}

static void assert_same_files(const char *a, const char *b) {
    file_map first, second;
    avo_error error = {0};
    assert_ok_error(file_map_open(a, &first, &error), &error);
    assert_ok_error(file_map_open(b, &second, &error), &error);
    assert_int_equal(first.bytes.size, second.bytes.size);
    assert_memory_equal(first.bytes.data, second.bytes.data, first.bytes.size);
    file_map_close(&first);
    file_map_close(&second);
}

static void threads_and_passes_change_nothing(void **state) {
    (void)state;
    const char *one = scratch_path("one.cal"), *more = scratch_path("more.cal");
    static const char *const models[] = {"models/qwen3", "models/gpt2", "models/opt-350m"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        calibrate_report plain = calibrate_to(models[i], one, 1, 0);
        calibrate_report passes = calibrate_to(models[i], more, 3, 1);
        assert_int_equal(plain.passes, 1);
        assert_int_equal(passes.passes, passes.inputs);
        assert_same_files(one, more);
    }
}

/* ---- Hostile files ---- */

static void damage_is_refused(void **state) {
    (void)state;
    const char *path = scratch_path("good.cal");
    calibrate_to("models/llama2.gguf", path, 1, 0);
    file_map map;
    avo_error error = {0};
    assert_ok_error(file_map_open(path, &map, &error), &error);
    size_t size = map.bytes.size;
    uint8_t *copy = malloc(size);
    calibration opened;
    memcpy(copy, map.bytes.data, size);
    assert_ok(calibration_open_bytes((bytes_view){copy, size}, "x", &opened, &error));
    size_t head =
        sizeof(calibration_header) + opened.header.entry_count * sizeof(calibration_entry);
    for (size_t i = 0; i < head; i++) {
        copy[i] ^= 0x10;
        assert_true(calibration_open_bytes((bytes_view){copy, size}, "x", &opened, &error) !=
                    AVO_OK);
        copy[i] ^= 0x10;
    }
    static const size_t lengths[] = {0, 7, 63, 64, 100};
    for (size_t i = 0; i < 5; i++)
        assert_true(calibration_open_bytes((bytes_view){copy, lengths[i]}, "x", &opened, &error) !=
                    AVO_OK);
    assert_true(calibration_open_bytes((bytes_view){copy, size - 1}, "x", &opened, &error) !=
                AVO_OK);
    copy[size - 1] ^= 1; /* in the last entry's data */
    assert_ok(calibration_open_bytes((bytes_view){copy, size}, "x", &opened, &error));
    const calibration_entry *last = &opened.entries[opened.header.entry_count - 1];
    float *moments = malloc((size_t)last->k * last->k * sizeof(float));
    assert_refused(calibration_read(&opened, last, moments, &error), AVO_ERROR_FORMAT, &error,
                   "damaged");
    free(moments);
    free(copy);
    file_map_close(&map);
}

static void numbers_that_cannot_be_are_refused(void **state) {
    (void)state;
    static const float bad[][3] = {{-1, 0, 1}, {1, NAN, 1}, {1, INFINITY, 1}};
    for (size_t i = 0; i < 3; i++) {
        const char *path = scratch_path("bad.cal");
        calibration_entry entry = {.name = "output", .k = 2};
        calibration_writer writer;
        avo_error error = {0};
        float sums[4] = {bad[i][0], 0, bad[i][1], bad[i][2]}, moments[4];
        assert_ok_error(calibration_writer_open(&writer, path, &entry, 1, &error), &error);
        assert_ok_error(calibration_writer_add(&writer, sums, 1, &error), &error);
        assert_ok_error(calibration_writer_commit(&writer, 1, &error), &error);
        calibration opened;
        assert_ok_error(calibration_open(path, &opened, &error), &error);
        assert_refused(calibration_read(&opened, opened.entries, moments, &error), AVO_ERROR_FORMAT,
                       &error, "not valid second moments");
        calibration_close(&opened);
    }
}

/* ---- Rounding ---- */

#define ROWS 13

typedef struct problem {
    size_t k;
    float *weights; /* [ROWS][k] */
    float *moments; /* [k][k] with the damping */
    double trace;
} problem;

static float uniform(uint64_t stream, uint64_t at) {
    return (float)random_at(11, stream, at).words[0] / 4294967296.0f - 0.5f;
}

/* Inputs that go together: few directions carry most of them. */
static problem make_problem(size_t k) {
    problem p = {.k = k};
    size_t samples = 2 * k;
    float *x = malloc(samples * k * sizeof(float));
    p.weights = malloc(ROWS * k * sizeof(float));
    p.moments = calloc(k * k, sizeof(float));
    for (size_t i = 0; i < ROWS * k; i++)
        p.weights[i] = uniform(1, i) + uniform(2, i) + uniform(3, i);
    for (size_t s = 0; s < samples; s++)
        for (size_t i = 0; i < k; i++)
            x[s * k + i] = 0.3f * uniform(4, s * k + i) + uniform(5, s * 8 + i % 8) +
                           (i == 3 ? 4.0f * uniform(6, s) : 0.0f);
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++) {
            double sum = 0;
            for (size_t s = 0; s < samples; s++)
                sum += (double)x[s * k + i] * (double)x[s * k + j];
            p.moments[i * k + j] = (float)(sum / (double)samples);
        }
    for (size_t i = 0; i < k; i++)
        p.trace += (double)p.moments[i * k + i];
    free(x);
    return p;
}

/* Σ_rows (w − q) (H + damping) (w − q)ᵀ, from the decoded panel. */
static double plain_error(const problem *p, quant_type type, const uint8_t *panel, double damping) {
    weight_view view = {.type = type,
                        .layout = QUANT_LAYOUT_PANELS,
                        .rows = ROWS,
                        .k = (uint32_t)p->k,
                        .data = panel};
    float *row = malloc(p->k * sizeof(float));
    double total = 0;
    size_t padded = feedback_k(type, p->k);
    double added = damping * p->trace / (double)padded;
    for (size_t r = 0; r < ROWS; r++) {
        weight_decode_row(&view, r, row);
        for (size_t i = 0; i < p->k; i++)
            row[i] = p->weights[r * p->k + i] - row[i];
        for (size_t i = 0; i < p->k; i++) {
            double sum = added * (double)row[i];
            for (size_t j = 0; j < p->k; j++)
                sum += (double)p->moments[i * p->k + j] * (double)row[j];
            total += sum * (double)row[i];
        }
    }
    free(row);
    return total;
}

static void check_rounding(quant_type type, size_t k, team *team) {
    problem p = make_problem(k);
    uint64_t bytes;
    assert_true(weight_panel_bytes(type, k, &bytes));
    uint8_t *panel = allocator_take(NULL, (size_t)bytes);
    float *scratch = allocator_take(NULL, feedback_scratch_floats(k) * sizeof(float));
    factor_room room;
    feedback_factor factor;
    avo_error error = {0};
    assert_ok_error(factor_room_open(&room, k, &error), &error);
    memcpy(room.square, p.moments, k * k * sizeof(float));
    assert_ok_error(factor_make(&room, k, type, 0.01, team, &factor, &error), &error);
    double stated = 0;
    feedback_encode_panel(type, p.weights, ROWS, k, &factor, false, scratch, panel, &stated);
    double with = plain_error(&p, type, panel, 0.01);
    if (!(fabs(stated / with - 1) < 0.02) && fabs(stated - with) > 1e-6)
        fail_msg("%s, k %zu: stated %g, found %g", quant_name(type), k, stated, with);
    feedback_encode_panel(type, p.weights, ROWS, k, NULL, false, scratch, panel, NULL);
    double searched = plain_error(&p, type, panel, 0.01);
    double plain = 0;
    feedback_encode_panel(type, p.weights, ROWS, k, NULL, true, scratch, panel, &plain);
    double quick = plain_error(&p, type, panel, 0.01);
    if (!(with < 0.75 * searched) || !(searched < 1.6 * quick))
        fail_msg("%s, k %zu: error %g with feedback, %g by search, %g without", quant_name(type), k,
                 with, searched, quick);
    factor_room_close(&room);
    allocator_give(NULL, scratch, feedback_scratch_floats(k) * sizeof(float));
    allocator_give(NULL, panel, (size_t)bytes);
    free(p.weights);
    free(p.moments);
}

static const quant_type types[] = {QUANT_Q8B,  QUANT_Q8_0, QUANT_Q4R,   QUANT_Q4_0, QUANT_Q4_1,
                                   QUANT_Q5_0, QUANT_Q5_1, QUANT_Q4B64, QUANT_Q4M64};
#define TYPES (sizeof(types) / sizeof(types[0]))

static void feedback_makes_the_error_that_it_states(void **state) {
    (void)state;
    team *team;
    avo_error error = {0};
    assert_ok_error(team_open(NULL, 2, &team, &error), &error);
    for (size_t i = 0; i < TYPES; i++)
        for (size_t k = 0; k < 3; k++)
            check_rounding(types[i], (const size_t[]){96, 107, 300}[k], team);
    team_close(team);
}

/* Numbers that lie on the type's own grid stay what they are, with and without feedback. */
static void a_grid_stays(void **state) {
    (void)state;
    enum { K = 128 };
    static float weights[ROWS * K], back[K], scratch[(2 * (K + 32) + 256) * 16];
    _Alignas(64) static uint8_t panel[16384];
    for (size_t block = 0; block < ROWS * K / 32; block++)
        for (size_t i = 0; i < 32; i++) {
            unsigned q = i == 0 ? 0 : i == 1 ? 15 : random_at(2, block, i).words[0] % 16;
            weights[block * 32 + i] = 0.03125f * (float)q - 0.21875f;
        }
    double error = 0;
    feedback_encode_panel(QUANT_Q4_1, weights, ROWS, K, NULL, false, scratch, panel, &error);
    assert_true(error == 0);
    weight_view view = {
        .type = QUANT_Q4_1, .layout = QUANT_LAYOUT_PANELS, .rows = ROWS, .k = K, .data = panel};
    for (size_t row = 0; row < ROWS; row++) {
        weight_decode_row(&view, row, back);
        assert_memory_equal(back, weights + row * K, sizeof(back));
    }
}

/* Moments without any rank, and zeros: damping makes them do, or there is no feedback. */
static void poor_moments_do(void **state) {
    (void)state;
    enum { K = 64 };
    team *team;
    avo_error error = {0};
    factor_room room;
    feedback_factor factor;
    assert_ok_error(team_open(NULL, 1, &team, &error), &error);
    assert_ok_error(factor_room_open(&room, K, &error), &error);
    memset(room.square, 0, sizeof(float) * K * K);
    assert_ok_error(factor_make(&room, K, QUANT_Q8B, 0.01, team, &factor, &error), &error);
    assert_int_equal(factor.k, 0);
    for (size_t i = 0; i < K * K; i++)
        room.square[i] = 1;
    assert_ok_error(factor_make(&room, K, QUANT_Q4R, 0.01, team, &factor, &error), &error);
    assert_int_equal(factor.k, K);
    for (size_t i = 0; i < K; i++)
        assert_true(factor.diagonal[i] > 0);
    /* a matrix with a negative direction far beyond the damping cannot come from any x */
    for (size_t i = 0; i < K; i++)
        for (size_t j = 0; j < K; j++)
            room.square[i * K + j] = i == j ? 1e-6f : 1e9f;
    assert_refused(factor_make(&room, K, QUANT_Q8B, 1e-9, team, &factor, &error), AVO_ERROR_FORMAT,
                   &error, "cannot be factorised");
    factor_room_close(&room);
    team_close(team);
}

/* ---- Packing ---- */

static void packs_are_the_same_for_any_threads(void **state) {
    (void)state;
    const char *path = scratch_path("pack.cal");
    calibrate_to("models/smollm3", path, 2, 0);
    char model[4200];
    snprintf(model, sizeof(model), "%s", test_fixture_path("models/smollm3"));
    for (pack_type type = 0; type < PACK_TYPE_COUNT; type++) {
        char one[4500], more[4500];
        snprintf(one, sizeof(one), "%s/a.avo", test_scratch_folder());
        snprintf(more, sizeof(more), "%s/b.avo", test_scratch_folder());
        pack_options options = {
            .type = type, .threads = 1, .effort = PACK_EFFORT_FEEDBACK, .calibration = path};
        pack_report report;
        avo_error error = {0};
        assert_ok_error(pack_file(model, one, &options, &report, &error), &error);
        options.threads = 3;
        assert_ok_error(pack_file(model, more, &options, &report, &error), &error);
        assert_same_files(one, more);
        assert_true(report.groups > 1);
    }
}

static void another_models_file_is_refused(void **state) {
    (void)state;
    const char *path = scratch_path("other.cal");
    calibrate_to("models/gpt2", path, 1, 0);
    char model[4200];
    snprintf(model, sizeof(model), "%s", test_fixture_path("models/smollm3"));
    pack_options options = {
        .type = PACK_Q4, .threads = 1, .effort = PACK_EFFORT_FEEDBACK, .calibration = path};
    pack_report report;
    avo_error error = {0};
    const char *out = scratch_path("none.avo");
    assert_refused(pack_file(model, out, &options, &report, &error), AVO_ERROR_FORMAT, &error,
                   "another model");
    options.calibration = "/no/such/file.cal";
    assert_refused(pack_file(model, out, &options, &report, &error), AVO_ERROR_NOT_FOUND, &error,
                   "/no/such/file.cal");
    assert_refused(pack_file(model, path, &(pack_options){.calibration = path}, &report, &error),
                   AVO_ERROR_ARGUMENT, &error, "is the calibration file");
    options.calibration = model;
    assert_true(pack_file(model, out, &options, &report, &error) != AVO_OK);
    assert_int_equal(file_kind_of(out), FILE_MISSING);
}

/* Second moments may be finite, and every error by them infinite all the same. */
static void moments_beyond_all_bounds_are_named(void **state) {
    (void)state;
    enum { K = 128, N = 20 };
    static float weights[N * K], sums[K * K];
    uint8_t flags[2] = {0, 1};
    for (size_t i = 0; i < (size_t)N * K; i++)
        weights[i] = 80000.0f * uniform(7, i);
    for (size_t i = 0; i < K; i++)
        sums[i * K + i] = 1e36f;
    source_file file = {.path = "by-hand", .borrowed = true};
    source_tensor tensor = {.name = TEXT_LITERAL("blk.0.ffn_down.weight"),
                            .type = QUANT_F32,
                            .rank = 2,
                            .shape = {N, K, 1, 1},
                            .data = (const uint8_t *)weights,
                            .bytes = sizeof(weights)};
    model_source source = {.format = SOURCE_GGUF,
                           .naming = SOURCE_NAMES_GGUF,
                           .path = "by-hand",
                           .files = &file,
                           .file_count = 1,
                           .tensors = &tensor,
                           .tensor_count = 1,
                           .config = {.layers = 1,
                                      .width = N,
                                      .embedding_width = N,
                                      .feed_forward = K,
                                      .heads = 1,
                                      .kv_heads = 1,
                                      .head_size = N,
                                      .vocabulary = 10,
                                      .context = 10,
                                      .layer_windowed = flags,
                                      .layer_rotary = flags + 1}};
    generation_defaults_init(&source.generation);
    const char *path = scratch_path("huge.cal"), *out = scratch_path("huge.avo");
    calibration_entry entry = {.name = "blk.0.ffn_down", .k = K};
    calibration_writer writer;
    avo_error error = {0};
    assert_ok_error(calibration_writer_open(&writer, path, &entry, 1, &error), &error);
    assert_ok_error(calibration_writer_add(&writer, sums, 1, &error), &error);
    assert_ok_error(calibration_writer_commit(&writer, 1, &error), &error);
    static const pack_type wanted[] = {PACK_Q8,   PACK_Q5_0, PACK_Q5_1,  PACK_Q4,
                                       PACK_Q4_0, PACK_Q4_1, PACK_Q4B64, PACK_Q4M64};
    for (size_t i = 0; i < 2 * sizeof(wanted) / sizeof(wanted[0]); i++) {
        pack_options options = {.type = wanted[i / 2],
                                .threads = 2,
                                .bits = i % 2 == 0 ? 0 : 8,
                                .effort = PACK_EFFORT_FEEDBACK,
                                .calibration = path};
        pack_report report;
        assert_refused(pack_source(&source, out, &options, &report, &error), AVO_ERROR_FORMAT,
                       &error, "huge.cal: second moments are too large to round blk.0.ffn_down");
        assert_int_equal(file_kind_of(out), FILE_MISSING);
    }
    /* without them the very same weights can be packed */
    pack_options options = {.type = PACK_Q4, .threads = 1, .effort = PACK_EFFORT_FEEDBACK};
    pack_report report;
    assert_ok_error(pack_source(&source, out, &options, &report, &error), &error);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_those_of_the_inputs),
        cmocka_unit_test(threads_and_passes_change_nothing),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(numbers_that_cannot_be_are_refused),
        cmocka_unit_test(feedback_makes_the_error_that_it_states),
        cmocka_unit_test(a_grid_stays),
        cmocka_unit_test(poor_moments_do),
        cmocka_unit_test(packs_are_the_same_for_any_threads),
        cmocka_unit_test(another_models_file_is_refused),
        cmocka_unit_test(moments_beyond_all_bounds_are_named),
    };
    return cmocka_run_group_tests_name("pack/calibrate", tests, NULL, NULL);
}
