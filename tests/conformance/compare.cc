#include "tests/conformance/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace gradloom {
namespace {

double Norm(const TensorView& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.elements(); ++i) sum += ElementAsDouble(x, i) * ElementAsDouble(x, i);
  return std::sqrt(sum);
}

// The dot product of sin(1), sin(2), ... with the elements in row-major order.
double Probe(const TensorView& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.elements(); ++i) sum += ElementAsDouble(x, i) * std::sin(static_cast<double>(i + 1));
  return sum;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

// NaN counts as an infinite error.
double OverBound(double error, double bound) {
  if (std::isnan(error)) return INFINITY;
  return error == 0 ? 0 : error / bound;
}

class Comparison {
 public:
  Comparison(const TrainingCase& recorded, const TrainingRun& run) : c_(recorded), run_(run) {
    names_ = recorded.names.value_or(recorded.trainable);
  }

  Deviation Run() {
    Losses();
    if (c_.full) {
      if (run_.fetches_gradients) Tensors("grad/", run_.gradients, c_.tolerance.grad_atol, c_.tolerance.grad_rtol, result_.gradient);
      Tensors("param/", run_.parameters, c_.tolerance.param_atol, c_.tolerance.param_rtol, result_.parameter);
    } else {
      Norms();
    }
    Buffers();
    Movement();
    Frozen();
    return result_;
  }

 private:
  void Note(double& worst, double error, const std::string& what) {
    if (error > std::max({result_.loss, result_.gradient, result_.parameter, 0.0})) result_.worst = what;
    worst = std::max(worst, error);
    if (!(error <= 1)) result_.failures.push_back(what + ": " + Number(error) + " of the tolerance");
  }

  void Losses() {
    const auto found = c_.expected.find("losses");
    if (found == c_.expected.end() || found->second.elements() != static_cast<int64_t>(run_.losses.size())) {
      Note(result_.loss, INFINITY, "number of losses");
      return;
    }
    for (size_t k = 0; k < run_.losses.size(); ++k) {
      const double want = ElementAsDouble(found->second.view(), static_cast<int64_t>(k));
      const double bound = c_.tolerance.loss_atol + c_.tolerance.loss_rtol_steps[k] * std::abs(want);
      Note(result_.loss, OverBound(std::abs(run_.losses[k] - want), bound), "loss of step " + std::to_string(k));
    }
  }

  bool IllConditioned(const std::string& name) const {
    return std::find(c_.ill_conditioned.begin(), c_.ill_conditioned.end(), name) != c_.ill_conditioned.end();
  }

  // The largest error relative to its bound, after the permitted share of outliers is dropped.
  double TensorError(const Tensor& got, const Tensor& want, double atol, double rtol) const {
    if (got.shape() != want.shape()) return INFINITY;
    std::vector<double> errors;
    for (int64_t i = 0; i < got.elements(); ++i) {
      const double a = ElementAsDouble(got.view(), i), b = ElementAsDouble(want.view(), i);
      errors.push_back(OverBound(std::abs(a - b), atol + rtol * std::abs(b)));
    }
    const size_t allowed = static_cast<size_t>(c_.tolerance.outlier_fraction * static_cast<double>(errors.size()));
    if (errors.size() <= allowed) return 0;
    const auto at = errors.end() - static_cast<int64_t>(allowed) - 1;
    std::nth_element(errors.begin(), at, errors.end());
    return *at;
  }

  void Tensors(const std::string& prefix, const std::map<std::string, Tensor>& got, double atol, double rtol, double& worst) {
    for (const std::string& name : c_.trainable) {
      if (IllConditioned(name)) continue;
      const auto want = c_.expected.find(prefix + name);
      const auto have = got.find(name);
      if (want == c_.expected.end()) continue;
      Note(worst, have == got.end() ? INFINITY : TensorError(have->second, want->second, atol, rtol), prefix + name);
    }
  }

  void Norms() {
    for (size_t i = 0; i < c_.trainable.size(); ++i) {
      const std::string& name = c_.trainable[i];
      if (IllConditioned(name)) continue;
      const auto check = [&](const std::map<std::string, Tensor>& got, const std::string& kind, double atol, double rtol, double& worst) {
        const auto have = got.find(name);
        if (have == got.end()) return Note(worst, INFINITY, kind + "/" + name);
        const TensorView view = have->second.view();
        const double norm = Recorded(kind + "_norm", name), n = static_cast<double>(view.elements());
        const double bound = atol * std::sqrt(n) + 2 * rtol * norm;
        Note(worst, OverBound(std::abs(Norm(view) - norm), bound), kind + "_norm/" + name);
        Note(worst, OverBound(std::abs(Probe(view) - Recorded(kind + "_probe", name)), bound), kind + "_probe/" + name);
      };
      if (run_.fetches_gradients) check(run_.gradients, "grad", c_.tolerance.grad_atol, c_.tolerance.grad_rtol, result_.gradient);
      check(run_.parameters, "param", c_.tolerance.param_atol, c_.tolerance.param_rtol, result_.parameter);
    }
  }

  // The entry for `name` in an array with one entry per initializer, in the order of the array `names`.
  double Recorded(const std::string& array, const std::string& name) const {
    const auto at = std::find(names_.begin(), names_.end(), name) - names_.begin();
    const auto found = c_.expected.find(array);
    if (found == c_.expected.end() || at >= found->second.elements()) return NAN;
    return ElementAsDouble(found->second.view(), at);
  }

  // Running statistics. Both conventions for the variance are accepted.
  void Buffers() {
    for (const auto& [key, want] : c_.expected) {
      if (!key.starts_with("buffer/")) continue;
      const std::string name = key.substr(7);
      const auto have = run_.parameters.find(name);
      if (have == run_.parameters.end()) {
        Note(result_.parameter, INFINITY, key);
        continue;
      }
      double error = TensorError(have->second, want, c_.tolerance.param_atol, c_.tolerance.param_rtol);
      if (const auto other = c_.expected.find("buffer_onnx/" + name); other != c_.expected.end()) {
        error = std::min(error, TensorError(have->second, other->second, c_.tolerance.param_atol, c_.tolerance.param_rtol));
      }
      Note(result_.parameter, error, key);
    }
  }

  // How far each parameter moved from its initial value.
  void Movement() {
    for (const std::string& name : c_.trainable) {
      const auto now = run_.parameters.find(name), then = run_.initial.find(name);
      if (IllConditioned(name) || now == run_.parameters.end() || then == run_.initial.end()) continue;
      double sum = 0;
      for (int64_t i = 0; i < now->second.elements(); ++i) {
        const double d = ElementAsDouble(now->second.view(), i) - ElementAsDouble(then->second.view(), i);
        sum += d * d;
      }
      const double want = Recorded("delta_norm", name);
      const double bound = 0.05 * want + 2e-7 * Recorded("param_norm", name);
      Note(result_.parameter, OverBound(std::abs(std::sqrt(sum) - want), bound), "movement of " + name);
    }
  }

  void Frozen() {
    for (const std::string& name : c_.frozen) {
      const auto now = run_.parameters.find(name), then = run_.initial.find(name);
      if (now == run_.parameters.end() || then == run_.initial.end()) continue;
      const bool same = std::memcmp(now->second.data(), then->second.data(), static_cast<size_t>(now->second.bytes())) == 0;
      Note(result_.parameter, same ? 0 : INFINITY, "frozen " + name);
    }
  }

  const TrainingCase& c_;
  const TrainingRun& run_;
  std::vector<std::string> names_;
  Deviation result_;
};

}  // namespace

Deviation Compare(const TrainingCase& recorded, const TrainingRun& run) { return Comparison(recorded, run).Run(); }

}  // namespace gradloom
