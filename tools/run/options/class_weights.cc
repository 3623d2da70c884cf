#include "tools/run/options/class_weights.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "runtime/base/call_text.h"
#include "runtime/base/error.h"
#include "runtime/base/listing.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/loss_terms.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

constexpr char kBalanced[] = "balanced";

// A name may contain an equals sign, a weight cannot.
std::map<std::string, double> NamedWeights(const std::string& text) {
  std::map<std::string, double> weights;
  for (const std::string& piece : Pieces(text, ':')) {
    const size_t equals = piece.rfind('=');
    if (equals == std::string::npos) {
      throw Error(ErrorCode::kConfig, "'" + Escaped(piece) + "' in class_weight has no weight", "",
                  "write cat=1:dog=2, or numbers in the order of the classes: 1:2");
    }
    const std::string name = Trimmed(piece.substr(0, equals));
    const double weight = ParseNumber(Trimmed(piece.substr(equals + 1)), "the weight of class '" + Escaped(name) + "'");
    if (weights.emplace(name, weight).second) continue;
    throw Error(ErrorCode::kConfig, "class_weight has two weights for the class '" + Escaped(name) + "'");
  }
  return weights;
}

// The names of a target's classes in the order of their numbers; classes without a name have their number.
std::vector<std::string> NamesInOrder(const TrainingNames& names, const std::string& target, int64_t count) {
  const auto found = names.labels.find(target);
  // A folder of images has one target.
  std::vector<std::string> in_order = found != names.labels.end() ? found->second : names.classes;
  for (int64_t c = std::ssize(in_order); c < count; ++c) in_order.push_back(std::to_string(c));
  in_order.resize(static_cast<size_t>(count));
  return in_order;
}

std::vector<double> WeightsByName(const std::string& text, const std::vector<std::string>& classes) {
  const std::map<std::string, double> by_name = NamedWeights(text);
  for (const auto& [name, weight] : by_name) CheckOneOf(name, classes, "class_weight names '" + Escaped(name) + "', which is not a class");
  std::vector<double> weights;
  for (const std::string& name : classes) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      throw Error(ErrorCode::kConfig, "class_weight has no weight for the class '" + Escaped(name) + "'", "",
                  "add  :" + Escaped(name) + "=1  to change nothing for it");
    }
    weights.push_back(found->second);
  }
  return weights;
}

// Counts the labels of a target by class, and all that are not ignored.
class LabelCounts {
 public:
  explicit LabelCounts(const ClassRange& range) : range_(range), counts_(static_cast<size_t>(range.count)) {}

  void Add(const TensorView& labels) {
    for (int64_t i = 0; i < labels.elements(); ++i) {
      const int64_t label = ElementAsInt(labels, i);
      if (range_.ignored && label == *range_.ignored) continue;
      ++counts_[static_cast<size_t>(label)];
      ++rows_;
    }
  }
  const std::vector<int64_t>& counts() const { return counts_; }
  int64_t rows() const { return rows_; }

 private:
  const ClassRange& range_;
  std::vector<int64_t> counts_;
  int64_t rows_ = 0;
};

LabelCounts CountLabels(const Dataset& data, const std::string& target, const ClassRange& range) {
  LabelCounts made(range);
  if (const auto column = data.columns().find(target); column != data.columns().end()) {
    made.Add(column->second.view());
    return made;
  }
  // Labels that stay in their file. Reading a row checks its class.
  const Dataset::LazyColumn& column = data.lazy_columns().at(target);
  ForEachPiece(*column.source, column.rows, [&](const TensorView& labels) { made.Add(labels); });
  return made;
}

// rows / (classes * rows of the class), as scikit-learn's compute_class_weight.
std::vector<double> BalancedWeights(const Dataset& train, const std::string& target, const ClassRange& range,
                                    const std::vector<std::string>& classes) {
  const LabelCounts labels = CountLabels(train, target, range);
  const std::vector<int64_t>& counts = labels.counts();
  std::vector<double> weights;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) {
      throw Error(ErrorCode::kConfig,
                  "class_weight=balanced, but the class '" + Escaped(classes[c]) + "' does not occur in the training data", "",
                  "give a weight for each class");
    }
    weights.push_back(static_cast<double>(labels.rows()) / (static_cast<double>(range.count) * static_cast<double>(counts[c])));
  }
  return weights;
}

}  // namespace

bool AreWeightsByData(const std::string& value) {
  if (value == kBalanced) return true;
  return value.find('=') != std::string::npos && !NamedWeights(value).empty();
}

void WeighClasses(const Configuration& configuration, const TrainingData& data, const std::map<std::string, ClassRange>& classes,
                  Recipe& recipe, std::vector<std::string>& notes) {
  std::vector<std::string> by_data = WeightsByDataOf(configuration);
  by_data.resize(recipe.losses.size());
  for (size_t i = 0; i < recipe.losses.size(); ++i) {
    LossTerm& term = recipe.losses[i];
    const std::string target = term.TargetName();
    const auto range = classes.find(target);
    if (range == classes.end()) {
      if (by_data[i].empty()) continue;
      throw Error(ErrorCode::kConfig, "class_weight=" + Escaped(by_data[i]) + ", but the target '" + Escaped(target) + "' has no classes");
    }
    const std::vector<std::string> names = NamesInOrder(data.names, target, range->second.count);
    if (by_data[i] == kBalanced) {
      term.class_weight = BalancedWeights(data.train, target, range->second, names);
    } else if (!by_data[i].empty()) {
      term.class_weight = WeightsByName(by_data[i], names);
    }
    // Another number of weights than of classes is found when the loss is compiled.
    if (term.class_weight.size() != names.size()) continue;
    Listing listed(20);
    for (size_t c = 0; c < names.size(); ++c) listed.Add(Escaped(names[c], 80) + " (" + Short(term.class_weight[c]) + ")");
    notes.push_back("weights of the classes of " + Escaped(target) + ": " + listed.text());
  }
}

void WeighClassesAsTrained(const Configuration& configuration, std::span<const LossInfo> trained, Recipe& recipe) {
  const std::vector<std::string> by_data = WeightsByDataOf(configuration);
  for (size_t i = 0; i < std::min(by_data.size(), recipe.losses.size()); ++i) {
    LossTerm& term = recipe.losses[i];
    if (by_data[i].empty()) continue;
    for (const LossInfo& info : trained) {
      if (info.type == term.type && (term.output.empty() || info.output == term.output) && info.target == term.TargetName())
        term.class_weight = info.class_weight;
    }
  }
}

void RefuseWeightsByData(const Configuration& configuration) {
  for (const std::string& weights : WeightsByDataOf(configuration)) {
    if (weights.empty()) continue;
    throw Error(ErrorCode::kConfig, "class_weight=" + Escaped(weights) + " needs the training data, which is not known here",
                Escaped(configuration.origin("loss.name").place, 4096),
                "give a number for each class, in their order: class_weight=1:2:0.5");
  }
}

}  // namespace gradloom
