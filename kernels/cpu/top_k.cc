// TopK of float32, sorted; the first of equal elements comes first; NaN is larger than every number.
#include <algorithm>
#include <bit>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/cpu/families.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 12;
// A heap of the best elements is faster than a selection among all if it is this many times shorter.
constexpr int64_t kHeapShare = 8;

// An integer that is larger for elements that rank higher: the order of the value, and below it that of the index.
uint64_t KeyOf(float x, bool largest, int64_t index) {
  const auto bits = std::bit_cast<uint32_t>(x == 0.0f ? 0.0f : x);
  uint32_t order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  if (x != x) order = UINT32_MAX;
  if (!largest) order = ~order;
  return uint64_t{order} << 32 | (UINT32_MAX - static_cast<uint32_t>(index));
}

int64_t IndexOf(uint64_t key) { return UINT32_MAX - static_cast<uint32_t>(key); }

// The elements along the axis of a call.
struct Lanes {
  int64_t outer, n, inner;
  int threads;

  explicit Lanes(const KernelCall& call) {
    const Shape& shape = call.inputs[0].shape;
    const int axis = *NormalAxis(call.attributes.Int("axis", -1), shape.rank());
    outer = Product(shape, 0, axis);
    n = shape[axis];
    inner = Product(shape, axis + 1, shape.rank());
    threads = ThreadsFor(shape.elements(), kElementsPerThread, call.threads);
  }
  int64_t scratch_bytes() const { return AlignUp(n * static_cast<int64_t>(sizeof(uint64_t)), kAlignmentBytes); }
};

class TopK : public Kernel {
 public:
  explicit TopK(const KernelCall& call)
      : lanes_(call), largest_(call.attributes.Int("largest", 1) != 0), has_values_(HasOutput(call, 0)), has_indices_(HasOutput(call, 1)) {
    const OperandType& made = HasOutput(call, 0) ? call.outputs[0] : call.outputs[1];
    k_ = made.shape[*NormalAxis(call.attributes.Int("axis", -1), made.shape.rank())];
  }

  static int64_t Scratch(const KernelCall& call) {
    const Lanes lanes(call);
    return lanes.threads * lanes.scratch_bytes();
  }

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    if (k_ == 0) return;
    const auto* x = static_cast<const float*>(inputs[0]);
    auto* const values = has_values_ ? static_cast<float*>(outputs[0]) : nullptr;
    auto* const indices = has_indices_ ? static_cast<int64_t*>(outputs[1]) : nullptr;
    ParallelFor(lanes_.outer * lanes_.inner, lanes_.threads, [&](int64_t lane) {
      auto* keys = reinterpret_cast<uint64_t*>(static_cast<std::byte*>(scratch) + ThreadIndex() * lanes_.scratch_bytes());
      const int64_t o = lane / lanes_.inner, i = lane % lanes_.inner;
      const float* from = x + o * lanes_.n * lanes_.inner + i;
      Choose(from, keys);
      for (int64_t j = 0; j < k_; ++j) {
        const int64_t at = (o * k_ + j) * lanes_.inner + i, index = IndexOf(keys[j]);
        if (values != nullptr) values[at] = from[index * lanes_.inner];
        if (indices != nullptr) indices[at] = index;
      }
    });
  }

 private:
  // The best k keys of the lane, in descending order.
  void Choose(const float* from, uint64_t* keys) const {
    const auto key = [&](int64_t j) { return KeyOf(from[j * lanes_.inner], largest_, j); };
    const std::greater<uint64_t> before;
    if (k_ > lanes_.n / kHeapShare) {
      for (int64_t j = 0; j < lanes_.n; ++j) keys[j] = key(j);
      if (k_ < lanes_.n) std::nth_element(keys, keys + k_, keys + lanes_.n, before);
      std::sort(keys, keys + k_, before);
      return;
    }
    for (int64_t j = 0; j < k_; ++j) keys[j] = key(j);
    std::make_heap(keys, keys + k_, before);
    for (int64_t j = k_; j < lanes_.n; ++j) {
      const uint64_t next = key(j);
      if (next < keys[0]) continue;
      std::pop_heap(keys, keys + k_, before);
      keys[k_ - 1] = next;
      std::push_heap(keys, keys + k_, before);
    }
    std::sort_heap(keys, keys + k_, before);
  }

  Lanes lanes_;
  bool largest_, has_values_, has_indices_;
  int64_t k_;
};

std::string Rejects(const KernelCall& call) {
  if (call.inputs[0].dtype != DType::kFloat32) return std::string(DTypeName(call.inputs[0].dtype));
  const Shape& shape = call.inputs[0].shape;
  const auto axis = NormalAxis(call.attributes.Int("axis", -1), shape.rank());
  if (!axis || shape[*axis] > INT_MAX) return "an axis out of range";
  if (!HasOutput(call, 0) && !HasOutput(call, 1)) return "nothing to compute";
  const OperandType& made = HasOutput(call, 0) ? call.outputs[0] : call.outputs[1];
  if (made.shape.rank() != shape.rank() || made.shape[*axis] > shape[*axis]) return "more than there are";
  return RejectsLayouts(call);
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.TopK", .op = "TopK", .domain = "", .rejects = Rejects, .scratch_bytes = TopK::Scratch}, .make = MakeKernel<TopK>},
};

}  // namespace

std::span<const CpuKernel> CpuTopKKernels() { return kKernels; }

}  // namespace gradloom
