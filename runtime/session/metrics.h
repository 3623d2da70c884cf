// Metrics of a run, accumulated batch by batch, and exact with a last partial batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/plan/loss_info.h"

namespace gradloom {

// Whether the loss's target has a probability for each class along its class axis, as one-hot labels do, in the output's shape. That of
// kl_div does.
bool TargetHasProbabilities(const LossInfo& loss);

// A metric of an output and a target.
struct MetricSpec {
  std::string name;
  std::string output, target;           // empty: the only one, or that of the first loss
  std::optional<int64_t> class_axis;    // of the classes, or of the columns of yes or no; -1: the last; none: as the shapes say, or else 1
  std::optional<int64_t> ignore_index;  // targets of this class are ignored; none: kIgnoredClass
  std::optional<double> threshold;      // scores above it mean yes: 0 for logits, 0.5 for probabilities; none: 0
  bool probabilities = false;           // for classes: the output has probabilities, not scores that need a softmax
  bool target_probabilities = false;    // a floating-point target has a probability for each class, of which the largest is right
  bool numbers = false;                 // the loss takes the target for numbers, so only those that mean yes or no can be decided
  int sample_axis = 0;                  // of the output
  int threads = 0;                      // that read an output of many scores; 0: one for each core
  std::string label;                    // name of its values; empty: `name`

  const std::string& shown() const { return label.empty() ? name : label; }

  // Whether the target says which class is right, instead of yes or no, or a number, for each element.
  bool ComparesClasses(const TensorView& target) const { return target_probabilities || !IsFloating(target.dtype); }

  // Sets what is not set yet, and what has probabilities, as the loss of the same output and target has it; of several, the first that
  // compares classes, probabilities or yes and no. Without such a loss, one of the same target, chosen likewise, says only what the target
  // has. A threshold that is already set means yes or no for each element.
  void ReadLikeLoss(std::span<const LossInfo> losses);

  // Throws Error(kConfig) if a metric of such an output and target could not be computed. The elements are not read.
  void CheckShapes(const TensorView& output, const TensorView& target) const;
  // Throws Error(kConfig) if the metric decides between yes and no, and one of these elements of the target is a number that means neither.
  void CheckTargets(const TensorView& target) const;

  // Parses "accuracy" or "auroc(logits, label, class_axis=-1)", without checking whether there is such a metric. The options are
  // class_axis, ignore_index and threshold. Throws Error(kConfig).
  static MetricSpec Parse(const std::string& text);
};

// An integer target holds the class of each sample (or of each position in it). The output then has scores along the class axis, whose
// softmax is the probability (for logits and log-probabilities alike). A floating-point target has a probability for each class, or 0 or 1
// (above 0.5 is yes) for each element of the output, or the number to predict. Columns of yes or no are along axis 1, or the class axis,
// and have all positions of the other axes.
class Metric {
 public:
  virtual ~Metric() = default;

  // Adds one batch. Throws Error(kConfig) if output and target do not suit the metric, Error(kData) for a class that the output does not
  // have.
  virtual void Add(const TensorView& output, const TensorView& target) = 0;

  // The values over everything added, by name; NaN if undefined. The first name is the metric's own, and others extend it: "auroc",
  // "auroc/0", "auroc/1" ...
  virtual std::map<std::string, double> Values() const = 0;

  //   accuracy    share of samples whose largest score is the target's; of yes or no, share of elements right
  //   top5        share of samples whose target is among the 5 largest scores (any number; of equal scores the
  //               lower class comes first)
  //   f1          2 TP / (2 TP + FP + FN): of one column of yes or no, that column's; of classes or of several
  //               columns, the mean over those that occur (in target or prediction)
  //   iou         TP / (TP + FP + FN), with the same mean, and each class or column: "iou/0" ...
  //   precision   TP / (TP + FP), with the same mean, and each class or column: "precision/0" ...
  //   recall      TP / (TP + FN), likewise
  //   auroc       area under the ROC curve, equal scores counted half: per class against the rest or per column, and
  //               the mean over those that have both kinds of samples
  //   perplexity  exp of the mean of -log probability of the target's class
  //   mse, rmse, mae   over all elements
  // Throws Error(kConfig) for an unknown name, with the nearest one.
  static std::unique_ptr<Metric> Make(const MetricSpec& spec);
};

// Labels metrics with the same name, as for a model with several outputs: "rmse/a" and "rmse/b" by their outputs, "rmse/a/t" also by their
// targets if the output is the same, and "f1/threshold=0.3" by their options if both are the same. Of equal ones, the first stays. Outputs
// and targets must be set, options as they were given (before ReadLikeLoss).
void DisambiguateNames(std::vector<MetricSpec>& specs);

// The names that Make accepts; top5 stands for any number.
std::vector<std::string> MetricNames();

// Resolves an alias: "acc" is "accuracy". Other words stay as they are.
std::string MetricNameOf(const std::string& word);

// Whether a larger value is better, for "loss" too.
bool LargerIsBetter(std::string_view metric);

}  // namespace gradloom
