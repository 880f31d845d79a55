// Replaces the part of torch's C++ interface that the binding of a kernel uses. Tensors know what
// they are; GPUs and streams are numbers in `world`, which a test sets, so any of them can be.
#pragma once

#include <limits.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "host.h"

namespace c10 {

struct World {
    int device = 0;                     // the current one
    cudaStream_t streams[2] = {};       // the current one of each device
};
inline World world;

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void refuse(const char* otherwise, const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    throw Error(sizeof...(parts) ? text.str() : otherwise);
}

enum class ScalarType : int8_t { Float, Half, BFloat16, Double, Int, Long };
inline int64_t element_size(ScalarType type) { return "\4\2\2\10\4\10"[(int)type]; }
inline std::ostream& operator<<(std::ostream& to, ScalarType type) {
    const char* names[] = {"Float", "Half", "BFloat16", "Double", "Int", "Long"};
    return to << names[(int)type];
}
template <class T> constexpr ScalarType type_of = ScalarType::Long;
template <> inline constexpr ScalarType type_of<float> = ScalarType::Float;
template <> inline constexpr ScalarType type_of<double> = ScalarType::Double;
template <> inline constexpr ScalarType type_of<int> = ScalarType::Int;

enum class DeviceType : int8_t { CPU, CUDA };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

struct Device {
    DeviceType kind = kCPU;
    DeviceIndex number = -1;
    Device(DeviceType kind, DeviceIndex number = -1) : kind(kind), number(number) {}
    DeviceType type() const { return kind; }
    DeviceIndex index() const { return number; }
    bool is_cuda() const { return kind == kCUDA; }
    bool is_cpu() const { return kind == kCPU; }
    bool operator==(Device other) const { return kind == other.kind && number == other.number; }
    bool operator!=(Device other) const { return !(*this == other); }
};
inline std::ostream& operator<<(std::ostream& to, Device device) {
    return device.is_cpu() ? to << "cpu" : to << "cuda:" << (int)device.number;
}

struct IntArrayRef : std::vector<int64_t> {
    using std::vector<int64_t>::vector;
};
inline std::ostream& operator<<(std::ostream& to, const IntArrayRef& numbers) {
    to << "[";
    for (size_t i = 0; i < numbers.size(); ++i) to << (i ? ", " : "") << numbers[i];
    return to << "]";
}

struct TensorOptions {
    ScalarType type;
    Device where;
    TensorOptions dtype(ScalarType other) const { return {other, where}; }
    TensorOptions device(Device other) const { return {type, other}; }
};

namespace cuda {

struct CUDAStream {
    cudaStream_t handle;
    cudaStream_t stream() const { return handle; }
    operator cudaStream_t() const { return handle; }
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
    return {world.streams[device < 0 ? world.device : device]};
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {nullptr}; }
inline DeviceIndex current_device() { return world.device; }
inline void set_device(DeviceIndex device) { world.device = device; }

struct CUDAGuard {
    int before = world.device;
    explicit CUDAGuard(DeviceIndex device) { world.device = device; }
    explicit CUDAGuard(Device device) {
        if (!device.is_cuda()) refuse("", "CUDAGuard: expected a CUDA device, got ", device);
        world.device = device.index();
    }
    CUDAGuard(const CUDAGuard&) = delete;
    ~CUDAGuard() { world.device = before; }
};

}  // namespace cuda

struct DeviceGuard : cuda::CUDAGuard {
    using CUDAGuard::CUDAGuard;
};

}  // namespace c10

namespace at {

using namespace c10;
constexpr ScalarType kFloat = ScalarType::Float, kHalf = ScalarType::Half;
constexpr ScalarType kBFloat16 = ScalarType::BFloat16, kDouble = ScalarType::Double;
constexpr ScalarType kInt = ScalarType::Int, kLong = ScalarType::Long;

// `data` may be null, of a tensor that is too large to exist here.
struct Tensor {
    std::shared_ptr<void> data;
    TensorOptions about{ScalarType::Float, kCPU};
    IntArrayRef shape, steps;

    ScalarType scalar_type() const { return about.type; }
    ScalarType dtype() const { return about.type; }
    TensorOptions options() const { return about; }
    Device device() const { return about.where; }
    DeviceIndex get_device() const { return about.where.index(); }
    bool is_cuda() const { return about.where.is_cuda(); }
    bool is_cpu() const { return about.where.is_cpu(); }
    bool defined() const { return (bool)data; }
    const IntArrayRef& sizes() const { return shape; }
    const IntArrayRef& strides() const { return steps; }
    int64_t dim() const { return shape.size(); }
    int64_t size(int64_t i) const { return shape[i < 0 ? i + dim() : i]; }
    int64_t stride(int64_t i) const { return steps[i < 0 ? i + dim() : i]; }
    int64_t element_size() const { return c10::element_size(about.type); }
    int64_t nbytes() const { return numel() * element_size(); }
    int64_t numel() const {
        int64_t product = 1;
        for (int64_t size : shape) product *= size;
        return product;
    }
    bool is_contiguous() const {
        int64_t step = 1;
        for (int64_t i = dim() - 1; i >= 0; step *= shape[i--]) {
            if (shape[i] != 1 && steps[i] != step && numel()) return false;
        }
        return true;
    }
    void* data_ptr() const { return data.get(); }
    void* mutable_data_ptr() const { return data.get(); }
    const void* const_data_ptr() const { return data.get(); }
    template <class T> T* data_ptr() const {
        if (type_of<T> != about.type) {
            refuse("", "expected scalar type ", type_of<T>, " but found ", about.type);
        }
        return static_cast<T*>(data.get());
    }
    template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
    template <class T> const T* const_data_ptr() const { return data_ptr<T>(); }
    Tensor new_empty(const IntArrayRef& sizes, TensorOptions options) const {
        Tensor made{nullptr, options, sizes, sizes};
        int64_t step = 1;
        for (int64_t i = made.dim() - 1; i >= 0; step *= sizes[i--]) made.steps[i] = step;
        // With room for a mistaken dtype. What is large is never written, and has few bytes here.
        made.data.reset(malloc(512 + (made.nbytes() < 4096 ? made.nbytes() : 0)), free);
        return made;
    }
    Tensor new_empty(const IntArrayRef& sizes) const { return new_empty(sizes, about); }
    Tensor contiguous() const {
        if (is_contiguous()) return *this;
        Tensor copy = new_empty(shape);
        for (int64_t i = 0; i < numel(); ++i) {
            int64_t rest = i, from = 0;
            for (int64_t d = dim() - 1; d >= 0; rest /= shape[d--]) from += rest % shape[d] * steps[d];
            memcpy((char*)copy.data.get() + i * element_size(),
                   (char*)data.get() + from * element_size(), element_size());
        }
        return copy;
    }
};
inline Tensor empty_like(const Tensor& x) { return x.new_empty(x.shape); }
inline Tensor empty_like(const Tensor& x, TensorOptions options) {
    return x.new_empty(x.shape, options);
}

}  // namespace at

namespace torch {

using namespace at;
using Function = std::function<Tensor(const Tensor&, const Tensor&)>;

// Every operator that was given an implementation, by key and name: "CUDA yaie_extension::add".
inline std::map<std::string, Function> implementations;

struct Library {
    std::string space, key;
    template <class Call> Library& impl(const char* name, Call call) {
        implementations[key + " " + space + "::" + name] = call;
        return *this;
    }
    template <class... More> Library& def(const char*, More...) { return *this; }
};
struct Registered {
    Registered(Library library, void (*body)(Library&)) { body(library); }
};

}  // namespace torch

#define TORCH_CHECK(condition, ...)                                                     \
    do {                                                                                \
        if (!(condition)) ::c10::refuse("Expected " #condition " to be true" __VA_OPT__(,) __VA_ARGS__); \
    } while (0)
#define C10_CUDA_CHECK(call)                                                            \
    do {                                                                                \
        cudaError_t error_ = (call);                                                    \
        TORCH_CHECK(error_ == cudaSuccess, "CUDA error: ", cudaGetErrorName(error_));   \
    } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define TORCH_FN(function) function
#define TORCH_LIBRARY_IMPL(space, key, m)                                               \
    static void implement_##space##_##key(::torch::Library&);                           \
    static ::torch::Registered of_##space##_##key({#space, #key}, implement_##space##_##key); \
    void implement_##space##_##key(::torch::Library& m)
