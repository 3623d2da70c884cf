// Convolutions by oneDNN: forward, the gradients of input and weights, and transposed, which is the gradient
// of the input of the convolution the other way.
#include <string>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/windows.h"

namespace gradloom {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

// y = x * w as oneDNN states it, all tensors row-major.
struct Convolution {
  Desc x, w, y;
  Dims strides, dilations, pads_begin, pads_end;

  Convolution(const Shape& x_shape, const Shape& w_shape, const Shape& y_shape, int64_t groups, const Windows& windows)
      : x(OneDnnDesc(x_shape.dims())),
        y(OneDnnDesc(y_shape.dims())),
        strides(windows.strides),
        dilations(windows.dilations),
        pads_begin(windows.pads_begin),
        pads_end(windows.pads_end) {
    Dims w_dims = w_shape.dims();
    if (groups > 1) {
      w_dims[0] /= groups;
      w_dims.insert(w_dims.begin(), groups);
    }
    w = OneDnnDesc(w_dims);
    for (auto& dilation : dilations) --dilation;  // oneDNN counts the gaps
    // The last windows may end before the input does; oneDNN wants the padding that they see.
    for (size_t i = 0; i < strides.size(); ++i) {
      const auto axis = static_cast<int>(i) + 2;
      const int64_t reach = (windows.kernel[i] - 1) * windows.dilations[i] + 1;
      pads_end[i] = (y_shape[axis] - 1) * strides[i] + reach - x_shape[axis] - pads_begin[i];
    }
  }
};

std::vector<int64_t> KernelExtents(const Shape& weights) { return {weights.begin() + 2, weights.end()}; }

Convolution ConvolutionOf(const KernelCall& call) {
  const int64_t groups = call.attributes.Int("group", 1);
  const auto shape = [&](size_t i) -> const Shape& { return call.inputs[i].shape; };
  const Shape& out = call.outputs[0].shape;
  if (call.op == "ConvTranspose") {
    return {out, shape(1), shape(0), groups, TransposedWindowsOf(call.attributes, shape(0), out, KernelExtents(shape(1)))};
  }
  if (call.op == "ConvGradInput") return {out, shape(1), shape(0), groups, WindowsOf(call.attributes, out, KernelExtents(shape(1)))};
  if (call.op == "ConvGradWeight") return {shape(0), out, shape(1), groups, WindowsOf(call.attributes, shape(0), KernelExtents(out))};
  return {shape(0), shape(1), out, groups, WindowsOf(call.attributes, shape(0), KernelExtents(shape(1)))};
}

bool HasBias(const KernelCall& call) { return call.domain.empty() && HasInput(call, 2); }

dnnl::convolution_forward::primitive_desc ForwardDesc(const Convolution& c, const Desc* bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  if (bias != nullptr) {
    return {OneDnnEngine(), kind, algorithm, c.x, c.w, *bias, c.y, c.strides, c.dilations, c.pads_begin, c.pads_end, OneDnnUserScratch()};
  }
  return {OneDnnEngine(), kind, algorithm, c.x, c.w, c.y, c.strides, c.dilations, c.pads_begin, c.pads_end, OneDnnUserScratch()};
}

// The primitive of a call and where its operands go, outputs after inputs.
struct Prepared {
  dnnl::primitive primitive;
  std::vector<OneDnnPrimitive::Argument> arguments;
  int64_t scratch_bytes = 0;
};

template <typename P>
Prepared WithScratch(const typename P::primitive_desc& desc, std::vector<OneDnnPrimitive::Argument> arguments) {
  arguments.push_back({DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()});
  return {P(desc), std::move(arguments), static_cast<int64_t>(desc.scratchpad_desc().get_size())};
}

Prepared Prepare(const KernelCall& call) {
  const OneDnnTeam team(call.threads);
  const Convolution c = ConvolutionOf(call);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  if (call.op == "Conv") {
    const Desc bias = OneDnnDesc({call.outputs[0].shape[1]});
    std::vector<OneDnnPrimitive::Argument> arguments = {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_WEIGHTS, c.w}};
    if (HasBias(call)) arguments.push_back({DNNL_ARG_BIAS, bias});
    arguments.push_back({DNNL_ARG_DST, c.y});
    return WithScratch<dnnl::convolution_forward>(ForwardDesc(c, HasBias(call) ? &bias : nullptr), std::move(arguments));
  }
  const auto hint = ForwardDesc(c, nullptr);
  if (call.op == "ConvGradWeight") {
    const dnnl::convolution_backward_weights::primitive_desc desc(OneDnnEngine(), algorithm, c.x, c.w, c.y, c.strides, c.dilations,
                                                                  c.pads_begin, c.pads_end, hint, OneDnnUserScratch());
    return WithScratch<dnnl::convolution_backward_weights>(desc,
                                                           {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_DIFF_WEIGHTS, c.w}});
  }
  const dnnl::convolution_backward_data::primitive_desc desc(OneDnnEngine(), algorithm, c.x, c.w, c.y, c.strides, c.dilations, c.pads_begin,
                                                             c.pads_end, hint, OneDnnUserScratch());
  return WithScratch<dnnl::convolution_backward_data>(desc, {{DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_WEIGHTS, c.w}, {DNNL_ARG_DIFF_SRC, c.x}});
}

class ConvolutionKernel : public Kernel {
 public:
  explicit ConvolutionKernel(const KernelCall& call) : ConvolutionKernel(call, Prepare(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    if (has_bias_ && !adds_bias_) {
      primitive_.Run({inputs[0], inputs[1], inputs[2], outputs[0], scratch});
      return;
    }
    primitive_.Run({inputs[0], inputs[1], outputs[0], scratch});
    if (adds_bias_) AddBias(static_cast<const float*>(inputs[2]), static_cast<float*>(outputs[0]));
  }

 private:
  ConvolutionKernel(const KernelCall& call, Prepared prepared)
      : primitive_(std::move(prepared.primitive), std::move(prepared.arguments), call.threads),
        has_bias_(HasBias(call)),
        adds_bias_(has_bias_ && call.op == "ConvTranspose"),
        planes_(call.outputs[0].shape[0] * call.outputs[0].shape[1]),
        channels_(call.outputs[0].shape[1]),
        points_(Product(call.outputs[0].shape, 2, call.outputs[0].shape.rank())),
        threads_(ThreadsFor(planes_ * points_, 1 << 15, call.threads)) {}

  void AddBias(const float* bias, float* y) const {
    ParallelFor(planes_, threads_, [&](int64_t plane) {
      const float value = bias[plane % channels_];
      float* to = y + plane * points_;
      for (int64_t i = 0; i < points_; ++i) to[i] += value;
    });
  }

  OneDnnPrimitive primitive_;
  bool has_bias_, adds_bias_;
  int64_t planes_, channels_, points_;
  int threads_;
};

int64_t Scratch(const KernelCall& call) { return Prepare(call).scratch_bytes; }

std::string Rejects(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  const int rank = call.outputs[0].shape.rank();
  if (rank < 3 || rank > 5) return "rank " + std::to_string(rank);
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.present() && operand.shape.elements() == 0) return "nothing to compute";
    }
  }
  return "";
}

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .scratch_bytes = Scratch},
          .make = MakeKernel<ConvolutionKernel>};
}

constexpr CpuKernel kKernels[] = {
    Row("onednn.Conv", "Conv", ""),
    Row("onednn.ConvTranspose", "ConvTranspose", ""),
    Row("onednn.ConvGradInput", "ConvGradInput", "gradloom"),
    Row("onednn.ConvGradWeight", "ConvGradWeight", "gradloom"),
};

}  // namespace

std::span<const CpuKernel> CpuConvolutionKernels() { return kKernels; }

}  // namespace gradloom
