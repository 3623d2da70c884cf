// Dropout and random tensors.
#include <algorithm>
#include <string>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/random_source.h"
#include "runtime/base/number_below.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kPiece = 1024;  // elements whose words are computed together

class RandomKernel : public Kernel {
 protected:
  // `seed` is the same as for RandomSource.
  RandomKernel(const KernelCall& call, size_t seed)
      : call_(call),
        source_(call, seed),
        n_(call.outputs[0].shape.elements()),
        threads_(ThreadsFor(n_, kElementsPerThread, call.threads)),
        loops_(BestLoops()) {}

  // Calls f(first element, elements, their words, whether the index of the first one is odd) for contiguous pieces that cover all elements,
  // in parallel.
  template <typename F>
  void ForEachPiece(const void* const* inputs, F f) const {
    const RandomDraws draws = source_(inputs);
    const BatchSlice& slice = draws.slice;
    const int64_t part = slice.inner == 0 ? n_ : slice.local * slice.inner;
    ParallelRanges(n_, kPiece, threads_, [&](int64_t begin, int64_t end) {
      uint32_t room[RandomWordsCapacity(kPiece)];
      for (int64_t i = begin; i < end;) {
        const int64_t count = std::min({end - i, part - i % part, kPiece});
        f(i, count, draws.Words(loops_, i, count, room), slice(i) % 2 != 0);
        i += count;
      }
    });
  }

  const KernelCall call_;
  const RandomSource source_;
  const int64_t n_;
  const int threads_;
  const Loops& loops_;
};

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
    return RandomSource::Rejects(call, 1);
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
        range_(static_cast<float>(call.attributes.Float("high", 1) - call.attributes.Float("low", 0))),
        largest_(LargestBelow<float>(call.attributes.Float("high", 1), call.attributes.Float("low", 0))) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    auto* y = static_cast<float*>(outputs[0]);
    ForEachPiece(inputs, [&](int64_t i, int64_t count, const uint32_t* words, bool) {
      loops_.uniform_numbers(words, count, low_, range_, y + i);
      for (int64_t j = i; j < i + count; ++j) y[j] = std::min(y[j], largest_);
    });
  }

 private:
  const float low_, range_, largest_;
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
      // Pairs start at even indices, so a piece may contain only half of its first or last pair.
      float numbers[kPiece + 2];
      const int64_t pairs = (count + (odd ? 1 : 0) + 1) / 2;
      loops_.normal_numbers(words - (odd ? 1 : 0), pairs, mean_, scale_, numbers);
      std::copy_n(numbers + (odd ? 1 : 0), count, y + i);
    });
  }

 private:
  const float mean_, scale_;
};

// float32 results; the unread input of a ...Like operator may have any type.
template <size_t kSeed>
std::string RejectsRandom(const KernelCall& call) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  if (call.outputs[0].dtype != DType::kFloat32) return std::string(DTypeName(call.outputs[0].dtype));
  return RandomSource::Rejects(call, kSeed);
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
