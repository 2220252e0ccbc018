/* Networks of draft heads on their devices. */
#include "engine/head_program.h"

static avo_status open_device(const head_program_options *options, device **out, avo_error *error) {
    const avo_engine_options *engine = options->engine;
    const char *from;
    device_options own = {.allocator = options->allocator,
                          .name = device_asked(engine->device, &from),
                          .threads = engine->threads,
                          .streams = 1,
                          .huge_pages = engine->huge_pages,
                          .numa = engine->numa,
                          .pin = engine->pin,
                          .lock = engine->lock};
    return device_open(&own, out, error);
}

static stream_shape shape_of(const head_program_options *options) {
    const model_view *view = options->view;
    stream_shape shape = {.model = view,
                          .rows_max = options->rows_max,
                          .logits_max = options->logits_max,
                          .head_rows = options->logits_max,
                          .context_max = options->context_max,
                          .pairs_max = view->rotary_tables > 0 ? view->rotary[0].pairs : 0,
                          .beside = options->beside,
                          .lender = options->lender};
    if (view->layers > 0) { /* the state that the next draft begins with */
        shape.taps = 1;
        shape.tap[0] = view->layers;
    }
    return shape;
}

static weights_source source_of(const head_program_options *options) {
    return (weights_source){.model = options->view, .path = options->path};
}

uint64_t head_program_bytes(const device *device, const head_program_options *options) {
    avo_error error;
    stream_shape shape = shape_of(options);
    weights_source source = source_of(options);
    weights_plan weights = {0};
    kv_type type = device_describe(device)->kv_default;
    uint64_t stream = 0, kv = 0;
    bool known =
        device_stream_bytes(device, &shape, &stream) &&
        device_weights_plan(device, &source, &weights, &error) == AVO_OK &&
        (options->pages == 0 || kv_pool_bytes(device, options->view, type, options->pages, &kv));
    return known ? stream + weights.missing_bytes + kv : 0;
}

static avo_status open_parts(const head_program_options *options, head_program *out,
                             avo_error *error) {
    stream_shape shape = shape_of(options);
    weights_source source = source_of(options);
    AVO_TRY(open_device(options, &out->device, error));
    AVO_TRY(device_stream_open(out->device, &shape, &out->stream, error));
    AVO_TRY(device_weights_open(out->stream, &source, &out->weights, error));
    if (options->pages == 0)
        return AVO_OK;
    kv_type type = device_describe(out->device)->kv_default;
    return kv_pool_open(out->device, device_weights_view(out->weights), type, options->pages,
                        &out->kv, error);
}

avo_status head_program_open(const head_program_options *options, head_program *out,
                             avo_error *error) {
    *out = (head_program){.rows_max = options->rows_max, .layers = options->view->layers};
    avo_status status = open_parts(options, out, error);
    if (status == AVO_OK)
        return AVO_OK;
    head_program_close(out);
    return status;
}

void head_program_close(head_program *program) {
    if (program->device == NULL)
        return;
    kv_pool_close(program->kv);
    device_weights_close(program->weights);
    device_stream_close(program->stream);
    device_close(program->device);
    *program = (head_program){0};
}

bool head_program_run(const head_program *program, const batch_view *batch) {
    static const device_kv none = {.type = KV_F32};
    avo_error error;
    device_step step = {.weights = program->weights,
                        .batch = batch,
                        .kv = program->kv != NULL ? kv_pool_view(program->kv) : &none};
    return device_start(program->stream, DEVICE_FORWARD, &step, &error) == AVO_OK &&
           device_wait(program->stream, &error) == AVO_OK;
}

bool head_program_clear(const head_program *program, uint32_t first_page, uint32_t pages) {
    const device_kv *kv = kv_pool_view(program->kv);
    avo_error error;
    return device_zero(program->device, &kv->memory, first_page * kv->page_bytes,
                       pages * kv->page_bytes, &error) == AVO_OK;
}
