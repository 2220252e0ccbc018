/* Finding draft heads beside the program. */
#include "cli/heads_find.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define FILES_MAX 64 /* of a folder that are looked at */

static bool is_made_for(const char *path, const avo_model *model, heads_kind kind) {
    heads_config config;
    avo_error error;
    return heads_config_read(path, model->allocator, &config, &error) == AVO_OK &&
           config.kind == kind && heads_made_for(&config, model);
}

static bool find_in(const char *folder, const avo_model *model, heads_kind kind, char *path,
                    size_t capacity) {
    DIR *entries = opendir(folder);
    char candidate[4096], best[256] = "";
    avo_error error;
    if (entries == NULL)
        return false;
    uint32_t looked = 0;
    for (struct dirent *entry; looked < FILES_MAX && (entry = readdir(entries)) != NULL;) {
        if (!text_ends(text_from(entry->d_name), TEXT_LITERAL(".safetensors")) ||
            strlen(entry->d_name) >= sizeof(best) ||
            (best[0] != '\0' && strcmp(entry->d_name, best) >= 0))
            continue;
        looked++;
        if (file_join(candidate, sizeof(candidate), folder, entry->d_name, &error) == AVO_OK &&
            is_made_for(candidate, model, kind))
            memcpy(best, entry->d_name, strlen(entry->d_name) + 1);
    }
    closedir(entries);
    return best[0] != '\0' && file_join(path, capacity, folder, best, &error) == AVO_OK;
}

bool cli_heads_find(const avo_model *model, heads_kind kind, char *path, size_t capacity) {
    static const char *const places[] = {"../share/avocet/heads", "../models"};
    char folder[4096];
    avo_error error;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (file_beside_program(folder, sizeof(folder), places[i], &error) == AVO_OK &&
            find_in(folder, model, kind, path, capacity))
            return true;
    return false;
}
