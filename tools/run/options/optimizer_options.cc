#include "tools/run/options/optimizer_options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/number_text.h"
#include "runtime/session/schedule.h"
#include "tools/run/options/key_values.h"

namespace gradloom {
namespace {

// The default of the rules "momentum" and "nesterov".
constexpr double kMomentum = 0.9;

// In the list of patterns of parameters without weight decay: those with fewer than two dimensions.
constexpr std::string_view kOneDimension = "1d";

constexpr double kMostUpdates = 1e12;  // that train.steps takes

// Options that only some of the optimizers or schedules have.
constexpr struct {
  const char *key, *owners;
} kOwnOptions[] = {
    {"optimizer.momentum", "sgd, momentum, nesterov, rmsprop"},
    {"optimizer.beta1", "adam, adamw, nadam, radam, adamax, lamb, lion"},
    {"optimizer.beta2", "adam, adamw, nadam, radam, adamax, lamb, lion"},
    {"optimizer.momentum_decay", "nadam"},
    {"optimizer.eps", "adam, adamw, nadam, radam, rmsprop, adagrad, adadelta, adamax, lamb"},
    {"optimizer.dampening", "sgd, momentum"},
    {"optimizer.amsgrad", "adam, adamw"},
    {"optimizer.alpha", "rmsprop"},
    {"optimizer.centered", "rmsprop"},
    {"optimizer.rho", "adadelta"},
    {"optimizer.lr_decay", "adagrad"},
    {"optimizer.initial_accumulator_value", "adagrad"},
    {"schedule.min_lr", "polynomial, cosine, cosine_restarts, wsd"},
    {"schedule.gamma", "step, multi_step, exponential"},
    {"schedule.step_size", "step, exponential"},
    {"schedule.milestones", "multi_step"},
    {"schedule.decay_phase", "wsd"},
    {"schedule.power", "polynomial"},
    {"schedule.cycles", "cosine_restarts"},
};

// Whether a comma-separated list has the word.
bool IsListed(const std::string& word, const std::string& list) { return (", " + list + ",").find(" " + word + ",") != std::string::npos; }

// The key that names the optimizer or schedule of an option.
std::string ChooserOf(const char* key) { return std::string(FindKey(key)->section()) + ".name"; }

void CheckOwnOptions(const Configuration& c) {
  for (const auto& [key, owners] : kOwnOptions) {
    const std::string section(FindKey(key)->section()), chooser = ChooserOf(key);
    if (!IsChanged(c, *FindKey(key)) || c.origin(key).recorded || IsListed(c.Text(chooser), owners)) continue;
    Reading(c, key, [&, name = std::string(key), list = std::string(owners)] {
      throw Error(ErrorCode::kConfig, name + " is an option of " + list + ", and the " + section + " is " + c.Text(chooser), "",
                  "leave it out, or choose another --" + section);
    });
  }
}

// Exceptions from a decay that nobody has chosen; one that is chosen may be 0, as in a search for it.
void CheckDecays(const Configuration& c) {
  const Origin& exceptions = c.origin("optimizer.no_decay");
  if (c.Texts("optimizer.no_decay").empty() || exceptions.recorded || c.is_set("optimizer.weight_decay")) return;
  throw Error(ErrorCode::kConfig, "--no-decay needs --weight-decay", Escaped(exceptions.place, 4096),
              "add --weight-decay 0.01, or leave it out");
}

// A schedule that would raise the rate which it is to reduce.
void CheckLeastRate(const Configuration& c) {
  const Origin &least = c.origin("schedule.min_lr"), &rate = c.origin("optimizer.lr");
  if (!c.is_set("schedule.min_lr") || c.Number("schedule.min_lr") <= c.Number("optimizer.lr") || (least.recorded && rate.recorded)) return;
  throw Error(ErrorCode::kConfig,
              "--min-lr " + NumberText(c.Number("schedule.min_lr")) + " is above --lr " + NumberText(c.Number("optimizer.lr")) +
                  ", from which the schedule reduces the learning rate",
              Escaped(least.place, 4096), "use a smaller --min-lr, or a larger --lr");
}

std::vector<ParameterGroup> GroupsOf(const Configuration& c) {
  std::vector<ParameterGroup> groups;
  for (const std::string& pattern : c.Texts("optimizer.no_decay")) {
    if (pattern != kOneDimension) groups.push_back({.pattern = pattern, .weight_decay = 0});
  }
  const size_t scales = groups.size();
  for (const auto& [pattern, factors] : c.Named("optimizer.lr_scale"))
    groups.push_back({.pattern = pattern, .lr_scale = ParseNumber(factors[0], "optimizer.lr_scale")});
  // The most specific ones first.
  const auto letters = [](const ParameterGroup& group) {
    return std::count_if(group.pattern.begin(), group.pattern.end(), [](char c) { return c != '*' && c != '?'; });
  };
  std::stable_sort(groups.begin() + static_cast<std::ptrdiff_t>(scales), groups.end(),
                   [&](const ParameterGroup& a, const ParameterGroup& b) { return letters(a) > letters(b); });
  return groups;
}

// A number of updates: "500", or a share of the run: "5%". 0 for a share of an unknown length, which is noted in `schedule`.
int64_t UpdatesIn(const std::string& text, const char* key, int64_t total_updates, Schedule& schedule) {
  const bool share = !text.empty() && text.back() == '%';
  const double value = ParseNumber(share ? text.substr(0, text.size() - 1) : text, key);
  if (!(std::abs(value) <= kMostUpdates)) throw Error(ErrorCode::kConfig, std::string(key) + " is out of range: " + Escaped(text));
  if (!share && value != std::trunc(value))
    throw Error(ErrorCode::kConfig,
                std::string(key) + " must be a whole number of steps, or a share of the run such as 5%, got " + Escaped(text));
  if (!share) return std::llround(value);
  if (total_updates < 1) schedule.attributes.set(kUnknownShare, int64_t{1});
  return std::llround(value / 100 * static_cast<double>(total_updates));
}

std::vector<int64_t> MilestonesIn(const std::string& text, int64_t total_updates, Schedule& schedule) {
  std::vector<int64_t> milestones;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    part = first == std::string::npos ? "" : part.substr(first, last - first + 1);
    milestones.push_back(UpdatesIn(part, "schedule.milestones", total_updates, schedule));
  }
  return milestones;
}

}  // namespace

void DropOptionsOfOthers(Configuration& c) {
  for (const auto& [key, owners] : kOwnOptions) {
    const std::string chooser = ChooserOf(key);
    if (c.origin(key).IsFileUnder(c.origin(chooser)) && !IsListed(c.Text(chooser), owners)) c.Reset(key);
  }
}

OptimizerOptions OptimizerOf(const Configuration& c) {
  CheckOwnOptions(c);
  CheckDecays(c);
  OptimizerOptions o;
  o.type = c.Text("optimizer.name");
  o.lr = c.Number("optimizer.lr");
  o.weight_decay = c.Number("optimizer.weight_decay");
  o.clip_norm = c.Number("optimizer.clip_norm");
  o.clip_value = c.Number("optimizer.clip_value");
  if (c.has_value("optimizer.ema")) o.ema = c.Number("optimizer.ema");
  o.ema_warmup = c.Switch("optimizer.ema_warmup");
  o.beta1 = c.Number("optimizer.beta1");
  if (c.has_value("optimizer.beta2")) o.beta2 = c.Number("optimizer.beta2");
  o.momentum_decay = c.Number("optimizer.momentum_decay");
  if (c.is_set("optimizer.eps")) o.eps = c.Number("optimizer.eps");
  if (c.has_value("optimizer.momentum")) {
    o.momentum = c.Number("optimizer.momentum");
  } else if (o.type == "momentum" || o.type == "nesterov") {
    o.momentum = kMomentum;
  }
  o.dampening = c.Number("optimizer.dampening");
  o.amsgrad = c.Switch("optimizer.amsgrad");
  o.alpha = c.Number("optimizer.alpha");
  o.centered = c.Switch("optimizer.centered");
  o.rho = c.Number("optimizer.rho");
  o.lr_decay = c.Number("optimizer.lr_decay");
  o.initial_accumulator_value = c.Number("optimizer.initial_accumulator_value");
  const std::vector<std::string>& no_decay = c.Texts("optimizer.no_decay");
  o.no_decay_1d = std::find(no_decay.begin(), no_decay.end(), kOneDimension) != no_decay.end();
  o.groups = GroupsOf(c);
  return o;
}

Schedule ScheduleOf(const Configuration& configuration, int64_t total_updates) {
  CheckLeastRate(configuration);
  Schedule made{configuration.Text("schedule.name"), configuration.Number("optimizer.lr"), {}};
  Attributes& attributes = made.attributes;
  if (made.kind != "constant") attributes.set("total_steps", total_updates);
  Reading(configuration, "schedule.warmup", [&] {
    const std::string& warmup = configuration.Text("schedule.warmup");
    if (!warmup.empty()) attributes.set("warmup_steps", UpdatesIn(warmup, "schedule.warmup", total_updates, made));
  });
  Reading(configuration, "schedule.decay_phase", [&] {
    const std::string& decay = configuration.Text("schedule.decay_phase");
    if (!decay.empty()) attributes.set("decay_steps", UpdatesIn(decay, "schedule.decay_phase", total_updates, made));
  });
  Reading(configuration, "schedule.milestones", [&] {
    const std::string& milestones = configuration.Text("schedule.milestones");
    if (!milestones.empty()) attributes.set("milestones", MilestonesIn(milestones, total_updates, made));
  });
  if (configuration.is_set("schedule.min_lr")) attributes.set("min_lr", configuration.Number("schedule.min_lr"));
  if (configuration.is_set("schedule.gamma")) attributes.set("gamma", configuration.Number("schedule.gamma"));
  if (configuration.is_set("schedule.step_size")) attributes.set("step_size", configuration.Integer("schedule.step_size"));
  if (configuration.is_set("schedule.power")) attributes.set("power", configuration.Number("schedule.power"));
  if (configuration.is_set("schedule.cycles")) attributes.set("cycles", configuration.Integer("schedule.cycles"));
  return made;
}

}  // namespace gradloom
