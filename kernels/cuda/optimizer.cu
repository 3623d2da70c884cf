// Optimizers: one launch per parameter, or for several. The first thread of a block computes the coefficients of the step from
// scalars in device memory, then all threads update the block's elements.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/catalog/update.h"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/shared.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

// The options, the number of states and the element function (kernels/scalar/optimizers.h) of each optimizer.
struct SgdRule {
  using Options = scalar::SgdOptions;
  static constexpr int kStates = 0;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T*) {
    scalar::SgdElement(step, gradient, parameter);
  }
};
struct MomentumRule {
  using Options = scalar::SgdOptions;
  static constexpr int kStates = 1;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::MomentumElement(step, gradient, parameter, s[0]);
  }
};
struct AdamRule {
  using Options = scalar::AdamOptions;
  static constexpr int kStates = 2;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::AdamElement(step, gradient, parameter, s[0], s[1]);
  }
};
struct AmsgradRule {
  using Options = scalar::AdamOptions;
  static constexpr int kStates = 3;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::AmsgradElement(step, gradient, parameter, s[0], s[1], s[2]);
  }
};
struct NAdamRule {
  using Options = scalar::NAdamOptions;
  static constexpr int kStates = 2;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::NAdamElement(step, gradient, parameter, s[0], s[1]);
  }
};
struct RAdamRule {
  using Options = scalar::RAdamOptions;
  static constexpr int kStates = 2;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::RAdamElement(step, gradient, parameter, s[0], s[1]);
  }
};
struct LionRule {
  using Options = scalar::LionOptions;
  static constexpr int kStates = 1;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::LionElement(step, gradient, parameter, s[0]);
  }
};
// The states are the square average, then the momentum buffer, then the average, as far as they exist.
template <int kNumStates>
struct RmsPropRule {
  using Options = scalar::RmsPropOptions;
  static constexpr int kStates = kNumStates;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    T none = T(0);
    T& buffer = kStates > 1 ? s[1 % kStates] : none;
    T& average = kStates > 1 ? s[kStates - 1] : none;
    scalar::RmsPropElement(step, gradient, parameter, s[0], buffer, average);
  }
};
struct AdagradRule {
  using Options = scalar::AdagradOptions;
  static constexpr int kStates = 1;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::AdagradElement(step, gradient, parameter, s[0]);
  }
};
struct AdadeltaRule {
  using Options = scalar::AdadeltaOptions;
  static constexpr int kStates = 2;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::AdadeltaElement(step, gradient, parameter, s[0], s[1]);
  }
};
struct AdamaxRule {
  using Options = scalar::AdamaxOptions;
  static constexpr int kStates = 2;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    scalar::AdamaxElement(step, gradient, parameter, s[0], s[1]);
  }
};
// The gradient is the value that the average follows.
struct MovingAverageRule {
  using Options = scalar::MovingAverageOptions;
  static constexpr int kStates = 0;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T value, T& average, T*) {
    scalar::MovingAverageElement(step, value, average);
  }
};
// The direction replaces the parameter.
struct LambRule {
  using Options = scalar::AdamOptions;
  static constexpr int kStates = 2;
  template <typename Step, typename T>
  GRADLOOM_DEVICE static void Update(const Step& step, T gradient, T& parameter, T* s) {
    parameter = scalar::LambElement(step, gradient, parameter, s[0], s[1]);
  }
};

// The scalar operands of an update.
struct Scalars {
  FloatOperand lr, clip;
  const int64_t* step;
  const bool* apply;
  const int32_t* refused;  // KernelSite::refused

  GRADLOOM_DEVICE bool Applies() const { return (apply == nullptr || *apply) && !IsRefused(refused); }
};

// The coefficients of a step.
template <typename Rule, typename T>
struct Prepared {
  decltype(scalar::MakeStep<T>(typename Rule::Options{}, 0.0, int64_t{1})) step;
  T clip;
  bool applies;
};

constexpr int64_t kTile = 8 * kThreads;
// A block computes the coefficients once for all its tiles. This many blocks fill a large GPU.
constexpr int64_t kMaxBlocks = 2048;

int64_t Tiles(int64_t n) { return (n + kTile - 1) / kTile; }
int64_t Blocks(int64_t n) { return std::min(Tiles(n), kMaxBlocks); }

// A gradient, which may have 16 bits.
struct Gradient {
  const void* data = nullptr;
  DType dtype = DType::kUndefined;

  // kSize elements as they are in memory, of which one array is used.
  template <typename T, int kSize>
  struct Loaded {
    AlignedVector<T, kSize> wide;
    AlignedVector<Bits16, kSize> narrow;
  };

  // Loads up to n elements. They are converted later, so that other loads need not wait for this one.
  template <int kSize, typename T>
  GRADLOOM_DEVICE void Load(int64_t i, int64_t n, Loaded<T, kSize>& to) const {
    if (dtype == DType::kBfloat16 || dtype == DType::kFloat16)
      to.narrow = LoadVector<kSize>(static_cast<const Bits16*>(data) + i, n);
    else
      to.wide = LoadVector<kSize>(static_cast<const T*>(data) + i, n);
  }
  template <int kSize, typename T>
  GRADLOOM_DEVICE AlignedVector<T, kSize> Value(const Loaded<T, kSize>& loaded) const {
    if (dtype != DType::kBfloat16 && dtype != DType::kFloat16) return loaded.wide;
    AlignedVector<T, kSize> value;
    GRADLOOM_UNROLL
    for (int e = 0; e < kSize; ++e) {
      const uint16_t bits = loaded.narrow.at[e].bits;
      value.at[e] = static_cast<T>(dtype == DType::kBfloat16 ? Bfloat16ToFloat(bits) : HalfToFloat(bits));
    }
    return value;
  }
};

// Like StoreVector, with one store for a vector. Otherwise nvcc divides it into stores of elements in the kernel of several tensors.
template <int kSize, typename T>
GRADLOOM_DEVICE void StoreAtOnce(const AlignedVector<T, kSize>& vector, int64_t n, T* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(vector) == 16 || sizeof(vector) == 8) {
    if (n >= kSize && reinterpret_cast<uintptr_t>(to) % sizeof(vector) == 0) {
      uint32_t words[sizeof(vector) / 4];
      std::memcpy(words, &vector, sizeof words);
      const size_t address = __cvta_generic_to_global(to);
      if constexpr (sizeof(vector) == 16)
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
      else
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(words[0]), "r"(words[1]) : "memory");
      return;
    }
  }
#endif
  StoreVector<kSize>(vector, n, to);
}

// The parameter's copy, rounded to 16 bits; without data there is none.
struct RoundedCopy {
  void* data = nullptr;
  DType dtype = DType::kUndefined;

  template <typename T>
  GRADLOOM_DEVICE void Store(int64_t i, T value) const {
    Store(i, 1, AlignedVector<T, 1>{{value}});
  }
  template <typename T, int kSize>
  GRADLOOM_DEVICE void Store(int64_t i, int64_t n, const AlignedVector<T, kSize>& values) const {
    if (data == nullptr) return;
    if (dtype == DType::kBfloat16)
      StoreAtOnce<kSize>(Rounded<Bfloat16>(values), n, static_cast<Bfloat16*>(data) + i);
    else
      StoreAtOnce<kSize>(Rounded<Half>(values), n, static_cast<Half*>(data) + i);
  }

 private:
  template <typename To, typename T, int kSize>
  GRADLOOM_DEVICE static AlignedVector<To, kSize> Rounded(const AlignedVector<T, kSize>& values) {
    AlignedVector<To, kSize> rounded;
    GRADLOOM_UNROLL
    for (int e = 0; e < kSize; ++e) rounded.at[e] = Convert<To>(values.at[e]);
    return rounded;
  }
};

// The arrays of an update: the parameter, then the states.
template <typename Rule, typename T>
struct Arrays {
  static constexpr int kArrays = Rule::kStates + 1;
  // A thread's elements of a tile, in vectors of 16 bytes. It loads all of them before it stores any.
  static constexpr int kSize = 16 / sizeof(T), kVectors = kTile / kThreads / kSize;
  using Vector = AlignedVector<T, kSize>;

  Gradient gradient;
  const T* present[kArrays];
  T* next[kArrays];
  RoundedCopy copy;

  // Updates a tile, which ends before `end`.
  GRADLOOM_DEVICE void Update(const Block& block, const Prepared<Rule, T>& p, int64_t begin, int64_t end) const {
    Vector values[kVectors][kArrays];
    Gradient::Loaded<T, kSize> gradients[kVectors];
    // If what is not loaded is undefined, nvcc makes code that needs more registers: Adam's 88 instead of 80.
    GRADLOOM_UNROLL
    for (int v = 0; v < kVectors; ++v) gradients[v].narrow = {};
    GRADLOOM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = First(block, begin, v), n = end - i;
      if (n <= 0) continue;
      GRADLOOM_UNROLL
      for (int k = 0; k < kArrays; ++k) values[v][k] = LoadVector<kSize>(present[k] + i, n);
      gradient.Load(i, n, gradients[v]);
    }
    GRADLOOM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = First(block, begin, v), n = end - i;
      if (n <= 0) continue;
      const Vector g = gradient.Value(gradients[v]);
      if (p.applies) {
        GRADLOOM_UNROLL
        for (int e = 0; e < kSize; ++e) UpdateElement(p, g.at[e], values[v], e);
      }
      GRADLOOM_UNROLL
      for (int k = 0; k < kArrays; ++k) StoreAtOnce<kSize>(values[v][k], n, next[k] + i);
      copy.Store(i, n, values[v][0]);
    }
  }

 private:
  GRADLOOM_DEVICE static int64_t First(const Block& block, int64_t begin, int v) {
    return begin + (v * block.threads() + block.thread()) * kSize;
  }
  GRADLOOM_DEVICE static void UpdateElement(const Prepared<Rule, T>& p, T g, Vector (&values)[kArrays], int e) {
    T each[kArrays];
    GRADLOOM_UNROLL
    for (int k = 0; k < kArrays; ++k) each[k] = values[k].at[e];
    Rule::Update(p.step, g * p.clip, each[0], each + 1);
    GRADLOOM_UNROLL
    for (int k = 0; k < kArrays; ++k) values[k].at[e] = each[k];
  }
};

// The inputs from which the coefficients of a step are computed.
template <typename Rule, typename T>
struct Coefficients {
  typename Rule::Options options;
  double lr_scale;
  Scalars scalars;

  // Computes the coefficients in the block's first thread, for all of them.
  GRADLOOM_DEVICE Prepared<Rule, T> Prepare(const Block& block) const {
    Prepared<Rule, T>* const shared = Shared<0, Prepared<Rule, T>, 1>();
    if (block.thread() == 0) {
      const T clip = scalars.clip.data == nullptr ? T(1) : static_cast<T>(scalars.clip[0]);
      *shared = {scalar::MakeStep<T>(options, scalars.lr[0] * lr_scale, *scalars.step), clip, scalars.Applies()};
    }
    block.Sync();
    const Prepared<Rule, T> prepared = *shared;
    block.Sync();  // the block's next row reuses the memory
    return prepared;
  }
};

template <typename Rule, typename T>
struct UpdateTiles {
  int64_t n, blocks;
  Coefficients<Rule, T> coefficients;
  Arrays<Rule, T> arrays;

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t first) const {
    const Prepared<Rule, T> p = coefficients.Prepare(block);
    for (int64_t begin = first * kTile; begin < n; begin += blocks * kTile)
      arrays.Update(block, p, begin, n - begin < kTile ? n : begin + kTile);
  }
};

// Several tensors, whose tiles are numbered one after another.
template <typename Rule, typename T>
struct UpdateTensors {
  struct Tensor {
    int64_t n, past;  // number of elements; end of its range of tiles
    Arrays<Rule, T> arrays;
  };
  int64_t tiles, blocks;
  Coefficients<Rule, T> coefficients;
  Tensor tensors[kMaxTensors];

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t first) const {
    const Prepared<Rule, T> p = coefficients.Prepare(block);
    int at = 0;
    for (int64_t tile = first; tile < tiles; tile += blocks) {
      while (tile >= tensors[at].past) ++at;
      const int64_t n = tensors[at].n, begin = (tile - (at == 0 ? 0 : tensors[at - 1].past)) * kTile;
      tensors[at].arrays.Update(block, p, begin, n - begin < kTile ? n : begin + kTile);
    }
  }
};
// The size of kernel parameters that every device supports.
static_assert(sizeof(UpdateTensors<AmsgradRule, double>) <= 4096 - 16);

// Calls f(rule, options) with the rule of a single update.
template <typename F>
std::unique_ptr<Kernel> WithRule(const KernelCall& call, const F& f) {
  const size_t states = StatesOf(call);
  const Attributes& a = call.attributes;
  if (call.op == "Sgd") return states == 0 ? f(SgdRule{}, SgdOptionsOf(a)) : f(MomentumRule{}, SgdOptionsOf(a));
  if (call.op == "Adam") return states == 2 ? f(AdamRule{}, AdamOptionsOf(a)) : f(AmsgradRule{}, AdamOptionsOf(a));
  if (call.op == "NAdam") return f(NAdamRule{}, NAdamOptionsOf(a));
  if (call.op == "RAdam") return f(RAdamRule{}, RAdamOptionsOf(a));
  if (call.op == "Lion") return f(LionRule{}, LionOptionsOf(a));
  if (call.op == "RmsProp") {
    return states == 1   ? f(RmsPropRule<1>{}, RmsPropOptionsOf(a))
           : states == 2 ? f(RmsPropRule<2>{}, RmsPropOptionsOf(a))
                         : f(RmsPropRule<3>{}, RmsPropOptionsOf(a));
  }
  if (call.op == "Adagrad") return f(AdagradRule{}, AdagradOptionsOf(a));
  if (call.op == "Adadelta") return f(AdadeltaRule{}, AdadeltaOptionsOf(a));
  if (call.op == "Adamax") return f(AdamaxRule{}, AdamaxOptionsOf(a));
  if (call.op == "MovingAverage") return f(MovingAverageRule{}, MovingAverageOptionsOf(a));
  if (call.op == "LambDirection") return f(LambRule{}, AdamOptionsOf(a));
  throw Error(ErrorCode::kPlan, "no optimizer '" + Escaped(call.op) + "'");
}

std::unique_ptr<Kernel> MakeUpdate(const KernelCall& call, const KernelSite& site) {
  const int32_t* const refused = site.refused;
  return WithRule(call, [&]<typename Rule>(Rule, const typename Rule::Options& options) {
    const OperandType& parameter = call.inputs[kUpdateParameter];
    const int64_t n = parameter.layout.elements(parameter.shape);
    const double lr_scale = LrScale(call.attributes);
    const DType gradient = call.inputs[kUpdateGradient].dtype;
    const DType lr = call.inputs[kUpdateLr].dtype, clip = call.inputs[kUpdateClip].dtype, copy = CopyTypeOf(call.attributes);
    return WithFloat(parameter.dtype, [&]<typename T>(std::type_identity<T>) {
      return MakeKernel([=](const Launch& l) {
        const Scalars scalars{
            {l.inputs[kUpdateLr], lr}, {l.inputs[kUpdateClip], clip}, l.In<int64_t>(kUpdateStep), l.In<bool>(kUpdateApply), refused};
        UpdateTiles<Rule, T> update{n,
                                    Blocks(n),
                                    {options, lr_scale, scalars},
                                    {{l.inputs[kUpdateGradient], gradient}, {l.In<T>(kUpdateParameter)}, {l.Out<T>(0)}, {}}};
        for (int k = 1; k <= Rule::kStates; ++k) {
          update.arrays.present[k] = l.In<T>(static_cast<size_t>(kUpdateStates + k - 1));
          update.arrays.next[k] = l.Out<T>(static_cast<size_t>(k));
        }
        if (copy != DType::kUndefined) update.arrays.copy = {l.outputs[1 + Rule::kStates], copy};
        ForEachRow(update.blocks, l.stream, update);
      });
    });
  });
}

std::unique_ptr<Kernel> MakeMultiTensor(const KernelCall& call, const KernelSite& site) {
  const int32_t* const refused = site.refused;
  const int count = TensorsOf(call);
  std::vector<int64_t> elements;
  std::vector<DType> gradients;
  for (int tensor = 0; tensor < count; ++tensor) {
    const KernelCall one = UpdateOf(call, tensor);
    const OperandType& parameter = one.inputs[kUpdateParameter];
    gradients.push_back(one.inputs[kUpdateGradient].dtype);
    elements.push_back(parameter.layout.elements(parameter.shape));
  }
  return WithRule(UpdateOf(call, 0), [&]<typename Rule>(Rule, const typename Rule::Options& options) {
    const double lr_scale = LrScale(call.attributes);
    const DType lr = call.inputs[kMultiTensorLr].dtype, clip = call.inputs[kMultiTensorClip].dtype, copy = CopyTypeOf(call.attributes);
    return WithFloat(call.inputs[kMultiTensorParameters].dtype, [&]<typename T>(std::type_identity<T>) {
      return MakeKernel([=](const Launch& l) {
        UpdateTensors<Rule, T> update{};
        update.coefficients = {options,
                               lr_scale,
                               {{l.inputs[kMultiTensorLr], lr},
                                {l.inputs[kMultiTensorClip], clip},
                                l.In<int64_t>(kMultiTensorStep),
                                l.In<bool>(kMultiTensorApply),
                                refused}};
        constexpr size_t kArrays = Arrays<Rule, T>::kArrays;
        for (size_t i = 0; i < elements.size(); ++i) {
          const size_t parameter = kMultiTensorParameters + i * (kArrays + 1);
          update.tiles += Tiles(elements[i]);
          auto& [n, past, arrays] = update.tensors[i];
          n = elements[i];
          past = update.tiles;
          arrays.gradient = {l.inputs[parameter + 1], gradients[i]};
          for (size_t k = 0; k < kArrays; ++k) {
            arrays.present[k] = l.In<T>(k == 0 ? parameter : parameter + 1 + k);
            arrays.next[k] = l.Out<T>(i * kArrays + k);
          }
          if (copy != DType::kUndefined) arrays.copy = {l.outputs[elements.size() * kArrays + i], copy};
        }
        update.blocks = std::min(update.tiles, kMaxBlocks);
        ForEachRow(update.blocks, l.stream, update);
      });
    });
  });
}

// parameter - lr * trust ratio * direction.
template <typename T>
struct LambTile {
  int64_t n;
  double lr_scale;
  FloatOperand lr;
  const T *parameter_squares, *direction_squares;
  const bool* apply;
  const int32_t* refused;
  const T *parameter, *direction;
  T* next;
  RoundedCopy copy;

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t tile) const {
    const bool applies = (apply == nullptr || *apply) && !IsRefused(refused);
    const T rate = static_cast<T>(lr[0] * lr_scale) * scalar::TrustRatio(*parameter_squares, *direction_squares);
    const int64_t begin = tile * kTile, end = n - begin < kTile ? n : begin + kTile;
    for (int64_t i = begin + block.thread(); i < end; i += block.threads()) {
      const T value = applies ? parameter[i] - rate * direction[i] : parameter[i];
      next[i] = value;
      copy.Store(i, value);
    }
  }
};

std::unique_ptr<Kernel> MakeLambApply(const KernelCall& call, const KernelSite& site) {
  const int32_t* const refused = site.refused;
  const int64_t n = call.inputs[kLambParameter].shape.elements();
  const double lr_scale = LrScale(call.attributes);
  const DType lr = call.inputs[kLambLr].dtype, copy = CopyTypeOf(call.attributes);
  const OperandCounts operands(call);
  return WithFloat(call.inputs[kLambParameter].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      const LambTile<T> tile{n,
                             lr_scale,
                             {l.inputs[kLambLr], lr},
                             l.In<T>(kLambParameterSquares),
                             l.In<T>(kLambDirectionSquares),
                             operands.In<bool>(l, kLambApply),
                             refused,
                             l.In<T>(kLambParameter),
                             l.In<T>(kLambDirection),
                             l.Out<T>(0),
                             {copy != DType::kUndefined ? l.outputs[1] : nullptr, copy}};
      ForEachRow(Tiles(n), l.stream, tile);
    });
  });
}

constexpr CudaKernel kOptimizerKernels[] = {
    {"cuda.gradloom.Sgd", MakeUpdate},
    {"cuda.gradloom.Adam", MakeUpdate},
    {"cuda.gradloom.NAdam", MakeUpdate},
    {"cuda.gradloom.RAdam", MakeUpdate},
    {"cuda.gradloom.Lion", MakeUpdate},
    {"cuda.gradloom.RmsProp", MakeUpdate},
    {"cuda.gradloom.Adagrad", MakeUpdate},
    {"cuda.gradloom.Adadelta", MakeUpdate},
    {"cuda.gradloom.Adamax", MakeUpdate},
    {"cuda.gradloom.MovingAverage", MakeUpdate},
    {"cuda.gradloom.LambDirection", MakeUpdate},
    {"cuda.gradloom.LambApply", MakeLambApply},
    {"cuda.gradloom.MultiTensorUpdate0", MakeMultiTensor},
    {"cuda.gradloom.MultiTensorUpdate1", MakeMultiTensor},
    {"cuda.gradloom.MultiTensorUpdate2", MakeMultiTensor},
    {"cuda.gradloom.MultiTensorUpdate3", MakeMultiTensor},
};

}  // namespace

std::span<const CudaKernel> OptimizerKernels() { return kOptimizerKernels; }

}  // namespace gradloom::cuda
