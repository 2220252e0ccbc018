/* Logits at every position, to a callback or a NumPy file. */
#include "eval/eval_int.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

typedef struct forwarding {
    eval_logits_function take;
    void *take_context;
    const eval_options *options;
    uint32_t vocabulary;
    size_t count;
} forwarding;

static avo_status forward(void *context, size_t position, const float *logits, avo_error *error) {
    const forwarding *forwarding = context;
    AVO_TRY(forwarding->take(forwarding->take_context, logits, forwarding->vocabulary, error));
    const eval_options *options = forwarding->options;
    if (options->progress == NULL ||
        options->progress(options->progress_context, "logits", position + 1, forwarding->count))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_CANCELLED, "cancelled after %zu of %zu positions",
                       position + 1, forwarding->count);
}

avo_status eval_logits(const avo_model *model, const int32_t *tokens, size_t count,
                       const eval_options *options, eval_logits_function take, void *take_context,
                       avo_error *error) {
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "there are no tokens");
    if (count > UINT32_MAX || (options->context != 0 && count > options->context))
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "%zu tokens do not fit the context of %u; raise --ctx", count,
                           options->context);
    scorer scorer;
    uint32_t context = options->context != 0 ? options->context : (uint32_t)count;
    AVO_TRY(scorer_open(&scorer, model, options, context, error));
    forwarding forwarding = {take, take_context, options, scorer.vocabulary, count};
    avo_status status = scorer_window(&scorer, tokens, count, 0, forward, &forwarding, error);
    scorer_close(&scorer);
    return status;
}

/* ---- NumPy's format, version 1.0 ---- */

/* Magic, version, the length of the rest as u16, and a Python dictionary padded with blanks so that
 * the data begin at a multiple of 64. */
#define NPY_HEADER_BYTES 128

static void make_header(size_t rows, uint32_t columns, char header[NPY_HEADER_BYTES]) {
    static const unsigned char magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char text[NPY_HEADER_BYTES];
    int length =
        snprintf(text, sizeof(text),
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %u), }", rows, columns);
    uint16_t rest = NPY_HEADER_BYTES - 10;
    memset(header, ' ', NPY_HEADER_BYTES);
    memcpy(header, magic, sizeof(magic));
    memcpy(header + 8, &rest, sizeof(rest));
    memcpy(header + 10, text, (size_t)length);
    header[NPY_HEADER_BYTES - 1] = '\n';
}

static avo_status write_row(void *context, const float *logits, uint32_t vocabulary,
                            avo_error *error) {
    return file_writer_append(context, logits, vocabulary * sizeof(float), error);
}

avo_status eval_logits_npy(const avo_model *model, const int32_t *tokens, size_t count,
                           const eval_options *options, const char *path, avo_error *error) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    file_writer writer;
    AVO_TRY(file_writer_open(&writer, path, error));
    char header[NPY_HEADER_BYTES];
    make_header(count, info.vocabulary, header);
    avo_status status = file_writer_append(&writer, header, sizeof(header), error);
    AVO_THEN(status, eval_logits(model, tokens, count, options, write_row, &writer, error));
    if (status == AVO_OK)
        return file_writer_commit(&writer, error);
    file_writer_abort(&writer);
    return status;
}
