#include "tests/ops/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "runtime/base/philox.h"

namespace gradloom {
namespace {

constexpr int64_t kElementByElement = 64;
constexpr int kDirections = 4;
// The truncation error grows with the square of the step, the rounding error with its inverse. Both are near 1e-10 here.
constexpr double kStep = 1e-5;

double LossAt(const Graph& graph, std::map<ValueId, Tensor> feeds, ValueId loss, ValueId operand, const std::vector<double>& direction,
              double step) {
  Tensor moved = feeds.at(operand).Clone();
  for (size_t i = 0; i < direction.size(); ++i) moved.as<double>()[i] += step * direction[i];
  feeds.insert_or_assign(operand, moved);
  return Interpret(graph, feeds, std::vector<ValueId>{loss})[0].as<double>()[0];
}

// Converts the float32 program to float64, even where an operator's schema does not allow it.
void MakeFloat64(OpProgram& program) {
  program.graph = InDouble(*program.graph);
  for (auto& [id, tensor] : program.feeds) {
    if (tensor.dtype() == DType::kFloat32) tensor = Converted(tensor.view(), DType::kFloat64);
  }
}

std::vector<std::vector<double>> Directions(int64_t n) {
  std::vector<std::vector<double>> directions;
  const bool each = n <= kElementByElement;
  for (int64_t k = 0; k < (each ? n : kDirections); ++k) {
    std::vector<double> direction(static_cast<size_t>(n), 0.0);
    for (int64_t i = 0; i < n; ++i) {
      const double random = UniformFloat(ElementBits(static_cast<uint64_t>(k * n + i), NodeKey(1, 2, 3))) * 2.0 - 1.0;
      direction[static_cast<size_t>(i)] = each ? (i == k ? 1.0 : 0.0) : random;
    }
    directions.push_back(std::move(direction));
  }
  return directions;
}

}  // namespace

std::string CompareWithDifferences(const OpProgram& program, ValueId loss, ValueId operand, const Tensor& gradient, double tolerance) {
  const Graph& graph = *program.graph;
  double largest = 1.0;
  for (double g : gradient.as<double>()) largest = std::max(largest, std::fabs(g));
  std::string report;
  for (const std::vector<double>& direction : Directions(gradient.elements())) {
    const double up = LossAt(graph, program.feeds, loss, operand, direction, kStep);
    const double down = LossAt(graph, program.feeds, loss, operand, direction, -kStep);
    double stated = 0, length = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      stated += direction[i] * gradient.as<double>()[i];
      length += std::fabs(direction[i]);
    }
    const double measured = (up - down) / (2 * kStep);
    // Written so that NaN fails.
    if (std::fabs(stated - measured) <= tolerance * largest * std::max(1.0, length)) continue;
    const auto at = std::find(direction.begin(), direction.end(), 1.0) - direction.begin();
    report += "\n  d/d '" + graph.value(operand).name + "'[" + std::to_string(at) + "]: gradient " + std::to_string(stated) +
              ", finite difference " + std::to_string(measured);
  }
  return report;
}

std::string CheckGradient(const OpCase& op_case, const TypeRules& rules) {
  OpProgram program = BuildOpCase(op_case, rules, op_case.float64 ? DType::kFloat64 : DType::kFloat32);
  if (program.wanted.empty()) return "\n  the case has no fed floating operand";
  const ValueId loss = AddLoss(program, rules);
  if (loss == kNoValue) return "\n  the case has no floating output";
  GraphBuilder builder(*program.graph, rules);
  const auto gradients = Differentiate(builder, loss, program.wanted);
  if (!op_case.float64) MakeFloat64(program);
  std::string report;
  for (ValueId operand : program.wanted) {
    const auto found = gradients.find(operand);
    const Tensor zeros(DType::kFloat64, program.graph->value(operand).shape);
    const Tensor gradient =
        found == gradients.end() ? zeros : Interpret(*program.graph, program.feeds, std::vector<ValueId>{found->second})[0];
    report += CompareWithDifferences(program, loss, operand, gradient, op_case.tolerance);
  }
  return report;
}

namespace {

// Roundings of the inputs and of a few operations, in units of the type's precision.
constexpr double kRoundings = 64;

std::string CompareForward(const OpCase& op_case, const TypeRules& rules, DType floating, double precision) {
  OpProgram narrow;
  try {
    narrow = BuildOpCase(op_case, rules, floating);
  } catch (const Error& error) {
    // The schema does not allow this type.
    if (error.code() == ErrorCode::kType && floating != DType::kFloat32) return "";
    throw;
  }
  OpProgram wide = BuildOpCase(op_case, rules, op_case.float64 ? DType::kFloat64 : DType::kFloat32);
  if (!op_case.float64) MakeFloat64(wide);
  // The same values in both programs: those that the narrow type can represent.
  auto to = wide.feeds.begin();
  for (const auto& [id, tensor] : narrow.feeds) (to++)->second = Converted(tensor.view(), to->second.dtype());
  for (const Value& value : wide.graph->values()) {
    const Tensor* data = narrow.graph->data(value.id);
    if (data != nullptr) wide.graph->set_data(value.id, Converted(data->view(), value.dtype));
  }
  const std::vector<Tensor> got = Interpret(*narrow.graph, narrow.feeds, narrow.outputs);
  const std::vector<Tensor> want = Interpret(*wide.graph, wide.feeds, wide.outputs);
  std::string report;
  for (size_t k = 0; k < got.size(); ++k) {
    double largest = std::numeric_limits<double>::min();
    for (int64_t i = 0; i < want[k].elements(); ++i) {
      const double value = std::fabs(ElementAsDouble(want[k].view(), i));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    const bool exact = !IsFloating(got[k].dtype());
    for (int64_t i = 0; i < got[k].elements() && report.size() < 1000; ++i) {
      const double a = ElementAsDouble(got[k].view(), i), b = ElementAsDouble(want[k].view(), i);
      if (a == b || (a != a && b != b) || (!exact && std::fabs(a - b) <= kRoundings * precision * largest)) continue;
      report += "\n  " + std::string(DTypeName(floating)) + " output " + std::to_string(k) + "[" + std::to_string(i) +
                "]: " + std::to_string(a) + ", in float64 " + std::to_string(b);
    }
  }
  return report;
}

}  // namespace

std::string CheckForward(const OpCase& op_case, const TypeRules& rules) {
  std::string report = CompareForward(op_case, rules, DType::kFloat32, 0x1p-24);
  if (op_case.half) {
    report += CompareForward(op_case, rules, DType::kFloat16, 0x1p-11);
    report += CompareForward(op_case, rules, DType::kBfloat16, 0x1p-8);
  }
  return report;
}

}  // namespace gradloom
