// Extents that a model leaves open, in an algorithm that is made at one value of each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/onnx/export.h"
#include "compiler/onnx/import.h"

namespace gradloom {

// The same algorithm where one extent has another value.
struct OtherExtent {
  OpenExtent extent;
  int64_t there = 0;
  std::shared_ptr<const Algorithm> algorithm;
};

// Has constants of the algorithm that an extent changes (numbers of elements, shapes) computed from that extent of the model's inputs,
// and names the extents of its targets. What changes is a product of extents and a constant, or that constant divided by one. Throws
// Error(kUnsupported) naming a node for what depends on them in another way.
void ReadExtents(Algorithm& algorithm, const std::vector<OtherExtent>& others);

}  // namespace gradloom
