// The table of operator cases on the CUDA device: each node of a case and of its gradient, in four floating-point types, is compared with
// the reference kernel on the same operands. Linked with the emulated runtime this tests what kernels compute; with CUDA's own, the GPU.
//
// GRADLOOM_OPS=A,B restricts it to these operators (gradloom.A for Gradloom's own).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/passes/gradient/differentiate.h"
#include "kernels/catalog/physical.h"
#include "kernels/cuda/cuda_kernel.h"
#include "kernels/reference/reference.h"
#include "tests/cuda/run_kernel.h"
#include "tests/ops/op_case.h"

namespace gradloom {
namespace {

std::string FullName(const std::string& domain, const std::string& op) { return domain.empty() ? op : domain + "." + op; }

bool Wanted(const std::string& name) {
  const char* const only = std::getenv("GRADLOOM_OPS");
  return only == nullptr || ("," + std::string(only) + ",").find("," + name + ",") != std::string::npos;
}

// With GRADLOOM_OP_PART=k/n, every n-th case.
bool InPart(size_t index) {
  const char* const part = std::getenv("GRADLOOM_OP_PART");
  size_t k = 0, n = 0;
  if (part == nullptr || std::sscanf(part, "%zu/%zu", &k, &n) != 2 || n == 0) return true;
  return index % n == k;
}

double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1.2e-7;
    case DType::kFloat16: return 1e-3;
    case DType::kBfloat16: return 8e-3;
    default: return 2.3e-16;
  }
}

// The largest finite magnitude among the floating-point elements.
double LargestOf(const std::vector<Tensor>& tensors) {
  double largest = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined() || !IsFloating(tensor.dtype())) continue;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double value = std::fabs(ElementAsDouble(tensor.view(), i));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
  }
  return largest;
}

// Describes the difference, or returns "". Functions may be approximated differently: a few roundings of the largest element, or of
// operands that cancel, are permitted. Sums may be computed in another order, over as many terms as an element has operands, in float32 or
// wider.
std::string Difference(const Tensor& got, const Tensor& wanted, const std::vector<Tensor>& inputs) {
  const double operands = LargestOf(inputs), largest = std::max({LargestOf({wanted}), operands / 20, 1e-3});
  int64_t elements = 0;
  for (const Tensor& input : inputs) elements = std::max(elements, input.defined() ? input.elements() : 0);
  const double sum = operands * static_cast<double>(elements / std::max<int64_t>(wanted.elements(), 1));
  const double roundings = 40 * Epsilon(wanted.dtype()) * largest + std::min(Epsilon(wanted.dtype()), Epsilon(DType::kFloat32)) * sum;
  const double allowed = IsFloating(wanted.dtype()) ? roundings : 0;
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    const double g = ElementAsDouble(got.view(), i), w = ElementAsDouble(wanted.view(), i);
    if (g == w || (std::isnan(g) && std::isnan(w)) || std::fabs(g - w) <= allowed) continue;
    std::ostringstream text;
    text << std::setprecision(17) << "[" << i << "]: " << g << " instead of " << w;
    return text.str();
  }
  return "";
}

struct Tally {
  std::map<std::string, int> compared, missing;  // by operator
  std::map<std::string, std::set<std::string>> why;
  std::map<std::string, int> compiled;  // by row
};

constexpr int kCompiledCalls = 2;

std::string Describe(const KernelCall& call) {
  std::string text = FullName(call.domain, call.op) + "(";
  for (const OperandType& in : call.inputs) {
    text += " " + (in.present() ? std::string(DTypeName(in.dtype)) + in.shape.ToString() : "-");
    if (!in.layout.plain()) text += " as " + in.layout.ToString();
  }
  return text + " )";
}

// Compares one row, and again with each of its permitted aliasings.
void CompareRow(const KernelRow& row, const KernelCall& call, const std::vector<Tensor>& inputs, const std::vector<Tensor>& wanted) {
  std::vector<const Aliasing*> aliases{nullptr};
  for (const Aliasing& alias : row.may_alias) {
    const auto o = static_cast<size_t>(alias.output), i = static_cast<size_t>(alias.input);
    if (o < call.outputs.size() && i < call.inputs.size() && call.outputs[o].present() && call.inputs[i].present() &&
        call.outputs[o].bytes() == call.inputs[i].bytes())
      aliases.push_back(&alias);
  }
  for (const Aliasing* alias : aliases) {
    try {
      const std::vector<Tensor> got = RunKernel(row, call, inputs, alias);
      for (size_t k = 0; k < got.size(); ++k) {
        if (!got[k].defined()) continue;
        EXPECT_EQ(Difference(got[k], wanted[k], inputs), "")
            << Describe(call) << " output " << k << " by " << row.name << (alias == nullptr ? "" : " in place");
      }
    } catch (const Error& error) {
      ADD_FAILURE() << Describe(call) << " by " << row.name << "\n" << error.Describe();
    }
  }
}

// The call in plain layouts, in the layouts that its operator's rows prefer, and with channels innermost in all operands of full rank.
std::vector<KernelCall> InLayouts(const KernelCall& call) {
  std::vector<KernelCall> calls{call};
  for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) {
    if (row->op != call.op || row->domain != call.domain || row->prefers == nullptr || !Rejection(*row, call).empty()) continue;
    KernelCall wish = call;
    if (!row->prefers(wish)) continue;
    EXPECT_EQ(Rejection(*row, wish), "") << row->name;
    calls.push_back(std::move(wish));
  }
  KernelCall last = call;
  int rank = 0;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) rank = std::max(rank, operand.shape.rank());
  }
  for (auto* operands : {&last.inputs, &last.outputs}) {
    for (OperandType& operand : *operands) {
      if (operand.present() && operand.shape.rank() == rank) operand.layout = ChannelsLast(rank);
    }
  }
  if (rank > 2) calls.push_back(std::move(last));
  return calls;
}

// Compares every row that serves the call, in each layout. For rows that are compiled per call, only the first few calls are compared,
// since the emulation compiles slowly.
void CompareNode(const KernelCall& call, const std::vector<Tensor>& inputs, const std::vector<Tensor>& wanted, Tally& tally) {
  const std::string name = FullName(call.domain, call.op);
  if (!Wanted(name)) return;
  std::string why;
  if (ChooseKernel(DeviceKind::kCuda, call, &why) == nullptr) {
    ++tally.missing[name];
    tally.why[name].insert(why.empty() ? "no row" : why);
    return;
  }
  for (const KernelCall& each : InLayouts(call)) {
    for (const KernelRow* row : KernelRows(DeviceKind::kCuda)) {
      if (row->op != each.op || row->domain != each.domain || !Rejection(*row, each).empty()) continue;
      if (row->name.starts_with("cuda.pointwise.") && ++tally.compiled[std::string(row->name)] > kCompiledCalls) continue;
      ++tally.compared[name];
      CompareRow(*row, each, inputs, wanted);
    }
  }
}

// Runs the graph's nodes in order with the reference kernels and compares each of them.
void CompareGraph(const Graph& graph, const std::map<ValueId, Tensor>& feeds, Tally& tally) {
  std::vector<Tensor> values(static_cast<size_t>(graph.num_values()));
  for (const Value& value : graph.values()) {
    if (const Tensor* data = graph.data(value.id)) values[static_cast<size_t>(value.id)] = *data;
  }
  for (const auto& [id, tensor] : feeds) values[static_cast<size_t>(id)] = tensor;
  const auto type = [&](ValueId id) {
    return id == kNoValue ? OperandType{} : OperandType{graph.value(id).dtype, graph.value(id).shape, Layout{}};
  };
  for (const Node& node : graph.nodes) {
    KernelCall call{.op = node.op, .domain = node.domain, .attributes = node.attributes, .inputs = {}, .outputs = {}};
    std::vector<Tensor> inputs;
    for (ValueId id : node.inputs) {
      call.inputs.push_back(type(id));
      inputs.push_back(id == kNoValue ? Tensor() : values[static_cast<size_t>(id)]);
      const bool known =
          id != kNoValue && graph.value(id).role == Role::kConst && IsKnownConstant(call.inputs.back().dtype, inputs.back().elements());
      call.values.push_back(known ? inputs.back().view() : TensorView());
    }
    for (ValueId id : node.outputs) call.outputs.push_back(type(id));
    const std::vector<Tensor> outputs = RunReference(call, inputs);
    CompareNode(call, inputs, outputs, tally);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (node.outputs[k] != kNoValue) values[static_cast<size_t>(node.outputs[k])] = outputs[k];
    }
  }
}

void CompareCase(const OpCase& op_case, const TypeRules& rules, DType dtype, Tally& tally) {
  OpProgram program;
  try {
    program = BuildOpCase(op_case, rules, dtype);
    if (op_case.gradient) {
      const ValueId loss = AddLoss(program, rules);
      GraphBuilder builder(*program.graph, rules);
      Differentiate(builder, loss, program.wanted);
    }
  } catch (const Error&) {
    return;  // the operator does not support the type
  }
  CompareGraph(*program.graph, program.feeds, tally);
}

TEST(CudaKernels, AgreeWithTheReference) {
  const OnnxTypeRules rules;
  Tally tally;
  size_t index = 0;
  for (const OpCase& op_case : AllOpCases()) {
    if (!InPart(index++)) continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
      if (!op_case.half && DTypeBytes(dtype) == 2) continue;
      SCOPED_TRACE(op_case.Name());
      try {
        CompareCase(op_case, rules, dtype, tally);
      } catch (const Error& error) {
        // The reference does not support the type.
        if (error.code() != ErrorCode::kType && error.code() != ErrorCode::kUnsupported) ADD_FAILURE() << error.Describe();
      }
    }
  }
  int compared = 0;
  for (const auto& [name, count] : tally.compared) compared += count;
  std::printf("%d calls of %zu operators compared\n", compared, tally.compared.size());
  for (const std::string& note : TheLibraries().notes()) std::printf("%s\n", note.c_str());
  for (const auto& [name, count] : tally.missing) {
    std::printf("not on CUDA: %s, %d calls, %d served:", name.c_str(), count, tally.compared[name]);
    for (const std::string& why : tally.why[name]) std::printf(" %s;", why.c_str());
    std::printf("\n");
  }
}

}  // namespace
}  // namespace gradloom
