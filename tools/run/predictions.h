// The predictions of a trained model, and the forms in which they are written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

struct Predictions {
  std::map<std::string, Tensor> outputs;
  // For outputs that are numbers of classes: the names of the classes.
  std::map<std::string, std::vector<std::string>> classes;
  std::vector<std::string> files;  // by row, for images: where they are
};

// A table with a header and one line per row. A column is named after its output if that has one number per row, otherwise name.0, name.1
// ...; the first one, "file", has the files. Throws Error(kConfig), naming `path`, for an output without a row per sample.
std::string TableOf(const Predictions& predictions, const std::string& path);

// An object with a nested list for each output, as from numpy.ndarray.tolist(); the list "file" has the files. What is not finite is null.
std::string JsonOf(const Predictions& predictions);

}  // namespace gradloom
