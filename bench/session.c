/* What it costs to get a long prompt back, beside computing it: found by its tokens, forked, saved,
 * restored.
 *
 *     ninja -C build bench_session && build/bench/bench_session MODEL [TOKENS [FILE]]
 */
#include "base/clock.h"
#include "base/file.h"

#include <avocet.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static avo_engine *engine;
static avo_error error;

static void must(avo_status status) {
    if (status == AVO_OK)
        return;
    fprintf(stderr, "bench_session: %s\n", error.text);
    exit(1);
}

static avo_session *open_session(void) {
    avo_session *session;
    must(avo_session_open(engine, NULL, &session, &error));
    return session;
}

static void compute(avo_session *session, const int32_t *tokens, uint32_t from, uint32_t count) {
    avo_batch *batch;
    must(avo_batch_open(engine, &batch, &error));
    for (uint32_t done = from; done < count;) {
        uint32_t now = count - done < 512 ? count - done : 512;
        avo_batch_clear(batch);
        if (avo_batch_add(batch, session, tokens + done, now) != AVO_OK ||
            avo_step(engine, batch) != AVO_OK)
            exit(1);
        done += now;
    }
    avo_batch_close(batch);
}

static void print_since(const char *what, uint64_t begin) {
    printf("%-36s %12.3f ms\n", what, clock_seconds(begin, clock_now_ns()) * 1e3);
}

int main(int argc, char **argv) {
    uint32_t count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1024;
    const char *path = argc > 3 ? argv[3] : "bench.session";
    avo_model *model;
    if (argc < 2)
        return 2;
    must(avo_model_open(argv[1], NULL, &model, &error));
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = count + 64;
    options.sessions_max = 4;
    must(avo_engine_open(model, &options, &engine, &error));
    int32_t *tokens = calloc(count, sizeof(*tokens));
    if (tokens == NULL)
        return 1;
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(i * 7919u % info.vocabulary);
    for (int round = 0; round < 2; round++) { /* the first touches the memory */
        avo_session *first = open_session(), *second = open_session(), *third;
        printf("round %d, %u tokens\n", round + 1, count);
        uint64_t begin = clock_now_ns();
        if (round == 0) {
            compute(first, tokens, 0, count);
            print_since("computed", begin);
        } else {
            must(avo_session_reuse(first, tokens, count, NULL, &error));
            compute(first, tokens, avo_session_length(first), count);
        }
        begin = clock_now_ns();
        must(avo_session_reuse(second, tokens, count, NULL, &error));
        print_since("found", begin);
        begin = clock_now_ns();
        compute(second, tokens, avo_session_length(second), count);
        print_since("the rest of it computed", begin);
        begin = clock_now_ns();
        must(avo_session_fork(second, &third, &error));
        print_since("forked", begin);
        avo_session_close(third);
        begin = clock_now_ns();
        must(avo_session_save(second, path, &error));
        print_since("saved", begin);
        file_map map;
        must(file_map_open(path, &map, &error));
        printf("%-36s %12.3f MiB\n", "file", (double)map.bytes.size / 1048576.0);
        file_map_close(&map);
        third = open_session();
        begin = clock_now_ns();
        must(avo_session_restore(third, path, &error));
        print_since("restored", begin);
        avo_session_close(first);
        avo_session_close(second);
        avo_session_close(third);
    }
    unlink(path);
    avo_engine_close(engine);
    avo_model_close(model);
    free(tokens);
    return 0;
}
