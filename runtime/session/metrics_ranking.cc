// Metrics that count per class: F1, intersection over union, precision, recall and the area under the ROC curve.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/session/metrics_internal.h"

namespace gradloom::internal {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// The mean over the values that are not NaN.
double MeanOfNumbers(const std::vector<double>& values) {
  double sum = 0;
  int64_t count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kNothing : sum / static_cast<double>(count);
}

// Counts in columns: one for each class, or one for each binary label. A Column implements
// AddBinary(score, is, spec): adds one prediction of a binary label;
// Find(scores, position), static: what all scores at a position say;
// AddClass(scores, position, right, found, columns), static: adds the scores of all classes at a position.
template <typename Column>
class ByColumn : public Metric {
 public:
  explicit ByColumn(const MetricSpec& spec) : spec_(spec) {}

  void Add(const TensorView& output, const TensorView& target) override {
    if (!spec_.ComparesClasses(target)) return AddBinary(output, target);
    const ClassScores scores(spec_, output, target);
    Resize(scores.classes());
    const auto found = scores.Computed<decltype(Column::Find(scores, 0))>([&](int64_t position) { return Column::Find(scores, position); });
    for (int64_t position = 0; position < scores.positions(); ++position) {
      const int64_t right = scores.Class(position);
      if (right >= 0) Column::AddClass(scores, position, right, found[static_cast<size_t>(position)], columns_);
    }
  }

 protected:
  const std::vector<Column>& columns() const { return columns_; }

 private:
  void AddBinary(const TensorView& output, const TensorView& target) {
    CheckSameElements(spec_, output, target);
    const Columns columns(spec_, output);
    Resize(columns.count());
    for (int64_t i = 0; i < output.elements(); ++i) {
      columns_[static_cast<size_t>(columns.Of(i))].AddBinary(ElementAsDouble(output, i), IsYes(spec_, target, i), spec_);
    }
  }

  // Throws if a batch has another number of columns than the previous ones.
  void Resize(int64_t columns) {
    if (!columns_.empty() && columns_.size() != static_cast<size_t>(columns)) {
      throw Error(ErrorCode::kConfig, Escaped(spec_.name) + ": the output had " + std::to_string(columns_.size()) +
                                          " columns and now has " + std::to_string(columns));
    }
    columns_.resize(static_cast<size_t>(columns));
  }

  MetricSpec spec_;
  std::vector<Column> columns_;
};

struct Counts {
  int64_t true_positive = 0, false_positive = 0, false_negative = 0;

  void Count(bool said, bool is) {
    true_positive += said && is;
    false_positive += said && !is;
    false_negative += !said && is;
  }

  void AddBinary(double score, bool is, const MetricSpec& spec) { Count(score > spec.threshold.value_or(0), is); }

  static int64_t Find(const ClassScores& scores, int64_t position) { return scores.Predicted(position); }

  static void AddClass(const ClassScores&, int64_t, int64_t right, int64_t said, std::vector<Counts>& columns) {
    columns[static_cast<size_t>(right)].Count(said == right, true);
    if (said != right) columns[static_cast<size_t>(said)].Count(true, false);
  }
};

class F1 : public ByColumn<Counts> {
 public:
  using ByColumn::ByColumn;

  std::map<std::string, double> Values() const override {
    std::vector<double> values;
    for (const Counts& c : columns()) {
      const int64_t all = 2 * c.true_positive + c.false_positive + c.false_negative;
      values.push_back(all == 0 ? kNothing : 2 * static_cast<double>(c.true_positive) / static_cast<double>(all));
    }
    return {{"f1", MeanOfNumbers(values)}};
  }
};

// By class, too, of which there are few in a segmentation.
class Overlap : public ByColumn<Counts> {
 public:
  using ByColumn::ByColumn;

  std::map<std::string, double> Values() const override {
    std::vector<double> values;
    for (const Counts& c : columns()) {
      const int64_t all = c.true_positive + c.false_positive + c.false_negative;
      values.push_back(all == 0 ? kNothing : static_cast<double>(c.true_positive) / static_cast<double>(all));
    }
    std::map<std::string, double> named{{"iou", MeanOfNumbers(values)}};
    for (size_t c = 0; values.size() > 1 && c < values.size(); ++c) named.emplace("iou/" + std::to_string(c), values[c]);
    return named;
  }
};

// Precision and recall. Of a class that occurs but is never predicted, or only predicted, they are 0, as in scikit-learn.
class ShareRight : public ByColumn<Counts> {
 public:
  ShareRight(const MetricSpec& spec, bool of_predicted) : ByColumn(spec), of_predicted_(of_predicted) {}

  std::map<std::string, double> Values() const override {
    std::vector<double> values;
    for (const Counts& c : columns()) {
      const int64_t all = c.true_positive + (of_predicted_ ? c.false_positive : c.false_negative);
      const bool occurs = c.true_positive + c.false_positive + c.false_negative > 0;
      values.push_back(!occurs ? kNothing : static_cast<double>(c.true_positive) / static_cast<double>(std::max<int64_t>(all, 1)));
    }
    const std::string name = of_predicted_ ? "precision" : "recall";
    std::map<std::string, double> named{{name, MeanOfNumbers(values)}};
    for (size_t c = 0; values.size() > 1 && c < values.size(); ++c) named.emplace(name + "/" + std::to_string(c), values[c]);
    return named;
  }

 private:
  bool of_predicted_;
};

// Keeps every score, 8 bytes for each class of each sample. For classes this is the logarithm of the probability, which has the same order
// and does not lose precision near 1.
struct Scores {
  std::vector<double> scores;
  std::vector<bool> is;

  void AddBinary(double score, bool answer, const MetricSpec&) {
    scores.push_back(score);
    is.push_back(answer);
  }

  static double Find(const ClassScores& all, int64_t position) { return all.LogSum(position); }

  static void AddClass(const ClassScores& all, int64_t position, int64_t right, double log_sum, std::vector<Scores>& columns) {
    for (int64_t c = 0; c < all.classes(); ++c) {
      columns[static_cast<size_t>(c)].scores.push_back(all.Score(position, c) - log_sum);
      columns[static_cast<size_t>(c)].is.push_back(c == right);
    }
  }

  // Mann-Whitney U: the share of pairs of a positive and a negative sample that the scores order correctly, computed from the rank sum of
  // the positives. Equal scores share the mean of their ranks.
  double Area() const {
    const size_t n = scores.size();
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    if (std::any_of(scores.begin(), scores.end(), [](double score) { return std::isnan(score); })) return kNothing;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
    double ranks = 0, yes = 0;
    for (size_t first = 0; first < n;) {
      size_t last = first, here = 0;
      for (; last < n && scores[order[last]] == scores[order[first]]; ++last) here += is[order[last]];
      ranks += static_cast<double>(here) * (static_cast<double>(first + 1) + static_cast<double>(last)) / 2;
      yes += static_cast<double>(here);
      first = last;
    }
    const double no = static_cast<double>(n) - yes;
    return yes == 0 || no == 0 ? kNothing : (ranks - yes * (yes + 1) / 2) / (yes * no);
  }
};

class Auroc : public ByColumn<Scores> {
 public:
  using ByColumn::ByColumn;

  std::map<std::string, double> Values() const override {
    std::vector<double> areas;
    for (const Scores& column : columns()) areas.push_back(column.Area());
    std::map<std::string, double> values{{"auroc", MeanOfNumbers(areas)}};
    for (size_t c = 0; areas.size() > 1 && c < areas.size(); ++c) values.emplace("auroc/" + std::to_string(c), areas[c]);
    return values;
  }
};

}  // namespace

std::unique_ptr<Metric> MakeF1(const MetricSpec& spec) { return std::make_unique<F1>(spec); }
std::unique_ptr<Metric> MakeIou(const MetricSpec& spec) { return std::make_unique<Overlap>(spec); }
std::unique_ptr<Metric> MakePrecision(const MetricSpec& spec) { return std::make_unique<ShareRight>(spec, true); }
std::unique_ptr<Metric> MakeRecall(const MetricSpec& spec) { return std::make_unique<ShareRight>(spec, false); }
std::unique_ptr<Metric> MakeAuroc(const MetricSpec& spec) { return std::make_unique<Auroc>(spec); }

}  // namespace gradloom::internal
