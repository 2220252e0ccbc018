/* engine/session_file on any bytes, into a session of a small model. Sums, sizes and the model's
 * digest are made right first, so that what lies behind them is reached too; what loads must
 * compute. */
#include "engine/session_file.h"

#include "base/file.h"
#include "base/hash.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

/* Made by tools/fuzz_seeds; read once. */
#define MODEL AVO_FUZZ_FOLDER "/corpus/model/llama.gguf"

static avo_model *model;
static avo_session *session;
static avo_batch *batch;
static avo_engine *engine;

static void open_once(void) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = 64;
    options.rows_max = 64;
    options.device = "ref";
    options.kv_type = "int8";
    if (avo_model_open(MODEL, NULL, &model, NULL) != AVO_OK ||
        avo_engine_open(model, &options, &engine, NULL) != AVO_OK ||
        avo_session_open(engine, NULL, &session, NULL) != AVO_OK ||
        avo_batch_open(engine, &batch, NULL) != AVO_OK)
        abort();
}

static void make_right(uint8_t *data, size_t size) {
    session_header header;
    memcpy(&header, data, sizeof(header));
    header.file_bytes = size;
    header.model_digest = source_digest(model->source);
    header.body_sum = hash_bytes(data + sizeof(header), size - sizeof(header));
    header.header_sum = hash_bytes(&header, offsetof(session_header, header_sum));
    memcpy(data, &header, sizeof(header));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (model == NULL)
        open_once();
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL)
        abort();
    memcpy(copy, data, size);
    if (size >= sizeof(session_header))
        make_right(copy, size);
    avo_error error;
    if (session_file_load(session, (bytes_view){copy, size}, "fuzz", &error) == AVO_OK) {
        uint32_t length = avo_session_length(session);
        int32_t token = 1;
        avo_batch_clear(batch);
        if (length < 64 && (avo_batch_add(batch, session, &token, 1) != AVO_OK ||
                            avo_step(engine, batch) != AVO_OK))
            abort();
        if (avo_session_truncate(session, 0, &error) != AVO_OK)
            abort();
    } else if (avo_session_length(session) != 0) {
        abort();
    }
    free(copy);
    return 0;
}
