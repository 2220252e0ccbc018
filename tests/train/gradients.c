/* Gradients against PyTorch and peft (tools/oracle/make_gradients.py): every architecture, with
 * LoRA, rsLoRA, DoRA and full tuning, on the reference device. The error is the largest difference
 * of a parameter's numbers, divided by the largest magnitude of that parameter's gradient. Where
 * that is 0 (a softmax does not see biases of keys), rounding is measured by the model's largest.
 * The bound is 1e-5; where PyTorch's own float32 gradients of the model are off by more than a
 * quarter of that (sharp softmaxes), four times as much, and at most 4e-5. */
#include "support/support.h"

#include "formats/source.h"
#include "support/models.h"
#include "train/core.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUND       1e-5
#define CASES_MAX   96
#define TARGETS_MAX 16
#define SAMPLE      192
#define IDS_MAX     320

typedef struct gradient_case {
    char name[64], model[64], method[16], target[TARGETS_MAX][32];
    const char *targets[TARGETS_MAX];
    size_t target_count;
    uint32_t rank, positions;
    double alpha;
    bool rslora;
} gradient_case;

static char case_names[CASES_MAX][64];

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

static size_t list_cases(void) {
    DIR *folder = opendir(test_fixture_path("train"));
    assert_non_null(folder);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strchr(entry->d_name, '.') != NULL)
            continue; /* a file of another test */
        assert_true(count < CASES_MAX);
        snprintf(case_names[count++], sizeof(case_names[0]), "%.60s", entry->d_name);
    }
    closedir(folder);
    qsort(case_names, count, sizeof(case_names[0]), compare_names);
    return count;
}

static void read_case(const char *name, gradient_case *out) {
    char path[256];
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", name);
    snprintf(path, sizeof(path), "train/%s/case.txt", name);
    FILE *file = fopen(test_fixture_path(path), "r");
    assert_non_null(file);
    int rslora;
    assert_int_equal(fscanf(file, "%63s %15s %u %lf %d %u", out->model, out->method, &out->rank,
                            &out->alpha, &rslora, &out->positions),
                     6);
    out->rslora = rslora != 0;
    while (fscanf(file, "%31s", out->target[out->target_count]) == 1) {
        out->targets[out->target_count] = out->target[out->target_count];
        out->target_count++;
        assert_true(out->target_count < TARGETS_MAX);
    }
    fclose(file);
}

static train_core *open_core(const avo_model *model, const gradient_case *c, const char *resume) {
    train_core_options options = {.method =
                                      strcmp(c->method, "full") == 0 ? TRAIN_FULL : TRAIN_LORA,
                                  .rank = c->rank,
                                  .alpha = c->alpha,
                                  .rslora = c->rslora,
                                  .dora = strcmp(c->method, "dora") == 0,
                                  .targets = c->targets,
                                  .target_count = c->target_count,
                                  .resume = c->rank > 0 ? resume : NULL,
                                  .rows_max = c->positions,
                                  .sequences_max = 2,
                                  .context_max = c->positions,
                                  .engine = AVO_ENGINE_OPTIONS_INIT};
    options.engine.device = "ref";
    options.engine.kv_type = "f32";
    options.engine.rope_context = c->positions;
    options.engine.threads = 1;
    train_core *core;
    avo_error error = {0};
    assert_ok_error(train_core_open(model, &options, &core, &error), &error);
    return core;
}

static const float *numbers_of(const model_source *source, const char *name, size_t *count) {
    const source_tensor *tensor = source_find(source, text_from(name));
    if (tensor == NULL)
        fail_msg("the oracle has no %s", name);
    assert_int_equal(tensor->type, QUANT_F32);
    *count = (size_t)source_tensor_elements(tensor);
    return (const float *)(const void *)tensor->data;
}

static double difference(const float *a, const float *b, size_t count, double scale) {
    double most = 0.0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most / scale;
}

static double figure_of(const model_source *oracle, const train_parameter *parameter,
                        const char *which) {
    char name[TRAIN_NAME_MAX + 16];
    size_t one;
    snprintf(name, sizeof(name), "%s.%s", parameter->name, which);
    return (double)numbers_of(oracle, name, &one)[0];
}

static double largest_of(const model_source *oracle, const train_parameter *parameter) {
    return figure_of(oracle, parameter, "max");
}

/* Largest relative error of one parameter's gradient. */
static double parameter_error(const model_source *oracle, const train_parameter *parameter,
                              double largest) {
    size_t count, all = (size_t)parameter->rows * parameter->k;
    const float *wanted = numbers_of(oracle, parameter->name, &count);
    double most = 0.0;
    assert_int_equal(count, all < SAMPLE ? all : SAMPLE);
    for (size_t i = 0; i < count; i++) {
        size_t at = all <= SAMPLE ? i : i * all / SAMPLE;
        most = fmax(most, fabs((double)parameter->gradient[at] - (double)wanted[i]));
    }
    double own = largest_of(oracle, parameter);
    return most / (own < 1e-9 * largest ? largest : own);
}

/* As the generator takes them. */
static void fill_ids(const fixture *f, uint32_t count, int32_t ids[IDS_MAX]) {
    assert_true(count <= IDS_MAX);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = f->ids[count <= f->positions ? i : (7 * i + i / f->positions) % f->positions];
}

static void check(const gradient_case *c) {
    char path[256];
    avo_error error = {0};
    avo_model *model;
    snprintf(path, sizeof(path), "models/%s", c->model);
    assert_ok_error(avo_model_open(test_fixture_path(path), NULL, &model, &error), &error);
    char folder[512];
    snprintf(path, sizeof(path), "train/%s", c->name);
    snprintf(folder, sizeof(folder), "%s", test_fixture_path(path));
    train_core *core = open_core(model, c, folder);
    fixture f;
    fixture_open(&f, c->model);
    uint8_t wanted[IDS_MAX] = {0};
    float coefficient[IDS_MAX] = {0}, logprob[IDS_MAX], expected[IDS_MAX] = {0};
    int32_t ids[IDS_MAX];
    fill_ids(&f, c->positions, ids);
    for (uint32_t i = 1; i < c->positions; i++) {
        coefficient[i] = (float)(((int)(7 * i) % 11 - 5) / 10.0);
        wanted[i] = coefficient[i] != 0.0f;
    }
    train_sequence sequence = {ids, c->positions, wanted};
    assert_ok_error(train_forward(core, &sequence, 1, TRAIN_PASS_LEARN,
                                  &(train_scores){.logprobs = logprob}, &error),
                    &error);
    assert_ok_error(train_backward(core, coefficient, &error), &error);
    file_map map;
    model_source *oracle;
    snprintf(path, sizeof(path), "train/%s/gradients.safetensors", c->name);
    assert_ok_error(file_map_open(test_fixture_path(path), &map, &error), &error);
    assert_ok_error(source_open_tensors(map.bytes, path, NULL, &oracle, &error), &error);
    size_t count;
    const float *logprobs = numbers_of(oracle, "logprobs", &count);
    assert_int_equal(count, c->positions - 1);
    for (uint32_t i = 1; i < c->positions; i++)
        expected[i] = wanted[i] ? logprobs[i - 1] : 0.0f;
    double scored = difference(logprob, expected, c->positions, 10.0);
    double most = 0.0, largest = 0.0, single = 0.0;
    const train_parameters *parameters = train_core_parameters(core);
    const char *worst = "";
    for (uint32_t i = 0; i < parameters->count; i++)
        largest = fmax(largest, largest_of(oracle, &parameters->item[i]));
    for (uint32_t i = 0; i < parameters->count; i++)
        if (largest_of(oracle, &parameters->item[i]) >= 1e-9 * largest)
            single = fmax(single, figure_of(oracle, &parameters->item[i], "single"));
    double bound = fmin(fmax(BOUND, 4.0 * single), 4.0 * BOUND);
    for (uint32_t i = 0; i < parameters->count; i++) {
        double found = parameter_error(oracle, &parameters->item[i], largest);
        if (getenv("AVO_TEST_VERBOSE") != NULL)
            print_message("    %.1e %s\n", found, parameters->item[i].name);
        if (!(found <= most))
            most = found;
        if (!(found <= bound))
            worst = parameters->item[i].name;
    }
    print_message("  %-20s logprobs %.1e, gradients %.1e %s\n", c->name, scored, most, worst);
    if (worst[0] != '\0' || !(scored <= BOUND))
        fail_msg("%s: %.1e, %.1e", c->name, scored, most);
    source_close(oracle);
    file_map_close(&map);
    fixture_close(&f);
    train_core_close(core);
    avo_model_close(model);
}

static void as_pytorch(void **state) {
    gradient_case c;
    read_case(*state, &c);
    check(&c);
}

int main(void) {
    struct CMUnitTest tests[CASES_MAX];
    size_t count = list_cases();
    if (count == 0)
        return 1;
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){case_names[i], as_pytorch, NULL, NULL, case_names[i]};
    return _cmocka_run_group_tests("train/gradients", tests, count, NULL, NULL);
}
