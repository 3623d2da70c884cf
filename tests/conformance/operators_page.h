// docs/operators.md: how Gradloom supports each ONNX operator, and which node tests do not pass.
#pragma once

#include <map>
#include <string>

#include "tests/conformance/node_test.h"

namespace gradloom {

// Outcomes by operator (named as by OperatorOfNodeTest), then by test.
using NodeResults = std::map<std::string, std::map<std::string, NodeOutcome>>;

// The page as Markdown. `reasons` says, by test name, why a test does not pass.
std::string OperatorsPage(const NodeResults& results, const std::map<std::string, std::string>& reasons);

}  // namespace gradloom
