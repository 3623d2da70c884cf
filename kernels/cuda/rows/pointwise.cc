// Pointwise programs, compiled at load for each call.
#include "kernels/catalog/pointwise.h"

#include <deque>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/cuda/rows/rows.h"

namespace gradloom {
namespace {

std::string Rejects(const KernelCall& call) {
  std::string why;
  if (!PointwiseProgramOf(call, &why)) return why;
  return PhysicalOf(call) ? "" : "operands in several layouts";
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

struct Table {
  std::vector<Aliasing> any;
  std::deque<std::string> names;  // a deque, because rows refer to the strings
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

  Table() {
    for (int output = 0; output < PointwiseProgram::kMaxOutputs; ++output) {
      for (int input = 0; input < PointwiseProgram::kMaxInputs; ++input) any.push_back({output, input});
    }
    // The pairs with output 0 come first.
    const std::span<const Aliasing> first = std::span(any).first(PointwiseProgram::kMaxInputs);
    for (std::string_view op : kNumbers) Add(op, "", first);
    for (std::string_view op : kTruths) Add(op, "", {});
    AddFused();
  }
};

}  // namespace

std::span<const KernelRow> CudaPointwiseRows() {
  static const Table table;
  return table.rows;
}

}  // namespace gradloom
