// Optimizers: one pass over the elements. The next values may overwrite the current ones. 16-bit gradients are widened, and the parameter's
// 16-bit copy is rounded, in tiles.
#include <algorithm>
#include <array>
#include <cstring>
#include <variant>

#include "kernels/catalog/update.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

constexpr int64_t kElementsPerThread = 1 << 14;
constexpr int64_t kTile = 512;  // elements that are widened or rounded at a time

using Options = std::variant<scalar::SgdOptions, scalar::AdamOptions, scalar::NAdamOptions, scalar::RAdamOptions, scalar::LionOptions,
                             scalar::RmsPropOptions, scalar::AdagradOptions, scalar::AdadeltaOptions, scalar::AdamaxOptions,
                             scalar::MovingAverageOptions>;

Options OptionsOf(const KernelCall& call) {
  if (call.op == "Sgd") return SgdOptionsOf(call.attributes);
  if (call.op == "NAdam") return NAdamOptionsOf(call.attributes);
  if (call.op == "RAdam") return RAdamOptionsOf(call.attributes);
  if (call.op == "Lion") return LionOptionsOf(call.attributes);
  if (call.op == "RmsProp") return RmsPropOptionsOf(call.attributes);
  if (call.op == "Adagrad") return AdagradOptionsOf(call.attributes);
  if (call.op == "Adadelta") return AdadeltaOptionsOf(call.attributes);
  if (call.op == "Adamax") return AdamaxOptionsOf(call.attributes);
  if (call.op == "MovingAverage") return MovingAverageOptionsOf(call.attributes);
  return AdamOptionsOf(call.attributes);
}

// The loop for the number of states; -1: none.
int LoopOf(const KernelCall& call) {
  const auto states = static_cast<int>(StatesOf(call));
  const auto loop = [](UpdateLoop l) { return static_cast<int>(l); };
  if (call.op == "Sgd") return states == 0 ? loop(UpdateLoop::kSgd) : states == 1 ? loop(UpdateLoop::kMomentum) : -1;
  if (call.op == "Adam") return states == 2 ? loop(UpdateLoop::kAdam) : states == 3 ? loop(UpdateLoop::kAmsgrad) : -1;
  if (call.op == "NAdam") return states == 2 ? loop(UpdateLoop::kNAdam) : -1;
  if (call.op == "RAdam") return states == 2 ? loop(UpdateLoop::kRAdam) : -1;
  if (call.op == "Lion") return states == 1 ? loop(UpdateLoop::kLion) : -1;
  if (call.op == "RmsProp") return states >= 1 && states <= 3 ? loop(UpdateLoop::kRmsProp1) + states - 1 : -1;
  if (call.op == "Adagrad") return states == 1 ? loop(UpdateLoop::kAdagrad) : -1;
  if (call.op == "Adadelta") return states == 2 ? loop(UpdateLoop::kAdadelta) : -1;
  if (call.op == "Adamax") return states == 2 ? loop(UpdateLoop::kAdamax) : -1;
  if (call.op == "LambDirection") return states == 2 ? loop(UpdateLoop::kLamb) : -1;
  if (call.op == "MovingAverage") return states == 0 ? loop(UpdateLoop::kMovingAverage) : -1;
  return -1;
}

// A scalar of either floating-point type.
double ScalarAt(const KernelCall& call, const void* const* inputs, size_t i) {
  return ElementAsDouble({call.inputs[i].dtype, Shape{}, inputs[i]}, 0);
}

class Update : public Kernel {
 public:
  explicit Update(const KernelCall& call)
      : call_(call),
        loop_(BestLoops().updates[LoopOf(call)]),
        options_(OptionsOf(call)),
        lr_scale_(LrScale(call.attributes)),
        elements_(call.inputs[kUpdateParameter].layout.elements(call.inputs[kUpdateParameter].shape)),
        states_(StatesOf(call)),
        copy_type_(CopyTypeOf(call.attributes)),
        threads_(ThreadsFor(elements_, kElementsPerThread, call.threads)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    if (HasInput(call_, kUpdateApply) && !*static_cast<const bool*>(inputs[kUpdateApply])) return KeepAll(inputs, outputs);
    const double lr = ScalarAt(call_, inputs, kUpdateLr) * lr_scale_;
    const int64_t step = *static_cast<const int64_t*>(inputs[kUpdateStep]);
    const float clip = HasInput(call_, kUpdateClip) ? *static_cast<const float*>(inputs[kUpdateClip]) : 1.0f;
    std::visit(
        [&](const auto& options) {
          const auto coefficients = scalar::MakeStep<float>(options, lr, step);
          const auto update = [&](const float* gradient, int64_t begin, int64_t n) {
            UpdateArgs args{};
            args.step = &coefficients;
            args.gradient = gradient;
            args.parameter = static_cast<const float*>(inputs[kUpdateParameter]) + begin;
            args.next = static_cast<float*>(outputs[0]) + begin;
            for (size_t k = 0; k < states_; ++k) {
              args.states[k] = static_cast<const float*>(inputs[kUpdateStates + k]) + begin;
              args.next_states[k] = static_cast<float*>(outputs[1 + k]) + begin;
            }
            args.clip = clip;
            args.n = n;
            loop_(args);
            RoundCopy(args.next, n, outputs, begin);
          };
          const DType dtype = call_.inputs[kUpdateGradient].dtype;
          ParallelRanges(elements_, 16, threads_, [&](int64_t begin, int64_t end) {
            const auto* const wide = static_cast<const float*>(dtype == DType::kFloat32 ? inputs[kUpdateGradient] : nullptr);
            if (wide != nullptr && copy_type_ == DType::kUndefined) return update(wide + begin, begin, end - begin);
            alignas(64) float tile[kTile];
            for (int64_t at = begin; at < end; at += kTile) {
              const int64_t n = std::min(kTile, end - at);
              if (wide == nullptr) LoadFloats(BestLoops(), dtype, inputs[kUpdateGradient], at, n, tile);
              update(wide != nullptr ? wide + at : tile, at, n);
            }
          });
        },
        options_);
  }

 private:
  void KeepAll(const void* const* inputs, void* const* outputs) const {
    for (size_t k = 0; k <= states_; ++k) {
      const size_t input = k == 0 ? static_cast<size_t>(kUpdateParameter) : kUpdateStates + k - 1;
      if (inputs[input] != outputs[k]) std::memcpy(outputs[k], inputs[input], static_cast<size_t>(elements_) * sizeof(float));
    }
    RoundCopy(static_cast<const float*>(outputs[0]), elements_, outputs, 0);
  }

  // Writes elements `begin` to `begin` + n of the parameter's copy, if there is one, from its next values.
  void RoundCopy(const float* next, int64_t n, void* const* outputs, int64_t begin) const {
    if (copy_type_ != DType::kUndefined) StoreFloats(BestLoops(), copy_type_, next, n, outputs[1 + states_], begin);
  }

  KernelCall call_;
  UpdateFunction loop_;
  Options options_;
  double lr_scale_;
  int64_t elements_;
  size_t states_;
  DType copy_type_;
  int threads_;
};

// parameter - lr * trust ratio * direction.
class LambApply : public Kernel {
 public:
  explicit LambApply(const KernelCall& call)
      : call_(call),
        lr_scale_(LrScale(call.attributes)),
        elements_(call.inputs[kLambParameter].shape.elements()),
        copy_type_(CopyTypeOf(call.attributes)) {}

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    const float* parameter = static_cast<const float*>(inputs[kLambParameter]);
    float* next = static_cast<float*>(outputs[0]);
    if (HasInput(call_, kLambApply) && !*static_cast<const bool*>(inputs[kLambApply])) {
      if (next != parameter) std::memcpy(next, parameter, static_cast<size_t>(elements_) * sizeof(float));
      if (copy_type_ != DType::kUndefined) StoreFloats(BestLoops(), copy_type_, next, elements_, outputs[1], 0);
      return;
    }
    const float ratio = scalar::TrustRatio(*static_cast<const float*>(inputs[kLambParameterSquares]),
                                           *static_cast<const float*>(inputs[kLambDirectionSquares]));
    const float rate = static_cast<float>(ScalarAt(call_, inputs, kLambLr) * lr_scale_) * ratio;
    const float* direction = static_cast<const float*>(inputs[kLambDirection]);
    ParallelRanges(elements_, 16, ThreadsFor(elements_, kElementsPerThread, call_.threads), [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kTile) {
        const int64_t past = std::min(at + kTile, end);
        for (int64_t i = at; i < past; ++i) next[i] = parameter[i] - rate * direction[i];
        if (copy_type_ != DType::kUndefined) StoreFloats(BestLoops(), copy_type_, next + at, past - at, outputs[1], at);
      }
    });
  }

 private:
  KernelCall call_;
  double lr_scale_;
  int64_t elements_;
  DType copy_type_;
};

std::string RejectsUpdate(const KernelCall& call) {
  if (LoopOf(call) < 0 || call.inputs.size() != kUpdateStates + StatesOf(call)) return "an unexpected number of optimizer states";
  if (std::string why = RejectsUnequalOperands(call); !why.empty()) return why;
  if (HasInput(call, kUpdateClip) && call.inputs[kUpdateClip].dtype != DType::kFloat32) return "a clip factor that is not float32";
  const DType dtype = call.inputs[kUpdateParameter].dtype;
  return dtype == DType::kFloat32 ? "" : std::string(DTypeName(dtype));
}

std::string RejectsLambApply(const KernelCall& call) {
  if (std::string why = RejectsLayouts(call); !why.empty()) return why;
  for (int i : {kLambParameter, kLambDirection, kLambParameterSquares, kLambDirectionSquares}) {
    if (call.inputs[static_cast<size_t>(i)].dtype != DType::kFloat32) return "operands that are not float32";
  }
  return "";
}

constexpr Aliasing kInPlace[] = {{0, kUpdateParameter}, {1, kUpdateStates}, {2, kUpdateStates + 1}, {3, kUpdateStates + 2}};
// The direction is not a next parameter, but may overwrite the gradient.
constexpr Aliasing kDirectionInPlace[] = {{0, kUpdateGradient}, {1, kUpdateStates}, {2, kUpdateStates + 1}};
constexpr Aliasing kApplyInPlace[] = {{0, kLambParameter}, {0, kLambDirection}};

constexpr CpuKernel Row(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "gradloom", .rejects = RejectsUpdate, .may_alias = kInPlace},
          .make = MakeKernel<Update>};
}

constexpr CpuKernel kKernels[] = {
    Row("cpu.Sgd", "Sgd"),
    Row("cpu.Adam", "Adam"),
    Row("cpu.NAdam", "NAdam"),
    Row("cpu.RAdam", "RAdam"),
    Row("cpu.Lion", "Lion"),
    Row("cpu.RmsProp", "RmsProp"),
    Row("cpu.Adagrad", "Adagrad"),
    Row("cpu.Adadelta", "Adadelta"),
    Row("cpu.Adamax", "Adamax"),
    Row("cpu.MovingAverage", "MovingAverage"),
    {.row = {.name = "cpu.LambDirection",
             .op = "LambDirection",
             .domain = "gradloom",
             .rejects = RejectsUpdate,
             .may_alias = kDirectionInPlace},
     .make = MakeKernel<Update>},
    {.row = {.name = "cpu.LambApply", .op = "LambApply", .domain = "gradloom", .rejects = RejectsLambApply, .may_alias = kApplyInPlace},
     .make = MakeKernel<LambApply>},
};

}  // namespace

std::span<const CpuKernel> CpuOptimizerKernels() { return kKernels; }

}  // namespace gradloom
