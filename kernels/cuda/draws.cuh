// Random numbers per element, which depend only on the counter of the element's place in the whole batch. Seed, batch number and first
// sample are read from device memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/catalog/sample_places.h"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/walk.cuh"
#include "runtime/base/philox.h"

namespace gradloom::cuda {

// A thread's random numbers: the key of the call, and the last counter block computed.
class Draws {
 public:
  GRADLOOM_DEVICE Draws(PhiloxKey key, const SamplePlaces& places) : key_(key), places_(places) {}

  // Uniform in [0, 1).
  GRADLOOM_DEVICE float Uniform(int64_t i) { return UniformFloat(WordAt(Place(i))); }

  // Standard normal by Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958. Elements 2k and 2k + 1 share the uniform
  // numbers of those places.
  template <typename A>
  GRADLOOM_DEVICE A Normal(int64_t i) {
    const uint64_t place = Place(i), pair = place & ~uint64_t{1};
    const A radius = ::sqrt(A(-2) * static_cast<A>(::log(A(1) - static_cast<A>(UniformFloat(WordAt(pair))))));
    const A angle = 2 * std::numbers::pi_v<A> * static_cast<A>(UniformFloat(WordAt(pair + 1)));
    return radius * static_cast<A>(place % 2 == 0 ? ::cos(angle) : ::sin(angle));
  }

 private:
  // SamplePlaces, but with 32-bit divisions if possible.
  GRADLOOM_DEVICE uint64_t Place(int64_t i) const {
    if (places_.together == 0) return static_cast<uint64_t>(i);
    const Quotient q = Divide(i, places_.here * places_.together);
    return static_cast<uint64_t>((q.quotient * places_.whole + places_.first) * places_.together + q.rest);
  }

  GRADLOOM_DEVICE uint32_t WordAt(uint64_t place) {
    if (place / 4 != block_) {
      block_ = place / 4;
      words_ = Philox({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32), 0, 0}, key_);
    }
    // Indexed by constants only, so that the words stay in registers.
    const uint64_t word = place % 4;
    return word == 0 ? words_[0] : word == 1 ? words_[1] : word == 2 ? words_[2] : words_[3];
  }

  PhiloxKey key_;
  SamplePlaces places_;
  uint64_t block_ = ~uint64_t{0};  // no valid block
  PhiloxBlock words_ = {};
};

// Operand `seeds` is the seed; the batch number and the first sample follow. ONNX's own operators have none of these operands, only the
// attribute `seed`.
struct Source {
  const int64_t *seed = nullptr, *batch = nullptr, *first = nullptr;
  uint64_t stated = 0, origin = 0;
  SamplePlaces places;

  GRADLOOM_DEVICE Draws operator()() const {
    SamplePlaces here = places;
    if (first != nullptr) here.first = *first;
    const PhiloxKey key =
        batch == nullptr ? NodeKey(stated, 0, origin) : NodeKey(static_cast<uint64_t>(*seed), static_cast<uint64_t>(*batch), origin);
    return Draws(key, here);
  }
};

// The launch-independent part of a Source.
class Sources {
 public:
  Sources(const KernelCall& call, size_t seeds) : seeds_(seeds), fed_(Has(call.inputs, seeds + 1)), divided_(Has(call.inputs, seeds + 2)) {
    source_.stated = static_cast<uint64_t>(call.attributes.Float("seed", 0));
    source_.origin = static_cast<uint64_t>(call.attributes.Int("origin", 0));
    source_.places = SamplePlaces::Of(call, 0);
  }
  Source At(const Launch& l) const {
    Source source = source_;
    if (fed_) source.seed = l.In<int64_t>(seeds_), source.batch = l.In<int64_t>(seeds_ + 1);
    if (divided_) source.first = l.In<int64_t>(seeds_ + 2);
    return source;
  }

 private:
  size_t seeds_;
  bool fed_, divided_;
  Source source_;
};

}  // namespace gradloom::cuda
