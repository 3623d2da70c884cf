// Views, concatenation, splitting and other movement of whole elements; only their width matters.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/catalog/operands.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

int64_t ElementBytes(const KernelCall& call, size_t input = 0) { return DTypeBytes(call.inputs[input].dtype); }

void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// The same elements in the same order with another shape.
void View(const KernelCall& call, const void* const* in, void* const* out) {
  CopyBytes(out[0], in[0], call.inputs[0].shape.elements() * ElementBytes(call));
}

// out[i] = in[strides . index(i)] over the shape of output 0, from element `start`.
void Gathered(const KernelCall& call, const void* const* in, void* const* out, const std::vector<int64_t>& strides, int64_t start = 0) {
  const Nest<1> nest(call.outputs[0].shape, {strides});
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    T* z = Out<T>(out, 0);
    nest.ForEachRow([&](int64_t n, const auto& offset, const auto& step) {
      const T* x = In<T>(in, 0) + start + offset[0];
      for (int64_t j = 0; j < n; ++j) z[j] = x[j * step[0]];
      z += n;
    });
  });
}

void Transpose(const KernelCall& call, const void* const* in, void* const* out) {
  const int rank = call.inputs[0].shape.rank();
  std::vector<int64_t> perm = call.attributes.Ints("perm");
  if (perm.empty()) {
    for (int axis = rank; axis-- > 0;) perm.push_back(axis);
  }
  const std::vector<int64_t> own = call.inputs[0].shape.strides();
  std::vector<int64_t> strides;
  for (int64_t axis : perm) strides.push_back(own[static_cast<size_t>(AxisOf(call, axis, rank))]);
  Gathered(call, in, out, strides);
}

void Expand(const KernelCall& call, const void* const* in, void* const* out) {
  Gathered(call, in, out, BroadcastStrides(call.inputs[0].shape, call.outputs[0].shape));
}

void Concat(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  const int64_t outer = Product(shape, 0, axis), inner = Product(shape, axis + 1, shape.rank()) * ElementBytes(call);
  char* z = Out<char>(out, 0);
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t k = 0; k < call.inputs.size(); ++k) {
      const int64_t bytes = call.inputs[k].shape[axis] * inner;
      CopyBytes(z, In<char>(in, k) + o * bytes, bytes);
      z += bytes;
    }
  }
}

void Split(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  const int64_t outer = Product(shape, 0, axis), inner = Product(shape, axis + 1, shape.rank()) * ElementBytes(call);
  // The extents of the parts come from the operand if it is given, because an unused output has no type here.
  std::vector<int64_t> parts = InputInts(call, in, 1);
  if (parts.empty()) {
    const int64_t count = std::max<int64_t>(call.attributes.Int("num_outputs", static_cast<int64_t>(call.outputs.size())), 1);
    const int64_t size = (shape[axis] + count - 1) / count;
    for (int64_t left = shape[axis], k = 0; k < count; ++k, left -= size) parts.push_back(std::clamp<int64_t>(left, 0, size));
  }
  const char* x = In<char>(in, 0);
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t k = 0; k < parts.size(); ++k) {
      const int64_t bytes = parts[k] * inner;
      if (HasOutput(call, k)) CopyBytes(Out<char>(out, k) + o * bytes, x, bytes);
      x += bytes;
    }
  }
}

// The first element and the step of a slice along each axis.
struct SliceRange {
  std::vector<int64_t> starts, steps;

  SliceRange(const KernelCall& call, const void* const* in, const Shape& shape, size_t first) {
    const std::vector<int64_t> at = InputInts(call, in, first);
    std::vector<int64_t> all(at.size());
    std::iota(all.begin(), all.end(), 0);
    const std::vector<int64_t> axes = InputInts(call, in, first + 2, all),
                               by = InputInts(call, in, first + 3, std::vector<int64_t>(at.size(), 1));
    starts.assign(static_cast<size_t>(shape.rank()), 0);
    steps.assign(static_cast<size_t>(shape.rank()), 1);
    for (size_t i = 0; i < at.size(); ++i) {
      const int axis = AxisOf(call, axes.at(i), shape.rank());
      const int64_t extent = shape[axis], step = by.at(i);
      if (step == 0) throw Error(ErrorCode::kValue, call.op + ": step 0");
      const int64_t start = at[i] < 0 ? at[i] + extent : at[i];
      starts[static_cast<size_t>(axis)] =
          step > 0 ? std::clamp<int64_t>(start, 0, extent) : std::clamp<int64_t>(start, 0, std::max<int64_t>(extent - 1, 0));
      steps[static_cast<size_t>(axis)] = step;
    }
  }

  // Converts the strides of a tensor to those of the slice, and returns the offset of its first element.
  int64_t Strides(std::vector<int64_t>& strides) const {
    int64_t first = 0;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      first += starts[axis] * strides[axis];
      // The step of an axis with one element may be anything: the product may wrap, as it is never used.
      strides[axis] = static_cast<int64_t>(static_cast<uint64_t>(strides[axis]) * static_cast<uint64_t>(steps[axis]));
    }
    return first;
  }
};

void Slice(const KernelCall& call, const void* const* in, void* const* out) {
  const SliceRange range(call, in, call.inputs[0].shape, 1);
  std::vector<int64_t> strides = call.inputs[0].shape.strides();
  const int64_t first = range.Strides(strides);
  Gathered(call, in, out, strides, first);
}

// gradloom.SliceGrad(grad, starts, ends, axes, steps): grad at the places that the slice read, 0 elsewhere.
void SliceGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const SliceRange range(call, in, shape, 1);
  std::vector<int64_t> strides = shape.strides();
  const int64_t first = range.Strides(strides);
  std::memset(out[0], 0, static_cast<size_t>(shape.elements() * DTypeBytes(call.outputs[0].dtype)));
  const Nest<1> nest(call.inputs[0].shape, {strides});
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(in, 0);
    nest.ForEachRow([&](int64_t n, const auto& offset, const auto& step) {
      T* z = Out<T>(out, 0) + first + offset[0];
      for (int64_t j = 0; j < n; ++j) z[j * step[0]] = x[j];
      x += n;
    });
  });
}

void Tile(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &from = call.inputs[0].shape, &to = call.outputs[0].shape;
  // Each axis becomes (repeat, extent): a broadcast over the repeats.
  Shape split;
  std::vector<int64_t> strides;
  const std::vector<int64_t> own = from.strides();
  for (int axis = 0; axis < from.rank(); ++axis) {
    split.push_back(from[axis] == 0 ? 0 : to[axis] / from[axis]);
    split.push_back(from[axis]);
    strides.push_back(0);
    strides.push_back(own[static_cast<size_t>(axis)]);
  }
  KernelCall wide = call;
  wide.outputs[0].shape = split;
  Gathered(wide, in, out, strides);
}

// DepthToSpace and back as a transpose of six axes: [n, b, b, c, h, w] or [n, c, b, b, h, w].
void DepthToSpace(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t b = call.attributes.Int("blocksize", 1), c = shape[1] / (b * b), h = shape[2], w = shape[3];
  const bool crd = call.attributes.String("mode", "DCR") == "CRD";
  const int64_t image = h * w;
  KernelCall wide = call;
  wide.outputs[0].shape = Shape{shape[0], c, h, b, w, b};
  if (crd)
    Gathered(wide, in, out, {shape[1] * image, b * b * image, w, b * image, 1, image});
  else
    Gathered(wide, in, out, {shape[1] * image, image, w, b * c * image, 1, c * image});
}

void SpaceToDepth(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t b = call.attributes.Int("blocksize", 1), c = shape[1], h = shape[2] / b, w = shape[3] / b;
  const bool crd = call.attributes.String("mode", "DCR") == "CRD";
  const int64_t row = w * b, image = h * b * row;
  KernelCall wide = call;
  if (crd) {
    wide.outputs[0].shape = Shape{shape[0], c, b, b, h, w};
    return Gathered(wide, in, out, {c * image, image, row, 1, b * row, b});
  }
  wide.outputs[0].shape = Shape{shape[0], b, b, c, h, w};
  Gathered(wide, in, out, {c * image, row, 1, image, b * row, b});
}

void Trilu(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int rank = shape.rank();
  const bool upper = call.attributes.Int("upper", 1) != 0;
  const std::vector<int64_t> diagonal = InputInts(call, in, 1);
  const int64_t rows = shape[rank - 2], columns = shape[rank - 1], count = Product(shape, 0, rank - 2);
  // All diagonals outside the matrix are equivalent; clamping avoids overflow.
  const int64_t k = diagonal.empty() ? 0 : std::clamp(diagonal[0], -rows - 1, columns + 1);
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const T* x = In<T>(in, 0);
    T* z = Out<T>(out, 0);
    for (int64_t s = 0; s < count; ++s) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j, ++x, ++z) *z = (upper ? j - i >= k : j - i <= k) ? *x : T{0};
      }
    }
  });
}

void ReverseSequence(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int batch = AxisOf(call, call.attributes.Int("batch_axis", 1), shape.rank());
  const int time = AxisOf(call, call.attributes.Int("time_axis", 0), shape.rank());
  const std::vector<int64_t> lengths = InputInts(call, in, 1), strides = shape.strides();
  for (int64_t length : lengths) {
    if (length < 0 || length > shape[time]) {
      throw Error(ErrorCode::kData,
                  "ReverseSequence: length " + std::to_string(length) + " on a time axis of " + std::to_string(shape[time]));
    }
  }
  const int64_t n = shape.elements(), step = strides[static_cast<size_t>(time)];
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t t = i / step % shape[time], b = i / strides[static_cast<size_t>(batch)] % shape[batch];
      const int64_t length = lengths.at(static_cast<size_t>(b));
      Out<T>(out, 0)[i] = In<T>(in, 0)[t < length ? i + (length - 1 - 2 * t) * step : i];
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Concat", "", Concat},
    {"DepthToSpace", "", DepthToSpace},
    {"Expand", "", Expand},
    {"Flatten", "", View},
    {"Reshape", "", View},
    {"ReverseSequence", "", ReverseSequence},
    {"Slice", "", Slice},
    {"SliceGrad", "gradloom", SliceGrad},
    {"SpaceToDepth", "", SpaceToDepth},
    {"Split", "", Split},
    {"Squeeze", "", View},
    {"Tile", "", Tile},
    {"Transpose", "", Transpose},
    {"Trilu", "", Trilu},
    {"Unsqueeze", "", View},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceShape() { return kKernels; }

}  // namespace gradloom
