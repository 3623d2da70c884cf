#include "compiler/onnx/import.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/batch/batch_axis.h"
#include "compiler/onnx/batch/find_batch.h"
#include "compiler/onnx/batch/weight_copies.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/proto_convert.h"

namespace gradloom {
namespace {

// Returns a prime that differs from the extents of most models, so that extents that depend on the batch size can be told apart from
// others.
int64_t ProbeBatch(int64_t declared) {
  constexpr int64_t kMin = 67;
  const auto is_prime = [](int64_t number) {
    for (int64_t factor = 2; factor * factor <= number; ++factor) {
      if (number % factor == 0) return false;
    }
    return true;
  };
  int64_t probe = std::max(declared + 1, kMin);
  while (!is_prime(probe)) ++probe;
  return probe;
}

// Whether samples are not merged with another axis in any output; `single`: the shapes for a single sample. Otherwise the choice of the
// merged axis would be visible in the outputs.
bool SamplesStaySeparate(const Graph& graph, const std::vector<Shape>& single) {
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Shape& shape = graph.value(graph.outputs[i]).shape;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape.rank() != single[i].rank() || (shape[axis] != single[i][axis] && single[i][axis] != 1)) return false;
    }
  }
  return true;
}

// Finds what in the file depends on its batch size without being declared so.
BatchChanges FindBatchChanges(const ModelFile& file, const ImportOptions& options, int64_t declared) {
  BatchChanges found{.declared = declared,
                     .reference = {},
                     .changes = {},
                     .counted = {},
                     .drawn = {},
                     .merges = {},
                     .ambiguous = {},
                     .loops = {},
                     .alike = {}};
  std::vector<Shape> declared_outputs;
  for (const BatchObserver::Mode mode : {BatchObserver::Mode::kRecord, BatchObserver::Mode::kProve}) {
    // The declared batch size is imported first, so that one that exceeds the limits is refused before another one is tried.
    const int64_t batch = mode == BatchObserver::Mode::kRecord ? declared : ProbeBatch(declared);
    const ImportOptions at = WithBatch(file, options, declared, batch);
    for (bool again = true; again;) {
      found.changes.clear();
      BatchObserver watch(found, mode, batch);
      bool next_way = false;
      try {
        const ImportedGraph imported = Importer(file, at, &watch).Run();
        const bool unconfirmed = watch.tiled() || found.HasUnconfirmedChoice();
        if (unconfirmed && !watch.again() && !SamplesStaySeparate(*imported.graph, declared_outputs)) throw *found.ambiguous;
        if (mode == BatchObserver::Mode::kRecord) {
          for (ValueId id : imported.graph->outputs) declared_outputs.push_back(imported.graph->value(id).shape);
        }
      } catch (const Error& error) {
        // If no choice works, the error of the first one is reported.
        if (!watch.again() && !found.ambiguous) found.ambiguous = error;
        next_way = !watch.again() && found.NextCombination();
        if (!watch.again() && !next_way) throw *found.ambiguous;
      }
      again = watch.again() || next_way;
    }
  }
  return found;
}

// What depends on the batch size, with the options for which the file fits any: if it fits no other batch size, some of its inputs may be
// tables over pairs of samples, preferably few.
std::pair<ImportOptions, BatchChanges> ReadForAnyBatch(const ModelFile& file, ImportOptions options, int64_t declared) {
  constexpr size_t kMaxInputs = 4;  // each set of them is a reading of the file
  try {
    return {options, FindBatchChanges(file, options, declared)};
  } catch (const Error&) {
    const std::vector<std::string> names = declared < 2 ? std::vector<std::string>() : PossiblePairs(file, options, declared);
    if (names.size() > kMaxInputs) throw;
    std::vector<std::set<std::string>> sets;
    for (unsigned chosen = 1; chosen < 1U << names.size(); ++chosen) {
      std::set<std::string>& set = sets.emplace_back();
      for (size_t i = 0; i < names.size(); ++i) {
        if ((chosen >> i & 1U) != 0) set.insert(names[i]);
      }
    }
    std::stable_sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    for (const std::set<std::string>& set : sets) {
      options.batch_of_pairs = set;
      try {
        return {options, FindBatchChanges(file, options, declared)};
      } catch (const Error&) {
        continue;
      }
    }
    throw;
  }
}

// Keeps only changes along axes of operands: at its own batch size a file needs no others.
BatchChanges OfAxes(BatchChanges changes) {
  for (auto& [node, of_node] : changes.changes) std::erase_if(of_node, [](const BatchChange& change) { return change.axis < 0; });
  std::erase_if(changes.changes, [](const auto& of_node) { return of_node.second.empty(); });
  return changes;
}

// Imports the model at its own batch size with tensors of copies (weight_copies.h) shared; nullopt if there are none, or if they cannot be
// determined. Sets `apart` to those that are left unchanged.
std::optional<ImportedGraph> ImportShared(const ModelFile& file, const ImportOptions& options, int64_t batch,
                                          std::set<std::string>& apart) {
  if (batch < 2 || !MayHoldCopies(file, batch)) return std::nullopt;
  try {
    BatchChanges changes = OfAxes(FindBatchChanges(file, options, batch));
    BatchObserver watch(changes, BatchObserver::Mode::kApply, batch);
    ImportedGraph imported = Importer(file, options, &watch).Run();
    if (watch.copies().empty()) return std::nullopt;
    if (ShareCopies(*imported.graph, watch.copies(), true).here.empty()) return imported;
    apart = watch.copies();
    return std::nullopt;
  } catch (const Error&) {
    apart = EvidentCopies(file, batch);
    return std::nullopt;  // the file fits no other batch size
  }
}

ImportedGraph ImportAtBatch(const ModelFile& file, const ImportOptions& options, const BatchNumbers& batch) {
  // The file's own algorithm updates the tensors themselves.
  const bool shares = options.training_info < 0;
  if (batch.declared == 0 || (batch.actual == batch.declared && !options.any_batch)) {
    std::set<std::string> apart;
    std::optional<ImportedGraph> shared = shares ? ImportShared(file, options, batch.declared, apart) : std::nullopt;
    if (shared) return std::move(*shared);
    ImportedGraph imported = Importer(file, options).Run();
    if (!apart.empty()) imported.warnings.push_back(WarningOfCopies(apart, batch.declared));
    return imported;
  }
  auto [reading, changes] = ReadForAnyBatch(file, options, batch.declared);
  changes.compared = options.compared;
  BatchObserver watch(changes, BatchObserver::Mode::kApply, batch.actual);
  ImportedGraph imported = Importer(file, reading, &watch).Run();
  imported.batch_copies = watch.copies();
  if (!shares) return imported;
  // At its own batch size either all of them become one weight or none (ImportShared); none if the file does not declare that number.
  const bool own_shares = options.open_batch < 2 && MayHoldCopies(file, batch.declared) &&
                          ShareCopies(*imported.graph->Clone(), watch.copies(), false).anywhere.empty();
  if (own_shares) imported.batch_copies = ShareCopies(*imported.graph, watch.copies(), false).here;
  return imported;
}

// --- a batch that is open by name alone ----------------------------------------------------------

// The shape that the file declares for an output; null if it declares none of the same rank.
const onnx::TensorShapeProto* DeclaredShape(const ModelFile& file, const ImportedGraph& imported, ValueId id) {
  const auto renamed = imported.output_names.find(id);
  const std::string& name = renamed == imported.output_names.end() ? imported.graph->value(id).name : renamed->second;
  for (const auto& info : file.proto.graph().output()) {
    const auto& declared = info.type().tensor_type().shape();
    if (info.name() == name && declared.dim_size() == imported.graph->value(id).shape.rank()) return &declared;
  }
  return nullptr;
}

// Whether outputs have the batch size where the file declares it. If it declares it along several axes of an output, only the first counts:
// PyTorch's legacy exporter gives the name to other extents, too, if they are the same in the example.
bool OutputsHaveBatch(const ModelFile& file, const ImportedGraph& imported, const BatchNumbers& batch) {
  for (ValueId id : imported.graph->outputs) {
    const onnx::TensorShapeProto* const declared = DeclaredShape(file, imported, id);
    if (declared == nullptr) continue;
    const Shape& shape = imported.graph->value(id).shape;
    int axis = 0;
    while (axis < shape.rank() && declared->dim(axis).dim_param() != batch.symbol) ++axis;
    if (axis < shape.rank() && shape[axis] != batch.actual) return false;
  }
  return true;
}

// Whether a file may not fit a number of samples for this reason. Parts of a fixed size may be too few, and groups may not divide channels.
bool IsMisfit(const Error& error) {
  return error.code() == ErrorCode::kShape || error.code() == ErrorCode::kValue || error.code() == ErrorCode::kAttr;
}

// Imports the file unchanged at its batch size; nullopt if it does not fit.
std::optional<ImportedGraph> ImportOpen(const ModelFile& file, const ImportOptions& options, const BatchNumbers& batch,
                                        std::optional<Error>& wrong) {
  try {
    ImportedGraph imported = ImportAtBatch(file, options, {});
    if (OutputsHaveBatch(file, imported, batch)) return imported;
  } catch (const Error& error) {
    if (!IsMisfit(error)) throw;
    wrong = error;
  }
  return std::nullopt;
}

// A file with an open batch that only fits `declared` samples, read as an export for that number; nullopt if it is not such a file. Where
// `wrong` is set, the file is known not to fit `batch.actual` samples as it is, for that reason.
std::optional<ImportedGraph> ImportForDeclared(const ModelFile& file, ImportOptions options, int64_t declared, const BatchNumbers& batch,
                                               const std::optional<Error>& wrong) {
  options.open_batch = declared;
  try {
    ImportedGraph imported = ImportAtBatch(file, options, {declared, batch.actual, batch.symbol});
    if (!wrong && !OutputsHaveBatch(file, imported, batch)) return std::nullopt;
    imported.declared_batch = declared;
    imported.warnings.emplace_back("the file declares a dynamic batch ('" + Escaped(batch.symbol) + "') but only fits " +
                                   (declared == 1 ? "one sample" : std::to_string(declared) + " samples") +
                                   ": it is read as an export for a batch size of " + (declared == 1 ? "one" : std::to_string(declared)));
    return imported;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Whether the file fits this batch size as it is; otherwise the error is put into `wrong`.
bool Fits(const ModelFile& file, const ImportOptions& options, int64_t batch, const std::string& symbol, std::optional<Error>& wrong) {
  ImportOptions at = WithBatch(file, options, 1, batch);
  at.open_batch = 0;
  return ImportOpen(file, at, {batch, batch, symbol}, wrong).has_value();
}

// A file that was exported for one sample and whose inputs were later given an open batch, as many people do, still has the one sample in
// its shapes. Others have an open batch, but contain the batch that they were exported for in the sizes of the parts that they take of it,
// or in shapes that the exporter has not followed. All are recognized by not fitting another batch size.
ImportedGraph ImportOpenBatch(const ModelFile& file, const ImportOptions& options, const ImportOptions& for_one,
                              const BatchNumbers& batch) {
  const auto as_it_is = [&] { return ImportAtBatch(file, options, {}); };
  if (batch.actual == 0) return as_it_is();
  std::optional<Error> wrong, unfit;
  std::vector<int64_t> sizes;
  const auto is_own = [&] {
    sizes = options.batch_in_shapes ? SizesOfShapes(file) : SizesOfParts(file);
    return batch.actual == 1 ||
           (std::find(sizes.begin(), sizes.end(), batch.actual) != sizes.end() && Fits(file, for_one, batch.actual, batch.symbol, unfit));
  };
  // The batch size that the file was exported for fits, and is compared with others if batches are divided.
  const bool own = options.any_batch && is_own();
  if (own) {
    if (Fits(file, for_one, batch.actual + 1, batch.symbol, wrong)) return as_it_is();
    sizes = {batch.actual};
  } else {
    // Nearly all files fit any batch size.
    if (std::optional<ImportedGraph> open = ImportOpen(file, options, batch, wrong)) return std::move(*open);
    if (!options.any_batch) sizes = SizesOfParts(file);
    sizes.insert(sizes.begin(), 1);
    for (const int64_t size : SizesOfShapes(file)) {
      if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
    }
  }
  for (const int64_t size : sizes) {
    // Any file is tried as one for a single sample; one for several must at least fit them.
    if (size == batch.actual && !own) continue;
    if (size > 1 && !own && !Fits(file, for_one, size, batch.symbol, unfit)) continue;
    if (std::optional<ImportedGraph> imported = ImportForDeclared(file, for_one, size, batch, wrong)) return std::move(*imported);
  }
  if (wrong && !own) throw *wrong;
  return as_it_is();
}

// --- a batch that the outputs declare -------------------------------------------------------------

// The extent that all outputs of a file for one batch size have along their first axis, apart from scalars; 0: none.
int64_t BatchOfOutputs(const ModelFile& file) {
  int64_t batch = 0;
  for (const auto& info : file.proto.graph().output()) {
    if (!info.type().tensor_type().has_shape()) return 0;
    const auto& shape = info.type().tensor_type().shape();
    if (shape.dim_size() == 0) continue;
    if (!shape.dim(0).has_dim_value() || (batch != 0 && shape.dim(0).dim_value() != batch)) return 0;
    batch = shape.dim(0).dim_value();
  }
  return batch;
}

// Whether the outputs have the shapes that the file declares, as far as these are numbers.
bool OutputsAsDeclared(const ModelFile& file, const ImportedGraph& imported) {
  return std::all_of(imported.graph->outputs.begin(), imported.graph->outputs.end(), [&](ValueId id) {
    const onnx::TensorShapeProto* const declared = DeclaredShape(file, imported, id);
    const Shape& shape = imported.graph->value(id).shape;
    for (int axis = 0; declared != nullptr && axis < shape.rank(); ++axis) {
      if (declared->dim(axis).has_dim_value() && declared->dim(axis).dim_value() != shape[axis]) return false;
    }
    return true;
  });
}

// Whether the outputs have `batch` samples along their first axis, apart from scalars.
bool OutputsBegin(const ImportedGraph& imported, int64_t batch) {
  const auto& outputs = imported.graph->outputs;
  return std::all_of(outputs.begin(), outputs.end(), [&](ValueId id) {
    const Shape& shape = imported.graph->value(id).shape;
    return shape.rank() == 0 || shape[0] == batch;
  });
}

// Whether the outputs have an axis of this extent in the file.
bool OutputsContain(const ModelFile& file, int64_t extent) {
  const auto& outputs = file.proto.graph().output();
  return std::any_of(outputs.begin(), outputs.end(), [&](const onnx::ValueInfoProto& info) {
    const auto& dims = info.type().tensor_type().shape().dim();
    return std::any_of(dims.begin(), dims.end(), [&](const auto& dim) { return dim.has_dim_value() && dim.dim_value() == extent; });
  });
}

// The file with the samples of the outputs as its batch, which are `own` in the file and `declared` along the first axis of its first
// input; nullopt if it does not fit `batch` samples in this way.
std::optional<ImportedGraph> ImportByOutputs(const ModelFile& file, const ImportOptions& options, int64_t own, int64_t declared,
                                             int64_t batch) {
  for (const std::optional<ImportOptions>& reading : {std::optional(WithSamplesFirst(file, options, own)), WithStepsFirst(file, options)}) {
    try {
      const BatchNumbers numbers = reading ? BatchNumbersOf(file, *reading) : BatchNumbers();
      if (numbers.declared != own || numbers.actual != batch || !numbers.symbol.empty()) continue;
      ImportedGraph imported = ImportAtBatch(file, *reading, numbers);
      imported.declared_batch = own;
      if (OutputsBegin(imported, batch)) return imported;
    } catch (const Error&) {
      continue;
    }
  }
  // Inputs may have several rows for each sample, such as the nodes of several graphs.
  if (own != batch || own > declared || options.any_batch || OutputsContain(file, declared)) return std::nullopt;
  try {
    ImportedGraph imported = ImportAtBatch(file, WithDeclaredShapes(file, options), {});
    imported.batch = batch;
    return imported;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Whether the file fits `batch` samples if its first input begins with them, and its outputs follow: along their first axis, where another
// input begins with the samples of the outputs, `own` in the file; otherwise along any axis.
bool FollowsFirst(const ModelFile& file, const ImportOptions& options, int64_t declared, int64_t own, int64_t batch) {
  try {
    const ImportedGraph imported = ImportAtBatch(file, WithBatch(file, options, declared, batch), {declared, batch});
    const bool begins = BatchNumbersOf(file, WithSamplesFirst(file, options, own)).declared == own;
    return begins ? !OutputsBegin(imported, own) : !OutputsAsDeclared(file, imported);
  } catch (const Error& error) {
    if (!IsMisfit(error)) throw;
    return false;
  }
}

// In a file for one batch size the first input is taken to begin with the batch. If it is another one (a table or a graph that all samples
// share, time first, the nodes of several graphs), the file does not fit other extents, or its outputs do not follow. Then the samples are
// those of the outputs. A file that is asked for the extent of its first input is taken as it is.
ImportedGraph ImportDeclaredBatch(const ModelFile& file, const ImportOptions& options, const BatchNumbers& batch) {
  const int64_t own = BatchOfOutputs(file), other = batch.actual == batch.declared ? batch.declared + 1 : batch.actual;
  const bool unchanged = batch.actual == batch.declared && !options.any_batch;
  const bool by_first = unchanged || batch.declared == 0 || own == 0 || own == batch.declared || options.batch_axis != 0;
  if (!by_first && !FollowsFirst(file, options, batch.declared, own, other)) {
    std::optional<ImportedGraph> found = ImportByOutputs(file, options, own, batch.declared, batch.actual);
    if (found) return std::move(*found);
  }
  ImportedGraph imported = ImportAtBatch(file, options, batch);
  if (batch.declared != 0) imported.declared_batch = batch.declared;
  return imported;
}

// Adds advice to the refusal of a file in which the first input of floating-point numbers has a single axis, which is taken for the batch:
// it is more likely one sample, exported without an axis for the batch.
Error OfSingleSample(const ModelFile& file, const ImportOptions& options, const BatchNumbers& batch, const Error& error) {
  if (error.code() != ErrorCode::kShape) return error;
  std::set<std::string> initializers;
  for (const auto& tensor : file.proto.graph().initializer()) initializers.insert(tensor.name());
  for (const auto& info : file.proto.graph().input()) {
    const auto& shape = info.type().tensor_type().shape();
    const std::optional<DType> dtype = DTypeFromProto(info.type().tensor_type().elem_type());
    if (initializers.contains(info.name()) || !dtype || !IsFloating(*dtype) || shape.dim_size() == 0) continue;
    const bool is_batch = shape.dim(0).has_dim_value() ? DeclaredBatchAxis(info, batch.declared, options) == 0
                                                       : SymbolOf(shape.dim(0), info.name(), 0) == batch.symbol;
    if (!is_batch || shape.dim_size() != 1) return error;
    const std::string advice = "if the input '" + Escaped(info.name()) +
                               "', which has a single axis, is one sample, the file has no axis " +
                               "for the batch: export it with an example of shape [1, features] (PyTorch: x.unsqueeze(0))";
    return {error.code(), error.message(), error.where(), advice + (error.help().empty() ? "" : "; otherwise " + error.help())};
  }
  return error;
}

ImportedGraph ImportFile(const Model& model, const ImportOptions& options) {
  const BatchNumbers batch = BatchNumbersOf(model.file(), options);
  ImportOptions for_one = options;
  for_one.open_batch = 1;
  const BatchNumbers open = batch.declared == 0 ? BatchNumbersOf(model.file(), for_one) : BatchNumbers();
  try {
    ImportedGraph imported =
        open.symbol.empty() ? ImportDeclaredBatch(model.file(), options, batch) : ImportOpenBatch(model.file(), options, for_one, open);
    imported.warnings.insert(imported.warnings.begin(), model.warnings().begin(), model.warnings().end());
    return imported;
  } catch (const Error& error) {
    throw OfSingleSample(model.file(), options, open.symbol.empty() ? batch : open, error);
  }
}

}  // namespace

Error WithFileName(const Model& model, const Error& error) {
  const std::string file = Escaped(model.path(), 1000);
  // E-PARSE to E-LIMIT, in the order of the table in docs/errors.md, concern the model.
  const bool of_models = error.code() >= ErrorCode::kParse && error.code() <= ErrorCode::kLimit;
  if (!of_models || error.where().starts_with(file)) return error;
  return {error.code(), error.message(), file + (error.where().empty() ? "" : "  " + error.where()), error.help()};
}

ImportedGraph Import(const Model& model, const ImportOptions& options) {
  try {
    return ImportFile(model, options);
  } catch (const Error& error) {
    throw WithFileName(model, error);
  }
}

CountedImport ImportCounted(const Model& model, const ImportOptions& options, const CountedInputs& counted) {
  if (counted.empty()) return {Import(model, options), {}};
  try {
    Importer importer(model.file(), options);
    importer.set_counted(counted);
    CountedImport made{importer.Run(), {}};
    made.counts = importer.counts();
    return made;
  } catch (const Error& error) {
    throw WithFileName(model, error);
  }
}

}  // namespace gradloom
