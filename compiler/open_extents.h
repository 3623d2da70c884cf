// Makes an algorithm that was built at one value of each open extent valid for all values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/onnx/export/export.h"
#include "compiler/onnx/import.h"

namespace gradloom {

// The same algorithm built with another value of one extent.
struct OtherExtent {
  OpenExtent extent;
  int64_t there = 0;
  std::shared_ptr<const Algorithm> algorithm;
};

// Makes constants of the algorithm that depend on an extent (element counts, shapes) computed from that extent of the model's inputs, and
// names the extents of its targets. A constant may be a product of extents and a number, or that number divided by an extent. Throws
// Error(kUnsupported) naming a node that depends on them in another way.
void ReadExtents(Algorithm& algorithm, const std::vector<OtherExtent>& others);

}  // namespace gradloom
