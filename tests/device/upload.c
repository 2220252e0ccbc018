/* device/upload: every array of a model goes to the device, experts included, those that are shared
 * once, and the copy's pointers are the device's. */
#include "support/support.h"

#include "device/driver.h"
#include "device/upload.h"

#include <string.h>

#define EXPERTS 3

/* A device whose memory is its own numbering: addresses are never read. */
typedef struct counter {
    size_t arrays, bytes, fail_at;
} counter;

static const uint8_t device_base[1] = {0};

static avo_status take(void *context, const void *data, size_t bytes, const uint8_t **address,
                       avo_error *error) {
    counter *c = context;
    assert_non_null(data);
    if (++c->arrays == c->fail_at)
        return status_fail(error, AVO_ERROR_DEVICE, "array %zu does not fit", c->arrays);
    *address = device_base + c->arrays;
    c->bytes += bytes;
    return AVO_OK;
}

typedef struct world {
    float numbers[64][16];
    size_t used;
    expert_view expert[EXPERTS];
    layer_view layer[2];
    model_view model;
} world;

static linear_view linear(world *w, bool bias) {
    linear_view made = {.weight = {.data = (const uint8_t *)w->numbers[w->used++],
                                   .type = QUANT_F32,
                                   .layout = QUANT_LAYOUT_ROWS,
                                   .rows = 4,
                                   .k = 4}};
    if (bias)
        made.bias = w->numbers[w->used++];
    return made;
}

static void world_make(world *w) {
    memset(w, 0, sizeof(*w));
    for (int i = 0; i < EXPERTS; i++)
        w->expert[i] = (expert_view){linear(w, false), linear(w, true), linear(w, false)};
    w->layer[0] = (layer_view){.query = linear(w, false), .up = linear(w, false)};
    w->layer[1] = (layer_view){.query = linear(w, false)};
    w->layer[1].experts = (experts_view){.count = EXPERTS,
                                         .used = 2,
                                         .router = linear(w, true),
                                         .expert = w->expert,
                                         .shared = {.up = linear(w, false)}};
    w->model = (model_view){.width = 4, .layers = 2, .layer = w->layer, .head = linear(w, false)};
    w->model.embedding = w->model.head.weight; /* tied */
}

static bool is_there(const void *address, const counter *c) {
    const uint8_t *at = address;
    return at > device_base && at <= device_base + c->arrays;
}

static void experts_are_uploaded(void **state) {
    (void)state;
    world w;
    counter c = {0};
    arena views;
    model_view copy;
    avo_error error = {0};
    world_make(&w);
    arena_init(&views, NULL, SIZE_MAX);
    assert_ok_error(upload_model(&w.model, take, &c, &views, &copy, &error), &error);
    assert_int_equal(c.arrays, w.used); /* the head is the embedding, uploaded once */
    assert_int_equal(c.bytes, (w.used - EXPERTS - 1) * 16 * sizeof(float) +
                                  (EXPERTS + 1) * 4 * sizeof(float)); /* matrices and biases */
    const experts_view *experts = &copy.layer[1].experts;
    assert_int_equal(experts->count, EXPERTS);
    assert_int_equal(experts->used, 2);
    assert_ptr_not_equal(experts->expert, w.expert);
    assert_true(is_there(experts->router.weight.data, &c) && is_there(experts->router.bias, &c));
    assert_true(is_there(experts->shared.up.weight.data, &c));
    assert_null(experts->shared.gate.weight.data);
    for (int i = 0; i < EXPERTS; i++) {
        assert_true(is_there(experts->expert[i].gate.weight.data, &c));
        assert_true(is_there(experts->expert[i].up.weight.data, &c));
        assert_true(is_there(experts->expert[i].up.bias, &c));
        assert_true(is_there(experts->expert[i].down.weight.data, &c));
    }
    assert_int_equal(copy.layer[0].experts.count, 0);
    assert_null(copy.layer[0].experts.expert);
    assert_ptr_equal(w.expert[0].gate.weight.data, w.numbers[0]); /* the host's are as they were */
    size_t arrays = c.arrays;
    for (size_t n = 1; n <= arrays; n++) {
        c = (counter){.fail_at = n};
        assert_refused(upload_model(&w.model, take, &c, &views, &copy, &error), AVO_ERROR_DEVICE,
                       &error, "does not fit");
        assert_int_equal(c.arrays, n);
    }
    arena_free(&views);
}

static void only_cpus_compute_experts(void **state) {
    (void)state;
    static const char *const names[] = {"cuda-emulated", "loopback:2"};
    world w;
    world_make(&w);
    weights_source source = {.model = &w.model, .path = "mixture.gguf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        device_options options = {.name = names[i], .threads = 1};
        device *device;
        weights_plan plan;
        avo_error error = {0};
        assert_ok_error(device_open(&options, &device, &error), &error);
        assert_refused(device_weights_plan(device, &source, &plan, &error), AVO_ERROR_UNSUPPORTED,
                       &error, "mixture.gguf: layer 1 has 3 experts");
        assert_non_null(strstr(error.text, "use a CPU device (--device cpu)"));
        w.layer[1].experts.count = 0;
        assert_ok_error(device_weights_plan(device, &source, &plan, &error), &error);
        w.layer[1].experts.count = EXPERTS;
        device_close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_uploaded),
        cmocka_unit_test(only_cpus_compute_experts),
    };
    return cmocka_run_group_tests_name("device/upload", tests, NULL, NULL);
}
