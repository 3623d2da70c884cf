// Which values attributes of ONNX's operators may have, where schemas leave that to text. Private to this directory.
#pragma once

#include <string>

#include "compiler/graph/graph.h"

namespace gradloom {

// What is wrong with an attribute of a standard operator: a word that there is not, a number that is too small, an axis past 32 bits; ""
// where nothing is. Attributes fit their schema's types.
std::string AttributeFault(const Node& node);

}  // namespace gradloom
