// One of ONNX's backend tests: a model, its inputs and its expected outputs.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

enum class NodeVerdict { kPassed, kFailed, kSkipped };

struct NodeOutcome {
  NodeVerdict verdict = NodeVerdict::kPassed;
  // Why the test did not pass. A skipped test needs something that is not supported.
  std::string reason;
  // The element types of the model's inputs and outputs, if they could be read.
  std::vector<DType> dtypes;
  // Whether all inputs had to be known at compile time, so that the compiler computed the outputs.
  bool known = false;
};

// The operator under test, with its domain if that is not ONNX's own. For a test with the operator expanded to its function body, this is
// the operator of the first node. Throws Error for a file that is not a model.
std::string OperatorOfNodeTest(const std::string& folder);

// Runs NAME/model.onnx with each test_data_set_N, on the CPU or, with `isa` ("sm_90"), on the first GPU, which must be of that kind.
// Compares like ONNX's own runner: |a - b| <= 1e-7 + 1e-3 |b|, or with the tolerances of NAME/data.json ("atol", "rtol"); for bfloat16 2^-6
// |b|. Inputs that a shape depends on are given to the compiler as known values.
NodeOutcome RunNodeTest(const std::string& folder, const std::string& isa = "");

}  // namespace gradloom
