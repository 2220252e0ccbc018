/* Opening a model: source, weights, tokenizer, template; and the public questions about it. */
#include "model/model.h"

#include "base/allocator.h"
#include "base/float_mode.h"
#include "base/options.h"

#include <math.h>
#include <pthread.h>

/* A tokenizer or template that is not understood must not stop a model from computing: the error is
 * kept and given to whoever asks for text. Out of memory is no such case. */
static avo_status open_text_parts(avo_model *model, avo_error *error) {
    const model_source *source = model->source;
    if (source->tokenizer.kind != TOKENIZER_SOURCE_NONE) {
        avo_status status = tokenizer_open(&source->tokenizer, model->allocator, &model->tokenizer,
                                           &model->tokenizer_error);
        if (status == AVO_ERROR_MEMORY)
            return status_fail(error, status, "%s", model->tokenizer_error.text);
    }
    if (source->chat_template.size > 0) {
        avo_status status = chat_template_open(source->chat_template, model->allocator,
                                               &model->chat_template, &model->template_error);
        if (status == AVO_ERROR_MEMORY)
            return status_fail(error, status, "%s", model->template_error.text);
    }
    return AVO_OK;
}

/* Tokenizer and template beside something else. */
typedef struct text_reader {
    avo_model *model;
    avo_error error;
    avo_status status;
} text_reader;

static void *read_text(void *context) {
    text_reader *reader = context;
    float_mode mode;
    float_mode_enter(&mode); /* scores are read here */
    reader->status = open_text_parts(reader->model, &reader->error);
    float_mode_leave(&mode);
    return NULL;
}

/* Without a thread one comes after the other. */
static avo_status open_text_beside(avo_model *model, model_meanwhile meanwhile, void *context,
                                   avo_error *error) {
    text_reader reader = {.model = model};
    pthread_t thread;
    bool started = pthread_create(&thread, NULL, read_text, &reader) == 0;
    if (!started)
        read_text(&reader);
    meanwhile(model, context);
    if (started)
        pthread_join(thread, NULL);
    return reader.status == AVO_OK ? AVO_OK
                                   : status_fail(error, reader.status, "%s", reader.error.text);
}

static void open_panels(avo_model *model, const avo_model_options *options) {
    panel_cache_options own = {.folder = options->panel_cache,
                               .bytes_max = options->panel_cache_bytes,
                               .bytes_min = PANEL_CACHE_BYTES_MIN,
                               .log = options->log,
                               .log_context = options->log_context};
    if (own.folder != NULL && model->source->format != SOURCE_AVO)
        model->panels = panel_cache_open(model->allocator, model->source, &own);
}

static avo_status open_parts(const char *path, const avo_model_options *options, avo_model *model,
                             model_meanwhile meanwhile, void *context, avo_error *error) {
    if (model_is_exit(path))
        return model_bind_exit(model, options->draft_of, path, error);
    AVO_TRY(weights_store_open(model->allocator, &model->store, error));
    AVO_TRY(source_open(path, model->allocator, &model->source, error));
    AVO_TRY(model_bind(model, error));
    open_panels(model, options);
    tokenizer_source_kind kind = model->source->tokenizer.kind;
    bool compiled = kind == TOKENIZER_SOURCE_IMAGE || kind == TOKENIZER_SOURCE_NONE;
    if (meanwhile != NULL && !compiled)
        return open_text_beside(model, meanwhile, context, error);
    return open_text_parts(model, error);
}

avo_status avo_model_open(const char *path, const avo_model_options *options, avo_model **out,
                          avo_error *error) {
    return model_open_beside(path, options, NULL, NULL, out, error);
}

avo_status model_open_beside(const char *path, const avo_model_options *options,
                             model_meanwhile meanwhile, void *context, avo_model **out,
                             avo_error *error) {
    *out = NULL;
    if (path == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "path must not be NULL");
    avo_model_options own = AVO_MODEL_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_model_options", error));
    const avo_allocator *allocator = own.allocator;
    avo_model *model = allocator_take_array(allocator, 1, sizeof(*model));
    if (model == NULL)
        return status_no_memory(error, "a model", sizeof(*model));
    model->allocator = allocator;
    model->progress = own.progress;
    model->progress_context = own.progress_context;
    arena_init(&model->arena, allocator, SIZE_MAX);
    float_mode mode;
    float_mode_enter(&mode); /* numbers of configurations are read here */
    avo_status status = open_parts(path, &own, model, meanwhile, context, error);
    float_mode_leave(&mode);
    if (status != AVO_OK) {
        avo_model_close(model);
        return status;
    }
    *out = model;
    return AVO_OK;
}

void avo_model_close(avo_model *model) {
    if (model == NULL)
        return;
    chat_template_close(model->chat_template);
    if (!model->borrows_text)
        tokenizer_close(model->tokenizer);
    if (!model->borrows_source) {
        panel_cache_close(model->panels);
        weights_store_close(model->store);
        source_close(model->source);
    }
    arena_free(&model->arena);
    allocator_give(model->allocator, model, sizeof(*model));
}

void avo_model_describe(const avo_model *model, avo_model_info *info) {
    const model_config *config = &model->source->config;
    avo_model_info full = {
        .architecture = source_architecture_name(config->architecture),
        .format = source_format_name(model->source->format),
        .layers = model->view.layers,
        .width = config->width,
        .vocabulary = config->vocabulary,
        .context = config->context,
        .parameters = model->parameters,
        .weight_bytes = model->weight_bytes,
        .token_begin = model->source->generation.token_begin,
        .has_tokenizer = model->tokenizer != NULL,
        .has_chat_template = model->chat_template != NULL,
    };
    options_give(info, &full, sizeof(full));
}

static void forget_pages(void *context) {
    source_forget(context);
}

static void ask_huge_pages(void *context) {
    source_ask_huge(context);
}

weights_source model_weights(const avo_model *model, const model_view *view) {
    return (weights_source){.model = view,
                            .path = model->source->path,
                            .file_bytes = model->weight_bytes,
                            .divisible = true,
                            .store = model->store,
                            .layers_stored = model->source->config.layers,
                            .forget = forget_pages,
                            .ask_huge = ask_huge_pages,
                            .context = model->source,
                            .progress = model->progress,
                            .progress_context = model->progress_context,
                            .keeper = panel_cache_keeper(model->panels)};
}

bool avo_model_token_ends(const avo_model *model, int32_t token) {
    const generation_defaults *defaults = &model->source->generation;
    for (uint32_t i = 0; i < defaults->stop_token_count; i++)
        if (defaults->stop_tokens[i] == token)
            return true;
    return model->tokenizer != NULL && token >= 0 &&
           tokenizer_describe(model->tokenizer).end == token;
}
