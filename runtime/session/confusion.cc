#include "runtime/session/confusion.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string>

#include "runtime/base/error.h"
#include "runtime/session/metrics_internal.h"

namespace gradloom {
namespace {

double Share(int64_t part, int64_t of) { return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of); }

// Counts pairs of classes: few classes in a table, since a map would be searched for each position.
class PairCounts {
 public:
  explicit PairCounts(std::vector<std::map<int64_t, int64_t>>& counts)
      : counts_(counts), classes_(std::ssize(counts)), table_(static_cast<size_t>(classes_ <= kTableClasses ? classes_ * classes_ : 0)) {}
  ~PairCounts() {
    for (size_t i = 0; i < table_.size(); ++i) {
      if (table_[i] > 0) counts_[i / static_cast<size_t>(classes_)][static_cast<int64_t>(i) % classes_] += table_[i];
    }
  }
  PairCounts(const PairCounts&) = delete;
  PairCounts& operator=(const PairCounts&) = delete;

  void Count(int64_t is, int64_t said) {
    ++(table_.empty() ? counts_[static_cast<size_t>(is)][said] : table_[static_cast<size_t>(is * classes_ + said)]);
  }

 private:
  static constexpr int64_t kTableClasses = 256;

  std::vector<std::map<int64_t, int64_t>>& counts_;
  int64_t classes_;
  std::vector<int64_t> table_;
};

}  // namespace

void ConfusionMatrix::Resize(int64_t classes) {
  if (!counts_.empty() && this->classes() != classes) {
    throw Error(ErrorCode::kConfig, Escaped(spec_.name) + ": the output had " + std::to_string(counts_.size()) + " classes and now has " +
                                        std::to_string(classes));
  }
  counts_.resize(static_cast<size_t>(classes));
}

void ConfusionMatrix::Add(const TensorView& output, const TensorView& target) {
  if (!spec_.ComparesClasses(target)) {
    internal::CheckSameElements(spec_, output, target);
    if (const int64_t columns = internal::Columns(spec_, output).count(); columns != 1) {
      throw Error(ErrorCode::kConfig,
                  Escaped(spec_.name) + " needs one class for each row or position, but the target '" + Escaped(spec_.target) + "' has " +
                      std::to_string(columns) + " columns of yes or no",
                  "", "--metric precision and --metric recall show each of several binary columns");
    }
    Resize(2);
    PairCounts counts(counts_);
    for (int64_t i = 0; i < output.elements(); ++i) {
      const double is = ElementAsDouble(target, i);
      counts.Count(is > 0.5 ? 1 : 0, ElementAsDouble(output, i) > spec_.threshold.value_or(0) ? 1 : 0);
    }
    return;
  }
  const internal::ClassScores scores(spec_, output, target);
  Resize(scores.classes());
  const std::vector<int64_t> said = scores.Computed<int64_t>([&](int64_t position) { return scores.Predicted(position); });
  PairCounts counts(counts_);
  for (int64_t position = 0; position < scores.positions(); ++position) {
    if (const int64_t is = scores.Class(position); is >= 0) counts.Count(is, said[static_cast<size_t>(position)]);
  }
}

std::vector<ClassResult> ConfusionMatrix::ByClass() const {
  std::vector<int64_t> rows(counts_.size()), predicted(counts_.size()), right(counts_.size());
  for (size_t is = 0; is < counts_.size(); ++is) {
    for (const auto& [said, count] : counts_[is]) {
      rows[is] += count;
      predicted[static_cast<size_t>(said)] += count;
      if (said == static_cast<int64_t>(is)) right[is] = count;
    }
  }
  std::vector<ClassResult> results;
  for (size_t c = 0; c < counts_.size(); ++c) {
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    const bool occurs = rows[c] + predicted[c] > 0;
    results.push_back({rows[c], occurs ? Share(right[c], predicted[c]) : nothing, occurs ? Share(right[c], rows[c]) : nothing,
                       occurs ? Share(2 * right[c], rows[c] + predicted[c]) : nothing});
  }
  return results;
}

namespace {

bool IsBinary(const LossInfo& loss) { return loss.type == "bce" || loss.type == "bce_with_logits"; }

// The probability of the class 1, for a binary score.
double ProbabilityOfYes(const LossInfo& loss, double score) { return loss.type == "bce" ? score : 1 / (1 + std::exp(-score)); }

// The shape of an output without the axis of its classes; nullopt if the loss does not compare it with classes.
std::optional<Shape> PositionsOf(const LossInfo& loss, const Shape& shape) {
  const int64_t axis = loss.class_axis < 0 ? loss.class_axis + shape.rank() : loss.class_axis;
  if ((!loss.classes && !TargetHasProbabilities(loss)) || axis < 0 || axis >= shape.rank()) return std::nullopt;
  Shape positions;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) positions.push_back(shape[i]);
  }
  return positions;
}

MetricSpec ClassesSpec(const LossInfo& loss) {
  MetricSpec spec{.name = "classes", .output = loss.output, .target = loss.target};
  spec.ReadLikeLoss({&loss, 1});
  return spec;
}

// Whether an output has one column of binary scores.
bool HasBinaryScores(const LossInfo& loss, const TensorView& output) {
  return output.shape.rank() > 0 && internal::Columns(ClassesSpec(loss), output).count() == 1;
}

}  // namespace

std::optional<PredictedClasses> PredictClasses(const LossInfo& loss, const TensorView& output) {
  const auto made_for = [](const Shape& shape) { return PredictedClasses{Tensor(DType::kInt64, shape), Tensor(DType::kFloat32, shape)}; };
  if (IsBinary(loss)) {
    if (!HasBinaryScores(loss, output)) return std::nullopt;
    PredictedClasses made = made_for(output.shape);
    for (int64_t i = 0; i < output.elements(); ++i) {
      const double score = ElementAsDouble(output, i), yes = ProbabilityOfYes(loss, score);
      const bool said = score > (loss.type == "bce" ? 0.5 : 0);
      made.classes.as<int64_t>()[static_cast<size_t>(i)] = said ? 1 : 0;
      made.probabilities.as<float>()[static_cast<size_t>(i)] = static_cast<float>(said ? yes : 1 - yes);
    }
    return made;
  }
  const std::optional<Shape> positions = PositionsOf(loss, output.shape);
  if (!positions) return std::nullopt;
  PredictedClasses made = made_for(*positions);
  const MetricSpec spec = ClassesSpec(loss);
  const TensorView classes = made.classes.view();
  const internal::ClassScores scores(spec, output, classes);
  for (int64_t position = 0; position < scores.positions(); ++position) {
    const int64_t said = scores.Predicted(position);
    made.classes.as<int64_t>()[static_cast<size_t>(position)] = said;
    made.probabilities.as<float>()[static_cast<size_t>(position)] =
        static_cast<float>(std::exp(scores.Score(position, said) - scores.LogSum(position)));
  }
  return made;
}

std::optional<Tensor> ClassProbabilities(const LossInfo& loss, const TensorView& output) {
  if (IsBinary(loss)) {
    if (!HasBinaryScores(loss, output)) return std::nullopt;
    // A mask has a pair for each position, instead of the axis of extent 1.
    Shape pairs = output.shape;
    pairs.push_back(2);
    if (output.shape.rank() <= 2) pairs = Shape{output.shape[0], 2};
    Tensor made(DType::kFloat32, pairs);
    const std::span<float> shares = made.as<float>();
    for (int64_t i = 0; i < output.elements(); ++i) {
      const double yes = ProbabilityOfYes(loss, ElementAsDouble(output, i));
      shares[static_cast<size_t>(2 * i)] = static_cast<float>(1 - yes);
      shares[static_cast<size_t>(2 * i + 1)] = static_cast<float>(yes);
    }
    return made;
  }
  std::optional<Shape> shape = PositionsOf(loss, output.shape);
  if (!shape) return std::nullopt;
  const Tensor no_target(DType::kInt64, *shape);
  const TensorView target = no_target.view();
  const MetricSpec spec = ClassesSpec(loss);
  const internal::ClassScores scores(spec, output, target);
  shape->push_back(scores.classes());
  Tensor made(DType::kFloat32, *shape);
  const std::span<float> shares = made.as<float>();
  for (int64_t position = 0; position < scores.positions(); ++position) {
    const double log_sum = scores.LogSum(position);
    for (int64_t c = 0; c < scores.classes(); ++c)
      shares[static_cast<size_t>(position * scores.classes() + c)] = static_cast<float>(std::exp(scores.Score(position, c) - log_sum));
  }
  return made;
}

}  // namespace gradloom
