// The checks by which kernels refuse their data, for example an index outside an axis or an invalid label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// A check of the elements of one operand. If it fails, Kernel::Run throws Error(kData).
struct DataCheck {
  // kIndex: an index along an axis, negative ones from the end. kPlace: a nonnegative index. kOther: any other check; no earlier check
  // implies it.
  enum class Kind : uint8_t { kIndex, kPlace, kLabel, kLength, kOther };

  size_t input = 0;
  Kind kind = Kind::kOther;
  std::vector<int64_t> limits;  // all numbers that elements are compared with

  // Whether elements of a tensor that have passed `other` also pass this check.
  bool ImpliedBy(const DataCheck& other) const { return kind != Kind::kOther && kind == other.kind && limits == other.limits; }
  // Whether all indices from 0 to `below` - 1 pass.
  bool AcceptsIndicesBelow(int64_t below) const;
};

// Whether any call of the operator checks its operands.
bool MayRefuseData(std::string_view domain, std::string_view op);

// The checks of a call, whose operands need not fit the operator; empty if it accepts any data. They are those of the reference kernels,
// which all other kernels of an operator follow.
std::vector<DataCheck> DataChecksOf(const KernelCall& call);

// If an output always holds indices, an exclusive upper bound of them; -1 if unknown.
int64_t IndicesBelow(const KernelCall& call, size_t output);

}  // namespace gradloom
