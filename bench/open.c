/* How long opening takes: bench_open FILE… prints, per file, the size and the first and the best of
 * ten openings of the source (header, manifest, configuration) and of the whole model (tokenizer,
 * template, every tensor bound). */
#include "avocet.h"
#include "base/clock.h"
#include "formats/source.h"

#include <math.h>
#include <stdio.h>

typedef struct times {
    double first_ms, best_ms;
} times;

static void add(times *times, uint64_t begin_ns) {
    double ms = clock_seconds(begin_ns, clock_now_ns()) * 1e3;
    times->first_ms = times->best_ms == 0 ? ms : times->first_ms;
    times->best_ms = times->best_ms == 0 ? ms : fmin(times->best_ms, ms);
}

int main(int argc, char **argv) {
    avo_error error = {0};
    for (int i = 1; i < argc; i++) {
        times source_times = {0}, model_times = {0};
        uint64_t bytes = 0;
        for (int round = 0; round < 10; round++) {
            model_source *source;
            uint64_t begin = clock_now_ns();
            if (source_open(argv[i], NULL, &source, &error) != AVO_OK)
                return fprintf(stderr, "bench_open: %s\n", error.text), 1;
            add(&source_times, begin);
            bytes = source->files[0].map.bytes.size;
            source_close(source);
        }
        for (int round = 0; round < 10; round++) {
            avo_model *model;
            uint64_t begin = clock_now_ns();
            if (avo_model_open(argv[i], NULL, &model, &error) != AVO_OK)
                return fprintf(stderr, "bench_open: %s\n", error.text), 1;
            add(&model_times, begin);
            avo_model_close(model);
        }
        printf("%s: %.2f GB; source first %.2f ms, best %.2f ms; model first %.2f ms, best %.2f "
               "ms\n",
               argv[i], (double)bytes * 1e-9, source_times.first_ms, source_times.best_ms,
               model_times.first_ms, model_times.best_ms);
    }
    return 0;
}
