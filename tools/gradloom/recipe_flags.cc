#include "tools/gradloom/recipe_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/nearest.h"

namespace gradloom {
namespace {

double Number(const std::string& text, const std::string& what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorCode::kConfig, what + " '" + Escaped(text) + "' is not a number");
  return value;
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> Pieces(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    pieces.push_back(Trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  return pieces;
}

std::vector<double> Numbers(const std::string& text, const std::string& what) {
  std::vector<double> values;
  for (const std::string& piece : Pieces(text, ':')) values.push_back(Number(piece, what));
  return values;
}

void SetOption(LossTerm& term, const std::string& key, const std::string& value) {
  const std::string what = "option " + key + " of the loss";
  if (key == "reduction") {
    term.reduction = value;
  } else if (key == "class_axis") {
    term.class_axis = static_cast<int64_t>(Number(value, what));
  } else if (key == "ignore_index") {
    term.ignore_index = static_cast<int64_t>(Number(value, what));
  } else if (key == "label_smoothing") {
    term.label_smoothing = Number(value, what);
  } else if (key == "class_weight") {
    term.class_weight = Numbers(value, what);
  } else if (key == "pos_weight") {
    term.pos_weight = Numbers(value, what);
  } else if (key == "beta") {
    term.beta = Number(value, what);
  } else if (key == "delta") {
    term.delta = Number(value, what);
  } else {
    const std::vector<std::string> known = {"reduction",    "class_axis", "ignore_index", "label_smoothing",
                                            "class_weight", "pos_weight", "beta",         "delta"};
    const std::string near = Nearest(key, known);
    throw Error(ErrorCode::kConfig, "a loss has no option '" + Escaped(key) + "'", "", near.empty() ? "" : "did you mean '" + near + "'?");
  }
}

void CheckName(const std::string& name, const std::vector<std::string>& known, const std::string& what) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string all;
  for (const std::string& other : known) all += (all.empty() ? "" : ", ") + other;
  const std::string near = Nearest(name, known);
  throw Error(ErrorCode::kConfig, "no " + what + " '" + Escaped(name) + "'", "",
              (near.empty() ? "" : "did you mean '" + near + "'?   ") + ("there are: " + all));
}

// A loss that suits the shape of the first output.
LossTerm GuessLoss(const Graph& graph, std::vector<std::string>& notes) {
  if (graph.outputs.empty()) throw Error(ErrorCode::kGraph, "the model has no output to train");
  const Value& output = graph.value(graph.outputs.front());
  LossTerm term;
  term.output = output.name;
  term.target = "target";
  const bool classes = output.shape.rank() == 2 && output.shape[1] > 1;
  term.type = classes ? "cross_entropy" : "mse";
  notes.push_back("loss    " + term.type + "(" + Escaped(output.name) + ", target)   [guessed from the output " + output.shape.ToString() +
                  ": set --loss to change]");
  return term;
}

}  // namespace

LossTerm ParseLoss(const std::string& text) {
  LossTerm term;
  std::string body = Trimmed(text);
  const size_t star = body.rfind('*');
  if (star != std::string::npos && body.find(')', star) == std::string::npos) {
    term.weight = Number(Trimmed(body.substr(star + 1)), "the weight of the loss");
    body = Trimmed(body.substr(0, star));
  }
  const size_t open = body.find('(');
  term.type = Trimmed(body.substr(0, open));
  CheckName(term.type, LossTypes(), "loss");
  if (open == std::string::npos) return term;
  if (body.back() != ')')
    throw Error(ErrorCode::kConfig, "'" + Escaped(text) + "' is not a loss", "",
                "a loss reads 'cross_entropy(OUTPUT, TARGET, label_smoothing=0.1)'");
  int operand = 0;
  for (const std::string& piece : Pieces(body.substr(open + 1, body.size() - open - 2), ',')) {
    const size_t equals = piece.find('=');
    if (equals != std::string::npos) {
      SetOption(term, Trimmed(piece.substr(0, equals)), Trimmed(piece.substr(equals + 1)));
    } else if (operand < 2) {
      (operand++ == 0 ? term.output : term.target) = piece;
    } else {
      throw Error(ErrorCode::kConfig, "the loss '" + Escaped(text) + "' has more than an output and a target");
    }
  }
  return term;
}

void RecipeFlags::Declare(CLI::App& app) {
  app.add_option("model", model, "the ONNX file")->required();
  app.add_option("--loss", losses, "cross_entropy(OUTPUT, TARGET), mse, bce_with_logits ...; several are summed");
  app.add_option("--optimizer", optimizer, "sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad, adadelta, adamax, lamb")
      ->capture_default_str();
  app.add_option("--lr", lr, "learning rate")->capture_default_str();
  app.add_option("--momentum", momentum, "of momentum, nesterov and rmsprop")->capture_default_str();
  app.add_option("--weight-decay", weight_decay, "L2 in the gradient; decoupled for adamw and lamb");
  app.add_option("--clip-norm", clip_norm, "bound on the global norm of the gradients");
  app.add_option("--schedule", schedule, "constant, linear, cosine, step, one_cycle")->capture_default_str();
  app.add_option("--warmup", warmup, "steps (500) or share (5%) of linear warm-up");
  app.add_option("--batch", batch, "global batch size; default: the model's, or 32");
  app.add_option("--accumulate", accumulate, "batches per update")->capture_default_str();
  app.add_option("--freeze", freeze, "patterns of initializers that are not trained");
  app.add_option("--trainable", trainable, "patterns of initializers that are trained although the analysis would not");
  app.add_option("--shape", shapes, "NAME=N: extent of a symbolic dimension");
  app.add_option("--mode", mode, "train restores batch statistics and dropout; graph trains the file as it is written")
      ->capture_default_str();
  app.add_option("--devices", devices, "cpu")->capture_default_str();
  app.add_option("--threads", threads, "threads of an operator; default: all cores this process may use");
  app.add_option("--disable-pass", disabled_passes, "leave an optional compiler pass out");
  app.add_option("--dump-after", dump_after, "print the graph after a compiler pass, or after 'all'");
  app.add_option("--stop-after", stop_after, "run no compiler pass after this one");
  app.add_flag("--time-passes", time_passes, "print the time of each compiler pass");
}

Recipe RecipeFlags::ToRecipe(const Graph& graph, int64_t total_steps, std::vector<std::string>& notes) const {
  Recipe recipe;
  if (mode != "train" && mode != "graph") throw Error(ErrorCode::kConfig, "--mode is train or graph, not '" + Escaped(mode) + "'");
  recipe.mode = mode == "train" ? GraphMode::kTrain : GraphMode::kGraph;
  for (const std::string& text : losses) recipe.losses.push_back(ParseLoss(text));
  if (recipe.losses.empty()) recipe.losses.push_back(GuessLoss(graph, notes));
  CheckName(optimizer, OptimizerTypes(), "optimizer");
  OptimizerOptions& o = recipe.optimizer;
  o.type = optimizer;
  o.lr = lr;
  o.weight_decay = weight_decay;
  o.clip_norm = clip_norm;
  if (optimizer == "momentum" || optimizer == "nesterov") o.momentum = momentum;
  recipe.accumulate = accumulate;
  recipe.freeze = freeze;
  recipe.trainable = trainable;
  if (devices != "cpu" && devices != "auto") {
    throw Error(ErrorCode::kUnsupported, "devices '" + Escaped(devices) + "' are not supported by this build", "", "--devices cpu");
  }
  recipe.threads = threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  recipe.schedule = ToSchedule(total_steps);
  return recipe;
}

Schedule RecipeFlags::ToSchedule(int64_t total_steps) const {
  CheckName(schedule, {"constant", "linear", "cosine", "step", "one_cycle"}, "schedule");
  Schedule made{schedule, lr, {}};
  if (schedule != "constant") made.attributes.set("total_steps", total_steps);
  if (!warmup.empty()) {
    const bool share = warmup.back() == '%';
    const double value = Number(share ? warmup.substr(0, warmup.size() - 1) : warmup, "--warmup");
    made.attributes.set("warmup_steps", static_cast<int64_t>(std::llround(share ? value / 100 * static_cast<double>(total_steps) : value)));
  }
  return made;
}

ImportOptions RecipeFlags::ToImportOptions() const {
  ImportOptions options;
  options.batch = batch;
  for (const std::string& text : shapes) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) throw Error(ErrorCode::kConfig, "--shape '" + Escaped(text) + "' is not NAME=N");
    options.shapes[text.substr(0, equals)] = static_cast<int64_t>(Number(text.substr(equals + 1), "--shape"));
  }
  return options;
}

PassControl RecipeFlags::ToPassControl() const {
  PassControl control;
  control.dump_after = dump_after;
  control.stop_after = stop_after;
  control.disabled = disabled_passes;
  control.time_passes = time_passes;
  control.log = &std::cerr;
  return control;
}

}  // namespace gradloom
