/* Bodies of every endpoint on any bytes: what is read keeps its bounds. The first byte chooses the
 * endpoint. The model is a corpus file without a tokenizer: conversations are read and checked
 * whole before that is noticed. */
#include "sample/sample.h"
#include "server/api/api_int.h"

#include <stdlib.h>

static struct {
    avo_model *model;
    server_options options;
    struct api api;
} fuzz;

static void open_once(void) {
    avo_error error;
    if (fuzz.model != NULL)
        return;
    if (avo_model_open(AVO_FUZZ_FOLDER "/corpus/model/llama.gguf", NULL, &fuzz.model, &error) !=
        AVO_OK)
        abort();
    fuzz.options = (server_options){.model = fuzz.model, .model_name = "fuzz", .choices_max = 16};
    fuzz.api.options = &fuzz.options;
    fuzz.api.model = fuzz.model;
    fuzz.api.info = (avo_model_info)AVO_MODEL_INFO_INIT;
    avo_model_describe(fuzz.model, &fuzz.api.info);
    fuzz.api.context = fuzz.api.info.context;
    pthread_mutex_init(&fuzz.api.lock, NULL);
    if (chat_format_open(fuzz.model, &fuzz.api.format, &error) != AVO_OK)
        abort();
}

static void check(const api_request *r) {
    const avo_request *submit = &r->submit;
    if (r->n == 0 || r->n > r->best_of || r->best_of > 16 || r->prompt_count == 0 ||
        r->prompt_count > API_PROMPTS_MAX || submit->named_adapter_count > AVO_ADAPTERS_MAX ||
        submit->stop_count > STOP_STRINGS_MAX || submit->priority > 15 || r->model == NULL)
        abort();
    for (size_t i = 0; i < r->prompt_count && r->prompts != NULL; i++)
        for (size_t t = 0; t < r->prompts[i].token_count; t++)
            if (r->prompts[i].tokens[t] < 0 ||
                (uint32_t)r->prompts[i].tokens[t] >= fuzz.api.info.vocabulary)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const api_body bodies[] = {BODY_CHAT,       BODY_COMPLETION, BODY_RESPONSE,
                                      BODY_MESSAGE,    BODY_EMBEDDING,  BODY_TOKENIZE,
                                      BODY_DETOKENIZE, BODY_LOAD};
    open_once();
    if (size == 0)
        return 0;
    api_fault fault = {0};
    api_request *r = NULL;
    text_view body = {(const char *)data + 1, size - 1};
    api_body kind = bodies[data[0] % 8];
    bool answers = data[0] % 8 < 5;
    bool good = answers ? api_request_read(&fuzz.api, kind, NULL, body, &r, &fault)
                        : api_request_open(&fuzz.api, kind, NULL, body, &r, &fault);
    if (good == (fault.status != 0) || good != (r != NULL))
        abort();
    if (good && answers)
        check(r);
    const json_value *tokens = good && !answers ? api_field_of(r, "tokens") : NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    if (tokens != NULL)
        (void)!token_list_read(&fuzz.api, tokens, "tokens", &r->arena, &ids, &count, &fault);
    api_request_free(r);
    return 0;
}
