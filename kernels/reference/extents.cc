// Results with as many elements as the data of a step determines (compiler/ops/extents.cc).
#include <algorithm>
#include <cstring>

#include "kernels/reference/dynamic.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

// Fills the indices from `count` on with the first one, or with zeros, in `rows` rows of `bound` indices.
void PadIndices(int64_t* indices, int64_t rows, int64_t bound, int64_t count) {
  for (int64_t row = 0; row < rows; ++row) {
    int64_t* p = indices + row * bound;
    std::fill(p + count, p + bound, count > 0 ? p[0] : 0);
  }
}

void NonZero(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t n = shape.elements(), rows = std::max(shape.rank(), 1);
  std::vector<int64_t> unwanted(Has(call.outputs, 0) ? 0 : static_cast<size_t>(rows * n));
  int64_t* indices = unwanted.empty() ? Out<int64_t>(out, 0) : unwanted.data();
  int64_t count = 0;
  WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t i = 0; i < n; ++i) {
      if (static_cast<Arithmetic<T>>(In<T>(in, 0)[i]) != 0) indices[(rows - 1) * n + count++] = i;
    }
  });
  // So far, the last row has the indices in the flattened tensor.
  for (int64_t k = 0; k < count && shape.rank() > 1; ++k) {
    int64_t rest = indices[(rows - 1) * n + k];
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      indices[axis * n + k] = rest % shape[axis];
      rest /= shape[axis];
    }
  }
  PadIndices(indices, rows, n, count);
  if (Has(call.outputs, 1)) *Out<int64_t>(out, 1) = count;
}

std::vector<Tensor> MakeDynamic(const KernelCall& call, const void* const* in) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(Has(call.inputs, i) ? Tensor::Copy(InputView(call, in, i)) : Tensor());
  return FindDynamic("", call.op)(call, inputs);
}

void CopyInts(const Tensor& from, int64_t* to) { std::memcpy(to, from.data(), static_cast<size_t>(from.bytes())); }

void Unique(const KernelCall& call, const void* const* in, void* const* out) {
  const std::vector<Tensor> made = MakeDynamic(call, in);  // values, first places, groups, counts
  const int64_t count = made[1].elements();
  // First places, groups (one per slice), counts.
  for (size_t i = 0; i < 3; ++i) {
    if (!Has(call.outputs, i)) continue;
    CopyInts(made[i + 1], Out<int64_t>(out, i));
    if (i != 1) PadIndices(Out<int64_t>(out, i), 1, call.outputs[i].shape[0], count);
  }
  if (Has(call.outputs, 3)) *Out<int64_t>(out, 3) = count;
}

void NonMaxSuppression(const KernelCall& call, const void* const* in, void* const* out) {
  const Tensor chosen = MakeDynamic(call, in)[0];
  const int64_t bound = call.attributes.Int("bound", 0), count = chosen.shape()[0];
  if (count > bound)
    throw Error(ErrorCode::kData, "NonMaxSuppression: " + std::to_string(count) + " boxes, there is room for " + std::to_string(bound));
  if (int64_t* rows = Out<int64_t>(out, 0)) {
    CopyInts(chosen, rows);
    for (int64_t i = 3 * count; i < 3 * bound; ++i) rows[i] = count > 0 ? rows[i % 3] : 0;
  }
  if (Has(call.outputs, 1)) *Out<int64_t>(out, 1) = count;
}

void SameExtent(const KernelCall&, const void* const* in, void* const* out) {
  const int64_t a = *In<int64_t>(in, 0), b = *In<int64_t>(in, 1);
  if (a != b) {
    throw Error(ErrorCode::kData, "operands that have to have the same extent have " + std::to_string(a) + " and " + std::to_string(b) +
                                      " elements with this batch");
  }
  *Out<int64_t>(out, 0) = a;
}

// Calls f(place) for all places in a tensor of this shape that are below the extents, in order.
template <typename F>
void ForEachBelow(const Shape& shape, const std::vector<int64_t>& extents, const F& f) {
  const std::vector<int64_t> strides = shape.strides();
  for (int64_t extent : extents) {
    if (extent == 0) return;
  }
  std::vector<int64_t> at(extents.size(), 0);
  for (int64_t place = 0;;) {
    f(place);
    int axis = shape.rank() - 1;
    for (; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      place += strides[a];
      if (++at[a] < extents[a]) break;
      place -= strides[a] * at[a];
      at[a] = 0;
    }
    if (axis < 0) return;
  }
}

void Repack(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &from_shape = call.inputs[0].shape, &to_shape = call.outputs[0].shape;
  const std::vector<int64_t> from = InputInts(call, in, 1), to = InputInts(call, in, 2);
  const auto count = [&](const std::vector<int64_t>& extents, const Shape& shape) {
    for (size_t i = 0; i < extents.size(); ++i) {
      if (extents[i] >= 0 && extents[i] <= shape[static_cast<int>(i)]) continue;
      throw Error(ErrorCode::kData,
                  "Reshape: extents " + Shape(extents).ToString() + " with this batch, there is room for " + shape.ToString());
    }
    return Shape(extents).elements();
  };
  const int64_t n = count(from, from_shape);
  if (n != count(to, to_shape)) {
    throw Error(ErrorCode::kData,
                "Reshape: " + Shape(from).ToString() + " with this batch has not as many elements as " + Shape(to).ToString());
  }
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(in, 0);
    T* y = Out<T>(out, 0);
    const bool repeat = n > 0 && call.attributes.Int("repeat", 1) != 0;
    std::fill(y, y + to_shape.elements(), repeat ? x[0] : T{0});
    std::vector<T> elements;
    elements.reserve(static_cast<size_t>(n));
    ForEachBelow(from_shape, from, [&](int64_t place) { elements.push_back(x[place]); });
    size_t next = 0;
    ForEachBelow(to_shape, to, [&](int64_t place) { y[place] = elements[next++]; });
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"NonZero", "gradloom", NonZero},       {"Unique", "gradloom", Unique}, {"NonMaxSuppression", "gradloom", NonMaxSuppression},
    {"SameExtent", "gradloom", SameExtent}, {"Repack", "gradloom", Repack},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceExtents() { return kKernels; }

}  // namespace gradloom
