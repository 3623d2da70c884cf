// Convolutions by oneDNN: forward, the gradients of input and weights, and transposed, which is the gradient
// of the input of the convolution the other way. In float32, and in bfloat16 where the machine has instructions for it.
#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/dense_weights.h"
#include "kernels/cpu/depthwise.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/winograd.h"
#include "runtime/base/windows.h"

namespace gradloom {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

// y = x * w: the operands of a call by what they are in the forward convolution.
struct Operands {
  const OperandType *x, *w, *y;
};

Operands OperandsOf(const KernelCall& call) {
  const OperandType *in = call.inputs.data(), *out = call.outputs.data();
  if (call.op == "ConvGradWeight") return {in, out, in + 1};
  if (call.op == "Conv") return {in, in + 1, out};
  return {out, in + 1, in};
}

std::vector<int64_t> KernelExtents(const Shape& weights) { return {weights.begin() + 2, weights.end()}; }

Windows WindowsOfCall(const KernelCall& call, const Operands& operands) {
  const std::vector<int64_t> kernel = KernelExtents(operands.w->shape);
  if (call.op == "ConvTranspose") return TransposedWindowsOf(call.attributes, operands.y->shape, operands.x->shape, kernel);
  return WindowsOf(call.attributes, operands.x->shape, kernel);
}

// The memory of x and y where the channels are innermost in both.
Desc ChannelsLastDesc(const Shape& shape, DType dtype) {
  Dims strides(static_cast<size_t>(shape.rank()));
  dnnl::memory::dim stride = 1;
  const std::vector<int> order = ChannelsLast(shape.rank()).order;
  for (size_t i = order.size(); i-- > 0;) {
    strides[static_cast<size_t>(order[i])] = stride;
    stride *= shape[order[i]];
  }
  return OneDnnDesc(shape.dims(), strides, dtype);
}

Desc DescOf(const OperandType& operand, bool channels_last) {
  if (channels_last) return ChannelsLastDesc(operand.shape, operand.dtype);
  return OneDnnDesc(operand.shape.dims(), {}, operand.dtype);
}

// As oneDNN states it: row-major tensors, or the channels of x and y innermost and the weights as the library likes them.
struct Convolution {
  Desc x, w, y;
  Dims strides, dilations, pads_begin, pads_end;

  Convolution(const Operands& operands, int64_t groups, const Windows& windows, bool channels_last)
      : x(DescOf(*operands.x, channels_last)),
        y(DescOf(*operands.y, channels_last)),
        strides(windows.strides),
        dilations(windows.dilations),
        pads_begin(windows.pads_begin),
        pads_end(windows.pads_end) {
    Dims w_dims = operands.w->shape.dims();
    if (groups > 1) {
      w_dims[0] /= groups;
      w_dims.insert(w_dims.begin(), groups);
    }
    const DType dtype = operands.w->dtype;
    w = channels_last ? Desc(w_dims, OneDnnType(dtype), dnnl::memory::format_tag::any) : OneDnnDesc(w_dims, {}, dtype);
    for (auto& dilation : dilations) --dilation;  // oneDNN counts the gaps
    // The last windows may end before the input does; oneDNN wants the padding that they see.
    for (size_t i = 0; i < strides.size(); ++i) {
      const auto axis = static_cast<int>(i) + 2;
      const int64_t reach = (windows.kernel[i] - 1) * windows.dilations[i] + 1;
      pads_end[i] = (operands.y->shape[axis] - 1) * strides[i] + reach - operands.x->shape[axis] - pads_begin[i];
    }
  }
};

bool IsChannelsLast(const KernelCall& call) { return !RejectsLayouts(call).empty(); }

Convolution ConvolutionOf(const KernelCall& call, bool channels_last) {
  const Operands operands = OperandsOf(call);
  return {operands, call.attributes.Int("group", 1), WindowsOfCall(call, operands), channels_last};
}

// Weights as oneDNN keeps them, [O, I, ...] or in groups [G, O / G, I, ...], as a layout of [O, I, ...]; nullopt where it
// pads groups or parts what we hold as one dimension.
std::optional<Layout> WeightLayout(const Desc& desc, bool grouped) {
  const Dims dims = desc.get_dims(), padded = desc.get_padded_dims(), strides = desc.get_strides();
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked || (grouped && dims != padded)) return std::nullopt;
  // Groups and the outputs within one are one dimension: of those with more than one element, the blocks are the inner's.
  const bool depthwise = grouped && dims[1] == 1;
  const auto ours = [&](int dim) { return !grouped ? dim : std::max(dim - 1, 0); };
  Layout layout;
  std::vector<int64_t> block(dims.size(), 1);
  for (int i = 0; i < desc.get_inner_nblks(); ++i) {
    const auto dim = static_cast<int>(desc.get_inner_idxs()[static_cast<size_t>(i)]);
    const int64_t size = desc.get_inner_blks()[static_cast<size_t>(i)];
    if (grouped && dim == (depthwise ? 1 : 0) && size > 1) return std::nullopt;
    block[static_cast<size_t>(dim)] *= size;
    layout.blocks.push_back({ours(dim), size});
  }
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if (padded[dim] != (dims[dim] + block[dim] - 1) / block[dim] * block[dim]) return std::nullopt;
  }
  std::vector<int> outer(dims.size());
  std::iota(outer.begin(), outer.end(), 0);
  std::stable_sort(outer.begin(), outer.end(),
                   [&](int a, int b) { return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)]; });
  if (grouped) {
    // Without the dimension of one element, or with both next to each other, the groups outside.
    const auto at = std::find(outer.begin(), outer.end(), depthwise ? 1 : 0);
    if (!depthwise && (at + 1 == outer.end() || *(at + 1) != 1)) return std::nullopt;
    outer.erase(at);
  }
  for (int dim : outer) layout.order.push_back(ours(dim));
  if (std::is_sorted(layout.order.begin(), layout.order.end())) layout.order.clear();
  return layout;
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

// What the library would run for a call, and where its operands go, outputs after inputs.
struct Prepared {
  std::function<dnnl::primitive()> make;
  Desc weights;
  std::vector<OneDnnPrimitive::Argument> arguments;
  int64_t scratch_bytes = 0;
  std::string implementation;
};

template <typename P>
Prepared Finish(const typename P::primitive_desc& desc, const Desc& weights, std::vector<OneDnnPrimitive::Argument> arguments) {
  for (auto& argument : arguments) {
    if (argument.id == DNNL_ARG_WEIGHTS || argument.id == DNNL_ARG_DIFF_WEIGHTS) argument.desc = weights;
  }
  arguments.push_back({DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()});
  return {[desc] { return P(desc); }, weights, std::move(arguments), static_cast<int64_t>(desc.scratchpad_desc().get_size()),
          desc.impl_info_str()};
}

// Throws dnnl::error for what the library has no implementation of.
Prepared Ask(const KernelCall& call, bool channels_last) {
  const OneDnnTeam team(call.threads);
  const Convolution c = ConvolutionOf(call, channels_last);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  if (call.op == "Conv") {
    const Desc bias = OneDnnDesc({call.outputs[0].shape[1]}, {}, call.outputs[0].dtype);
    std::vector<OneDnnPrimitive::Argument> arguments = {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_WEIGHTS, c.w}};
    if (HasBias(call)) arguments.push_back({DNNL_ARG_BIAS, bias});
    arguments.push_back({DNNL_ARG_DST, c.y});
    const auto desc = ForwardDesc(c, HasBias(call) ? &bias : nullptr);
    return Finish<dnnl::convolution_forward>(desc, desc.weights_desc(), std::move(arguments));
  }
  const auto hint = ForwardDesc(c, nullptr);
  if (call.op == "ConvGradWeight") {
    const dnnl::convolution_backward_weights::primitive_desc desc(OneDnnEngine(), algorithm, c.x, c.w, c.y, c.strides, c.dilations,
                                                                  c.pads_begin, c.pads_end, hint, OneDnnUserScratch());
    return Finish<dnnl::convolution_backward_weights>(desc, desc.diff_weights_desc(),
                                                      {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_DIFF_WEIGHTS, c.w}});
  }
  const dnnl::convolution_backward_data::primitive_desc desc(OneDnnEngine(), algorithm, c.x, c.w, c.y, c.strides, c.dilations, c.pads_begin,
                                                             c.pads_end, hint, OneDnnUserScratch());
  return Finish<dnnl::convolution_backward_data>(desc, desc.weights_desc(),
                                                 {{DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_WEIGHTS, c.w}, {DNNL_ARG_DIFF_SRC, c.x}});
}

// Equal keys mean equal answers.
std::string KeyOf(const KernelCall& call, bool channels_last) {
  std::string key = call.domain + "." + call.op + (channels_last ? " last " : " ") + std::to_string(call.threads);
  for (const auto& [name, value] : call.attributes) key += ";" + name + "=" + Attributes::ToString(value);
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    key += "|";
    for (const OperandType& operand : *operands) {
      key += operand.present() ? std::string(DTypeName(operand.dtype)) + operand.shape.ToString() + operand.layout.ToString() + "," : "-,";
    }
  }
  return key;
}

// The same, asked once: a compile, its proof and a load want to know of each call several times, and the library takes a fraction of a
// millisecond to answer.
Prepared Prepare(const KernelCall& call, bool channels_last) {
  constexpr size_t kMostKnown = 1024;
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<std::string, Prepared>;
  const std::string key = KeyOf(call, channels_last);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  Prepared prepared = Ask(call, channels_last);
  const std::lock_guard lock(mutex);
  if (known.size() >= kMostKnown) known.clear();
  return known.emplace(key, std::move(prepared)).first->second;
}

class ConvolutionKernel : public Kernel {
 public:
  explicit ConvolutionKernel(const KernelCall& call) : ConvolutionKernel(call, Prepare(call, IsChannelsLast(call))) {}

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
      : primitive_(prepared.make, std::move(prepared.arguments), call.threads),
        has_bias_(HasBias(call)),
        adds_bias_(has_bias_ && call.op == "ConvTranspose"),
        channels_(call.outputs[0].shape[1]),
        points_(IsChannelsLast(call) ? 1 : Product(call.outputs[0].shape, 2, call.outputs[0].shape.rank())),
        images_(call.outputs[0].shape.elements() / (channels_ * points_)),
        threads_(ThreadsFor(call.outputs[0].shape.elements(), 1 << 15, call.threads)) {}

  // y is [images_, channels_, points_] in memory.
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

int64_t Scratch(const KernelCall& call) { return Prepare(call, IsChannelsLast(call)).scratch_bytes; }

// Channels innermost, and the weights as the library wants them then.
std::string RejectsChannelsLast(const KernelCall& call) {
  const Operands operands = OperandsOf(call);
  const Layout last = ChannelsLast(operands.x->shape.rank());
  for (const OperandType* operand : {operands.x, operands.y}) {
    if (!SamePlaces(operand->layout, last, operand->shape)) return "layout " + operand->layout.ToString();
  }
  if (HasBias(call) && !call.inputs[2].layout.plain()) return "layout " + call.inputs[2].layout.ToString();
  try {
    const auto wanted = WeightLayout(Prepare(call, true).weights, call.attributes.Int("group", 1) > 1);
    if (!wanted || !SamePlaces(operands.w->layout, *wanted, operands.w->shape)) return "weights " + operands.w->layout.ToString();
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

// The weights of the forward convolution in the layout that it reads them in: the step of the optimizer needs the gradient there.
std::optional<Layout> ForwardWeightLayout(const KernelCall& gradient) {
  KernelCall forward = gradient;
  forward.op = "Conv", forward.domain = "";
  forward.inputs = {gradient.inputs[0], gradient.outputs[0]}, forward.outputs = {gradient.inputs[1]};
  return WeightLayout(Prepare(forward, true).weights, false);
}

// Whether a plain call is faster with channels innermost: where the library, or we, have more than its plain loops for it.
bool Prefers(KernelCall& call) {
  if (PrefersWinograd(call)) return true;
  const Operands operands = OperandsOf(call);
  const Layout last = ChannelsLast(operands.x->shape.rank());
  std::optional<Layout> weights;
  try {
    if (ServesDenseWeights(call)) {
      weights = ForwardWeightLayout(call);
    } else {
      const Prepared prepared = Prepare(call, true);
      for (const char* slow : {"ref", "gemm"}) {
        if (prepared.implementation.find(slow) != std::string::npos) return PrefersDepthwise(call);
      }
      weights = WeightLayout(prepared.weights, call.attributes.Int("group", 1) > 1);
    }
  } catch (const dnnl::error&) {
    return PrefersDepthwise(call);
  }
  if (!weights) return PrefersDepthwise(call);
  for (auto* list : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *list) {
      if (&operand == operands.x || &operand == operands.y) operand.layout = last;
      if (&operand == operands.w) operand.layout = *weights;
    }
  }
  return true;
}

// A plan of a machine with bfloat16 arithmetic, where there is none: the float32 kernel on plain operands that are widened, in memory of
// its own. Right, and slow.
class WithoutBfloat16 : public Kernel {
 public:
  explicit WithoutBfloat16(const KernelCall& call) : call_(call), in_(call.inputs.size()), out_(call.outputs.size()) {
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

// A plan of another machine must run, whatever layouts it has.
std::string RejectsBfloat16(const KernelCall& call) {
  if (std::string why = RejectsOperands(call, DType::kBfloat16); !why.empty()) return why;
  if (!HasBfloat16()) return "";
  if (IsChannelsLast(call)) return RejectsChannelsLast(call);
  try {
    Prepare(call, false);
  } catch (const dnnl::error&) {
    return "nothing in oneDNN for plain operands";
  }
  return "";
}

// Some, always: whether a launch has scratch does not hang on the machine.
int64_t Bfloat16Scratch(const KernelCall& call) { return HasBfloat16() ? std::max(Scratch(call), kAlignmentBytes) : kAlignmentBytes; }

std::unique_ptr<Kernel> MakeBfloat16(const KernelCall& call) {
  if (HasBfloat16()) return std::make_unique<ConvolutionKernel>(call);
  return std::make_unique<WithoutBfloat16>(call);
}

constexpr CpuKernel Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.row = {.name = name, .op = op, .domain = domain, .rejects = Rejects, .prefers = Prefers, .scratch_bytes = Scratch},
          .make = MakeKernel<ConvolutionKernel>};
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
