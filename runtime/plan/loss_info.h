// What a plan's losses say about how outputs are compared with targets. Metrics and means over several batches follow it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gradloom {

// A property of a plan whose updates have several batches: that the loss of an update is the sum of theirs, because each is a sum over
// samples. Otherwise it is a mean of theirs.
inline constexpr char kUpdateLoss[] = "update_loss";
inline constexpr char kSumOfBatches[] = "sum of batches";

// A term of the loss, or an operator inside a loss that the model or a graph computes.
struct LossInfo {
  std::string type;                     // "mse", "cross_entropy", or the name of the ONNX operator
  std::string output, target;           // the fed target; `output` is empty if the loss reads no output of the model directly
  bool classes = false;                 // the target has the class of each position of the output
  int64_t class_axis = 1;               // of the output; negative: counted from its end
  std::optional<int64_t> ignore_index;  // class that is left out; none: kIgnoredClass
  std::vector<double> class_weight;     // one per class; empty: all 1
  bool mean = false;                    // of classes: the whole loss is the mean over positions, weighted by class

  bool operator==(const LossInfo&) const = default;
};

}  // namespace gradloom
