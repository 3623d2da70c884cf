// Einsum: explicit loops over output indices, then over summed indices.
#include "runtime/base/einsum.h"

#include <algorithm>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

using Term = EinsumEquation::Term;

EinsumEquation Parse(const KernelCall& call) {
  std::vector<Shape> shapes;
  for (const OperandType& operand : call.inputs) shapes.push_back(operand.shape);
  return EinsumEquation::Parse(call.attributes.String("equation", ""), shapes);
}

// The strides of each operand along `indices`. The strides of a repeated index add up, so that it reads the diagonal.
std::vector<std::vector<int64_t>> StridesAlong(const KernelCall& call, const EinsumEquation& equation, const Term& indices) {
  std::vector<std::vector<int64_t>> all;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    const std::vector<int64_t> own = call.inputs[i].shape.strides();
    std::vector<int64_t> strides(indices.size(), 0);
    for (size_t axis = 0; axis < own.size(); ++axis) {
      if (call.inputs[i].shape[static_cast<int>(axis)] == 1) continue;
      const auto at = std::find(indices.begin(), indices.end(), equation.inputs[i][axis]);
      if (at != indices.end()) strides[static_cast<size_t>(at - indices.begin())] += own[axis];
    }
    all.push_back(std::move(strides));
  }
  return all;
}

// Iterates over `extents`, and keeps the offset in each operand.
struct Counter {
  const std::vector<int64_t>& extents;
  const std::vector<std::vector<int64_t>>& strides;
  std::vector<int64_t> index;

  bool Next(std::vector<int64_t>& offsets) {
    for (size_t axis = extents.size(); axis-- > 0;) {
      const bool wraps = ++index[axis] == extents[axis];
      const int64_t step = wraps ? 1 - extents[axis] : 1;
      for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += step * strides[i][axis];
      if (!wraps) return true;
      index[axis] = 0;
    }
    return false;
  }
};

void Einsum(const KernelCall& call, const void* const* in, void* const* out) {
  const EinsumEquation equation = Parse(call);
  Term summed;
  std::vector<int64_t> kept_extents, summed_extents;
  for (int index : equation.output) kept_extents.push_back(equation.extents.at(index));
  for (const auto& [index, extent] : equation.extents) {
    if (std::find(equation.output.begin(), equation.output.end(), index) != equation.output.end()) continue;
    summed.push_back(index);
    summed_extents.push_back(extent);
  }
  const auto kept_strides = StridesAlong(call, equation, equation.output), summed_strides = StridesAlong(call, equation, summed);
  const bool empty_sum = std::find(summed_extents.begin(), summed_extents.end(), 0) != summed_extents.end();
  const int64_t n = call.outputs[0].shape.elements();
  const size_t operands = call.inputs.size();
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using Sum = Accumulator<T>;
    std::vector<int64_t> base(operands, 0), offsets;
    Counter kept{kept_extents, kept_strides, std::vector<int64_t>(kept_extents.size(), 0)};
    Counter inner{summed_extents, summed_strides, std::vector<int64_t>(summed_extents.size(), 0)};
    for (int64_t i = 0; i < n; ++i) {
      Sum sum = 0;
      offsets = base;
      bool more = !empty_sum;
      while (more) {
        Sum product = 1;
        for (size_t k = 0; k < operands; ++k) product *= static_cast<Sum>(In<T>(in, k)[offsets[k]]);
        sum += product;
        more = inner.Next(offsets);
      }
      Out<T>(out, 0)[i] = static_cast<T>(static_cast<Arithmetic<T>>(sum));
      kept.Next(base);
    }
  });
}

constexpr ReferenceKernel kKernels[] = {{"Einsum", "", Einsum}};

}  // namespace

std::span<const ReferenceKernel> ReferenceEinsum() { return kKernels; }

}  // namespace gradloom
