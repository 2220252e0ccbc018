/* `avocet list`: the models on disk, and the names that can be pulled. */
#include "cli/cli.h"

#include "hub/hub.h"

#include <string.h>

extern const cli_command command_list;

static bool is_here(const hub_models *models, const char *name) {
    for (size_t i = 0; i < models->count; i++)
        if (strcmp(models->items[i].name, name) == 0)
            return true;
    return false;
}

static uint64_t panels_size(void) {
    uint64_t bytes;
    return hub_panels_size(&bytes, NULL) == AVO_OK ? bytes : 0;
}

static void write_model(json_writer *w, const hub_model *model) {
    json_object_begin(w);
    json_member_string(w, "name", model->name);
    json_member_string(w, "path", model->path);
    json_member_string(w, "source", model->source);
    json_member_string(w, "revision", model->revision);
    json_member_string(w, "licence", model->licence);
    json_member_string(w, "date", model->date);
    json_member_u64(w, "bytes", model->bytes);
    json_member_u64(w, "panel_bytes", hub_panel_bytes(model));
    json_member_u64(w, "files", model->file_count);
    json_member_boolean(w, "complete", model->complete);
    json_member_boolean(w, "bundled", model->bundled);
    json_end(w);
}

static int print_json(const hub_models *models) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_array_begin(w, "models");
    for (size_t i = 0; i < models->count; i++)
        write_model(w, &models->items[i]);
    json_end(w);
    json_member_array_begin(w, "known");
    for (const hub_known *known = hub_known_models; known->name != NULL; known++) {
        json_object_begin(w);
        json_member_string(w, "name", known->name);
        json_member_string(w, "title", known->title);
        json_member_string(w, "licence", known->licence);
        json_member_u64(w, "bytes", known->bytes);
        json_member_boolean(w, "here", is_here(models, known->name));
        json_end(w);
    }
    json_end(w);
    json_member_u64(w, "panel_bytes", panels_size());
    json_end(w);
    return cli_json_print(&json);
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
    source_width = wider(source_width, "not downloaded: avocet pull gemma3-270m");
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
        snprintf(advice, sizeof(advice),
                 known->embedded != NULL ? "in the program: avocet run %s"
                                         : "not downloaded: avocet pull %s",
                 known->name);
        if (!is_here(models, known->name))
            print_row(name_width, source_width, known->name, cli_bytes_text(known->bytes, size),
                      advice, "-", known->licence);
    }
}

/* What repacking has left on disk, of these models and of files elsewhere. */
static void print_panels(const hub_models *models) {
    uint64_t all = panels_size();
    char size[16], folder[HUB_PATH_MAX];
    if (all == 0 || hub_panel_folder(folder, sizeof(folder), NULL) != AVO_OK)
        return;
    printf("\nrepacked weights, for faster starts: %s in %s\n", cli_bytes_text(all, size), folder);
    for (size_t i = 0; i < models->count; i++) {
        uint64_t own = hub_panel_bytes(&models->items[i]);
        if (own > 0)
            printf("  %s: %s\n", models->items[i].name, cli_bytes_text(own, size));
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
    exit_status = EXIT_GOOD;
    if (json)
        exit_status = print_json(&models);
    else
        print_table(&models);
    if (!json)
        print_panels(&models);
    hub_models_free(&models);
    return exit_status;
}

const cli_command command_list = {
    .name = "list",
    .summary = "list downloaded models and known names to pull",
    .usage = "avocet list [--json]",
    .examples = "avocet list\navocet list --json",
    .run = run,
};
