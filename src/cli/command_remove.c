/* `avocet remove`: deletes pulled models. */
#include "cli/cli.h"

#include "hub/hub.h"

extern const cli_command command_remove;

static int print_json(const char *name, uint64_t freed) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "removed", name);
    json_member_u64(w, "freed_bytes", freed);
    json_end(w);
    return cli_json_print(&json);
}

static int remove_one(const char *name, bool json) {
    uint64_t freed = 0;
    avo_error error = {0};
    avo_status status = hub_remove(name, &freed, &error);
    if (status != AVO_OK) {
        (void)cli_fail(&error);
        return status == AVO_ERROR_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
    }
    char size[16];
    if (json)
        return print_json(name, freed);
    printf("removed %s: %s freed\n", name, cli_bytes_text(freed, size));
    return EXIT_GOOD;
}

static int remove_panels(bool json) {
    uint64_t freed = 0;
    avo_error error = {0};
    if (hub_panels_remove_all(&freed, &error) != AVO_OK)
        return cli_fail(&error);
    char size[16];
    if (json)
        return print_json("panels", freed);
    printf("removed repacked weights: %s freed\n", cli_bytes_text(freed, size));
    return EXIT_GOOD;
}

static int run(int argc, char **argv) {
    bool json = false, panels = false;
    const option_spec specs[] = {
        {"panels", 0, OPTION_FLAG, &panels, NULL,
         "delete the repacked weights of all models (--panel-cache), which come back when needed",
         0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print one JSON object per model", 0, 0},
        {0},
    };
    int words = 0;
    options_result result = options_parse(&command_remove, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        return options_exit(result);
    if (words == 0 && panels)
        return remove_panels(json);
    if (words == 0)
        return cli_usage(&command_remove, "missing NAME: give a name shown by avocet list");
    int worst = panels ? remove_panels(json) : EXIT_GOOD;
    for (int i = 1; i <= words; i++) {
        int status = remove_one(argv[i], json);
        worst = status > worst ? status : worst;
    }
    return worst;
}

const cli_command command_remove = {
    .name = "remove",
    .summary = "delete downloaded models",
    .usage = "avocet remove NAME… [--json]\n"
             "       avocet remove --panels [--json]",
    .examples = "avocet remove gemma3-270m\navocet remove --panels",
    .run = run,
};
