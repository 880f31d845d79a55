// Runs launchers of the shape (const float* x, float* out, int number, cudaStream_t), in order, each
// with memory of its own: `launch NAME:NUMBER:ELEMENTS ...`. One line tells how each has ended. A
// kernel that is still running after ten seconds ends the program, which frees the GPU of it.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using Launcher = cudaError_t (*)(const float*, float*, int, cudaStream_t);

constexpr int limit_ms = 10000;

// What became of the work in the default stream.
static const char* wait() {
    for (int ms = 0; ms < limit_ms; ++ms) {
        const cudaError_t error = cudaStreamQuery(nullptr);
        if (error == cudaSuccess) return "finished";
        if (error != cudaErrorNotReady) return cudaGetErrorName(error);
        usleep(1000);
    }
    return "hangs";
}

static const char* run(Launcher launcher, int number, int elements) {
    std::vector<float> host(elements);
    for (int i = 0; i < elements; ++i) host[i] = i + 1.0f;
    float *x, *out;
    cudaMalloc(&x, elements * sizeof(float));
    cudaMalloc(&out, elements * sizeof(float));
    cudaMemcpy(x, host.data(), elements * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemset(out, 0, elements * sizeof(float));
    const cudaError_t error = launcher(x, out, number, nullptr);
    if (error != cudaSuccess) return cudaGetErrorName(error);
    const char* outcome = wait();
    if (std::string(outcome) == "finished") {
        cudaFree(out);
        cudaFree(x);
    }
    return outcome;
}

int main(int count, char** arguments) {
    for (int i = 1; i < count; ++i) {
        char name[128];
        int number, elements;
        if (sscanf(arguments[i], "%127[^:]:%d:%d", name, &number, &elements) != 3) return 2;
        const Launcher launcher = (Launcher)dlsym(nullptr, name);
        if (!launcher) return 3;
        const std::string outcome = run(launcher, number, elements);
        printf("%s: %s\n", name, outcome.c_str());
        fflush(stdout);
        if (outcome != "finished") _exit(1);
    }
}
