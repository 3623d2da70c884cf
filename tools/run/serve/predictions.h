// The predictions of a trained model, and the forms in which they are written.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

struct Predictions {
  std::map<std::string, Tensor> outputs;  // with the samples along the first axis
  // Of outputs in which the model does not have simply the samples along the first axis: the axis that has them, and how many axes were
  // added because it has several positions of each sample.
  struct Moved {
    int axis = 0, added = 0;
  };
  std::map<std::string, Moved> moved;
  // For outputs that are numbers of classes: the names of the classes.
  std::map<std::string, std::vector<std::string>> classes;
  // For outputs with a number for each class: the names of these numbers, such as label.cat.
  std::map<std::string, std::vector<std::string>> columns;
  std::vector<std::string> files;                                      // by row, for images: where they are
  std::vector<std::pair<std::string, std::vector<std::string>>> kept;  // columns of the data as they are: a name, and texts by row
};

// Throws Error(kConfig) if a column that is kept has the name of an output, or of a column that an output has in a table.
void CheckKept(const Predictions& predictions);

// A table with a header and one line per row. A column is named after its output if that has one number per row, otherwise name.0, name.1
// ... or as `columns` says. Before them are "file", which has the files, and the columns that are kept. `write` gets the text in pieces.
// Throws Error(kConfig), naming `path`, for an output without a row per sample, before anything is written.
void WriteTable(const Predictions& predictions, const std::string& path, const std::function<void(std::string_view text)>& write);

// An object with a nested list for each output, as from numpy.ndarray.tolist(), or with a list for each name in `columns`; the list "file"
// has the files, and each column that is kept is a list. What is not finite is null. Throws Error(kResource) if there is no memory for it.
std::string JsonOf(const Predictions& predictions);

// The outputs, and the columns that are kept, as arrays of int64, uint64 or float64. Throws Error(kConfig), naming `path`, for a column of
// text, and for whole numbers that none of these types has.
std::map<std::string, Tensor> ArraysOf(const Predictions& predictions, const std::string& path);

// These columns (a selection as in CsvSelection) of all files that `path` means, as text in UTF-8. Throws Error(kConfig) if they are no
// tables, and like ReadCsvText.
std::vector<std::pair<std::string, std::vector<std::string>>> KeptColumns(const std::string& path, const std::string& format,
                                                                          const std::string& selection);

}  // namespace gradloom
