// make_gradient_suite DIR: writes the gradient conformance suite, which README.md describes.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/schema.h"
#include "compiler/onnx/type_rules.h"
#include "compiler/oracle/interpreter.h"
#include "compiler/passes/gradient/differentiate.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "tests/ops/gradient_check.h"
#include "tests/ops/gradient_edges.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr char kTraining[] = "ai.onnx.preview.training";
// The first opset whose Add, Mul and ReduceSum the losses use.
constexpr int kMinOpset = 14;
constexpr int kIrVersion = 10;
constexpr double kRelative = 1e-3;
// Relative to the largest element of a gradient: the rounding of float32 sums in elements that are nearly 0.
constexpr double kAbsolute = 1e-5;

// A case with the loss whose gradient it requests, in float32, and the expected results.
struct SuiteCase {
  std::string name;
  OpProgram program;
  ValueId loss = kNoValue;
  std::vector<Tensor> wanted;  // float64: the loss if it is finite, and the gradient of each wanted operand
  bool with_loss = true;
};

// "test_gradient_pow_tie_3".
std::string NameOf(const OpCase& op_case, std::map<std::string, int>& numbers) {
  std::string name = "test_gradient_";
  for (const char c : op_case.op + (op_case.note.empty() ? "" : "_" + op_case.note))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
  const int number = numbers[name]++;
  return number == 0 ? name : name + "_" + std::to_string(number);
}

// The same case in float64, with its float32 values.
OpProgram InDouble(const OpProgram& program) {
  OpProgram wide{InDouble(*program.graph), {}, program.outputs, program.wanted};
  for (const auto& [id, tensor] : program.feeds)
    wide.feeds.emplace(id, tensor.dtype() == DType::kFloat32 ? Converted(tensor.view(), DType::kFloat64) : tensor);
  return wide;
}

// Computes the loss and the gradients by the operators' rows, in float64.
void Differentiate(SuiteCase& made, const TypeRules& rules) {
  OpProgram copy{made.program.graph->Clone(), made.program.feeds, made.program.outputs, made.program.wanted};
  GraphBuilder builder(*copy.graph, rules);
  const std::map<ValueId, ValueId> gradients = gradloom::Differentiate(builder, made.loss, copy.wanted);
  const OpProgram wide = InDouble(copy);
  made.wanted = Interpret(*wide.graph, wide.feeds, std::vector<ValueId>{made.loss});
  made.with_loss = std::isfinite(made.wanted[0].as<double>()[0]);
  for (const ValueId operand : copy.wanted) {
    const auto found = gradients.find(operand);
    made.wanted.push_back(found == gradients.end() ? Tensor(DType::kFloat64, copy.graph->value(operand).shape)
                                                   : Interpret(*wide.graph, wide.feeds, std::vector<ValueId>{found->second})[0]);
  }
}

// Throws if finite differences disagree.
void CheckByDifferences(const SuiteCase& made, const OpCase& op_case) {
  const OpProgram wide = InDouble(made.program);
  std::string report;
  for (size_t i = 0; i < wide.wanted.size(); ++i)
    report += CompareWithDifferences(wide, made.loss, wide.wanted[i], made.wanted[1 + i], op_case.tolerance);
  if (!report.empty()) throw Error(ErrorCode::kCheckFailed, "finite differences say otherwise:" + report, op_case.Name());
}

void WriteTensor(const fs::path& path, const TensorView& value, const std::string& name) {
  onnx::TensorProto proto;
  SetTensor(value, &proto);
  proto.set_name(name);
  WriteFileAtomically(path.string(), proto.SerializeAsString());
}

class CaseWriter {
 public:
  CaseWriter(const SuiteCase& made, const fs::path& folder) : case_(made), graph_(*made.program.graph), folder_(folder) {}

  void Run() {
    const fs::path data = folder_ / "test_data_set_0";
    fs::create_directories(data);
    AddModel();
    WriteFileAtomically((folder_ / "model.onnx").string(), model_.SerializeAsString());
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId id = graph_.inputs[i];
      WriteTensor(data / ("input_" + std::to_string(i) + ".pb"), case_.program.feeds.at(id).view(), graph_.value(id).name);
    }
    double largest = 1;
    size_t output = 0;
    for (size_t i = case_.with_loss ? 0 : 1; i < case_.wanted.size(); ++i) {
      for (const double element : case_.wanted[i].as<double>()) {
        if (std::isfinite(element)) largest = std::max(largest, std::abs(element));
      }
      const ValueId id = i == 0 ? case_.loss : case_.program.wanted[i - 1];
      const Tensor narrow = Converted(case_.wanted[i].view(), graph_.value(id).dtype);
      WriteTensor(data / ("output_" + std::to_string(output) + ".pb"), narrow.view(),
                  model_.graph().output(static_cast<int>(output)).name());
      ++output;
    }
    char text[80];
    std::snprintf(text, sizeof text, "{\"rtol\": %g, \"atol\": %.3g}\n", kRelative, kAbsolute * largest);
    WriteFileAtomically((folder_ / "data.json").string(), text);
  }

 private:
  std::string NameOf(ValueId id) const { return id == kNoValue ? "" : graph_.value(id).name; }

  void Declare(const std::string& name, const ValueType& type, onnx::ValueInfoProto* info) const {
    info->set_name(name);
    SetTensorType(type, info->mutable_type());
  }

  void AddModel() {
    model_.set_ir_version(kIrVersion);
    model_.set_producer_name("gradloom");
    model_.set_producer_version(kVersion);
    onnx::GraphProto& graph = *model_.mutable_graph();
    graph.set_name(case_.name);
    int opset = kMinOpset;
    for (const Node& node : graph_.nodes) {
      opset = std::max(opset, FindSchema("", node.op)->since_version());
      onnx::NodeProto& proto = *graph.add_node();
      proto.set_op_type(node.op);
      for (const ValueId id : node.inputs) proto.add_input(NameOf(id));
      for (const ValueId id : node.outputs) proto.add_output(NameOf(id));
      for (const auto& [name, value] : node.attributes) SetAttribute(name, value, proto.add_attribute());
    }
    for (const ValueId id : graph_.inputs) Declare(NameOf(id), graph_.type(id), graph.add_input());
    for (const Value& value : graph_.values()) {
      if (graph_.data(value.id) == nullptr) continue;
      SetTensor(graph_.data(value.id)->view(), graph.add_initializer());
      graph.mutable_initializer()->rbegin()->set_name(value.name);
    }
    if (case_.with_loss) Declare(NameOf(case_.loss), graph_.type(case_.loss), graph.add_output());
    AddGradient(graph);
    auto& standard = *model_.add_opset_import();
    standard.set_version(opset);
    auto& training = *model_.add_opset_import();
    training.set_domain(kTraining);
    training.set_version(1);
  }

  void AddGradient(onnx::GraphProto& graph) const {
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type("Gradient");
    node.set_domain(kTraining);
    std::vector<std::string> xs, zs;
    for (const ValueId id : case_.program.wanted) xs.push_back(NameOf(id));
    for (const ValueId id : graph_.inputs) {
      if (std::find(xs.begin(), xs.end(), NameOf(id)) == xs.end()) zs.push_back(NameOf(id));
    }
    for (const auto* names : {&xs, &zs}) {
      for (const std::string& name : *names) node.add_input(name);
    }
    for (const ValueId id : case_.program.wanted) {
      node.add_output(NameOf(id) + "_gradient");
      Declare(NameOf(id) + "_gradient", graph_.type(id), graph.add_output());
    }
    SetAttribute("xs", xs, node.add_attribute());
    if (!zs.empty()) SetAttribute("zs", zs, node.add_attribute());
    SetAttribute("y", NameOf(case_.loss), node.add_attribute());
  }

  const SuiteCase& case_;
  const Graph& graph_;
  const fs::path folder_;
  onnx::ModelProto model_;
};

// Whether the table's case is for an ONNX operator with types that every implementation has.
bool IsOnnx(const OpCase& op_case) { return op_case.gradient && op_case.domain.empty() && FindSchema("", op_case.op) != nullptr; }

int Run(const fs::path& root) {
  const OnnxTypeRules rules;
  const fs::path folder = root / "gradient";
  std::map<std::string, int> numbers;
  std::set<std::string> operators;
  int cases = 0;
  const auto write = [&](SuiteCase& made, const OpCase& op_case) {
    made.name = NameOf(op_case, numbers);
    CaseWriter(made, folder / made.name).Run();
    operators.insert(op_case.op);
    ++cases;
  };
  for (const OpCase& op_case : AllOpCases()) {
    if (!IsOnnx(op_case)) continue;
    SuiteCase made;
    made.program = BuildOpCase(op_case, rules, DType::kFloat32);
    made.loss = AddLoss(made.program, rules);
    Differentiate(made, rules);
    CheckByDifferences(made, op_case);
    write(made, op_case);
  }
  for (const GradientEdge& edge : GradientEdges()) {
    if (!edge.promised) continue;
    SuiteCase made;
    made.program = BuildOpCase(edge.op_case, rules, DType::kFloat32);
    GraphBuilder builder(*made.program.graph, rules);
    made.loss = builder.ReduceSum(made.program.outputs[0], {}, /*keepdims=*/false);
    made.with_loss = false;
    made.wanted = {Tensor(DType::kFloat64, Shape{})};
    for (size_t i = 0; i < edge.gradients.size(); ++i)
      made.wanted.push_back(Tensor::From<double>(edge.gradients[i], made.program.graph->value(made.program.wanted[i]).shape));
    OpCase named = edge.op_case;
    named.note = named.note.empty() ? "edge" : "edge " + named.note;
    write(made, named);
  }
  std::printf("%d cases of %zu operators in %s\n", cases, operators.size(), folder.c_str());
  return 0;
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "make_gradient_suite DIR\n");
    return 1;
  }
  try {
    // Relative paths refer to the caller's directory: `bazel run` starts programs elsewhere.
    const char* caller = std::getenv("BUILD_WORKING_DIRECTORY");
    return gradloom::Run(std::filesystem::path(caller != nullptr ? caller : ".") / argv[1]);
  } catch (const gradloom::Error& error) {
    std::fprintf(stderr, "%s\n", error.Describe().c_str());
    return gradloom::ExitCode(error.code());
  }
}
