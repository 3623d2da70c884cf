#include "runtime/session/plateau.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr double kLeastReduction = 1e-8;  // PyTorch's default; smaller reductions are skipped

}  // namespace

Plateau::Plateau(const PlateauOptions& options, double lr) : options_(options), lr_(lr) {
  if (options.factor > 0 && options.factor < 1) return;
  throw Error(ErrorCode::kConfig, "the factor that reduces the learning rate must be between 0 and 1", "", "use --plateau-factor 0.1");
}

bool Plateau::IsBetter(double value) const {
  if (!std::isfinite(value)) return false;  // never the best, as for the best model
  if (!has_best_) return true;
  const double sign = options_.larger ? 1 : -1;
  const double bound = best_ * (1 + sign * options_.threshold);
  return options_.larger ? value > bound : value < bound;
}

double Plateau::Step(double value) {
  if (IsBetter(value)) {
    best_ = value;
    has_best_ = true;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooling_ > 0) {
    --cooling_;
    bad_ = 0;
  }
  if (bad_ > options_.patience) {
    const double reduced = std::max(lr_ * options_.factor, options_.min_lr);
    if (lr_ - reduced > kLeastReduction) lr_ = reduced;
    cooling_ = options_.cooldown;
    bad_ = 0;
  }
  return lr_;
}

void Plateau::ForgetValues() {
  has_best_ = false;
  bad_ = 0;
}

std::string Plateau::state() const {
  return nlohmann::json{{"lr", lr_}, {"best", best_}, {"has_best", has_best_}, {"bad", bad_}, {"cooling", cooling_}}.dump();
}

void Plateau::set_state(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    lr_ = json.at("lr").get<double>();
    // Older releases took infinity as a best value, which JSON writes as null.
    has_best_ = json.at("has_best").get<bool>() && !json.at("best").is_null();
    best_ = has_best_ ? json.at("best").get<double>() : 0;
    bad_ = json.at("bad").get<int64_t>();
    cooling_ = json.at("cooling").get<int64_t>();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kCheckpoint, "cannot read the saved state of the learning rate: " + Escaped(text));
  }
}

}  // namespace gradloom
