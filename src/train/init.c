/* Making a model: the folder appears when all of its files are there. */
#include "base/file.h"
#include "train/init_int.h"

static avo_status make(init_state *state, avo_error *error) {
    AVO_TRY(init_config_read(state, error));
    AVO_TRY(init_write_text(state, error));
    AVO_TRY(init_write_config(state, error));
    AVO_TRY(init_write_origin(state, error));
    return init_write_weights(state, error);
}

avo_status train_init(const train_init_options *options, const char *folder, train_init_info *info,
                      avo_error *error) {
    folder_writer writer;
    AVO_TRY(folder_writer_open(&writer, folder, error));
    init_state state = {.options = options, .folder = writer.temporary};
    arena_init(&state.arena, options->allocator, (size_t)1 << 30);
    avo_status status = make(&state, error);
    if (status == AVO_OK)
        status = folder_writer_commit(&writer, error);
    else
        folder_writer_abort(&writer);
    arena_free(&state.arena);
    if (status == AVO_OK)
        *info = state.info;
    return status;
}
