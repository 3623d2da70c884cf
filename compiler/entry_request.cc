// What can be said without compiling an entry: its request from its feeds, its feeds from a request, where these have their samples, and
// which weights are trained.
#include <algorithm>
#include <utility>

#include "compiler/batch_importer.h"
#include "compiler/derived_requests.h"
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
  return FeedList(made.context(), made.imported(),
                  PlacesOfSamples(model, options, request, made.context(), made.imported()).value_or(SamplePlaces()));
}

FeedsAndFetches<Shape> ShapesOf(const EntryRequest& request, const PassContext& context, const ImportedGraph& imported) {
  const Entry entry = EntryOf(request, imported, context, {});
  FeedsAndFetches<Shape> shapes;
  for (const Feed& feed : entry.feeds) shapes.feeds.emplace(feed.name, feed.shape);
  for (size_t i = 0; i < entry.fetches.size(); ++i)
    shapes.fetches.emplace(entry.fetches[i].name, context.graph.value(context.graph.outputs[i]).shape);
  return shapes;
}

// Whether a feed or an output of the model may have several positions of each sample along an axis.
bool MayHaveSeveralPositions(const EntryRequest& request, const PassContext& context, const ImportedGraph& imported) {
  const Entry entry = EntryOf(request, imported, context, {});
  const auto may = [&](const Shape& shape, int axis) {
    return axis < 0 &&
           std::any_of(shape.begin(), shape.end(), [&](int64_t extent) { return extent > entry.batch && extent % entry.batch == 0; });
  };
  for (const Feed& feed : entry.feeds) {
    if (may(feed.shape, feed.batch_axis)) return true;
  }
  for (size_t i = 0; i < entry.fetches.size(); ++i) {
    const Value& value = context.graph.value(context.graph.outputs[i]);
    const bool is_output = value.role != Role::kGradient && entry.fetches[i].extents.empty();
    if (is_output && may(value.shape, entry.fetches[i].batch_axis)) return true;
  }
  return false;
}

// The places of samples among `batch`, by the shapes at another number of samples: axes that have one position of each sample. The order of
// several is not known.
std::map<std::string, SamplePlace> PlacesAmong(const std::map<std::string, Shape>& shapes, const std::map<std::string, Shape>& others,
                                               int64_t batch) {
  std::map<std::string, SamplePlace> places;
  for (const auto& [name, there] : others) {
    const auto here = shapes.find(name);
    if (here == shapes.end() || here->second.rank() != there.rank()) continue;
    const auto differs = std::mismatch(there.begin(), there.end(), here->second.begin()).second;
    const bool has_samples = differs != here->second.end() && *differs == batch;
    places.emplace(name, SamplePlace{has_samples ? static_cast<int>(differs - here->second.begin()) : -1});
  }
  return places;
}

// The same of an entry, whose shapes these are.
SamplePlaces PlacesByShapes(const Model& model, const CompileOptions& options, const EntryRequest& request,
                            const FeedsAndFetches<Shape>& shapes, int64_t batch) {
  EntryRequest other = request;
  other.batch = 2 * batch;  // models that pair samples need an even one
  try {
    const WithLosses made(model, options, other);
    const FeedsAndFetches<Shape> others = ShapesOf(other, made.context(), made.imported());
    return {PlacesAmong(shapes.feeds, others.feeds, batch), PlacesAmong(shapes.fetches, others.fetches, batch)};
  } catch (const Error&) {
    return {};  // the request itself may still be compiled
  }
}

// The forward pass at a batch size, in the form in which a batch of `samples` is divided.
std::unique_ptr<ImportedBatch> ForwardPass(BatchImporter& importer, const EntryRequest& request, const ImportOptions& reading,
                                           int64_t samples) {
  std::unique_ptr<ImportedBatch> made = importer.Import(request, reading);
  made->context.divided = true;
  made->context.samples = samples;
  PassControl control;
  control.stop_after = "simplify_forward";
  RunPipeline(made->context, control);
  return made;
}

// The places of samples as dividing the forward pass over devices finds them; empty if it cannot be divided. `shapes`: those of the entry
// at imported.batch samples.
SamplePlaces PlacesByDivision(const Model& model, const CompileOptions& options, const EntryRequest& request,
                              const FeedsAndFetches<Shape>& shapes, int64_t batch) {
  const auto is_fed_like = [&](const Feed& feed) {
    const auto known = shapes.feeds.find(feed.name);
    return known != shapes.feeds.end() && known->second == feed.shape;
  };
  Plan plan;
  CompileReport report;
  BatchImporter importer(model, options, plan, report);
  const int64_t divided = std::max<int64_t>(batch, 2);  // one sample has no order
  for (const bool in_shapes : {false, true}) {
    // As DivideGraph reads the file.
    ImportOptions reading = options.import, compared = options.import;
    reading.any_batch = compared.any_batch = compared.compared = true;
    reading.batch_in_shapes = compared.batch_in_shapes = in_shapes;
    for (const EntryRequest& other : RequestsAt(options, request, divided, 2 * divided)) {
      try {
        const auto whole = ForwardPass(importer, {request.kind, divided, request.shapes}, reading, divided);
        Entry entry = EntryOf(request, whole->imported, whole->context, {});
        if (divided == batch && !std::all_of(entry.feeds.begin(), entry.feeds.end(), is_fed_like)) break;
        const auto twice = ForwardPass(importer, other, compared, divided);
        const Replication replication(whole->context.graph, divided, twice->context.graph, 2 * divided, 2, importer.rules(), {},
                                      BucketBytesOf(options.recipe));
        DivideEntry(replication, whole->context.graph, entry);
        SamplePlaces places;
        for (const Feed& feed : entry.feeds) places.feeds.emplace(feed.name, SamplePlace{feed.batch_axis, feed.batch_inner});
        for (const Fetch& fetch : entry.fetches) places.fetches.emplace(fetch.name, SamplePlace{fetch.batch_axis, fetch.batch_inner});
        return places;
      } catch (const Error&) {
        // Another reading may do.
      }
    }
  }
  return {};
}

}  // namespace

std::optional<SamplePlaces> PlacesOfSamples(const Model& model, const CompileOptions& options, const EntryRequest& request,
                                            const PassContext& context, const ImportedGraph& imported) {
  if (request.kind == EntryKind::kUpdate || imported.batch <= 0) return std::nullopt;
  const bool several = MayHaveSeveralPositions(request, context, imported);
  const auto elsewhere = [](int axis) { return axis > 0; };
  if (!several && std::none_of(imported.batch_axes.begin(), imported.batch_axes.end(), elsewhere)) return std::nullopt;
  const FeedsAndFetches<Shape> shapes = ShapesOf(request, context, imported);
  SamplePlaces places;
  if (several) places = PlacesByDivision(model, options, request, shapes, imported.batch);
  return places.empty() ? PlacesByShapes(model, options, request, shapes, imported.batch) : places;
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
