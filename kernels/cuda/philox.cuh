// Random numbers per element, which depend only on the counter of the element's index in the whole batch. Seed, batch number and first
// sample are read from device memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/catalog/batch_slice.h"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/operands.cuh"
#include "runtime/base/philox.h"

namespace gradloom::cuda {

// A thread's random numbers: the key of the call, and the last counter block computed.
class PhiloxGenerator {
 public:
  GRADLOOM_DEVICE PhiloxGenerator(PhiloxKey key, const BatchSlice& slice) : key_(key), slice_(slice) {}

  // Uniform in [0, 1).
  GRADLOOM_DEVICE float Uniform(int64_t i) { return UniformFloat(WordAt(GlobalIndex(i))); }

  // Standard normal by Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958. Elements 2k and 2k + 1 share the uniform
  // numbers of those indices.
  template <typename A>
  GRADLOOM_DEVICE A Normal(int64_t i) {
    const uint64_t index = GlobalIndex(i), pair = index & ~uint64_t{1};
    const A radius = ::sqrt(A(-2) * static_cast<A>(::log(A(1) - static_cast<A>(UniformFloat(WordAt(pair))))));
    const A angle = 2 * std::numbers::pi_v<A> * static_cast<A>(UniformFloat(WordAt(pair + 1)));
    return radius * static_cast<A>(index % 2 == 0 ? ::cos(angle) : ::sin(angle));
  }

 private:
  // BatchSlice, but with 32-bit divisions if possible.
  GRADLOOM_DEVICE uint64_t GlobalIndex(int64_t i) const {
    if (slice_.inner == 0) return static_cast<uint64_t>(i);
    const Quotient q = Divide(i, slice_.local * slice_.inner);
    return static_cast<uint64_t>((q.quotient * slice_.total + slice_.first) * slice_.inner + q.rest);
  }

  GRADLOOM_DEVICE uint32_t WordAt(uint64_t index) {
    if (index / 4 != block_) {
      block_ = index / 4;
      words_ = Philox({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32), 0, 0}, key_);
    }
    // Indexed by constants only, so that the words stay in registers.
    const uint64_t word = index % 4;
    return word == 0 ? words_[0] : word == 1 ? words_[1] : word == 2 ? words_[2] : words_[3];
  }

  PhiloxKey key_;
  BatchSlice slice_;
  uint64_t block_ = ~uint64_t{0};  // no valid block
  PhiloxBlock words_ = {};
};

// Operand `seeds` is the seed; the batch number and the first sample follow. ONNX's own operators have none of these operands, only the
// attribute `seed`.
struct PhiloxState {
  const int64_t *seed = nullptr, *batch = nullptr, *first = nullptr;
  uint64_t stated = 0, origin = 0;
  BatchSlice slice;

  GRADLOOM_DEVICE PhiloxGenerator operator()() const {
    BatchSlice local = slice;
    if (first != nullptr) local.first = *first;
    const PhiloxKey key =
        batch == nullptr ? NodeKey(stated, 0, origin) : NodeKey(static_cast<uint64_t>(*seed), static_cast<uint64_t>(*batch), origin);
    return PhiloxGenerator(key, local);
  }
};

// The launch-independent part of a PhiloxState.
class PhiloxOperands {
 public:
  PhiloxOperands(const KernelCall& call, size_t seeds)
      : seeds_(seeds), fed_(Has(call.inputs, seeds + 1)), divided_(Has(call.inputs, seeds + 2)) {
    state_.stated = StatedSeed(call.attributes.Float("seed", 0));
    state_.origin = static_cast<uint64_t>(call.attributes.Int("origin", 0));
    state_.slice = BatchSlice::Of(call, 0);
  }
  PhiloxState At(const Launch& l) const {
    PhiloxState state = state_;
    if (fed_) state.seed = l.In<int64_t>(seeds_), state.batch = l.In<int64_t>(seeds_ + 1);
    if (divided_) state.first = l.In<int64_t>(seeds_ + 2);
    return state;
  }

 private:
  size_t seeds_;
  bool fed_, divided_;
  PhiloxState state_;
};

}  // namespace gradloom::cuda
