// What an evaluation shows of each class.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/session/confusion.h"

namespace gradloom {

// A table of the classes by name with their rows, precision, recall and F1; then, for up to 20 classes, a table of how often each (by line)
// was taken for each (by column), otherwise the pairs that were confused most often.
std::string ConfusionText(const ConfusionMatrix& confusion, const std::vector<std::string>& names);

// {"classes": [NAME ...], "counts": [[...] ...], "precision": [...], "recall": [...], "f1": [...]}: counts by class, then by prediction.
// For more than 2,000 classes, "pairs": [[class, prediction, count] ...] of those that occur instead of all counts.
nlohmann::json ConfusionJson(const ConfusionMatrix& confusion, const std::vector<std::string>& names);

}  // namespace gradloom
