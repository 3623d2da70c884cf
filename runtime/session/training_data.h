// The data of a run: which files and columns feed which inputs and targets of the model, what is held back for
// evaluation, and the transforms that were fitted on the training part.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/session/data_files.h"
#include "runtime/session/dataset.h"

namespace gradloom {

// Model input or target -> where its values are in a file (ColumnSource::source).
using ColumnMap = std::map<std::string, std::string>;

// The classes that a target may have: 0 to count-1, and one that stands for none.
struct ClassRange {
  int64_t count = 2;
  int64_t ignored = -1;
};

// What a process may hold of a column for others to read as well.
inline constexpr int64_t kLargeBytes = int64_t{32} << 20;

struct DataOptions {
  std::string train;       // files that LoadData knows (FilesOf), or "random:N" for N samples of random numbers
  std::string eval;        // one of the same form; empty: none
  std::string eval_split;  // "20%", "0.2", or "tail:20%" for the last rows; empty: none. Not beside `eval`.
  std::string format;      // of both, as DataFile has it
  ColumnMap columns;
  std::map<std::string, std::vector<std::string>> transforms;  // by input or target, as Transform::Parse reads them
  std::map<std::string, ClassRange> classes;                   // of targets that hold classes
  std::set<std::string> targets;                               // feeds whose rows must have the shape they are wanted in, but for ones
  // For one of several processes: large rows, and those of large arrays and tables, stay in the file where it lets them be read each by
  // itself (.npy, .npz, IDX, tokens), or else in a file without a name (SpillBuffer: of tables, and of what is compressed), for those that
  // need them to read. The bits are the same; NaN (but for tables) and classes out of range are found when a row is read.
  bool on_demand = false;
  int64_t large_bytes = kLargeBytes;  // what is large: an array, or the columns of a table for one feed
};

// What training data say by their order: other data are read by these names.
struct TrainingNames {
  std::vector<std::string> classes;  // of a folder of images: its sub-folders, by label
  std::vector<std::string> columns;  // of a table: what selects each of its columns (CsvSelectors)
};

// One of several files that data lie in.
struct FileRows {
  std::string name;  // without its folder
  int64_t rows = 0;

  bool operator==(const FileRows&) const = default;
};

struct TrainingData {
  Dataset train, eval;                                   // eval may have no rows
  ColumnMap columns;                                     // those used, guessed ones included
  std::map<std::string, std::vector<Transform>> fitted;  // in the order of their application
  TrainingNames names;
  std::vector<FileRows> files;     // to train on, in the order of their rows; empty where it is one
  std::vector<std::string> notes;  // one line each: what was guessed, NaN in the data
};

// Reads the files into columns of the feeds' names, dtypes and shapes, splits, and applies the transforms, fitted on
// the training part alone. Without a map a .npz file's arrays go by their own names; of a table with a header the last
// column is the one target and all others the one input. Throws Error(kData, kShape, kIo, kLimit) as LoadData and
// Dataset::Fit do, Error(kData) naming file and row for a class out of its range, Error(kConfig) for names that are no feed and
// transforms that do not exist.
TrainingData LoadTrainingData(const DataOptions& options, const std::vector<Feed>& feeds, int64_t seed);

// Columns, fitted transforms and names as one JSON object, from which DataFromJson gives them back exactly.
std::string DataToJson(const TrainingData& data);
// Throws Error(kConfig) with `where` for a text that is none.
void DataFromJson(const std::string& json, const std::string& where, ColumnMap& columns,
                  std::map<std::string, std::vector<Transform>>& fitted, TrainingNames& names);

// What differs between the files of data written by DataToJson and those that there are now, in a sentence; empty where nothing does, or
// where either is a single file, whose rows may be counted. Throws as DataFromJson.
std::string DifferenceOfFiles(const std::string& json, const std::string& where, const std::vector<FileRows>& files);

// The columns of files (FilesOf) for these feeds, with transforms that were fitted before. `notes` gets what was found odd.
// `targets` and `on_demand` as in DataOptions. `names`: those of the training data; none: its own. Throws
// Error(kData) naming the row of a class that is not among `classes`.
Dataset LoadFeeds(const DataFile& data, const std::vector<Feed>& feeds, const ColumnMap& columns,
                  const std::map<std::string, std::vector<Transform>>& fitted, std::vector<std::string>& notes,
                  const std::set<std::string>& targets = {}, const std::map<std::string, ClassRange>& classes = {}, bool on_demand = false,
                  TrainingNames names = {});

// "20%" or "0.2" -> 0.2. Throws Error(kConfig).
double ParseShare(const std::string& text);

}  // namespace gradloom
