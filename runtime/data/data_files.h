// Data sets from files: numpy arrays and tables, mapped to a model's inputs and targets.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/csv.h"
#include "runtime/data/dataset.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

// The source of one column of a data set.
struct ColumnSource {
  std::string name;  // of the model's input or target
  // In the file: an array of a .npz file, or columns of a table (as in CsvSelection). A .npy file has only one array, which any source
  // means.
  std::string source;
  // The dtype for a table's text: kFloat32, kFloat64 or kInt64. Arrays keep their own dtype (Dataset::Fit converts).
  DType dtype = DType::kFloat32;
  // For a token file: the number of tokens per row.
  int64_t window = 0;
  // For a table: as in CsvSelection.
  std::vector<std::shared_ptr<const CsvClasses>> classes = {};
  // Whether numbers may be missing: as in CsvSelection for a table, NaN in arrays. They cause no warning.
  bool may_be_missing = false;
};

// By input or target, for each of its columns: the classes that tables have by name, or null.
using NamedClasses = std::map<std::string, std::vector<std::shared_ptr<const CsvClasses>>>;

// Empty if the feed's classes have no names.
std::vector<std::shared_ptr<const CsvClasses>> ClassesOf(const std::string& feed, const NamedClasses& named);

struct LoadedData {
  Dataset data;
  std::map<std::string, StoredArray> stored;  // columns of a table that are too large for memory (CsvOptions::memory_bytes)
  // One for each column with infinite values, or with NaN that may not be missing: how many, and where the first is.
  std::vector<std::string> warnings;
};

// Adds a warning if an array has values that are not finite: how many, and where the first is.
void WarnOfNans(const std::string& name, const Tensor& column, bool may_be_missing, const std::string& where,
                std::vector<std::string>& warnings);

enum class DataFileKind { kNpz, kNpy, kTable, kIdx, kIdxSet, kTokens, kImages, kArchive };

// The path of data, and its format if the name does not determine it.
struct DataFile {
  template <std::convertible_to<std::string> Path>
  DataFile(Path path, std::string format = {}) : path(std::move(path)), format(std::move(format)) {}

  std::string path;
  std::string format;  // csv, tsv, npz, npy, idx, tokens, images, tar; empty or "auto": by the name

  bool by_name() const { return format.empty() || format == "auto"; }
};

// Determines the kind by the format, or else by the ending of the name, without reading the file: .bin is a token file. A name without a
// known ending is the prefix of a set of IDX files if such files exist (IdxFilesOf); a folder of folders or of images, and an image, are
// kImages (image_data.h); .tar is an archive (archive_data.h). Throws Error(kData) for anything else, Error(kConfig) for an unknown format.
DataFileKind KindOfDataFile(const DataFile& file);

// The options for reading a table: .tsv is delimited by tabs, and the delimiter of others is guessed.
CsvOptions TableOptions(const DataFile& file);

// Reads a file by its format or the ending of its name: .npz, .npy, IDX, .bin (tokens), or .csv, .tsv, .txt with or without .gz (.tsv is
// delimited by tabs, the others by commas, semicolons or tabs). Without `sources`, a .npz file and a set of IDX files return all their
// arrays of numbers by name; the others need at least one. Arrays that no source selects are not read. The arrays of a token file are
// "tokens" and "next". Throws Error(kConfig) for missing or repeated sources; Error(kData) for another kind of file, an absent array,
// columns with different numbers of rows or without any (naming file and column), and what the readers refuse.
LoadedData LoadData(const DataFile& file, const std::vector<ColumnSource>& sources);
LoadedData LoadData(const DataFile& file, const std::vector<ColumnSource>& sources, const CsvOptions& options);

// Opens a source in a file that allows reading single rows, or of which the rule makes a copy that does; nullopt if there is neither, or if
// the source is not there. For tokens, all of them. Throws like LoadData.
std::optional<StoredArray> OpenArray(const DataFile& file, const ColumnSource& source, const CopyRule& copies);

}  // namespace gradloom
