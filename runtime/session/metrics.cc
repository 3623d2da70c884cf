#include "runtime/session/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/attributes.h"
#include "runtime/base/call_text.h"
#include "runtime/base/error.h"
#include "runtime/base/ignored_class.h"
#include "runtime/base/joined.h"
#include "runtime/base/number_text.h"
#include "runtime/base/read_number.h"
#include "runtime/base/run_on_threads.h"
#include "runtime/base/suggestion.h"
#include "runtime/session/metrics_internal.h"

namespace gradloom {
namespace internal {
namespace {

// How far a probability may be from [0, 1] by rounding.
constexpr double kSoft = 1e-3;

// This axis of the output, counted from the start.
int64_t AxisOf(const MetricSpec& spec, int64_t stated, const TensorView& output) {
  const int rank = output.shape.rank();
  const int64_t axis = stated < 0 ? stated + rank : stated;
  if (axis >= 0 && axis < rank) return axis;
  throw Error(ErrorCode::kConfig, Escaped(spec.name) + " needs classes or columns along axis " + std::to_string(stated) +
                                      ", but the output is " + output.shape.ToString());
}

}  // namespace

ClassScores::ClassScores(const MetricSpec& spec, const TensorView& output, const TensorView& target)
    : spec_(spec),
      output_(output),
      target_(target),
      floats_(output.dtype == DType::kFloat32 ? static_cast<const float*>(output.data) : nullptr),
      target_has_probabilities_(spec.target_probabilities && IsFloating(target.dtype)) {
  const int64_t axis = AxisOf(spec, spec.class_axis ? *spec.class_axis : ClassAxis(), output);
  for (int i = 0; i < output.shape.rank(); ++i) (i < axis ? outer_ : i == axis ? classes_ : inner_) *= output.shape[i];
  if (target_has_probabilities_) {
    CheckSameElements(spec, output, target);
  } else if (target.elements() != positions()) {
    throw Error(ErrorCode::kConfig,
                Escaped(spec.name) + " of " + output.shape.ToString() + " with the classes along axis " + std::to_string(axis) +
                    " needs one class for each of " + std::to_string(positions()) + " positions, but the target is " +
                    target.shape.ToString(),
                "",
                "if the classes are along another axis, name it: " + Escaped(spec.name) + "(" + Escaped(spec.output) + ", " +
                    Escaped(spec.target) + ", class_axis=-1)");
  }
}

int64_t ClassScores::ClassAxis() const {
  const int rank = output_.shape.rank();
  const auto fits = [&](int axis) {
    std::vector<int64_t> positions(output_.shape.begin(), output_.shape.end()), classes(target_.shape.begin(), target_.shape.end());
    positions.erase(positions.begin() + axis);
    while (classes.size() > positions.size() && classes.back() == 1) classes.pop_back();
    return positions == classes;
  };
  for (int axis = 1; axis < rank; ++axis) {
    if (fits(axis)) return axis;
  }
  return rank == 1 ? 0 : 1;
}

int64_t ClassScores::Class(int64_t position) const {
  int64_t c = 0;
  if (target_has_probabilities_) {
    for (int64_t other = 1; other < classes_; ++other) {
      c = ElementAsDouble(target_, Element(position, other)) > ElementAsDouble(target_, Element(position, c)) ? other : c;
    }
  } else {
    c = ElementAsInt(target_, position);
  }
  if (c == spec_.ignore_index.value_or(kIgnoredClass)) return -1;
  if (c < 0 || c >= classes_) {
    throw Error(ErrorCode::kData, "the class " + std::to_string(c) + " of element " + std::to_string(position) +
                                      " of the batch is not between 0 and " + std::to_string(classes_ - 1));
  }
  return c;
}

int64_t ClassScores::Predicted(int64_t position) const {
  if (classes_ == 0) return 0;
  const int64_t first = Element(position, 0);
  int64_t said = 0;
  double largest = ScoreOf(first);
  for (int64_t c = 1; c < classes_; ++c) {
    const double score = ScoreOf(first + c * inner_);
    if (score > largest) said = c, largest = score;
  }
  return said;
}

double ClassScores::LogSum(int64_t position) const {
  const int64_t first = Element(position, 0);
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t c = 0; c < classes_; ++c) largest = std::max(largest, ScoreOf(first + c * inner_));
  for (int64_t c = 0; c < classes_; ++c) sum += std::exp(ScoreOf(first + c * inner_) - largest);
  return largest + std::log(sum);
}

bool ClassScores::IsAmongLargest(int64_t position, int64_t right, int64_t k) const {
  const int64_t first = Element(position, 0);
  const double own = ScoreOf(first + right * inner_);
  if (std::isnan(own)) return false;
  int64_t before = 0;
  for (int64_t c = 0; c < classes_ && before < k; ++c) {
    const double other = ScoreOf(first + c * inner_);
    before += other > own || (other == own && c < right);
  }
  return before < k;
}

void ClassScores::ForEachPosition(const std::function<void(int64_t)>& f) const {
  constexpr int64_t kScoresPerPart = int64_t{1} << 18;  // take longer than to start a thread
  const int64_t each = std::max<int64_t>(kScoresPerPart / std::max<int64_t>(classes_, 1), 1);
  RunOnThreads((positions() + each - 1) / each, spec_.threads > 0 ? spec_.threads : NumCores(), [&](int64_t part) {
    for (int64_t position = part * each; position < std::min((part + 1) * each, positions()); ++position) f(position);
  });
}

bool IsYes(const MetricSpec& spec, const TensorView& target, int64_t i) {
  const double value = ElementAsDouble(target, i);
  const bool whole = value == 0 || value == 1 || value == -1;
  if (whole || std::isnan(value) || (!spec.numbers && value > -kSoft && value < 1 + kSoft)) return value > 0.5;
  throw Error(ErrorCode::kConfig,
              Escaped(spec.name) + " needs a target of classes, or of yes and no as 1 and 0, but '" + Escaped(spec.target) + "' has " +
                  NumberText(value),
              "", "measure numbers with rmse, mse or mae");
}

void CheckSameElements(const MetricSpec& spec, const TensorView& output, const TensorView& target) {
  if (output.elements() == target.elements()) return;
  throw Error(ErrorCode::kConfig, Escaped(spec.name) + " needs an output and a target of the same size, got " + output.shape.ToString() +
                                      " and " + target.shape.ToString());
}

Columns::Columns(const MetricSpec& spec, const TensorView& output) {
  const int rank = output.shape.rank();
  if (rank < 2) return;
  // Axis 1, counted with the samples first.
  const int usual = spec.sample_axis > 0 ? 0 : 1;
  const int64_t axis = AxisOf(spec, spec.class_axis.value_or(usual), output);
  count_ = output.shape[static_cast<int>(axis)];
  for (int64_t i = axis + 1; i < rank; ++i) inner_ *= output.shape[static_cast<int>(i)];
}

}  // namespace internal

namespace {

using internal::CheckSameElements;
using internal::ClassScores;

// The mean of one number per position or element, and a function applied to it at the end.
class MeanMetric : public Metric {
 public:
  explicit MeanMetric(const MetricSpec& spec) : spec_(spec) {}

  std::map<std::string, double> Values() const override {
    return {{spec_.name, count_ == 0 ? std::numeric_limits<double>::quiet_NaN() : Finished(sum_ / static_cast<double>(count_))}};
  }

 protected:
  virtual double Finished(double mean) const { return mean; }
  void Count(double value) {
    sum_ += value;
    ++count_;
  }

  MetricSpec spec_;

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

// k = 1 is accuracy.
class TopK : public MeanMetric {
 public:
  TopK(const MetricSpec& spec, int64_t k) : MeanMetric(spec), k_(k) {}

  void Add(const TensorView& output, const TensorView& target) override {
    if (!spec_.ComparesClasses(target)) return AddBinary(output, target);
    const ClassScores scores(spec_, output, target);
    const auto are_right = scores.Computed<std::optional<bool>>([&](int64_t position) -> std::optional<bool> {
      const int64_t right = scores.Class(position);
      if (right < 0) return std::nullopt;
      return scores.IsAmongLargest(position, right, k_);
    });
    for (const std::optional<bool>& is_right : are_right) {
      if (is_right) Count(*is_right ? 1 : 0);
    }
  }

 private:
  void AddBinary(const TensorView& output, const TensorView& target) {
    if (k_ != 1) throw Error(ErrorCode::kConfig, Escaped(spec_.name) + " needs classes as targets, not binary labels");
    CheckSameElements(spec_, output, target);
    for (int64_t i = 0; i < output.elements(); ++i) {
      Count((ElementAsDouble(output, i) > spec_.threshold.value_or(0)) == internal::IsYes(spec_, target, i));
    }
  }

  int64_t k_;
};

class Perplexity : public MeanMetric {
 public:
  using MeanMetric::MeanMetric;

  void Add(const TensorView& output, const TensorView& target) override {
    if (!spec_.ComparesClasses(target))
      throw Error(ErrorCode::kConfig, "perplexity needs classes as targets", "", "use rmse or mae for numbers");
    const ClassScores scores(spec_, output, target);
    const auto losses = scores.Computed<std::optional<double>>([&](int64_t position) -> std::optional<double> {
      const int64_t right = scores.Class(position);
      if (right < 0) return std::nullopt;
      return scores.LogSum(position) - scores.Score(position, right);
    });
    for (const std::optional<double>& loss : losses) {
      if (loss) Count(*loss);
    }
  }

 protected:
  double Finished(double mean) const override { return std::exp(mean); }
};

// The mean of |difference|^power, optionally followed by the root.
class MeanError : public MeanMetric {
 public:
  MeanError(const MetricSpec& spec, int power, bool root) : MeanMetric(spec), power_(power), root_(root) {}

  void Add(const TensorView& output, const TensorView& target) override {
    CheckSameElements(spec_, output, target);
    for (int64_t i = 0; i < output.elements(); ++i) {
      const double difference = std::abs(ElementAsDouble(output, i) - ElementAsDouble(target, i));
      Count(power_ == 1 ? difference : difference * difference);
    }
  }

 protected:
  double Finished(double mean) const override { return root_ ? std::sqrt(mean) : mean; }

 private:
  int power_;
  bool root_;
};

// The 5 of "top5", or 0.
int64_t CountOfTop(std::string_view name) {
  if (!name.starts_with("top")) return 0;
  return std::max<int64_t>(ReadNumber<int64_t>(name.substr(3)).value_or(0), 0);
}

template <typename T>
T OptionOf(const std::string& key, const std::string& text, const std::string& wanted) {
  if (const std::optional<T> value = ReadNumber<T>(text)) return *value;
  throw Error(ErrorCode::kConfig, "option " + key + " of a metric must be " + wanted + ", got '" + Escaped(text) + "'");
}

// The options that are set, as a part of a label: "/class_axis=-1/threshold=0.5".
std::string OptionsText(const MetricSpec& spec) {
  std::string text;
  if (spec.class_axis) text += "/class_axis=" + std::to_string(*spec.class_axis);
  if (spec.ignore_index) text += "/ignore_index=" + std::to_string(*spec.ignore_index);
  if (spec.threshold) text += "/threshold=" + Attributes::ToString(*spec.threshold);
  return text;
}

bool ComparesNumbers(std::string_view metric) { return metric == "mse" || metric == "rmse" || metric == "mae"; }

}  // namespace

std::string MetricNameOf(const std::string& word) { return word == "acc" ? "accuracy" : word; }

MetricSpec MetricSpec::Parse(const std::string& text) {
  const CallText call = ParseCall(Trimmed(text), "metric", "accuracy(OUTPUT, TARGET)");
  MetricSpec spec{.name = MetricNameOf(call.name), .output = call.output, .target = call.target};
  for (const auto& [key, value] : call.options) {
    if (key == "class_axis") {
      spec.class_axis = OptionOf<int64_t>(key, value, "a whole number");
    } else if (key == "ignore_index") {
      spec.ignore_index = OptionOf<int64_t>(key, value, "a whole number");
    } else if (key == "threshold") {
      spec.threshold = OptionOf<double>(key, value, "a number");
    } else {
      const std::vector<std::string> known = {"class_axis", "ignore_index", "threshold"};
      throw Error(ErrorCode::kConfig, "unknown option of a metric '" + Escaped(key) + "'", "",
                  Suggestion(key, known, "expected one of: " + Joined(known)));
    }
  }
  return spec;
}

bool TargetHasProbabilities(const LossInfo& loss) {
  return !loss.classes && (loss.type == "cross_entropy" || loss.type == "cross_entropy_of_probabilities" || loss.type == "kl_div");
}

void MetricSpec::ReadLikeLoss(std::span<const LossInfo> losses) {
  const LossInfo* about = nullptr;
  // A distance of numbers, which a second loss may be, does not say how to decide.
  const auto decides = [](const LossInfo& loss) { return loss.classes || TargetHasProbabilities(loss) || loss.type.starts_with("bce"); };
  const auto rank = [&](const LossInfo& loss) { return (loss.output == output ? 2 : 0) + (decides(loss) ? 1 : 0); };
  for (const LossInfo& loss : losses) {
    if (loss.target == target && (about == nullptr || rank(loss) > rank(*about))) about = &loss;
  }
  if (about == nullptr) return;
  const bool same_output = about->output == output;
  // A target with a probability for each class has the axes of every output that it is compared with.
  target_probabilities = TargetHasProbabilities(*about) && !threshold;
  if (!class_axis && (target_probabilities || (about->classes && same_output))) class_axis = about->class_axis;
  if (!ignore_index && about->classes) ignore_index = about->ignore_index;
  constexpr std::string_view kOfNumbers[] = {"mse", "l1", "smooth_l1", "huber", "log_cosh", "quantile", "poisson_nll"};
  numbers = std::ranges::find(kOfNumbers, about->type) != std::end(kOfNumbers);
  if (!same_output) return;
  if (!threshold && about->type == "bce") threshold = 0.5;
  probabilities = about->type == "cross_entropy_of_probabilities";
}

void MetricSpec::CheckTargets(const TensorView& targets) const {
  if (ComparesNumbers(name) || name == "perplexity" || ComparesClasses(targets)) return;
  for (int64_t i = 0; i < targets.elements(); ++i) internal::IsYes(*this, targets, i);
}

void MetricSpec::CheckShapes(const TensorView& output, const TensorView& target) const {
  const bool compares_numbers = ComparesNumbers(name);
  if (!compares_numbers && ComparesClasses(target)) {
    const ClassScores scores(*this, output, target);
    return;
  }
  CheckSameElements(*this, output, target);
  if (!compares_numbers) const internal::Columns columns(*this, output);
}

std::unique_ptr<Metric> Metric::Make(const MetricSpec& spec) {
  const std::string& name = spec.name;
  if (name == "accuracy") return std::make_unique<TopK>(spec, 1);
  if (const int64_t k = CountOfTop(name)) return std::make_unique<TopK>(spec, k);
  if (name == "f1") return internal::MakeF1(spec);
  if (name == "iou") return internal::MakeIou(spec);
  if (name == "precision") return internal::MakePrecision(spec);
  if (name == "recall") return internal::MakeRecall(spec);
  if (name == "auroc") return internal::MakeAuroc(spec);
  if (name == "perplexity") return std::make_unique<Perplexity>(spec);
  if (name == "mse") return std::make_unique<MeanError>(spec, 2, false);
  if (name == "rmse") return std::make_unique<MeanError>(spec, 2, true);
  if (name == "mae") return std::make_unique<MeanError>(spec, 1, false);
  // Of names that are equally near, one of the same length is meant: two letters are swapped.
  std::vector<std::string> known = MetricNames();
  std::stable_partition(known.begin(), known.end(), [&](const std::string& one) { return one.size() == name.size(); });
  throw Error(ErrorCode::kConfig, "unknown metric '" + Escaped(name) + "'", "",
              Suggestion(name, known, "expected one of: " + Joined(MetricNames())));
}

void DisambiguateNames(std::vector<MetricSpec>& specs) {
  const auto is_same_pair = [](const MetricSpec& a, const MetricSpec& b) {
    return a.name == b.name && a.output == b.output && a.target == b.target;
  };
  std::vector<MetricSpec> kept;
  for (MetricSpec& spec : specs) {
    const auto is_same = [&](const MetricSpec& other) { return is_same_pair(other, spec) && OptionsText(other) == OptionsText(spec); };
    if (std::none_of(kept.begin(), kept.end(), is_same)) kept.push_back(std::move(spec));
  }
  for (MetricSpec& spec : kept) {
    bool several = false, several_targets = false, several_options = false;
    for (const MetricSpec& other : kept) {
      if (&other == &spec || other.name != spec.name) continue;
      several = several || !is_same_pair(other, spec);
      several_targets = several_targets || (other.output == spec.output && other.target != spec.target);
      several_options = several_options || is_same_pair(other, spec);
    }
    spec.label = spec.name;
    if (several) spec.label += "/" + spec.output;
    if (several_targets) spec.label += "/" + spec.target;
    if (several_options) spec.label += OptionsText(spec);
  }
  specs = std::move(kept);
}

std::vector<std::string> MetricNames() {
  return {"accuracy", "top5", "f1", "iou", "precision", "recall", "auroc", "perplexity", "mse", "rmse", "mae"};
}

bool LargerIsBetter(std::string_view metric) {
  const std::string_view kind = metric.substr(0, metric.find('/'));
  constexpr std::string_view kLarger[] = {"accuracy", "f1", "iou", "precision", "recall", "auroc"};
  return std::ranges::find(kLarger, kind) != std::ranges::end(kLarger) || CountOfTop(kind) > 0;
}

}  // namespace gradloom
