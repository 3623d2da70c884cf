#include "runtime/base/shape.h"

#include <algorithm>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {

std::optional<int64_t> Shape::checked_elements() const {
  // A zero extent makes the product zero, however large the others are.
  if (std::find(dims_.begin(), dims_.end(), 0) != dims_.end()) return 0;
  int64_t count = 1;
  for (int64_t dim : dims_) {
    const auto product = CheckedMul(count, dim);
    if (!product || dim < 0) return std::nullopt;
    count = *product;
  }
  return count;
}

int64_t Shape::elements() const {
  const auto count = checked_elements();
  if (!count) throw Error(ErrorCode::kShape, "the number of elements of " + ToString() + " is negative or exceeds 2^63 - 1");
  return *count;
}

std::vector<int64_t> Shape::strides() const {
  std::vector<int64_t> strides(dims_.size());
  int64_t stride = 1;
  for (size_t i = dims_.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims_[i];
  }
  return strides;
}

Shape Shape::Squeezed() const {
  Shape squeezed = *this;
  std::erase(squeezed.dims_, 1);
  return squeezed;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(dims_[i]);
  }
  return text + "]";
}

std::optional<Shape> Broadcast(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out(std::vector<int64_t>(static_cast<size_t>(rank)));
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    if (da != db && da != 1 && db != 1) return std::nullopt;
    out[i] = da == 1 ? db : da;
  }
  return out;
}

std::optional<int> NormalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) return std::nullopt;
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace gradloom
