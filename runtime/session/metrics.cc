#include "runtime/session/metrics.h"

#include <cmath>
#include <limits>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

class Accuracy : public Metric {
 public:
  void Add(const TensorView& output, const TensorView& target) override {
    if (IsFloating(target.dtype)) return AddBinary(output, target);
    if (output.shape.rank() < 2) throw Error(ErrorCode::kConfig, "accuracy needs logits [N, C], the output is " + output.shape.ToString());
    const int64_t n = output.shape[0], classes = output.shape[1];
    const int64_t inner = n * classes == 0 ? 0 : output.elements() / (n * classes);
    if (target.elements() != n * inner) {
      throw Error(ErrorCode::kConfig,
                  "accuracy of " + output.shape.ToString() + " needs one class a sample, the target is " + target.shape.ToString());
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < inner; ++j) {
        const auto at = [&](int64_t c) { return ElementAsDouble(output, (i * classes + c) * inner + j); };
        int64_t best = 0;
        for (int64_t c = 1; c < classes; ++c) best = at(c) > at(best) ? c : best;
        right_ += best == ElementAsInt(target, i * inner + j);
        ++count_;
      }
    }
  }

  double Value() const override {
    return count_ == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(right_) / static_cast<double>(count_);
  }

 private:
  void AddBinary(const TensorView& output, const TensorView& target) {
    if (output.elements() != target.elements()) {
      throw Error(ErrorCode::kConfig, "accuracy of " + output.shape.ToString() + " against " + target.shape.ToString());
    }
    for (int64_t i = 0; i < output.elements(); ++i) {
      right_ += (ElementAsDouble(output, i) > 0) == (ElementAsDouble(target, i) > 0.5);
      ++count_;
    }
  }

  int64_t right_ = 0, count_ = 0;
};

// The mean of |difference|^power, and its root if wanted.
class MeanError : public Metric {
 public:
  MeanError(int power, bool root) : power_(power), root_(root) {}

  void Add(const TensorView& output, const TensorView& target) override {
    if (output.elements() != target.elements()) {
      throw Error(ErrorCode::kConfig, "the error of " + output.shape.ToString() + " against " + target.shape.ToString());
    }
    for (int64_t i = 0; i < output.elements(); ++i) {
      const double difference = std::abs(ElementAsDouble(output, i) - ElementAsDouble(target, i));
      sum_ += power_ == 1 ? difference : difference * difference;
    }
    count_ += output.elements();
  }

  double Value() const override {
    const double mean = sum_ / static_cast<double>(count_);  // 0/0 is the NaN that it should be
    return root_ ? std::sqrt(mean) : mean;
  }

 private:
  int power_;
  bool root_;
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<Metric> Metric::Make(std::string_view name) {
  if (name == "accuracy") return std::make_unique<Accuracy>();
  if (name == "mse") return std::make_unique<MeanError>(2, false);
  if (name == "rmse") return std::make_unique<MeanError>(2, true);
  if (name == "mae") return std::make_unique<MeanError>(1, false);
  throw Error(ErrorCode::kConfig, "no metric '" + Escaped(name) + "'", "", "metrics are: accuracy, mse, rmse, mae");
}

std::vector<std::string> MetricNames() { return {"accuracy", "mse", "rmse", "mae"}; }

bool LargerIsBetter(std::string_view metric) { return metric == "accuracy"; }

}  // namespace gradloom
