#include "kernels/cpu/long_product.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

// Shorter sums, and more of them, oneDNN does not part among as many threads as were tried (32).
constexpr int64_t kLong = 2048, kMostSums = 1 << 18;
// Parts are so long at least; there are a few, and more where the sums of all are no more than this.
constexpr int64_t kLengthOfPart = 256, kFewParts = 4, kMostParts = 16, kSumsOfAll = 1 << 20;
constexpr int64_t kSumsPerThread = 1 << 14;

int64_t PartsOf(const MatrixProduct& p) {
  return std::min(p.k / kLengthOfPart, std::clamp(kSumsOfAll / (p.m * p.n), kFewParts, kMostParts));
}

}  // namespace

bool LongProduct::Serves(const MatrixProduct& p) { return p.batch.empty() && p.k >= kLong && p.m * p.n <= kMostSums; }

LongProduct::LongProduct(const MatrixProduct& product, int threads) : product_(product) {
  const MatrixProduct& p = product_;
  const int64_t parts = PartsOf(p);
  for (int64_t i = 0; i < parts; ++i) {
    begins_.push_back(p.k * i / parts);
    const ProductPlan plan({.m = p.m,
                            .n = p.n,
                            .k = p.k * (i + 1) / parts - begins_.back(),
                            .a_row = p.a_row,
                            .a_col = p.a_col,
                            .b_row = p.b_row,
                            .b_col = p.b_col,
                            .c_row = p.n},
                           1);
    products_.emplace_back(plan);
    pad_bytes_ = std::max(pad_bytes_, AlignUp(plan.scratch_bytes(), kAlignmentBytes));
  }
  threads_ = static_cast<int>(std::clamp<int64_t>(threads, 1, parts));
}

int64_t LongProduct::sums_bytes() const { return AlignUp(product_.m * product_.n * static_cast<int64_t>(sizeof(float)), kAlignmentBytes); }

int64_t LongProduct::scratch_bytes() const { return parts() * sums_bytes() + threads_ * pad_bytes_; }

void LongProduct::Run(const void* const* inputs, void* const* outputs, void* scratch, void*) {
  const MatrixProduct& p = product_;
  const auto *a = static_cast<const float*>(inputs[0]), *b = static_cast<const float*>(inputs[1]);
  const auto* const bias = p.has_bias ? static_cast<const float*>(inputs[2]) : nullptr;
  auto* const memory = static_cast<std::byte*>(scratch);
  const auto sums = [&](int64_t part) { return reinterpret_cast<float*>(memory + part * sums_bytes()); };
  ParallelTasks(parts(), threads_, [&](int64_t part, int thread) {
    const int64_t begin = begins_[static_cast<size_t>(part)];
    products_[static_cast<size_t>(part)].Run(a + begin * p.a_col, b + begin * p.b_row, sums(part),
                                             memory + parts() * sums_bytes() + thread * pad_bytes_);
  });
  auto* const c = static_cast<float*>(outputs[0]);
  ParallelRanges(p.m, 1, ThreadsFor(parts() * p.m * p.n, kSumsPerThread, threads_), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const to = sums(0) + i * p.n;
      for (int64_t part = 1; part < parts(); ++part) {
        const float* const from = sums(part) + i * p.n;
        for (int64_t j = 0; j < p.n; ++j) to[j] += from[j];
      }
      for (int64_t j = 0; j < p.n; ++j) c[i * p.n + j] = to[j] * p.alpha + (bias == nullptr ? 0.0F : bias[i * p.bias_row + j * p.bias_col]);
    }
  });
}

}  // namespace gradloom
