#include "tools/run/recipe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "compiler/onnx/device_annotations.h"
#include "compiler/onnx_loss.h"
#include "compiler/passes/place_devices.h"
#include "runtime/base/call_text.h"
#include "runtime/base/control_group.h"
#include "runtime/base/error.h"
#include "runtime/base/nearest.h"
#include "runtime/device/choose_devices.h"
#include "runtime/plan/device_spec.h"
#include "tools/config/keys.h"
#include "tools/config/topology.h"
#include "tools/run/loss_guess.h"
#include "tools/run/memory_limit.h"
#include "tools/run/mode_notes.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

double Number(const std::string& text, const std::string& what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorCode::kConfig, what + " '" + Escaped(text) + "' is not a number", "", "expected a number such as 0.1, 1e-3 or 500");
  return value;
}

std::vector<double> Numbers(const std::string& text, const std::string& what) {
  std::vector<double> values;
  for (const std::string& piece : Pieces(text, ':')) values.push_back(Number(piece, what));
  return values;
}

void SetOption(LossTerm& term, const std::string& key, const std::string& value) {
  const std::string what = "option " + key + " of the loss";
  if (key == "training_info" && term.type == "algorithm") {
    term.training_info = static_cast<int>(Number(value, what));
  } else if (key == "reduction") {
    term.reduction = value;
  } else if (key == "class_axis") {
    term.class_axis = static_cast<int64_t>(Number(value, what));
  } else if (key == "ignore_index") {
    term.ignore_index = static_cast<int64_t>(Number(value, what));
  } else if (key == "label_smoothing") {
    term.label_smoothing = Number(value, what);
  } else if (key == "probabilities") {
    if (value != "true" && value != "false") throw Error(ErrorCode::kConfig, what + " must be true or false, got '" + Escaped(value) + "'");
    term.probabilities = value == "true";
  } else if (key == "class_weight") {
    term.class_weight = Numbers(value, what);
  } else if (key == "pos_weight") {
    term.pos_weight = Numbers(value, what);
  } else if (key == "beta") {
    term.beta = Number(value, what);
  } else if (key == "delta") {
    term.delta = Number(value, what);
  } else {
    const std::vector<std::string> known = {"reduction",  "class_axis", "ignore_index", "label_smoothing", "probabilities", "class_weight",
                                            "pos_weight", "beta",       "delta"};
    const std::string near = Nearest(key, known);
    throw Error(ErrorCode::kConfig, "unknown option of a loss '" + Escaped(key) + "'", "",
                near.empty() ? "" : "did you mean '" + near + "'?");
  }
}

void CheckName(const std::string& name, const std::vector<std::string>& known, const std::string& what) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string all;
  for (const std::string& other : known) all += (all.empty() ? "" : ", ") + other;
  const std::string near = Nearest(name, known);
  throw Error(ErrorCode::kConfig, "unknown " + what + " '" + Escaped(name) + "'", "",
              (near.empty() ? "" : "did you mean '" + near + "'?   ") + ("expected one of: " + all));
}

// Calls `read`, which reads the key's value. An error without a location gets the origin of the value.
template <typename Read>
void Reading(const Configuration& configuration, const char* key, Read read) {
  try {
    read();
  } catch (const Error& error) {
    if (!error.where().empty()) throw;
    const std::string& place = configuration.origin(key).place;
    throw Error(error.code(), error.message(), Escaped(place.empty() ? key : place, 4096), error.help());
  }
}

LossTerm FileTerm(const CallText& call, const std::map<std::string, int64_t>& shapes) {
  LossTerm term{.type = "graph"};
  if (!call.output.empty()) {
    throw Error(
        ErrorCode::kConfig, "the inputs of a loss graph must be bound by name", "loss '" + Escaped(call.name, 4096) + "'",
        "write INPUT=OUTPUT or INPUT=TARGET for each input with another name: my_loss.onnx(prediction=" + Escaped(call.output) + ")");
  }
  for (const auto& [input, operand] : call.options) {
    if (term.bindings.emplace(input, operand).second) continue;
    throw Error(ErrorCode::kConfig, "the input '" + Escaped(input) + "' is given twice", "loss '" + Escaped(call.name, 4096) + "'");
  }
  term.graph = std::make_shared<const OnnxLoss>(Model::Load(call.name), shapes);
  return term;
}

}  // namespace

LossTerm ParseLoss(const std::string& text, const std::map<std::string, int64_t>& shapes) {
  std::string body = Trimmed(text);
  double weight = 1;
  const size_t star = body.rfind('*');
  if (star != std::string::npos && body.find(')', star) == std::string::npos) {
    weight = Number(Trimmed(body.substr(star + 1)), "the weight of the loss");
    body = Trimmed(body.substr(0, star));
  }
  const CallText call = ParseCall(body, "loss", "cross_entropy(OUTPUT, TARGET, label_smoothing=0.1)");
  LossTerm term;
  if (FileLengthOf(call.name) > 0) {
    term = FileTerm(call, shapes);
  } else {
    CheckName(call.name, LossTypes(), "loss");
    term.type = call.name;
    term.output = call.output;
    term.target = call.target;
    for (const auto& [key, value] : call.options) SetOption(term, key, value);
  }
  term.weight = weight;
  return term;
}

std::vector<std::string> LossFilesOf(const Configuration& configuration) {
  std::vector<std::string> files;
  for (const std::string& text : configuration.Texts("loss.name")) {
    const std::string term = Trimmed(text);
    if (const size_t length = FileLengthOf(term); length > 0) files.push_back(term.substr(0, length));
  }
  if (const std::string& file = configuration.Text("loss.onnx"); !file.empty()) files.push_back(file);
  return files;
}

void PrintSetKeys(const Configuration& configuration) {
  for (const std::string& line : configuration.SetKeyLines()) WriteStderrLine("debug", "config  " + line);
}

const std::string& ModelPathOf(const Configuration& configuration) {
  const std::string& path = configuration.Text("model.path");
  if (path.empty())
    throw Error(ErrorCode::kConfig, "no model is given", "", "pass an ONNX file, or a configuration with one: -c gradloom.toml");
  return path;
}

namespace {

// The default of the rules "momentum" and "nesterov".
constexpr double kMomentum = 0.9;

// In the list of patterns of parameters without weight decay: those with fewer than two dimensions.
constexpr std::string_view kOneDimension = "1d";

// "encoder.*=cpu:1", or "encoder.*=cuda:3" if that is one of the devices.
PlaceRule ParsePlace(const std::string& text, const DeviceSpec& devices) {
  const size_t equals = text.rfind('=');
  const int index = equals == std::string::npos ? -1 : ParseDeviceIndex(Trimmed(text.substr(equals + 1)), devices);
  if (index < 0 || equals == 0) {
    throw Error(ErrorCode::kConfig, "cannot read the placement '" + Escaped(text) + "'", "",
                devices.kind == DeviceKind::kCuda ? "expected PATTERN=cuda:0, a GPU of " + devices.ToString() +
                                                        " that occurs there once, PATTERN=cpu:0 for the first of them, or auto"
                                                  : "expected PATTERN=cpu:1, for example --place 'encoder.*=cpu:1', or auto");
  }
  return {Trimmed(text.substr(0, equals)), index};
}

// Options that only some of the rules have.
constexpr struct {
  const char *key, *rules;
} kRuleOptions[] = {
    {"optimizer.momentum", "sgd, momentum, nesterov, rmsprop"},
    {"optimizer.beta1", "adam, adamw, adamax, lamb"},
    {"optimizer.beta2", "adam, adamw, adamax, lamb"},
    {"optimizer.dampening", "sgd, momentum"},
    {"optimizer.amsgrad", "adam, adamw"},
    {"optimizer.alpha", "rmsprop"},
    {"optimizer.centered", "rmsprop"},
    {"optimizer.rho", "adadelta"},
    {"optimizer.lr_decay", "adagrad"},
    {"optimizer.initial_accumulator_value", "adagrad"},
};

// Whether a comma-separated list has the word.
bool IsListed(const std::string& word, const std::string& list) { return (", " + list + ",").find(" " + word + ",") != std::string::npos; }

// The file of a run contains all keys, so only values other than the default are refused.
void CheckRuleOptions(const Configuration& c) {
  const std::string& rule = c.Text("optimizer.name");
  const Configuration defaults;
  for (const auto& [key, rules] : kRuleOptions) {
    if (!c.has_value(key) || IsListed(rule, rules)) continue;
    const bool same = FindKey(key)->type == KeyType::kSwitch ? c.Switch(key) == defaults.Switch(key)
                                                             : defaults.has_value(key) && c.Number(key) == defaults.Number(key);
    if (same) continue;
    Reading(c, key, [&, name = std::string(key), list = std::string(rules)] {
      throw Error(ErrorCode::kConfig, name + " is an option of " + list + ", and the optimizer is " + rule, "",
                  "leave it out, or choose another --optimizer");
    });
  }
}

std::vector<ParameterGroup> GroupsOf(const Configuration& c) {
  std::vector<ParameterGroup> groups;
  for (const std::string& pattern : c.Texts("optimizer.no_decay")) {
    if (pattern != kOneDimension) groups.push_back({.pattern = pattern, .weight_decay = 0});
  }
  const size_t scales = groups.size();
  for (const auto& [pattern, factors] : c.Named("optimizer.lr_scale"))
    groups.push_back({.pattern = pattern, .lr_scale = Number(factors[0], "optimizer.lr_scale")});
  // The most specific ones first.
  const auto letters = [](const ParameterGroup& group) {
    return std::count_if(group.pattern.begin(), group.pattern.end(), [](char c) { return c != '*' && c != '?'; });
  };
  std::stable_sort(groups.begin() + static_cast<std::ptrdiff_t>(scales), groups.end(),
                   [&](const ParameterGroup& a, const ParameterGroup& b) { return letters(a) > letters(b); });
  return groups;
}

OptimizerOptions OptimizerOf(const Configuration& c) {
  CheckRuleOptions(c);
  OptimizerOptions o;
  o.type = c.Text("optimizer.name");
  o.lr = c.Number("optimizer.lr");
  o.weight_decay = c.Number("optimizer.weight_decay");
  o.clip_norm = c.Number("optimizer.clip_norm");
  o.beta1 = c.Number("optimizer.beta1");
  o.beta2 = c.Number("optimizer.beta2");
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

Precision PrecisionOf(const std::string& text) {
  if (text == "tf32") return Precision::kTf32;
  if (text == "bf16") return Precision::kBfloat16;
  return text == "fp16" ? Precision::kFloat16 : Precision::kFloat32;
}

LossScale LossScaleOf(const std::string& text, Precision precision) {
  constexpr double kInitial = 65536;
  if (text == "off" || (text.empty() && precision != Precision::kFloat16)) return {};
  if (text == "dynamic" || text.empty()) return {.initial = kInitial, .dynamic = true};
  const double number = Number(text, "the loss scale");
  if (std::isfinite(number) && number > 0) return {.initial = number};
  throw Error(ErrorCode::kConfig, "the loss scale must be above 0, got '" + Escaped(text) + "'", "",
              "use dynamic, off, or a number such as 1024");
}

// This machine's GPUs, enumerated once: the first query loads the driver.
const CudaDevices& Machine() {
  static const CudaDevices machine = ThisMachinesCuda();
  return machine;
}

constexpr int kMaxThreads = 1024;

bool IsArchitecture(const std::string& text) {
  return text.size() >= 5 && text.size() <= 7 && text.starts_with("sm_") && std::all_of(text.begin() + 3, text.begin() + 5, ::isdigit);
}

}  // namespace

int ThreadsOfProcess(int processes) {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int wanted = text == nullptr ? 0 : std::atoi(text);
  return wanted > 0 ? std::min(wanted, kMaxThreads) : std::max(1, AllowedCores() / processes);
}

NamedDevices DevicesOf(const Configuration& configuration, std::vector<std::string>& notes) {
  NamedDevices named;
  const std::string& target = configuration.Text("devices.target");
  Reading(configuration, "devices.target", [&] {
    if (target.empty() || IsArchitecture(target)) return;
    throw Error(ErrorCode::kConfig, "unknown target '" + Escaped(target) + "'", "", "for example --target sm_90");
  });
  Reading(configuration, "devices.use", [&] {
    const std::string& text = configuration.Text("devices.use");
    // A target implies a GPU.
    const DeviceSpec wanted = ParseDevices(!target.empty() && !configuration.is_set("devices.use") ? "cuda" : text);
    if (target.empty()) {
      const bool asks = wanted.best || wanted.kind == DeviceKind::kCuda;
      const CudaDevices machine = asks ? Machine() : CudaDevices();
      std::string note;
      named.devices = ChooseDevices(wanted, machine, &note);
      if (!note.empty()) notes.push_back(note);
      named.free = FreeDevicesNote(wanted, named.devices, machine);
      if (named.devices.kind == DeviceKind::kCuda) named.isa = ArchitectureOf(named.devices, machine);
      return;
    }
    if (wanted.kind != DeviceKind::kCuda) {
      throw Error(ErrorCode::kConfig, "the target " + target + " is a GPU, but the devices are " + wanted.ToString(), "",
                  "use --devices cuda:0 with --target " + target);
    }
    named.devices = wanted;
    named.devices.count = std::max(named.devices.count, 1);
    named.isa = target;
  });
  return named;
}

int64_t CopiesOf(const Configuration& configuration) {
  std::vector<std::string> notes;
  const NamedDevices named = DevicesOf(configuration, notes);
  std::vector<PlaceRule> rules;
  Reading(configuration, "devices.place", [&] {
    for (const std::string& text : configuration.Texts("devices.place")) {
      if (text == "auto" || text == kPlaceByFile) {
        throw Error(ErrorCode::kConfig, "the number of devices per copy of the model is unknown before it is compiled", "",
                    "use --batch and --accumulate instead of --micro-batch");
      }
      rules.push_back(ParsePlace(text, named.devices));
    }
  });
  return configuration.is_set("devices.use") ? std::max(1, named.devices.count / std::max(CountStages(rules), 1)) : 1;
}

ExecutorOptions ExecutorOptionsOf(const Configuration& configuration) {
  std::vector<std::string> notes;
  return {.ordinals = DevicesOf(configuration, notes).devices.ordinals,
          .graph = configuration.Text("devices.cuda_graph") != "off",
          .pin_memory = configuration.Text("devices.pin_memory") != "off",
          .autotune = configuration.Text("devices.autotune") == "on"};
}

namespace {

// The stored configuration of a run sets every key, so a value equal to the default does not count as changed.
bool IsChanged(const Configuration& configuration, const Key& key) {
  static const Configuration defaults;
  return configuration.value(key.name) != defaults.value(key.name);
}

// The loss of the file's own training algorithm, if none is configured; otherwise a guess from the first output.
LossTerm LossByModel(const Configuration& configuration, const Model& model, const Graph& graph, std::vector<std::string>& notes) {
  const bool chosen = std::any_of(Keys().begin(), Keys().end(),
                                  [&](const Key& key) { return key.section() == "optimizer" && IsChanged(configuration, key); });
  if (!model.has_algorithm() || chosen) return GuessLoss(graph, notes);
  notes.push_back("loss    algorithm   [the file's own: loss, gradients and updates of its training_info; set --loss to change]");
  return {.type = "algorithm"};
}

void CheckOwnAlgorithm(const Configuration& configuration, const Recipe& recipe) {
  if (!recipe.UsesFileAlgorithm()) return;
  if (configuration.has_value("model.detach")) {
    throw Error(ErrorCode::kConfig, "--detach cannot be combined with the file's own training algorithm, which fixes the gradients",
                Escaped(configuration.origin("model.detach").place, 4096),
                "use --loss NAME to train with Gradloom's losses and optimizers");
  }
  for (const Key& key : Keys()) {
    if (!IsChanged(configuration, key) || !(key.section() == "optimizer" || key.section() == "schedule")) continue;
    throw Error(ErrorCode::kConfig, std::string(key.flag) + " cannot be combined with the file's own training algorithm",
                Escaped(configuration.origin(key.name).place, 4096), "use --loss NAME to train with Gradloom's losses and optimizers");
  }
}

}  // namespace

namespace {

// Uses the placement in the model file, if it is requested or if no devices are configured.
void PlaceByFile(const Configuration& configuration, const Model& model, Recipe& recipe, std::vector<std::string>& notes) {
  const std::vector<std::string>& words = configuration.Texts("devices.place");
  const bool asked = std::find(words.begin(), words.end(), kPlaceByFile) != words.end();
  if (asked && words.size() > 1)
    throw Error(ErrorCode::kConfig, "the placement cannot be both 'file' and given by patterns", "", "omit one of them");
  const FilePlacement file = ReadPlacement(model);
  if (asked && !file.placement) {
    throw Error(ErrorCode::kConfig, file.note.empty() ? "the model file has no placement" : file.note, "",
                "use --place 'PATTERN=cpu:1', or omit --place to train on one device");
  }
  const bool told = !words.empty() || GathersByConfiguration(configuration) || configuration.is_set("devices.target");
  if (!file.note.empty()) notes.push_back("devices " + file.note);
  if (!file.placement) return;
  if (!asked && told) {
    notes.push_back("devices the file's placement on " + std::to_string(file.placement->devices) +
                    " devices is ignored: flags set another");
    return;
  }
  const DevicePlacement& placement = *file.placement;
  if (!configuration.is_set("devices.use")) {
    recipe.devices = placement.devices;
  } else if (!asked) {
    notes.push_back("devices the file's placement on " + std::to_string(placement.devices) +
                    " devices is ignored: " + configuration.origin("devices.use").place + " is " + configuration.Text("devices.use"));
    return;
  }
  recipe.placed = placement.of_node;
  recipe.placed_stages = placement.stages > 1 ? placement.stages : 0;
  notes.push_back("devices cpu:" + std::to_string(recipe.devices) + ", " + std::to_string(placement.stages) +
                  " per copy of the model   [the file's annotations: set --devices to change]");
}

}  // namespace

bool GathersByConfiguration(const Configuration& configuration) {
  const std::string& device = configuration.Text("devices.gather_to");
  return !device.empty() && device != kGatherNowhere;
}

Recipe RecipeOf(const Configuration& configuration, const Model& model, const Graph& graph, int64_t total_updates,
                std::vector<std::string>& notes) {
  Recipe recipe;
  recipe.mode = configuration.Text("model.mode") == "train" ? GraphMode::kTrain : GraphMode::kGraph;
  for (std::string& note : ModeNotes(graph, recipe.mode)) notes.push_back(std::move(note));
  const std::map<std::string, int64_t> shapes = ImportOptionsOf(configuration).shapes;
  Reading(configuration, "loss.name", [&] {
    for (const std::string& text : configuration.Texts("loss.name")) recipe.losses.push_back(ParseLoss(text, shapes));
  });
  if (const std::string& file = configuration.Text("loss.onnx"); !file.empty()) {
    recipe.losses.push_back(FileTerm({.name = file, .output = "", .target = "", .options = {}}, shapes));
  }
  if (recipe.losses.empty()) recipe.losses.push_back(LossByModel(configuration, model, graph, notes));
  WarnOfSecondFunction(recipe.losses, graph, notes);
  CheckOwnAlgorithm(configuration, recipe);
  recipe.optimizer = OptimizerOf(configuration);
  recipe.accumulate = configuration.Integer("train.accumulate");
  recipe.precision = PrecisionOf(configuration.Text("train.precision"));
  Reading(configuration, "train.loss_scale",
          [&] { recipe.loss_scale = LossScaleOf(configuration.Text("train.loss_scale"), recipe.precision); });
  recipe.freeze = configuration.Texts("model.freeze");
  recipe.trainable = configuration.Texts("model.trainable");
  const NamedDevices named = DevicesOf(configuration, notes);
  recipe.device = named.devices.kind;
  recipe.devices = named.devices.count;
  recipe.isa = named.isa;
  Reading(configuration, "devices.place", [&] {
    for (const std::string& text : configuration.Texts("devices.place")) {
      if (text == "auto") {
        recipe.place_auto = true;
      } else if (text != kPlaceByFile) {
        recipe.place.push_back(ParsePlace(text, named.devices));
      }
    }
    if (recipe.place_auto && !recipe.place.empty()) {
      throw Error(ErrorCode::kConfig, "the placement cannot be both 'auto' and given by patterns", "", "omit one of them");
    }
    if (!configuration.is_set("devices.use")) recipe.devices = CountStages(recipe.place);
    PlaceByFile(configuration, model, recipe, notes);
  });
  Reading(configuration, "devices.gather_to", [&] {
    const std::string& device = configuration.Text("devices.gather_to");
    recipe.gather_related = device != kGatherNowhere;
    if (!recipe.gather_related) return;
    recipe.gather_to = ParseDeviceIndex(device, named.devices);
    if (!device.empty() && recipe.gather_to < 0)
      throw Error(ErrorCode::kConfig, "cannot gather on device '" + Escaped(device) + "'", "", "use --gather-to cpu:0");
  });
  recipe.sync_bn = configuration.Switch("devices.sync_bn");
  recipe.fixed_order = configuration.Text("devices.sum_order") != "any";
  if (const std::string& limit = configuration.Text("devices.memory_limit"); !limit.empty())
    recipe.memory_limit = ParseBytes(limit, "--memory-limit");
  const std::string& recompute = configuration.Text("devices.recompute");
  recipe.recompute = recompute == "none" ? RecomputeMode::kNone : recompute == "full" ? RecomputeMode::kFull : RecomputeMode::kAuto;
  if (const std::string& path = configuration.Text("devices.topology"); !path.empty())
    recipe.bucket_bytes = BucketBytes(ReadTopology(path), recipe.devices);
  const int64_t threads = configuration.Integer("devices.threads");
  recipe.threads =
      threads > 0 ? static_cast<int>(std::min<int64_t>(threads, kMaxThreads)) : std::max(1, ThreadsOfProcess(1) / recipe.devices);
  recipe.streams = static_cast<int>(configuration.Integer("devices.streams"));
  recipe.schedule = ScheduleOf(configuration, total_updates);
  return recipe;
}

Schedule ScheduleOf(const Configuration& configuration, int64_t total_updates) {
  Schedule made{configuration.Text("schedule.name"), configuration.Number("optimizer.lr"), {}};
  Attributes& attributes = made.attributes;
  if (made.kind != "constant") attributes.set("total_steps", total_updates);
  Reading(configuration, "schedule.warmup", [&] {
    const std::string& warmup = configuration.Text("schedule.warmup");
    if (warmup.empty()) return;
    const bool share = warmup.back() == '%';
    const double value = Number(share ? warmup.substr(0, warmup.size() - 1) : warmup, "schedule.warmup");
    attributes.set("warmup_steps", static_cast<int64_t>(std::llround(share ? value / 100 * static_cast<double>(total_updates) : value)));
  });
  if (configuration.is_set("schedule.min_lr")) attributes.set("min_lr", configuration.Number("schedule.min_lr"));
  if (configuration.is_set("schedule.gamma")) attributes.set("gamma", configuration.Number("schedule.gamma"));
  if (configuration.is_set("schedule.step_size")) attributes.set("step_size", configuration.Integer("schedule.step_size"));
  return made;
}

ImportOptions ImportOptionsOf(const Configuration& configuration) {
  ImportOptions options;
  options.batch = configuration.Integer("data.batch");
  options.loop_bound = configuration.Integer("model.loop_bound");
  options.outputs = configuration.Texts("model.outputs");
  options.detach = !configuration.Switch("model.no_detach");
  options.detached = configuration.Texts("model.detach");
  for (const auto& [name, values] : configuration.Named("model.shape")) options.shapes[name] = std::stoll(values[0]);
  return options;
}

LoadOptions LoadOptionsOf(const Configuration& configuration) {
  LoadOptions options;
  options.external_dir = configuration.Text("model.external_dir");
  options.allow_hardlinks = configuration.Switch("model.allow_hardlinks");
  ModelLimits& limits = options.limits;
  const std::map<std::string, int64_t*> known = {{"nodes", &limits.nodes},
                                                 {"node_inputs", &limits.node_inputs},
                                                 {"name_bytes", &limits.name_bytes},
                                                 {"attribute_elements", &limits.attribute_elements},
                                                 {"fold_bytes", &limits.fold_bytes},
                                                 {"fold_total_bytes", &limits.fold_total_bytes},
                                                 {"value_bytes", &limits.value_bytes},
                                                 {"external_files", &limits.external_files}};
  std::vector<std::string> names;
  for (const auto& [name, limit] : known) names.push_back(name);
  Reading(configuration, "model.limit", [&] {
    for (const auto& [name, values] : configuration.Named("model.limit")) {
      CheckName(name, names, "limit");
      *known.at(name) = std::stoll(values[0]);
    }
  });
  return options;
}

PassControl PassControlOf(const Configuration& configuration) {
  PassControl control;
  control.dump_after = configuration.Text("compiler.dump_after");
  control.stop_after = configuration.Text("compiler.stop_after");
  control.disabled = configuration.Texts("compiler.disable_pass");
  control.time_passes = configuration.Switch("compiler.time_passes");
  control.log = &std::cerr;
  return control;
}

}  // namespace gradloom
