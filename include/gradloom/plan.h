// Models, compile options and plans.
#pragma once

#include <charconv>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/error.h"
#include "gradloom/tensor.h"

namespace gradloom {
inline namespace v1 {

// A key of the configuration and its value, as `gradloom config --keys` lists them: {"optimizer.lr", "1e-3"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

namespace internal {

inline std::string TextOf(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

// A TOML string.
inline std::string Quoted(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const unsigned code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f) {
      quoted.append("\\u00").append({kDigits[code / 16], kDigits[code % 16]});
    } else {
      quoted.append(c == '"' || c == '\\' ? 1 : 0, '\\').append(1, c);
    }
  }
  return quoted.append("\"");
}

// A TOML list of strings.
inline std::string ListOf(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list.append(list.empty() ? "[" : ", ").append(Quoted(text));
  return list.empty() ? "[]" : list.append("]");
}

// A TOML table of numbers.
inline std::string TableOf(const std::vector<std::pair<std::string, double>>& numbers) {
  std::string table;
  for (const auto& [name, number] : numbers) table.append(table.empty() ? "{ " : ", ").append(Quoted(name) + " = " + TextOf(number));
  return table.empty() ? "{}" : table.append(" }");
}

}  // namespace internal

// An ONNX model in memory.
class Model {
 public:
  // Reads a file, in ONNX's text form if its name ends in .onnxtxt. External data is read from `external_dir`, or from the file's folder if
  // that is empty.
  explicit Model(const std::string& path, const std::string& external_dir = {}) {
    auto options = internal::Sized<GradloomLoadOptions>();
    options.external_dir = external_dir.empty() ? nullptr : external_dir.c_str();
    GradloomModel* handle = nullptr;
    internal::Check(internal::Api().LoadModel(path.c_str(), &options, &handle));
    handle_ = internal::Shared(handle, internal::Api().ReleaseModel);
  }

  // Copies the bytes of an ONNX file, or of its text form if `name` ends in .onnxtxt. The name is used in messages. External data is read
  // from `external_dir` only.
  static Model FromBytes(std::span<const std::byte> bytes, const std::string& name = "model", const std::string& external_dir = {}) {
    auto options = internal::Sized<GradloomLoadOptions>();
    options.name = name.c_str();
    options.external_dir = external_dir.empty() ? nullptr : external_dir.c_str();
    GradloomModel* handle = nullptr;
    internal::Check(internal::Api().LoadModelFromBuffer(bytes.data(), bytes.size(), &options, &handle));
    return Model(handle);
  }

  // ONNX's text form: docs/losses.md shows it.
  static Model FromText(const std::string& text, const std::string& external_dir = {}) {
    return FromBytes(std::as_bytes(std::span(text)), "model.onnxtxt", external_dir);
  }

  std::vector<std::string> InputNames() const {
    size_t count = 0;
    internal::Check(internal::Api().GetModelInputCount(c(), &count));
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) {
      const char* name = nullptr;
      internal::Check(internal::Api().GetModelInputName(c(), i, &name));
      names.emplace_back(name);
    }
    return names;
  }

  GradloomModel* c() const { return handle_.get(); }

 private:
  explicit Model(GradloomModel* handle) : handle_(internal::Shared(handle, internal::Api().ReleaseModel)) {}
  std::shared_ptr<GradloomModel> handle_;
};

// One or several terms of a loss, each in the syntax of `--loss` (docs/losses.md). Formulas are those of PyTorch's functions, where there
// is one.
class Loss {
 public:
  Loss() = default;  // chosen by the model's first output
  explicit Loss(std::string term) : terms_{std::move(term)} {}

  static Loss CrossEntropy(const std::string& logits, const std::string& label) { return Of("cross_entropy", logits, label); }
  static Loss Nll(const std::string& log_probabilities, const std::string& label) { return Of("nll", log_probabilities, label); }
  static Loss Mse(const std::string& output, const std::string& target) { return Of("mse", output, target); }
  static Loss L1(const std::string& output, const std::string& target) { return Of("l1", output, target); }
  static Loss SmoothL1(const std::string& output, const std::string& target) { return Of("smooth_l1", output, target); }
  static Loss Huber(const std::string& output, const std::string& target) { return Of("huber", output, target); }
  static Loss LogCosh(const std::string& output, const std::string& target) { return Of("log_cosh", output, target); }
  // Of the target's distribution: 0.5 is its median.
  static Loss Quantile(const std::string& output, const std::string& target, double q = 0.5) {
    return Loss("quantile(" + output + ", " + target + ", q=" + internal::TextOf(q) + ")");
  }
  static Loss PoissonNll(const std::string& log_rates, const std::string& counts) { return Of("poisson_nll", log_rates, counts); }
  // Targets are -1 and 1.
  static Loss Hinge(const std::string& scores, const std::string& target) { return Of("hinge", scores, target); }
  static Loss SoftMargin(const std::string& scores, const std::string& target) { return Of("soft_margin", scores, target); }
  static Loss Bce(const std::string& probabilities, const std::string& target) { return Of("bce", probabilities, target); }
  static Loss BceWithLogits(const std::string& logits, const std::string& target) { return Of("bce_with_logits", logits, target); }
  static Loss SigmoidFocal(const std::string& logits, const std::string& target) { return Of("sigmoid_focal", logits, target); }
  static Loss KlDiv(const std::string& log_probabilities, const std::string& target) { return Of("kl_div", log_probabilities, target); }
  // The mean of an output of the model.
  static Loss Output(const std::string& output) { return Loss("output(" + output + ")"); }
  // An ONNX graph over outputs and targets.
  static Loss Graph(const std::string& path) { return Loss(path); }

  // The sum of both.
  Loss operator+(const Loss& other) const {
    Loss sum = *this;
    sum.terms_.insert(sum.terms_.end(), other.terms_.begin(), other.terms_.end());
    return sum;
  }
  // Multiplies every term by the weight. Only once per term.
  Loss operator*(double weight) const {
    Loss scaled = *this;
    for (std::string& term : scaled.terms_) term.append("*").append(internal::TextOf(weight));  // GCC 12 warns of "*" + text
    return scaled;
  }

  const std::vector<std::string>& terms() const { return terms_; }

 private:
  static Loss Of(const std::string& type, const std::string& output, const std::string& target) {
    return Loss(type + "(" + output + ", " + target + ")");
  }
  std::vector<std::string> terms_;
};

// Optimizers, with PyTorch's formulas and arguments; Lamb and Lion, which PyTorch lacks, with those of their papers.
struct Sgd {
  double lr = 1e-3, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double dampening = 0;
};
struct Adam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false;
};
struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  bool amsgrad = false;
};
struct NAdam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
};
struct RAdam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
struct RmsProp {
  double lr = 1e-3, momentum = 0, eps = 1e-8, weight_decay = 0, alpha = 0.99;
  bool centered = false;
};
struct Adagrad {
  double lr = 1e-3, lr_decay = 0, eps = 1e-10, weight_decay = 0, initial_accumulator_value = 0;
};
struct Adadelta {
  double lr = 1e-3, rho = 0.9, eps = 1e-6, weight_decay = 0;
};
struct Adamax {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
struct Lamb {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0;
};
struct Lion {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

// An update rule and its options. Compile() refuses values out of range.
//   Optimizer(AdamW{.weight_decay = 0.05}).NoDecay({"1d"}).LrScale({{"backbone.*", 0.1}}).ClipNorm(1)
class Optimizer {
 public:
  Optimizer() = default;  // the configuration's optimizer
  // Any optimizer of the configuration, with keys of the section [optimizer] by their short names: Optimizer("lamb", {{"lr", "1e-3"}}).
  Optimizer(const std::string& name, const Settings& options) {
    settings_.emplace_back("optimizer.name", name);
    for (const auto& [key, value] : options) settings_.emplace_back("optimizer." + key, value);
  }
  Optimizer(const Sgd& o)  // NOLINT: implicit conversion is intended
      : Optimizer(o.nesterov          ? "nesterov"
                  : o.momentum != 0.0 ? "momentum"
                                      : "sgd",
                  Common(o)) {
    if (o.momentum != 0.0 || o.nesterov) Add("momentum", o.momentum);
    Add("dampening", o.dampening);
  }
  Optimizer(const Adam& o) : Optimizer("adam", Common(o)) {  // NOLINT
    AddBetas(o);
    Add("amsgrad", o.amsgrad);
  }
  Optimizer(const AdamW& o) : Optimizer("adamw", Common(o)) {  // NOLINT
    AddBetas(o);
    Add("amsgrad", o.amsgrad);
  }
  Optimizer(const NAdam& o) : Optimizer("nadam", Common(o)) {  // NOLINT
    AddBetas(o);
    Add("momentum_decay", o.momentum_decay);
  }
  Optimizer(const RAdam& o) : Optimizer("radam", Common(o)) { AddBetas(o); }  // NOLINT
  Optimizer(const RmsProp& o) : Optimizer("rmsprop", Common(o)) {             // NOLINT
    Add("eps", o.eps);
    if (o.momentum != 0.0) Add("momentum", o.momentum);
    Add("alpha", o.alpha);
    Add("centered", o.centered);
  }
  Optimizer(const Adagrad& o) : Optimizer("adagrad", Common(o)) {  // NOLINT
    Add("eps", o.eps);
    Add("lr_decay", o.lr_decay);
    Add("initial_accumulator_value", o.initial_accumulator_value);
  }
  Optimizer(const Adadelta& o) : Optimizer("adadelta", Common(o)) {  // NOLINT
    Add("eps", o.eps);
    Add("rho", o.rho);
  }
  Optimizer(const Adamax& o) : Optimizer("adamax", Common(o)) { AddBetas(o); }  // NOLINT
  Optimizer(const Lamb& o) : Optimizer("lamb", Common(o)) { AddBetas(o); }      // NOLINT
  Optimizer(const Lion& o) : Optimizer("lion", Common(o)) {                     // NOLINT
    Add("beta1", o.beta1);
    Add("beta2", o.beta2);
  }

  // Parameters whose names match one of the patterns ('*': any text, '?': any byte) have no weight decay; "1d" stands for those with fewer
  // than two dimensions, such as biases and norms. A further call replaces the patterns.
  Optimizer& NoDecay(const std::vector<std::string>& patterns) { return Add("no_decay", internal::ListOf(patterns)); }

  // Factors of the learning rate of the parameters that match a pattern; of several that match, the one with the most letters applies.
  Optimizer& LrScale(const std::vector<std::pair<std::string, double>>& factors) { return Add("lr_scale", internal::TableOf(factors)); }

  // Scales the gradients of an update so that their global L2 norm is at most `bound`; 0: never.
  Optimizer& ClipNorm(double bound) { return Add("clip_norm", bound); }

  // Clamps each element of an update's gradients to [-bound, bound]; 0: never. Not with ClipNorm.
  Optimizer& ClipValue(double bound) { return Add("clip_value", bound); }

  // Keeps an exponential moving average of each parameter: after each update it is `decay` times itself plus 1 - `decay` times the
  // parameter, after the first one the parameter. Evaluations, predictions and exports take the averages for the weights. `warmup`: after t
  // updates the decay is at most (1 + t) / (10 + t).
  Optimizer& Ema(double decay, bool warmup = false) { return Add("ema", decay).Add("ema_warmup", warmup); }

  // Keys of the configuration.
  const Settings& settings() const { return settings_; }

 private:
  template <typename Options>
  static Settings Common(const Options& o) {
    return {{"lr", internal::TextOf(o.lr)}, {"weight_decay", internal::TextOf(o.weight_decay)}};
  }
  Optimizer& Add(const std::string& key, const std::string& value) {
    settings_.emplace_back("optimizer." + key, value);
    return *this;
  }
  Optimizer& Add(const std::string& key, double value) { return Add(key, internal::TextOf(value)); }
  Optimizer& Add(const std::string& key, bool value) { return Add(key, std::string(value ? "true" : "false")); }
  template <typename Options>
  void AddBetas(const Options& o) {
    Add("beta1", o.beta1);
    Add("beta2", o.beta2);
    Add("eps", o.eps);
  }

  Settings settings_;
};

struct CompileOptions {
  Loss loss{};
  Optimizer optimizer{};
  int64_t batch = 0;               // over all devices; 0: the size in the model's file, or 32
  std::vector<int64_t> batches{};  // further batch sizes to compile now; a session compiles other sizes when they first occur
  std::string devices{};           // "cpu", "cpu:4", "cuda:0,1"; empty: the configuration's default
  bool eval = true;                // Session::Evaluate
  bool predict = true;             // Session::Predict
  bool gradients = false;          // Session::Backward, Update and Gradient; takes memory for a gradient of each parameter
  bool outputs = false;            // training steps also return the model's outputs
  std::string config{};            // a TOML file; the other options override it
  std::string config_text{};       // the text of such a file
  Settings settings{};             // any other keys; these override everything else
  // Inputs or targets of which Step and Backward also return the gradient of their batch's loss, as the output "grad/NAME".
  std::vector<std::string> input_gradients{};
};

// The kinds of entries of a plan.
enum class EntryKind : int32_t { kTrain = GRADLOOM_TRAIN, kEval = GRADLOOM_EVAL, kPredict = GRADLOOM_PREDICT };

// A verified plan: everything a session will do, decided before step 0.
class Plan {
 public:
  // Takes ownership of a handle of the C table.
  explicit Plan(GradloomPlan* handle) : handle_(internal::Shared(handle, internal::Api().ReleasePlan)) {}

  // The plan may come from an untrusted source: it is verified.
  static Plan Load(const std::string& path) {
    GradloomPlan* handle = nullptr;
    internal::Check(internal::Api().LoadPlan(path.c_str(), &handle));
    return Plan(handle);
  }
  static Plan FromBytes(std::span<const std::byte> bytes) {
    GradloomPlan* handle = nullptr;
    internal::Check(internal::Api().LoadPlanFromBuffer(bytes.data(), bytes.size(), &handle));
    return Plan(handle);
  }
  void Save(const std::string& path) const { internal::Check(internal::Api().SavePlan(c(), path.c_str())); }

  std::string Text() const { return Describe(GRADLOOM_PLAN_TEXT); }
  std::string MemoryJson() const { return Describe(GRADLOOM_PLAN_MEMORY_JSON); }
  std::string Notes() const { return Describe(GRADLOOM_PLAN_NOTES); }  // the compiler's guesses and warnings

  // "" if there is none.
  std::string Property(const std::string& key) const {
    const char* value = nullptr;
    internal::Check(internal::Api().GetPlanProperty(c(), key.c_str(), &value));
    return value == nullptr ? "" : value;
  }
  size_t device_count() const {
    size_t count = 0;
    internal::Check(internal::Api().GetPlanDeviceCount(c(), &count));
    return count;
  }
  std::vector<TensorInfo> Inputs(EntryKind kind) const { return List(kind, internal::Api().GetInputCount, internal::Api().GetInputInfo); }
  std::vector<TensorInfo> Outputs(EntryKind kind) const {
    return List(kind, internal::Api().GetOutputCount, internal::Api().GetOutputInfo);
  }

  GradloomPlan* c() const { return handle_.get(); }

 private:
  std::string Describe(GradloomDescription what) const {
    GradloomText* text = nullptr;
    internal::Check(internal::Api().DescribePlan(c(), what, &text));
    return internal::Take(text);
  }
  template <typename Count, typename Info>
  std::vector<TensorInfo> List(EntryKind kind, Count count_of, Info info_of) const {
    size_t count = 0;
    internal::Check(count_of(c(), static_cast<GradloomEntry>(kind), &count));
    std::vector<TensorInfo> list;
    for (size_t i = 0; i < count; ++i) {
      auto info = internal::Sized<GradloomTensorInfo>();
      internal::Check(info_of(c(), static_cast<GradloomEntry>(kind), i, &info));
      list.push_back(internal::InfoOf(info));
    }
    return list;
  }
  std::shared_ptr<GradloomPlan> handle_;
};

// Compiles and verifies. The plan borrows nothing from the options.
inline Plan Compile(const Model& model, const CompileOptions& options) {
  Settings settings = options.optimizer.settings();
  if (!options.loss.terms().empty()) settings.emplace_back("loss.name", internal::ListOf(options.loss.terms()));
  if (!options.devices.empty()) settings.emplace_back("devices.use", options.devices);
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  std::vector<GradloomSetting> list;
  for (const auto& [key, value] : settings) list.push_back({key.c_str(), value.c_str()});
  std::vector<int64_t> batches = options.batches;
  if (options.batch != 0) batches.insert(batches.begin(), options.batch);
  auto given = internal::Sized<GradloomCompileOptions>();
  given.config_path = options.config.empty() ? nullptr : options.config.c_str();
  given.config_text = options.config_text.empty() ? nullptr : options.config_text.c_str();
  given.settings = list.data();
  given.num_settings = list.size();
  given.batches = batches.data();
  given.num_batches = batches.size();
  given.with = GRADLOOM_WITH_NOTHING_ELSE;
  if (options.eval) given.with |= GRADLOOM_WITH_EVAL;
  if (options.predict) given.with |= GRADLOOM_WITH_PREDICT;
  if (options.gradients) given.with |= GRADLOOM_WITH_GRADIENTS;
  if (options.outputs) given.with |= GRADLOOM_WITH_OUTPUTS;
  std::vector<const char*> inputs;
  for (const std::string& input : options.input_gradients) inputs.push_back(input.c_str());
  given.input_gradients = inputs.data();
  given.num_input_gradients = inputs.size();
  GradloomPlan* handle = nullptr;
  internal::Check(internal::Api().Compile(model.c(), &given, &handle));
  return Plan(handle);
}

}  // namespace v1
}  // namespace gradloom
