#include "runtime/data/feed_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/data/archive_data.h"
#include "runtime/data/image_data.h"
#include "runtime/data/joined_data.h"
#include "runtime/data/open_file_budget.h"
#include "runtime/data/stored_rows.h"
#include "runtime/data/tokens.h"

namespace gradloom {
namespace {

// The dtype and row shape of each array of a file, as text for messages.
using ArrayTypes = std::map<std::string, std::string>;

Shape RowShape(const Shape& column) { return Shape(std::vector<int64_t>(column.begin() + (column.rank() > 0 ? 1 : 0), column.end())); }

std::string RowType(DType dtype, const Shape& shape) { return std::string(DTypeName(dtype)) + RowShape(shape).ToString(); }

// The default array for input or target `index`: the array of the same name, or the one that the format assigns to it.
std::string DefaultArray(const DataFile& file, const std::vector<Feed>& feeds, size_t index) {
  const DataFileKind kind = KindOfDataFile(file);
  if (index < 2 && kind == DataFileKind::kTokens) return index == 0 ? "tokens" : "next";
  if (index < 2 && kind == DataFileKind::kIdxSet) return index == 0 ? "images" : "labels";
  return feeds[index].name;
}

// The selectors of a table's columns; none for other files.
std::set<std::string> ColumnsOf(const DataFile& file) {
  if (!IsTable(file)) return {};
  const std::vector<std::string> names = CsvSelectors(file.path, TableOptions(file));
  return {names.begin(), names.end()};
}

// The dtype in which the text of a table is read for a feed.
DType TextType(DType wanted) {
  if (!IsFloating(wanted)) return DType::kInt64;
  return wanted == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::vector<ColumnSource> SourcesOf(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns,
                                    const FeedReading& reading, const NamedClasses& named) {
  std::vector<ColumnSource> sources;
  const std::set<std::string> own = ColumnsOf(file);
  for (const Feed& feed : feeds) {
    const auto mapped = columns.find(feed.name);
    if (mapped == columns.end() && IsTable(file) && !own.contains(feed.name)) {
      throw Error(ErrorCode::kConfig, "no columns are mapped to '" + Escaped(feed.name) + "'", Escaped(file.path, 4096),
                  "--map " + Escaped(feed.name) + "=COLUMNS");
    }
    sources.push_back({feed.name, mapped == columns.end() ? DefaultArray(file, feeds, sources.size()) : mapped->second,
                       TextType(feed.dtype), feed.shape.rank() >= 2 ? feed.shape[1] : 0, ClassesOf(feed.name, named),
                       reading.filled.contains(feed.name)});
  }
  return sources;
}

// Checked before the rows are shuffled, so that the message can name the row in the file.
void CheckClasses(const Dataset& data, const std::map<std::string, ClassRange>& classes, const DataFile& file) {
  for (const auto& [name, range] : classes) {
    const auto found = data.columns().find(name);
    if (found == data.columns().end() || IsFloating(found->second.dtype())) continue;
    const TensorView column = found->second.view();
    const int64_t wrong = FirstOutOfRange(column, range);
    if (wrong < 0) continue;
    throw ClassError(wrong * data.rows() / column.elements(), ElementAsInt(column, wrong), name, range, Escaped(file.path, 4096));
  }
}

// Table rows have no shape that could mismatch.
Dataset::Reshaping ReshapingOf(const std::string& feed, const DataFile& file, const FeedReading& reading) {
  return reading.targets.contains(feed) && !IsTable(file) ? Dataset::Reshaping::kOnes : Dataset::Reshaping::kFlatRows;
}

// Smaller rows are faster in memory, unless there are many of them.
constexpr int64_t kMinStoredBytes = 256;

// The rows of a feed, read from the array that it is mapped to; null if the array has none. If they do not have the required shape, they
// keep their own, and FitToFeeds says so.
std::shared_ptr<const RowSource> RowsOf(StoredArray array, const DataFile& file, const ColumnSource& source, const Feed& feed,
                                        const FeedReading& reading) {
  if (array.shape.rank() == 0 || array.shape[0] == 0) return nullptr;
  StoredRowsOptions options{.dtype = feed.dtype, .column = feed.name};
  options.row_shape = RowShape(feed.shape);
  Shape have;
  if (KindOfDataFile(file) == DataFileKind::kTokens) {
    if (source.source != "tokens" && source.source != "next") return nullptr;
    have = Shape{source.window};
    options.rows = CountWindows(array.shape[0], source.window, Escaped(file.path, 4096));
    options.first = source.source == "next" ? 1 : 0;
  } else {
    have = RowShape(array.shape);
    options.rows = array.shape[0];
  }
  if (!RowsFit(have, options.row_shape, ReshapingOf(feed.name, file, reading))) options.row_shape = have;
  const auto range = reading.classes.find(feed.name);
  if (range != reading.classes.end() && !IsFloating(feed.dtype)) options.classes = range->second;
  options.index_extent = feed.index_extent;
  return MakeStoredRows(std::move(array), std::move(options));
}

// The rows of a feed that may stay in the file; null if they must be read now.
std::shared_ptr<const RowSource> StoredColumn(const DataFile& file, const ColumnSource& source, const Feed& feed,
                                              const FeedReading& reading, ArrayTypes& types) {
  if (!reading.on_demand || feed.shape.rank() == 0) return nullptr;
  std::optional<StoredArray> array = OpenArray(file, source, {reading.large_bytes, feed.dtype});
  if (!array) return nullptr;
  types[feed.name] = RowType(array->dtype, array->shape);
  const int64_t width = DTypeBytes(array->dtype), row_bytes = WithRows(feed.shape, 1).elements() * width;
  const bool large_rows = reading.large_rows && row_bytes >= kMinStoredBytes && !reading.measured.contains(feed.name);
  const int64_t bytes = array->shape.elements() * std::max(width, DTypeBytes(feed.dtype));
  if (!large_rows && bytes < reading.large_bytes) return nullptr;
  return RowsOf(std::move(*array), file, source, feed, reading);
}

std::string OutputText(const ClassRange& classes) { return classes.output.empty() ? "OUTPUT" : Escaped(classes.output); }

// A row of an output of this shape.
Shape RowOf(const Shape& output, int sample_axis) {
  Shape row;
  for (int i = 0; i < output.rank(); ++i) {
    if (i != sample_axis) row.push_back(output[i]);
  }
  return row;
}

// If the rows of a target have another shape than `row`, but one that fits if the loss reads the classes along another axis: which one.
// For rows with a probability for each class instead: how the loss reads these.
std::string ClassAxisHelp(const Shape& have, const std::string& target, const Shape& row, const FeedReading& reading) {
  const auto range = reading.classes.find(target);
  if (range == reading.classes.end()) return "";
  if (RowsFit(have, row, Dataset::Reshaping::kOnes)) return "";
  const ClassRange& classes = range->second;
  // One number per class of each position. `nll` has no such form.
  if (classes.loss.starts_with("cross_entropy") && RowsFit(have, RowOf(classes.shape, reading.sample_axis), Dataset::Reshaping::kOnes)) {
    return "they have a number for each class, as one-hot labels do: --loss '" + classes.loss + "(" + OutputText(classes) + ", " +
           Escaped(target) + ", probabilities=true)' takes a probability for each class";
  }
  // The output may have several positions of a sample along the axis of the samples.
  const std::optional<Shape> own = classes.RowAlong(classes.axis, reading.sample_axis);
  if (!own || !RowsFit(*own, row, Dataset::Reshaping::kOnes)) return "";
  // Operators of ONNX in a loss of the file have a fixed axis.
  if (classes.loss != "cross_entropy" && classes.loss != "nll" && classes.loss != "cross_entropy_of_probabilities") return "";
  for (int axis = 0; axis < classes.shape.rank(); ++axis) {
    const std::optional<Shape> other = classes.RowAlong(axis, reading.sample_axis);
    if (axis == classes.axis || !other || !RowsFit(have, *other, Dataset::Reshaping::kOnes)) continue;
    const std::string output = OutputText(classes);
    return "the loss reads the classes along axis " + std::to_string(classes.axis) + " of the output " + output + " " +
           classes.shape.ToString() + "; if they are along axis " + std::to_string(axis) + ", use --loss '" + classes.loss + "(" + output +
           ", " + Escaped(target) + ", class_axis=" + std::to_string(axis) + ")'";
  }
  return "";
}

// Throws Error(kConfig) if targets do not have as many tokens in a row as the inputs.
void CheckWindows(const std::vector<ColumnSource>& sources, const std::vector<Feed>& feeds, const DataFile& file,
                  const FeedReading& reading) {
  if (KindOfDataFile(file) != DataFileKind::kTokens) return;
  for (size_t i = 1; i < sources.size(); ++i) {
    if (sources[i].window == sources[0].window) continue;
    const std::string axis = ClassAxisHelp(Shape{sources[0].window}, feeds[i].name, RowShape(feeds[i].shape), reading);
    throw Error(ErrorCode::kConfig,
                "'" + Escaped(sources[0].name) + "' takes rows of " + std::to_string(sources[0].window) + " tokens and '" +
                    Escaped(sources[i].name) + "' rows of " + std::to_string(sources[i].window) +
                    "; a row of a token file has one number of tokens",
                Escaped(file.path, 4096), axis.empty() ? "inputs and targets of token files must be as long as each other" : axis);
  }
}

Dataset ReadArrays(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, const FeedReading& reading,
                   const NamedClasses& named, ArrayTypes& types, std::vector<std::string>& notes) {
  const std::vector<ColumnSource> sources = SourcesOf(file, feeds, columns, reading, named);
  CheckWindows(sources, feeds, file, reading);
  std::vector<ColumnSource> at_once;
  std::vector<std::pair<std::string, std::shared_ptr<const RowSource>>> stored;
  for (size_t i = 0; i < sources.size(); ++i) {
    auto rows = StoredColumn(file, sources[i], feeds[i], reading, types);
    if (rows == nullptr) {
      at_once.push_back(sources[i]);
    } else {
      stored.emplace_back(sources[i].name, std::move(rows));
    }
  }
  LoadedData loaded;
  if (!at_once.empty()) {
    CsvOptions options = TableOptions(file);
    if (reading.on_demand) options.memory_bytes = reading.large_bytes;
    loaded = LoadData(file, at_once, options);
    for (const std::string& warning : loaded.warnings) notes.push_back("warning " + warning);
  }
  Dataset data = std::move(loaded.data);
  for (const auto& [name, column] : data.columns()) types[name] = RowType(column.dtype(), column.shape());
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto found = loaded.stored.find(sources[i].name);
    if (found == loaded.stored.end()) continue;
    stored.emplace_back(found->first, RowsOf(std::move(found->second), file, sources[i], feeds[i], reading));
  }
  try {
    for (auto& [name, rows] : stored) data.set_source(name, std::move(rows));
  } catch (const Error& error) {
    // Adds the file, which the data set does not know.
    throw Error(error.code(), error.message(), Escaped(file.path, 4096), error.help());
  }
  return data;
}

// Throws Error(kData) if a table does not have the same columns as the first one.
void CheckSameColumns(const DataFile& file, const std::vector<std::string>& own, const DataFile& first,
                      const std::vector<std::string>& wanted) {
  if (own == wanted) return;
  std::string message =
      std::to_string(own.size()) + " columns; '" + Escaped(first.path, 4096) + "' of the same data has " + std::to_string(wanted.size());
  const auto [here, there] = std::mismatch(own.begin(), own.end(), wanted.begin(), wanted.end());
  if (here != own.end() && there != wanted.end()) {
    message = "column " + std::to_string(here - own.begin()) + " (counted from 0) is '" + Escaped(*here, 80) + "'; in '" +
              Escaped(first.path, 4096) + "' of the same data it is '" + Escaped(*there, 80) + "'";
  }
  throw Error(ErrorCode::kData, message, Escaped(file.path, 4096),
              "tables that are read together must have the same columns in the same order");
}

// Throws Error(kData) if an array does not have the same type as in the first file.
void CheckSameTypes(const DataFile& file, const ArrayTypes& own, const DataFile& first, const ArrayTypes& wanted) {
  for (const auto& [name, type] : own) {
    const auto found = wanted.find(name);
    if (found == wanted.end() || found->second == type) continue;
    throw Error(ErrorCode::kData,
                "the rows for '" + Escaped(name) + "' are " + type + "; in '" + Escaped(first.path, 4096) + "' of the same data they are " +
                    found->second,
                Escaped(file.path, 4096), "files that are read together must have arrays of the same types; convert one of them");
  }
}

// Throws Error(kData) if a folder of images has more classes than the model.
void CheckClassFolders(const Dataset& data, const std::vector<std::string>& names, const std::map<std::string, ClassRange>& classes,
                       const DataFile& file) {
  for (const auto& [name, range] : classes) {
    const auto found = data.columns().find(name);
    if (found == data.columns().end() || std::ssize(names) <= range.count) continue;
    const std::string& extra = names[static_cast<size_t>(range.count)];
    throw Error(
        ErrorCode::kData,
        "the folder has " + std::to_string(names.size()) + " sub-folders, each a class, but the model has " +
            Counted(range.count, "class", "classes"),
        Escaped(file.path, 4096),
        "in the order of their names, '" + Escaped(extra, 80) + "' is the first that the model lacks: move what is no class elsewhere");
  }
}

// What a feed of classes may have by name in a table: the classes of a target, or the categories of an input of integers, each column its
// own. nullopt for other feeds.
std::optional<CsvClassRules> NamesOf(const Feed& feed, const FeedReading& reading) {
  const auto range = reading.classes.find(feed.name);
  if (range != reading.classes.end()) return CsvClassRules{.max_classes = range->second.count, .ignored = range->second.ignored};
  const bool integers = feed.dtype == DType::kInt64 || feed.dtype == DType::kInt32;
  if (!integers || feed.shape.rank() == 0 || reading.targets.contains(feed.name)) return std::nullopt;
  return CsvClassRules{.may_be_empty = true};
}

// The classes that tables have by name. Those of the training data that have no names yet are found in the files, if `reading` says so.
NamedClasses FindNamedClasses(const std::vector<DataFile>& files, const std::vector<Feed>& feeds, const ColumnMap& columns,
                              const FeedReading& reading, TrainingNames& names, std::vector<std::string>& notes) {
  NamedClasses named;
  std::vector<std::string> paths;
  for (const DataFile& file : files) paths.push_back(file.path);
  const std::set<std::string> own = ColumnsOf(files.front());
  for (const Feed& feed : feeds) {
    const std::optional<CsvClassRules> rules = NamesOf(feed, reading);
    const auto mapped = columns.find(feed.name);
    if (!rules || (mapped == columns.end() && !own.contains(feed.name))) continue;  // SourcesOf reports what is not mapped
    const CsvOptions options = TableOptions(files.front());
    const std::string& selection = mapped == columns.end() ? feed.name : mapped->second;
    const bool one = reading.classes.contains(feed.name) || WithRows(feed.shape, 1).elements() == 1;
    const std::vector<std::string> selected = one ? std::vector{selection} : CsvSelected(files.front().path, selection, options);
    const auto key_of = [&](const std::string& column) { return one ? feed.name : feed.name + "[" + column + "]"; };
    std::vector<std::string> unknown;
    std::ranges::copy_if(selected, std::back_inserter(unknown),
                         [&](const std::string& column) { return reading.numbers_classes && !names.labels.contains(key_of(column)); });
    std::vector<std::vector<std::string>> found = ReadCsvClasses(paths, unknown, *rules, options);
    for (size_t i = 0; i < unknown.size(); ++i) {
      if (found[i].empty()) continue;
      notes.push_back("classes " + Escaped(key_of(unknown[i])) + ": " + ListedClasses(found[i]));
      names.labels.emplace(key_of(unknown[i]), std::move(found[i]));
    }
    std::vector<std::shared_ptr<const CsvClasses>> by_column;
    for (const std::string& column : selected) {
      const auto known = names.labels.find(key_of(column));
      by_column.push_back(known == names.labels.end() ? nullptr
                                                      : std::make_shared<const CsvClasses>(CsvClasses{known->second, rules->ignored}));
    }
    const bool any = std::any_of(by_column.begin(), by_column.end(), [](const auto& classes) { return classes != nullptr; });
    if (any) named.emplace(feed.name, std::move(by_column));
  }
  return named;
}

Dataset ReadFile(const DataFile& file, const std::vector<Feed>& feeds, const ColumnMap& columns, const FeedReading& reading,
                 const NamedClasses& named, TrainingNames& names, ArrayTypes& types, std::vector<std::string>& notes) {
  const DataFileKind kind = KindOfDataFile(file);
  const bool images = kind == DataFileKind::kImages, archive = kind == DataFileKind::kArchive;
  std::vector<Feed> numbers, from_paths;
  for (const Feed& feed : feeds) {
    const auto mapped = columns.find(feed.name);
    (mapped != columns.end() && AreImagePaths(mapped->second) ? from_paths : numbers).push_back(feed);
  }
  Dataset data = images    ? LoadImageData(file, feeds, columns, names.classes, notes)
                 : archive ? LoadArchive(file, feeds, columns, reading.filled, notes)
                           : ReadArrays(file, numbers, columns, reading, named, types, notes);
  if (!images && !from_paths.empty()) AddImagesOfPaths(data, file, from_paths, columns);
  // Tables and token files are converted when they are read, so their original types do not matter.
  if (IsTable(file) || kind == DataFileKind::kTokens) types.clear();
  if (images) CheckClassFolders(data, names.classes, reading.classes, file);
  FitToFeeds(data, feeds, file, reading);
  CheckClasses(data, reading.classes, file);
  CheckIndexColumns(data, feeds, Escaped(file.path, 4096), notes);
  return data;
}

// Names the columns that are too large for the memory of this process.
void NoteStored(const Dataset& data, const ColumnMap& columns, std::vector<std::string>& notes) {
  for (const auto& [name, column] : data.lazy_columns()) {
    const auto mapped = columns.find(name);
    if (mapped != columns.end() && AreImagePaths(mapped->second)) continue;
    const RowSource& rows = *column.source;
    const int64_t bytes = rows.rows() * rows.row_shape().elements() * DTypeBytes(rows.dtype());
    notes.push_back("data    '" + Escaped(name) + "' has " + std::to_string(bytes >> 20) + " MiB: rows are read when they are needed");
  }
}

}  // namespace

bool IsTable(const DataFile& file) { return !file.path.starts_with(kRandomData) && KindOfDataFile(file) == DataFileKind::kTable; }

std::vector<Feed> AsRows(std::vector<Feed> feeds) {
  for (Feed& feed : feeds) {
    if (feed.batch_axis <= 0) continue;
    feed.shape = WithAxisMoved(feed.shape, feed.batch_axis, 0);
    feed.batch_axis = 0;
  }
  return feeds;
}

int SampleAxisOf(const std::vector<Feed>& feeds) {
  const auto found = std::find_if(feeds.begin(), feeds.end(), [](const Feed& feed) { return feed.batch_axis >= 0; });
  return found == feeds.end() ? 0 : found->batch_axis;
}

void FitToFeeds(Dataset& data, const std::vector<Feed>& feeds, const DataFile& file, const FeedReading& reading) {
  for (const Feed& feed : feeds) {
    const Shape row = RowShape(feed.shape);
    try {
      data.Fit(feed.name, feed.dtype, row, ReshapingOf(feed.name, file, reading));
    } catch (const Error& error) {
      const std::string axis = data.has(feed.name) ? ClassAxisHelp(data.row_shape(feed.name), feed.name, row, reading) : "";
      // Adds the file, which the data set does not know.
      throw Error(error.code(), error.message(), Escaped(file.path, 4096), axis.empty() ? error.help() : axis);
    }
  }
}

// The share of each file in the bytes of all. So arrays of many files are large if they are so together, however unequal the files are.
std::vector<double> SharesOf(const std::vector<DataFile>& files) {
  std::vector<double> shares;
  double total = 0;
  for (const DataFile& file : files) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(file.path, error);
    if (error) return std::vector<double>(files.size(), 1.0 / static_cast<double>(files.size()));
    shares.push_back(static_cast<double>(bytes));
    total += shares.back();
  }
  for (double& share : shares) share = total > 0 ? share / total : 1.0 / static_cast<double>(files.size());
  return shares;
}

Dataset ReadFeeds(const std::vector<DataFile>& files, const std::vector<Feed>& feeds, const ColumnMap& columns, const FeedReading& reading,
                  TrainingNames& names, std::vector<std::string>& notes, std::vector<FileRows>* counts) {
  const DataFile& first = files.front();
  if (KindOfDataFile(first) == DataFileKind::kImages && !std::filesystem::is_directory(first.path)) {
    Dataset data = LoadImageFiles(files, feeds, columns);
    FitToFeeds(data, feeds, first, reading);
    return data;
  }
  ColumnMap used = columns;
  std::vector<std::string> table;
  if (IsTable(first)) {
    table = CsvSelectors(first.path, TableOptions(first));
    if (names.columns.empty()) names.columns = table;
    const std::string doubt = FirstLineDoubt(first.path, TableOptions(first));
    if (!doubt.empty()) notes.push_back("warning the first line of '" + Escaped(first.path, 4096) + "' " + doubt);
    if (table != names.columns) {
      for (auto& [name, selection] : used) selection = CsvWrittenOut(selection, names.columns, Escaped(first.path, 4096));
    }
  }
  const NamedClasses named = IsTable(first) ? FindNamedClasses(files, feeds, used, reading, names, notes) : NamedClasses();
  FeedReading each = reading;
  const std::vector<double> shares = SharesOf(files);
  std::vector<DataPart> parts;
  ArrayTypes first_types;
  const OpenFileBudget kept;
  for (const DataFile& file : files) {
    if (&file != &first && KindOfDataFile(file) != KindOfDataFile(first)) {
      throw Error(ErrorCode::kData, "not the same kind of file as '" + Escaped(first.path, 4096) + "' of the same data",
                  Escaped(file.path, 4096), "a pattern must match files of one kind; set --data-format if their names do not tell it");
    }
    if (&file != &first && !table.empty()) CheckSameColumns(file, CsvSelectors(file.path, TableOptions(file)), first, table);
    // The memory limit is shared by all of them.
    each.large_bytes = std::max<int64_t>(static_cast<int64_t>(static_cast<double>(reading.large_bytes) * shares[parts.size()]), 1);
    ArrayTypes types;
    parts.push_back({file.path, ReadFile(file, feeds, used, each, named, names, types, notes)});
    if (&file == &first) {
      first_types = types;
      if (reading.on_demand) kept.CheckAllFit(file.path, std::ssize(files));
    }
    CheckSameTypes(file, types, first, first_types);
    if (counts != nullptr) counts->push_back({std::filesystem::path(file.path).filename().string(), parts.back().rows.rows()});
  }
  Dataset data = Joined(std::move(parts));
  const DataFileKind kind = KindOfDataFile(first);
  if (!reading.large_rows && kind != DataFileKind::kImages && kind != DataFileKind::kArchive) NoteStored(data, columns, notes);
  return data;
}

}  // namespace gradloom
