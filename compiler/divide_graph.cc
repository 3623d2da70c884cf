#include "compiler/divide_graph.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/devices/batch_dependence.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The batch axes to try where the file does not declare one; the conventional axis first. Last, a file that declares an open batch may hold
// another one in its shapes.
std::vector<ImportOptions> Readings(const ImportOptions& options) {
  std::vector<ImportOptions> readings(4, options);
  for (ImportOptions& reading : readings) reading.any_batch = true;
  readings[1].batch_elsewhere = true;
  readings[2].batch_elsewhere = true;
  readings[2].batch_axis = 1;
  readings[3].batch_in_shapes = true;
  return readings;
}

std::vector<Shape> Fed(const ImportedBatch& made) {
  std::vector<Shape> shapes;
  for (const Value& value : made.context.graph.values()) {
    if (value.role == Role::kInput) shapes.push_back(value.shape);
  }
  return shapes;
}

// The shapes that one device is fed, if it can train at this batch size.
std::optional<std::vector<Shape>> FedOneDevice(const ImportAt& import_at, int64_t batch, const ImportOptions& reading) {
  try {
    return Fed(*import_at(batch, reading));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The graph at another batch size serves comparison only: that the model does not exist there, as when a table has no row of the index that
// follows from the batch size, says nothing about the batch itself.
std::unique_ptr<ImportedBatch> Compared(const ImportAt& import_at, int64_t other_batch, const ImportOptions& reading,
                                        const PassControl& control) {
  ImportOptions compared = reading;
  compared.compared = true;
  try {
    std::unique_ptr<ImportedBatch> made = import_at(other_batch, compared);
    made->context.divided = true;
    PassControl silent = control;
    silent.log = nullptr;
    RunStage(made->context, silent, PassStage::kBatch);
    return made;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kValue && error.code() != ErrorCode::kData && error.code() != ErrorCode::kLimit) throw;
    throw Error(ErrorCode::kUnsupported,
                "the batch cannot be divided over devices: at batch size " + std::to_string(other_batch) + ", " + error.message(),
                error.where(), "train on one device (name one in --devices)");
  }
}

// By feed, from names.
std::map<ValueId, int64_t> ByFeed(const PassContext& context, const std::map<std::string, int64_t>& inner) {
  std::map<ValueId, int64_t> by_feed;
  for (const ValueId id : context.graph.inputs) {
    const auto named = context.feed_names.find(id);
    const auto known = inner.find(named != context.feed_names.end() ? named->second : context.graph.value(id).name);
    if (known != inner.end()) by_feed.emplace(id, known->second);
  }
  return by_feed;
}

// `fed`: the shapes that one device is fed, if it can train at that batch size. `tried`: the batch axes of the inputs in earlier readings;
// `axes` becomes those of this one. Returns nullopt if it equals an earlier one.
std::optional<DividedBatch> Divide(const ImportAt& import_at, const CompileOptions& options, const PassControl& control, int64_t batch,
                                   int64_t other_batch, int copies, const ImportOptions& reading, std::optional<std::vector<Shape>>& fed,
                                   const std::set<std::vector<int>>& tried, std::vector<int>& axes,
                                   const std::map<std::string, int64_t>& inner) {
  DividedBatch made{import_at(batch, reading), nullptr, nullptr, {}};
  axes = made.whole->imported.batch_axes;
  if (tried.contains(axes) && !reading.batch_in_shapes) return std::nullopt;
  // A reading with another batch axis must be fed the same shapes: otherwise its samples would not be those of any data set.
  if (!reading.batch_elsewhere) fed = Fed(*made.whole);
  if (fed && *fed != Fed(*made.whole))
    throw Error(ErrorCode::kUnsupported, "the batch cannot be divided over devices: dividing it would need another batch axis");
  // Inputs may have no such axis (a vector has no second one). Dividing would then succeed although no input has a batch.
  if (made.whole->imported.batch == 0)
    throw Error(ErrorCode::kUnsupported, "the batch cannot be divided over devices: no input has a batch axis there");
  PassContext& whole = made.whole->context;
  whole.divided = true;
  RunStage(whole, control, PassStage::kBatch);
  made.other = Compared(import_at, other_batch, reading, control);
  const PassContext& other = made.other->context;
  made.replication = std::make_unique<Replication>(whole.graph, batch, other.graph, other_batch, copies, whole.rules, whole.gradients,
                                                   BucketBytesOf(options.recipe), options.recipe.gather_to >= 0, ByFeed(whole, inner));
  // Fails here if a replica with this number of samples cannot be built, while another reading can still be tried.
  for (const BatchShard& shard : DivideBatch(batch, copies)) {
    if (!made.graphs.contains(shard.length)) made.graphs.emplace(shard.length, made.replication->ForDevice(shard.length));
  }
  return made;
}

}  // namespace

// A nearby batch size usually simplifies in the same way. Exceptions: at batch size 2 a divisor can be 1, so that the division is removed
// at this size alone; and values computed from constants are folded only up to some size. In these cases simplification is postponed until
// the batch is divided.
DividedBatch DivideGraph(const ImportAt& import_at, const CompileOptions& options, int64_t batch, int copies,
                         const std::map<std::string, int64_t>& inner) {
  PassControl waits = options.control;
  waits.disabled.insert(waits.disabled.end(), {"simplify_forward", "simplify"});
  std::optional<Error> first;
  std::optional<RelatedSamples> related;
  std::optional<std::vector<Shape>> fed;
  bool other_form = false;
  for (const PassControl& control : {options.control, waits}) {
    std::set<std::vector<int>> tried;
    for (const ImportOptions& reading : Readings(options.import)) {
      // Such a file is divided nowhere in the other readings.
      if (reading.batch_in_shapes && related) continue;
      std::vector<int> axes;
      int relating = 0;
      for (int64_t other : {batch + 1, 2 * batch, batch - 1}) {
        // Nodes that relate samples at two sizes do so at any.
        if (other < 2 || relating > 1) continue;
        try {
          std::optional<DividedBatch> made = Divide(import_at, options, control, batch, other, copies, reading, fed, tried, axes, inner);
          if (made) return std::move(*made);
          break;
        } catch (const Error& error) {
          if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kShape) throw;
          other_form |= dynamic_cast<const GraphMismatch*>(&error) != nullptr;
          // The file may fit its own batch size and no other one.
          if (!first && !fed) fed = FedOneDevice(import_at, batch, options.import);
          if (!first) first = error;
          const auto* relates = dynamic_cast<const RelatedSamples*>(&error);
          if (relates == nullptr) continue;
          ++relating;
          if (!related) related = *relates;
        }
      }
      if (!axes.empty()) tried.insert(axes);
    }
    if (!other_form) break;
  }
  if (related) throw RelatedSamples(*related);
  if (first->message().starts_with("the batch cannot")) throw *first;
  throw Error(ErrorCode::kUnsupported, "the batch cannot be divided over devices: " + first->message(), first->where(),
              "train on one device (name one in --devices)");
}

}  // namespace gradloom
