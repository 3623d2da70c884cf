// How the elements of a tensor are arranged in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/shape.h"

namespace gradloom {

// Logical dimensions in `order` from the outermost to the innermost (empty: 0, 1, 2 ...), each divided
// by its blocks; then the blocks, the last one innermost. oneDNN's OIhw8i8o is order 0123 and blocks
// {1,8},{0,8}; NHWC is order 0231 and no block. A blocked dimension that its block does not divide is
// padded up to a multiple; the padding is zero, before and after every update.
struct Layout {
  struct Block {
    int dim = 0;
    int64_t size = 1;
    bool operator==(const Block&) const = default;
  };
  std::vector<int> order;
  std::vector<Block> blocks;

  // Row-major without padding: the layout of files, the C interface and the oracle.
  bool plain() const { return order.empty() && blocks.empty(); }

  // The extents with padding.
  Shape Padded(const Shape& shape) const;

  // Elements in memory, including padding.
  int64_t elements(const Shape& shape) const { return plain() ? shape.elements() : Padded(shape).elements(); }

  // The offset, in elements, of the element with this logical index.
  int64_t Offset(const Shape& shape, const std::vector<int64_t>& index) const;

  // "plain", "0231", "0123:1x8,0x8".
  std::string ToString() const;

  // The inverse of ToString; throws Error(kPlan).
  static Layout FromString(const std::string& text);

  bool operator==(const Layout&) const = default;
};

// Copies row-major elements of `element_bytes` bytes each into a layout (padding is set to zero), and back.
void ToLayout(const Layout& layout, const Shape& shape, int64_t element_bytes, const void* logical, void* stored);
void FromLayout(const Layout& layout, const Shape& shape, int64_t element_bytes, const void* stored, void* logical);

}  // namespace gradloom
