#include "tests/conformance/node_test.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "compiler/compile.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/operator_support.h"
#include "compiler/onnx/read/tensor_data.h"
#include "onnx/onnx-data.pb.h"
#include "runtime/base/file.h"
#include "runtime/exec/executor.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

using Tensors = std::map<std::string, Tensor>;
using Inputs = std::map<std::string, KnownInput>;

template <typename Proto>
Proto ReadProto(const std::string& path) {
  Proto proto;
  if (!proto.ParseFromString(ReadWholeFile(path))) throw Error(ErrorCode::kParse, "no operand of a test", path);
  return proto;
}

Tensor ReadOne(const onnx::TensorProto& proto, const std::string& path) {
  const LoadOptions options;
  ExternalData none("", options);
  return ReadTensor(proto, path, none, options.limits);
}

KnownInput ReadSequence(const onnx::SequenceProto& proto, const std::string& path) {
  if (proto.elem_type() != onnx::SequenceProto::TENSOR) throw Error(ErrorCode::kUnsupported, "a sequence of no tensors", path);
  KnownInput read{{}, std::vector<Tensor>()};
  for (const onnx::TensorProto& tensor : proto.tensor_values()) read.sequence->push_back(ReadOne(tensor, path));
  return read;
}

KnownInput ReadOperand(const onnx::TypeProto& type, const std::string& path) {
  if (type.value_case() == onnx::TypeProto::kSequenceType) return ReadSequence(ReadProto<onnx::SequenceProto>(path), path);
  if (type.value_case() != onnx::TypeProto::kOptionalType) return {ReadOne(ReadProto<onnx::TensorProto>(path), path), {}};
  const auto optional = ReadProto<onnx::OptionalProto>(path);
  if (optional.has_tensor_value()) return {ReadOne(optional.tensor_value(), path), {}};
  if (optional.has_sequence_value()) return ReadSequence(optional.sequence_value(), path);
  return {};
}

// Reads FOLDER/WHAT_i.pb, keyed by the names of the corresponding operands.
template <typename Infos>
Inputs ReadOperands(const fs::path& folder, const std::string& what, const Infos& infos) {
  Inputs operands;
  for (int i = 0; i < infos.size(); ++i) {
    if (infos[i].type().tensor_type().elem_type() == onnx::TensorProto::STRING)
      throw Error(ErrorCode::kUnsupported, "a graph " + what + " of strings", what + " '" + Escaped(infos[i].name()) + "'");
    operands.emplace(infos[i].name(), ReadOperand(infos[i].type(), (folder / (what + "_" + std::to_string(i) + ".pb")).string()));
  }
  return operands;
}

// The tensors of the operands. The elements of a sequence are NAME/0, NAME/1, ..., as in the importer.
Tensors TensorsOf(const Inputs& operands) {
  Tensors tensors;
  for (const auto& [name, operand] : operands) {
    if (operand.tensor.defined()) tensors.emplace(name, operand.tensor);
    for (size_t i = 0; operand.sequence && i < operand.sequence->size(); ++i)
      tensors.emplace(name + "/" + std::to_string(i), (*operand.sequence)[i]);
  }
  return tensors;
}

std::shared_ptr<const Plan> CompileFor(const Model& model, const Inputs& inputs, const Inputs& known, const std::string& isa) {
  CompileOptions options;
  if (!isa.empty()) {
    options.recipe.device = DeviceKind::kCuda;
    options.recipe.isa = isa;
  }
  options.entries = {{EntryKind::kPredict, 0}};
  for (const auto& [name, input] : inputs) {
    if (input.tensor.defined()) options.import.inputs.emplace(name, input.tensor.shape());
  }
  options.import.values = known;
  return std::make_shared<const Plan>(Compile(model, options));
}

// Inputs that may determine a shape are short one-dimensional tensors or scalars.
bool MayShape(const Tensor& tensor) { return tensor.shape().rank() <= 1 && tensor.elements() <= 64; }

// Feeds as many inputs as possible. Shapes are fixed at compile time, so the inputs that they depend on must be known by then.
std::shared_ptr<const Plan> CompileWithFewKnown(const Model& model, const onnx::GraphProto& graph, const Inputs& inputs,
                                                const std::string& isa) {
  Inputs least, shaping;
  for (int i = 0; i < graph.input_size(); ++i) {
    const KnownInput& input = inputs.at(graph.input(i).name());
    const bool tensor = graph.input(i).type().value_case() == onnx::TypeProto::kTensorType;
    if (!tensor) least.emplace(graph.input(i).name(), input);
    if (!tensor || (i > 0 && MayShape(input.tensor))) shaping.emplace(graph.input(i).name(), input);
  }
  for (const Inputs* known : {&least, &shaping}) {
    try {
      return CompileFor(model, inputs, *known, isa);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kShape) throw;
    }
  }
  return CompileFor(model, inputs, inputs, isa);
}

// The tolerances of ONNX's own runner. A test may override them in a data.json next to its model.
struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;
};

Tolerance ToleranceOf(const fs::path& folder) {
  Tolerance tolerance;
  const fs::path path = folder / "data.json";
  if (!fs::exists(path)) return tolerance;
  const nlohmann::json data = nlohmann::json::parse(ReadWholeFile(path.string()));
  return {data.value("rtol", tolerance.relative), data.value("atol", tolerance.absolute)};
}

bool Near(double made, double wanted, const Tolerance& tolerance) {
  if (std::isnan(made) || std::isnan(wanted)) return std::isnan(made) && std::isnan(wanted);
  if (made == wanted) return true;
  if (std::isinf(made) || std::isinf(wanted)) return false;
  return std::abs(made - wanted) <= tolerance.absolute + tolerance.relative * std::abs(wanted);
}

// Describes how an output is wrong, or returns "".
std::string Difference(const std::string& name, const TensorView& made, const TensorView& wanted, Tolerance tolerance) {
  const std::string what = "output '" + Escaped(name) + "' ";
  if (made.dtype != wanted.dtype || made.shape != wanted.shape) {
    return what + "is " + std::string(DTypeName(made.dtype)) + made.shape.ToString() + ", not " + std::string(DTypeName(wanted.dtype)) +
           wanted.shape.ToString();
  }
  if (made.dtype == DType::kBfloat16) tolerance.relative = 0x1p-6;
  for (int64_t i = 0; i < made.elements(); ++i) {
    const double a = ElementAsDouble(made, i), b = ElementAsDouble(wanted, i);
    if (Near(a, b, tolerance)) continue;
    char text[100];
    std::snprintf(text, sizeof text, "has %.7g at element %lld, not %.7g", a, static_cast<long long>(i), b);
    return what + text;
  }
  return "";
}

std::string RunDataSet(const Model& model, const fs::path& folder, const std::string& isa, NodeOutcome& outcome) {
  const onnx::GraphProto& graph = model.file().proto.graph();
  const Inputs inputs = ReadOperands(folder, "input", graph.input());
  const Tensors wanted = TensorsOf(ReadOperands(folder, "output", graph.output()));
  for (const auto& [name, tensor] : TensorsOf(inputs)) outcome.dtypes.push_back(tensor.dtype());
  for (const auto& [name, tensor] : wanted) outcome.dtypes.push_back(tensor.dtype());
  const std::shared_ptr<const Plan> plan = CompileWithFewKnown(model, graph, inputs, isa);
  const std::unique_ptr<Executor> executor = Executor::Make(plan);
  const Entry& entry = plan->entries.at(0);
  outcome.known = entry.feeds.empty() && !inputs.empty();
  std::vector<TensorView> feeds;
  for (const Feed& feed : entry.feeds) feeds.push_back(inputs.at(feed.name).tensor.view());
  executor->Run(0, feeds, {});
  const Tolerance tolerance = ToleranceOf(folder.parent_path());
  size_t compared = 0;
  for (size_t i = 0; i < entry.fetches.size(); ++i) {
    if (IsOnlyExtent(entry, i)) continue;
    const auto found = wanted.find(entry.fetches[i].name);
    if (found == wanted.end()) return "output '" + Escaped(entry.fetches[i].name) + "' is none of the test's";
    const std::string difference = Difference(found->first, executor->Fetched(0, static_cast<int>(i)), found->second.view(), tolerance);
    if (!difference.empty()) return difference;
    ++compared;
  }
  return compared == wanted.size() ? "" : "an output is missing";
}

}  // namespace

std::string OperatorOfNodeTest(const std::string& folder) {
  // Does not use Model, which rejects what it cannot run.
  const std::string path = (fs::path(folder) / "model.onnx").string();
  onnx::ModelProto model;
  if (!model.ParseFromString(ReadWholeFile(path))) throw Error(ErrorCode::kParse, "no model", path);
  const onnx::GraphProto& graph = model.graph();
  return graph.node_size() == 0 ? "" : OperatorName(graph.node(0));
}

NodeOutcome RunNodeTest(const std::string& folder, const std::string& isa) {
  NodeOutcome outcome;
  try {
    const Model model = Model::Load((fs::path(folder) / "model.onnx").string());
    for (int set = 0;; ++set) {
      const fs::path data = fs::path(folder) / ("test_data_set_" + std::to_string(set));
      if (!fs::is_directory(data)) {
        if (set == 0) throw Error(ErrorCode::kIo, "a test without data", folder);
        break;
      }
      outcome.reason = RunDataSet(model, data, isa, outcome);
      if (!outcome.reason.empty()) {
        outcome.verdict = NodeVerdict::kFailed;
        break;
      }
    }
  } catch (const Error& error) {
    const bool unsupported = error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kVersion;
    outcome.verdict = unsupported ? NodeVerdict::kSkipped : NodeVerdict::kFailed;
    outcome.reason = std::string(ErrorName(error.code())) + " " + error.message();
  }
  std::sort(outcome.dtypes.begin(), outcome.dtypes.end());
  outcome.dtypes.erase(std::unique(outcome.dtypes.begin(), outcome.dtypes.end()), outcome.dtypes.end());
  return outcome;
}

}  // namespace gradloom
