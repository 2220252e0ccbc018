/* model/heads and model/heads_import on any bytes, for a small model. What begins with FOLDER is
 * the configuration of another project's folder, a zero byte and its weights. What opens drafts for
 * an answer, which must be the one without drafts; tensors may hold any bits, so the heads' numbers
 * are anything, too. */
#include "model/heads.h"

#include "engine/draft_heads.h"
#include "engine/engine_int.h"
#include "model/heads_import.h"

#include <stdlib.h>
#include <string.h>

/* Made by tools/fuzz_seeds; read once. */
#define MODEL   AVO_FUZZ_FOLDER "/corpus/model/llama.gguf"
#define CONTEXT 24
#define TOKENS  12
#define FOLDER  "folder\n"

typedef struct answer {
    int32_t token[TOKENS];
    uint32_t count;
} answer;

static avo_model *model;
static answer plain;

static bool note(void *context, const avo_event *event) {
    answer *own = context;
    if (event->kind == AVO_EVENT_TOKEN && own->count < TOKENS)
        own->token[own->count++] = event->token->token;
    return true;
}

/* False: no engine within the memory given. */
static bool generate(const avo_heads *heads, answer *out) {
    static const int32_t prompt[] = {1, 7, 3, 7};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = CONTEXT;
    options.rows_max = 16;
    options.memory_max = (uint64_t)64 << 20;
    options.device = "ref";
    options.draft_controller = "fixed";
    options.speculate = heads == NULL ? "off" : heads_kind_name(heads->config.kind);
    options.draft_heads = &heads;
    options.draft_heads_count = heads != NULL;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = sizeof(prompt) / sizeof(prompt[0]);
    request.max_new_tokens = TOKENS;
    request.ignore_end = true;
    request.on_event = note;
    request.on_event_context = out;
    avo_engine *engine;
    avo_session *session;
    *out = (answer){.count = 0};
    if (avo_engine_open(model, &options, &engine, NULL) != AVO_OK)
        return false;
    if (heads != NULL)
        draft_heads_assume(engine->draft_heads, 1.0);
    if (avo_session_open(engine, NULL, &session, NULL) != AVO_OK ||
        avo_generate(engine, session, &request, NULL, NULL) != AVO_OK)
        abort();
    avo_session_close(session);
    avo_engine_close(engine);
    return true;
}

static void use(const avo_heads *heads) {
    answer drafted;
    if (heads->config.frequent > heads->config.vocabulary ||
        (heads->config.kind != HEADS_LAYERS && heads->config.taps == 0))
        abort();
    (void)heads_made_for(&heads->config, model);
    if (generate(heads, &drafted) &&
        (drafted.count != plain.count ||
         memcmp(drafted.token, plain.token, plain.count * sizeof(plain.token[0])) != 0))
        abort();
}

/* What was converted must open, or be refused by what is checked there alone. */
static avo_status open_folder(const uint8_t *data, size_t size, avo_heads **heads,
                              avo_error *error) {
    const uint8_t *end = memchr(data, 0, size);
    size_t length = end == NULL ? size : (size_t)(end - data), begin = length + (end != NULL);
    buffer made;
    buffer_init(&made, NULL, (size_t)64 << 20);
    *heads = NULL;
    avo_status status = heads_import_memory(model, "fuzz", (text_view){(const char *)data, length},
                                            (bytes_view){data + begin, size - begin},
                                            size % 3 == 0   ? QUANT_F32
                                            : size % 3 == 1 ? QUANT_Q8_0
                                                            : QUANT_Q4_1,
                                            &made, error);
    if (status == AVO_OK)
        status = heads_open_memory(model, (bytes_view){(const uint8_t *)made.data, made.size},
                                   "fuzz", heads, error);
    buffer_free(&made);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (model == NULL &&
        (avo_model_open(MODEL, NULL, &model, NULL) != AVO_OK || !generate(NULL, &plain)))
        abort();
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL)
        abort();
    memcpy(copy, data, size);
    avo_heads *heads;
    avo_error error = {0};
    size_t prefix = strlen(FOLDER);
    avo_status status =
        size > prefix && memcmp(copy, FOLDER, prefix) == 0
            ? open_folder(copy + prefix, size - prefix, &heads, &error)
            : heads_open_memory(model, (bytes_view){copy, size}, "fuzz", &heads, &error);
    free(copy); /* nothing of it is needed any more */
    if ((status == AVO_OK) != (heads != NULL) || (status != AVO_OK && error.text[0] == '\0'))
        abort();
    if (status == AVO_OK)
        use(heads);
    avo_heads_close(heads);
    return 0;
}
