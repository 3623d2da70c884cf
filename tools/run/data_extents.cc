#include "tools/run/data_extents.h"

#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
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

// The shapes of the arrays, by the inputs that they may feed.
std::map<std::string, Shape> ShapesOfArrays(const DataFile& file, const ColumnMap& columns) {
  ColumnMap arrays = columns;
  for (const std::string& name : NpzNames(file.path)) arrays.emplace(name, name);
  std::map<std::string, Shape> shapes;
  for (const auto& [input, array] : arrays) {
    // Without its elements, unless it is compressed.
    const std::optional<StoredArray> stored = OpenNpz(file.path, array, std::numeric_limits<int64_t>::max());
    const Shape shape = stored ? stored->shape : ReadNpz(file.path, std::set<std::string>{array}).at(array).shape();
    if (shape.rank() > 0) shapes.emplace(input, shape);
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
  if (path.empty() || path.starts_with(kRandomData) || AllAreGiven(model, options)) return found;
  std::map<std::string, Shape> arrays;
  try {
    const DataFile file{FilesOf(path).front(), format};
    if (KindOfDataFile(file) != DataFileKind::kNpz) return found;
    arrays = ShapesOfArrays(file, columns);
  } catch (const Error&) {
    return found;  // reading the data says what is wrong with it
  }
  for (const int axis : {0, 1}) {
    const auto extents = ExtentsAlong(model, options, arrays, axis);
    if (!extents) continue;
    for (const OpenExtent& extent : *extents) {
      const bool asks = !extent.is_batch && !extent.is_fixed && !options.shapes.contains(extent.symbol);
      const bool is_named = !extent.symbol.empty() && extent.symbol.find('=') == std::string::npos;  // by --shape NAME=N
      if (asks && is_named && extent.value > 0) found.emplace(extent.symbol, extent.value);
    }
    return found;
  }
  return found;
}

}  // namespace gradloom
