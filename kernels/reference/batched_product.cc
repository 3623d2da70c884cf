#include "kernels/reference/batched_product.h"

#include <algorithm>

#include "kernels/reference/operands.h"

namespace gradloom {

BatchedProduct::BatchedProduct(const Shape& a, const Shape& b, const Shape& out) {
  const bool row = a.rank() == 1, column = b.rank() == 1;
  m = row ? 1 : a[a.rank() - 2];
  k = a[a.rank() - 1];
  n = column ? 1 : b[b.rank() - 1];
  const auto leading = [](const Shape& shape, int drop) {
    return Shape(std::vector<int64_t>(shape.begin(), shape.end() - std::min(drop, shape.rank())));
  };
  batch = leading(out, (row ? 0 : 1) + (column ? 0 : 1));
  a_strides = BroadcastStrides(leading(a, 2), batch);
  b_strides = BroadcastStrides(leading(b, 2), batch);
}

}  // namespace gradloom
