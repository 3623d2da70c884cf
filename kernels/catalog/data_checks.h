// What kernels refuse in the numbers that they are given: an index outside an axis, a label that is no class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// A look of a call at the elements of one operand. Where they are not as it wants them, Kernel::Run throws Error(kData).
struct DataCheck {
  // kIndex: of an axis, from either end. kPlace: from the front alone. kOther: what else there is; no look before can stand for it.
  enum class Kind : uint8_t { kIndex, kPlace, kLabel, kLength, kOther };

  size_t input = 0;
  Kind kind = Kind::kOther;
  std::vector<int64_t> limits;  // all numbers that elements are held against

  // Whether elements that have passed `other` pass this one, both being of the same tensor.
  bool ImpliedBy(const DataCheck& other) const { return kind != Kind::kOther && kind == other.kind && limits == other.limits; }
  // Whether indices from 0 to `below` - 1 pass.
  bool TakesIndicesBelow(int64_t below) const;
};

// Whether some call of the operator looks at its operands so.
bool MayRefuseData(std::string_view domain, std::string_view op);

// The looks of a call, whose operands need not fit its operator; none where it takes whatever it is given. Those of the reference kernels,
// to which all others of an operator keep.
std::vector<DataCheck> DataChecksOf(const KernelCall& call);

// Where an output holds indices of elements, whatever the operands: the number that they are below. -1: nothing is known.
int64_t IndicesBelow(const KernelCall& call, size_t output);

}  // namespace gradloom
