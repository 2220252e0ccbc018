/* `avocet version`: what this build is and what it found in this machine. */
#include "cli/cli.h"

#include "base/cpu.h"
#include "base/json.h"
#include "base/region.h"
#include "device/cpu/backend.h"

#include <stdlib.h>

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
    char isas[128];
    backend_choice choice; /* by AVO_ISA, else the best */
    bool forced;
    cpu_threads threads;
    char reason[128]; /* why so many threads */
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
    AVO_TRY(json_write_string(out, text_from(facts->choice.backend.name)));
    AVO_TRY(buffer_append_text(out, ",\"isas\":"));
    AVO_TRY(json_write_string(out, text_from(facts->isas)));
    AVO_TRY(buffer_append_text(out, ",\"features\":"));
    AVO_TRY(json_write_string(out, text_from(facts->features)));
    AVO_TRY(buffer_append_text(out, ",\"threads_from\":"));
    AVO_TRY(json_write_string(out, text_from(facts->reason)));
    return buffer_format(out,
                         ",\"threads\":%u,\"processors\":%u,\"cores\":%u,\"numa_nodes\":%u,"
                         "\"huge_pages\":\"%s\"}",
                         facts->threads.usable, facts->threads.affinity, facts->threads.cores,
                         facts->threads.nodes, huge_pages_name(huge_pages_under("")));
}

static void print_facts(const build_facts *facts) {
    printf("avocet      %s\n", avo_version());
    printf("build       %s\n", AVO_BUILD_TYPE);
    printf("compiler    %s\n", AVO_BUILD_COMPILER);
    printf("cpu         %s\n", facts->processor);
    printf("features    %s\n", facts->features);
    printf("isa         %s (%s; of: %s)\n", facts->choice.backend.name,
           facts->forced ? "forced by AVO_ISA" : "the best there is", facts->isas);
    printf("threads     %u (%s)\n", facts->threads.usable, facts->reason);
    printf("NUMA nodes  %u\n", facts->threads.nodes);
    printf("huge pages  %s\n", huge_pages_name(huge_pages_under("")));
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
    facts.threads = cpu_threads_detect();
    cpu_threads_text(&facts.threads, facts.reason, sizeof(facts.reason));
    device_names(facts.isas, sizeof(facts.isas));
    avo_error error = {0};
    const char *asked = getenv("AVO_ISA");
    facts.forced = asked != NULL && asked[0] != '\0';
    if (backend_choose(asked, &facts.choice, &error) != AVO_OK)
        return cli_fail(&error);
    if (!json) {
        print_facts(&facts);
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
