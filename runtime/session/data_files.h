// Data sets from files: numpy arrays and tables, mapped to a model's inputs and targets.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/session/csv.h"
#include "runtime/session/dataset.h"
#include "runtime/session/stored_array.h"

namespace gradloom {

// What fills one column of a data set.
struct ColumnSource {
  std::string name;  // of the model's input or target
  // Of the file: an array of a .npz file, the columns of a table (as CsvSelection has them). A .npy file has
  // but one array, and any source means it.
  std::string source;
  // What a table's text becomes: kFloat32, kFloat64 or kInt64. Arrays keep the dtype that they have
  // (Dataset::Fit converts).
  DType dtype = DType::kFloat32;
  // Of a token file: how many tokens a row has.
  int64_t window = 0;
};

struct LoadedData {
  Dataset data;
  std::map<std::string, StoredArray>
      stored;                         // those of a table that are too many for memory (CsvOptions::memory_bytes), in place of columns
  std::vector<std::string> warnings;  // one for each column with NaN or infinite values: how many, where first
};

enum class DataFileKind { kNpz, kNpy, kTable, kIdx, kIdxSet, kTokens, kImages };

// Where data are, and what they are where the name does not say so.
struct DataFile {
  template <std::convertible_to<std::string> Path>
  DataFile(Path path, std::string format = {}) : path(std::move(path)), format(std::move(format)) {}

  std::string path;
  std::string format;  // csv, tsv, npz, npy, idx, tokens, images; empty or "auto": by the name

  bool by_name() const { return format.empty() || format == "auto"; }
};

// By the format, else by the ending of the name, without a look into the file: .bin is a token file. A name without a known ending is the
// prefix of a set of IDX files if such files are there (IdxFilesOf); a folder of folders has images (image_data.h). Error(kData) for
// anything else, Error(kConfig) for a format that does not exist.
DataFileKind KindOfDataFile(const DataFile& file);

// How a table is read: .tsv is delimited by tabs.
CsvOptions TableOptions(const DataFile& file);

// Reads a file by its format or the ending of its name: .npz, .npy, IDX, .bin (tokens), or .csv, .tsv, .txt with or without .gz (.tsv
// is delimited by tabs). Without `sources` a .npz file and a set of IDX files give all their arrays by their own names;
// the others need at least one. The arrays of a token file are "tokens" and "next".
// Error(kConfig) for missing or repeated sources; Error(kData) for another kind of file, an absent array,
// columns with different numbers of rows or without any (naming file and column), and what the readers refuse.
LoadedData LoadData(const DataFile& file, const std::vector<ColumnSource>& sources);
LoadedData LoadData(const DataFile& file, const std::vector<ColumnSource>& sources, const CsvOptions& options);
// Without a look at what else is in a file of several arrays.
LoadedData LoadDataAlone(const DataFile& file, const std::vector<ColumnSource>& sources);

// What a source means in a file from which rows can be had without the others; nothing where they cannot, or it is not there. Of tokens all
// of them. A compressed array of `unpack_bytes` or more is unpacked for it. Errors as LoadData's.
std::optional<StoredArray> OpenArray(const DataFile& file, const ColumnSource& source, int64_t unpack_bytes);

}  // namespace gradloom
