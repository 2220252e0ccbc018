/* Repacking a model's weights into panels: time by number of threads, with huge pages and without.
 *
 *     ninja -C build bench_repack && build/bench/bench_repack MODEL [THREADS_MAX]
 */
#include "base/clock.h"
#include "base/cpu.h"
#include "device/cpu/cpu.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>

#define REPEATS 3

static bool measure(const char *path, uint32_t threads, bool huge, bool copy) {
    avo_error error = {0};
    double best = 0;
    uint64_t bytes = 0;
    uint64_t in_huge = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        avo_model *model = NULL;
        device *device = NULL;
        device_stream *stream = NULL;
        device_weights *weights = NULL;
        device_options options = {.name = "cpu",
                                  .threads = threads,
                                  .huge_pages = copy   ? "on"
                                                : huge ? "auto"
                                                       : "off"};
        avo_status status = avo_model_open(path, NULL, &model, &error);
        if (status == AVO_OK)
            status = device_open(&options, &device, &error);
        if (status == AVO_OK) {
            stream_shape shape = {.model = &model->view,
                                  .rows_max = 1,
                                  .logits_max = 1,
                                  .head_rows = 1,
                                  .context_max = KV_PAGE_TOKENS};
            status = device_stream_open(device, &shape, &stream, &error);
        }
        uint64_t begin = clock_now_ns();
        if (status == AVO_OK) {
            weights_source source = model_weights(model, &model->view);
            status = device_weights_open(stream, &source, &weights, &error);
        }
        double seconds = clock_seconds(begin, clock_now_ns());
        if (repeat == 0 || seconds < best)
            best = seconds;
        const region *region = status == AVO_OK ? cpu_weights_region(model->store) : NULL;
        if (region != NULL) {
            bytes = region->bytes;
            in_huge = region_huge_bytes(region->data, bytes);
        }
        device_weights_close(weights);
        device_stream_close(stream);
        device_close(device);
        avo_model_close(model);
        if (status != AVO_OK) {
            fprintf(stderr, "%s\n", error.text);
            return false;
        }
    }
    printf("%7u  %-4s  %-4s  %8.1f  %8.1f  %7.2f  %7.0f\n", threads, huge ? "huge" : "4k",
           copy ? "all" : "-", (double)bytes * 1e-6, best * 1e3, (double)bytes / best * 1e-9,
           (double)in_huge * 1e-6);
    return true;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_repack MODEL [THREADS_MAX]\n");
        return 2;
    }
    uint32_t most = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : cpu_usable_threads();
    printf("threads  page  copy  MB packed        ms     GB/s  MB huge\n");
    for (uint32_t threads = 1; threads <= most; threads *= 2)
        for (int huge = 0; huge <= 1; huge++)
            for (int copy = 0; copy <= 1; copy++)
                if (!measure(argv[1], threads, huge != 0, copy != 0))
                    return 1;
    return 0;
}
