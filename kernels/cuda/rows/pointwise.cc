// Pointwise programs, compiled at load for each call.
#include "kernels/catalog/pointwise.h"

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/catalog/pointwise_tensors.h"
#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

std::string Rejects(const KernelCall& call) {
  std::string why;
  if (!PointwiseProgramOf(call, &why)) return why;
  return PhysicalOf(call) || PaddedPointwiseStride(call) ? "" : "operands in several layouts";
}

// If all elements have the same size, operands of equal size have equal shapes.
std::string RejectsMixed(const KernelCall& call) { return HasOneSize(call) ? Rejects(call) : "elements of several sizes"; }

// The result may overwrite any input of its size: an element is read by the thread that then writes it. Booleans have another size.
constexpr std::string_view kNumbers[] = {"Abs",   "Acos",        "Acosh",      "Add",
                                         "Asin",  "Asinh",       "Atan",       "Atanh",
                                         "Cast",  "CastLike",    "Ceil",       "Celu",
                                         "Clip",  "Cos",         "Cosh",       "Div",
                                         "Elu",   "Erf",         "Exp",        "Floor",
                                         "Gelu",  "HardSigmoid", "HardSwish",  "LeakyRelu",
                                         "Log",   "Max",         "Mean",       "Min",
                                         "Mish",  "Mod",         "Mul",        "Neg",
                                         "Pow",   "PRelu",       "Reciprocal", "Relu",
                                         "Round", "Selu",        "Sigmoid",    "Sign",
                                         "Sin",   "Sinh",        "Softplus",   "Softsign",
                                         "Sqrt",  "Sub",         "Sum",        "SwiGLU",
                                         "Swish", "Tan",         "Tanh",       "ThresholdedRelu",
                                         "Where"};
constexpr std::string_view kTruths[] = {"And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"};

// A result may overwrite an input of its own group. Which input that is depends on the number of inputs, so there is a row for each number
// up to this, with one result; another row serves the other calls.
constexpr size_t kInPlaceInputs = 4;

template <size_t kInputs>
std::string RejectsTensors(const KernelCall& call) {
  const int tensors = FusedTensorsOf(call);
  if (tensors > 0 && kInputs > 0 &&
      (call.inputs.size() != kInputs * static_cast<size_t>(tensors) || static_cast<int>(call.outputs.size()) != tensors))
    return "another number of operands";
  if (std::string why = RejectsFusedTensors(call); !why.empty()) return why;
  return kInputs == 0 || HasOneSize(FusedOf(call, 0)) ? "" : "elements of several sizes";
}

struct Table {
  std::vector<Aliasing> any;
  std::array<std::vector<Aliasing>, kInPlaceInputs + 1> in_groups;  // by the number of inputs
  std::deque<std::string> names;                                    // a deque, because rows refer to the strings
  std::vector<KernelRow> rows;

  void Add(std::string_view op, std::string_view domain, std::span<const Aliasing> alias) {
    names.push_back("cuda.pointwise." + std::string(op));
    rows.push_back({.name = names.back(),
                    .op = op,
                    .domain = domain,
                    .device = DeviceKind::kCuda,
                    .rejects = Rejects,
                    .may_alias = alias,
                    .preserves_state_on_refusal = true});
  }

  void AddFused() {
    rows.push_back({.name = "cuda.pointwise.Fused",
                    .op = "Fused",
                    .domain = "gradloom",
                    .device = DeviceKind::kCuda,
                    .rejects = RejectsMixed,
                    .may_alias = any,
                    .preserves_state_on_refusal = true});
    rows.push_back({.name = "cuda.pointwise.FusedMixed",
                    .op = "Fused",
                    .domain = "gradloom",
                    .device = DeviceKind::kCuda,
                    .rejects = Rejects,
                    .preserves_state_on_refusal = true});
  }

  template <size_t kInputs>
  void AddTensors() {
    std::vector<Aliasing>& pairs = in_groups[kInputs];
    for (int tensor = 0; tensor < kMaxFusedTensors; ++tensor) {
      for (int input = 0; input < static_cast<int>(kInputs); ++input) pairs.push_back({tensor, tensor * static_cast<int>(kInputs) + input});
    }
    names.push_back("cuda.pointwise.FusedTensors" + (kInputs == 0 ? "" : std::to_string(kInputs)));
    rows.push_back({.name = names.back(),
                    .op = "FusedTensors",
                    .domain = "gradloom",
                    .device = DeviceKind::kCuda,
                    .rejects = RejectsTensors<kInputs>,
                    .may_alias = pairs,
                    .preserves_state_on_refusal = true});
  }

  Table() {
    for (int output = 0; output < PointwiseProgram::kMaxOutputs; ++output) {
      for (int input = 0; input < PointwiseProgram::kMaxInputs; ++input) any.push_back({output, input});
    }
    // The pairs with output 0 come first.
    const std::span<const Aliasing> first = std::span(any).first(PointwiseProgram::kMaxInputs);
    for (std::string_view op : kNumbers) Add(op, "", first);
    for (std::string_view op : kTruths) Add(op, "", {});
    AddFused();
    AddTensors<1>();
    AddTensors<2>();
    AddTensors<3>();
    AddTensors<kInPlaceInputs>();
    AddTensors<0>();
  }
};

}  // namespace

std::span<const KernelRow> CudaPointwiseRows() {
  static const Table table;
  return table.rows;
}

}  // namespace gradloom
