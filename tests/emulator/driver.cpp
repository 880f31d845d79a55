// Runs kernels that were cross-compiled, in a process without Python: driver core checker kernels.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <initializer_list>

template <class Function>
Function* find(void* library, const char* name) {
    void* found = dlsym(library, name);
    if (!found) printf("%s\n", dlerror()), exit(1);
    return (Function*)found;
}

void* open(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) printf("%s\n", dlerror()), exit(1);
    return library;
}

int main(int, char** paths) {
    void* core = open(paths[1]);
    open(paths[2]);
    void* kernels = open(paths[3]);
    auto begin = find<void*(void*)>(core, "emulator_begin");
    auto end = find<void()>(core, "emulator_end");
    auto failed = find<int(void*)>(core, "emulator_failure");
    auto configure = find<void(int, uint64_t, double, int, uint64_t)>(core, "emulator_configure");
    static int failure[256];
    static float x[1000], out[4];
    for (int i = 0; i < 1000; ++i) x[i] = (float)i;

    for (int order = 0; order < 3; ++order) {
        configure(order, 7, 60.0, 2, 0);
        auto sum = find<int(const float*, float*, int, void*)>(kernels, "run_sum");
        const int error = ((decltype(sum))begin((void*)sum))(x, out, 1000, nullptr);
        end();
        printf("sum %d %.0f %.0f\n", error, out[0], out[1]);
    }
    configure(0, 0, 0.5, 1, 0);
    for (const char* name : {"run_nowhere", "run_deep", "run_endless", "run_trap", "run_divide"}) {
        auto launch = find<int(float*, void*)>(kernels, name);
        ((decltype(launch))begin((void*)launch))(out, nullptr);
        end();
        if (!failed(failure)) failure[0] = -1;
        printf("%s %d\n", name, failure[0]);
    }
}
