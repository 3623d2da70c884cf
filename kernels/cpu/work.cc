// The work of the CPU's kernels, where it is more or less than their operator's row counts: products that a method saves or makes with
// vectors that are partly empty, passes over memory, and functions that are evaluated for each element. The weights were measured on a Zen
// 3 by AVX2, with tensors that lie in the caches.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/catalog/backends.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/catalog/recurrent.h"
#include "kernels/cpu/attention_tiles.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

// A product packs operands and divides its work, which takes as long as so many launches of other kernels.
constexpr double kProductLaunches = 6;
// The columns of a tile of a product, and the elements of a vector.
constexpr int64_t kColumns = 16, kVector = 8;

// F(2x2, 3x3) has 16 multiplications instead of 36. Half of that is added by its transforms.
constexpr double kWinogradWeight = 16.0 / 36 * 1.5;
// A convolution of one channel per group multiplies each number that it loads with one other.
constexpr double kDepthwiseWeight = 6;
// Each position of a window costs as much as this many products of an input with an output channel in addition.
constexpr double kWindowChannels = 12;
// The products of a step of a recurrent layer have few rows, and so have the tiles of attention few columns.
constexpr double kStepWeight = 1.15, kTileWeight = 1.3;
// A plain loop computes one element at a time, at addresses that it finds anew.
constexpr double kReferenceWeight = 20;
// The rest of a row of channels, less than a vector, is computed one element at a time.
constexpr double kRestWeight = 4.5;

// Functions of each element.
constexpr double kSoftmaxWeight = 12, kSoftmaxGradWeight = 20, kGateWeight = 12, kCellGradWeight = 40;
constexpr double kNormWeight = 8, kNormGradWeight = 13, kReduceWeight = 4, kPoolWeight = 2, kPoolGradWeight = 6;

double Elements(const OperandType& operand) { return operand.present() ? static_cast<double>(operand.shape.elements()) : 0; }

bool IsIn(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

double WeightOf(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::kReciprocal:
    case PointwiseOp::kSqrt:
    case PointwiseOp::kDiv:
    case PointwiseOp::kHardSigmoid: return 2;
    case PointwiseOp::kExp: return 5;
    case PointwiseOp::kSigmoid:
    case PointwiseOp::kElu:
    case PointwiseOp::kCelu:
    case PointwiseOp::kSelu: return 8;
    case PointwiseOp::kErf:
    case PointwiseOp::kLog: return 9;
    case PointwiseOp::kTanh: return 13;
    case PointwiseOp::kGelu:
    case PointwiseOp::kCos:
    case PointwiseOp::kSin: return 18;
    case PointwiseOp::kGeluTanh: return 20;
    case PointwiseOp::kSoftplus: return 28;
    case PointwiseOp::kMish: return 50;
    case PointwiseOp::kPow:
    case PointwiseOp::kAcos:
    case PointwiseOp::kAcosh:
    case PointwiseOp::kAsin:
    case PointwiseOp::kAsinh:
    case PointwiseOp::kAtan:
    case PointwiseOp::kAtanh:
    case PointwiseOp::kCosh:
    case PointwiseOp::kSinh:
    case PointwiseOp::kTan: return 90;
    default: return 1;
  }
}

double FunctionsOf(const PointwiseProgram& program, const OperandType& result) {
  double weights = 0;
  for (const PointwiseProgram::Instruction& instruction : program.instructions) weights += WeightOf(instruction.op);
  return weights * Elements(result);
}

// The functions of a pointwise call; nullopt: it is none.
std::optional<double> PointwiseFunctions(const KernelCall& call) {
  if (call.op == "FusedTensors") {
    double sum = 0;
    for (int tensor = 0; tensor < FusedTensorsOf(call); ++tensor) sum += PointwiseFunctions(FusedOf(call, tensor)).value_or(0);
    return sum;
  }
  const auto program = PointwiseProgramOf(call);
  return program ? std::optional(FunctionsOf(*program, call.outputs[0])) : std::nullopt;
}

// The elements of a tensor whose channels are contiguous, each counted with the weight of its place in a vector.
double WeightedChannels(const OperandType& x) {
  const int64_t channels = x.shape.rank() > 1 ? x.shape[1] : 1;
  const double rest = static_cast<double>(channels % kVector) / static_cast<double>(std::max<int64_t>(channels, 1));
  return Elements(x) * (1 - rest + rest * kRestWeight);
}

// The functions of operators that are not pointwise.
double FunctionsOf(const KernelCall& call) {
  if (IsIn(call.op, {"Softmax", "LogSoftmax", "CrossEntropy", "CrossEntropyTraining", "CrossEntropyGrad"}))
    return kSoftmaxWeight * Elements(call.inputs[0]);
  if (IsIn(call.op, {"LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization", "BatchNormLine",
                     "BatchNormSums", "BatchNormTrain"}))
    return kNormWeight * Elements(call.inputs[0]);
  if (IsIn(call.op, {"LayerNormGrad", "RmsNormGrad", "GroupNormGrad", "BatchNormTrainGrad", "BatchNormGradSums"}))
    return kNormGradWeight * Elements(call.inputs[0]);
  if (call.op.starts_with("Reduce")) return kReduceWeight * Elements(call.inputs[0]);
  if (IsIn(call.op, {"MaxPool", "AveragePool"})) return kPoolWeight * WeightedChannels(call.inputs[0]);
  if (IsIn(call.op, {"MaxPoolGrad", "AveragePoolGrad"})) return kPoolGradWeight * WeightedChannels(call.outputs[0]);
  return 0;
}

// The share of all scores that the kernels of attention compute: those of the keys that any query of a tile sees.
double VisibleShare(const attention::AttentionSizes& n) {
  const int64_t queries = n.q.length, keys = n.k.length, tile = attention::TileRows(keys);
  double computed = 0;
  for (int64_t i = 0; i < queries; i += tile) {
    const int64_t rows = std::min(tile, queries - i), last = i + rows - 1;
    int64_t end = n.causal ? std::min(keys, last + 1) : keys;
    if (n.right >= 0) end = std::min(end, last + n.right + 1);
    const int64_t begin = n.left >= 0 ? std::max<int64_t>(i - n.left, 0) : 0;
    computed += static_cast<double>(rows * std::max<int64_t>(end - begin, 0));
  }
  return queries * keys > 0 ? computed / static_cast<double>(queries * keys) : 1;
}

// The products, and then the softmax of each row of scores or its derivative.
std::vector<KernelWork> WorkOfAttention(const KernelCall& call, const KernelWork& least) {
  const attention::AttentionSizes n(call);
  const double share = VisibleShare(n), scores = share * static_cast<double>(n.batch * n.q.heads * n.q.length * n.k.length);
  const bool gradient = call.op.ends_with("Grad");
  return {{kProductLaunches, least.flops * share * kTileWeight, least.bytes},
          {.launches = 0, .functions = scores * (gradient ? kSoftmaxGradWeight : kSoftmaxWeight)}};
}

// The products, and the cells of every step.
std::vector<KernelWork> WorkOfSteps(const KernelCall& call, const KernelWork& least) {
  const RecurrentExtents n(call);
  const auto cells = static_cast<double>(n.rows() * n.hidden * n.directions);
  const double forward = n.gradient && !n.recomputes ? 0 : kGateWeight * static_cast<double>(n.gates + 1) * cells;
  const double functions = forward + (n.gradient ? kCellGradWeight * cells : 0);
  return {{kProductLaunches, least.flops * kStepWeight, least.bytes}, {.launches = 0, .functions = functions}};
}

// The filters of a convolution, whichever of its operands is the result.
const Shape& FiltersOf(const KernelCall& call) { return call.op == "ConvGradWeight" ? call.outputs[0].shape : call.inputs[1].shape; }

double ConvolutionWeight(const KernelRow& row, const KernelCall& call) {
  if (row.name.starts_with("cpu.Winograd")) return kWinogradWeight;
  const Shape& filters = FiltersOf(call);
  if (filters.rank() < 3 || filters.elements() == 0) return 1;
  const int64_t groups = call.attributes.Int("group", 1), outputs = filters[0] / std::max<int64_t>(groups, 1), inputs = filters[1];
  if (groups > 1 && outputs * inputs == 1) return kDepthwiseWeight;
  const double empty = static_cast<double>(AlignUp(outputs, kVector)) / static_cast<double>(std::max<int64_t>(outputs, 1));
  return empty * (1 + kWindowChannels / static_cast<double>(std::max<int64_t>(outputs * inputs, 1)));
}

// The products of a matrix whose columns do not fill a tile.
double ColumnsWeight(const KernelCall& call) {
  const OperandType& result = call.outputs[0];
  const int64_t columns = result.present() && result.shape.rank() > 0 ? result.shape[result.shape.rank() - 1] : 0;
  return columns > 0 ? static_cast<double>(AlignUp(columns, kColumns)) / static_cast<double>(columns) : 1;
}

}  // namespace

std::vector<KernelWork> CpuWorkOf(const KernelRow& row, const KernelCall& call, const KernelWork& least) {
  const bool reference = row.name.starts_with("reference.");
  if (call.op.starts_with("Attention") && !reference) return WorkOfAttention(call, least);
  if (IsIn(call.op, {"LSTM", "LstmTraining", "LstmGrad", "GRU", "GruTraining", "GruGrad", "RNN", "RnnGrad"}) && !reference)
    return WorkOfSteps(call, least);
  KernelWork work = least;
  if (IsIn(call.op, {"Conv", "ConvTranspose", "ConvGradInput", "ConvGradWeight"})) {
    work.launches = kProductLaunches;
    work.flops *= ConvolutionWeight(row, call);
  } else if (call.op.starts_with("Gemm") || call.op.starts_with("MatMul")) {
    work.launches = kProductLaunches;
    work.flops *= ColumnsWeight(call);
  }
  // Statistics of a batch, and their gradients, are a pass of their own over the operands.
  if (IsIn(call.op, {"BatchNormLine", "BatchNormSums", "BatchNormTrain"})) work.bytes += static_cast<double>(call.inputs[0].bytes());
  if (call.op == "BatchNormTrainGrad") work.bytes *= 5.0 / 3;
  const auto functions = PointwiseFunctions(call);
  work.functions = functions ? *functions : FunctionsOf(call);
  if (!reference) return {work};
  work.functions = kReferenceWeight * std::max(work.functions, least.flops);
  work.flops *= kReferenceWeight;
  return {work};
}

}  // namespace gradloom
