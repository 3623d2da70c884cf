#include "kernels/cuda/collective.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

template <typename T>
struct Members {
  const T* from[kMaxGroupMembers];
  int count;
};

template <typename T>
void TreeSum(const Members<T>& members, int64_t count, T* to, cudaStream_t stream) {
  ForEachElement(
      count, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        Arithmetic<T> sums[kMaxGroupMembers];
        for (int m = 0; m < members.count; ++m) sums[m] = static_cast<Arithmetic<T>>(members.from[m][i]);
        for (int stride = 1; stride < members.count; stride *= 2) {
          for (int m = 0; m + stride < members.count; m += 2 * stride) sums[m] += sums[m + stride];
        }
        to[i] = static_cast<T>(sums[0]);
      });
}

template <typename F>
void DispatchSumType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt32: return f(std::type_identity<int32_t>{});
    case DType::kInt64: return f(std::type_identity<int64_t>{});
    default: return WithFloating(dtype, f);
  }
}

}  // namespace

bool CanSum(DType dtype) { return IsFloating(dtype) || dtype == DType::kInt32 || dtype == DType::kInt64; }

void EnqueueTreeSum(DType dtype, std::span<const void* const> from, int64_t begin, int64_t count, void* to, cudaStream_t stream) {
  GRADLOOM_CHECK(from.size() <= kMaxGroupMembers);
  DispatchSumType(dtype, [&]<typename T>(std::type_identity<T>) {
    Members<T> members{};
    members.count = static_cast<int>(from.size());
    for (size_t m = 0; m < from.size(); ++m) members.from[m] = static_cast<const T*>(from[m]) + begin;
    TreeSum(members, count, static_cast<T*>(to), stream);
  });
}

}  // namespace gradloom::cuda
