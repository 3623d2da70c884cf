#include "kernels/cpu/product/long_product.h"

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

// oneDNN does not divide shorter sums, or more of them, among threads, as far as was tried (32 threads).
constexpr int64_t kLong = 2048, kMaxSums = 1 << 18;
// The least length of a part. There are at most kFewParts parts, and up to kMaxParts as long as their sums together do not exceed
// kSumsOfAll.
constexpr int64_t kLengthOfPart = 256, kFewParts = 4, kMaxParts = 16, kSumsOfAll = 1 << 20;
constexpr int64_t kSumsPerThread = 1 << 14;
// Parts are divided into strips of columns for about this many tasks, whatever the number of threads: the library may sum a strip of
// another width in another order.
constexpr int64_t kTasks = 16, kStripUnit = 64;

int64_t PartsOf(const MatrixProduct& p) {
  return std::min(p.k / kLengthOfPart, std::clamp(kSumsOfAll / (p.m * p.n), kFewParts, kMaxParts));
}

}  // namespace

bool LongProduct::Serves(const MatrixProduct& p) { return p.batch.empty() && p.k >= kLong && p.m * p.n <= kMaxSums; }

LongProduct::Parts::Parts(const MatrixProduct& p, int most_threads)
    : count(PartsOf(p)), sums_bytes(AlignUp(p.m * p.n * static_cast<int64_t>(sizeof(float)), kAlignmentBytes)) {
  strip_columns = AlignUp(CeilDiv(p.n, CeilDiv(kTasks, count)), kStripUnit);
  strips = CeilDiv(p.n, strip_columns);
  threads = static_cast<int>(std::clamp<int64_t>(most_threads, 1, count * strips));
  for (const int64_t k : {p.k / count, CeilDiv(p.k, count)}) {
    for (const int64_t n : {std::min(strip_columns, p.n), p.n - (strips - 1) * strip_columns}) {
      const ProductShape part = {
          .m = p.m, .n = n, .k = k, .a_row = p.a_row, .a_col = p.a_col, .b_row = p.b_row, .b_col = p.b_col, .c_row = p.n};
      kinds.emplace_back(part, 1);
      thread_bytes = std::max(thread_bytes, AlignUp(kinds.back().scratch_bytes(), kAlignmentBytes));
    }
  }
}

int64_t LongProduct::ScratchBytes(const MatrixProduct& product, int threads) {
  const Parts parts(product, threads);
  return parts.count * parts.sums_bytes + parts.threads * parts.thread_bytes;
}

LongProduct::LongProduct(const MatrixProduct& product, int threads) : product_(product), parts_(product, threads) {
  for (int thread = 0; thread < parts_.threads; ++thread) {
    for (const ProductPlan& kind : parts_.kinds) products_.emplace_back(kind);
  }
}

void LongProduct::Run(const void* const* inputs, void* const* outputs, void* scratch, void*) {
  const MatrixProduct& p = product_;
  const auto *a = static_cast<const float*>(inputs[0]), *b = static_cast<const float*>(inputs[1]);
  const auto* const bias = p.has_bias ? static_cast<const float*>(inputs[2]) : nullptr;
  auto* const memory = static_cast<std::byte*>(scratch);
  const auto sums = [&](int64_t part) { return reinterpret_cast<float*>(memory + part * parts_.sums_bytes); };
  ParallelTasks(parts_.count * parts_.strips, parts_.threads, [&](int64_t task, int thread) {
    const int64_t part = task / parts_.strips, strip = task % parts_.strips, column = strip * parts_.strip_columns;
    const int64_t begin = p.k * part / parts_.count, length = p.k * (part + 1) / parts_.count - begin;
    const size_t kind = (length > p.k / parts_.count ? 2 : 0) + (strip == parts_.strips - 1 ? 1 : 0);
    products_[static_cast<size_t>(thread) * parts_.kinds.size() + kind].Run(
        a + begin * p.a_col, b + begin * p.b_row + column * p.b_col, sums(part) + column,
        memory + parts_.count * parts_.sums_bytes + thread * parts_.thread_bytes);
  });
  auto* const c = static_cast<float*>(outputs[0]);
  ParallelRanges(p.m, 1, ThreadsFor(parts_.count * p.m * p.n, kSumsPerThread, parts_.threads), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const to = sums(0) + i * p.n;
      for (int64_t part = 1; part < parts_.count; ++part) {
        const float* const from = sums(part) + i * p.n;
        for (int64_t j = 0; j < p.n; ++j) to[j] += from[j];
      }
      for (int64_t j = 0; j < p.n; ++j) {
        c[i * p.n + j] = to[j] * p.alpha + (bias == nullptr ? 0.0F : p.beta * bias[i * p.bias_row + j * p.bias_col]);
      }
    }
  });
}

}  // namespace gradloom
