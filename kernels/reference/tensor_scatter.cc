// TensorScatter, which writes the rows of an update to a cache at a position per sample, and gradloom.TensorGather, which reads them again.
#include <cstring>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// Calls f(offset in the cache, offset in the update, number of bytes) for each row; offsets are in bytes.
template <typename F>
void ForEachRow(const KernelCall& call, const void* const* in, const Shape& cache, const Shape& update, size_t indices, F&& f) {
  const int axis = AxisOf(call, call.attributes.Int("axis", -2), cache.rank());
  bool fits = axis > 0 && cache.rank() == update.rank() && update[axis] <= cache[axis];
  for (int i = 0; fits && i < cache.rank(); ++i) fits = i == axis || cache[i] == update[i];
  if (!fits) throw Error(ErrorCode::kShape, call.op + ": an update " + update.ToString() + " of a cache " + cache.ToString());
  const bool circular = call.attributes.String("mode", "linear") == "circular";
  const std::vector<int64_t> starts = InputInts(call, in, indices, std::vector<int64_t>(static_cast<size_t>(cache[0]), 0));
  if (static_cast<int64_t>(starts.size()) != cache[0])
    throw Error(ErrorCode::kShape, call.op + ": " + std::to_string(starts.size()) + " places for " + std::to_string(cache[0]) + " samples");
  const int64_t bytes = Product(cache, axis + 1, cache.rank()) * DTypeBytes(call.inputs[0].dtype);
  const int64_t rows = Product(cache, 1, axis);  // per sample
  for (int64_t row = 0; row < cache[0] * rows; ++row) {
    const int64_t start = starts[static_cast<size_t>(row / rows)];
    if (start < 0 || (!circular && start > cache[axis] - update[axis]))
      throw Error(ErrorCode::kData, call.op + ": place " + std::to_string(start) + " of an axis of extent " + std::to_string(cache[axis]));
    for (int64_t i = 0; i < update[axis]; ++i) {
      const int64_t at = (start % cache[axis] + i) % cache[axis];
      f((row * cache[axis] + at) * bytes, (row * update[axis] + i) * bytes, bytes);
    }
  }
}

void TensorScatter(const KernelCall& call, const void* const* in, void* const* out) {
  const int64_t bytes = call.outputs[0].bytes();
  if (bytes > 0) std::memcpy(out[0], in[0], static_cast<size_t>(bytes));
  ForEachRow(call, in, call.inputs[0].shape, call.inputs[1].shape, 2, [&](int64_t to, int64_t from, int64_t n) {
    std::memcpy(Out<char>(out, 0) + to, In<char>(in, 1) + from, static_cast<size_t>(n));
  });
}

void TensorGather(const KernelCall& call, const void* const* in, void* const* out) {
  ForEachRow(call, in, call.inputs[0].shape, call.outputs[0].shape, 1, [&](int64_t from, int64_t to, int64_t n) {
    std::memcpy(Out<char>(out, 0) + to, In<char>(in, 0) + from, static_cast<size_t>(n));
  });
}

constexpr ReferenceKernel kKernels[] = {{"TensorGather", "gradloom", TensorGather}, {"TensorScatter", "", TensorScatter}};

}  // namespace

std::span<const ReferenceKernel> ReferenceTensorScatter() { return kKernels; }

}  // namespace gradloom
