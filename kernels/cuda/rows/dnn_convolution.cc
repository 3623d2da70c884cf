// Convolutions by cuDNN.
#include <algorithm>

#include "kernels/catalog/convolution.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kWordBytes = 16;

// Channels are padded for at least this many multiplications per point of x. On an H200, ResNet-50's first convolution, of three channels,
// takes 0.06 ps for each (2026-11-27). A padded point has 16 bytes, which are written once and read: at most 24 bytes more than without
// padding, or 6 ps, the time of 100 multiplications. The images are reordered in any case, so there is no further launch, and the choice
// does not depend on the batch size: a weight has one layout in all entries.
constexpr int64_t kMinMultiplicationsPerPoint = 256;

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

enum class Order : uint8_t { kRowMajor, kChannelsInnermost, kOther };

// The common order of the operands. Only channels that x and w share may be padded: those of a group follow those of the previous one.
Order OrderOf(const ConvolutionOperands& operands) {
  const auto& [x, w, y] = operands;
  const auto is_plain = [](const OperandType* o) { return SameMemoryOrder(o->layout, {}, o->shape); };
  if (is_plain(x) && is_plain(w) && is_plain(y)) return Order::kRowMajor;
  const auto of_x = InnermostChannels(*x), of_w = InnermostChannels(*w), of_y = InnermostChannels(*y);
  if (!of_x || !of_w || !of_y || *of_y != y->shape[1]) return Order::kOther;
  const bool padded = *of_x != x->shape[1] || *of_w != w->shape[1];
  const bool shared = x->shape[1] == w->shape[1] && *of_x == *of_w;
  return !padded || shared ? Order::kChannelsInnermost : Order::kOther;
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

// For Gradloom's kernel too, which runs if cuDNN turns out to have no algorithm.
int64_t Scratch(const KernelCall& call) {
  const int64_t own = call.op == "ConvGradWeight" ? WeightGradientScratchBytes(call) : 0;
  return std::max(DnnScratchBytes(*DnnConvolutionOf(call)), own);
}

// Whether the channels of x and w are too few for tensor cores, but with padding to a whole word save more than it costs: those of images.
// With one channel, seven eighths of the multiplications would be by zeros. Operands with more channels than a word are results of other
// layers, which would have to be reordered, and their rows are at least words of 4 or 8 bytes. A transposed convolution's x is its result.
bool PadsChannels(const KernelCall& call, const ConvolutionOperands& operands) {
  const Shape &x = operands.x->shape, &w = operands.w->shape;
  const int64_t channels = x[1], word = kWordBytes / DTypeBytes(operands.x->dtype);
  if (call.op == "ConvTranspose" || channels != w[1] || channels < 2 || channels >= word) return false;
  const int64_t multiplications = operands.y->shape.elements() * (w.elements() / w[0]), points = x.elements() / channels;
  return multiplications >= kMinMultiplicationsPerPoint * points;
}

// Tensor cores read 16-bit operands in channels-last order; otherwise the library transposes before and after.
bool Prefers(KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  if (DTypeBytes(dtype) != 2) return false;
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  const int rank = operands.x->shape.rank();
  const Layout last = ChannelsLast(rank), of_channels = PadsChannels(call, operands) ? PaddedChannels(dtype, rank) : last;
  for (auto* list : {&call.inputs, &call.outputs}) {
    for (OperandType& operand : *list) {
      if (&operand == operands.x || &operand == operands.w) operand.layout = of_channels;
      if (&operand == operands.y) operand.layout = last;
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

Layout PaddedChannels(DType dtype, int rank) {
  Layout layout = ChannelsLast(rank);
  layout.blocks = {{1, kWordBytes / DTypeBytes(dtype)}};
  return layout;
}

std::optional<int64_t> InnermostChannels(const OperandType& operand) {
  const auto& [dtype, shape, layout] = operand;
  if (shape.rank() < 3) return std::nullopt;
  const Layout last = ChannelsLast(shape.rank());
  if (SameMemoryOrder(layout, last, shape)) return shape[1];
  if (layout.order != last.order || layout.blocks.size() != 1 || layout.blocks[0].dim != 1) return std::nullopt;
  return layout.Padded(shape)[1];
}

std::optional<DnnConvolution> DnnConvolutionOf(const KernelCall& call, std::string* why) {
  const auto no = [&](std::string reason) {
    if (why != nullptr) *why = std::move(reason);
    return std::nullopt;
  };
  const ConvolutionOperands operands = ConvolutionOperandsOf(call);
  if (std::string reason = NotServed(call, operands); !reason.empty()) return no(std::move(reason));
  const Order order = OrderOf(operands);
  const bool has_bias = call.inputs.size() > 2 && call.inputs[2].present();
  if (order == Order::kOther || (has_bias && !call.inputs[2].layout.plain())) return no("operands in several layouts");
  const OperandType& result = call.outputs[0];
  if (has_bias && result.layout.elements(result.shape) != result.shape.elements()) return no("a bias of padded channels");

  const auto tensor = [&](const OperandType* operand) {
    return TensorOf(operand->layout.Padded(operand->shape), order == Order::kChannelsInnermost);
  };
  DnnConvolution c{.direction = DirectionOf(call),
                   .dtype = operands.x->dtype,
                   .allow_tf32 = call.attributes.Int("allow_tf32", 0) != 0,
                   .deterministic = call.attributes.Int("deterministic", 1) != 0,
                   .x = tensor(operands.x),
                   .w = tensor(operands.w),
                   .y = tensor(operands.y)};
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
