// Data sets from files: numpy arrays and tables, mapped to a model's inputs and targets.
#pragma once

#include <string>
#include <vector>

#include "runtime/session/csv.h"
#include "runtime/session/dataset.h"

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
};

struct LoadedData {
  Dataset data;
  std::vector<std::string> warnings;  // one for each column with NaN or infinite values: how many, where first
};

enum class DataFileKind { kNpz, kNpy, kTable };

// By the ending of the name; the file is not looked at. Error(kData) for another ending.
DataFileKind KindOfDataFile(const std::string& path);

// How a table of this name is read: .tsv is delimited by tabs.
CsvOptions TableOptions(const std::string& path);

// Reads a file by the ending of its name: .npz, .npy, or .csv, .tsv, .txt with or without .gz (.tsv is
// delimited by tabs). Without `sources` a .npz file gives all its arrays by their own names; a table and a
// .npy file need at least one.
// Error(kConfig) for missing or repeated sources; Error(kData) for another kind of file, an absent array,
// columns with different numbers of rows or without any (naming file and column), and what the readers refuse.
LoadedData LoadData(const std::string& path, const std::vector<ColumnSource>& sources);
LoadedData LoadData(const std::string& path, const std::vector<ColumnSource>& sources, const CsvOptions& options);

}  // namespace gradloom
