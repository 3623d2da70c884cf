#include "compiler/batch_importer.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/dependencies.h"
#include "compiler/initial_values.h"
#include "compiler/passes/gradient/fake_quantize.h"
#include "compiler/passes/gradient/straight_through.h"
#include "compiler/passes/precision/widen_parameters.h"
#include "compiler/passes/simplify.h"
#include "compiler/passes/update/add_optimizer.h"
#include "compiler/passes/update/stored_vectors.h"
#include "compiler/passes/update/tie_copies.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/base/listing.h"
#include "runtime/base/name_pattern.h"

namespace gradloom {
namespace {

// A file's own algorithm fixes the learning rate, the precision and the updates.
void CheckAlgorithm(const Recipe& recipe) {
  for (const LossTerm& term : recipe.losses) {
    if (term.type == "algorithm" && (recipe.losses.size() > 1 || term.weight != 1))
      throw Error(ErrorCode::kConfig, "the file's own training algorithm has a loss and cannot be combined with another",
                  "--loss algorithm");
  }
  if (!recipe.UsesFileAlgorithm()) return;
  const std::pair<bool, const char*> unknown[] = {{recipe.accumulate > 1, "--accumulate"},
                                                  {recipe.precision != Precision::kFloat32, "--precision"},
                                                  {recipe.loss_scale.initial > 0, "--loss-scale"},
                                                  {recipe.fetch_gradients, "gradients by name"},
                                                  {!recipe.input_gradients.empty(), "the gradient of an input"}};
  for (const auto& [given, name] : unknown) {
    if (given) {
      throw Error(ErrorCode::kConfig,
                  std::string(name) + " cannot be combined with the file's own training algorithm, which defines its updates",
                  "--loss algorithm", "--loss NAME trains with a loss and an optimizer of Gradloom's");
    }
  }
}

// The gradient of a sum counts as it is, that of a mean by the samples of its batch among those of the update, which are only known at its
// end: they cannot be told apart in one accumulated gradient.
void CheckAccumulation(const Recipe& recipe) {
  const auto sums = [](const LossTerm& term) { return term.reduction == "sum"; };
  const auto count = std::count_if(recipe.losses.begin(), recipe.losses.end(), sums);
  if (!recipe.accumulate_samples || count == 0 || count == static_cast<int64_t>(recipe.losses.size())) return;
  throw Error(ErrorCode::kConfig,
              "a loss with reduction=sum cannot be combined with a mean where an update has several batches whose samples have the same "
              "weight (--micro-batch, --accumulate-by samples)",
              "--loss", "give all terms reduction=sum, and those that are means a weight of 1 / their number of elements in an update");
}

// Removes outputs of the model that are its loss from a prediction, with the inputs that only they need, which are targets. A loss that
// needs no input of its own stays, and so does one that is the only output.
void LeaveOutLosses(const std::vector<LossTerm>& losses, ImportedGraph& imported) {
  Graph& graph = *imported.graph;
  std::vector<ValueId> kept, left_out;
  for (const ValueId id : graph.outputs) {
    const auto named = imported.output_names.find(id);
    const std::string& name = named != imported.output_names.end() ? named->second : graph.value(id).name;
    const bool is_loss = std::any_of(losses.begin(), losses.end(), [&](const LossTerm& term) {
      return term.type == "output" && (term.output.empty() ? id == graph.outputs.front() : term.output == name);
    });
    (is_loss ? left_out : kept).push_back(id);
  }
  // An extent that the data decides is an output itself and stays with the output that has it.
  if (kept.empty() || left_out.empty()) return;
  const Dependencies of_kept(graph, kept), of_left_out(graph, left_out);
  std::vector<ValueId> inputs;
  std::vector<int> batch_axes;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (of_left_out.on(graph.inputs[i]) && !of_kept.on(graph.inputs[i])) continue;
    inputs.push_back(graph.inputs[i]);
    if (i < imported.batch_axes.size()) batch_axes.push_back(imported.batch_axes[i]);
  }
  if (inputs.size() == graph.inputs.size()) return;
  graph.outputs = kept;
  graph.inputs = inputs;
  imported.batch_axes = batch_axes;
  RemoveDeadNodes(graph);
}

}  // namespace

ImportedBatch ReadBatch(const Model& model, const Recipe& recipe, const EntryRequest& request, ImportOptions reading,
                        const TypeRules& rules, Plan& plan) {
  CheckAlgorithm(recipe);
  if (Trains(request.kind) && request.kind != EntryKind::kStep) CheckAccumulation(recipe);
  if (request.batch > 0) reading.batch = request.batch;
  for (const auto& [symbol, extent] : request.shapes) reading.shapes[symbol] = extent;
  // Prediction does not use the file's own algorithm.
  reading.training_info = request.kind == EntryKind::kPredict ? -1 : recipe.training_info();
  ImportedGraph imported = gradloom::Import(model, reading);
  if (request.kind == EntryKind::kPredict) LeaveOutLosses(recipe.losses, imported);
  PassContext context{
      .graph = *imported.graph, .rules = rules, .recipe = recipe, .kind = request.kind, .plan = plan, .batch = imported.batch};
  context.samples = std::max<int64_t>(imported.batch, 1);
  context.fetch_names = imported.output_names;
  context.extents = imported.extents;
  context.file_loss = imported.loss;
  context.file_updates = imported.updates;
  return {std::move(imported), std::move(context)};
}

std::unique_ptr<ImportedBatch> BatchImporter::Import(const EntryRequest& request, const ImportOptions& reading) {
  auto made = std::make_unique<ImportedBatch>(ReadBatch(model_, options_.recipe, request, reading, rules_, plan_));
  if (!options_.recipe.UsesFileAlgorithm()) {
    // Must run before the parameters are chosen, which depends on where gradients pass.
    GraphBuilder builder(*made->imported.graph, rules_);
    PassThroughFakeQuantize(builder);
    GiveSurrogates(builder, made->imported);
  }
  const bool reports = report_.trained.empty() && report_.frozen.empty() && !options_.recipe.UsesFileAlgorithm();
  const std::vector<std::string> steps = reports ? StepNames(*made->imported.graph) : std::vector<std::string>();
  const std::unique_ptr<Graph> read = steps.empty() ? nullptr : made->imported.graph->Clone();
  TrainableChoice choice = ChooseTrained(made->imported);
  if (read != nullptr) WarnOfSteps(*read, steps, choice, made->imported);
  Tie(made->imported, choice);
  if (reading.detach && !options_.recipe.UsesFileAlgorithm()) {
    GraphBuilder builder(*made->imported.graph, rules_);
    if (const int64_t count = PassStraightThrough(builder, choice.parameters); count > 0) {
      made->imported.warnings.push_back(
          Counted(count, "value is", "values are") +
          " added to the result of a rounding, comparison or selection, or to a multiple of itself, and subtracted again: gradients pass "
          "straight through, as with a detach() that the exporter did not write; --no-detach trains the graph as written");
    }
  }
  if (!options_.recipe.UsesFileAlgorithm()) {
    GraphBuilder builder(*made->imported.graph, rules_);
    if (const int64_t count = WidenParameters(builder, choice.parameters); count > 0) {
      made->imported.warnings.push_back(Counted(count, "parameter is", "parameters are") +
                                        " stored in 16 bits in the file: kept in float32 during training, and exported in 16 bits; "
                                        "activations and gradients stay in 16 bits, as in the file (use --loss-scale dynamic for float16)");
    }
  }
  made->context.parameters = choice.parameters;
  made->context.vectors = StoredVectors(*made->imported.graph, choice.parameters);
  if (!IsForwardOnly(request.kind)) {
    for (const auto& [name, warning] : made->imported.divided_parameters) made->imported.warnings.push_back(warning);
  }
  ReportTrained(made->imported, choice, made->context.vectors);
  CheckCopies(made->imported, choice);
  Graph& graph = *made->imported.graph;
  SetInitial(graph);
  ReadKeptState(graph);
  if (IsForwardOnly(request.kind)) ReadAverages(graph);
  if (request.kind == EntryKind::kUpdate) {
    graph.nodes.clear();
    graph.inputs.clear();
    graph.outputs.clear();
  }
  return made;
}

// Running statistics that a training entry keeps are state in the other entries too, not the file's constants.
void BatchImporter::ReadKeptState(Graph& graph) const {
  for (const StateTensor& state : plan_.state) {
    const ValueId id = state.kind == StateKind::kStatistic ? graph.Find(state.name) : kNoValue;
    if (id != kNoValue && graph.value(id).role == Role::kConst) graph.value(id).role = Role::kState;
  }
}

// Evaluations and predictions take the averages of parameters, if training keeps any.
void BatchImporter::ReadAverages(Graph& graph) const {
  for (const StateTensor& state : plan_.state) {
    if (state.kind != StateKind::kAverage) continue;
    const ValueId id = graph.Find(plan_.state[static_cast<size_t>(state.parameter)].name);
    if (id != kNoValue && graph.value(id).role == Role::kParam) graph.value(id).averaged = true;
  }
}

// Sets initializers to the values that the file's own initialization gives them.
void BatchImporter::SetInitial(Graph& graph) {
  const int info = options_.recipe.training_info();
  if (info < 0 || !model_.has_initialization(info)) return;
  if (initial_.empty()) initial_ = InitialValues(model_, info);
  for (const auto& [name, tensor] : initial_) {
    const ValueId id = graph.Find(name);
    if (id == kNoValue) continue;
    const Value& value = graph.value(id);
    if (tensor.dtype() != value.dtype || tensor.shape() != value.shape) {
      throw Error(ErrorCode::kType,
                  "the file's initialization of '" + Escaped(name) + "' is " + ValueType{tensor.dtype(), tensor.shape()}.ToString() +
                      ", expected " + graph.type(id).ToString(),
                  Escaped(model_.path(), 4096));
    }
    graph.set_data(id, tensor);
  }
}

namespace {

// With what ChooseTrainable says of a constant from which no gradient comes back.
constexpr char kNoPath[] = "no differentiable path";

// Whether a tensor stays fixed by what it holds, although it is a parameter of the module. Some modules keep sinusoid tables and filters of
// consecutive integers as parameters without a gradient, which a file does not tell.
bool IsFixedByContent(const std::string& why) { return why.starts_with("a table of sines") || why.starts_with("consecutive integers"); }

std::string ShortList(const std::vector<std::string>& names) {
  Listing list(6);
  for (const std::string& name : names) list.Add(Escaped(name, 80));
  return list.text();
}

// The file's notes on which tensors are parameters or buffers of the module take precedence over what their use suggests.
TrainableChoice ChooseByNotes(Graph& graph, TrainableOptions options, const std::map<std::string, bool>& noted) {
  if (options.only || noted.empty()) return ChooseTrainable(graph, options);
  const TrainableChoice by_use = ChooseTrainable(*graph.Clone(), options);
  std::map<std::string, std::string> reasons;
  const std::vector<std::string> asked = options.trainable;
  const auto fixed = [](const std::string& why) { return why.starts_with(kNoPath) || IsFixedByContent(why); };
  for (const auto& [name, why] : by_use.frozen) {
    const auto found = noted.find(name);
    if (found == noted.end() || !found->second || fixed(why) || MatchesAnyPattern(options.freeze, name)) continue;
    reasons.emplace(name, "a parameter of the module or derived from one, according to the exporter");
    options.trainable.push_back(name);
  }
  for (const auto& [name, why] : by_use.trained) {
    const auto found = noted.find(name);
    if (found == noted.end() || found->second || MatchesAnyPattern(asked, name)) continue;
    reasons.emplace(name, "not a parameter of the module, according to the exporter");
    options.freeze.push_back(name);
  }
  TrainableChoice choice = ChooseTrainable(graph, options);
  for (auto* list : {&choice.trained, &choice.frozen}) {
    for (auto& [name, why] : *list) {
      if (const auto found = reasons.find(name); found != reasons.end()) why = found->second;
    }
  }
  return choice;
}

void WarnOfFixed(ImportedGraph& imported, const TrainableChoice& choice) {
  std::vector<std::string> names;
  for (const auto& [name, why] : choice.frozen) {
    const auto noted = imported.module_parameters.find(name);
    if (noted != imported.module_parameters.end() && noted->second && IsFixedByContent(why)) names.push_back(name);
  }
  if (names.empty()) return;
  imported.warnings.push_back(Counted(static_cast<int64_t>(names.size()), "parameter", "parameters") + " of the module not trained, as " +
                              (names.size() == 1 ? "it holds" : "they hold") + " sines and cosines or consecutive integers: " +
                              JoinedNames(names) + "; --trainable NAME trains such a tensor");
}

void WarnOfComputed(ImportedGraph& imported, const TrainableChoice& choice) {
  Listing names(4);
  for (const auto& [name, why] : choice.trained) {
    const auto found = imported.computed_parameters.find(name);
    if (found != imported.computed_parameters.end()) names.Add("'" + Escaped(name, 80) + "' of " + found->second);
  }
  if (names.count() == 0) return;
  const bool one = names.count() == 1;
  imported.warnings.push_back(Counted(static_cast<int64_t>(names.count()), "tensor", "tensors") + " trained in place of parameters of " +
                              "the module, of which the exporter computed " + (one ? "it" : "them") + ": " + names.text() +
                              "; weight decay and elements that the computation fixes, such as those under a mask, differ from the " +
                              "module's; torch.onnx.export(..., optimize=False) keeps the parameters");
}

}  // namespace

TrainableOptions BatchImporter::OptionsOf(const ImportedGraph& imported) const {
  const Recipe& recipe = options_.recipe;
  return {recipe.trainable, recipe.freeze, recipe.only, imported.node_constants, imported.names_attributes};
}

// If the file has its own algorithm, the tensors that it updates are trained.
TrainableChoice BatchImporter::ChooseTrained(ImportedGraph& imported) const {
  const Recipe& recipe = options_.recipe;
  if (!recipe.UsesFileAlgorithm()) {
    TrainableChoice choice = ChooseByNotes(*imported.graph, OptionsOf(imported), imported.module_parameters);
    WarnOfFixed(imported, choice);
    WarnOfComputed(imported, choice);
    return choice;
  }
  Graph& graph = *imported.graph;
  TrainableChoice choice;
  for (const std::string& name : model_.updated_initializers(recipe.training_info())) {
    const ValueId id = graph.Find(name);
    if (id == kNoValue) continue;
    graph.value(id).role = Role::kParam;
    choice.parameters.push_back(id);
    choice.trained.emplace_back(name, "updated by the file's algorithm");
  }
  for (const Value& value : graph.values()) {
    if (value.role == Role::kConst && !value.derived && IsFloating(value.dtype))
      choice.frozen.emplace_back(value.name, "not updated by the file's algorithm");
  }
  return choice;
}

void BatchImporter::GiveSurrogates(GraphBuilder& builder, ImportedGraph& imported) const {
  const std::vector<Surrogate>& surrogates = options_.recipe.surrogates;
  if (surrogates.empty()) return;
  const std::vector<std::string> steps = StepNames(builder.graph());
  const std::vector<int64_t> given = PassSurrogates(builder, surrogates);
  if (const auto unused = std::find(given.begin(), given.end(), 0); unused != given.end()) {
    const std::string& pattern = surrogates[static_cast<size_t>(unused - given.begin())].pattern;
    throw Error(ErrorCode::kConfig,
                "--surrogate: the model has no step of a value that depends on a weight" +
                    (pattern == "*" ? "" : " with a name like '" + Escaped(pattern) + "'") +
                    ", or an earlier surrogate matches all of them",
                "",
                steps.empty() ? "steps are comparisons that are converted to numbers, and with straight_through signs and roundings"
                              : "the model has: " + ShortList(steps));
  }
  // The reset of a neuron reads its spike, mostly detached and times a threshold of 1.
  const std::vector<std::string> unsure = ReadThroughRemoved(model_, {steps.begin(), steps.end()});
  if (unsure.empty()) return;
  imported.warnings.push_back(
      Counted(std::ssize(unsure), "node reads a step", "nodes read steps") +
      " in place of the result of an operator that the exporter has removed, with any detach() before it (" + ShortList(unsure) +
      "), so gradients pass: export with optimize=False, or name each of these that the module detaches with --detach VALUE@NODE");
}

// Weights that would be trained if gradients passed steps: those of a spiking network before its last layer.
void BatchImporter::WarnOfSteps(Graph& read, const std::vector<std::string>& steps, const TrainableChoice& choice,
                                ImportedGraph& imported) const {
  // A bound that is compared with other values is mostly a fixed number.
  std::set<std::string> unpassed, bounds;
  for (const Node& node : read.nodes) {
    if (node.op != "Greater" && node.op != "GreaterOrEqual" && node.op != "Less" && node.op != "LessOrEqual") continue;
    for (ValueId id : node.inputs) bounds.insert(read.value(id).name);
  }
  for (const auto& [name, why] : choice.frozen) {
    if (why.starts_with(kNoPath) && !bounds.contains(name)) unpassed.insert(name);
  }
  GraphBuilder builder(read, rules_);
  PassSurrogates(builder, {{.kind = SurrogateKind::kStraightThrough}});
  std::vector<std::string> lost;
  for (const auto& [name, why] : ChooseByNotes(read, OptionsOf(imported), imported.module_parameters).trained) {
    if (unpassed.contains(name)) lost.push_back(name);
  }
  if (lost.empty()) return;
  imported.warnings.push_back(
      Counted(std::ssize(lost), "weight is", "weights are") + " not trained (" + ShortList(lost) +
      "): " + (lost.size() == 1 ? "it reaches" : "they reach") + " the outputs only through steps such as '" + Escaped(steps[0]) +
      "', which pass no gradient; if the module defines a surrogate gradient for them, as spiking networks do, no file records it: use "
      "--surrogate, such as 'atan(2)'");
}

void BatchImporter::Tie(ImportedGraph& imported, TrainableChoice& choice) {
  const Recipe& recipe = options_.recipe;
  if (!recipe.tie || recipe.only || recipe.UsesFileAlgorithm()) return;
  if (!copies_) copies_ = model_.transposed_copies();
  tied_ = TieCopies(*imported.graph, *copies_, choice.parameters);
  std::set<std::string> names;
  for (const TiedTensor& tied : tied_) {
    names.insert(tied.name);
    imported.divided_parameters.erase(tied.name);
  }
  std::erase_if(choice.trained, [&](const auto& trained) { return names.contains(trained.first); });
}

void BatchImporter::ReportTrained(const ImportedGraph& imported, const TrainableChoice& choice, const std::set<ValueId>& vectors) const {
  if (!report_.trained.empty() || !report_.frozen.empty()) return;
  for (const auto& [name, reason] : choice.trained) {
    report_.trained.push_back({name, reason});
    const ValueId id = imported.graph->Find(name);
    if (id == kNoValue || options_.recipe.UsesFileAlgorithm()) continue;
    const bool vector = imported.graph->value(id).shape.rank() < 2 || vectors.contains(id);
    report_.trained.back().rates = RatesOf(options_.recipe.optimizer, name, vector);
  }
  for (const auto& [name, reason] : choice.frozen) report_.frozen.push_back({name, reason});
  for (const std::string& warning : imported.warnings) report_.warnings.push_back(warning);
  for (const Value& value : imported.graph->values()) {
    if (imported.graph->data(value.id) == nullptr || !IsFloating(value.dtype)) continue;
    report_.initializer_elements += value.shape.elements();
    if (value.role == Role::kParam) report_.trained_elements += value.shape.elements();
  }
}

// Copies of one weight would be trained separately at the file's own batch size, and only one of them at any other.
void BatchImporter::CheckCopies(const ImportedGraph& imported, const TrainableChoice& choice) const {
  for (const auto& [name, reason] : choice.trained) {
    if (!imported.batch_copies.contains(name)) continue;
    const std::string declared = std::to_string(imported.declared_batch);
    throw Error(ErrorCode::kShape,
                "'" + Escaped(name) + "' holds a copy of one weight for each of the " + declared +
                    " samples of the batch size that the file was exported for, so it cannot be trained at a batch size of " +
                    std::to_string(imported.batch),
                Escaped(model_.path(), 4096),
                "export the model with a dynamic batch (torch.onnx.export: dynamic_shapes or dynamic_axes) or without folding "
                "(optimize=False, or do_constant_folding=False), or do not train this tensor: --freeze '" +
                    Escaped(name) + "'");
  }
}

}  // namespace gradloom
