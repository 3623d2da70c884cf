#include "kernels/catalog/data_checks.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "kernels/catalog/operands.h"

namespace gradloom {
namespace {

using Kind = DataCheck::Kind;
using Checks = std::vector<DataCheck>;

constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

// The shape of an operand, or a scalar's if it is absent.
Shape ShapeOf(const std::vector<OperandType>& operands, size_t i) { return i < operands.size() ? operands[i].shape : Shape(); }

// -1 if there is no such axis; the kernel then refuses the call when it is prepared.
int64_t Extent(const Shape& shape, int64_t axis) {
  if (axis < 0) axis += shape.rank();
  return axis >= 0 && axis < shape.rank() ? shape[static_cast<int>(axis)] : -1;
}

Checks Rows(const KernelCall& call, size_t indices, const Shape& of) {
  return {{indices, Kind::kIndex, {Extent(of, call.attributes.Int("axis", 0))}}};
}

Checks Gather(const KernelCall& call) { return Rows(call, 1, ShapeOf(call.inputs, 0)); }
Checks GatherGrad(const KernelCall& call) { return Rows(call, 0, ShapeOf(call.outputs, 0)); }

// Each column of the indices refers to an axis of its own.
Checks Tuples(const KernelCall& call, size_t indices, const Shape& of) {
  const int64_t width = Extent(ShapeOf(call.inputs, indices), -1), first = call.attributes.Int("batch_dims", 0);
  DataCheck check{indices, Kind::kIndex, {}};
  for (int axis = 0; axis < of.rank(); ++axis) {
    if (axis >= first && axis - first < width) check.limits.push_back(of[axis]);
  }
  return {check};
}

Checks GatherNd(const KernelCall& call) { return Tuples(call, 1, ShapeOf(call.inputs, 0)); }
Checks GatherNdGrad(const KernelCall& call) { return Tuples(call, 0, ShapeOf(call.outputs, 0)); }

Checks Labels(const KernelCall& call, size_t labels, const Shape& scores, int64_t ignored) {
  return {{labels, Kind::kLabel, {Extent(scores, 1), call.attributes.Int("ignore_index", ignored)}}};
}

Checks CrossEntropy(const KernelCall& call) { return Labels(call, 1, ShapeOf(call.inputs, 0), -100); }
Checks LogSumGrad(const KernelCall& call) { return Labels(call, 2, ShapeOf(call.inputs, 0), -100); }
Checks NllGrad(const KernelCall& call) { return Labels(call, 0, ShapeOf(call.outputs, 0), -100); }
Checks OnnxLoss(const KernelCall& call) { return Labels(call, 1, ShapeOf(call.inputs, 0), kNone); }

Checks Recurrent(const KernelCall& call) {
  constexpr size_t kLengths = 4;
  if (!HasInput(call, kLengths)) return {};
  return {{kLengths, Kind::kLength, {Extent(ShapeOf(call.inputs, 0), call.attributes.Int("layout", 0) != 0 ? 1 : 0)}}};
}

Checks ReverseSequence(const KernelCall& call) {
  return {{1, Kind::kLength, {Extent(ShapeOf(call.inputs, 0), call.attributes.Int("time_axis", 0))}}};
}

template <size_t kImages>
Checks Regions(const KernelCall& call) {
  return {{kImages, Kind::kPlace, {Extent(ShapeOf(call.inputs, 0), 0)}}};
}

// The first rows of ranges in a cache, which must not extend past its end.
Checks Starts(const KernelCall& call, size_t starts, const Shape& rows) {
  if (!HasInput(call, starts)) return {};
  const int64_t axis = call.attributes.Int("axis", -2);
  return {{starts, Kind::kLength, {Extent(ShapeOf(call.inputs, 0), axis), Extent(rows, axis)}}};
}

Checks TensorScatter(const KernelCall& call) { return Starts(call, 2, ShapeOf(call.inputs, 1)); }
Checks TensorGather(const KernelCall& call) { return Starts(call, 1, ShapeOf(call.outputs, 0)); }

// Only integers, which cannot be divided by zero.
Checks Division(const KernelCall& call) {
  return !call.inputs.empty() && IsInteger(call.inputs[0].dtype) ? Checks{{1, Kind::kOther, {}}} : Checks();
}

template <size_t kInput>
Checks Other(const KernelCall&) {
  return {{kInput, Kind::kOther, {}}};
}

struct Row {
  std::string_view domain, op;
  Checks (*checks)(const KernelCall& call);
};

constexpr std::string_view kOwn = "gradloom";

constexpr Row kRows[] = {
    {"", "Compress", Other<1>},
    {"", "Div", Division},
    {"", "GRU", Recurrent},
    {"", "Gather", Gather},
    {"", "GatherElements", Gather},
    {"", "GatherND", GatherNd},
    {"", "LSTM", Recurrent},
    {"", "MaxRoiPool", Regions<1>},
    {"", "MaxUnpool", Other<1>},
    {"", "Mod", Division},
    {"", "NegativeLogLikelihoodLoss", OnnxLoss},
    {"", "NonZero", Other<0>},
    {"", "RNN", Recurrent},
    {"", "ReverseSequence", ReverseSequence},
    {"", "RoiAlign", Regions<2>},
    {"", "ScatterElements", Gather},
    {"", "ScatterND", GatherNd},
    {"", "SoftmaxCrossEntropyLoss", OnnxLoss},
    {"", "TensorScatter", TensorScatter},
    {"", "TfIdfVectorizer", Other<0>},
    {"ai.onnx.ml", "ArrayFeatureExtractor", Other<1>},
    {kOwn, "CrossEntropy", CrossEntropy},
    {kOwn, "CrossEntropyGrad", CrossEntropy},
    {kOwn, "CrossEntropyLogSum", CrossEntropy},
    {kOwn, "CrossEntropyLogSumGrad", LogSumGrad},
    {kOwn, "CrossEntropyTraining", CrossEntropy},
    {kOwn, "GatherGrad", GatherGrad},
    {kOwn, "GatherNDGrad", GatherNdGrad},
    {kOwn, "GruGrad", Recurrent},
    {kOwn, "GruTraining", Recurrent},
    {kOwn, "LstmGrad", Recurrent},
    {kOwn, "LstmTraining", Recurrent},
    {kOwn, "MaxRoiPoolGrad", Regions<1>},
    {kOwn, "Nll", CrossEntropy},
    {kOwn, "NllGrad", NllGrad},
    {kOwn, "NonMaxSuppression", Other<0>},
    {kOwn, "Repack", Other<1>},
    {kOwn, "RnnGrad", Recurrent},
    {kOwn, "RoiAlignGrad", Regions<2>},
    {kOwn, "SameExtent", Other<0>},
    {kOwn, "TensorGather", TensorGather},
};

const Row* Find(std::string_view domain, std::string_view op) {
  const auto found = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.op == op && row.domain == domain; });
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

bool DataCheck::AcceptsIndicesBelow(int64_t below) const {
  if (below < 0 || (kind != Kind::kIndex && kind != Kind::kPlace)) return false;
  return std::all_of(limits.begin(), limits.end(), [&](int64_t limit) { return limit >= below; });
}

bool MayRefuseData(std::string_view domain, std::string_view op) { return Find(domain, op) != nullptr; }

std::vector<DataCheck> DataChecksOf(const KernelCall& call) {
  const Row* const row = Find(call.domain, call.op);
  return row == nullptr ? Checks() : row->checks(call);
}

int64_t IndicesBelow(const KernelCall& call, size_t output) {
  if (!call.domain.empty()) return -1;
  if (call.op == "TopK" && output == 1) return Extent(ShapeOf(call.inputs, 0), call.attributes.Int("axis", -1));
  if (call.op == "ArgMax" || call.op == "ArgMin") return Extent(ShapeOf(call.inputs, 0), call.attributes.Int("axis", 0));
  return -1;
}

}  // namespace gradloom
