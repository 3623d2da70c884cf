// Random tensors. An element depends only on the counter of its place in the whole batch, so a part of a tensor has the same numbers as the
// whole tensor has there.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/catalog/batch_slice.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "runtime/base/number_below.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

// The random numbers of one call.
class PhiloxGenerator {
 public:
  // `seeds` is the index of the input with the seed; the batch number follows, then, if a batch is divided over devices, the device's first
  // sample. ONNX's own operators have none of these inputs, only the attribute `seed`.
  PhiloxGenerator(const KernelCall& call, const void* const* inputs, size_t seeds)
      : slice_(BatchSlice::Of(call, Has(call.inputs, seeds + 2) ? *In<int64_t>(inputs, seeds + 2) : 0)) {
    const bool fed = Has(call.inputs, seeds + 1);
    const uint64_t seed = fed ? static_cast<uint64_t>(*In<int64_t>(inputs, seeds)) : StatedSeed(call.attributes.Float("seed", 0));
    const uint64_t batch = fed ? static_cast<uint64_t>(*In<int64_t>(inputs, seeds + 1)) : 0;
    key_ = NodeKey(seed, batch, static_cast<uint64_t>(call.attributes.Int("origin", 0)));
  }

  // Uniform in [0, 1).
  float Uniform(int64_t i) const { return UniformFloat(ElementBits(slice_(i), key_)); }

  // Standard normal by Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958. Elements 2k and 2k + 1 share the uniform
  // numbers of those indices.
  double Normal(int64_t i) const {
    const uint64_t index = slice_(i), pair = index & ~uint64_t{1};
    const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(UniformFloat(ElementBits(pair, key_)))));
    const double angle = 2 * std::numbers::pi * static_cast<double>(UniformFloat(ElementBits(pair + 1, key_)));
    return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }

 private:
  PhiloxKey key_;
  BatchSlice slice_;
};

template <typename F>
void Fill(const KernelCall& call, void* const* outputs, F element) {
  const int64_t n = call.outputs[0].shape.elements();
  WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t i = 0; i < n; ++i) Out<T>(outputs, 0)[i] = static_cast<T>(element(i));
  });
}

// ONNX's ...Like operators have an input whose values are not read. The range ends before `high`, to which rounding may lead.
template <size_t kSeeds>
void RandomUniform(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const PhiloxGenerator generator(call, inputs, kSeeds);
  const double low = call.attributes.Float("low", 0), high = call.attributes.Float("high", 1);
  WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T largest = LargestBelow<T>(high, low);
    for (int64_t i = 0; i < call.outputs[0].shape.elements(); ++i) {
      const T value = static_cast<T>(low + (high - low) * static_cast<double>(generator.Uniform(i)));
      Out<T>(outputs, 0)[i] = std::min(value, largest);
    }
  });
}

template <size_t kSeeds>
void RandomNormal(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const PhiloxGenerator generator(call, inputs, kSeeds);
  const double mean = call.attributes.Float("mean", 0), scale = call.attributes.Float("scale", 1);
  Fill(call, outputs, [&](int64_t i) { return mean + scale * generator.Normal(i); });
}

// 1 with the probability given by the input.
void Bernoulli(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const PhiloxGenerator generator(call, inputs, 1);
  const TensorView p = InputView(call, inputs, 0);
  WithType(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t i = 0; i < p.elements(); ++i) {
      Out<T>(outputs, 0)[i] = static_cast<T>(static_cast<double>(generator.Uniform(i)) < ElementAsDouble(p, i) ? 1.0f : 0.0f);
    }
  });
}

// Rows of unnormalized log-probabilities [N, C] -> classes [N, sample_size].
void Multinomial(const KernelCall& call, const void* const* inputs, void* const* outputs) {
  const PhiloxGenerator generator(call, inputs, 1);
  const TensorView scores = InputView(call, inputs, 0);
  const int64_t rows = scores.shape[0], classes = scores.shape[1], samples = call.outputs[0].shape[1];
  std::vector<double> sums(static_cast<size_t>(classes));
  WithInteger(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t row = 0; row < rows; ++row) {
      double largest = -INFINITY, sum = 0;
      for (int64_t c = 0; c < classes; ++c) largest = std::max(largest, ElementAsDouble(scores, row * classes + c));
      for (int64_t c = 0; c < classes; ++c)
        sums[static_cast<size_t>(c)] = sum += std::exp(ElementAsDouble(scores, row * classes + c) - largest);
      for (int64_t s = 0; s < samples; ++s) {
        const double target = sum * static_cast<double>(generator.Uniform(row * samples + s));
        int64_t c = 0;
        while (c + 1 < classes && !(target < sums[static_cast<size_t>(c)])) ++c;
        Out<T>(outputs, 0)[row * samples + s] = static_cast<T>(c);
      }
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"RandomUniform", "gradloom", RandomUniform<0>},
    {"RandomNormal", "gradloom", RandomNormal<0>},
    {"Bernoulli", "gradloom", Bernoulli},
    {"Multinomial", "gradloom", Multinomial},
    {"RandomUniform", "", RandomUniform<1>},
    {"RandomUniformLike", "", RandomUniform<1>},
    {"RandomNormal", "", RandomNormal<1>},
    {"RandomNormalLike", "", RandomNormal<1>},
    {"Bernoulli", "", Bernoulli},
    {"Multinomial", "", Multinomial},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceRandom() { return kKernels; }

}  // namespace gradloom
