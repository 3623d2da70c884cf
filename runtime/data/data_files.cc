#include "runtime/data/data_files.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/joined.h"
#include "runtime/data/idx.h"
#include "runtime/data/image_rows.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "runtime/data/tokens.h"
#include "runtime/data/unpacked_file.h"

namespace gradloom {
namespace {

std::string Warning(const std::string& column, int64_t count, const std::string& first) {
  if (count == 1) return "1 value of column '" + Escaped(column) + "' is NaN or infinite, at " + first;
  return std::to_string(count) + " values of column '" + Escaped(column) + "' are NaN or infinite, the first at " + first;
}

std::map<std::string, Tensor> LoadTable(const std::string& path, const std::vector<ColumnSource>& sources, const CsvOptions& options,
                                        LoadedData& loaded) {
  std::vector<CsvSelection> selections;
  for (const ColumnSource& source : sources) selections.push_back({source.source, source.dtype, source.classes, source.may_be_missing});
  std::vector<CsvColumns> read = ReadCsv(path, selections, options);
  std::map<std::string, Tensor> columns;
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].nan_count > 0) loaded.warnings.push_back(Warning(sources[i].name, read[i].nan_count, read[i].first_nan));
    if (read[i].stored) {
      loaded.stored.emplace(sources[i].name, std::move(*read[i].stored));
    } else {
      columns.emplace(sources[i].name, std::move(read[i].values));
    }
  }
  return columns;
}

std::set<std::string> ArraysOf(const std::vector<ColumnSource>& sources) {
  std::set<std::string> arrays;
  for (const ColumnSource& source : sources) arrays.insert(source.source);
  return arrays;
}

// `names`: the arrays of the file.
Error NoSuchArray(const ColumnSource& source, const std::string& path, const std::vector<std::string>& names) {
  const std::string known = JoinedTexts(names, [](const std::string& name) { return Escaped(name, 40); });
  return {ErrorCode::kData, "no array '" + Escaped(source.source) + "'", Escaped(path, 4096),
          "the file has: " + Escaped(known, 400) + "   (--map " + Escaped(source.name) + "=ARRAY)"};
}

// The arrays that the sources select, under the sources' names. `names` lists the arrays of the file.
std::map<std::string, Tensor> Chosen(const std::map<std::string, Tensor>& arrays, const std::vector<ColumnSource>& sources,
                                     const std::string& path, const std::function<std::vector<std::string>()>& names) {
  std::map<std::string, Tensor> columns;
  for (const ColumnSource& source : sources) {
    const auto found = arrays.find(source.source);
    if (found == arrays.end()) throw NoSuchArray(source, path, names());
    columns.emplace(source.name, found->second);
  }
  return columns;
}

std::map<std::string, Tensor> LoadNpz(const std::string& path, const std::vector<ColumnSource>& sources, int64_t limit_bytes) {
  if (sources.empty()) return ReadNpz(path, limit_bytes);
  return Chosen(ReadNpz(path, ArraysOf(sources), limit_bytes), sources, path, [&] { return NpzNames(path, limit_bytes); });
}

std::map<std::string, Tensor> LoadIdxSet(const std::string& prefix, const std::vector<ColumnSource>& sources, int64_t limit_bytes) {
  const std::map<std::string, std::string> files = IdxFilesOf(prefix);
  const std::set<std::string> wanted = ArraysOf(sources);
  std::map<std::string, Tensor> arrays;
  std::vector<std::string> names;
  for (const auto& [name, path] : files) {
    names.push_back(name);
    if (sources.empty() || wanted.contains(name)) arrays.emplace(name, ReadIdx(path, limit_bytes));
  }
  return sources.empty() ? arrays : Chosen(arrays, sources, prefix, [&] { return names; });
}

std::map<std::string, Tensor> ReadWindows(const std::string& path, const std::vector<ColumnSource>& sources, int64_t limit_bytes) {
  const int64_t window = sources.front().window;
  for (const ColumnSource& source : sources) {
    if (source.source != "tokens" && source.source != "next") throw NoSuchArray(source, path, {"tokens", "next"});
    if (source.window != window) {
      throw Error(ErrorCode::kConfig,
                  "'" + Escaped(sources.front().name) + "' and '" + Escaped(source.name) +
                      "' have different rows: " + std::to_string(window) + " and " + std::to_string(source.window) + " tokens",
                  Escaped(path, 4096));
    }
  }
  TokenWindows windows = WindowsOf(ReadTokens(path, limit_bytes), window, Escaped(path, 4096));
  const std::map<std::string, Tensor> arrays{{"tokens", std::move(windows.tokens)}, {"next", std::move(windows.next)}};
  return Chosen(arrays, sources, path, [] { return std::vector<std::string>(); });
}

DataFileKind KindOfFormat(const DataFile& file) {
  constexpr std::pair<std::string_view, DataFileKind> kKinds[] = {
      {"csv", DataFileKind::kTable}, {"tsv", DataFileKind::kTable},     {"npz", DataFileKind::kNpz},       {"npy", DataFileKind::kNpy},
      {"idx", DataFileKind::kIdx},   {"tokens", DataFileKind::kTokens}, {"images", DataFileKind::kImages}, {"tar", DataFileKind::kArchive}};
  for (const auto& [format, kind] : kKinds) {
    if (format != file.format) continue;
    return kind == DataFileKind::kIdx && !IdxFilesOf(file.path).empty() ? DataFileKind::kIdxSet : kind;
  }
  throw Error(ErrorCode::kConfig, "unknown data format '" + Escaped(file.format) + "'", "data.format",
              "expected one of: " + JoinedTexts(kKinds, [](const auto& known) { return known.first; }));
}

}  // namespace

void WarnOfNans(const std::string& name, const Tensor& column, bool may_be_missing, const std::string& where,
                std::vector<std::string>& warnings) {
  if (!IsFloating(column.dtype()) || column.elements() == 0) return;
  const int64_t row_elements = column.elements() / column.shape()[0];
  int64_t count = 0, first = 0;
  for (int64_t i = 0; i < column.elements(); ++i) {
    const double value = ElementAsDouble(column.view(), i);
    const bool expected = std::isfinite(value) || (may_be_missing && std::isnan(value));
    if (!expected && count++ == 0) first = i / row_elements;
  }
  if (count > 0) warnings.push_back(Warning(name, count, where + " row " + std::to_string(first)));
}

std::vector<std::shared_ptr<const CsvClasses>> ClassesOf(const std::string& feed, const NamedClasses& named) {
  const auto found = named.find(feed);
  return found == named.end() ? std::vector<std::shared_ptr<const CsvClasses>>() : found->second;
}

DataFileKind KindOfDataFile(const DataFile& file) {
  const std::string& path = file.path;
  if (!file.by_name()) return KindOfFormat(file);
  if (path.ends_with(".npz")) return DataFileKind::kNpz;
  if (path.ends_with(".npy")) return DataFileKind::kNpy;
  if (path.ends_with(".bin")) return DataFileKind::kTokens;
  if (path.ends_with(".tar") && !std::filesystem::is_directory(path)) return DataFileKind::kArchive;
  if (IsIdxName(path)) return DataFileKind::kIdx;
  const std::string_view name = WithoutGz(path);
  if (name.ends_with(".csv") || name.ends_with(".tsv") || name.ends_with(".txt")) return DataFileKind::kTable;
  if (IsImageFolder(path) || IsImageName(path)) return DataFileKind::kImages;
  if (!IdxFilesOf(path).empty()) return DataFileKind::kIdxSet;
  if (std::filesystem::is_directory(path)) {
    throw Error(ErrorCode::kData, std::filesystem::is_empty(path) ? "the folder is empty" : "the folder contains no known kind of data",
                Escaped(path, 4096), "expected images in one sub-folder per class, or IDX files under their usual names");
  }
  if (path.ends_with(".onnx")) {
    throw Error(ErrorCode::kData, "this is a model, not data", Escaped(path, 4096),
                "name the model first: gradloom train model.onnx --data train.csv");
  }
  if (path.ends_with(".tar.gz") || path.ends_with(".tgz")) {
    throw Error(ErrorCode::kData, "the archive is compressed", Escaped(path, 4096), "unpack it first (gunzip): rows are read in any order");
  }
  if (!std::filesystem::exists(path)) InputFile missing(path, 0);  // throws, and suggests a file with a similar name
  throw Error(ErrorCode::kData, "the file's name does not tell what kind of data it holds", Escaped(path, 4096),
              "rename it to .npz, .npy, .csv, .csv.gz, .tsv, .idx, .bin, .tar, .jpg or .png, or set the format: --data-format csv");
}

CsvOptions TableOptions(const DataFile& file) {
  const bool tabs = file.by_name() ? WithoutGz(file.path).ends_with(".tsv") : file.format == "tsv";
  return {.delimiter = tabs ? '\t' : CsvOptions::kGuessDelimiter};
}

std::optional<StoredArray> OpenArray(const DataFile& file, const ColumnSource& source, const CopyRule& copies) {
  const std::string& path = file.path;
  switch (KindOfDataFile(file)) {
    case DataFileKind::kNpy: return OpenNpy(path, copies);
    case DataFileKind::kNpz: return OpenNpz(path, source.source, copies);
    case DataFileKind::kIdx: return OpenIdx(path, copies);
    case DataFileKind::kTokens: return OpenTokens(path);
    case DataFileKind::kIdxSet: {
      const auto files = IdxFilesOf(path);
      const auto found = files.find(source.source);
      return found == files.end() ? std::nullopt : OpenIdx(found->second, copies);
    }
    case DataFileKind::kTable:
    case DataFileKind::kImages:
    case DataFileKind::kArchive: break;
  }
  return std::nullopt;
}

LoadedData LoadData(const DataFile& file, const std::vector<ColumnSource>& sources, const CsvOptions& options) {
  const std::string& path = file.path;
  const DataFileKind kind = KindOfDataFile(file);
  const std::string where = Escaped(path, 4096);
  std::set<std::string> names;
  for (const ColumnSource& source : sources) {
    if (!names.insert(source.name).second) {
      throw Error(ErrorCode::kConfig, "'" + Escaped(source.name) + "' is mapped twice", where);
    }
  }
  if (kind != DataFileKind::kNpz && kind != DataFileKind::kIdxSet && sources.empty()) {
    throw Error(ErrorCode::kConfig, "inputs and targets are not mapped to columns", where, "map each of them with --map NAME=COLUMNS");
  }
  if ((kind == DataFileKind::kNpy || kind == DataFileKind::kIdx) && sources.size() > 1) {
    throw Error(ErrorCode::kConfig,
                "this kind of file holds one array, but " + std::to_string(sources.size()) + " columns are mapped to it", where,
                "save the arrays together with numpy.savez");
  }
  LoadedData loaded;
  std::map<std::string, Tensor> columns;
  const int64_t limit = options.limit_bytes;
  switch (kind) {
    case DataFileKind::kTable: columns = LoadTable(path, sources, options, loaded); break;
    case DataFileKind::kNpz: columns = LoadNpz(path, sources, limit); break;
    case DataFileKind::kIdxSet: columns = LoadIdxSet(path, sources, limit); break;
    case DataFileKind::kTokens: columns = ReadWindows(path, sources, limit); break;
    case DataFileKind::kNpy: columns.emplace(sources[0].name, ReadNpy(path, limit)); break;
    case DataFileKind::kImages:
    case DataFileKind::kArchive: throw Error(ErrorCode::kInternal, "images are not arrays", where);
    case DataFileKind::kIdx: columns.emplace(sources[0].name, ReadIdx(path, limit)); break;
  }
  for (const auto& [name, column] : columns) {
    if (column.shape().rank() > 0 && column.shape()[0] == 0)
      throw Error(ErrorCode::kData, "column '" + Escaped(name) + "' has no rows", where);
  }
  if (columns.empty() && loaded.stored.empty()) throw Error(ErrorCode::kData, "the file has no arrays", where);
  try {
    loaded.data = Dataset(columns);
  } catch (const Error& error) {
    // Adds the file, which the data set does not know.
    throw Error(error.code(), error.message(), where, error.help());
  }
  if (kind != DataFileKind::kTable) {
    std::set<std::string> may_be_missing;
    for (const ColumnSource& source : sources) {
      if (source.may_be_missing) may_be_missing.insert(source.name);
    }
    for (const auto& [name, column] : columns) WarnOfNans(name, column, may_be_missing.contains(name), where, loaded.warnings);
  }
  return loaded;
}

LoadedData LoadData(const DataFile& file, const std::vector<ColumnSource>& sources) { return LoadData(file, sources, TableOptions(file)); }

}  // namespace gradloom
