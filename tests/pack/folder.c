/* Models written as folders with safetensors: without a change every tensor is the same to the bit,
 * whatever its layout; types and configuration follow what was asked for; failures leave nothing.
 * tests/pack/merge.c has what merged folders compute. */
#include "support/support.h"

#include "formats/safetensors.h"
#include "pack/pack.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[4096]; /* fresh and empty for every test */

static int make_folder(void **state) {
    (void)state;
    static int number;
    snprintf(folder, sizeof(folder), "%s/folder-%d", test_scratch_folder(), number++);
    return mkdir(folder, 0755);
}

static const char *at(const char *name) {
    static char path[4][4300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

static const char *model_path(const char *name) {
    static char path[512];
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s", name);
    snprintf(path, sizeof(path), "%s", test_fixture_path(relative));
    return path;
}

static model_source *open_source(const char *path) {
    model_source *source;
    avo_error error = {0};
    assert_ok_error(source_open(path, NULL, &source, &error), &error);
    return source;
}

/* Writes fixture `name` to `out`. */
static void write_folder(const char *name, const char *out, pack_type type, pack_look_up look_up) {
    pack_options options = {.type = type, .folder = true, .look_up = look_up, .threads = 2};
    pack_report report;
    avo_error error = {0};
    assert_ok_error(pack_file(model_path(name), out, &options, &report, &error), &error);
    struct stat info;
    char path[4400];
    assert_ok(file_join(path, sizeof(path), out, "model.safetensors", &error));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, report.file_bytes);
    model_source *written = open_source(out);
    assert_int_equal(report.tensors, written->tensor_count);
    source_close(written);
}

/* ---- The same model ---- */

static void assert_same_tensors(const model_source *a, const model_source *b) {
    assert_int_equal(a->tensor_count, b->tensor_count);
    for (uint32_t i = 0; i < a->tensor_count; i++) {
        const source_tensor *wanted = &a->tensors[i];
        const source_tensor *found = source_find(b, wanted->name);
        assert_non_null(found);
        assert_int_equal(found->type, wanted->type);
        assert_int_equal(found->rank, wanted->rank);
        assert_memory_equal(found->shape, wanted->shape, sizeof(found->shape));
        assert_int_equal(found->bytes, wanted->bytes);
        assert_memory_equal(found->data, wanted->data, (size_t)wanted->bytes);
    }
}

static void unchanged_models_are_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < FIXTURE_DENSE; i++) {
        const char *name = fixture_names[i].name;
        write_folder(name, at(name), PACK_KEEP, PACK_LOOK_UP_AUTO);
        model_source *from = open_source(model_path(name)), *to = open_source(at(name));
        assert_same_tensors(from, to);
        source_close(from);
        source_close(to);
    }
}

static void types_are_those_asked_for(void **state) {
    (void)state;
    static const struct {
        pack_type type;
        quant_type tensors;
        const char *dtype;
    } types[] = {{PACK_F32, QUANT_F32, "float32"},
                 {PACK_F16, QUANT_F16, "float16"},
                 {PACK_BF16, QUANT_BF16, "bfloat16"}};
    for (size_t i = 0; i < 3; i++) {
        write_folder("tinyllama", at(types[i].dtype), types[i].type, PACK_LOOK_UP_AUTO);
        model_source *written = open_source(at(types[i].dtype));
        for (uint32_t t = 0; t < written->tensor_count; t++)
            assert_int_equal(written->tensors[t].type, types[i].tensors);
        const json_value *dtype = json_find(written->config_json, "dtype");
        assert_non_null(dtype);
        assert_true(text_is(dtype->string, types[i].dtype));
        const json_value *dropout = json_find(written->config_json, "attention_dropout");
        assert_int_equal(dropout->kind, JSON_NUMBER); /* 0.0 has not become 0 */
        assert_int_equal(json_find(written->config_json, "vocab_size")->kind, JSON_INTEGER);
        source_close(written);
    }
    /* What is no weight of ours keeps its type; keys within text_config change too. */
    write_folder("gemma3-wrapped", at("wrapped"), PACK_F32, PACK_LOOK_UP_AUTO);
    model_source *from = open_source(model_path("gemma3-wrapped"));
    model_source *to = open_source(at("wrapped"));
    text_view tower = TEXT_LITERAL("vision_tower.vision_model.post_layernorm.weight");
    assert_int_equal(source_find(to, tower)->type, source_find(from, tower)->type);
    const json_value *inner = json_find(to->config_json, "text_config");
    assert_true(text_is(json_find(inner, "dtype")->string, "float32"));
    source_close(from);
    source_close(to);
}

/* A table with a type of its own in .avo: here, a head of its own. */
static void heads_are_untied(void **state) {
    (void)state;
    static const char *const names[] = {"smollm2", "gemma3-wrapped", "gpt2"};
    static const char *const embeddings[] = {"model.embed_tokens.weight",
                                             "language_model.model.embed_tokens.weight",
                                             "transformer.wte.weight"};
    for (size_t i = 0; i < 3; i++) {
        write_folder(names[i], at(names[i]), PACK_KEEP, PACK_LOOK_UP_F16);
        model_source *from = open_source(model_path(names[i])), *to = open_source(at(names[i]));
        assert_true(from->config.tied_head);
        assert_false(to->config.tied_head);
        assert_int_equal(to->tensor_count, from->tensor_count + 1);
        const json_value *tie = json_find(to->config_json, "tie_word_embeddings");
        assert_non_null(tie);
        assert_false(tie->boolean);
        const source_tensor *table = source_find(to, text_from(embeddings[i]));
        const source_tensor *head = source_find(to, TEXT_LITERAL("lm_head.weight"));
        if (head == NULL)
            head = source_find(to, TEXT_LITERAL("language_model.lm_head.weight"));
        assert_non_null(table);
        assert_non_null(head);
        assert_memory_equal(head->shape, table->shape, sizeof(head->shape));
        assert_memory_equal(head->data, table->data, (size_t)table->bytes);
        source_close(from);
        source_close(to);
    }
}

static void put(const char *path, const char *text) {
    avo_error error = {0};
    assert_ok_error(file_write(path, text, strlen(text), &error), &error);
}

static void link_into(const char *model, const char *name, const char *target) {
    char from[4096], to[4400];
    avo_error error = {0};
    assert_ok(file_join(from, sizeof(from), model_path(model), name, &error));
    assert_ok(file_join(to, sizeof(to), target, name, &error));
    assert_int_equal(symlink(from, to), 0);
}

static void files_beside_are_copied(void **state) {
    (void)state;
    static const char *const names[] = {"generation_config.json", "special_tokens_map.json",
                                        "LICENSE"};
    avo_error error = {0};
    pack_options options = {.type = PACK_KEEP, .folder = true, .threads = 1};
    pack_report report;
    assert_int_equal(mkdir(at("base"), 0755), 0);
    link_into("llama2", "model.safetensors", at("base"));
    link_into("llama2", "config.json", at("base"));
    put(at("base/generation_config.json"), "{\"temperature\": 0.5}");
    put(at("base/special_tokens_map.json"), "{}");
    put(at("base/LICENSE"), "Do what you like.\n");
    put(at("base/secret.txt"), "not a file of models");
    /* The folder, and one file that stands for it. */
    assert_ok_error(pack_file(at("base"), at("out"), &options, &report, &error), &error);
    assert_ok_error(pack_file(at("base/model.safetensors"), at("again"), &options, &report, &error),
                    &error);
    assert_int_equal(test_entries(at("out")), 5);
    assert_int_equal(test_entries(at("again")), 5);
    for (size_t i = 0; i < 3; i++) {
        char from[64], to[64];
        file_map one, two;
        snprintf(from, sizeof(from), "base/%s", names[i]);
        snprintf(to, sizeof(to), "out/%s", names[i]);
        assert_ok_error(file_map_open(at(from), &one, &error), &error);
        assert_ok_error(file_map_open(at(to), &two, &error), &error);
        assert_int_equal(one.bytes.size, two.bytes.size);
        assert_memory_equal(one.bytes.data, two.bytes.data, one.bytes.size);
        file_map_close(&one);
        file_map_close(&two);
    }
}

/* ---- What is refused, and what fails ---- */

static void assert_pack_refused(const char *model, const char *out, const pack_options *options,
                                avo_status wanted, const char *part) {
    avo_error error = {0};
    pack_report report;
    int before = test_entries(folder);
    assert_refused(pack_file(model, out, options, &report, &error), wanted, &error, part);
    assert_int_equal(test_entries(folder), before);
}

static void what_safetensors_cannot_hold_is_refused(void **state) {
    (void)state;
    pack_options options = {.type = PACK_Q8, .folder = true, .threads = 1};
    const char *out = at("out");
    assert_pack_refused(model_path("llama2"), out, &options, AVO_ERROR_ARGUMENT,
                        "safetensors holds f32, f16, bf16 or the types of the model (keep), one "
                        "for all tensors, not q8b");
    options.type = PACK_F16;
    assert_pack_refused(model_path("llama2.gguf"), out, &options, AVO_ERROR_UNSUPPORTED,
                        "is gguf; only a model in safetensors can be written as a folder");
    options.bits = 4;
    assert_pack_refused(model_path("llama2"), out, &options, AVO_ERROR_ARGUMENT, "types by bits");
    options.bits = 0;
    options.tensors = "ffn_down=q8";
    assert_pack_refused(model_path("llama2"), out, &options, AVO_ERROR_ARGUMENT, "types by bits");
    options.tensors = NULL;
    options.calibration = "x";
    assert_pack_refused(model_path("llama2"), out, &options, AVO_ERROR_ARGUMENT, "types by bits");
    options.calibration = NULL;
    put(at("file"), "x");
    assert_pack_refused(model_path("llama2"), at("file"), &options, AVO_ERROR_IO,
                        "not an empty folder");
    assert_pack_refused(model_path("llama2"), model_path("llama2"), &options, AVO_ERROR_IO,
                        "not an empty folder");
    assert_pack_refused(model_path("llama2"), at("none/out"), &options, AVO_ERROR_IO,
                        "cannot create");
}

/* The model of a fixture in F32 with numbers of twice the width. */
static void write_doubles(const char *name, const char *out) {
    avo_error error = {0};
    model_source *source = open_source(model_path(name));
    safetensors_tensor *tensors = calloc(source->tensor_count, sizeof(*tensors));
    assert_non_null(tensors);
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *from = &source->tensors[i];
        assert_int_equal(from->type, QUANT_F32);
        tensors[i] = (safetensors_tensor){from->name, QUANT_F64, from->rank, {0}};
        memcpy(tensors[i].shape, from->shape, sizeof(from->shape));
    }
    safetensors_content content = {.tensors = tensors, .tensor_count = source->tensor_count};
    safetensors_writer *writer;
    char path[4400];
    assert_ok(file_join(path, sizeof(path), out, "model.safetensors", &error));
    assert_ok_error(safetensors_writer_open(NULL, path, &content, &writer, &error), &error);
    for (uint32_t i = 0; i < source->tensor_count; i++)
        for (uint64_t e = 0; e < source->tensors[i].bytes / sizeof(float); e++) {
            float number;
            memcpy(&number, source->tensors[i].data + e * sizeof(float), sizeof(float));
            double wide = (double)number;
            assert_ok(safetensors_writer_append(writer, &wide, sizeof(wide), &error));
        }
    assert_ok_error(safetensors_writer_commit(writer, &error), &error);
    free(tensors);
    source_close(source);
}

static bool changes_one(const void *context, const char *name) {
    (void)context;
    return strcmp(name, "blk.0.attn_q.weight") == 0;
}

static void add_one(const void *context, const char *name, uint32_t first, uint32_t rows,
                    uint32_t k, float *numbers, float *scratch) {
    (void)context, (void)name, (void)first, (void)scratch;
    for (size_t i = 0; i < (size_t)rows * k; i++)
        numbers[i] += 1.0f;
}

static void changes_need_a_type_to_round_to(void **state) {
    (void)state;
    pack_change change = {.changes = changes_one, .apply = add_one};
    pack_options options = {.type = PACK_KEEP, .folder = true, .threads = 1};
    pack_report report;
    avo_error error = {0};
    assert_int_equal(mkdir(at("base"), 0755), 0);
    link_into("llama2", "config.json", at("base"));
    write_doubles("llama2", at("base"));
    assert_ok_error(pack_file(at("base"), at("same"), &options, &report, &error), &error);
    model_source *from = open_source(at("base")), *to = open_source(at("same"));
    assert_same_tensors(from, to);
    source_close(from);
    source_close(to);
    options.change = &change;
    assert_pack_refused(at("base"), at("out"), &options, AVO_ERROR_UNSUPPORTED,
                        "tensor model.layers.0.self_attn.q_proj.weight is f64, to which changed "
                        "weights are not rounded; choose the type f32, f16 or bf16");
    options.type = PACK_F32;
    assert_ok_error(pack_file(at("base"), at("out"), &options, &report, &error), &error);
    from = open_source(model_path("llama2")), to = open_source(at("out"));
    text_view name = TEXT_LITERAL("model.layers.0.self_attn.q_proj.weight");
    const source_tensor *before = source_find(from, name), *after = source_find(to, name);
    for (uint64_t i = 0; i < before->bytes; i += sizeof(float)) {
        float was, is;
        memcpy(&was, before->data + i, sizeof(was));
        memcpy(&is, after->data + i, sizeof(is));
        assert_true(is == was + 1.0f);
    }
    name = TEXT_LITERAL("model.layers.1.self_attn.q_proj.weight");
    before = source_find(from, name), after = source_find(to, name);
    assert_memory_equal(before->data, after->data, (size_t)before->bytes);
    source_close(from);
    source_close(to);
}

static bool stop(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context, (void)what, (void)done, (void)total;
    return false;
}

static void failures_leave_nothing(void **state) {
    (void)state;
    pack_options options = {.type = PACK_KEEP, .folder = true, .threads = 1, .progress = stop};
    assert_pack_refused(model_path("llama2"), at("out"), &options, AVO_ERROR_CANCELLED,
                        "was cancelled");
    options.progress = NULL;
    avo_error error = {0};
    pack_report report;
    test_disk_limit(20000);
    avo_status status = pack_file(model_path("llama2"), at("out"), &options, &report, &error);
    test_disk_limit(0);
    assert_refused(status, AVO_ERROR_IO, &error, "cannot write");
    assert_int_equal(test_entries(folder), 0);
}

static void allocation_failures_leave_nothing(void **state) {
    (void)state;
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        pack_options options = {.type = PACK_F16,
                                .folder = true,
                                .look_up = PACK_LOOK_UP_F16,
                                .threads = 2,
                                .allocator = &allocator.allocator};
        pack_report report;
        avo_error error = {0};
        avo_status status = pack_file(model_path("gpt2"), at("out"), &options, &report, &error);
        assert_int_equal(allocator.live, 0);
        assert_int_equal(test_entries(folder), status == AVO_OK);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_true(fail_at < 10000);
    }
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup(test, make_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(unchanged_models_are_the_same),
        IN_A_FOLDER(types_are_those_asked_for),
        IN_A_FOLDER(heads_are_untied),
        IN_A_FOLDER(files_beside_are_copied),
        IN_A_FOLDER(what_safetensors_cannot_hold_is_refused),
        IN_A_FOLDER(changes_need_a_type_to_round_to),
        IN_A_FOLDER(failures_leave_nothing),
        IN_A_FOLDER(allocation_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
