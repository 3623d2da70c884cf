#include "kernels/cpu/convolution/convolution_desc.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/catalog/convolution.h"
#include "kernels/catalog/physical.h"
#include "kernels/cpu/operands.h"

namespace gradloom {
namespace {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

// The memory of x or y in channels-last order.
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

// The convolution as oneDNN describes it: row-major tensors, or channels-last x and y with the weights in the library's preferred layout.
struct Convolution {
  Desc x, w, y;
  Dims strides, dilations, pads_begin, pads_end;

  Convolution(const ConvolutionOperands& operands, int64_t groups, const Windows& windows, bool channels_last)
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
    // The last windows may end before the input does; oneDNN expects the padding that the windows cover.
    for (size_t i = 0; i < strides.size(); ++i) {
      const auto axis = static_cast<int>(i) + 2;
      const int64_t reach = (windows.kernel[i] - 1) * windows.dilations[i] + 1;
      pads_end[i] = (operands.y->shape[axis] - 1) * strides[i] + reach - operands.x->shape[axis] - pads_begin[i];
    }
  }
};

Convolution ConvolutionOf(const KernelCall& call, bool channels_last) {
  return {ConvolutionOperandsOf(call), call.attributes.Int("group", 1), WindowsOfConvolution(call), channels_last};
}

dnnl::convolution_forward::primitive_desc ForwardDesc(const Convolution& c, const Desc* bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  if (bias != nullptr) {
    return {OneDnnEngine(), kind, algorithm, c.x, c.w, *bias, c.y, c.strides, c.dilations, c.pads_begin, c.pads_end, OneDnnUserScratch()};
  }
  return {OneDnnEngine(), kind, algorithm, c.x, c.w, c.y, c.strides, c.dilations, c.pads_begin, c.pads_end, OneDnnUserScratch()};
}

// Whether an implementation writes past the end of its scratchpad. oneDNN 3.2's jit_1x1 collects the pixels that strides select, in whole
// blocks of channels, but asks for memory for the channels that there are: too little if they do not fill the first block.
bool OverrunsScratch(const dnnl::convolution_backward_weights::primitive_desc& desc, const Dims& strides) {
  if (std::string_view(desc.impl_info_str()).find("1x1") == std::string_view::npos) return false;
  if (std::all_of(strides.begin(), strides.end(), [](auto stride) { return stride == 1; })) return false;
  const Desc weights = desc.diff_weights_desc();
  const Dims dims = weights.get_dims(), inner = weights.get_inner_blks(), axes = weights.get_inner_idxs();
  const size_t inputs = dims.size() - strides.size() - 1;  // the axis of the input channels, behind the groups if there are any
  dnnl::memory::dim block = 1;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (axes[i] == static_cast<dnnl::memory::dim>(inputs)) block *= inner[i];
  }
  return dims[inputs] < block;
}

template <typename P>
PreparedConvolution Finish(const typename P::primitive_desc& desc, const Desc& weights, std::vector<OneDnnPrimitive::Argument> arguments) {
  for (auto& argument : arguments) {
    if (argument.id == DNNL_ARG_WEIGHTS || argument.id == DNNL_ARG_DIFF_WEIGHTS) argument.desc = weights;
  }
  arguments.push_back({DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()});
  return {[desc] { return P(desc); }, weights, std::move(arguments), static_cast<int64_t>(desc.scratchpad_desc().get_size()),
          desc.impl_info_str()};
}

KernelCall WithFloatWeights(KernelCall call) {
  call.outputs[0].dtype = DType::kFloat32;
  return call;
}

int TeamOf(const KernelCall& call) { return call.op == "ConvGradWeight" ? 1 : call.threads; }

// Throws dnnl::error if the library has no implementation.
PreparedConvolution QueryOneDnn(const KernelCall& call, bool channels_last) {
  const OneDnnTeam team(TeamOf(call));
  const Convolution c = ConvolutionOf(call, channels_last);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  if (call.op == "Conv") {
    const Desc bias = OneDnnDesc({call.outputs[0].shape[1]}, {}, call.outputs[0].dtype);
    std::vector<OneDnnPrimitive::Argument> arguments = {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_WEIGHTS, c.w}};
    if (HasConvolutionBias(call)) arguments.push_back({DNNL_ARG_BIAS, bias});
    arguments.push_back({DNNL_ARG_DST, c.y});
    const auto desc = ForwardDesc(c, HasConvolutionBias(call) ? &bias : nullptr);
    return Finish<dnnl::convolution_forward>(desc, desc.weights_desc(), std::move(arguments));
  }
  const auto hint = ForwardDesc(c, nullptr);
  if (call.op == "ConvGradWeight") {
    // Sums are float32 for every element type.
    const Desc w = ConvolutionOf(WithFloatWeights(call), channels_last).w;
    dnnl::convolution_backward_weights::primitive_desc desc(OneDnnEngine(), algorithm, c.x, w, c.y, c.strides, c.dilations, c.pads_begin,
                                                            c.pads_end, hint, OneDnnUserScratch());
    while (OverrunsScratch(desc, c.strides)) {
      if (!desc.next_impl()) throw dnnl::error(dnnl_unimplemented, "no implementation stays within its scratchpad");
    }
    return Finish<dnnl::convolution_backward_weights>(desc, desc.diff_weights_desc(),
                                                      {{DNNL_ARG_SRC, c.x}, {DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_DIFF_WEIGHTS, c.w}});
  }
  const dnnl::convolution_backward_data::primitive_desc desc(OneDnnEngine(), algorithm, c.x, c.w, c.y, c.strides, c.dilations, c.pads_begin,
                                                             c.pads_end, hint, OneDnnUserScratch());
  return Finish<dnnl::convolution_backward_data>(desc, desc.weights_desc(),
                                                 {{DNNL_ARG_DIFF_DST, c.y}, {DNNL_ARG_WEIGHTS, c.w}, {DNNL_ARG_DIFF_SRC, c.x}});
}

// Calls with the same key have the same result.
std::string KeyOf(const KernelCall& call, bool channels_last) {
  std::string key = call.domain + "." + call.op + (channels_last ? " last " : " ") + std::to_string(TeamOf(call));
  for (const auto& [name, value] : call.attributes) key += ";" + name + "=" + Attributes::ToString(value);
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    key += "|";
    for (const OperandType& operand : *operands) {
      key += operand.present() ? std::string(DTypeName(operand.dtype)) + operand.shape.ToString() + operand.layout.ToString() + "," : "-,";
    }
  }
  return key;
}

}  // namespace

bool HasConvolutionBias(const KernelCall& call) { return call.domain.empty() && HasInput(call, 2); }

bool IsChannelsLast(const KernelCall& call) { return !RejectsLayouts(call).empty(); }

void SetConvolutionLayouts(KernelCall& call, const std::optional<Layout>& weights) {
  const ConvolutionOperands of = ConvolutionOperandsOf(call);
  for (auto* operands : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *operands) {
      if (&operand == of.x || &operand == of.y) operand.layout = ChannelsLast(operand.shape.rank());
      if (&operand == of.w && weights) operand.layout = *weights;
    }
  }
}

bool IsSlowConvolution(const PreparedConvolution& convolution) {
  const std::string& name = convolution.implementation;
  return name.find("ref") != std::string::npos || name.find("gemm") != std::string::npos;
}

PreparedConvolution PrepareConvolution(const KernelCall& call, bool channels_last) {
  constexpr size_t kMaxKnown = 1024;
  static std::mutex mutex;
  static auto& known = *new std::unordered_map<std::string, PreparedConvolution>;
  const std::string key = KeyOf(call, channels_last);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  PreparedConvolution prepared = QueryOneDnn(call, channels_last);
  const std::lock_guard lock(mutex);
  if (known.size() >= kMaxKnown) known.clear();
  return known.emplace(key, std::move(prepared)).first->second;
}

bool IsSlowChannelsLast(const KernelCall& call) {
  try {
    return IsSlowConvolution(PrepareConvolution(call, true));
  } catch (const dnnl::error&) {
    return true;
  }
}

bool IsVectorizedChannelsLast(const KernelCall& call) {
  try {
    const PreparedConvolution prepared = PrepareConvolution(PlainCall(call), true);
    return !IsSlowConvolution(prepared) && ConvolutionWeightLayout(prepared.weights, call.attributes.Int("group", 1) > 1);
  } catch (const dnnl::error&) {
    return false;
  }
}

std::optional<Layout> ConvolutionWeightLayout(const Desc& desc, bool grouped) {
  const Dims dims = desc.get_dims(), padded = desc.get_padded_dims(), strides = desc.get_strides();
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return std::nullopt;
  // Groups and the outputs of a group are one dimension here. Blocks and padding must be of the inner one, unless it has only one element:
  // then they are those of the groups.
  const bool depthwise = grouped && dims[1] == 1;
  if (grouped && (depthwise ? padded[1] != 1 : dims != padded)) return std::nullopt;
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
    // Drops the group dimension, or the output dimension if it has one element; otherwise both must be adjacent, with the groups outside.
    const auto at = std::find(outer.begin(), outer.end(), depthwise ? 1 : 0);
    if (!depthwise && (at + 1 == outer.end() || *(at + 1) != 1)) return std::nullopt;
    outer.erase(at);
  }
  for (int dim : outer) layout.order.push_back(ours(dim));
  if (std::is_sorted(layout.order.begin(), layout.order.end())) layout.order.clear();
  return layout;
}

}  // namespace gradloom
