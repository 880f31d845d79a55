// Products of matrices as wgmma computes them.
#pragma once

#include <vector>

#include "boxes.h"

namespace emulator {

constexpr int warp_group = 128;  // threads

// Why a product cannot be computed, or null.
const char* product_problem(const MatrixProduct& product, size_t shared_bytes);
// The bytes of shared memory that it reads; `shared` is where address 0 lies.
std::vector<Span> product_spans(const MatrixProduct& product, const char* shared);
// Computes c = a b + c, in the accumulators of the warp group's threads.
void compute_product(const ProductPart* const (&parts)[warp_group]);

}  // namespace emulator
