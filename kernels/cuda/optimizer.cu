// Optimizers: one launch for each parameter. The first thread of a block makes the coefficients of the step from scalars in device memory,
// then all of them update the block's elements.
#include <algorithm>
#include <type_traits>

#include "kernels/catalog/update.h"
#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/shared.cuh"
#include "kernels/reference/operands.h"

namespace gradloom::cuda {
namespace {

// What an element function of kernels/scalar/optimizers.h is called with, and its number of states.
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
// The states are the square average, then the momentum buffer, then the average, where there are any.
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
// The direction takes the place of the parameter.
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
};

// The coefficients of a step.
template <typename Rule, typename T>
struct Prepared {
  decltype(scalar::MakeStep<T>(typename Rule::Options{}, 0.0, int64_t{1})) step;
  T clip;
  bool applies;
};

constexpr int64_t kTile = 8 * kThreads;
// Each makes the coefficients once, for as many tiles as it takes: enough blocks for a large GPU.
constexpr int64_t kMostBlocks = 2048;

int64_t Tiles(int64_t n) { return (n + kTile - 1) / kTile; }
int64_t Blocks(int64_t n) { return std::min(Tiles(n), kMostBlocks); }

template <typename Rule, typename T>
struct UpdateTiles {
  static constexpr int kArrays = Rule::kStates + 1;  // the parameter and the states
  int64_t n, blocks;
  typename Rule::Options options;
  double lr_scale;
  Scalars scalars;
  const T* gradient;
  const T* present[kArrays];
  T* next[kArrays];

  GRADLOOM_DEVICE Prepared<Rule, T> Prepare() const {
    const T clip = scalars.clip.data == nullptr ? T(1) : static_cast<T>(scalars.clip[0]);
    return {scalar::MakeStep<T>(options, scalars.lr[0] * lr_scale, *scalars.step), clip, scalars.apply == nullptr || *scalars.apply};
  }

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t first) const {
    Prepared<Rule, T>* const shared = Shared<0, Prepared<Rule, T>, 1>();
    if (block.thread() == 0) *shared = Prepare();
    block.Sync();
    const Prepared<Rule, T> p = *shared;
    for (int64_t begin = first * kTile; begin < n; begin += blocks * kTile) {
      const int64_t end = n - begin < kTile ? n : begin + kTile;
      for (int64_t i = begin + block.thread(); i < end; i += block.threads()) {
        T values[kArrays];
        for (int k = 0; k < kArrays; ++k) values[k] = present[k][i];
        if (p.applies) Rule::Update(p.step, gradient[i] * p.clip, values[0], values + 1);
        for (int k = 0; k < kArrays; ++k) next[k][i] = values[k];
      }
    }
  }
};

template <typename Rule>
std::unique_ptr<Kernel> Updates(const KernelCall& call, const typename Rule::Options& options) {
  const OperandType& parameter = call.inputs[kUpdateParameter];
  const int64_t n = parameter.layout.elements(parameter.shape);
  const double lr_scale = LrScale(call.attributes);
  const DType lr = call.inputs[kUpdateLr].dtype, clip = call.inputs[kUpdateClip].dtype;
  return WithFloat(parameter.dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=](const Launch& l) {
      const Scalars scalars{{l.inputs[kUpdateLr], lr}, {l.inputs[kUpdateClip], clip}, l.In<int64_t>(kUpdateStep), l.In<bool>(kUpdateApply)};
      UpdateTiles<Rule, T> update{
          n, Blocks(n), options, lr_scale, scalars, l.In<T>(kUpdateGradient), {l.In<T>(kUpdateParameter)}, {l.Out<T>(0)}};
      for (int k = 1; k <= Rule::kStates; ++k) {
        update.present[k] = l.In<T>(static_cast<size_t>(kUpdateStates + k - 1));
        update.next[k] = l.Out<T>(static_cast<size_t>(k));
      }
      ForEachRow(update.blocks, l.stream, update);
    });
  });
}

size_t NumStates(const KernelCall& call) { return call.outputs.size() - 1; }

std::unique_ptr<Kernel> MakeSgd(const KernelCall& call, const KernelSite&) {
  const scalar::SgdOptions options = SgdOptionsOf(call.attributes);
  return NumStates(call) == 0 ? Updates<SgdRule>(call, options) : Updates<MomentumRule>(call, options);
}

std::unique_ptr<Kernel> MakeAdam(const KernelCall& call, const KernelSite&) {
  const scalar::AdamOptions options = AdamOptionsOf(call.attributes);
  return NumStates(call) == 2 ? Updates<AdamRule>(call, options) : Updates<AmsgradRule>(call, options);
}

std::unique_ptr<Kernel> MakeRmsProp(const KernelCall& call, const KernelSite&) {
  const scalar::RmsPropOptions options = RmsPropOptionsOf(call.attributes);
  switch (NumStates(call)) {
    case 1: return Updates<RmsPropRule<1>>(call, options);
    case 2: return Updates<RmsPropRule<2>>(call, options);
    default: return Updates<RmsPropRule<3>>(call, options);
  }
}

std::unique_ptr<Kernel> MakeAdagrad(const KernelCall& call, const KernelSite&) {
  return Updates<AdagradRule>(call, AdagradOptionsOf(call.attributes));
}

std::unique_ptr<Kernel> MakeAdadelta(const KernelCall& call, const KernelSite&) {
  return Updates<AdadeltaRule>(call, AdadeltaOptionsOf(call.attributes));
}

std::unique_ptr<Kernel> MakeAdamax(const KernelCall& call, const KernelSite&) {
  return Updates<AdamaxRule>(call, AdamaxOptionsOf(call.attributes));
}

std::unique_ptr<Kernel> MakeLambDirection(const KernelCall& call, const KernelSite&) {
  return Updates<LambRule>(call, AdamOptionsOf(call.attributes));
}

// parameter - lr * trust ratio * direction.
template <typename T>
struct LambTile {
  int64_t n;
  double lr_scale;
  FloatOperand lr;
  const T *parameter_squares, *direction_squares;
  const bool* apply;
  const T *parameter, *direction;
  T* next;

  GRADLOOM_DEVICE void operator()(const Block& block, int64_t tile) const {
    const bool applies = apply == nullptr || *apply;
    const T rate = static_cast<T>(lr[0] * lr_scale) * scalar::TrustRatio(*parameter_squares, *direction_squares);
    const int64_t begin = tile * kTile, end = n - begin < kTile ? n : begin + kTile;
    for (int64_t i = begin + block.thread(); i < end; i += block.threads()) {
      next[i] = applies ? parameter[i] - rate * direction[i] : parameter[i];
    }
  }
};

std::unique_ptr<Kernel> MakeLambApply(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[kLambParameter].shape.elements();
  const double lr_scale = LrScale(call.attributes);
  const DType lr = call.inputs[kLambLr].dtype;
  const OperandCounts operands(call);
  return WithFloat(call.inputs[kLambParameter].dtype, [&]<typename T>(std::type_identity<T>) {
    return Runs([=](const Launch& l) {
      const LambTile<T> tile{n,
                             lr_scale,
                             {l.inputs[kLambLr], lr},
                             l.In<T>(kLambParameterSquares),
                             l.In<T>(kLambDirectionSquares),
                             operands.In<bool>(l, kLambApply),
                             l.In<T>(kLambParameter),
                             l.In<T>(kLambDirection),
                             l.Out<T>(0)};
      ForEachRow(Tiles(n), l.stream, tile);
    });
  });
}

constexpr CudaKernel kKernels[] = {
    {"cuda.gradloom.Sgd", MakeSgd},
    {"cuda.gradloom.Adam", MakeAdam},
    {"cuda.gradloom.RmsProp", MakeRmsProp},
    {"cuda.gradloom.Adagrad", MakeAdagrad},
    {"cuda.gradloom.Adadelta", MakeAdadelta},
    {"cuda.gradloom.Adamax", MakeAdamax},
    {"cuda.gradloom.LambDirection", MakeLambDirection},
    {"cuda.gradloom.LambApply", MakeLambApply},
};

}  // namespace

std::span<const CudaKernel> OptimizerKernels() { return kKernels; }

}  // namespace gradloom::cuda
