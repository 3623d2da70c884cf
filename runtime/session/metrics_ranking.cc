// Metrics that count per class: F1 and the area under the ROC curve.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/session/metrics_internal.h"

namespace gradloom::internal {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// The mean of those that are numbers.
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

// Throws where a batch has another number of classes than those before.
void CheckColumns(const MetricSpec& spec, size_t had, int64_t has) {
  if (had != 0 && had != static_cast<size_t>(has))
    throw Error(ErrorCode::kConfig,
                Escaped(spec.name) + ": the output had " + std::to_string(had) + " columns and now has " + std::to_string(has));
}

class F1 : public Metric {
 public:
  explicit F1(const MetricSpec& spec) : spec_(spec) {}

  void Add(const TensorView& output, const TensorView& target) override {
    if (IsFloating(target.dtype)) return AddYesNo(output, target);
    const ClassScores scores(spec_, output, target);
    Resize(scores.classes());
    for (int64_t place = 0; place < scores.places(); ++place) {
      const int64_t right = scores.Class(place);
      if (right < 0) continue;
      int64_t said = 0;
      for (int64_t c = 1; c < scores.classes(); ++c) said = scores.Score(place, c) > scores.Score(place, said) ? c : said;
      Count(right, said == right, true);
      if (said != right) Count(said, true, false);
    }
  }

  std::map<std::string, double> Values() const override {
    std::vector<double> values;
    for (const Counts& c : counts_) {
      const int64_t all = 2 * c.true_positive + c.false_positive + c.false_negative;
      values.push_back(all == 0 ? kNothing : 2 * static_cast<double>(c.true_positive) / static_cast<double>(all));
    }
    return {{"f1", MeanOfNumbers(values)}};
  }

 private:
  struct Counts {
    int64_t true_positive = 0, false_positive = 0, false_negative = 0;
  };

  void Resize(int64_t columns) {
    CheckColumns(spec_, counts_.size(), columns);
    counts_.resize(static_cast<size_t>(columns));
  }

  void Count(int64_t column, bool said, bool is) {
    Counts& counts = counts_[static_cast<size_t>(column)];
    counts.true_positive += said && is;
    counts.false_positive += said && !is;
    counts.false_negative += !said && is;
  }

  void AddYesNo(const TensorView& output, const TensorView& target) {
    CheckSameElements(spec_, output, target);
    const int64_t columns = ColumnsOf(output);
    Resize(columns);
    for (int64_t i = 0; i < output.elements(); ++i) {
      Count(i % columns, ElementAsDouble(output, i) > spec_.threshold, ElementAsDouble(target, i) > 0.5);
    }
  }

  MetricSpec spec_;
  std::vector<Counts> counts_;
};

// Keeps every score, 8 bytes for each class of each sample. Of classes it is the logarithm of the probability, which
// has the order of the probability and does not run out of digits near 1.
class Auroc : public Metric {
 public:
  explicit Auroc(const MetricSpec& spec) : spec_(spec) {}

  void Add(const TensorView& output, const TensorView& target) override {
    if (IsFloating(target.dtype)) return AddYesNo(output, target);
    const ClassScores scores(spec_, output, target);
    Resize(scores.classes());
    for (int64_t place = 0; place < scores.places(); ++place) {
      const int64_t right = scores.Class(place);
      if (right < 0) continue;
      const double log_sum = scores.LogSum(place);
      for (int64_t c = 0; c < scores.classes(); ++c) Keep(c, scores.Score(place, c) - log_sum, c == right);
    }
  }

  std::map<std::string, double> Values() const override {
    std::vector<double> areas;
    for (const Column& column : columns_) areas.push_back(Area(column));
    std::map<std::string, double> values{{"auroc", MeanOfNumbers(areas)}};
    for (size_t c = 0; columns_.size() > 1 && c < columns_.size(); ++c) values.emplace("auroc/" + std::to_string(c), areas[c]);
    return values;
  }

 private:
  struct Column {
    std::vector<double> scores;
    std::vector<bool> is;
  };

  void Resize(int64_t columns) {
    CheckColumns(spec_, columns_.size(), columns);
    columns_.resize(static_cast<size_t>(columns));
  }

  void Keep(int64_t column, double score, bool is) {
    columns_[static_cast<size_t>(column)].scores.push_back(score);
    columns_[static_cast<size_t>(column)].is.push_back(is);
  }

  void AddYesNo(const TensorView& output, const TensorView& target) {
    CheckSameElements(spec_, output, target);
    const int64_t columns = ColumnsOf(output);
    Resize(columns);
    for (int64_t i = 0; i < output.elements(); ++i) Keep(i % columns, ElementAsDouble(output, i), ElementAsDouble(target, i) > 0.5);
  }

  // Mann and Whitney: the share of pairs of a yes and a no that the scores order rightly, by the sum of the ranks of
  // the yeses, where equal scores share the mean of their ranks.
  static double Area(const Column& column) {
    const size_t n = column.scores.size();
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    if (std::any_of(column.scores.begin(), column.scores.end(), [](double score) { return std::isnan(score); })) return kNothing;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return column.scores[a] < column.scores[b]; });
    double ranks = 0, yes = 0;
    for (size_t first = 0; first < n;) {
      size_t last = first, here = 0;
      for (; last < n && column.scores[order[last]] == column.scores[order[first]]; ++last) here += column.is[order[last]];
      ranks += static_cast<double>(here) * (static_cast<double>(first + 1) + static_cast<double>(last)) / 2;
      yes += static_cast<double>(here);
      first = last;
    }
    const double no = static_cast<double>(n) - yes;
    return yes == 0 || no == 0 ? kNothing : (ranks - yes * (yes + 1) / 2) / (yes * no);
  }

  MetricSpec spec_;
  std::vector<Column> columns_;
};

}  // namespace

std::unique_ptr<Metric> MakeF1(const MetricSpec& spec) { return std::make_unique<F1>(spec); }
std::unique_ptr<Metric> MakeAuroc(const MetricSpec& spec) { return std::make_unique<Auroc>(spec); }

}  // namespace gradloom::internal
