// Random tensors and dropout. An element depends only on the counter of its place in the whole batch. A thread computes four consecutive
// elements, which share one counter block. Seed, batch number and first sample are read from device memory.
#include <bit>
#include <cmath>

#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/rows/scratch.h"
#include "kernels/cuda/words.cuh"
#include "runtime/base/number_below.h"

namespace gradloom::cuda {
namespace {

constexpr int kWords = 4;  // words per counter block
static_assert(kThreads <= cuda_rows::kMaxThreads);

template <typename T>
using Vector = AlignedVector<T, kWords>;

// Calls f(i, m) for every four elements from i on; m is their number, less than 4 at the end.
template <typename F>
void ForEachVector(int64_t n, cudaStream_t stream, const F& f) {
  ForEachElement((n + kWords - 1) / kWords, stream, GRADLOOM_ON_DEVICE(int64_t vector) {
    const int64_t i = vector * kWords, left = n - i;
    f(i, left < kWords ? left : kWords);
  });
}

template <typename T>
struct Dropout {
  PhiloxState philox;
  float ratio;
  Arithmetic<T> scale;
  const T* in;
  T* out;
  bool* mask;  // may be null

  GRADLOOM_DEVICE void operator()(int64_t i, int64_t n) const {
    PhiloxGenerator generator = philox();
    Vector<T> x = LoadVector<kWords>(in + i, n);
    Vector<bool> kept;
    for (int k = 0; k < kWords; ++k) {
      kept.at[k] = generator.Uniform(i + k) >= ratio;
      x.at[k] = kept.at[k] ? static_cast<T>(static_cast<Arithmetic<T>>(x.at[k]) * scale) : static_cast<T>(0.0f);
    }
    StoreVector<kWords>(x, n, out + i);
    if (mask != nullptr) StoreVector<kWords>(kept, n, mask + i);
  }
};

std::unique_ptr<Kernel> MakeDropout(const KernelCall& call, const KernelSite&) {
  const PhiloxOperands philox(call, 1);
  const int64_t n = call.inputs[0].shape.elements();
  const double ratio = call.attributes.Float("ratio", 0);
  const OperandCounts operands(call);
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      bool* const mask = operands.Out<bool>(l, 1);
      const auto scale = static_cast<Arithmetic<T>>(1 / (1 - ratio));
      ForEachVector(n, l.stream, Dropout<T>{philox.At(l), static_cast<float>(ratio), scale, l.In<T>(0), l.Out<T>(0), mask});
    });
  });
}

// low + range * u with two roundings, as on the host: a fused multiply-add would give other bits.
GRADLOOM_DEVICE double Between(double low, double range, double u) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(low, __dmul_rn(range, u));
#else
  return low + range * u;
#endif
}

template <typename T>
struct RandomUniform {
  PhiloxState philox;
  double low, range;
  T largest;  // rounding may lead to the end of the range
  T* out;

  GRADLOOM_DEVICE void operator()(int64_t i, int64_t n) const {
    PhiloxGenerator generator = philox();
    Vector<T> values;
    for (int k = 0; k < kWords; ++k) {
      const T value = static_cast<T>(Between(low, range, static_cast<double>(generator.Uniform(i + k))));
      values.at[k] = largest < value ? largest : value;
    }
    StoreVector<kWords>(values, n, out + i);
  }
};

template <typename T>
struct RandomNormal {
  PhiloxState philox;
  double mean, scale;
  T* out;

  GRADLOOM_DEVICE void operator()(int64_t i, int64_t n) const {
    using A = Arithmetic<T>;
    PhiloxGenerator generator = philox();
    Vector<T> values;
    for (int k = 0; k < kWords; ++k)
      values.at[k] = static_cast<T>(static_cast<A>(mean) + static_cast<A>(scale) * generator.Normal<A>(i + k));
    StoreVector<kWords>(values, n, out + i);
  }
};

// ONNX's ...Like operators have an input whose values are not read.
template <size_t kSeeds>
std::unique_ptr<Kernel> MakeRandomUniform(const KernelCall& call, const KernelSite&) {
  const PhiloxOperands philox(call, kSeeds);
  const int64_t n = call.outputs[0].shape.elements();
  const double low = call.attributes.Float("low", 0), high = call.attributes.Float("high", 1), range = high - low;
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T largest = LargestBelow<T>(high, low);
    return MakeKernel([=](const Launch& l) {
      ForEachVector(n, l.stream, RandomUniform<T>{philox.At(l), low, range, largest, l.Out<T>(0)});
    });
  });
}

template <size_t kSeeds>
std::unique_ptr<Kernel> MakeRandomNormal(const KernelCall& call, const KernelSite&) {
  const PhiloxOperands philox(call, kSeeds);
  const int64_t n = call.outputs[0].shape.elements();
  const double mean = call.attributes.Float("mean", 0), scale = call.attributes.Float("scale", 1);
  return WithFloating(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { ForEachVector(n, l.stream, RandomNormal<T>{philox.At(l), mean, scale, l.Out<T>(0)}); });
  });
}

// 1 with the probability given by the input; `one` has the bits of a 1.
template <typename Bits>
struct Bernoulli {
  PhiloxState philox;
  FloatOperand p;
  Bits one;
  Bits* out;

  GRADLOOM_DEVICE void operator()(int64_t i, int64_t n) const {
    PhiloxGenerator generator = philox();
    Vector<Bits> values = {};
    for (int k = 0; k < n; ++k) values.at[k] = static_cast<double>(generator.Uniform(i + k)) < p[i + k] ? one : Bits(0);
    StoreVector<kWords>(values, n, out + i);
  }
};

// The bits of 1 in an element type.
template <typename Bits>
Bits One(DType dtype) {
  return WithType(dtype, []<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) == sizeof(Bits))
      return std::bit_cast<Bits>(static_cast<T>(1.0f));
    else
      return Bits(0);
  });
}

std::unique_ptr<Kernel> MakeBernoulli(const KernelCall& call, const KernelSite&) {
  const PhiloxOperands philox(call, 1);
  const int64_t n = call.outputs[0].shape.elements();
  const DType in = call.inputs[0].dtype, out = call.outputs[0].dtype;
  return WithBytes(out, [&]<typename Bits>(std::type_identity<Bits>) {
    const Bits one = One<Bits>(out);
    return MakeKernel([=](const Launch& l) {
      ForEachVector(n, l.stream, Bernoulli<Bits>{philox.At(l), {l.inputs[0], in}, one, l.Out<Bits>(0)});
    });
  });
}

// Samples classes from rows of unnormalized log-probabilities. Each thread of the block sums the exponentials of a run of classes, then
// computes the running sums of its run; then each sample is found by binary search.
template <typename Bits>
struct Multinomial {
  PhiloxState philox;
  FloatOperand scores;
  int64_t classes, samples;
  double *sums, *parts;  // running sums of all rows; sums of the threads' runs in each row
  Bits* out;

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t row) const {
    const int64_t start = row * classes, length = (classes + block.threads() - 1) / block.threads();
    const int64_t begin = block.thread() * length, past = begin + length, end = past < classes ? past : classes;
    double* const own = sums + start;
    double* const part = parts + row * block.threads();
    double largest = -INFINITY;
    for (int64_t c = block.thread(); c < classes; c += block.threads()) largest = Largest{}(largest, scores[start + c]);
    largest = block.Reduce(largest, Largest{});
    double sum = 0;
    for (int64_t c = begin; c < end; ++c) sum += ::exp(scores[start + c] - largest);
    part[block.thread()] = sum;
    block.Sync();
    sum = 0;
    for (int k = 0; k < block.thread(); ++k) sum += part[k];
    for (int64_t c = begin; c < end; ++c) own[c] = sum += ::exp(scores[start + c] - largest);
    block.Sync();
    PhiloxGenerator generator = philox();
    for (int64_t s = row * samples + block.thread(); s < (row + 1) * samples; s += block.threads()) {
      out[s] = static_cast<Bits>(Find(own, own[classes - 1] * static_cast<double>(generator.Uniform(s))));
    }
  }

 private:
  // The first class whose running sum exceeds the target; the last class if there is none.
  GRADLOOM_DEVICE int64_t Find(const double* running, double target) const {
    int64_t low = 0, high = classes - 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (target < running[middle])
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
};

std::unique_ptr<Kernel> MakeMultinomial(const KernelCall& call, const KernelSite&) {
  const PhiloxOperands philox(call, 1);
  const DType in = call.inputs[0].dtype;
  const int64_t rows = call.inputs[0].shape[0], classes = call.inputs[0].shape[1], samples = call.outputs[0].shape[1];
  return WithBytes(call.outputs[0].dtype, [&]<typename Bits>(std::type_identity<Bits>) {
    return MakeKernel([=](const Launch& l) {
      double* const sums = static_cast<double*>(l.scratch);
      ForEachRow(rows, l.stream,
                 Multinomial<Bits>{philox.At(l), {l.inputs[0], in}, classes, samples, sums, sums + rows * classes, l.Out<Bits>(0)});
    });
  });
}

constexpr CudaKernel kRandomKernels[] = {
    {"cuda.gradloom.Dropout", MakeDropout},
    {"cuda.gradloom.RandomUniform", MakeRandomUniform<0>},
    {"cuda.gradloom.RandomNormal", MakeRandomNormal<0>},
    {"cuda.RandomUniform", MakeRandomUniform<1>},
    {"cuda.RandomUniformLike", MakeRandomUniform<1>},
    {"cuda.RandomNormal", MakeRandomNormal<1>},
    {"cuda.RandomNormalLike", MakeRandomNormal<1>},
    {"cuda.gradloom.Bernoulli", MakeBernoulli},
    {"cuda.Bernoulli", MakeBernoulli},
    {"cuda.gradloom.Multinomial", MakeMultinomial},
    {"cuda.Multinomial", MakeMultinomial},
};

}  // namespace

std::span<const CudaKernel> RandomKernels() { return kRandomKernels; }

}  // namespace gradloom::cuda
