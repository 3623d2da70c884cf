// The data of a run: which files and columns feed which inputs and targets of the model, the part held back for evaluation, and the
// transforms, fitted on the training part.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/class_range.h"
#include "runtime/data/data_files.h"
#include "runtime/data/dataset.h"
#include "runtime/data/value_rules.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Model input or target -> the source of its values in a file (ColumnSource::source).
using ColumnMap = std::map<std::string, std::string>;

// The default of DataOptions::large_bytes.
inline constexpr int64_t kLargeBytes = int64_t{32} << 20;

struct DataOptions {
  std::string train;       // files that LoadData reads (FilesOf), or "random:N" for N samples of random numbers
  std::string eval;        // the same for evaluation data; empty: none
  std::string eval_split;  // "20%", "0.2", or "tail:20%" for the last rows; empty: none. Not together with `eval`.
  std::string format;      // format of both, as in DataFile
  ColumnMap columns;
  std::map<std::string, std::vector<std::string>> transforms;  // by input or target, in the syntax of Transform::Parse
  std::map<std::string, ClassRange> classes;                   // for targets that hold classes
  std::map<std::string, ValueDomain> domains;                  // for targets of losses that are not meant for all numbers
  std::set<std::string> targets;                               // feeds whose rows must have the needed shape, up to ones
  // Rows of large arrays and tables stay in their file if it allows reading single rows (.npy, .npz, IDX, tokens). Tables and compressed
  // arrays go to an unnamed file (SpillBuffer). The bits are the same. NaN (except in tables) and classes out of range are found when a row
  // is read.
  bool on_demand = false;
  // Whether large rows of arrays that are not large then stay there, too: for one of several processes, which needs a part of the rows.
  bool large_rows = true;
  // Size from which an array, in the type of its feed (a compressed one: in its own), or the columns of a table for one feed, counts as
  // large.
  int64_t large_bytes = kLargeBytes;
};

// DataOptions::large_bytes for a process that has all rows in memory as long as they, a copy and the training fit into what is free.
int64_t LargeBytesFor(int64_t free_bytes);

// Names that the training data defines by their order; other data is read with them.
struct TrainingNames {
  std::vector<std::string> classes;  // of a folder of images: its subfolders, by label
  std::vector<std::string> columns;  // of a table: the selector of each column (CsvSelectors)
  // Of a table, by target or input: the classes that its column has by name, in the order of their numbers. Of an input of several integers
  // by "input[column]".
  std::map<std::string, std::vector<std::string>> labels;
  std::set<std::string> guessed;  // feeds whose columns in a table were guessed, because there was no map
};

// One of several files of data.
struct FileRows {
  std::string name;  // without its folder
  int64_t rows = 0;

  bool operator==(const FileRows&) const = default;
};

struct TrainingData {
  Dataset train, eval;                                   // eval may have no rows
  ColumnMap columns;                                     // the columns used, including defaults
  std::map<std::string, std::vector<Transform>> fitted;  // in the order in which they are applied
  TrainingNames names;
  std::vector<FileRows> files;     // files to train on, in the order of their rows; empty if there is only one
  int64_t rows = 0;                // of the data to train on, before a share is held back; 0: unknown
  std::string held_back;           // a hash of the numbers of the rows that are held back; empty if none are, or unknown
  std::vector<std::string> notes;  // one line each: defaults chosen, NaN in the data
};

// Reads the files into columns of the feeds' names, dtypes and shapes (with the samples along the first axis), splits them, and applies the
// transforms, fitted on the training part only. Without a map, a .npz file's arrays are used by their names; in a table with a header, the
// last column is the only target and all others the only input. Classes that a table has by name are numbered in the order of their names.
// Throws Error(kData, kShape, kIo, kLimit) like LoadData and Dataset::Fit, Error(kData) naming file and row for a class out of range and an
// index that no row of the model's weight has (Feed::index_extent), Error(kConfig) for names that are not feeds and unknown transforms.
TrainingData LoadTrainingData(const DataOptions& options, const std::vector<Feed>& feeds, int64_t seed);

// Columns, fitted transforms and names as one JSON object, from which DataFromJson restores them exactly. Throws Error(kConfig) for a
// transform with a number that is not finite.
std::string DataToJson(const TrainingData& data);
// Throws Error(kConfig) with `where` for an invalid text.
void DataFromJson(const std::string& json, const std::string& where, ColumnMap& columns,
                  std::map<std::string, std::vector<Transform>>& fitted, TrainingNames& names);

// The difference between the files, their rows, those that are held back and the classes recorded by DataToJson and those of `data`, in a
// sentence; empty if there is none. Of single files only the rows are compared. `held_back`: whether also the rows that are held back are.
// Throws like DataFromJson.
std::string DifferenceOfData(const std::string& json, const std::string& where, const TrainingData& data, bool held_back = true);

// What a model was fed by the columns and transforms recorded by DataToJson and is fed otherwise by those of `data`: "the columns of 'x',
// the transforms of 'y'"; empty if that is nothing. Throws like DataFromJson.
std::string ChangesOfFeeds(const std::string& json, const std::string& where, const TrainingData& data);

// The columns as data of other formats than tables has them: those that were guessed for a table mean nothing there.
ColumnMap WithoutGuesses(ColumnMap columns, const TrainingNames& names);

// The columns of files (FilesOf) for these feeds, with the samples along the first axis, and with transforms that were fitted before.
// `notes` gets warnings. Of the options, only targets, classes and what stays in the files apply. `names`: those of the training data;
// empty: the data's own. Throws Error(kData) naming the row of a class that is not among the classes.
Dataset LoadFeeds(const DataFile& data, const std::vector<Feed>& feeds, const ColumnMap& columns,
                  const std::map<std::string, std::vector<Transform>>& fitted, std::vector<std::string>& notes,
                  const DataOptions& options = {}, TrainingNames names = {});

// What LoadTrainingData has evaluated a run with, again: files are read, split and transformed as was recorded then, whatever they would
// define now. Only for a share that is held back are the files to train on read; `files` and `rows` of the result are theirs then, for
// DifferenceOfData. `options` has the recorded columns; its transforms are ignored.
TrainingData LoadEvaluationData(const DataOptions& options, const std::vector<Feed>& feeds, int64_t seed,
                                const std::map<std::string, std::vector<Transform>>& fitted, const TrainingNames& names);

// "20%" or "0.2" -> 0.2. Throws Error(kConfig).
double ParseShare(const std::string& text);

}  // namespace gradloom
