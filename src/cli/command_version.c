/* `avocet version`: what this build is and what it found in this machine. */
#include "cli/cli.h"

#include "base/cpu.h"
#include "base/json.h"

#ifndef AVO_BUILD_COMPILER
#define AVO_BUILD_COMPILER "unknown"
#endif
#ifndef AVO_BUILD_TYPE
#define AVO_BUILD_TYPE "unknown"
#endif

extern const cli_command command_version;

typedef struct build_facts {
    char processor[128];
    char features[256];
    uint32_t threads;
} build_facts;

static avo_status write_json(buffer *out, const build_facts *facts) {
    AVO_TRY(buffer_append_text(out, "{\"version\":"));
    AVO_TRY(json_write_string(out, text_from(avo_version())));
    AVO_TRY(buffer_append_text(out, ",\"build\":"));
    AVO_TRY(json_write_string(out, text_from(AVO_BUILD_TYPE)));
    AVO_TRY(buffer_append_text(out, ",\"compiler\":"));
    AVO_TRY(json_write_string(out, text_from(AVO_BUILD_COMPILER)));
    AVO_TRY(buffer_append_text(out, ",\"cpu\":"));
    AVO_TRY(json_write_string(out, text_from(facts->processor)));
    AVO_TRY(buffer_append_text(out, ",\"isa\":"));
    AVO_TRY(json_write_string(out, text_from(facts->features)));
    return buffer_format(out, ",\"threads\":%u}", (unsigned)facts->threads);
}

static int run(int argc, char **argv) {
    bool json;
    int exit_status;
    if (!options_json_only(&command_version, argc, argv, &json, &exit_status))
        return exit_status;

    build_facts facts;
    cpu_features features = cpu_features_detect();
    cpu_features_text(&features, facts.features, sizeof(facts.features));
    cpu_name(facts.processor, sizeof(facts.processor));
    facts.threads = cpu_usable_threads();
    if (!json) {
        printf(
            "avocet    %s\nbuild     %s\ncompiler  %s\ncpu       %s\nisa       %s\nthreads   %u\n",
            avo_version(), AVO_BUILD_TYPE, AVO_BUILD_COMPILER, facts.processor, facts.features,
            (unsigned)facts.threads);
        return EXIT_GOOD;
    }
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = write_json(&out, &facts);
    if (status == AVO_OK)
        cli_print(buffer_text(&out));
    buffer_free(&out);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

const cli_command command_version = {
    .name = "version",
    .summary = "the build, the compiler and the instruction sets found",
    .usage = "avocet version [--json]",
    .examples = "avocet version\navocet version --json",
    .run = run,
};
