#include "tools/run/views/mode_notes.h"

#include <map>
#include <set>
#include <string_view>

#include "compiler/onnx/import.h"
#include "compiler/passes/patterns/written_norms.h"
#include "runtime/base/counted.h"

namespace gradloom {
namespace {

enum class Folding : uint8_t { kNone, kDynamo, kLegacy };

// torch.export reads one of several results of an operator with `getitem`: a layer of that name stands where a BatchNormalization was. The
// older exporter generates names for the weight and bias that it folds.
Folding FoldingOf(const Graph& graph, const Node& node) {
  if (node.op != "Conv" && node.op != "ConvTranspose" && node.op != "Gemm") return Folding::kNone;
  const auto starts = [&](ValueId id, std::string_view with) { return id != kNoValue && graph.value(id).name.starts_with(with); };
  if (starts(node.outputs[0], "getitem")) return Folding::kDynamo;
  const std::string own = "onnx::" + node.op + "_";
  if (node.op == "Conv" && node.inputs.size() > 2 && starts(node.inputs[1], own) && starts(node.inputs[2], own)) return Folding::kLegacy;
  return Folding::kNone;
}

// The number of tensors that a quantizer has converted to integers.
int64_t CountQuantized(const Graph& graph) {
  static const std::map<std::string, std::vector<size_t>> operands = {
      {"ConvInteger", {0, 1}}, {"DequantizeLinear", {0}}, {"MatMulInteger", {0, 1}}, {"QLinearConv", {0, 3, 8}}, {"QLinearMatMul", {0, 3}}};
  std::set<ValueId> found;
  for (const Node& node : graph.nodes) {
    const auto places = operands.find(node.op);
    if (!node.domain.empty() || places == operands.end()) continue;
    for (size_t i : places->second) {
      if (i < node.inputs.size() && node.inputs[i] != kNoValue && graph.value(node.inputs[i]).role == Role::kConst)
        found.insert(node.inputs[i]);
    }
  }
  return static_cast<int64_t>(found.size());
}

}  // namespace

std::vector<std::string> ModeNotes(const Graph& graph, GraphMode mode) {
  int64_t inference = 0, dynamo = 0, legacy = 0, detached = 0, named = 0, padded = 0;
  for (const Node& node : graph.nodes) {
    if (node.op == "BatchNormalization" && node.attributes.Int("training_mode", 0) == 0) ++inference;
    if (node.op == "StopGradient") ++(node.attributes.has(std::string(kStoppedByName)) ? named : detached);
    if (node.op == "MaskGradient") ++padded;
    const Folding folding = FoldingOf(graph, node);
    dynamo += folding == Folding::kDynamo ? 1 : 0;
    legacy += folding == Folding::kLegacy ? 1 : 0;
  }
  std::vector<std::string> notes;
  if (detached > 0) {
    notes.push_back("detach  " + Counted(detached, "value") + (detached == 1 ? " gets" : " get") +
                    " no gradient: the file says that the module detached " + (detached == 1 ? "it" : "them") +
                    "; use --no-detach to train through");
  }
  if (padded > 0) {
    notes.push_back("detach  the padding row of " + Counted(padded, "embedding") + (padded == 1 ? " gets" : " get") +
                    " no gradient, as in the module (padding_idx); use --no-detach to train through");
  }
  if (named > 0)
    notes.push_back("detach  " + Counted(named, "value") + (named == 1 ? " gets" : " get") + " no gradient: named by --detach");
  if (const int64_t quantized = CountQuantized(graph); quantized > 0) {
    notes.push_back("warning " + Counted(quantized, "tensor") + (quantized == 1 ? " is" : " are") +
                    " quantized to integers, which are not trained: train the original file instead");
  }
  if (mode == GraphMode::kGraph) {
    if (inference > 0)
      notes.push_back("mode    graph   [" + Counted(inference, "BatchNormalization") + " use and keep stored statistics, as written]");
    return notes;
  }
  if (inference > 0) {
    notes.push_back("mode    train   [" + Counted(inference, "BatchNormalization") +
                    " in inference form train with batch statistics; --mode graph trains them as written]");
  }
  if (const int64_t written = CountWrittenNorms(graph); written > 0) {
    notes.push_back("warning " + Counted(written, "normalization") +
                    " with running statistics, decomposed into elementary operators: the statistics are not updated");
  }
  if (dynamo + legacy > 0) {
    const char* flag =
        dynamo > 0 ? "torch.onnx.export(..., optimize=False)" : "torch.onnx.export(..., training=torch.onnx.TrainingMode.TRAINING)";
    notes.push_back("warning " + Counted(dynamo + legacy, "layer") +
                    (dynamo + legacy == 1 ? " seems to hold a BatchNormalization that the exporter folded in, and trains"
                                          : " seem to hold a BatchNormalization that the exporter folded in, and train") +
                    " without batch statistics; " + flag + " keeps it");
  }
  return notes;
}

}  // namespace gradloom
