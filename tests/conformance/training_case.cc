#include "tests/conformance/training_case.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/file.h"
#include "runtime/data/npz.h"

namespace gradloom {
namespace {

using Json = nlohmann::json;

// The value of a key, or `absent` if the key is missing or null.
template <typename T>
T Get(const Json& json, const char* key, T absent) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? absent : found->get<T>();
}

void ExpectKeys(const Json& json, const std::set<std::string>& known, const std::string& where) {
  for (const auto& [key, value] : json.items()) {
    if (!known.contains(key)) throw Error(ErrorCode::kConfig, "unknown key '" + Escaped(key) + "'", where);
  }
}

// A number, or a list of numbers.
std::vector<double> Numbers(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return {};
  if (found->is_number()) return {found->get<double>()};
  return found->get<std::vector<double>>();
}

LossTerm ReadLoss(const Json& json) {
  ExpectKeys(json,
             {"type", "output", "target", "weight", "reduction", "class_axis", "ignore_index", "label_smoothing", "class_weight", "beta",
              "delta", "pos_weight", "q", "log_input", "alpha", "gamma"},
             "losses");
  LossTerm term;
  term.type = json.at("type");
  term.output = Get<std::string>(json, "output", "");
  term.target = Get<std::string>(json, "target", "");
  term.weight = Get(json, "weight", 1.0);
  term.reduction = Get<std::string>(json, "reduction", "mean");
  term.class_axis = Get<int64_t>(json, "class_axis", 1);
  if (json.contains("ignore_index") && !json["ignore_index"].is_null()) term.ignore_index = json["ignore_index"].get<int64_t>();
  term.label_smoothing = Get(json, "label_smoothing", 0.0);
  term.class_weight = Numbers(json, "class_weight");
  term.beta = Get(json, "beta", 1.0);
  term.delta = Get(json, "delta", 1.0);
  term.pos_weight = Numbers(json, "pos_weight");
  term.quantile = Get(json, "q", 0.5);
  term.log_input = Get(json, "log_input", true);
  term.alpha = Get(json, "alpha", 0.25);
  term.gamma = Get(json, "gamma", 2.0);
  return term;
}

// The default of torch.optim, for a recipe without a rate.
double DefaultRate(const std::string& type) {
  if (type == "rmsprop" || type == "adagrad") return 1e-2;
  if (type == "adadelta") return 1;
  if (type == "lion") return 1e-4;
  return type == "adamax" || type == "nadam" ? 2e-3 : 1e-3;
}

OptimizerOptions ReadOptimizer(const Json& json) {
  ExpectKeys(json, {"type",          "lr",       "momentum", "nesterov", "dampening",  "weight_decay",   "betas",
                    "eps",           "amsgrad",  "alpha",    "centered", "rho",        "lr_decay",       "initial_accumulator_value",
                    "groups",        "maximize", "foreach",  "fused",    "capturable", "differentiable", "decoupled_weight_decay",
                    "momentum_decay"},
             "optimizer");
  OptimizerOptions o;
  o.type = json.at("type");
  // Options that would change the result are not ignored.
  if (Get(json, "maximize", false))
    throw Error(ErrorCode::kConfig, "maximize is not supported", "optimizer", "a negative weight of the loss");
  if (o.type == "adam" && Get(json, "decoupled_weight_decay", false)) o.type = "adamw";
  o.lr = Get(json, "lr", DefaultRate(o.type));
  o.momentum = Get(json, "momentum", 0.0);
  o.nesterov = Get(json, "nesterov", false);
  o.dampening = Get(json, "dampening", 0.0);
  o.weight_decay = Get(json, "weight_decay", json.at("type") == "adamw" ? 0.01 : 0.0);
  const std::vector<double> betas = Numbers(json, "betas");
  if (betas.size() == 2) {
    o.beta1 = betas[0];
    o.beta2 = betas[1];
  }
  o.momentum_decay = Get(json, "momentum_decay", o.momentum_decay);
  o.eps = Get(json, "eps", -1.0);
  o.amsgrad = Get(json, "amsgrad", false);
  o.alpha = Get(json, "alpha", 0.99);
  o.centered = Get(json, "centered", false);
  o.rho = Get(json, "rho", 0.9);
  o.lr_decay = Get(json, "lr_decay", 0.0);
  o.initial_accumulator_value = Get(json, "initial_accumulator_value", 0.0);
  const std::string groups = Get<std::string>(json, "groups", "");
  if (!groups.empty() && groups != "no_decay_1d") throw Error(ErrorCode::kConfig, "unknown groups '" + Escaped(groups) + "'", "optimizer");
  o.no_decay_1d = groups == "no_decay_1d";
  return o;
}

Tolerance ReadTolerance(const Json& json, size_t steps) {
  Tolerance t;
  t.loss_atol = json.at("loss_atol");
  t.loss_rtol_steps = Numbers(json, "loss_rtol_steps");
  if (t.loss_rtol_steps.empty()) t.loss_rtol_steps.assign(steps, json.at("loss_rtol").get<double>());
  if (t.loss_rtol_steps.size() != steps) throw Error(ErrorCode::kConfig, "loss_rtol_steps has another length than the run", "tolerance");
  t.grad_atol = json.at("grad_atol");
  t.grad_rtol = json.at("grad_rtol");
  t.param_atol = json.at("param_atol");
  t.param_rtol = json.at("param_rtol");
  t.outlier_fraction = Get(json, "outlier_fraction", 0.0);
  return t;
}

void ReadRecipe(const Json& json, TrainingCase& c) {
  c.name = json.at("name");
  c.inputs = json.at("inputs").get<std::vector<std::string>>();
  c.outputs = json.at("outputs").get<std::vector<std::string>>();
  c.targets = Get<std::vector<std::string>>(json, "targets", {});
  for (const Json& term : json.at("losses")) c.recipe.losses.push_back(ReadLoss(term));
  c.recipe.optimizer = ReadOptimizer(json.at("optimizer"));
  c.recipe.optimizer.clip_norm = Get(json, "clip_grad_norm", 0.0);
  c.recipe.optimizer.clip_value = Get(json, "clip_grad_value", 0.0);
  if (json.contains("ema")) {
    c.recipe.optimizer.ema = json.at("ema").at("decay").get<double>();
    c.recipe.optimizer.ema_warmup = Get(json.at("ema"), "warmup", false);
  }
  c.recipe.accumulate = Get<int64_t>(json, "grad_accumulation", 1);
  c.recipe.schedule.lr = c.recipe.optimizer.lr;
  c.lr_factors = Numbers(json, "lr_schedule");
  const std::string semantics = Get<std::string>(json, "semantics", "as_graph");
  if (semantics != "as_graph" && semantics != "train") throw Error(ErrorCode::kConfig, "unknown semantics '" + Escaped(semantics) + "'");
  c.recipe.mode = semantics == "train" ? GraphMode::kTrain : GraphMode::kGraph;
  c.trainable = json.at("trainable").get<std::vector<std::string>>();
  c.frozen = Get<std::vector<std::string>>(json, "frozen", {});
  c.detached = Get<std::vector<std::string>>(json, "detached", {});
  c.recipe.only = c.trainable;
}

Json ParseFile(const std::string& path) {
  try {
    return Json::parse(ReadWholeFile(path));
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kParse, error.what(), path);
  }
}

}  // namespace

void Tolerance::MultiplyLoss(double factor) {
  loss_atol *= factor;
  for (double& bound : loss_rtol_steps) bound *= factor;
}

TrainingCase ReadTrainingCase(const std::string& folder) {
  const std::filesystem::path root(folder);
  const Json json = ParseFile((root / "case.json").string());
  TrainingCase c;
  try {
    ReadRecipe(json, c);
    c.model_path = (root / json.at("model").get<std::string>()).string();
    const int64_t steps = json.at("steps"), batch = json.at("batch_size");
    c.batch_sizes = Get<std::vector<int64_t>>(json, "batch_sizes", std::vector<int64_t>(static_cast<size_t>(steps), batch));
    c.ill_conditioned = Get<std::vector<std::string>>(json, "ill_conditioned", {});
    c.full = Get<std::string>(json, "expected", "full") == "full";
    c.tolerance = ReadTolerance(json.at("tolerance"), c.batch_sizes.size());
    if (!c.lr_factors.empty() && c.lr_factors.size() != c.batch_sizes.size())
      throw Error(ErrorCode::kConfig, "lr_schedule has another length than the run");
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kConfig, error.what(), (root / "case.json").string());
  }
  c.batches = ReadNpz((root / "batches.npz").string());
  NpzArrays expected = ReadNpzArrays((root / "expected.npz").string());
  c.expected = std::move(expected.numbers);
  if (const auto names = expected.texts.find("names"); names != expected.texts.end()) {
    c.names.emplace();
    for (int64_t i = 0; i < names->second.size; ++i) c.names->push_back(names->second[i]);
  }
  return c;
}

TrainingCase ReadWorkload(const std::string& model, const std::string& batches, const std::string& json_path) {
  const Json json = ParseFile(json_path);
  TrainingCase c;
  try {
    ReadRecipe(json, c);
    c.batch_sizes = {json.at("batch_size").get<int64_t>()};
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kConfig, error.what(), json_path);
  }
  c.model_path = model;
  c.batches = ReadNpz(batches);
  return c;
}

}  // namespace gradloom
