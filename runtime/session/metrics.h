// What a run is judged by, gathered batch by batch and exact over a last partial batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

// Which metric of which output and target.
struct MetricSpec {
  std::string name;
  std::string output, target;           // empty: the only one, or the first loss's
  int64_t class_axis = 1;               // of outputs whose targets are classes; -1: the last
  std::optional<int64_t> ignore_index;  // such targets count for nothing
  double threshold = 0;                 // scores above it mean yes: 0 for logits, 0.5 for probabilities
  bool probabilities = false;           // of classes: the output has these, not scores of which the softmax has to be taken
  std::string label;                    // what its values are named by; empty: the name

  const std::string& shown() const { return label.empty() ? name : label; }

  // "accuracy" or "auroc(logits, label)"; whether there is such a metric is another question. Throws Error(kConfig).
  static MetricSpec Parse(const std::string& text);
};

// A target of an integer type holds the class of each sample (or of each place in it); the output then has scores
// along the class axis, of which the softmax is the probability (of logits and of their logarithms alike). A floating
// target has 0 or 1 (above 0.5 is yes) for each element of the output, or a number to come near to.
class Metric {
 public:
  virtual ~Metric() = default;

  // One batch. Throws Error(kConfig) where output and target do not suit the metric, Error(kData) for a class that the
  // output does not have.
  virtual void Add(const TensorView& output, const TensorView& target) = 0;

  // Over everything added, by name; NaN where it says nothing. The first name is the metric's own, others add to it:
  // "auroc", "auroc/0", "auroc/1" ...
  virtual std::map<std::string, double> Values() const = 0;

  //   accuracy    share of samples whose largest score is the target's; of yes or no, share of elements right
  //   top5        share of samples whose target is among the 5 largest scores (any number; of equal scores the
  //               lower class comes first)
  //   f1          2 TP / (2 TP + FP + FN): of one column of yes or no, that column's; of classes or of several
  //               columns, the mean over those that occur (in target or prediction)
  //   auroc       area under the ROC curve, equal scores counted half: per class against the rest or per column, and
  //               the mean over those that have both kinds of samples
  //   perplexity  exp of the mean of -log probability of the target's class
  //   mse, rmse, mae   over all elements
  // Throws Error(kConfig) for another name, with the nearest.
  static std::unique_ptr<Metric> Make(const MetricSpec& spec);
};

// Labels those that have a name in common, as of a model with several outputs: "rmse/a" and "rmse/b" by their outputs, "rmse/a/t" by their
// targets, too, where the output is the same. Of those that look at the same, the first stays. Outputs and targets are named.
void TellApart(std::vector<MetricSpec>& specs);

// The names that Make knows; top5 stands for all of its kind.
std::vector<std::string> MetricNames();

// By what others call it: "acc" is "accuracy". Other words stay as they are.
std::string MetricNameOf(const std::string& word);

// Whether a larger value is better, for "loss" too.
bool LargerIsBetter(std::string_view metric);

}  // namespace gradloom
