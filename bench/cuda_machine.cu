/* Rung 0 of the CUDA ladder: what the card can do. Reads, waits and arithmetic in kernels of a few
 * lines, each timed with events, the median of several runs.
 *
 *   nvcc -O3 -arch=sm_90a -o cuda_machine bench/cuda_machine.cu && ./cuda_machine
 *
 * docs/cuda.md has what it printed. It uses the CUDA runtime, which the library itself does not. */
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <vector>

static void check(cudaError_t result, const char *what) {
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "cuda_machine: %s: %s\n", what, cudaGetErrorString(result));
    exit(1);
}
#define CHECK(call) check(call, #call)

#define REPEAT 9

template <typename work> static double median_us(work run) {
    std::vector<float> times;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    run();
    for (int i = 0; i < REPEAT; i++) {
        float ms;
        CHECK(cudaEventRecord(begin, cudaStreamPerThread));
        run();
        CHECK(cudaEventRecord(end, cudaStreamPerThread));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        times.push_back(ms * 1000.0f);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    return times[REPEAT / 2];
}

/* ---- Memory ---- */

__global__ void fill(uint32_t *words, size_t count) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step)
        words[i] = (uint32_t)i * 2654435761u;
}

__global__ void read_all(const uint4 *from, size_t count, uint32_t *out) {
    uint32_t sum = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
#pragma unroll 8
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step) {
        uint4 four = __ldcs(from + i);
        sum += four.x ^ four.y ^ four.z ^ four.w;
    }
    if (sum == 0x12345678u)
        *out = sum;
}

/* ---- Waits ---- */

__global__ void barriers(uint32_t *counter, int count) {
    for (int i = 1; i <= count; i++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(counter, 1u);
            while (*(volatile uint32_t *)counter < (uint32_t)i * gridDim.x)
                ;
        }
        __syncthreads();
    }
}

__global__ void nothing(uint32_t *out) {
    if (out == (uint32_t *)16)
        *out = 0;
}

/* ---- Arithmetic ---- */

__global__ void chain(float *out, float a, float b, int count) {
    float x = a;
    for (int i = 0; i < count; i++) {
#pragma unroll
        for (int j = 0; j < 64; j++)
            x = __fmaf_rn(x, a, b);
    }
    out[threadIdx.x] = x;
}

template <int kind> __global__ void rate(int *out, int a, int b, int count) {
    int sum[8];
    float f[8];
    for (int j = 0; j < 8; j++) {
        sum[j] = threadIdx.x + j;
        f[j] = (float)sum[j];
    }
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int j = 0; j < 64; j++) {
            if (kind == 0)
                sum[j % 8] = __dp4a(a + j, sum[j % 8], b);
            else
                f[j % 8] = __fmaf_rn(f[j % 8], 1.0001f, (float)b);
        }
    int total = 0;
    for (int j = 0; j < 8; j++)
        total += sum[j] + (int)f[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

int main() {
    cudaDeviceProp card;
    int clock_khz = 0;
    CHECK(cudaGetDeviceProperties(&card, 0));
    CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
    int sms = card.multiProcessorCount;
    cudaStream_t stream = cudaStreamPerThread;
    printf("card: %s, %d SMs, %.0f MHz at most, L2 %d MB\n", card.name, sms, clock_khz / 1000.0,
           card.l2CacheSize >> 20);

    size_t bytes = (size_t)4 << 30;
    uint32_t *memory, *small;
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMalloc(&small, 1 << 22));
    fill<<<sms * 8, 256, 0, stream>>>(memory, bytes / 4);
    double best = 0;
    for (int blocks = 4; blocks <= 32; blocks *= 2) {
        double us = median_us([&] {
            read_all<<<sms * blocks, 256, 0, stream>>>((const uint4 *)memory, bytes / 16, small);
        });
        best = std::max(best, bytes / us / 1e3);
    }
    printf("read peak: %.0f GB/s of %zu MB\n", best, bytes >> 20);

    const int waits = 20000;
    uint32_t *counter = small;
    int count = waits;
    double us = median_us([&] {
        CHECK(cudaMemsetAsync(counter, 0, 4, stream));
        void *arguments[] = {&counter, &count};
        CHECK(cudaLaunchCooperativeKernel((void *)barriers, dim3(sms), dim3(256), arguments, 0,
                                          stream));
    });
    printf("grid barrier: %.2f us (%d blocks of 256)\n", us / waits, sms);

    const int nodes = 2000;
    us = median_us([&] {
        for (int i = 0; i < nodes; i++)
            nothing<<<sms, 256, 0, stream>>>(nullptr);
    });
    printf("launch in a stream: %.2f us\n", us / nodes);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaStream_t capture;
    CHECK(cudaStreamCreate(&capture));
    CHECK(cudaStreamBeginCapture(capture, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; i++)
        nothing<<<sms, 256, 0, capture>>>(nullptr);
    CHECK(cudaStreamEndCapture(capture, &graph));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    us = median_us([&] { CHECK(cudaGraphLaunch(ready, stream)); });
    printf("graph node: %.2f us\n", us / nodes);

    us = median_us([&] { chain<<<1, 32, 0, stream>>>((float *)small, 0.999f, 0.001f, 10000); });
    printf("dependent FFMA: %.2f ns\n", us * 1000 / 640000);
    us = median_us([&] { rate<0><<<sms * 8, 256, 0, stream>>>((int *)small, 3, 5, 2000); });
    printf("dp4a: %.1f Tops/s (8 operations each)\n",
           (double)sms * 8 * 256 * 2000 * 64 * 8 / us / 1e6);
    us = median_us([&] { rate<1><<<sms * 8, 256, 0, stream>>>((int *)small, 3, 5, 2000); });
    printf("FFMA: %.1f TFLOP/s\n", (double)sms * 8 * 256 * 2000 * 64 * 2 / us / 1e6);
    return 0;
}
