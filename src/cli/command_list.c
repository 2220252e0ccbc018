/* `avocet list`: the models on disk, and the names that can be pulled. */
#include "cli/cli.h"

#include "base/json.h"
#include "hub/hub.h"

#include <inttypes.h>
#include <string.h>

extern const cli_command command_list;

static bool is_here(const hub_models *models, const char *name) {
    for (size_t i = 0; i < models->count; i++)
        if (strcmp(models->items[i].name, name) == 0)
            return true;
    return false;
}

static avo_status write_text(buffer *out, const char *key, const char *text) {
    AVO_TRY(buffer_format(out, "\"%s\":", key));
    AVO_TRY(json_write_string(out, text_from(text)));
    return buffer_append_text(out, ",");
}

static avo_status write_model(buffer *out, const hub_model *model) {
    AVO_TRY(buffer_append_text(out, "{"));
    AVO_TRY(write_text(out, "name", model->name));
    AVO_TRY(write_text(out, "path", model->path));
    AVO_TRY(write_text(out, "source", model->source));
    AVO_TRY(write_text(out, "revision", model->revision));
    AVO_TRY(write_text(out, "licence", model->licence));
    AVO_TRY(write_text(out, "date", model->date));
    return buffer_format(out, "\"bytes\":%" PRIu64 ",\"files\":%zu,\"complete\":%s}", model->bytes,
                         model->file_count, model->complete ? "true" : "false");
}

static avo_status write_json(buffer *out, const hub_models *models) {
    AVO_TRY(buffer_append_text(out, "{\"models\":["));
    for (size_t i = 0; i < models->count; i++) {
        AVO_TRY(buffer_append_text(out, i > 0 ? "," : ""));
        AVO_TRY(write_model(out, &models->items[i]));
    }
    AVO_TRY(buffer_append_text(out, "],\"known\":["));
    for (const hub_known *known = hub_known_models; known->name != NULL; known++) {
        AVO_TRY(buffer_append_text(out, known == hub_known_models ? "{" : ",{"));
        AVO_TRY(write_text(out, "name", known->name));
        AVO_TRY(write_text(out, "title", known->title));
        AVO_TRY(write_text(out, "licence", known->licence));
        AVO_TRY(buffer_format(out, "\"bytes\":%" PRIu64 ",\"here\":%s}", known->bytes,
                              is_here(models, known->name) ? "true" : "false"));
    }
    return buffer_append_text(out, "]}");
}

static void print_row(int name_width, int source_width, const char *name, const char *size,
                      const char *source, const char *date, const char *licence) {
    printf("%-*s  %10s  %-*s  %-10.10s  %s\n", name_width, name, size, source_width, source, date,
           licence);
}

static int wider(int width, const char *text) {
    int length = (int)strlen(text);
    return length > width ? (length > 60 ? 60 : length) : width;
}

static void print_table(const hub_models *models) {
    int name_width = 4, source_width = 6;
    for (size_t i = 0; i < models->count; i++) {
        name_width = wider(name_width, models->items[i].name);
        source_width = wider(source_width, models->items[i].source);
    }
    for (const hub_known *known = hub_known_models; known->name != NULL; known++)
        name_width = wider(name_width, known->name);
    source_width = wider(source_width, "not here: avocet pull gemma3-270m");
    print_row(name_width, source_width, "NAME", "SIZE", "SOURCE", "DATE", "LICENCE");
    char size[16];
    for (size_t i = 0; i < models->count; i++) {
        const hub_model *model = &models->items[i];
        print_row(name_width, source_width, model->name,
                  model->complete ? cli_bytes_text(model->bytes, size) : "-",
                  model->complete ? model->source : "incomplete: pull it again", model->date,
                  model->licence);
    }
    for (const hub_known *known = hub_known_models; known->name != NULL; known++) {
        char advice[96];
        snprintf(advice, sizeof(advice), "not here: avocet pull %s", known->name);
        if (!is_here(models, known->name))
            print_row(name_width, source_width, known->name, cli_bytes_text(known->bytes, size),
                      advice, "-", known->licence);
    }
}

static int run(int argc, char **argv) {
    bool json;
    int exit_status;
    if (!options_json_only(&command_list, argc, argv, &json, &exit_status))
        return exit_status;
    hub_models models;
    avo_error error = {0};
    avo_status status = hub_list(&models, &error);
    if (status != AVO_OK)
        return cli_fail(&error);
    if (json) {
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        status = write_json(&out, &models);
        if (status == AVO_OK)
            cli_print(buffer_text(&out));
        buffer_free(&out);
    } else {
        print_table(&models);
    }
    hub_models_free(&models);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

const cli_command command_list = {
    .name = "list",
    .summary = "the models on disk, and known names to pull",
    .usage = "avocet list [--json]",
    .examples = "avocet list\navocet list --json",
    .run = run,
};
