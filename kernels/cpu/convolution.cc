// Conv, gradloom.ConvGradInput and gradloom.ConvGradWeight through oneDNN, in plain layouts.
#include <algorithm>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>

#include "kernels/cpu/families.h"
#include "runtime/base/error.h"
#include "runtime/base/windows.h"

namespace gradloom {
namespace {

using Dims = dnnl::memory::dims;

// One engine for the process: it has no state of a run.
const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::format_tag PlainTag(size_t rank) {
  using Tag = dnnl::memory::format_tag;
  constexpr Tag kTags[] = {Tag::undef, Tag::a, Tag::ab, Tag::abc, Tag::abcd, Tag::abcde, Tag::abcdef};
  return kTags[rank];
}

dnnl::memory::desc Plain(const Dims& dims) { return {dims, dnnl::memory::data_type::f32, PlainTag(dims.size())}; }

Dims DimsOf(const Shape& shape) { return {shape.begin(), shape.end()}; }

// The convolution y = x * w behind a call, in oneDNN's terms.
struct Convolution {
  dnnl::memory::desc x, w, y, bias;
  Dims strides, dilations, pads_begin, pads_end;

  Convolution(const Attributes& attributes, const Shape& x_shape, const Shape& w_shape, const Shape& y_shape, bool has_bias)
      : x(Plain(DimsOf(x_shape))), y(Plain(DimsOf(y_shape))) {
    const Windows windows = WindowsOf(attributes, x_shape, {w_shape.begin() + 2, w_shape.end()});
    const int64_t groups = attributes.Int("group", 1);
    Dims weights = DimsOf(w_shape);
    if (groups > 1) {
      weights[0] /= groups;
      weights.insert(weights.begin(), groups);
    }
    w = Plain(weights);
    if (has_bias) bias = Plain({w_shape[0]});
    strides = windows.strides;
    dilations = windows.dilations;
    for (int64_t& dilation : dilations) --dilation;  // oneDNN counts the gaps
    pads_begin = windows.pads_begin;
    // What the last window does not reach is no padding to oneDNN.
    for (int i = 0; i < windows.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      const int64_t reach = (y_shape[i + 2] - 1) * windows.strides[k] + (windows.kernel[k] - 1) * windows.dilations[k] + 1;
      pads_end.push_back(reach - x_shape[i + 2] - windows.pads_begin[k]);
    }
  }

  dnnl::convolution_forward::primitive_desc Forward() const {
    return {Engine(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, x, w, bias, y, strides, dilations, pads_begin,
            pads_end};
  }
};

// A primitive with its operands' memory objects; the addresses are set at each run.
class ConvKernel : public Kernel {
 protected:
  void Bind(int argument, const dnnl::memory::desc& desc) { memory_.emplace(argument, dnnl::memory(desc, Engine(), nullptr)); }
  void Set(int argument, const void* data) { memory_.at(argument).set_data_handle(const_cast<void*>(data)); }
  void Execute() { primitive_.execute(stream_, memory_); }

  dnnl::primitive primitive_;
  dnnl::stream stream_{Engine()};
  std::unordered_map<int, dnnl::memory> memory_;
};

bool HasBias(const KernelCall& call) { return call.inputs.size() > 2 && call.inputs[2].present(); }

class ConvForward : public ConvKernel {
 public:
  explicit ConvForward(const KernelCall& call) : has_bias_(HasBias(call)) {
    const Convolution c(call.attributes, call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape, has_bias_);
    primitive_ = dnnl::convolution_forward(c.Forward());
    Bind(DNNL_ARG_SRC, c.x);
    Bind(DNNL_ARG_WEIGHTS, c.w);
    if (has_bias_) Bind(DNNL_ARG_BIAS, c.bias);
    Bind(DNNL_ARG_DST, c.y);
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    Set(DNNL_ARG_SRC, inputs[0]);
    Set(DNNL_ARG_WEIGHTS, inputs[1]);
    if (has_bias_) Set(DNNL_ARG_BIAS, inputs[2]);
    Set(DNNL_ARG_DST, outputs[0]);
    Execute();
  }

 private:
  bool has_bias_;
};

class ConvGradInput : public ConvKernel {
 public:
  explicit ConvGradInput(const KernelCall& call) {
    const Convolution c(call.attributes, call.outputs[0].shape, call.inputs[1].shape, call.inputs[0].shape, false);
    primitive_ = dnnl::convolution_backward_data(
        {Engine(), dnnl::algorithm::convolution_direct, c.x, c.w, c.y, c.strides, c.dilations, c.pads_begin, c.pads_end, c.Forward()});
    Bind(DNNL_ARG_DIFF_DST, c.y);
    Bind(DNNL_ARG_WEIGHTS, c.w);
    Bind(DNNL_ARG_DIFF_SRC, c.x);
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    Set(DNNL_ARG_DIFF_DST, inputs[0]);
    Set(DNNL_ARG_WEIGHTS, inputs[1]);
    Set(DNNL_ARG_DIFF_SRC, outputs[0]);
    Execute();
  }
};

class ConvGradWeight : public ConvKernel {
 public:
  explicit ConvGradWeight(const KernelCall& call) {
    const Convolution c(call.attributes, call.inputs[0].shape, call.outputs[0].shape, call.inputs[1].shape, false);
    primitive_ = dnnl::convolution_backward_weights(
        {Engine(), dnnl::algorithm::convolution_direct, c.x, c.w, c.y, c.strides, c.dilations, c.pads_begin, c.pads_end, c.Forward()});
    Bind(DNNL_ARG_SRC, c.x);
    Bind(DNNL_ARG_DIFF_DST, c.y);
    Bind(DNNL_ARG_DIFF_WEIGHTS, c.w);
  }

  void Run(const void* const* inputs, void* const* outputs, void*, void*) override {
    Set(DNNL_ARG_SRC, inputs[0]);
    Set(DNNL_ARG_DIFF_DST, inputs[1]);
    Set(DNNL_ARG_DIFF_WEIGHTS, outputs[0]);
    Execute();
  }
};

std::string Rejects(const KernelCall& call) {
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (!operand.present()) continue;
      if (operand.dtype != DType::kFloat32) return "not float32";
      if (!operand.layout.plain()) return "a blocked layout";
      if (operand.shape.elements() == 0) return "no elements";
      if (operand.shape.rank() > 5) return "more than three spatial dimensions";
    }
  }
  return "";
}

// A kernel whose preparation can fail inside the library.
template <typename T>
std::unique_ptr<Kernel> Make(const KernelCall& call) {
  try {
    return std::make_unique<T>(call);
  } catch (const dnnl::error& error) {
    throw Error(ErrorCode::kResource, "oneDNN cannot prepare " + call.op + ": " + error.what());
  }
}

constexpr CpuKernel kKernels[] = {
    {{.name = "onednn.conv", .op = "Conv", .domain = "", .rejects = Rejects}, Make<ConvForward>},
    {{.name = "onednn.conv_grad_input", .op = "ConvGradInput", .domain = "gradloom", .rejects = Rejects}, Make<ConvGradInput>},
    {{.name = "onednn.conv_grad_weight", .op = "ConvGradWeight", .domain = "gradloom", .rejects = Rejects}, Make<ConvGradWeight>},
};

}  // namespace

std::span<const CpuKernel> CpuConvolutionKernels() { return kKernels; }

}  // namespace gradloom
