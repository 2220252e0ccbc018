/* `avocet version`: what this build is and what it found in this machine. */
#include "cli/cli.h"

#include "base/cpu.h"
#include "base/region.h"
#include "device/cuda/port.h"
#include "device/device.h"

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
    char cuda[128];             /* why there is no such device; "": there is */
    const char *isa, *isa_from; /* as device_asked says */
    cpu_threads threads;
    char reason[128]; /* why so many threads */
} build_facts;

static int print_json(const build_facts *facts) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "version", avo_version());
    json_member_string(w, "build", AVO_BUILD_TYPE);
    json_member_string(w, "compiler", AVO_BUILD_COMPILER);
    json_member_string(w, "cpu", facts->processor);
    json_member_string(w, "isa", facts->isa);
    json_member_string(w, "isas", facts->isas);
    json_member_string(w, "features", facts->features);
    json_member_string(w, "cuda", facts->cuda[0] == '\0' ? "available" : facts->cuda);
    json_member_string(w, "threads_from", facts->reason);
    json_member_u64(w, "threads", facts->threads.usable);
    json_member_u64(w, "processors", facts->threads.affinity);
    json_member_u64(w, "cores", facts->threads.cores);
    json_member_u64(w, "numa_nodes", facts->threads.nodes);
    json_member_string(w, "huge_pages", huge_pages_name(huge_pages_under("")));
    json_end(w);
    return cli_json_print(&json);
}

static void print_facts(const build_facts *facts) {
    printf("avocet      %s\n", avo_version());
    printf("build       %s\n", AVO_BUILD_TYPE);
    printf("compiler    %s\n", AVO_BUILD_COMPILER);
    printf("cpu         %s\n", facts->processor);
    printf("features    %s\n", facts->features);
    bool best = strcmp(facts->isa_from, "best") == 0;
    printf("device      %s (%s%s; of: %s)\n", facts->isa,
           best ? "the fastest available" : "forced by ", best ? "" : facts->isa_from, facts->isas);
    printf("CUDA        %s\n", facts->cuda[0] == '\0' ? "available" : facts->cuda);
    printf("threads     %u (%s)\n", facts->threads.usable, facts->reason);
    printf("NUMA nodes  %u\n", facts->threads.nodes);
    printf("huge pages  %s\n", huge_pages_name(huge_pages_under("")));
}

/* What the build or the machine lacks. */
static void find_cuda(char *text, size_t capacity) {
    avo_error error = {0};
    text[0] = '\0';
    if (cuda_available(&error) != AVO_OK)
        snprintf(text, capacity, "%.100s", error.text);
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
    if (device_find(device_asked(NULL, &facts.isa_from), &facts.isa, &error) != AVO_OK)
        return cli_fail(&error);
    find_cuda(facts.cuda, sizeof(facts.cuda));
    if (json)
        return print_json(&facts);
    print_facts(&facts);
    return EXIT_GOOD;
}

const cli_command command_version = {
    .name = "version",
    .summary = "show the build, the compiler and the instruction sets found",
    .usage = "avocet version [--json]",
    .examples = "avocet version\navocet version --json",
    .run = run,
};
