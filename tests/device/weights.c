/* device/weights: the repacked view has the values of the file, whoever builds it, however many
 * threads; it is built once, shared, and leaves nothing behind where it fails. AVO_TEST_THREADS */
#include "support/support.h"

#include "device/cpu/cpu.h"
#include "model/model.h"
#include "pack/pack.h"
#include "quant/panels.h"
#include "support/models.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A device with a stream, and what it has prepared. */
typedef struct prepared {
    device *device;
    device_stream *stream;
    device_weights *weights;
    const model_view *view; /* NULL: it failed */
} prepared;

static const device_options plain_options = {.name = "cpu"};

static void prepared_open(prepared *p, const avo_model *model, uint32_t threads,
                          const device_options *given) {
    avo_error error = {0};
    device_options options = *given;
    options.threads = threads;
    stream_shape shape = {.model = &model->view,
                          .rows_max = 1,
                          .logits_max = 1,
                          .head_rows = 1,
                          .context_max = 32,
                          .pairs_max = 128};
    *p = (prepared){0};
    assert_ok_error(device_open(&options, &p->device, &error), &error);
    assert_ok_error(device_stream_open(p->device, &shape, &p->stream, &error), &error);
}

static avo_status prepared_weights(prepared *p, const weights_source *source, avo_error *error) {
    avo_status status = device_weights_open(p->stream, source, &p->weights, error);
    p->view = status == AVO_OK ? device_weights_view(p->weights) : NULL;
    return status;
}

static void prepared_close(prepared *p) {
    device_weights_close(p->weights);
    device_stream_close(p->stream);
    device_close(p->device);
}

/* ---- Every matrix of a view ---- */

typedef void (*linear_visitor)(void *context, const weight_view *before, const weight_view *after);

static void visit_expert(linear_visitor visit, void *context, const expert_view *before,
                         const expert_view *after) {
    visit(context, &before->gate.weight, &after->gate.weight);
    visit(context, &before->up.weight, &after->up.weight);
    visit(context, &before->down.weight, &after->down.weight);
    assert_ptr_equal(before->gate.bias, after->gate.bias);
}

static void visit_all(const model_view *before, const model_view *after, linear_visitor visit,
                      void *context) {
    assert_int_equal(before->layers, after->layers);
    visit(context, &before->embedding_project.weight, &after->embedding_project.weight);
    for (uint32_t i = 0; i < before->layers; i++) {
        const layer_view *a = &before->layer[i];
        const layer_view *b = &after->layer[i];
        visit(context, &a->query.weight, &b->query.weight);
        visit(context, &a->key.weight, &b->key.weight);
        visit(context, &a->value.weight, &b->value.weight);
        visit(context, &a->output.weight, &b->output.weight);
        visit(context, &a->gate.weight, &b->gate.weight);
        visit(context, &a->up.weight, &b->up.weight);
        visit(context, &a->down.weight, &b->down.weight);
        assert_int_equal(a->experts.count, b->experts.count);
        visit_expert(visit, context, &a->experts.shared, &b->experts.shared);
        visit(context, &a->experts.router.weight, &b->experts.router.weight);
        visit(context, &a->experts.shared_gate.weight, &b->experts.shared_gate.weight);
        for (uint32_t e = 0; e < a->experts.count; e++)
            visit_expert(visit, context, &a->experts.expert[e], &b->experts.expert[e]);
        assert_ptr_equal(a->query.bias, b->query.bias);
        assert_ptr_equal(a->attention_norm.weight, b->attention_norm.weight);
    }
    visit(context, &before->head_project.weight, &after->head_project.weight);
    visit(context, &before->head.weight, &after->head.weight);
}

static void expect_same_values(void *context, const weight_view *before, const weight_view *after) {
    size_t *matrices = context;
    if (before->data == NULL) {
        assert_null(after->data);
        return;
    }
    ++*matrices;
    assert_int_equal(after->layout, QUANT_LAYOUT_PANELS);
    assert_int_equal((uintptr_t)after->data % PANEL_LINE_BYTES, 0);
    assert_int_equal(after->rows, before->rows);
    assert_int_equal(after->k, before->k);
    size_t floats = (size_t)before->k * QUANT_PANEL_ROWS;
    float *wanted = malloc(floats * sizeof(float));
    float *got = malloc(floats * sizeof(float));
    assert_true(wanted != NULL && got != NULL);
    for (size_t panel = 0; panel < weight_panels(before); panel++) {
        weight_decode_panel(before, panel, wanted);
        weight_decode_panel(after, panel, got);
        for (size_t i = 0; i < floats; i++)
            if (!(wanted[i] == got[i]))
                fail_msg("%s as %s: panel %zu, k %zu, row %zu: %a, not %a",
                         quant_name(before->type), quant_name(after->type), panel,
                         i / QUANT_PANEL_ROWS, i % QUANT_PANEL_ROWS, (double)got[i],
                         (double)wanted[i]);
    }
    free(got);
    free(wanted);
}

static void expect_same_place(void *context, const weight_view *before, const weight_view *after) {
    (void)context;
    assert_ptr_equal(before->data, after->data);
}

static avo_model *open_model(const char *path, const avo_allocator *allocator) {
    avo_error error = {0};
    avo_model *model;
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = allocator;
    assert_ok_error(avo_model_open(path, &options, &model, &error), &error);
    return model;
}

static void check_file(const char *path, uint32_t threads, const device_options *options) {
    avo_error error = {0};
    avo_model *model = open_model(path, NULL);
    weights_source source = model_weights(model, &model->view);
    prepared p;
    weights_plan plan;
    prepared_open(&p, model, threads, options);
    assert_ok_error(device_weights_plan(p.device, &source, &plan, &error), &error);
    assert_int_equal(plan.missing_bytes, plan.copied_bytes);
    assert_ok_error(prepared_weights(&p, &source, &error), &error);
    const model_view *view = p.view;
    size_t matrices = 0;
    visit_all(&model->view, view, expect_same_values, &matrices);
    assert_true(matrices > 0);
    size_t planned = 0;
    for (uint32_t i = 0; i < plan.groups; i++)
        planned += plan.group[i].matrices;
    assert_int_equal(planned, matrices);
    assert_ptr_equal(view->embedding.data, model->view.embedding.data);
    assert_int_equal(view->embedding.layout, model->view.embedding.layout);
    assert_ptr_equal(view->position_embedding.data, model->view.position_embedding.data);
    const region *region = cpu_weights_region(model->store);
    assert_int_equal(region == NULL ? 0 : region->bytes, plan.copied_bytes);
    assert_ok(device_weights_plan(p.device, &source, &plan, &error));
    assert_int_equal(plan.missing_bytes, 0);
    prepared_close(&p);
    avo_model_close(model);
}

static const char *packed(const char *name, const char *type) {
    static char path[4096];
    avo_error error = {0};
    pack_options options = {.threads = 1};
    pack_report report;
    char relative[256];
    snprintf(relative, sizeof(relative), "models/%s", name);
    assert_true(pack_type_by_name(type, &options.type));
    snprintf(path, sizeof(path), "%s/%s-%s.avo", test_scratch_folder(), name, type);
    assert_ok_error(pack_file(test_fixture_path(relative), path, &options, &report, &error),
                    &error);
    return path;
}

static void every_source_has_its_values(void **state) {
    (void)state;
    char relative[256];
    uint32_t number = 0;
    for (size_t i = 0; i < FIXTURE_COUNT; i++) {
        const char *name = fixture_names[i].name;
        snprintf(relative, sizeof(relative), "models/%s", name);
        check_file(test_fixture_path(relative), number++ % 5 + 1, &plain_options);
        if (fixture_names[i].twin) {
            snprintf(relative, sizeof(relative), "models/%s.gguf", name);
            check_file(test_fixture_path(relative), number++ % 5 + 1, &plain_options);
        }
    }
}

static void packed_files_have_their_values(void **state) {
    (void)state;
    static const char *const names[] = {"llama2",  "gpt2", "gemma3",     "opt-350m",
                                        "smollm2", "phi3", "granite-moe"};
    static const char *const types[] = {"f16", "q8", "q8c", "q4", "keep"};
    device_options copy = plain_options;
    copy.huge_pages = "on";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (size_t j = 0; j < sizeof(types) / sizeof(types[0]); j++) {
            const char *path = packed(names[i], types[j]);
            check_file(path, (uint32_t)(i + j) % 5 + 1, &plain_options);
            check_file(path, (uint32_t)(i + j) % 5 + 1, &copy);
        }
}

static void panels_of_a_file_stay_where_they_lie(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    avo_error error = {0};
    avo_model *model = open_model(packed("llama2", "q4"), &counter.allocator);
    weights_source source = model_weights(model, &model->view);
    prepared p;
    prepared_open(&p, model, 2, &plain_options);
    weights_plan plan;
    assert_ok(device_weights_plan(p.device, &source, &plan, &error));
    assert_int_equal(plan.copied_bytes, 0);
    assert_int_equal(plan.mapped_bytes, model->weight_bytes);
    assert_ok(prepared_weights(&p, &source, &error));
    visit_all(&model->view, p.view, expect_same_place, NULL);
    assert_null(cpu_weights_region(model->store));
    prepared_close(&p);
    avo_model_close(model);
    assert_int_equal(counter.live, 0);
}

/* ---- Sharing ---- */

typedef struct contender {
    const avo_model *model;
    prepared prepared;
    avo_status status;
    pthread_t thread;
} contender;

static void *contend(void *argument) {
    contender *contender = argument;
    weights_source source = model_weights(contender->model, &contender->model->view);
    contender->status = prepared_weights(&contender->prepared, &source, NULL);
    return NULL;
}

static void several_engines_share_one_copy(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    avo_model *model = open_model(test_fixture_path("models/llama2.gguf"), &counter.allocator);
    contender contenders[4];
    for (uint32_t i = 0; i < 4; i++) {
        contenders[i] = (contender){.model = model, .status = AVO_ERROR_ARGUMENT};
        prepared_open(&contenders[i].prepared, model, i + 1, &plain_options);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]), 0);
    for (uint32_t i = 0; i < 4; i++)
        pthread_join(contenders[i].thread, NULL);
    for (uint32_t i = 0; i < 4; i++) {
        assert_ok(contenders[i].status);
        assert_ptr_equal(contenders[i].prepared.view->layer, contenders[0].prepared.view->layer);
    }
    for (uint32_t i = 0; i < 4; i++)
        prepared_close(&contenders[i].prepared);
    assert_non_null(cpu_weights_region(model->store));
    avo_model_close(model);
    assert_int_equal(counter.live, 0);
}

/* ---- Failures ---- */

static void out_of_memory_leaves_nothing(void **state) {
    (void)state;
    avo_error error = {0};
    test_allocator counter;
    test_allocator_init(&counter);
    avo_model *model = open_model(test_fixture_path("models/gpt2.gguf"), &counter.allocator);
    weights_source source = model_weights(model, &model->view);
    device_options options = plain_options;
    options.allocator = &counter.allocator;
    prepared p;
    prepared_open(&p, model, 2, &options);
    size_t live = counter.live;
    size_t begin = counter.allocations;
    size_t failures = 0;
    avo_status status;
    do {
        counter.fail_at = begin + failures + 1;
        counter.allocations = begin;
        memset(&error, 0, sizeof(error));
        status = prepared_weights(&p, &source, &error);
        if (status != AVO_OK) {
            assert_int_equal(status, AVO_ERROR_MEMORY);
            assert_non_null(strstr(error.text, "out of memory: "));
            assert_null(cpu_weights_region(model->store));
            assert_int_equal(counter.live, live);
            failures++;
        }
        assert_true(failures < 100);
    } while (status != AVO_OK);
    /* the weights themselves, the store's note, panels, layers, region, list */
    assert_int_equal(failures, 6);
    size_t matrices = 0;
    visit_all(&model->view, p.view, expect_same_values, &matrices);
    prepared_close(&p);
    avo_model_close(model);
    assert_int_equal(counter.live, 0);
}

typedef struct progress_log {
    uint64_t last, total, calls, refuse_at;
} progress_log;

static bool log_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    progress_log *log = context;
    assert_string_equal(what, "repack");
    assert_true(done >= log->last && done <= total);
    log->last = done;
    log->total = total;
    return ++log->calls != log->refuse_at;
}

static void progress_ends_full_and_can_cancel(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model = open_model(test_fixture_path("models/qwen3.gguf"), NULL);
    prepared p;
    prepared_open(&p, model, 3, &plain_options);
    progress_log log = {.refuse_at = 1};
    weights_source source = model_weights(model, &model->view);
    source.progress = log_progress;
    source.progress_context = &log;
    assert_refused(prepared_weights(&p, &source, &error), AVO_ERROR_CANCELLED, &error, "cancelled");
    assert_null(p.view);
    log = (progress_log){0};
    assert_ok_error(prepared_weights(&p, &source, &error), &error);
    device_weights_close(p.weights);
    assert_true(log.calls > 0 && log.total > 0);
    assert_int_equal(log.last, log.total);
    log = (progress_log){0};
    assert_ok(prepared_weights(&p, &source, &error));
    assert_int_equal(log.calls, 0); /* nothing to do any more */
    prepared_close(&p);
    avo_model_close(model);
}

/* Where this process may lock so much, and otherwise a refusal that says why. */
static void locked_weights_are_locked_or_refused(void **state) {
    (void)state;
    static const char *const types[] = {"q4", "keep"};
    for (size_t i = 0; i < 2; i++) {
        avo_error error = {0};
        avo_model *model = open_model(packed("llama2", types[i]), NULL);
        device_options options = plain_options;
        options.lock = true;
        options.threads = 2;
        prepared p = {0};
        stream_shape shape = {.model = &model->view,
                              .rows_max = 1,
                              .logits_max = 1,
                              .head_rows = 1,
                              .context_max = 32,
                              .pairs_max = 128};
        weights_source source = model_weights(model, &model->view);
        assert_ok_error(device_open(&options, &p.device, &error), &error);
        avo_status status = device_stream_open(p.device, &shape, &p.stream, &error);
        if (status == AVO_OK)
            status = prepared_weights(&p, &source, &error);
        const region *region = cpu_weights_region(model->store);
        if (status == AVO_OK)
            assert_true(region == NULL || region->locked);
        else
            assert_refused(status, AVO_ERROR_MEMORY, &error, "RLIMIT_MEMLOCK");
        prepared_close(&p);
        avo_model_close(model);
    }
}

/* The file's own view still computes after its pages were given back. */
static void the_file_can_still_be_read(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model = open_model(test_fixture_path("models/smollm2.gguf"), NULL);
    float before[4096];
    float after[4096];
    const weight_view *query = &model->view.layer[0].query.weight;
    assert_true(query->k <= 4096);
    weight_decode_row(query, 3, before);
    weights_source source = model_weights(model, &model->view);
    prepared p;
    prepared_open(&p, model, 2, &plain_options);
    assert_ok(prepared_weights(&p, &source, &error));
    weight_decode_row(query, 3, after);
    assert_memory_equal(before, after, query->k * sizeof(float));
    prepared_close(&p);
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_has_its_values),
        cmocka_unit_test(packed_files_have_their_values),
        cmocka_unit_test(panels_of_a_file_stay_where_they_lie),
        cmocka_unit_test(several_engines_share_one_copy),
        cmocka_unit_test(out_of_memory_leaves_nothing),
        cmocka_unit_test(progress_ends_full_and_can_cancel),
        cmocka_unit_test(locked_weights_are_locked_or_refused),
        cmocka_unit_test(the_file_can_still_be_read),
    };
    const char *best;
    if (device_find("cpu", &best, NULL) == AVO_OK && strcmp(best, "ref") == 0) {
        printf("SKIPPED: the reference device, the only one here, repacks no weights\n");
        return 77;
    }
    return cmocka_run_group_tests_name("device/weights", tests, NULL, NULL);
}
