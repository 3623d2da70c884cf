// What can be said without compiling an entry: its request from its feeds, its feeds from a request, and which weights are trained.
#include <algorithm>
#include <utility>

#include "compiler/batch_importer.h"
#include "compiler/entry_form.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The model at the batch size of the request, with the losses.
class WithLosses {
 public:
  WithLosses(const Model& model, const CompileOptions& options, const EntryRequest& request)
      : read_(ReadBatch(model, options.recipe, request, options.import, rules_, plan_)) {
    PassControl control;
    control.stop_after = "add_loss";
    RunPipeline(read_.context, control);
  }

  const PassContext& context() const { return read_.context; }
  const ImportedGraph& imported() const { return read_.imported; }

 private:
  const OnnxTypeRules rules_;
  Plan plan_;
  ImportedBatch read_;  // refers to both
};

std::vector<Feed> Feeds(const Model& model, const CompileOptions& options, const EntryRequest& request) {
  const WithLosses made(model, options, request);
  return FeedList(made.context(), made.imported(), ShapesAtAnotherBatch(model, options, request, made.imported()));
}

}  // namespace

OtherShapes ShapesAtAnotherBatch(const Model& model, const CompileOptions& options, const EntryRequest& request,
                                 const ImportedGraph& imported) {
  if (request.kind == EntryKind::kUpdate) return {};
  if (std::none_of(imported.batch_axes.begin(), imported.batch_axes.end(), [](int axis) { return axis > 0; })) return {};
  OtherShapes shapes;
  EntryRequest other = request;
  other.batch = 2 * imported.batch;  // models that pair samples need an even one
  try {
    const WithLosses made(model, options, other);
    const Entry entry = EntryOf(other, made.imported(), made.context(), {});
    for (const Feed& feed : entry.feeds) shapes.feeds.emplace(feed.name, feed.shape);
    for (size_t i = 0; i < entry.fetches.size(); ++i)
      shapes.fetches.emplace(entry.fetches[i].name, made.context().graph.value(made.context().graph.outputs[i]).shape);
  } catch (const Error&) {
    return {};  // the request itself may still be compiled
  }
  return shapes;
}

std::vector<Feed> FeedsOfEntry(const Model& model, const CompileOptions& options, const EntryRequest& request) {
  try {
    return Feeds(model, options, request);
  } catch (const Error& error) {
    throw WithFileName(model, error);
  }
}

CompileReport ReportWeights(const Model& model, const CompileOptions& options) {
  Plan plan;
  CompileReport report;
  try {
    BatchImporter(model, options, plan, report).Import({EntryKind::kStep, options.import.batch}, options.import);
  } catch (const Error& error) {
    throw WithFileName(model, error);
  }
  return report;
}

std::optional<EntryRequest> RequestFor(const Model& model, const CompileOptions& options, EntryKind kind,
                                       const std::map<std::string, Shape, std::less<>>& feeds) {
  EntryRequest request{.kind = kind, .batch = 0};
  ImportOptions reading = options.import;
  reading.training_info = kind == EntryKind::kPredict ? -1 : options.recipe.training_info();
  reading.inputs = {feeds.begin(), feeds.end()};
  bool one_of_batches = false;  // whether only some of the inputs have another batch size
  try {
    for (const OpenExtent& extent : OpenExtents(model, reading)) {
      one_of_batches = one_of_batches || (extent.is_fixed && !options.import.shapes.contains(extent.symbol));
      if (extent.is_batch) {
        request.batch = extent.value;
      } else {
        request.shapes[extent.symbol] = extent.value;
      }
    }
  } catch (const Error& error) {
    // The shapes contradict the file's.
    if (error.code() != ErrorCode::kShape) throw;
    return std::nullopt;
  }
  std::vector<Feed> wanted;
  try {
    wanted = FeedsOfEntry(model, options, request);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kShape && one_of_batches) return std::nullopt;
    // PyTorch's legacy exporter writes lengths into shapes, even of dynamic axes.
    std::string changed;
    for (const auto& [symbol, extent] : request.shapes) {
      const auto first = options.import.shapes.find(symbol);
      if (first == options.import.shapes.end() || first->second == extent) continue;
      changed +=
          (changed.empty() ? "" : ", ") + Escaped(symbol) + "=" + std::to_string(extent) + " (first " + std::to_string(first->second) + ")";
    }
    if (error.code() != ErrorCode::kShape || changed.empty() || !error.help().empty()) throw;
    throw Error(error.code(), error.message(), error.where(),
                "the file leaves these extents open, and does not fit this one: " + changed +
                    "; export it with torch.onnx.export(dynamo=True, dynamic_shapes=...), or give all batches the first extent");
  }
  for (const Feed& feed : wanted) {
    const auto given = feeds.find(feed.name);
    if (given == feeds.end() || given->second != feed.shape) return std::nullopt;
  }
  return request;
}

}  // namespace gradloom
