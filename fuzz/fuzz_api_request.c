/* Bodies of every endpoint on any bytes: what is read keeps its bounds. The first byte chooses the
 * endpoint. The model is a corpus file without a tokenizer: conversations are read and checked
 * whole before that is noticed. */
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

static void check(const generation *g) {
    if (g->n == 0 || g->n > g->best_of || g->best_of > 16 || g->prompt_count == 0 ||
        g->prompt_count > API_PROMPTS_MAX || g->adapter_count > AVO_ADAPTERS_MAX ||
        g->stop_count > API_STOPS_MAX || g->priority > 15 || g->model == NULL)
        abort();
    for (size_t i = 0; i < g->prompt_count && g->prompts != NULL; i++)
        for (size_t t = 0; t < g->prompts[i].token_count; t++)
            if (g->prompts[i].tokens[t] < 0 ||
                (uint32_t)g->prompts[i].tokens[t] >= fuzz.api.info.vocabulary)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    open_once();
    if (size == 0)
        return 0;
    api_fault fault = {0};
    text_view body = {(const char *)data + 1, size - 1};
    if (data[0] % 8 < 5) {
        generation *g = NULL;
        bool good = generation_read(&fuzz.api, (api_family)(data[0] % 8), NULL, body, &g, &fault);
        if (good)
            check(g);
        if (good == (fault.status != 0))
            abort();
        generation_free(g);
        return 0;
    }
    static const api_body others[] = {BODY_TOKENIZE, BODY_DETOKENIZE, BODY_LOAD};
    arena scratch;
    json_value root = {0};
    api_values values;
    if (api_parse_body(body, &scratch, &root, &fault) &&
        api_values_read(&root, others[data[0] % 8 - 5], &scratch, &values, &fault) &&
        values.tokens != NULL) {
        int32_t *ids = NULL;
        size_t count = 0;
        (void)!token_list_read(&fuzz.api, values.tokens, "tokens", &scratch, &ids, &count, &fault);
    }
    arena_free(&scratch);
    return 0;
}
