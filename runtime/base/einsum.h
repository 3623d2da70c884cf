// Parses the equation of an Einsum for the shapes of its operands.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/shape.h"

namespace gradloom {

struct EinsumEquation {
  // The indices of an operand's axes: letters by their character; those of an ellipsis are -1 (its last
  // axis), -2 ... counted from its end, so that ellipses of several ranks broadcast.
  using Term = std::vector<int>;

  std::vector<Term> inputs;
  Term output;
  std::map<int, int64_t> extents;  // an index of extents 1 and n has extent n

  // Without an arrow the output is numpy's: the ellipsis, then the indices that occur once, sorted. Throws Error(kAttr) for an equation
  // that is malformed or does not fit the operands.
  static EinsumEquation Parse(const std::string& equation, std::span<const Shape> operands);

  Shape OutputShape() const;
};

}  // namespace gradloom
