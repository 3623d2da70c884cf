// Convolutions by cuDNN.
#include <algorithm>
#include <array>

#include "kernels/catalog/convolution.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// cuDNN has two or three spatial dimensions, so [N, C, L] becomes [N, C, 1, L].
DnnTensor TensorOf(const Shape& shape, bool channels_last) {
  DnnTensor tensor{shape.dims(), {}};
  if (shape.rank() == 3) tensor.dims.insert(tensor.dims.begin() + 2, 1);
  const size_t rank = tensor.dims.size();
  std::vector<size_t> inwards{0};
  if (!channels_last) inwards.push_back(1);
  for (size_t dim = 2; dim < rank; ++dim) inwards.push_back(dim);
  if (channels_last) inwards.push_back(1);
  tensor.strides.resize(rank);
  int64_t stride = 1;
  for (size_t i = rank; i-- > 0; stride *= tensor.dims[inwards[i]]) tensor.strides[inwards[i]] = stride;
  return tensor;
}

bool AllHaveLayout(const ConvolutionOperands& operands, const Layout& layout) {
  const std::array all{operands.x, operands.w, operands.y};
  return std::all_of(all.begin(), all.end(), [&](const OperandType* o) { return SameMemoryOrder(o->layout, layout, o->shape); });
}

std::string NotServed(const KernelCall& call, const ConvolutionOperands& operands) {
  const Shape &x = operands.x->shape, &w = operands.w->shape, &y = operands.y->shape;
  if (x.rank() < 3 || x.rank() > 5) return "rank " + std::to_string(x.rank());
  const DType dtype = operands.x->dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBfloat16) return std::string(DTypeName(dtype));
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *list) {
      if (!operand.present()) continue;
      if (operand.dtype != dtype) return "operands of several types";
      if (operand.shape.elements() == 0) return "nothing to compute";
    }
  }
  const int64_t groups = call.attributes.Int("group", 1);
  const bool fits = w.rank() == x.rank() && y.rank() == x.rank() && y[0] == x[0] && y[1] == w[0] && groups > 0 && w[0] % groups == 0 &&
                    x[1] % groups == 0 && x[1] / groups == w[1];
  return fits ? "" : "shapes that do not fit";
}

DnnConvolution::Direction DirectionOf(const KernelCall& call) {
  if (call.op == "Conv") return DnnConvolution::Direction::kForward;
  return call.op == "ConvGradWeight" ? DnnConvolution::Direction::kGradWeight : DnnConvolution::Direction::kGradInput;
}

std::string Rejects(const KernelCall& call) {
  std::string why;
  DnnConvolutionOf(call, &why);
  return why;
}

int64_t Scratch(const KernelCall& call) { return DnnScratchBytes(*DnnConvolutionOf(call)); }

// Tensor cores read 16-bit operands in channels-last order; otherwise the library transposes before and after.
bool Prefers(KernelCall& call) {
  if (DTypeBytes(call.inputs[0].dtype) != 2) return false;
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  const Layout last = ChannelsLast(operands.x->shape.rank());
  for (auto* list : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *list) {
      if (&operand == operands.x || &operand == operands.w || &operand == operands.y) operand.layout = last;
    }
  }
  return true;
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name,
          .op = op,
          .domain = domain,
          .device = DeviceKind::kCuda,
          .rejects = Rejects,
          .prefers = Prefers,
          .scratch_bytes = Scratch};
}

constexpr KernelRow kRows[] = {
    Row("cudnn.Conv", "Conv", ""),
    Row("cudnn.ConvTranspose", "ConvTranspose", ""),
    Row("cudnn.gradloom.ConvGradInput", "ConvGradInput", "gradloom"),
    Row("cudnn.gradloom.ConvGradWeight", "ConvGradWeight", "gradloom"),
};

}  // namespace

std::optional<DnnConvolution> DnnConvolutionOf(const KernelCall& call, std::string* why) {
  const auto no = [&](std::string reason) {
    if (why != nullptr) *why = std::move(reason);
    return std::nullopt;
  };
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  if (std::string reason = NotServed(call, operands); !reason.empty()) return no(std::move(reason));
  const bool plain = AllHaveLayout(operands, {}), channels_last = !plain && AllHaveLayout(operands, ChannelsLast(operands.x->shape.rank()));
  const bool plain_bias = call.inputs.size() < 3 || call.inputs[2].layout.plain();
  if ((!plain && !channels_last) || !plain_bias) return no("operands in several layouts");

  DnnConvolution c{.direction = DirectionOf(call),
                   .dtype = operands.x->dtype,
                   .allow_tf32 = call.attributes.Int("allow_tf32", 0) != 0,
                   .deterministic = call.attributes.Int("deterministic", 1) != 0,
                   .x = TensorOf(operands.x->shape, channels_last),
                   .w = TensorOf(operands.w->shape, channels_last),
                   .y = TensorOf(operands.y->shape, channels_last)};
  const Windows windows = WindowsOfConvolution(call);
  c.pads = windows.pads_begin, c.strides = windows.strides, c.dilations = windows.dilations;
  if (windows.rank() == 1) {
    c.pads.insert(c.pads.begin(), 0);
    for (auto* ones : {&c.strides, &c.dilations}) ones->insert(ones->begin(), 1);
  }
  // cuDNN has one padding for both sides. Input past the last window has no effect, so a different padding at the end matters only if it
  // changes the number of windows.
  for (size_t i = 0; i < c.pads.size(); ++i) {
    const int64_t reach = (c.w.dims[i + 2] - 1) * c.dilations[i] + 1, room = c.x.dims[i + 2] + 2 * c.pads[i] - reach;
    if (room < 0 || room / c.strides[i] + 1 != c.y.dims[i + 2]) return no("pads that differ at both sides");
  }
  return c;
}

// Memory for all operands in another layout, and for partial sums in float32: for gradients of weights, which are summed over all images,
// and for results that are too small to keep a device busy otherwise.
int64_t DnnScratchBytes(const DnnConvolution& c) {
  const DnnTensor& result = c.direction == DnnConvolution::Direction::kForward     ? c.y
                            : c.direction == DnnConvolution::Direction::kGradInput ? c.x
                                                                                   : c.w;
  const int64_t operands = (c.x.elements() + c.w.elements() + c.y.elements()) * 4;
  return operands + std::clamp<int64_t>(result.elements() * 64, kMiB / 16, 32 * kMiB);
}

std::span<const KernelRow> CudaDnnConvRows() { return kRows; }

}  // namespace gradloom
