#include "kernels/cpu/padded_operand.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kPageFloats = 1024;  // 4 KiB
// Bounds of the measured gain (docs/benchmarks.md, "Rows 4 KiB apart").
constexpr int64_t kMinDepth = 256, kMinOther = 32, kMaxRowsForB = 512;

}  // namespace

PaddedOperand::PaddedOperand(std::string_view implementation, const ProductExtents& p) {
  if (!implementation.starts_with("gemm:jit") || p.k < kMinDepth) return;
  // Transposed: rows of m elements.
  a_ = p.a_row == 1 && p.a_col == p.m && p.m % kPageFloats == 0 && p.n >= kMinOther && p.n < kPageFloats;
  b_ = !a_ && p.b_col == 1 && p.b_row == p.n && p.n % kPageFloats == 0 && p.m >= kMinOther && p.m <= kMaxRowsForB;
  rows_ = p.k;
  width_ = a_ ? p.m : p.n;
}

void PaddedOperand::Copy(const void*& a, const void*& b, void*& scratch, int threads) const {
  if (!any()) return;
  const void*& operand = a_ ? a : b;
  const auto* const from = static_cast<const float*>(operand);
  auto* const to = static_cast<float*>(scratch);
  ParallelRanges(rows_, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::copy_n(from + i * width_, width_, to + i * row());
  });
  operand = to;
  scratch = to + rows_ * row();
}

}  // namespace gradloom
