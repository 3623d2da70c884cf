// Dropout and random tensors. An element comes from the counter of its place in the whole batch alone (kernels/reference/random.cc), so
// that any number of threads gives the same.
#include <algorithm>
#include <string>

#include "kernels/catalog/sample_places.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kPiece = 1024;  // elements whose words are drawn at once; a multiple of four

class RandomKernel : public Kernel {
 protected:
  // `seed`: the place of the seed among the inputs; the batch number follows, and the first of a device's samples behind. Where no batch
  // number is there, the attribute `seed` stands for both.
  RandomKernel(const KernelCall& call, size_t seed)
      : call_(call),
        seed_(seed),
        n_(call.outputs[0].shape.elements()),
        threads_(ThreadsFor(n_, kElementsPerThread, call.threads)),
        loops_(BestLoops()) {}

  // f(first element, elements, their words, whether the first one's place is odd) for pieces of neighbours that cover all elements, in
  // parallel. Before the first word of a piece and behind its last are those of the rest of their fours.
  template <typename F>
  void ForEachPiece(const void* const* inputs, F f) const {
    const SamplePlaces places = SamplePlaces::Of(call_, HasInput(call_, seed_ + 2) ? Number(inputs, seed_ + 2) : 0);
    const PhiloxKey key = Key(inputs);
    const int64_t part = places.together == 0 ? n_ : places.here * places.together;
    ParallelRanges(n_, kPiece, threads_, [&](int64_t begin, int64_t end) {
      uint32_t words[4 + kPiece + kRandomSlack];
      for (int64_t i = begin; i < end;) {
        const int64_t count = std::min({end - i, part - i % part, kPiece});
        const uint64_t place = places(i), before = place % 4;
        loops_.random_words(place / 4, key[0], key[1], (static_cast<int64_t>(before) + count + 3) / 4, words);
        f(i, count, words + before, before % 2 != 0);
        i += count;
      }
    });
  }

  const KernelCall call_;
  const size_t seed_;
  const int64_t n_;
  const int threads_;
  const Loops& loops_;

 private:
  static int64_t Number(const void* const* inputs, size_t i) { return *static_cast<const int64_t*>(inputs[i]); }

  PhiloxKey Key(const void* const* inputs) const {
    const auto origin = static_cast<uint64_t>(call_.attributes.Int("origin", 0));
    if (!HasInput(call_, seed_ + 1)) return NodeKey(static_cast<uint64_t>(call_.attributes.Float("seed", 0)), 0, origin);
    return NodeKey(static_cast<uint64_t>(Number(inputs, seed_)), static_cast<uint64_t>(Number(inputs, seed_ + 1)), origin);
  }
};

// What a kernel reads of seed, batch number and first sample, and divides by.
std::string RejectsSource(const KernelCall& call, size_t seed) {
  for (size_t i = seed; i < call.inputs.size(); ++i) {
    if (!HasInput(call, i)) continue;
    if (call.inputs[i].dtype != DType::kInt64 || call.inputs[i].shape.elements() < 1) return "a seed that is no integer";
  }
  if (HasInput(call, seed + 1) && !HasInput(call, seed)) return "no seed";
  const SamplePlaces places = SamplePlaces::Of(call, 0);
  return places.here < 1 || places.together < 0 ? "samples" : "";
}

class Dropout : public RandomKernel {
 public:
  explicit Dropout(const KernelCall& call)
      : RandomKernel(call, 1),
        dtype_(call.inputs[0].dtype),
        ratio_(static_cast<float>(call.attributes.Float("ratio", 0))),
        scale_(static_cast<float>(1 / (1 - call.attributes.Float("ratio", 0)))) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    auto* mask = HasOutput(call_, 1) ? static_cast<bool*>(outputs[1]) : nullptr;
    ForEachPiece(inputs, [&](int64_t i, int64_t count, const uint32_t* words, bool) {
      if (dtype_ == DType::kFloat32) {
        loops_.dropout(static_cast<const float*>(inputs[0]) + i, words, count, ratio_, scale_, static_cast<float*>(outputs[0]) + i);
      } else {
        float x[kPiece];
        LoadFloats(loops_, dtype_, inputs[0], i, count, x);
        loops_.dropout(x, words, count, ratio_, scale_, x);
        StoreFloats(loops_, dtype_, x, count, outputs[0], i);
      }
      for (int64_t j = 0; mask != nullptr && j < count; ++j) mask[i + j] = UniformFloat(words[j]) >= ratio_;
    });
  }

  static std::string Rejects(const KernelCall& call) {
    if (std::string why = RejectsLayouts(call); !why.empty()) return why;
    const DType dtype = call.inputs[0].dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBfloat16) return std::string(DTypeName(dtype));
    if (call.outputs[0].dtype != dtype || call.outputs[0].shape != call.inputs[0].shape) return "a result of another type";
    if (HasOutput(call, 1) && (call.outputs[1].dtype != DType::kBool || call.outputs[1].shape != call.inputs[0].shape)) return "a mask";
    return RejectsSource(call, 1);
  }

 private:
  const DType dtype_;
  const float ratio_, scale_;
};

template <size_t kSeed>
class RandomUniform : public RandomKernel {
 public:
  explicit RandomUniform(const KernelCall& call)
      : RandomKernel(call, kSeed),
        low_(static_cast<float>(call.attributes.Float("low", 0))),
        range_(static_cast<float>(call.attributes.Float("high", 1) - call.attributes.Float("low", 0))) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    auto* y = static_cast<float*>(outputs[0]);
    ForEachPiece(inputs,
                 [&](int64_t i, int64_t count, const uint32_t* words, bool) { loops_.uniform_numbers(words, count, low_, range_, y + i); });
  }

 private:
  const float low_, range_;
};

template <size_t kSeed>
class RandomNormal : public RandomKernel {
 public:
  explicit RandomNormal(const KernelCall& call)
      : RandomKernel(call, kSeed),
        mean_(static_cast<float>(call.attributes.Float("mean", 0))),
        scale_(static_cast<float>(call.attributes.Float("scale", 1))) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    auto* y = static_cast<float*>(outputs[0]);
    ForEachPiece(inputs, [&](int64_t i, int64_t count, const uint32_t* words, bool odd) {
      // Pairs begin at even places; a piece may have one half of its first or last.
      float numbers[kPiece + 2];
      const int64_t pairs = (count + (odd ? 1 : 0) + 1) / 2;
      loops_.normal_numbers(words - (odd ? 1 : 0), pairs, mean_, scale_, numbers);
      std::copy_n(numbers + (odd ? 1 : 0), count, y + i);
    });
  }

 private:
  const float mean_, scale_;
};

// float32 tensors; what a Like form does not read may have any type.
template <size_t kSeed>
std::string RejectsRandom(const KernelCall& call) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  if (call.outputs[0].dtype != DType::kFloat32) return std::string(DTypeName(call.outputs[0].dtype));
  return RejectsSource(call, kSeed);
}

constexpr Aliasing kInPlace[] = {{0, 0}};

template <template <size_t> typename K, size_t kSeed>
constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = RejectsRandom<kSeed>}, .make = MakeKernel<K<kSeed>>};
}

constexpr CpuKernel kKernels[] = {
    {.row = {.name = "cpu.Dropout", .op = "Dropout", .domain = "gradloom", .rejects = Dropout::Rejects, .may_alias = kInPlace},
     .make = MakeKernel<Dropout>},
    Row<RandomUniform, 0>("cpu.DrawUniform", "RandomUniform", "gradloom"),
    Row<RandomNormal, 0>("cpu.DrawNormal", "RandomNormal", "gradloom"),
    Row<RandomUniform, 1>("cpu.RandomUniform", "RandomUniform", ""),
    Row<RandomUniform, 1>("cpu.RandomUniformLike", "RandomUniformLike", ""),
    Row<RandomNormal, 1>("cpu.RandomNormal", "RandomNormal", ""),
    Row<RandomNormal, 1>("cpu.RandomNormalLike", "RandomNormalLike", ""),
};

}  // namespace

std::span<const CpuKernel> CpuRandomKernels() { return kKernels; }

}  // namespace gradloom
