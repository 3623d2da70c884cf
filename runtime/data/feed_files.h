// Reads files into the columns of a model's feeds.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/data_files.h"
#include "runtime/data/dataset.h"
#include "runtime/data/training_data.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Options for reading files; as in DataOptions.
struct FeedReading {
  const std::set<std::string>& targets;
  const std::map<std::string, ClassRange>& classes;
  bool on_demand = false;
  bool large_rows = true;
  int64_t large_bytes = kLargeBytes;    // of each feed
  std::set<std::string> measured = {};  // feeds with transforms that are measured, which reads all rows
  std::set<std::string> filled = {};    // feeds with transforms that replace missing numbers
  bool numbers_classes = false;         // whether names that are not known are numbered: in training data
  int sample_axis = 0;                  // of the model's inputs
};

// "random:N" means N samples of random numbers instead of files.
inline constexpr std::string_view kRandomData = "random:";

bool IsTable(const DataFile& file);

// The feeds as data has them: with the samples along the first axis, and the other axes in their order.
std::vector<Feed> AsRows(std::vector<Feed> feeds);

// Converts each feed's column to the feed's dtype and row shape. Throws like Dataset::Fit, naming the file, and the class axis that the
// column would fit.
void FitToFeeds(Dataset& data, const std::vector<Feed>& feeds, const DataFile& file, const FeedReading& reading);

// The axis of the samples of the first input that has one; 0 if none has.
int SampleAxisOf(const std::vector<Feed>& feeds);

// The rows of all files, one after the other, in columns of the feeds' names, dtypes and shapes. `names`: those of the training data; empty
// ones become those of the files. `notes` gets warnings. `counts` gets the number of rows of each file. Throws Error(kData) naming two
// files whose columns or array types differ, and file and row of a class that is not among those of `reading`; otherwise like LoadData,
// Dataset::Fit and LoadImageData.
Dataset ReadFeeds(const std::vector<DataFile>& files, const std::vector<Feed>& feeds, const ColumnMap& columns, const FeedReading& reading,
                  TrainingNames& names, std::vector<std::string>& notes, std::vector<FileRows>* counts = nullptr);

}  // namespace gradloom
