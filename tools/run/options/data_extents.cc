#include "tools/run/options/data_extents.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/data/data_files.h"
#include "runtime/data/feed_files.h"
#include "runtime/data/joined_data.h"
#include "runtime/data/npz.h"

namespace gradloom {
namespace {

// Whether the number of samples is all that is open.
bool AllAreGiven(const Model& model, ImportOptions options) {
  if (options.batch == 0) options.batch = 1;
  try {
    OpenExtents(model, options);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The shapes of the arrays that feed the model's inputs, by input.
std::map<std::string, Shape> ShapesOfInputs(const Model& model, const DataFile& file, const ColumnMap& columns) {
  std::map<std::string, std::string> sources;
  std::set<std::string> arrays;
  for (const std::string& input : model.input_names()) {
    const auto mapped = columns.find(input);
    const std::string& source = mapped == columns.end() ? input : mapped->second;
    sources.emplace(input, source);
    arrays.insert(source);
  }
  const std::map<std::string, TensorView> found = NpzTypes(file.path, arrays);
  std::map<std::string, Shape> shapes;
  for (const auto& [input, source] : sources) {
    if (const auto type = found.find(source); type != found.end() && type->second.shape.rank() > 0)
      shapes.emplace(input, type->second.shape);
  }
  return shapes;
}

// The extents of a model that is fed these arrays with the samples along an axis; nullopt if it does not have them there. A file that
// declares a number of samples may mean another axis than the arrays do, so it does not have them.
std::optional<std::vector<OpenExtent>> ExtentsAlong(const Model& model, ImportOptions options, const std::map<std::string, Shape>& arrays,
                                                    int axis) {
  for (const auto& [input, shape] : arrays) options.inputs[input] = axis < shape.rank() ? WithAxisMoved(shape, 0, axis) : shape;
  try {
    std::vector<OpenExtent> extents = OpenExtents(model, options);
    for (const OpenExtent& extent : extents) {
      if (extent.is_batch) return extent.axis == axis && !extent.symbol.empty() ? std::optional(std::move(extents)) : std::nullopt;
    }
  } catch (const Error&) {
    // Reading the data says what does not fit.
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, int64_t> ExtentsOfData(const Model& model, const ImportOptions& options, const std::string& path,
                                             const std::string& format, const ColumnMap& columns) {
  std::map<std::string, int64_t> found;
  if (path.empty() || path.starts_with(kRandomData)) return found;
  std::map<std::string, Shape> arrays;
  try {
    const DataFile file{FilesOf(path).front(), format};
    if (KindOfDataFile(file) != DataFileKind::kNpz) return found;
    arrays = ShapesOfInputs(model, file, columns);
  } catch (const Error&) {
    return found;  // reading the data says what is wrong with it
  }
  for (const int axis : {0, 1}) {
    const auto extents = ExtentsAlong(model, options, arrays, axis);
    if (!extents) continue;
    for (const OpenExtent& extent : *extents) {
      const bool is_named = !extent.symbol.empty() && extent.symbol.find('=') == std::string::npos;  // by --shape NAME=N
      if (!extent.is_batch && !extent.is_fixed && is_named && extent.value > 0) found.emplace(extent.symbol, extent.value);
    }
    return found;
  }
  return found;
}

std::string ExtentsText(const std::map<std::string, int64_t>& extents) {
  return JoinedTexts(extents, [](const auto& extent) { return Escaped(extent.first) + "=" + std::to_string(extent.second); });
}

ImportedGraph ImportAt(const Model& model, const ImportOptions& options, const std::map<std::string, int64_t>& of_data,
                       const std::string& data) {
  try {
    return Import(model, options);
  } catch (const Error& error) {
    if (of_data.empty() || (error.code() != ErrorCode::kShape && error.code() != ErrorCode::kValue)) throw;
    throw Error(
        error.code(), error.message(), error.where(),
        ExtentsText(of_data) + ", of the arrays of '" + Escaped(data, 4096) +
            "', may be more than the model has room for (the positions of a text): cut the rows, or export the model for longer ones" +
            (error.help().empty() ? "" : "   otherwise: " + error.help()));
  }
}

std::map<std::string, int64_t> MissingExtents(const Model& model, const ImportOptions& options, const std::string& path,
                                              const std::string& format, const ColumnMap& columns) {
  if (AllAreGiven(model, options)) return {};
  std::map<std::string, int64_t> found = ExtentsOfData(model, options, path, format, columns);
  std::erase_if(found, [&](const auto& extent) { return options.shapes.contains(extent.first); });
  return found;
}

}  // namespace gradloom
