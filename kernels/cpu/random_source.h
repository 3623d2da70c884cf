// The random numbers of a call. An element's counter is its position in the whole batch (kernels/reference/random.cc), so the numbers do
// not depend on the number of threads and devices.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/catalog/batch_slice.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "runtime/base/philox.h"

namespace gradloom {

// The number of words of memory that RandomDraws::Words needs for `count` elements.
constexpr int64_t RandomWordsCapacity(int64_t count) { return count + 6 + kRandomSlack; }

// The random numbers of one run.
struct RandomDraws {
  PhiloxKey key = {};
  BatchSlice slice;

  // The words of `count` consecutive elements from element i on, within one contiguous part of the slice. They are written to `room`, which
  // has RandomWordsCapacity(count) words, together with the other words of their counters.
  const uint32_t* Words(const Loops& loops, int64_t i, int64_t count, uint32_t* room) const {
    const uint64_t index = slice(i), before = index % 4;
    loops.random_words(index / 4, key[0], key[1], (static_cast<int64_t>(before) + count + 3) / 4, room);
    return room + before;
  }
};

// `seed` is the index of the input with the seed. The next inputs are the batch number and the first of the device's samples. Without a
// batch number, the attribute `seed` is used instead.
class RandomSource {
 public:
  RandomSource(const KernelCall& call, size_t seed)
      : seed_(seed),
        fed_(HasInput(call, seed + 1)),
        divided_(HasInput(call, seed + 2)),
        stated_(StatedSeed(call.attributes.Float("seed", 0))),
        origin_(static_cast<uint64_t>(call.attributes.Int("origin", 0))),
        slice_(BatchSlice::Of(call, 0)) {}

  RandomDraws operator()(const void* const* inputs) const {
    const auto number = [&](size_t i) { return *static_cast<const int64_t*>(inputs[i]); };
    RandomDraws draws{.key = NodeKey(stated_, 0, origin_), .slice = slice_};
    if (fed_) draws.key = NodeKey(static_cast<uint64_t>(number(seed_)), static_cast<uint64_t>(number(seed_ + 1)), origin_);
    if (divided_) draws.slice.first = number(seed_ + 2);
    return draws;
  }

  // Returns why random numbers for a call are not supported, or "".
  static std::string Rejects(const KernelCall& call, size_t seed) {
    for (size_t i = seed; i < call.inputs.size(); ++i) {
      if (!HasInput(call, i)) continue;
      if (call.inputs[i].dtype != DType::kInt64 || call.inputs[i].shape.elements() < 1) return "a seed that is not an integer";
    }
    if (HasInput(call, seed + 1) && !HasInput(call, seed)) return "no seed";
    const BatchSlice slice = BatchSlice::Of(call, 0);
    return slice.local < 1 || slice.inner < 0 ? "an invalid attribute 'samples'" : "";
  }

 private:
  size_t seed_;
  bool fed_, divided_;
  uint64_t stated_, origin_;
  BatchSlice slice_;
};

}  // namespace gradloom
