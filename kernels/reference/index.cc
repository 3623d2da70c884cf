// Elements by index: gathers, scatters and their gradients. Sums are in index order.
#include <algorithm>
#include <cstring>

#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/scatter_reduction.h"

namespace gradloom {
namespace {

// Index operand `i`, converted to [0, extent).
std::vector<int64_t> CheckedIndices(const KernelCall& call, const void* const* in, size_t i, int64_t extent) {
  std::vector<int64_t> positions = InputInts(call, in, i);
  for (int64_t& position : positions) position = CheckedIndex(call, position, extent);
  return positions;
}

void Gather(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  const int64_t outer = Product(shape, 0, axis), extent = shape[axis];
  const int64_t bytes = Product(shape, axis + 1, shape.rank()) * DTypeBytes(call.inputs[0].dtype);
  const std::vector<int64_t> positions = CheckedIndices(call, in, 1, extent);
  char* z = Out<char>(out, 0);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t position : positions) {
      if (bytes > 0) std::memcpy(z, In<char>(in, 0) + (o * extent + position) * bytes, static_cast<size_t>(bytes));
      z += bytes;
    }
  }
}

// gradloom.GatherGrad(indices, grad) {axis, shape}: adds rows of grad to the rows of `shape` that they were gathered from.
void GatherGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  const int64_t outer = Product(shape, 0, axis), extent = shape[axis], inner = Product(shape, axis + 1, shape.rank());
  const std::vector<int64_t> positions = CheckedIndices(call, in, 0, extent);
  WithNumber(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using Sum = Accumulator<T>;
    std::vector<Sum> sums(static_cast<size_t>(extent * inner));
    const T* x = In<T>(in, 1);
    T* z = Out<T>(out, 0);
    for (int64_t o = 0; o < outer; ++o) {
      std::fill(sums.begin(), sums.end(), Sum{0});
      for (int64_t position : positions) {
        for (int64_t j = 0; j < inner; ++j) sums[static_cast<size_t>(position * inner + j)] += static_cast<Sum>(*x++);
      }
      for (Sum sum : sums) *z++ = static_cast<T>(static_cast<Arithmetic<T>>(sum));
    }
  });
}

// Calls f(i, position) for each element i of the indices. `position` is that in a tensor of `shape`, which may differ from the shape of
// the indices only along `axis`.
template <typename F>
void ForEachElementOffset(const KernelCall& call, const void* const* in, const Shape& shape, F&& f) {
  const Shape& indices = call.inputs[1].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  bool fits = indices.rank() == shape.rank();
  for (int a = 0; fits && a < shape.rank(); ++a) fits = a == axis || indices[a] <= shape[a];
  if (!fits) throw Error(ErrorCode::kShape, call.op + ": indices " + indices.ToString() + " do not fit into " + shape.ToString());
  const std::vector<int64_t> strides = shape.strides(), values = CheckedIndices(call, in, 1, shape[axis]);
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t position = 0, rest = static_cast<int64_t>(i);
    for (int a = shape.rank(); a-- > 0;) {
      position += (a == axis ? values[i] : rest % indices[a]) * strides[static_cast<size_t>(a)];
      rest /= indices[a];
    }
    f(static_cast<int64_t>(i), position);
  }
}

void GatherElements(const KernelCall& call, const void* const* in, void* const* out) {
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    ForEachElementOffset(call, in, call.inputs[0].shape, [&](int64_t i, int64_t position) { Out<T>(out, 0)[i] = In<T>(in, 0)[position]; });
  });
}

// Calls f(i, position, n) for each index tuple i, which selects the n consecutive elements of `shape` from `position` on.
template <typename F>
void ForEachTupleOffset(const KernelCall& call, const void* const* in, const Shape& shape, int batch_dims, F&& f) {
  const Shape& indices = call.inputs[1].shape;
  const int width = static_cast<int>(indices[indices.rank() - 1]);
  bool fits = batch_dims >= 0 && batch_dims + width <= shape.rank() && batch_dims < indices.rank();
  for (int axis = 0; fits && axis < batch_dims; ++axis) fits = indices[axis] == shape[axis];
  if (!fits) throw Error(ErrorCode::kShape, call.op + ": index tuples " + indices.ToString() + " do not fit " + shape.ToString());
  const std::vector<int64_t> strides = shape.strides(), values = InputInts(call, in, 1);
  const int64_t n = Product(shape, batch_dims + width, shape.rank()), batch = Product(shape, batch_dims, shape.rank());
  const int64_t tuples = Product(indices, 0, indices.rank() - 1), batches = Product(shape, 0, batch_dims);
  for (int64_t i = 0; i < tuples; ++i) {
    int64_t position = i / (tuples / batches) * batch;
    for (int k = 0; k < width; ++k) {
      const int axis = batch_dims + k;
      position += CheckedIndex(call, values[static_cast<size_t>(i * width + k)], shape[axis]) * strides[static_cast<size_t>(axis)];
    }
    f(i, position, n);
  }
}

void GatherNd(const KernelCall& call, const void* const* in, void* const* out) {
  const int64_t bytes = DTypeBytes(call.inputs[0].dtype);
  const int batch_dims = static_cast<int>(call.attributes.Int("batch_dims", 0));
  ForEachTupleOffset(call, in, call.inputs[0].shape, batch_dims, [&](int64_t i, int64_t position, int64_t n) {
    if (n > 0) std::memcpy(Out<char>(out, 0) + i * n * bytes, In<char>(in, 0) + position * bytes, static_cast<size_t>(n * bytes));
  });
}

// gradloom.GatherNDGrad(indices, grad) {batch_dims, shape}: the same for index tuples.
void GatherNdGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.outputs[0].shape;
  // As if the output were the data of GatherND, whose indices are the second input.
  KernelCall gather = call;
  gather.inputs = {call.outputs[0], call.inputs[0]};
  const void* const operands[] = {out[0], in[0]};
  WithNumber(call.outputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using Sum = Accumulator<T>;
    std::vector<Sum> sums(static_cast<size_t>(shape.elements()), Sum{0});
    const T* x = In<T>(in, 1);
    ForEachTupleOffset(gather, operands, shape, static_cast<int>(call.attributes.Int("batch_dims", 0)),
                       [&](int64_t, int64_t position, int64_t n) {
                         for (int64_t j = 0; j < n; ++j) sums[static_cast<size_t>(position + j)] += static_cast<Sum>(*x++);
                       });
    for (size_t i = 0; i < sums.size(); ++i) Out<T>(out, 0)[i] = static_cast<T>(static_cast<Arithmetic<T>>(sums[i]));
  });
}

template <typename T>
T Combined(ScatterReduction reduction, T old, T update) {
  using A = std::conditional_t<std::is_integral_v<T>, uint64_t, Arithmetic<T>>;
  switch (reduction) {
    case ScatterReduction::kNone: return update;
    case ScatterReduction::kAdd: return static_cast<T>(static_cast<A>(old) + static_cast<A>(update));
    case ScatterReduction::kMul: return static_cast<T>(static_cast<A>(old) * static_cast<A>(update));
    case ScatterReduction::kMax: return old > update || old != old ? old : update;
    case ScatterReduction::kMin: return old < update || old != old ? old : update;
  }
  return update;
}

// Copies the data, then calls scatter(combine): combine(position, i) applies update element i at `position`.
template <typename Scatter>
void ScatterInto(const KernelCall& call, const void* const* in, void* const* out, Scatter&& scatter) {
  const ScatterReduction reduction = ScatterReductionOf(call);
  const int64_t bytes = call.inputs[0].shape.elements() * DTypeBytes(call.inputs[0].dtype);
  if (bytes > 0) std::memcpy(out[0], in[0], static_cast<size_t>(bytes));
  const auto run = [&]<typename T>(std::type_identity<T>) {
    if constexpr (kIsHalf<T>) {
      if (reduction == ScatterReduction::kAdd || reduction == ScatterReduction::kMul) {
        // Totals in 16 bits are rounded once.
        std::vector<float> totals(static_cast<size_t>(call.inputs[0].shape.elements()));
        for (size_t i = 0; i < totals.size(); ++i) totals[i] = static_cast<float>(In<T>(in, 0)[i]);
        scatter([&](int64_t position, int64_t i) {
          float& total = totals[static_cast<size_t>(position)];
          total = Combined<float>(reduction, total, static_cast<float>(In<T>(in, 2)[i]));
        });
        for (size_t i = 0; i < totals.size(); ++i) Out<T>(out, 0)[i] = static_cast<T>(totals[i]);
        return;
      }
    }
    scatter([&](int64_t position, int64_t i) {
      T& element = Out<T>(out, 0)[position];
      element = Combined<T>(reduction, element, In<T>(in, 2)[i]);
    });
  };
  if (reduction == ScatterReduction::kNone)
    WithBytes(call.inputs[0].dtype, run);
  else
    WithType(call.inputs[0].dtype, run);
}

[[noreturn]] void BadUpdates(const KernelCall& call) {
  throw Error(ErrorCode::kShape, call.op + ": updates " + call.inputs[2].shape.ToString() + " do not fit indices " +
                                     call.inputs[1].shape.ToString() + " into " + call.inputs[0].shape.ToString());
}

void ScatterElements(const KernelCall& call, const void* const* in, void* const* out) {
  if (call.inputs[2].shape != call.inputs[1].shape) BadUpdates(call);
  ScatterInto(call, in, out, [&](auto combine) {
    ForEachElementOffset(call, in, call.inputs[0].shape, [&](int64_t i, int64_t position) { combine(position, i); });
  });
}

void ScatterNd(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape &shape = call.inputs[0].shape, &indices = call.inputs[1].shape;
  const int64_t width = indices.rank() == 0 ? 0 : indices[indices.rank() - 1];
  if (indices.rank() == 0 || width > shape.rank()) BadUpdates(call);
  const int64_t n = Product(shape, static_cast<int>(width), shape.rank());
  if (call.inputs[2].shape.elements() != Product(indices, 0, indices.rank() - 1) * n) BadUpdates(call);
  ScatterInto(call, in, out, [&](auto combine) {
    ForEachTupleOffset(call, in, call.inputs[0].shape, 0, [&](int64_t i, int64_t position, int64_t n) {
      for (int64_t j = 0; j < n; ++j) combine(position + j, i * n + j);
    });
  });
}

// The indices of nonzero elements, one row per axis.
void NonZero(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t count = call.outputs[0].shape[1], n = shape.elements();
  const std::vector<int64_t> strides = shape.strides();
  int64_t found = 0;
  WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t i = 0; i < n; ++i) {
      if (static_cast<Arithmetic<T>>(In<T>(in, 0)[i]) == 0) continue;
      if (found == count) throw Error(ErrorCode::kData, "NonZero: more elements than its output has room for");
      for (int axis = 0; axis < std::max(shape.rank(), 1); ++axis) {
        Out<int64_t>(out, 0)[axis * count + found] = shape.rank() == 0 ? 0 : i / strides[static_cast<size_t>(axis)] % shape[axis];
      }
      ++found;
    }
  });
  if (found != count) throw Error(ErrorCode::kData, "NonZero: fewer elements than its output has room for");
}

void Compress(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const bool flat = !call.attributes.has("axis");
  const int axis = flat ? 0 : AxisOf(call, call.attributes.Int("axis", 0), shape.rank());
  const int64_t outer = flat ? 1 : Product(shape, 0, axis), extent = flat ? shape.elements() : shape[axis];
  const int64_t bytes = (flat ? 1 : Product(shape, axis + 1, shape.rank())) * DTypeBytes(call.inputs[0].dtype);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < call.inputs[1].shape.elements(); ++i) {
    if (In<bool>(in, 1)[i]) positions.push_back(CheckedIndex(call, i, extent));
  }
  if (static_cast<int64_t>(positions.size()) != call.outputs[0].shape[axis]) {
    throw Error(ErrorCode::kData, "Compress: the condition keeps " + std::to_string(positions.size()) + " elements, not " +
                                      std::to_string(call.outputs[0].shape[axis]));
  }
  char* z = Out<char>(out, 0);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t position : positions) {
      if (bytes > 0) std::memcpy(z, In<char>(in, 0) + (o * extent + position) * bytes, static_cast<size_t>(bytes));
      z += bytes;
    }
  }
}

// The k largest or smallest elements along an axis, sorted; of equal elements, the first comes first.
void TopK(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int axis = AxisOf(call, call.attributes.Int("axis", -1), shape.rank());
  const bool largest = call.attributes.Int("largest", 1) != 0;
  const int64_t outer = Product(shape, 0, axis), n = shape[axis], inner = Product(shape, axis + 1, shape.rank());
  const int64_t k = InputInts(call, in, 1).at(0);
  if (k < 0 || k > n) throw Error(ErrorCode::kValue, "TopK: k " + std::to_string(k) + " of " + std::to_string(n) + " elements");
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const T* x = In<T>(in, 0) + o * n * inner + i;
        for (int64_t j = 0; j < n; ++j) order[static_cast<size_t>(j)] = j;
        // NaN counts as the largest, which makes this a strict weak ordering.
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t p, int64_t q) {
          const A a = static_cast<A>(x[p * inner]), b = static_cast<A>(x[q * inner]);
          const bool greater = (a != a && b == b) || a > b, less = (b != b && a == a) || a < b;
          return largest ? greater || (!less && p < q) : less || (!greater && p < q);
        });
        for (int64_t j = 0; j < k; ++j) {
          const int64_t at = (o * k + j) * inner + i, from = order[static_cast<size_t>(j)];
          if (Has(call.outputs, 0)) Out<T>(out, 0)[at] = x[from * inner];
          if (Has(call.outputs, 1)) Out<int64_t>(out, 1)[at] = from;
        }
      }
    }
  });
}

// gradloom.SetRow(x, i, row)
void SetRow(const KernelCall& call, const void* const* in, void* const* out) {
  const int64_t position = CheckedIndex(call, *In<int64_t>(in, 1), call.inputs[0].shape[0]);
  const int64_t all = call.outputs[0].bytes(), bytes = call.inputs[2].bytes();
  if (all > 0) std::memcpy(out[0], in[0], static_cast<size_t>(all));
  if (bytes > 0) std::memcpy(Out<char>(out, 0) + position * bytes, in[2], static_cast<size_t>(bytes));
}

constexpr ReferenceKernel kKernels[] = {
    {"Compress", "", Compress},
    {"NonZero", "", NonZero},
    {"Gather", "", Gather},
    {"GatherElements", "", GatherElements},
    {"GatherGrad", "gradloom", GatherGrad},
    {"GatherND", "", GatherNd},
    {"GatherNDGrad", "gradloom", GatherNdGrad},
    {"ScatterElements", "", ScatterElements},
    {"ScatterND", "", ScatterNd},
    {"SetRow", "gradloom", SetRow},
    {"TopK", "", TopK},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceIndex() { return kKernels; }

}  // namespace gradloom
