/* The tokenizer of a MODEL as the user wrote it. */
#include "cli/tokenizer_open.h"

#include "base/file.h"
#include "formats/source.h"

static bool is_bare_name(const char *path) {
    return text_ends(text_from(path), TEXT_LITERAL(".json")) ||
           text_ends(text_from(path), TEXT_LITERAL(".model"));
}

/* A folder without weights still may have a tokenizer in it. */
static avo_status open_beside(const char *folder, cli_tokenizer *opened, avo_error *error) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    char path[CLI_PATH_MAX];
    for (size_t i = 0; i < 2; i++) {
        AVO_TRY(file_join(path, sizeof(path), folder, names[i], error));
        if (file_kind_of(path) == FILE_REGULAR)
            return tokenizer_open_file(path, NULL, &opened->tokenizer, error);
    }
    return status_fail(error, AVO_ERROR_NOT_FOUND, "%s: no tokenizer in this folder", folder);
}

/* The model's tokenizer, or a bare tokenizer.json, tokenizer.model or tokenizer.bin. */
static avo_status open_tokenizer(const char *path, cli_tokenizer *opened, avo_error *error) {
    avo_error other = {0};
    if (file_kind_of(path) == FILE_REGULAR && is_bare_name(path))
        return tokenizer_open_file(path, NULL, &opened->tokenizer, error);
    avo_status status = source_open(path, NULL, &opened->source, error);
    if (status == AVO_OK)
        return tokenizer_open(&opened->source->tokenizer, NULL, &opened->tokenizer, error);
    avo_status bare = file_kind_of(path) == FILE_FOLDER
                          ? open_beside(path, opened, &other)
                          : tokenizer_open_file(path, NULL, &opened->tokenizer, &other);
    return bare == AVO_OK ? AVO_OK : status;
}

avo_status cli_tokenizer_open(const char *name, cli_tokenizer *out, avo_error *error) {
    char path[CLI_PATH_MAX];
    *out = (cli_tokenizer){0};
    AVO_TRY(cli_model_path(name, path, sizeof(path), error));
    avo_status status = open_tokenizer(path, out, error);
    if (status != AVO_OK)
        cli_tokenizer_close(out);
    return status;
}

void cli_tokenizer_close(cli_tokenizer *opened) {
    tokenizer_close(opened->tokenizer);
    source_close(opened->source);
    *opened = (cli_tokenizer){0};
}
