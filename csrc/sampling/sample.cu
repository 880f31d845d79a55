// Sample tokens from logits without a sort; the kernel that the engine uses.
//
// Computes  tokens[r] = the first token of row r, in descending order with equals in the order of
//           their ids, at which the cumulative probability exceeds uniform[r] × the probability of
//           all tokens kept by top-k (with all ties), then top-p (of ties the first ones), then
//           min-p. Each filter keeps the head of that order, so its result is described by the mass
//           that it keeps. Temperature 0 takes the largest logit; −1 if a row has a NaN, +inf or
//           nothing above −inf.
// Shapes    logits [rows, size], float32, float16 or bfloat16, size at most 2²⁴; temperature, top_p
//           and min_p float32, top_k int32, uniform float64, tokens int64, each [rows]
// Owns      each thread block: a row; each thread: its 16-byte chunks, 384 chunks apart
// Moves     the logits twice, for the histogram and for the list; a few of them once more before.
//           Once for temperature 0. More often if the maximum is far above the first 3,072 logits,
//           or if tokens do not fit in the list. 75 KiB of shared memory, 59 on cards without so much
// Oracle    a sort and sums in float64, in tests/test_sample.py
// Idea      a histogram of the masses tells which bin holds a threshold and how much precedes the
//           bin. Only the tokens of that bin are examined again: they are gathered in shared memory
//           if they fit, and divided by the next 8 bits of their keys until one is left. The
//           histogram reaches from far below a reference to far above it, so one read serves it
//           and finds the maximum: any logit near the maximum will do as the reference. Masses are
//           integers, so sums do not depend on the order of the threads. A token less likely than
//           the largest by a factor of 2³² is never drawn.
#include "mma.cuh"  // exp2_approx, LOG2_E

constexpr int THREADS = 384, WARPS = THREADS / WARP;
constexpr int BINS_PER_OCTAVE = 32, OCTAVES = 32;  // an octave: a factor of 2 in mass
constexpr int BINS = 2 * OCTAVES * BINS_PER_OCTAVE, LAST = BINS - 1;
constexpr int BIN_SHIFT = 18;  // bits of a mass, as a float, after those that choose its bin
constexpr int DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;
constexpr int INDEX_BITS = 24;  // of a key: the token; the other 32 are the logit
constexpr int CAPACITY = 4096, LARGE = 6144;  // tokens that the list can hold, by card
constexpr int SAMPLE = 8;  // tokens per thread that the reference is chosen from
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int RESIDENT = 1;  // thread blocks per multiprocessor; shared memory has room for one
#else
constexpr int RESIDENT = 2;
#endif

struct Amount {
    uint64_t mass;
    unsigned count;
};
static __device__ Amount operator+(Amount a, Amount b) {
    return {a.mass + b.mass, a.count + b.count};
}
static __device__ Amount operator-(Amount a, Amount b) {
    return {a.mass - b.mass, a.count - b.count};
}

// First how many tokens each bin has, and the sum of what their masses have beyond the bin's least
// mass. From `accumulate` on counts and masses up to the end of each bin; a mass has 64 bits.
template <int SIZE>
struct Histogram {
    unsigned count[SIZE], low[SIZE], high[SIZE];

    __device__ void clear() {
        for (int bin = threadIdx.x; bin < SIZE; bin += THREADS) count[bin] = low[bin] = 0;
    }
    // 32-bit atomics are enough, since the first bits of a bin's masses are the same.
    __device__ void add(int bin, unsigned excess) {
        atomicAdd(&count[bin], 1u);
        if (excess) atomicAdd(&low[bin], excess);
    }
    __device__ Amount upto(int bin) const {
        return {(uint64_t)high[bin] << 32 | low[bin], count[bin]};
    }
    __device__ void set(int bin, Amount sum) {
        count[bin] = sum.count, low[bin] = sum.mass, high[bin] = sum.mass >> 32;
    }
    __device__ Amount before(int bin) const { return bin == 0 ? Amount{0, 0} : upto(bin - 1); }
    __device__ Amount in(int bin) const { return upto(bin) - before(bin); }

    // The first bin at which the cumulative count or mass exceeds `target`. There must be one.
    __device__ int passing(bool counts, uint64_t target) const {
        int bin = 0;
        for (int step = SIZE / 2; step > 0; step /= 2) {
            Amount sum = upto(bin + step - 1);
            if ((counts ? sum.count : sum.mass) <= target) bin += step;
        }
        return bin;
    }
};

struct Token {
    float logit;
    int id;
};

struct alignas(8) Bins {
    int first, end;  // without `end`
    __device__ bool have(int bin) const { return first <= bin && bin < end; }
};

struct alignas(16) Shared {
    Histogram<BINS> coarse;
    Histogram<DIGITS> fine;
    Amount per_warp[WARPS];
    float best[WARPS];
    int listed, capacity;  // of the list
    Bins near, far;  // whose tokens the list holds
    unsigned any, all;  // bits that any, and that all keys have
    int token;

    __device__ Token* list() { return reinterpret_cast<Token*>(this + 1); }
};

// What a thread needs to know about its row.
template <typename T>
struct Row {
    const T* logits;
    int size;
    float reference, scale;  // a logit; log2(e) / temperature
    int dropped;             // how many bits of an excess are left out, so that sums have 32 bits
    int top;                 // the bin of the largest logit

    __device__ float exponent(float x) const { return (x - reference) * scale; }  // of 2
    // exp((x − reference) / temperature), from 2⁻³² to below 2³², as the bits of a float. The first
    // of them are the octave and its part: the bin, counted from the largest mass down.
    __device__ unsigned bits(float x) const {
        float mass = exp2_approx(exponent(x));
        return __float_as_uint(fminf(fmaxf(mass, 0x1p-32f), 0x1.fffffep31f));
    }
    static __device__ int bin(unsigned bits) {
        return (__float_as_uint(0x1.fffffep31f) - bits) >> BIN_SHIFT;
    }
    __device__ int bin(float x) const { return bin(bits(x)); }
    // What a mass has beyond the least of its bin.
    __device__ unsigned excess(unsigned bits) const {
        return (bits & ((1 << BIN_SHIFT) - 1)) >> dropped;
    }
    // The mass of tokens of a bin, in units of 2⁻²³ of the octave's least mass.
    __device__ uint64_t mass(int bin, unsigned count, unsigned excess) const {
        unsigned least = 2 * BINS_PER_OCTAVE - 1 - bin % BINS_PER_OCTAVE;
        return ((uint64_t)count * least << BIN_SHIFT) + ((uint64_t)excess << dropped);
    }
    // A sum of a bin's masses in units that are the same for all bins: 2⁻³² of the least mass in the
    // octave of the largest logit.
    __device__ uint64_t weight(int bin, uint64_t mass) const {
        if (mass == 0 || bin - top >= OCTAVES * BINS_PER_OCTAVE) return 0;
        return (mass << 9) >> octaves(bin);
    }
    // The largest sum of a bin's masses whose weight is at most `target`.
    __device__ uint64_t largest_sum(int bin, uint64_t target) const {
        return ((((target + 1) << octaves(bin)) + 511) >> 9) - 1;
    }
    __device__ int octaves(int bin) const { return bin / BINS_PER_OCTAVE - top / BINS_PER_OCTAVE; }
};

// Keys in ascending order are logits in descending order, equals by ascending id. No two are equal.
static __device__ uint64_t key(float x, int id) {
    unsigned bits = __float_as_uint(x + 0.0f);  // −0 becomes 0
    unsigned descending = bits >> 31 ? bits : ~bits & 0x7fffffffu;
    return (uint64_t)descending << INDEX_BITS | id;
}

// Call f(logit, id) for every token of the row, each in one thread.
template <typename T, typename F>
static __device__ void for_each(const T* logits, int size, F f) {
    constexpr int SIZE = Vec<T>::SIZE;
    constexpr int LOADS = SIZE == 4 ? 3 : 2;  // in flight together: registers have room for these
    int past_boundary = reinterpret_cast<uintptr_t>(logits) % 16 / sizeof(T);
    int head = min(size, (SIZE - past_boundary) % SIZE), vecs = (size - head) / SIZE;
    int tail = head + vecs * SIZE;
    if (threadIdx.x < head) f(to_float(logits[threadIdx.x]), threadIdx.x);
    if (tail + threadIdx.x < size) f(to_float(logits[tail + threadIdx.x]), tail + threadIdx.x);
    const T* from = logits + head;
    for (int v = threadIdx.x; v < vecs; v += LOADS * THREADS) {
        Vec<T> chunks[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            if (v + i * THREADS < vecs) chunks[i] = load16(from + (v + i * THREADS) * SIZE);
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            if (v + i * THREADS >= vecs) break;
#pragma unroll
            for (int k = 0; k < SIZE; ++k)
                f(to_float(chunks[i][k]), head + (v + i * THREADS) * SIZE + k);
        }
    }
}

// The sum over the threads before this one. All threads call it.
static __device__ Amount sum_before(Amount mine, Shared& s) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Amount sum = mine;
    for (int step = 1; step < WARP; step *= 2) {
        Amount other{__shfl_up_sync(ALL_LANES, sum.mass, step),
                     __shfl_up_sync(ALL_LANES, sum.count, step)};
        if (lane >= step) sum = sum + other;
    }
    if (lane == WARP - 1) s.per_warp[warp] = sum;
    __syncthreads();
    sum = sum - mine;
    for (int w = 0; w < warp; ++w) sum = sum + s.per_warp[w];
    __syncthreads();  // wait until per_warp is read: the next call overwrites it
    return sum;
}

// Replace what is in each bin by the sum up to its end. mass(bin, count, excess) is that of a bin.
template <int SIZE, typename F>
static __device__ void accumulate(Histogram<SIZE>& bins, Shared& s, F mass) {
    constexpr int EACH = ceil_div(SIZE, THREADS);
    int first = threadIdx.x * EACH, end = min(first + EACH, SIZE);
    Amount sum{0, 0};
    for (int bin = first; bin < end; ++bin) {
        sum = sum + Amount{mass(bin, bins.count[bin], bins.low[bin]), bins.count[bin]};
    }
    sum = sum_before(sum, s);
    for (int bin = first; bin < end; ++bin) {
        sum = sum + Amount{mass(bin, bins.count[bin], bins.low[bin]), bins.count[bin]};
        bins.set(bin, sum);
    }
    __syncthreads();
}

// Gather the tokens of a coarse bin in the list; if there is room those of all bins before it, else
// those of the bins `next`, which are wanted soon.
template <typename T>
static __device__ void gather(const Row<T>& row, int bin, Bins next, Shared& s) {
    if (s.near.have(bin) || s.far.have(bin)) return;
    unsigned upto = s.coarse.upto(bin).count, in = s.coarse.in(bin).count;
    if (in > s.capacity) return;
    Bins near{upto <= s.capacity ? 0 : bin, bin + 1}, far{0, 0};
    if (near.first > 0 && next.first < next.end) {
        next.end = min(next.end, bin);  // `bin` itself is in the list already
        unsigned more = s.coarse.before(next.end).count - s.coarse.before(next.first).count;
        if (next.first < next.end && in + more <= s.capacity) far = next;
    }
    __syncthreads();  // wait until all threads have read the old list
    if (threadIdx.x == 0) s.listed = 0, s.near = near, s.far = far;
    __syncthreads();
    for_each(row.logits, row.size, [&](float x, int id) {
        int place = row.bin(x);
        if (near.have(place) || far.have(place)) s.list()[atomicAdd(&s.listed, 1)] = {x, id};
    });
    __syncthreads();
}

// Call f(logit, id) for every token of a coarse bin, from the list if the bin is in it.
template <typename T, typename F>
static __device__ void for_each_of(const Row<T>& row, int bin, Shared& s, F f) {
    auto if_in = [&](float x, int id) {
        if (row.bin(x) == bin) f(x, id);
    };
    if (s.near.have(bin) || s.far.have(bin))
        for (int i = threadIdx.x; i < s.listed; i += THREADS)
            if_in(s.list()[i].logit, s.list()[i].id);
    else
        for (int id = threadIdx.x; id < row.size; id += THREADS)
            if_in(to_float(row.logits[id]), id);
}

// A group of tokens of a coarse bin: those whose keys begin with `prefix`.
struct Group {
    Amount before, in;  // of the bin's tokens, with masses in the bin's own units
    uint64_t prefix;
    int shift;
};

// All tokens of a coarse bin, with the first bits that their keys have in common; amounts of 0.
template <typename T>
static __device__ Group whole(const Row<T>& row, int bin, Shared& s) {
    if (threadIdx.x == 0) s.any = 0, s.all = ~0u;
    __syncthreads();
    unsigned any = 0, all = ~0u;
    for_each_of(row, bin, s, [&](float x, int id) {
        unsigned bits = key(x, id) >> INDEX_BITS;
        any |= bits, all &= bits;
    });
    for (int step = WARP / 2; step > 0; step /= 2) {
        any |= __shfl_xor_sync(ALL_LANES, any, step);
        all &= __shfl_xor_sync(ALL_LANES, all, step);
    }
    if (threadIdx.x % WARP == 0) atomicOr(&s.any, any), atomicAnd(&s.all, all);
    __syncthreads();
    int differing = max(1, 32 - __clz(s.any & ~s.all));
    return {{0, 0}, {0, 0}, (uint64_t)s.any >> differing, differing + INDEX_BITS};
}

// Divide a coarse bin, digit by digit, until its group at which the cumulative count or mass
// exceeds `target` has a single token or, with `ties`, a single logit.
template <typename T>
static __device__ Group divide(const Row<T>& row, int bin, bool counts, uint64_t target, bool ties,
                               Shared& s) {
    Group found = whole(row, bin, s);
    do {
        int left = found.shift > INDEX_BITS ? found.shift - INDEX_BITS : found.shift;
        int width = min(left, DIGIT_BITS), shift = found.shift - width;
        s.fine.clear();
        __syncthreads();
        for_each_of(row, bin, s, [&](float x, int id) {
            uint64_t bits = key(x, id);
            if (bits >> found.shift == found.prefix)
                s.fine.add(bits >> shift & ((1 << width) - 1), row.excess(row.bits(x)));
        });
        __syncthreads();
        accumulate(s.fine, s, [&](int, unsigned count, unsigned excess) {
            return row.mass(bin, count, excess);
        });
        uint64_t passed = counts ? found.before.count : found.before.mass;
        int digit = s.fine.passing(counts, target - passed);
        found = {found.before + s.fine.before(digit), s.fine.in(digit),
                 found.prefix << width | digit, shift};
        __syncthreads();  // wait until all threads have read the bins
    } while (found.in.count > 1 && found.shift > (ties ? INDEX_BITS : 0));
    return found;
}

static __device__ float block_max(float value, Shared& s) {
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, step));
    if (threadIdx.x % WARP == 0) s.best[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int warp = 0; warp < WARPS; ++warp) value = fmaxf(value, s.best[warp]);
    __syncthreads();  // wait until `best` is read: the next call overwrites it
    return value;
}

static __device__ uint64_t share(double part, uint64_t mass) {
    return min((uint64_t)(part * mass), mass - 1);
}

// The bins in which the draw can end if the mass that is kept is from `least` to `most`.
static __device__ Bins drawn_from(double uniform, uint64_t least, uint64_t most, Shared& s) {
    int first = s.coarse.passing(false, least > 0 ? share(uniform, least) : 0);
    return {first, s.coarse.passing(false, share(uniform, most)) + 1};
}

// The mass that top-k keeps, with all ties.
template <typename T>
static __device__ uint64_t kept_by_top_k(const Row<T>& row, int top_k, Shared& s) {
    int bin = s.coarse.passing(true, top_k - 1);
    Amount before = s.coarse.before(bin);
    if (s.coarse.in(bin).mass == 0) return before.mass;
    gather(row, bin, {0, 0}, s);
    Group last = divide(row, bin, true, top_k - 1 - before.count, true, s);
    return before.mass + row.weight(bin, last.before.mass + last.in.mass);
}

// The mass that top-p keeps of `all`, with the first of the tokens that tie with the last.
template <typename T>
static __device__ uint64_t kept_by_top_p(const Row<T>& row, float top_p, uint64_t all,
                                         double uniform, Shared& s) {
    uint64_t target = max((uint64_t)ceil((double)top_p * all), (uint64_t)1) - 1;
    int bin = s.coarse.passing(false, target);
    uint64_t before = s.coarse.before(bin).mass, upto = min(s.coarse.upto(bin).mass, all);
    gather(row, bin, drawn_from(uniform, before, upto, s), s);
    uint64_t wanted = row.largest_sum(bin, target - before);
    Group last = divide(row, bin, false, wanted, true, s);
    uint64_t each = last.in.mass / last.in.count;
    uint64_t ties = (wanted - last.before.mass) / each + 1;
    return before + row.weight(bin, last.before.mass + ties * each);
}

// The mass that min-p keeps of `all`: that of logits of at least `least`.
template <typename T>
static __device__ uint64_t kept_by_min_p(const Row<T>& row, float least, uint64_t all,
                                         double uniform, Shared& s) {
    int bin = row.bin(least);
    uint64_t before = s.coarse.before(bin).mass, upto = s.coarse.upto(bin).mass;
    if (before >= all || before == upto) return min(before, all);
    gather(row, bin, drawn_from(uniform, before, min(upto, all), s), s);
    uint64_t mine = 0;
    for_each_of(row, bin, s, [&](float x, int) {
        if (x >= least) mine += row.mass(bin, 1, row.excess(row.bits(x)));
    });
    Amount sum = sum_before({mine, 0}, s);
    if (threadIdx.x == THREADS - 1) s.per_warp[0].mass = sum.mass + mine;
    __syncthreads();
    uint64_t kept = s.per_warp[0].mass;
    __syncthreads();
    return min(before + row.weight(bin, kept), all);
}

// The token at which the cumulative mass exceeds `target`.
template <typename T>
static __device__ void draw(const Row<T>& row, uint64_t target, Shared& s) {
    int bin = s.coarse.passing(false, target);
    gather(row, bin, {0, 0}, s);
    uint64_t wanted = row.largest_sum(bin, target - s.coarse.before(bin).mass);
    Group one = divide(row, bin, false, wanted, false, s);
    for_each_of(row, bin, s, [&](float x, int id) {
        if (key(x, id) >> one.shift == one.prefix) s.token = id;
    });
}

// Fill the histogram of the row. Returns the largest logit, +∞ if the row has a NaN.
template <typename T>
static __device__ float fill(Row<T>& row, Shared& s) {
    float best = -INFINITY;
    for (int i = threadIdx.x; i < min(row.size, SAMPLE * THREADS); i += THREADS)
        best = fmaxf(best, to_float(row.logits[i]));
    best = block_max(best, s);
    while (true) {
        row.reference = isinf(best) ? 0.0f : best;
        s.coarse.clear();
        __syncthreads();
        best = -INFINITY;
        for_each(row.logits, row.size, [&](float x, int) {
            best = fmaxf(best, isnan(x) ? INFINITY : x);
            unsigned bits = row.bits(x);
            s.coarse.add(row.bin(bits), row.excess(bits));
        });
        best = block_max(best, s);
        float exponent = row.exponent(best);
        if (isinf(best) || (exponent >= 0.0f && exponent < OCTAVES)) return best;
    }
}

template <typename T>
static __device__ void greedy(const Row<T>& row, int64_t* token, Shared& s) {
    float best = -INFINITY;
    int mine = row.size;
    for_each(row.logits, row.size, [&](float x, int id) {
        if (isnan(x)) x = INFINITY;
        if (x > best || (x == best && id < mine)) best = x, mine = id;
    });
    float largest = block_max(best, s);
    if (threadIdx.x == 0) s.token = row.size;
    __syncthreads();
    if (best == largest) atomicMin(&s.token, mine);
    __syncthreads();
    if (threadIdx.x == 0) *token = isinf(largest) ? -1 : s.token;
}

template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sample(const T* logits, const float* temperature, const int* top_k, const float* top_p,
           const float* min_p, const double* uniform, int64_t* tokens, int size, int capacity) {
    extern __shared__ __align__(16) unsigned char memory[];
    Shared& s = *reinterpret_cast<Shared*>(memory);
    int r = blockIdx.x;
    Row<T> row{logits + (size_t)r * size, size};
    if (temperature[r] == 0.0f) return greedy(row, tokens + r, s);
    row.scale = fminf(fmaxf(LOG2_E / temperature[r], 1e-37f), 3.4e38f);
    row.dropped = max(0, 32 - __clz(size) - (32 - BIN_SHIFT));
    if (threadIdx.x == 0) s.near = s.far = {0, 0}, s.capacity = capacity;
    float best = fill(row, s);
    if (isinf(best)) {
        if (threadIdx.x == 0) tokens[r] = -1;
        return;  // the whole thread block returns
    }
    row.top = row.bin(best);
    accumulate(s.coarse, s, [&](int bin, unsigned count, unsigned excess) {
        return row.weight(bin, row.mass(bin, count, excess));
    });

    uint64_t kept = s.coarse.upto(LAST).mass;
    if (top_k[r] > 0 && top_k[r] < size) kept = kept_by_top_k(row, top_k[r], s);
    if (top_p[r] < 1.0f) kept = kept_by_top_p(row, top_p[r], kept, uniform[r], s);
    if (min_p[r] > 0.0f) {
        float least = best + log2f(min_p[r]) / row.scale;
        kept = kept_by_min_p(row, least, kept, uniform[r], s);
    }
    draw(row, share(uniform[r], kept), s);
    __syncthreads();
    if (threadIdx.x == 0) tokens[r] = s.token;
}

template <typename T>
static cudaError_t launch(const T* logits, const float* temperature, const int* top_k,
                          const float* top_p, const float* min_p, const double* uniform,
                          int64_t* tokens, int rows, int size, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (size < 1 || size > 1 << INDEX_BITS) return cudaErrorInvalidValue;
    int device = 0, most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    int capacity = most > 64 << 10 ? LARGE : CAPACITY;  // 64 KiB: cards of version 7.5
    int bytes = sizeof(Shared) + capacity * sizeof(Token);
    cudaError_t error = cudaFuncSetAttribute(
        sample<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    sample<<<rows, THREADS, bytes, stream>>>(logits, temperature, top_k, top_p, min_p, uniform,
                                             tokens, size, capacity);
    return cudaGetLastError();
}

extern "C" cudaError_t sample_f32(const float* logits, const float* temperature,
                                  const int* top_k, const float* top_p, const float* min_p,
                                  const double* uniform, int64_t* tokens, int rows, int size,
                                  cudaStream_t stream) {
    return launch(logits, temperature, top_k, top_p, min_p, uniform, tokens, rows, size, stream);
}
extern "C" cudaError_t sample_f16(const __half* logits, const float* temperature,
                                  const int* top_k, const float* top_p, const float* min_p,
                                  const double* uniform, int64_t* tokens, int rows, int size,
                                  cudaStream_t stream) {
    return launch(logits, temperature, top_k, top_p, min_p, uniform, tokens, rows, size, stream);
}
extern "C" cudaError_t sample_bf16(const __nv_bfloat16* logits, const float* temperature,
                                   const int* top_k, const float* top_p, const float* min_p,
                                   const double* uniform, int64_t* tokens, int rows, int size,
                                   cudaStream_t stream) {
    return launch(logits, temperature, top_k, top_p, min_p, uniform, tokens, rows, size, stream);
}
