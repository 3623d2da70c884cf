#include "tools/run/options/loss_terms.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/onnx_loss.h"
#include "runtime/base/call_text.h"
#include "runtime/base/error.h"
#include "tools/run/options/class_weights.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/loss_guess.h"
#include "tools/run/options/model_options.h"

namespace gradloom {
namespace {

constexpr std::string_view kAlgorithm = "algorithm";

constexpr std::string_view kClassLosses = "cross_entropy, cross_entropy_of_probabilities, nll";
constexpr std::string_view kSmoothedLosses = "cross_entropy, cross_entropy_of_probabilities";

// The options of losses, with the losses that have them; every loss but `algorithm` has the one without a list.
constexpr struct {
  std::string_view option, losses;
} kOptions[] = {
    {"reduction", ""},
    {"class_axis", kClassLosses},
    {"ignore_index", kClassLosses},
    {"label_smoothing", kSmoothedLosses},
    {"probabilities", kSmoothedLosses},
    {"class_weight", kClassLosses},
    {"pos_weight", "bce_with_logits"},
    {"beta", "smooth_l1"},
    {"delta", "huber"},
    {"q", "quantile"},
    {"log_input", "poisson_nll"},
    {"alpha", "sigmoid_focal"},
    {"gamma", "sigmoid_focal"},
    {"training_info", kAlgorithm},
};

bool HasOption(const std::string& loss, std::string_view losses) {
  if (losses.empty()) return loss != kAlgorithm;
  const std::vector<std::string> listed = Pieces(std::string(losses), ',');
  return std::find(listed.begin(), listed.end(), loss) != listed.end();
}

// Throws Error(kConfig) for an option that no loss has, or only others.
void CheckOption(const std::string& loss, const std::string& option) {
  std::vector<std::string> own;
  for (const auto& [name, losses] : kOptions) {
    if (HasOption(loss, losses)) own.emplace_back(name);
  }
  for (const auto& [name, losses] : kOptions) {
    if (name != option || HasOption(loss, losses)) continue;
    throw Error(
        ErrorCode::kConfig,
        option + (losses.empty() ? " is not an option of " : " is an option of " + std::string(losses) + ", and the loss is ") + loss, "",
        "leave it out, or choose another loss");
  }
  CheckOneOf(option, own, "unknown option of a loss '" + Escaped(option) + "'");
}

double FiniteNumber(const std::string& text, const std::string& what) {
  const double value = ParseNumber(text, what);
  if (!std::isfinite(value)) throw Error(ErrorCode::kConfig, what + " must be a finite number, got '" + Escaped(text) + "'");
  return value;
}

// At most 2^31 - 1 in magnitude.
int WholeNumber(const std::string& text, const std::string& what) {
  const double value = ParseNumber(text, what);
  if (!(std::abs(value) <= std::numeric_limits<int>::max()) || value != std::trunc(value))
    throw Error(ErrorCode::kConfig, what + " must be a whole number, got '" + Escaped(text) + "'");
  return static_cast<int>(value);
}

bool Truth(const std::string& text, const std::string& what) {
  if (text != "true" && text != "false") throw Error(ErrorCode::kConfig, what + " must be true or false, got '" + Escaped(text) + "'");
  return text == "true";
}

std::vector<double> Numbers(const std::string& text, const std::string& what) {
  std::vector<double> values;
  for (const std::string& piece : Pieces(text, ':')) values.push_back(FiniteNumber(piece, what));
  return values;
}

void SetOption(LossTerm& term, const std::string& key, const std::string& value) {
  CheckOption(term.type, key);
  const std::string what = "option " + key + " of the loss";
  if (key == "training_info") {
    term.training_info = WholeNumber(value, what);
  } else if (key == "reduction") {
    term.reduction = value;
  } else if (key == "class_axis") {
    term.class_axis = WholeNumber(value, what);
  } else if (key == "ignore_index") {
    term.ignore_index = WholeNumber(value, what);
  } else if (key == "label_smoothing") {
    term.label_smoothing = FiniteNumber(value, what);
  } else if (key == "probabilities") {
    term.probabilities = Truth(value, what);
  } else if (key == "class_weight") {
    if (!AreWeightsByData(value)) term.class_weight = Numbers(value, what);
  } else if (key == "pos_weight") {
    term.pos_weight = Numbers(value, what);
  } else if (key == "beta") {
    term.beta = FiniteNumber(value, what);
  } else if (key == "delta") {
    term.delta = FiniteNumber(value, what);
  } else if (key == "q") {
    term.quantile = FiniteNumber(value, what);
  } else if (key == "log_input") {
    term.log_input = Truth(value, what);
  } else if (key == "alpha") {
    term.alpha = FiniteNumber(value, what);
  } else if (key == "gamma") {
    term.gamma = FiniteNumber(value, what);
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

// The parts of a loss, and its weight.
std::pair<CallText, double> CallOf(const std::string& text) {
  std::string body = Trimmed(text);
  double weight = 1;
  const size_t star = body.rfind('*');
  if (star != std::string::npos && body.find(')', star) == std::string::npos) {
    weight = FiniteNumber(Trimmed(body.substr(star + 1)), "the weight of the loss");
    body = Trimmed(body.substr(0, star));
  }
  return {ParseCall(body, "loss", "cross_entropy(OUTPUT, TARGET, label_smoothing=0.1)"), weight};
}

LossTerm ParseLoss(const std::string& text, const std::map<std::string, int64_t>& shapes) {
  const auto [call, weight] = CallOf(text);
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
  WarnOfUnfitOutputs(losses, graph, notes);
  return losses;
}

std::vector<std::string> WeightsByDataOf(const Configuration& configuration) {
  std::vector<std::string> weights;
  for (const std::string& text : configuration.Texts("loss.name")) {
    std::string& of_term = weights.emplace_back();
    if (FileLengthOf(Trimmed(text)) > 0) continue;
    for (const auto& [key, value] : CallOf(text).first.options) {
      if (key == "class_weight" && AreWeightsByData(value)) of_term = value;
    }
  }
  return weights;
}

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
