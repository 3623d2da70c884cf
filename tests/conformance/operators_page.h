// docs/operators.md: what we make of each operator of ONNX, and the node tests that do not pass.
#pragma once

#include <map>
#include <string>

#include "tests/conformance/node_test.h"

namespace gradloom {

// Outcomes by operator (as OperatorOfNodeTest names it), then by test.
using NodeResults = std::map<std::string, std::map<std::string, NodeOutcome>>;

// The page as Markdown. `reasons`: why a test does not pass, by name, in our words.
std::string OperatorsPage(const NodeResults& results, const std::map<std::string, std::string>& reasons);

}  // namespace gradloom
