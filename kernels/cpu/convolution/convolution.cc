// Convolutions by oneDNN: forward, the gradients of input and weights, and transposed, which is the gradient of the input of the
// corresponding convolution. In float32, and in bfloat16 if the machine has instructions for it.
#include "kernels/catalog/convolution.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/convolution/convolution_desc.h"
#include "kernels/cpu/convolution/convolution_weights.h"
#include "kernels/cpu/convolution/dense_weights.h"
#include "kernels/cpu/convolution/depthwise.h"
#include "kernels/cpu/convolution/depthwise_convolution.h"
#include "kernels/cpu/convolution/grouped_convolution.h"
#include "kernels/cpu/convolution/pair_weights.h"
#include "kernels/cpu/convolution/window_convolution.h"
#include "kernels/cpu/convolution/window_weights.h"
#include "kernels/cpu/convolution/winograd.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"

namespace gradloom {
namespace {

class ConvolutionKernel : public Kernel {
 public:
  explicit ConvolutionKernel(const KernelCall& call) : ConvolutionKernel(call, PrepareConvolution(call, IsChannelsLast(call))) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    if (has_bias_ && !adds_bias_) {
      primitive_.Run({inputs[0], inputs[1], inputs[2], outputs[0], scratch});
      return;
    }
    primitive_.Run({inputs[0], inputs[1], outputs[0], scratch});
    if (adds_bias_) AddBias(static_cast<const float*>(inputs[2]), static_cast<float*>(outputs[0]));
  }

 private:
  ConvolutionKernel(const KernelCall& call, PreparedConvolution prepared)
      : primitive_(prepared.make, std::move(prepared.arguments), call.threads),
        has_bias_(HasConvolutionBias(call)),
        adds_bias_(has_bias_ && call.op == "ConvTranspose"),
        channels_(call.outputs[0].shape[1]),
        points_(IsChannelsLast(call) ? 1 : Product(call.outputs[0].shape, 2, call.outputs[0].shape.rank())),
        images_(call.outputs[0].shape.elements() / (channels_ * points_)),
        threads_(ThreadsFor(call.outputs[0].shape.elements(), 1 << 15, call.threads)) {}

  // y is stored as [images_, channels_, points_].
  void AddBias(const float* bias, float* y) const {
    ParallelFor(images_, threads_, [&](int64_t image) {
      float* to = y + image * channels_ * points_;
      for (int64_t c = 0; c < channels_; ++c) {
        for (int64_t i = 0; i < points_; ++i) *to++ += bias[c];
      }
    });
  }

  OneDnnPrimitive primitive_;
  bool has_bias_, adds_bias_;
  int64_t channels_, points_, images_;
  int threads_;
};

int64_t Scratch(const KernelCall& call) {
  if (call.op == "ConvGradWeight") return ConvolutionWeightsScratch(call);
  return PrepareConvolution(call, IsChannelsLast(call)).scratch_bytes;
}

std::unique_ptr<Kernel> Make(const KernelCall& call) {
  if (call.op == "ConvGradWeight") return MakeConvolutionWeights(call);
  return std::make_unique<ConvolutionKernel>(call);
}

// Requires channels-last x and y, and the weights in the library's layout for these.
std::string RejectsChannelsLast(const KernelCall& call) {
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  const Layout last = ChannelsLast(operands.x->shape.rank());
  for (const OperandType* operand : {operands.x, operands.y}) {
    if (!SameMemoryOrder(operand->layout, last, operand->shape)) return "layout " + operand->layout.ToString();
  }
  if (HasConvolutionBias(call) && !call.inputs[2].layout.plain()) return "layout " + call.inputs[2].layout.ToString();
  try {
    const auto wanted = ConvolutionWeightLayout(PrepareConvolution(call, true).weights, call.attributes.Int("group", 1) > 1);
    if (!wanted || !SameMemoryOrder(operands.w->layout, *wanted, operands.w->shape)) return "weights " + operands.w->layout.ToString();
  } catch (const dnnl::error&) {
    return "nothing in oneDNN with channels innermost";
  }
  return "";
}

std::string RejectsOperands(const KernelCall& call, DType dtype) {
  const int rank = call.outputs[0].shape.rank();
  if (rank < 3 || rank > 5) return "rank " + std::to_string(rank);
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present()) continue;
      if (operand.dtype != dtype) return std::string(DTypeName(operand.dtype));
      if (operand.shape.elements() == 0) return "nothing to compute";
    }
  }
  return "";
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsOperands(call, DType::kFloat32); !why.empty()) return why;
  return IsChannelsLast(call) ? RejectsChannelsLast(call) : "";
}

PreparedConvolution PrepareForward(const KernelCall& gradient) {
  KernelCall forward = gradient;
  forward.op = "Conv", forward.domain = "";
  forward.inputs = {gradient.inputs[0], gradient.outputs[0]}, forward.outputs = {gradient.inputs[1]};
  return PrepareConvolution(forward, true);
}

// The layout in which the forward convolution reads the weights, since the optimizer needs the gradient in it.
std::optional<Layout> ForwardWeightLayout(const KernelCall& gradient) {
  return ConvolutionWeightLayout(PrepareForward(gradient).weights, false);
}

// The same, plain if the forward convolution has no optimized implementation with channels innermost.
Layout ForwardWeightLayoutOrPlain(const KernelCall& gradient) {
  try {
    const PreparedConvolution forward = PrepareForward(gradient);
    if (!IsSlowConvolution(forward)) return ConvolutionWeightLayout(forward.weights, false).value_or(Layout());
  } catch (const dnnl::error&) {
    // A plain convolution, too.
  }
  return {};
}

// Whether a plain call is faster channels-last: if the library, or one of our kernels, has an optimized implementation for it.
bool Prefers(KernelCall& call) {
  if (PrefersWinograd(call) || PrefersGroupedConvolution(call) || PrefersDepthwiseConvolution(call) || PrefersWindowConvolution(call)) {
    return true;
  }
  std::optional<Layout> weights;
  try {
    if (call.op == "ConvGradWeight" && PrefersPairWeights(call)) {
      weights = ChannelsLast(call.outputs[0].shape.rank());
    } else if (ServesDenseWeights(call)) {
      weights = ForwardWeightLayout(call);
    } else if (ServesWindowWeights(call)) {
      weights = ForwardWeightLayoutOrPlain(call);
    } else {
      const PreparedConvolution prepared = PrepareConvolution(call, true);
      if (IsSlowConvolution(prepared)) return PrefersDepthwise(call);
      weights = ConvolutionWeightLayout(prepared.weights, call.attributes.Int("group", 1) > 1);
    }
  } catch (const dnnl::error&) {
    return PrefersDepthwise(call);
  }
  if (!weights) return PrefersDepthwise(call);
  SetConvolutionLayouts(call, weights);
  return true;
}

// Runs a plan compiled for a machine with bfloat16 arithmetic on one without it: the float32 kernel on widened plain operands, in memory of
// its own. Correct but slow.
class Bfloat16Fallback : public Kernel {
 public:
  explicit Bfloat16Fallback(const KernelCall& call) : call_(call), in_(call.inputs.size()), out_(call.outputs.size()) {
    for (auto* operands : {&call_.inputs, &call_.outputs}) {
      for (OperandType& operand : *operands) {
        Buffers& buffers = operands == &call_.inputs ? inputs_ : outputs_;
        buffers.layouts.push_back(std::exchange(operand.layout, {}));
        operand.dtype = operand.present() ? DType::kFloat32 : operand.dtype;
        buffers.half.emplace_back(DType::kBfloat16, operand.shape);
        buffers.wide.emplace_back(DType::kFloat32, operand.shape);
      }
    }
    const KernelRow& row = *ChooseKernel(DeviceKind::kCpu, call_);
    kernel_ = MakeCpuKernel(row, call_);
    scratch_ = Tensor(DType::kUint8, {row.scratch_bytes == nullptr ? 1 : std::max<int64_t>(row.scratch_bytes(call_), 1)});
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void* stream) override {
    for (size_t i = 0; i < in_.size(); ++i) {
      if (!call_.inputs[i].present()) continue;
      const Shape& shape = call_.inputs[i].shape;
      FromLayout(inputs_.layouts[i], shape, 2, inputs[i], inputs_.half[i].data());
      LoadFloats(BestLoops(), DType::kBfloat16, inputs_.half[i].data(), 0, shape.elements(), static_cast<float*>(inputs_.wide[i].data()));
      in_[i] = inputs_.wide[i].data();
    }
    for (size_t i = 0; i < out_.size(); ++i) out_[i] = call_.outputs[i].present() ? outputs_.wide[i].data() : nullptr;
    kernel_->Run(in_.data(), out_.data(), scratch_.data(), stream);
    for (size_t i = 0; i < out_.size(); ++i) {
      if (out_[i] == nullptr) continue;
      const Shape& shape = call_.outputs[i].shape;
      StoreFloats(BestLoops(), DType::kBfloat16, static_cast<const float*>(out_[i]), shape.elements(), outputs_.half[i].data(), 0);
      ToLayout(outputs_.layouts[i], shape, 2, outputs_.half[i].data(), outputs[i]);
    }
  }

 private:
  struct Buffers {
    std::vector<Layout> layouts;
    std::vector<Tensor> half, wide;
  };

  KernelCall call_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  Buffers inputs_, outputs_;
  std::unique_ptr<Kernel> kernel_;
  Tensor scratch_;
};

// Whether the library has an optimized implementation of a bfloat16 convolution, with channels innermost or, where there are no groups,
// plain, as of a first layer.
bool IsVectorizedInBfloat16(const KernelCall& call) {
  if (call.op == "ConvGradWeight" && PrefersPairWeights(call)) return true;
  if (IsVectorizedChannelsLast(call)) return true;
  if (call.attributes.Int("group", 1) > 1) return false;
  try {
    return !IsSlowConvolution(PrepareConvolution(PlainCall(call), false));
  } catch (const dnnl::error&) {
    return false;
  }
}

// Whether a convolution is vectorized in float32, by the library or by our own kernels, but not in bfloat16, as the gradient of the input
// of strided depthwise convolutions, or in groups whose channels do not fill a vector.
bool IsFasterWidened(const KernelCall& call) {
  if (IsVectorizedInBfloat16(call)) return false;
  KernelCall wide = PlainCall(call);
  for (auto* operands : {&wide.inputs, &wide.outputs}) {
    for (OperandType& operand : *operands) {
      if (operand.present()) operand.dtype = DType::kFloat32;
    }
  }
  return Prefers(wide);
}

// A plan from a machine without bfloat16 must run, whatever layouts it has.
std::string RejectsBfloat16(const KernelCall& call) {
  if (std::string why = RejectsOperands(call, DType::kBfloat16); !why.empty()) return why;
  if (!HasBfloat16()) return "";
  if (IsFasterWidened(call)) return "the float32 kernel on widened operands is faster";
  if (IsChannelsLast(call)) return RejectsChannelsLast(call);
  try {
    PrepareConvolution(call, false);
  } catch (const dnnl::error&) {
    return "nothing in oneDNN for plain operands";
  }
  return "";
}

// Always positive, because whether a launch has scratch memory must not depend on the machine.
int64_t Bfloat16Scratch(const KernelCall& call) { return HasBfloat16() ? std::max(Scratch(call), kAlignmentBytes) : kAlignmentBytes; }

std::unique_ptr<Kernel> MakeBfloat16(const KernelCall& call) {
  if (HasBfloat16()) return Make(call);
  return std::make_unique<Bfloat16Fallback>(call);
}

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .prefers = Prefers, .scratch_bytes = Scratch},
          .make = Make};
}

constexpr CpuKernel Bfloat16(std::string_view name, std::string_view op, std::string_view domain) {
  return {
      .row = {.name = name, .op = op, .domain = domain, .rejects = RejectsBfloat16, .prefers = Prefers, .scratch_bytes = Bfloat16Scratch},
      .make = MakeBfloat16};
}

constexpr CpuKernel kKernels[] = {
    Row("onednn.Conv", "Conv", ""),
    Row("onednn.ConvTranspose", "ConvTranspose", ""),
    Row("onednn.ConvGradInput", "ConvGradInput", "gradloom"),
    Row("onednn.ConvGradWeight", "ConvGradWeight", "gradloom"),
};
constexpr CpuKernel kBfloat16[] = {
    Bfloat16("onednn.bfloat16.Conv", "Conv", ""),
    Bfloat16("onednn.bfloat16.ConvGradInput", "ConvGradInput", "gradloom"),
    Bfloat16("onednn.bfloat16.ConvGradWeight", "ConvGradWeight", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuConvolutionKernels() { return kKernels; }

std::span<const CpuKernel> CpuFastBfloat16Kernels() { return HasFastBfloat16() ? std::span(kBfloat16) : std::span<const CpuKernel>(); }
std::span<const CpuKernel> CpuSlowBfloat16Kernels() { return HasFastBfloat16() ? std::span<const CpuKernel>() : std::span(kBfloat16); }

}  // namespace gradloom
