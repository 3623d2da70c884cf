#include "tools/run/loss_terms.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>

#include "compiler/onnx_loss.h"
#include "runtime/base/call_text.h"
#include "runtime/base/error.h"
#include "tools/run/key_values.h"
#include "tools/run/loss_guess.h"
#include "tools/run/model_options.h"

namespace gradloom {
namespace {

std::vector<double> Numbers(const std::string& text, const std::string& what) {
  std::vector<double> values;
  for (const std::string& piece : Pieces(text, ':')) values.push_back(ParseNumber(piece, what));
  return values;
}

void SetOption(LossTerm& term, const std::string& key, const std::string& value) {
  const std::string what = "option " + key + " of the loss";
  if (key == "training_info" && term.type == "algorithm") {
    term.training_info = static_cast<int>(ParseNumber(value, what));
  } else if (key == "reduction") {
    term.reduction = value;
  } else if (key == "class_axis") {
    term.class_axis = static_cast<int64_t>(ParseNumber(value, what));
  } else if (key == "ignore_index") {
    term.ignore_index = static_cast<int64_t>(ParseNumber(value, what));
  } else if (key == "label_smoothing") {
    term.label_smoothing = ParseNumber(value, what);
  } else if (key == "probabilities") {
    if (value != "true" && value != "false") throw Error(ErrorCode::kConfig, what + " must be true or false, got '" + Escaped(value) + "'");
    term.probabilities = value == "true";
  } else if (key == "class_weight") {
    term.class_weight = Numbers(value, what);
  } else if (key == "pos_weight") {
    term.pos_weight = Numbers(value, what);
  } else if (key == "beta") {
    term.beta = ParseNumber(value, what);
  } else if (key == "delta") {
    term.delta = ParseNumber(value, what);
  } else {
    CheckOneOf(
        key, {"reduction", "class_axis", "ignore_index", "label_smoothing", "probabilities", "class_weight", "pos_weight", "beta", "delta"},
        "unknown option of a loss '" + Escaped(key) + "'");
  }
}

LossTerm FileTerm(const CallText& call, const std::map<std::string, int64_t>& shapes) {
  LossTerm term{.type = "graph"};
  if (!call.output.empty()) {
    throw Error(
        ErrorCode::kConfig, "the inputs of a loss graph must be bound by name", "loss '" + Escaped(call.name, 4096) + "'",
        "write INPUT=OUTPUT or INPUT=TARGET for each input with another name: my_loss.onnx(prediction=" + Escaped(call.output) + ")");
  }
  for (const auto& [input, operand] : call.options) {
    if (term.bindings.emplace(input, operand).second) continue;
    throw Error(ErrorCode::kConfig, "the input '" + Escaped(input) + "' is given twice", "loss '" + Escaped(call.name, 4096) + "'");
  }
  term.graph = std::make_shared<const OnnxLoss>(Model::Load(call.name), shapes);
  return term;
}

LossTerm ParseLoss(const std::string& text, const std::map<std::string, int64_t>& shapes) {
  std::string body = Trimmed(text);
  double weight = 1;
  const size_t star = body.rfind('*');
  if (star != std::string::npos && body.find(')', star) == std::string::npos) {
    weight = ParseNumber(Trimmed(body.substr(star + 1)), "the weight of the loss");
    body = Trimmed(body.substr(0, star));
  }
  const CallText call = ParseCall(body, "loss", "cross_entropy(OUTPUT, TARGET, label_smoothing=0.1)");
  LossTerm term;
  if (FileLengthOf(call.name) > 0) {
    term = FileTerm(call, shapes);
  } else {
    CheckOneOf(call.name, LossTypes(), "unknown loss '" + Escaped(call.name) + "'");
    term.type = call.name;
    term.output = call.output;
    term.target = call.target;
    for (const auto& [key, value] : call.options) SetOption(term, key, value);
  }
  term.weight = weight;
  return term;
}

// The loss of the file's own training algorithm, if none is configured; otherwise a guess from the first output.
LossTerm LossByModel(const Configuration& configuration, const Model& model, const Graph& graph, std::vector<std::string>& notes) {
  const bool chosen = std::any_of(Keys().begin(), Keys().end(),
                                  [&](const Key& key) { return key.section() == "optimizer" && IsChanged(configuration, key); });
  if (!model.has_algorithm() || chosen) return GuessLoss(graph, notes);
  notes.push_back("loss    algorithm   [the file's own: loss, gradients and updates of its training_info; set --loss to change]");
  return {.type = "algorithm"};
}

}  // namespace

std::vector<LossTerm> LossTermsOf(const Configuration& configuration, const Model& model, const Graph& graph,
                                  std::vector<std::string>& notes) {
  std::vector<LossTerm> losses;
  const std::map<std::string, int64_t> shapes = ImportOptionsOf(configuration).shapes;
  Reading(configuration, "loss.name", [&] {
    for (const std::string& text : configuration.Texts("loss.name")) losses.push_back(ParseLoss(text, shapes));
  });
  if (const std::string& file = configuration.Text("loss.onnx"); !file.empty()) {
    losses.push_back(FileTerm({.name = file, .output = "", .target = "", .options = {}}, shapes));
  }
  if (losses.empty()) losses.push_back(LossByModel(configuration, model, graph, notes));
  WarnOfSecondFunction(losses, graph, notes);
  return losses;
}

std::string TargetOf(const LossTerm& term) { return term.target.empty() ? "target" : term.target; }

const Value& OutputOf(const LossTerm& term, const Graph& graph) {
  for (const ValueId id : graph.outputs) {
    if (graph.value(id).name == term.output) return graph.value(id);
  }
  return graph.value(graph.outputs.front());
}

std::vector<std::string> LossFilesOf(const Configuration& configuration) {
  std::vector<std::string> files;
  for (const std::string& text : configuration.Texts("loss.name")) {
    const std::string term = Trimmed(text);
    if (const size_t length = FileLengthOf(term); length > 0) files.push_back(term.substr(0, length));
  }
  if (const std::string& file = configuration.Text("loss.onnx"); !file.empty()) files.push_back(file);
  return files;
}

}  // namespace gradloom
