/* Writing trained heads: the file of docs/heads.md. */
#include "base/file.h"
#include "model/heads_write.h"
#include "train/heads_int.h"

#include <stdio.h>
#include <string.h>

/* The name without ".weight", which the writer adds to matrices. */
static void base_name(const char *name, char out[TRAIN_NAME_MAX]) {
    size_t length = strlen(name) - strlen(".weight");
    snprintf(out, TRAIN_NAME_MAX, "%.*s", (int)length, name);
}

static avo_status write_parameter(heads_writer *writer, const train_parameter *p) {
    char name[TRAIN_NAME_MAX];
    source_tensor tensor = {.name = text_from(p->name),
                            .type = QUANT_F32,
                            .layout = QUANT_LAYOUT_ROWS,
                            .rank = 2,
                            .shape = {p->rows, p->k, 1, 1},
                            .data = (const uint8_t *)p->value,
                            .bytes = (uint64_t)p->rows * p->k * sizeof(float)};
    if (p->role == TRAIN_VECTOR && p->rows == 1)
        return heads_write_vector(writer, p->name, &tensor, p->k);
    heads_numbers numbers = {.from = &tensor, .rows = p->rows, .columns = p->k};
    quant_type type = writer->type;
    base_name(p->name, name);
    if (p->role == TRAIN_VECTOR) /* several norms */
        writer->type = QUANT_F32;
    avo_status status = heads_write_matrix(writer, name, &numbers);
    writer->type = type;
    return status;
}

static avo_status write_all(const train_core *core, heads_writer *writer, buffer *file) {
    const struct train_heads *heads = core->heads;
    for (uint32_t i = 0; i < core->parameters.count; i++)
        AVO_TRY(write_parameter(writer, &core->parameters.item[i]));
    AVO_TRY(heads_write_tokens(writer, heads->token, heads->config.frequent));
    return heads_write_finish(writer, &heads->config, file);
}

avo_status train_heads_write(const train_core *core, const char *path, quant_type type,
                             avo_error *error) {
    heads_writer writer;
    buffer file;
    heads_writer_init(&writer, core->allocator, path, type, error);
    buffer_init(&file, core->allocator, SIZE_MAX);
    avo_status status = write_all(core, &writer, &file);
    AVO_THEN(status, file_write(path, file.data, file.size, error));
    buffer_free(&file);
    heads_writer_free(&writer);
    return status;
}
