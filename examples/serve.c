/* Several texts at once, each with an adapter or without: ./serve MODEL ADAPTER
 * cc serve.c $(pkg-config --cflags --libs avocet) -o serve */
#include <avocet.h>
#include <stdio.h>

enum { COUNT = 4 };

/* Called by the scheduler's delivery thread, for whichever request has something new. */
static bool on_event(void *context, const avo_event *event) {
    (void)context;
    if (event->kind == AVO_EVENT_TOKEN)
        printf("%zu: %.*s\n", event->index, (int)event->token->text_bytes, event->token->text);
    else if (event->kind == AVO_EVENT_FINISHED)
        printf("%zu: done, %u tokens, the first after %.0f ms\n", event->index,
               event->result->new_tokens, event->result->first_token_seconds * 1e3);
    else
        printf("%zu: failed: %s\n", event->index, event->error->text);
    return true; /* false cancels this request */
}

/* The first and the third with the adapter, the others without. */
static avo_status serve(const avo_model *model, avo_scheduler *scheduler, const char *path,
                        avo_error *error) {
    static const char *const texts[COUNT] = {"Once upon a time", "The sky is blue because",
                                             "A good soup needs", "My favourite colour is"};
    avo_request requests[COUNT];
    avo_sampling sampling = AVO_SAMPLING_INIT; /* shared by all */
    avo_adapter *adapter = NULL;
    avo_status status =
        path == NULL ? AVO_OK : avo_adapter_open(model, path, NULL, &adapter, error);
    if (status != AVO_OK)
        return status;
    avo_adapter_use use = {adapter, 1.0f};
    sampling.temperature = 0.8f;
    for (int i = 0; i < COUNT; i++) {
        requests[i] = (avo_request)AVO_REQUEST_INIT;
        requests[i].text = texts[i];
        requests[i].text_flags = AVO_TOKENIZE_BEGIN;
        requests[i].max_new_tokens = 16;
        requests[i].adapters = &use;
        requests[i].adapter_count = adapter != NULL && i % 2 == 0;
    }
    status = avo_scheduler_batch(scheduler, requests, COUNT, &sampling, on_event, NULL, error);
    avo_adapter_close(adapter);
    return status;
}

int main(int argc, char **argv) {
    avo_error error = {0};
    avo_model *model = NULL;
    avo_engine *engine = NULL;
    avo_scheduler *scheduler = NULL;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = 256;
    options.sessions_max = COUNT;
    bool good = avo_model_open(argc > 1 ? argv[1] : "model.gguf", NULL, &model, &error) == AVO_OK &&
                avo_engine_open(model, &options, &engine, &error) == AVO_OK &&
                avo_scheduler_open(engine, NULL, &scheduler, &error) == AVO_OK &&
                serve(model, scheduler, argc > 2 ? argv[2] : NULL, &error) == AVO_OK;
    if (!good)
        fprintf(stderr, "serve: %s\n", error.text);
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
    avo_model_close(model);
    return good ? 0 : 1;
}
