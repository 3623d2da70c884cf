// One of ONNX's backend tests: a model, what it is fed and what it should give.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/tensor.h"

namespace gradloom {

enum class NodeVerdict { kPassed, kFailed, kSkipped };

struct NodeOutcome {
  NodeVerdict verdict = NodeVerdict::kPassed;
  // Why it did not pass; a skipped one asks for something that is not supported.
  std::string reason;
  // The element types of the model's inputs and outputs, where they could be read.
  std::vector<DType> dtypes;
  // Whether all inputs had to be known when it was compiled, so that the compiler computed the outputs.
  bool known = false;
};

// The operator that a test is for, with its domain where that is not ONNX's own; of a test that has an operator written
// out as its function body, that of the first node. Throws Error for a file that is no model.
std::string OperatorOfNodeTest(const std::string& folder);

// Runs NAME/model.onnx on the CPU, or with `isa` ("sm_90") on the first GPU, which is of that kind, with each test_data_set_N, and compares
// as ONNX's own runner does: |a - b| <= 1e-7 + 1e-3 |b|, or what NAME/data.json says ("atol", "rtol"); for bfloat16 2^-6 |b|. Inputs that a
// shape depends on are given to the compiler as known.
NodeOutcome RunNodeTest(const std::string& folder, const std::string& isa = "");

}  // namespace gradloom
