#include "kernels/reference/operands.h"

namespace gradloom {

std::vector<int64_t> InputInts(const KernelCall& call, const void* const* inputs, size_t i, std::vector<int64_t> absent) {
  return Has(call.inputs, i) ? IntValues(InputView(call, inputs, i)) : std::move(absent);
}

int AxisOf(const KernelCall& call, int64_t axis, int rank) {
  const auto normal = NormalAxis(axis, rank);
  if (!normal) {
    throw Error(ErrorCode::kAttr, call.op + ": axis " + std::to_string(axis) + " is outside a tensor of rank " + std::to_string(rank));
  }
  return *normal;
}

int64_t CheckedIndex(const KernelCall& call, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent) {
    throw Error(ErrorCode::kData, call.op + ": index " + std::to_string(index) + " is outside an axis of extent " + std::to_string(extent),
                "", "indices lie in [-" + std::to_string(extent) + ", " + std::to_string(extent) + ")");
  }
  return index < 0 ? index + extent : index;
}

std::vector<int64_t> BroadcastStrides(const Shape& from, const Shape& to) {
  GRADLOOM_CHECK(from.rank() <= to.rank());
  const std::vector<int64_t> own = from.strides();
  std::vector<int64_t> strides(static_cast<size_t>(to.rank()), 0);
  const int extra = to.rank() - from.rank();
  for (int axis = 0; axis < from.rank(); ++axis) {
    GRADLOOM_CHECK(from[axis] == to[axis + extra] || from[axis] == 1);
    if (from[axis] != 1) strides[static_cast<size_t>(axis + extra)] = own[static_cast<size_t>(axis)];
  }
  return strides;
}

}  // namespace gradloom
