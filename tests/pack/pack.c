/* Packing: nothing is lost that the type can hold, failures leave nothing behind, and the bytes do
 * not depend on the threads (AVO_TEST_THREADS). */
#include "support/support.h"

#include "base/file.h"
#include "base/random.h"
#include "formats/avo.h"
#include "pack/pack.h"
#include "support/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *scratch_path(const char *name) {
    static char path[4400];
    snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), name);
    return path;
}

static const char *fixture_path(const char *name, bool twin) {
    char relative[256];
    snprintf(relative, sizeof(relative), twin ? "models/%s.gguf" : "models/%s", name);
    return test_fixture_path(relative);
}

static void pack_to(const char *model, const char *path, pack_type type, uint32_t threads) {
    pack_options options = {.type = type, .threads = threads};
    pack_report report;
    avo_error error;
    assert_ok_error(pack_file(model, path, &options, &report, &error), &error);
    assert_true(report.file_bytes > report.weight_bytes && report.parameters > 0);
}

static model_source *open_source(const char *path) {
    model_source *source;
    avo_error error;
    assert_ok_error(source_open(path, NULL, &source, &error), &error);
    return source;
}

static float *compute(const fixture *fixture, const char *path) {
    fixture_engine opened;
    size_t count = (size_t)fixture->positions * fixture->vocabulary;
    float *logits = malloc(count * sizeof(float));
    fixture_engine_open(&opened, path, "ref", fixture->positions, 1, 1);
    fixture_compute(&opened, fixture->ids, fixture->positions, fixture->vocabulary, logits);
    fixture_engine_close(&opened);
    return logits;
}

/* ---- Nothing is lost ---- */

/* How far the logits of a pack are from the model's: the root of the mean square of differences as
 * a part of the logits' range. 0 only when all are equal to the bit. */
static double packed_difference(const char *name, bool twin, pack_type type) {
    fixture fixture;
    fixture_open(&fixture, name);
    const char *path = scratch_path("model.avo");
    pack_to(fixture_path(name, twin), path, type, 2);
    model_source *source = open_source(path);
    avo_error error;
    assert_ok_error(avo_source_verify(source, NULL, NULL, &error), &error);
    assert_false(source->config.norm_plus_one || source->config.transposed);
    source_close(source);
    float *original = compute(&fixture, fixture_path(name, twin));
    float *packed = compute(&fixture, path);
    size_t count = (size_t)fixture.positions * fixture.vocabulary;
    double sum = memcmp(original, packed, count * sizeof(float)) == 0 ? 0 : 1e-30;
    for (size_t i = 0; i < count; i++)
        sum += pow((double)original[i] - (double)packed[i], 2);
    double found = sqrt(sum / (double)count) / (double)fixture.range;
    free(original);
    free(packed);
    fixture_close(&fixture);
    return found;
}

/* Types that hold what is there: the very same logits, from every architecture and format. */
static void exact_types_give_equal_logits(void **state) {
    (void)state;
    for (size_t i = 0; i < FIXTURE_COUNT; i++)
        for (int twin = 0; twin <= (fixture_names[i].twin ? 1 : 0); twin++) {
            if (twin == 0 && strncmp(fixture_names[i].name, "gpt-oss", 7) == 0)
                continue; /* refused, below */
            const pack_type types[] = {PACK_F32, PACK_KEEP};
            for (size_t t = 0; t < 2; t++) {
                double found = packed_difference(fixture_names[i].name, twin == 1, types[t]);
                if (found != 0)
                    fail_msg("%s%s as %s: logits differ by %g", fixture_names[i].name,
                             twin ? ".gguf" : "", pack_type_name(types[t]), found);
            }
        }
}

/* Rows of gate and up alternate there. */
static void alternating_experts_are_refused(void **state) {
    (void)state;
    pack_options options = {.threads = 1, .type = PACK_KEEP};
    pack_report report;
    avo_error error = {0};
    assert_int_equal(pack_file(fixture_path("gpt-oss", false), scratch_path("model.avo"), &options,
                               &report, &error),
                     AVO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "mlp.experts."));
    assert_non_null(strstr(error.text, "pack a GGUF of the model"));
}

/* The others come near; the bounds are about twice what was seen. Of experts, a rounded row may
 * choose others. */
static void narrow_types_stay_near(void **state) {
    (void)state;
    const struct {
        pack_type type;
        double bound;
    } cases[] = {
        {PACK_F16, 5e-4}, {PACK_BF16, 5e-3}, {PACK_Q8, 3e-2}, {PACK_Q8C, 3e-2}, {PACK_Q4, 0.3}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        double worst = 0;
        for (size_t i = c % 3; i < FIXTURE_DENSE; i += 3) { /* a third each: flushing takes time */
            double found = packed_difference(fixture_names[i].name, false, cases[c].type);
            worst = found > worst || isnan(found) ? found : worst;
            if (!(found <= cases[c].bound))
                fail_msg("%s as %s: logits differ by %g of their range", fixture_names[i].name,
                         pack_type_name(cases[c].type), found);
        }
        print_message("%-4s at most %.2e of the range\n", pack_type_name(cases[c].type), worst);
    }
}

/* llama2.c, with its tokenizer: the image in the pack gives the same ids, and the weights the same
 * logits. */
static void llama2c_keeps_its_tokenizer(void **state) {
    (void)state;
    const char *found = test_data_path("models/stories260K/stories260K.bin");
    skip_without(found, "stories260K.bin");
    char original_path[4200];
    snprintf(original_path, sizeof(original_path), "%s", found);
    const char *path = scratch_path("stories.avo");
    pack_to(original_path, path, PACK_KEEP, 2);
    fixture_engine original, packed;
    fixture_engine_open(&original, original_path, "ref", 64, 1, 1);
    fixture_engine_open(&packed, path, "ref", 64, 1, 1);
    static const char text[] = "Once upon a time, there was a little girl. \xc3\xa9 \xff";
    int32_t ids[2][64];
    size_t counts[2];
    avo_error error;
    assert_ok_error(avo_tokenize(original.model, text, sizeof(text) - 1, AVO_TOKENIZE_BEGIN, ids[0],
                                 64, &counts[0], &error),
                    &error);
    assert_ok_error(avo_tokenize(packed.model, text, sizeof(text) - 1, AVO_TOKENIZE_BEGIN, ids[1],
                                 64, &counts[1], &error),
                    &error);
    assert_int_equal(counts[0], counts[1]);
    assert_true(counts[0] > 10);
    assert_memory_equal(ids[0], ids[1], counts[0] * sizeof(int32_t));
    float *logits = malloc(2 * 64 * 512 * sizeof(float));
    fixture_compute(&original, ids[0], (uint32_t)counts[0], 512, logits);
    fixture_compute(&packed, ids[0], (uint32_t)counts[0], 512, logits + 64 * 512);
    assert_memory_equal(logits, logits + 64 * 512, counts[0] * 512 * sizeof(float));
    free(logits);
    fixture_engine_close(&original);
    fixture_engine_close(&packed);
}

/* ---- What becomes what ---- */

static void expect_tensor(const model_source *source, const char *name, quant_type type,
                          quant_layout layout) {
    const source_tensor *tensor = source_find(source, text_from(name));
    if (tensor == NULL)
        fail_msg("no tensor %s", name);
    if (tensor->type != type || tensor->layout != layout)
        fail_msg("%s is %s in layout %d", name, quant_name(tensor->type), (int)tensor->layout);
}

static void types_are_as_documented(void **state) {
    (void)state;
    const char *path = scratch_path("types.avo");
    pack_to(fixture_path("llama2", false), path, PACK_Q4, 1); /* untied, width 40 */
    model_source *source = open_source(path);
    assert_false(source->config.tied_head);
    expect_tensor(source, "token_embd.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "output.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "blk.0.attn_q.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "blk.0.ffn_down.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "blk.0.attn_norm.weight", QUANT_F32, QUANT_LAYOUT_ROWS);
    source_close(source);
    pack_to(fixture_path("llama3", false), path, PACK_Q4, 1); /* tied */
    source = open_source(path);
    assert_true(source->config.tied_head);
    assert_null(source_find(source, TEXT_LITERAL("output.weight")));
    expect_tensor(source, "token_embd.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS);
    source_close(source);
    pack_to(fixture_path("llama2", false), path, PACK_Q8, 1);
    source = open_source(path);
    expect_tensor(source, "token_embd.weight", QUANT_F16, QUANT_LAYOUT_ROWS); /* width 40 */
    expect_tensor(source, "output.weight", QUANT_Q8B, QUANT_LAYOUT_PANELS);
    source_close(source);
    pack_options options = {.type = PACK_Q8C, .threads = 1};
    pack_report report;
    avo_error error;
    assert_ok_error(pack_random("tiny", 1, path, &options, &report, &error), &error);
    source = open_source(path); /* untied, width 64 */
    expect_tensor(source, "token_embd.weight", QUANT_F16, QUANT_LAYOUT_ROWS);
    expect_tensor(source, "output.weight", QUANT_Q8C, QUANT_LAYOUT_PANELS);
    source_close(source);
    pack_to(fixture_path("llama2", false), path, PACK_BF16, 1);
    source = open_source(path);
    expect_tensor(source, "token_embd.weight", QUANT_BF16, QUANT_LAYOUT_ROWS);
    expect_tensor(source, "output.weight", QUANT_BF16, QUANT_LAYOUT_PANELS);
    source_close(source);
    pack_to(fixture_path("gpt2", false), path, PACK_Q8C, 1);
    source = open_source(path);
    expect_tensor(source, "position_embd.weight", QUANT_F32, QUANT_LAYOUT_ROWS);
    expect_tensor(source, "blk.1.attn_k.weight", QUANT_Q8C, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "blk.1.attn_v.bias", QUANT_F32, QUANT_LAYOUT_ROWS);
    source_close(source);
}

static pack_report pack_with(const char *model, const char *path, const pack_options *options) {
    pack_report report;
    avo_error error;
    assert_ok_error(pack_file(model, path, options, &report, &error), &error);
    return report;
}

/* A tied embedding may have a table of its own beside the head: the file is untied then, the model
 * has as many parameters as before, and the table takes no part in what every token reads. */
static void look_ups_have_their_type(void **state) {
    (void)state;
    const char *path = scratch_path("look-up.avo");
    const char *tied = fixture_path("llama3", false);
    char model[4200];
    snprintf(model, sizeof(model), "%s", tied);
    pack_report shared =
        pack_with(model, path, &(pack_options){.type = PACK_Q8, .look_up = PACK_LOOK_UP_SHARED});
    model_source *source = open_source(path);
    assert_true(source->config.tied_head);
    expect_tensor(source, "token_embd.weight", QUANT_Q8B, QUANT_LAYOUT_PANELS);
    uint64_t table = source->config.vocabulary * (uint64_t)source->config.width;
    source_close(source);
    pack_report split = pack_with(model, path, &(pack_options){.type = PACK_Q8});
    source = open_source(path);
    assert_false(source->config.tied_head);
    expect_tensor(source, "token_embd.weight", QUANT_F16, QUANT_LAYOUT_ROWS);
    expect_tensor(source, "output.weight", QUANT_Q8B, QUANT_LAYOUT_PANELS);
    source_close(source);
    assert_int_equal(split.parameters, shared.parameters);
    assert_int_equal(split.read_parameters, shared.read_parameters);
    assert_int_equal(split.read_bytes, shared.read_bytes);
    assert_int_equal(split.weight_bytes, shared.weight_bytes + 2 * table);
    pack_report wide = pack_with(
        model, path, &(pack_options){.type = PACK_Q4, .look_up = PACK_LOOK_UP_F32, .bits = 9});
    source = open_source(path);
    expect_tensor(source, "token_embd.weight", QUANT_F32, QUANT_LAYOUT_ROWS);
    assert_non_null(source_find(source, TEXT_LITERAL("output.weight")));
    source_close(source);
    assert_true(8 * wide.read_bytes <= 9 * wide.read_parameters);
    /* f32 beside an f32 head: the very same logits as tied */
    fixture fixture;
    fixture_open(&fixture, "llama3");
    pack_with(model, path, &(pack_options){.type = PACK_F32, .look_up = PACK_LOOK_UP_F32});
    float *original = compute(&fixture, model), *packed = compute(&fixture, path);
    assert_memory_equal(original, packed,
                        (size_t)fixture.positions * fixture.vocabulary * sizeof(float));
    free(original);
    free(packed);
    fixture_close(&fixture);
}

static void named_matrices_get_their_type(void **state) {
    (void)state;
    const char *path = scratch_path("named.avo");
    char model[4200];
    snprintf(model, sizeof(model), "%s", fixture_path("llama2", false));
    pack_with(model, path,
              &(pack_options){.type = PACK_Q4, .tensors = "ffn_down=q8,blk.0.ffn_down=f16"});
    model_source *source = open_source(path);
    expect_tensor(source, "blk.0.ffn_down.weight", QUANT_F16, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "blk.1.ffn_down.weight", QUANT_Q8B, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "blk.1.ffn_up.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS);
    source_close(source);
    pack_with(model, path, &(pack_options){.type = PACK_Q4, .bits = 9, .tensors = "ffn_up=q4_0"});
    source = open_source(path);
    expect_tensor(source, "blk.0.ffn_up.weight", QUANT_Q4_0, QUANT_LAYOUT_PANELS);
    source_close(source);
    pack_options random = {.type = PACK_Q4, .tensors = "ffn_down=q5_1", .threads = 1};
    pack_report made;
    avo_error refused;
    assert_ok_error(pack_random("tiny", 1, path, &random, &made, &refused), &refused);
    source = open_source(path);
    expect_tensor(source, "blk.1.ffn_down.weight", QUANT_Q5_1, QUANT_LAYOUT_PANELS);
    expect_tensor(source, "blk.1.ffn_up.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS);
    source_close(source);
    random.look_up = PACK_LOOK_UP_F32;
    assert_refused(pack_random("tiny", 1, path, &random, &made, &refused), AVO_ERROR_ARGUMENT,
                   &refused, "look-up");
    static const char *const wrong[] = {
        "ffn_down",    "ffn_down=q9", "=q8",     "nothing=q8",  "norm=q8",
        "ffn_up=keep", ",",           "ffn_up=", "ffn_up=q8,x", "ffn_up=123456789012345678"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        pack_options options = {.type = PACK_Q4, .tensors = wrong[i]};
        pack_report report;
        avo_error error;
        if (pack_file(model, path, &options, &report, &error) != AVO_ERROR_ARGUMENT)
            fail_msg("\"%s\" is no error", wrong[i]);
    }
}

/* Tensors stand in the order of a forward pass; layers begin on pages; q, k, v and gate, up touch.
 */
static void order_is_that_of_a_forward_pass(void **state) {
    (void)state;
    const char *path = scratch_path("order.avo");
    pack_to(fixture_path("phi3", false), path, PACK_Q8, 1); /* fused in the source */
    model_source *source = open_source(path);
    const uint8_t *base = source->files[0].map.bytes.data;
    const char *const names[] = {
        "token_embd.weight",     "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight",   "blk.0.attn_v.weight",    "blk.0.attn_output.weight",
        "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight",  "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight", "blk.1.attn_norm.weight"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_true(text_is(source->tensors[i].name, names[i]));
    assert_int_equal((source->tensors[1].data - base) % 4096, 0);
    assert_int_equal((source->tensors[10].data - base) % 4096, 0);
    for (size_t i = 2; i < 9; i += i == 3 ? 4 : 1) /* q→k, k→v, gate→up */
        if (i == 2 || i == 3 || i == 7)
            assert_ptr_equal(source->tensors[i].data + source->tensors[i].bytes,
                             source->tensors[i + 1].data);
    assert_true(text_is(source->tensors[source->tensor_count - 1].name, "output.weight"));
    source_close(source);
}

/* ---- A source made by hand, with every type that a file may have ---- */

enum { HAND_ROWS = 20, HAND_K = 256, HAND_TENSORS = 25 };

typedef struct hand_source {
    model_source source;
    source_file file;
    source_tensor tensors[HAND_TENSORS];
    char names[HAND_TENSORS][32];
    uint8_t *data[HAND_TENSORS];
    uint8_t flags[2][HAND_TENSORS];
} hand_source;

static const quant_type hand_types[HAND_TENSORS] = {
    QUANT_F32,    QUANT_F16,    QUANT_BF16,  QUANT_F64,  QUANT_F8_E4M3, QUANT_F8_E5M2, QUANT_I8,
    QUANT_U8,     QUANT_I16,    QUANT_I32,   QUANT_BOOL, QUANT_Q4_0,    QUANT_Q4_1,    QUANT_Q5_0,
    QUANT_Q5_1,   QUANT_Q8_0,   QUANT_Q2_K,  QUANT_Q3_K, QUANT_Q4_K,    QUANT_Q5_K,    QUANT_Q6_K,
    QUANT_IQ4_NL, QUANT_IQ4_XS, QUANT_MXFP4, QUANT_F32};

/* Tensor t is blk.t.ffn_down.weight in type t; bytes that decode to finite numbers. */
static void hand_open(hand_source *hand) {
    memset(hand, 0, sizeof(*hand));
    model_source *source = &hand->source;
    memset(hand->flags[1], 1, HAND_TENSORS);
    source->config = (model_config){.layers = HAND_TENSORS,
                                    .width = HAND_ROWS,
                                    .embedding_width = HAND_ROWS,
                                    .feed_forward = HAND_K,
                                    .heads = 1,
                                    .kv_heads = 1,
                                    .head_size = HAND_ROWS,
                                    .vocabulary = 10,
                                    .context = 10,
                                    .layer_windowed = hand->flags[0],
                                    .layer_rotary = hand->flags[1]};
    generation_defaults_init(&source->generation);
    source->format = SOURCE_GGUF;
    source->naming = SOURCE_NAMES_GGUF;
    source->path = "by-hand";
    source->files = &hand->file;
    hand->file = (source_file){.path = "by-hand", .borrowed = true};
    source->file_count = 1;
    source->tensors = hand->tensors;
    source->tensor_count = HAND_TENSORS;
    for (uint32_t t = 0; t < HAND_TENSORS; t++) {
        uint64_t bytes;
        assert_true(weight_bytes(hand_types[t], QUANT_LAYOUT_ROWS, HAND_ROWS, HAND_K, &bytes));
        hand->data[t] = malloc(bytes);
        for (uint64_t i = 0; i < bytes; i++) /* no exponent gets to infinity */
            hand->data[t][i] = (uint8_t)(random_at(3, t, i).words[0] % 0x78);
        for (uint64_t i = 0; hand_types[t] == QUANT_F64 && i < bytes / 8; i++) {
            double number = random_uniform_at(3, t, i);
            memcpy(hand->data[t] + 8 * i, &number, 8);
        }
        snprintf(hand->names[t], sizeof(hand->names[t]), "blk.%u.ffn_down.weight", t);
        hand->tensors[t] = (source_tensor){.name = text_from(hand->names[t]),
                                           .type = hand_types[t],
                                           .rank = 2,
                                           .shape = {HAND_ROWS, HAND_K, 1, 1},
                                           .data = hand->data[t],
                                           .bytes = bytes};
    }
}

static void hand_close(hand_source *hand) {
    for (size_t t = 0; t < HAND_TENSORS; t++)
        free(hand->data[t]);
}

static void kept_types_keep_every_bit(void **state) {
    (void)state;
    hand_source hand;
    hand_open(&hand);
    const char *path = scratch_path("kept.avo");
    pack_options options = {.type = PACK_KEEP, .threads = 2};
    pack_report report;
    avo_error error;
    assert_ok_error(pack_source(&hand.source, path, &options, &report, &error), &error);
    model_source *packed = open_source(path);
    assert_int_equal(packed->tensor_count, HAND_TENSORS);
    for (uint32_t t = 0; t < HAND_TENSORS; t++) {
        const source_tensor *tensor = source_find(packed, text_from(hand.names[t]));
        assert_non_null(tensor);
        assert_int_equal(tensor->type, hand_types[t]);
        uint64_t bytes;
        bool panels = weight_panel_bytes(hand_types[t], HAND_K, &bytes);
        assert_int_equal(tensor->layout, panels ? QUANT_LAYOUT_PANELS : QUANT_LAYOUT_ROWS);
        if (!panels)
            assert_memory_equal(tensor->data, hand.data[t], tensor->bytes);
        weight_view a = {.type = hand_types[t],
                         .layout = QUANT_LAYOUT_ROWS,
                         .rows = HAND_ROWS,
                         .k = HAND_K,
                         .data = hand.data[t]};
        weight_view b = {.type = tensor->type,
                         .layout = tensor->layout,
                         .rows = HAND_ROWS,
                         .k = HAND_K,
                         .data = tensor->data};
        float first[HAND_K], second[HAND_K];
        for (size_t row = 0; row < HAND_ROWS; row++) {
            weight_decode_row(&a, row, first);
            weight_decode_row(&b, row, second);
            assert_memory_equal(first, second, sizeof(first));
        }
    }
    source_close(packed);
    hand_close(&hand);
}

/* ---- Failures ---- */

static void bad_numbers_are_named(void **state) {
    (void)state;
    hand_source hand;
    pack_report report;
    avo_error error;
    const char *path = scratch_path("bad.avo");
    int files = test_entries(test_scratch_folder());
    const struct {
        float value;
        pack_type type;
        const char *part;
        avo_status status;
        double bits; /* 0: the type for all */
    } cases[] = {{NAN, PACK_F32, "is nan; the model is damaged", AVO_ERROR_FORMAT, 0},
                 {INFINITY, PACK_KEEP, "is inf; the model is damaged", AVO_ERROR_FORMAT, 0},
                 {-INFINITY, PACK_Q4, "-inf", AVO_ERROR_FORMAT, 0},
                 {70000, PACK_F16, "70000, too large for f16", AVO_ERROR_UNSUPPORTED, 0},
                 {3e38f, PACK_Q8, "too large for q8b", AVO_ERROR_UNSUPPORTED, 0},
                 {65504.0f * 15.1f, PACK_Q5_0, "too large for q5_0", AVO_ERROR_UNSUPPORTED, 0},
                 {-65600, PACK_Q5_1, "-65600, too large for q5_1", AVO_ERROR_UNSUPPORTED, 0},
                 {NAN, PACK_Q4, "is nan; the model is damaged", AVO_ERROR_FORMAT, 8},
                 {-INFINITY, PACK_Q4, "is -inf; the model is damaged", AVO_ERROR_FORMAT, 5},
                 {3e38f, PACK_Q4, "too large for q4r", AVO_ERROR_UNSUPPORTED, 8},
                 {70000, PACK_Q4, "70000, too large for q4m64", AVO_ERROR_UNSUPPORTED, 8}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            hand_open(&hand);
            hand.source.tensors[0] = hand.tensors[24]; /* the last f32 one alone */
            hand.source.tensor_count = 1;
            float *numbers = (float *)(void *)hand.data[24];
            for (size_t i = 0; i < (size_t)HAND_ROWS * HAND_K; i++)
                numbers[i] = 0.5f;
            numbers[18 * HAND_K + 7] = cases[c].value;
            numbers[19 * HAND_K] = cases[c].value;
            pack_options options = {
                .type = cases[c].type, .threads = threads, .bits = cases[c].bits};
            assert_refused(pack_source(&hand.source, path, &options, &report, &error),
                           cases[c].status, &error, cases[c].part);
            assert_non_null(strstr(error.text, "blk.24.ffn_down.weight: row 18, column 7"));
            hand_close(&hand);
        }
    assert_int_equal(test_entries(test_scratch_folder()), files);
}

static void strange_tensors_are_refused(void **state) {
    (void)state;
    hand_source hand;
    pack_report report;
    avo_error error;
    pack_options options = {.type = PACK_F32, .threads = 1};
    const char *path = scratch_path("strange.avo");
    hand_open(&hand);
    hand.tensors[3].name = TEXT_LITERAL("blk.3.unheard_of.weight");
    assert_refused(pack_source(&hand.source, path, &options, &report, &error),
                   AVO_ERROR_UNSUPPORTED, &error, "unheard_of");
    hand.tensors[3].name = TEXT_LITERAL("blk.99.ffn_down.weight");
    assert_refused(pack_source(&hand.source, path, &options, &report, &error),
                   AVO_ERROR_UNSUPPORTED, &error, "blk.99.");
    hand.tensors[3].name = hand.tensors[4].name;
    assert_refused(pack_source(&hand.source, path, &options, &report, &error), AVO_ERROR_FORMAT,
                   &error, "twice");
    hand.tensors[3].name = TEXT_LITERAL("blk.3.attn_qkv.weight");
    assert_refused(pack_source(&hand.source, path, &options, &report, &error), AVO_ERROR_FORMAT,
                   &error, "has 20 rows, expected 60");
    hand.tensors[3].name = TEXT_LITERAL("blk.3.ffn_up.weight");
    hand.tensors[3].rank = 3;
    assert_refused(pack_source(&hand.source, path, &options, &report, &error),
                   AVO_ERROR_UNSUPPORTED, &error, "rank 3");
    hand.source.tensor_count = 0;
    assert_refused(pack_source(&hand.source, path, &options, &report, &error), AVO_ERROR_FORMAT,
                   &error, "no tensors");
    assert_int_not_equal(access(path, F_OK), 0);
    hand_close(&hand);
}

static void the_model_itself_is_never_overwritten(void **state) {
    (void)state;
    const char *path = scratch_path("self.avo");
    pack_to(fixture_path("llama2", false), path, PACK_F16, 1);
    char link_path[4500];
    snprintf(link_path, sizeof(link_path), "%s.link", path);
    assert_int_equal(link(path, link_path), 0);
    pack_options options = {.type = PACK_Q8, .threads = 1};
    pack_report report;
    avo_error error;
    assert_refused(pack_file(path, path, &options, &report, &error), AVO_ERROR_ARGUMENT, &error,
                   "is a file of the model itself");
    assert_refused(pack_file(path, link_path, &options, &report, &error), AVO_ERROR_ARGUMENT,
                   &error, "is a file of the model itself");
    assert_refused(pack_file("/no/such/model", path, &options, &report, &error),
                   AVO_ERROR_NOT_FOUND, &error, "/no/such/model");
    assert_refused(
        pack_file(fixture_path("llama2", false), "/no/such/folder/x", &options, &report, &error),
        AVO_ERROR_IO, &error, "/no/such/folder");
    source_close(open_source(path));
}

static bool stop_half_way(void *context, const char *what, uint64_t done, uint64_t total) {
    uint64_t *last = context;
    assert_string_equal(what, "packing");
    assert_true(done >= *last && done <= total);
    *last = done;
    return done < total / 2;
}

static void cancelling_leaves_nothing(void **state) {
    (void)state;
    int files = test_entries(test_scratch_folder());
    uint64_t last = 0;
    pack_options options = {
        .type = PACK_F32, .threads = 2, .progress = stop_half_way, .progress_context = &last};
    pack_report report;
    avo_error error;
    assert_refused(pack_random("tiny", 1, scratch_path("cancelled.avo"), &options, &report, &error),
                   AVO_ERROR_CANCELLED, &error, "cancelled");
    assert_true(last > 0);
    assert_int_equal(test_entries(test_scratch_folder()), files);
}

static void allocation_failures_leave_nothing(void **state) {
    (void)state;
    const char *path = scratch_path("memory.avo");
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        pack_options options = {.type = PACK_Q8, .threads = 2, .allocator = &allocator.allocator};
        pack_report report;
        avo_error error;
        avo_status status = pack_file(fixture_path("phi3", false), path, &options, &report, &error);
        assert_int_equal(allocator.live, 0);
        assert_int_equal(access(path, F_OK) == 0, status == AVO_OK);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_true(fail_at < 10000);
    }
}

/* ---- The same bytes ---- */

static void assert_same_files(const char *a, const char *b) {
    file_map first, second;
    avo_error error;
    assert_ok_error(file_map_open(a, &first, &error), &error);
    assert_ok_error(file_map_open(b, &second, &error), &error);
    assert_int_equal(first.bytes.size, second.bytes.size);
    assert_memory_equal(first.bytes.data, second.bytes.data, first.bytes.size);
    file_map_close(&first);
    file_map_close(&second);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    char one[4500], more[4500];
    snprintf(one, sizeof(one), "%s/one.avo", test_scratch_folder());
    snprintf(more, sizeof(more), "%s/more.avo", test_scratch_folder());
    for (pack_type type = 0; type < PACK_TYPE_COUNT; type++) {
        pack_to(fixture_path("smollm3", true), one, type, 1);
        pack_to(fixture_path("smollm3", true), more, type, 2 + type % 4);
        assert_same_files(one, more);
    }
}

/* A pack of a pack: every tensor as it was. */
static void packs_can_be_packed(void **state) {
    (void)state;
    char first[4500], second[4500];
    snprintf(first, sizeof(first), "%s/first.avo", test_scratch_folder());
    snprintf(second, sizeof(second), "%s/second.avo", test_scratch_folder());
    for (pack_type type = 0; type < PACK_TYPE_COUNT; type++) {
        pack_to(fixture_path("gemma3", false), first, type, 1);
        pack_to(first, second, PACK_KEEP, 1);
        model_source *a = open_source(first), *b = open_source(second);
        assert_int_equal(a->tensor_count, b->tensor_count);
        for (uint32_t i = 0; i < a->tensor_count; i++) {
            assert_true(text_equal(a->tensors[i].name, b->tensors[i].name));
            assert_int_equal(a->tensors[i].bytes, b->tensors[i].bytes);
            assert_memory_equal(a->tensors[i].data, b->tensors[i].data, a->tensors[i].bytes);
        }
        source_close(a);
        source_close(b);
    }
}

static void random_models_are_the_same_again(void **state) {
    (void)state;
    char first[4500], second[4500];
    snprintf(first, sizeof(first), "%s/random1.avo", test_scratch_folder());
    snprintf(second, sizeof(second), "%s/random2.avo", test_scratch_folder());
    pack_options options = {.type = PACK_Q4, .threads = 1};
    pack_report report;
    avo_error error;
    assert_ok_error(pack_random("tiny", 5, first, &options, &report, &error), &error);
    options.threads = 3;
    assert_ok_error(pack_random("tiny", 5, second, &options, &report, &error), &error);
    assert_same_files(first, second);
    fixture_engine opened;
    int32_t ids[3] = {1, 50, 99};
    float logits[300];
    fixture_engine_open(&opened, first, "ref", 3, 1, 1);
    fixture_compute(&opened, ids, 3, 100, logits);
    fixture_engine_close(&opened);
    for (size_t i = 0; i < 300; i++)
        assert_true(isfinite(logits[i]) && fabsf(logits[i]) < 100);
    assert_refused(pack_random("huge", 5, first, &options, &report, &error), AVO_ERROR_ARGUMENT,
                   &error, "tinyllama-1.1b");
}

/* 16 rows are one panel; q ends at row 8 of it. */
static void a_cut_inside_a_panel_is_refused(void **state) {
    (void)state;
    char model[4200];
    snprintf(model, sizeof(model), "%s/fuzz/corpus/model/phi3.gguf", AVO_SOURCE_FOLDER);
    model_source *source = open_source(model);
    const source_tensor *fused = source_find(source, TEXT_LITERAL("blk.0.attn_qkv.weight"));
    assert_non_null(fused);
    source->tensors[fused - source->tensors].layout = QUANT_LAYOUT_PANELS;
    pack_options options = {.type = PACK_Q8, .threads = 1};
    pack_report report;
    avo_error error;
    assert_refused(pack_source(source, scratch_path("cut.avo"), &options, &report, &error),
                   AVO_ERROR_UNSUPPORTED, &error,
                   "blk.0.attn_qkv.weight in panels cannot be split at row");
    source_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_inside_a_panel_is_refused),
        cmocka_unit_test(exact_types_give_equal_logits),
        cmocka_unit_test(alternating_experts_are_refused),
        cmocka_unit_test(narrow_types_stay_near),
        cmocka_unit_test(llama2c_keeps_its_tokenizer),
        cmocka_unit_test(types_are_as_documented),
        cmocka_unit_test(look_ups_have_their_type),
        cmocka_unit_test(named_matrices_get_their_type),
        cmocka_unit_test(order_is_that_of_a_forward_pass),
        cmocka_unit_test(kept_types_keep_every_bit),
        cmocka_unit_test(bad_numbers_are_named),
        cmocka_unit_test(strange_tensors_are_refused),
        cmocka_unit_test(the_model_itself_is_never_overwritten),
        cmocka_unit_test(cancelling_leaves_nothing),
        cmocka_unit_test(allocation_failures_leave_nothing),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(packs_can_be_packed),
        cmocka_unit_test(random_models_are_the_same_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
