// Results with as many elements as the data of a step determines, in tensors with room for the largest possible number. The valid elements
// come first; the rest is filled with copies of the first one.
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/counted.cuh"
#include "kernels/cuda/extents.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/merge_sort.cuh"

namespace gradloom::cuda {
namespace {

using cuda_rows::CountedParts;
using cuda_rows::SlicesAlong;

// In rows of `room` numbers, fills the elements from `count` on with the first element, or with zeros if count is 0.
void PadRows(int64_t rows, int64_t room, const int64_t* count, int64_t* numbers, cudaStream_t stream) {
  ForEachElement(
      rows * room, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient row = Divide(i, room);
        if (row.rest >= *count) numbers[i] = *count > 0 ? numbers[row.quotient * room] : 0;
      });
}

void Write(const int64_t* number, int64_t* to, cudaStream_t stream) {
  if (to == nullptr) return;
  ForEachElement(
      1, stream, GRADLOOM_ON_DEVICE(int64_t) { *to = *number; });
}

// An element is nonzero if it has a bit in the mask.
template <typename T>
struct HasBits {
  const T* x;
  T mask;
  GRADLOOM_DEVICE bool operator()(int64_t i) const { return (x[i] & mask) != 0; }
};

// Writes the indices of kept elements, one row per axis.
struct WriteIndices {
  IndexCalculator index_of;
  int64_t room;
  int64_t* out;  // may be null

  GRADLOOM_DEVICE void operator()(int64_t i, int64_t before, bool kept) const {
    if (!kept || out == nullptr) return;
    int64_t index[kMaxAxes] = {};
    index_of(i, index);
    for (int axis = 0; axis < index_of.rank || axis == 0; ++axis) out[axis * room + before] = index[axis];
  }
};

std::unique_ptr<Kernel> MakeNonZero(const KernelCall& call, const KernelSite&) {
  const Shape& shape = call.inputs[0].shape;
  const DType dtype = call.inputs[0].dtype;
  const CountedParts counted{shape.elements()};
  const int64_t rows = std::max(shape.rank(), 1);
  const bool has_indices = Has(call.outputs, 0), has_count = Has(call.outputs, 1);
  return WithBytes(dtype, [&]<typename T>(std::type_identity<T>) {
    // Ignores the sign, because negative zero is zero.
    const T mask = IsFloating(dtype) ? static_cast<T>(static_cast<T>(~T{0}) >> 1) : static_cast<T>(~T{0});
    return MakeKernel([=, index_of = IndexCalculator(shape)](const Launch& l) {
      int64_t *const totals = static_cast<int64_t*>(l.scratch), *const count = totals + counted.parts();
      int64_t* const out = has_indices ? l.Out<int64_t>(0) : nullptr;
      ForEachCounted(counted, totals, l.stream, HasBits<T>{l.In<T>(0), mask}, WriteIndices{index_of, counted.n, out});
      if (has_indices) PadRows(rows, counted.n, count, out, l.stream);
      Write(count, has_count ? l.Out<int64_t>(1) : nullptr, l.stream);
    });
  });
}

// Maps an element to an integer with the same order: NaNs are equal to each other and larger than all else, both zeros are equal.
struct OrderedElements {
  const void* data;
  DType dtype;

  GRADLOOM_DEVICE uint64_t operator()(int64_t i) const {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    switch (dtype) {
      case DType::kFloat16:
      case DType::kBfloat16:
      case DType::kFloat32:
      case DType::kFloat64: break;
      case DType::kUint64: return static_cast<const uint64_t*>(data)[i];
      default: return static_cast<uint64_t>(LoadAs<int64_t>(data, dtype, i)) ^ kSign;
    }
    union {
      double value;
      uint64_t bits;
    } number{LoadAs<double>(data, dtype, i) + 0.0};
    if (number.value != number.value) return ~uint64_t{0};
    return (number.bits & kSign) != 0 ? ~number.bits : number.bits | kSign;
  }
};

// Slices of a tensor, compared lexicographically.
struct Slices {
  SlicesAlong along;
  OrderedElements x;

  // Negative, zero or positive, if a is less than, equal to or greater than b.
  GRADLOOM_DEVICE int Compare(int64_t a, int64_t b) const {
    for (int64_t o = 0; o < along.outer; ++o) {
      for (int64_t i = 0; i < along.inner; ++i) {
        const uint64_t p = x((o * along.count + a) * along.inner + i), q = x((o * along.count + b) * along.inner + i);
        if (p != q) return p < q ? -1 : 1;
      }
    }
    return 0;
  }
  GRADLOOM_DEVICE bool operator()(int64_t a, int64_t b) const { return Compare(a, b) < 0; }
};

// The scratch memory: see SlicesAlong::kLists.
struct UniqueScratch {
  int64_t *order, *spare, *group, *first, *begin, *number, *totals;

  UniqueScratch(void* scratch, int64_t n) {
    auto* const at = static_cast<int64_t*>(scratch);
    order = at, spare = at + n, group = at + 2 * n, first = at + 3 * n, begin = at + 4 * n, number = at + 5 * n, totals = at + 6 * n;
  }
};

// A sorted slice that differs from the previous one starts a group.
struct BeginsGroup {
  Slices slices;
  const int64_t* order;
  GRADLOOM_DEVICE bool operator()(int64_t s) const { return s == 0 || slices.Compare(order[s - 1], order[s]) != 0; }
};
struct WriteGroup {
  UniqueScratch to;
  const int64_t* order;
  GRADLOOM_DEVICE void operator()(int64_t s, int64_t before, bool begins) const {
    const int64_t group = begins ? before : before - 1;
    to.group[order[s]] = group;
    if (!begins) return;
    to.first[group] = order[s];
    to.begin[group] = s;
    to.number[group] = group;
  }
};

// Numbers the groups in the order of their first slices.
struct IsFirst {
  UniqueScratch from;
  GRADLOOM_DEVICE bool operator()(int64_t i) const { return from.first[from.group[i]] == i; }
};
struct WriteNumber {
  UniqueScratch to;
  GRADLOOM_DEVICE void operator()(int64_t i, int64_t before, bool first) const {
    if (first) to.number[to.group[i]] = before;
  }
};

// Writes the first slice and the size of each group, and the group of each slice. Outputs may be null.
void WriteGroups(int64_t n, const UniqueScratch& from, const int64_t* count, int64_t* first, int64_t* group, int64_t* counts,
                 cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        if (group != nullptr) group[i] = from.number[from.group[i]];
        if (i >= *count) return;
        const int64_t at = from.number[i], end = i + 1 < *count ? from.begin[i + 1] : n;
        if (first != nullptr) first[at] = from.first[i];
        if (counts != nullptr) counts[at] = end - from.begin[i];
      });
}

std::unique_ptr<Kernel> MakeUnique(const KernelCall& call, const KernelSite&) {
  const SlicesAlong along(call);
  const DType dtype = call.inputs[0].dtype;
  const bool sorted = call.attributes.Int("sorted", 1) != 0;
  const OperandCounts operands(call);
  return MakeKernel([=](const Launch& l) {
    const int64_t n = along.count;
    const UniqueScratch scratch(l.scratch, n);
    const Slices slices{along, {l.inputs[0], dtype}};
    const CountedParts counted{n};
    const int64_t *const order = MergeSort(n, n, scratch.order, scratch.spare, l.stream, slices), *const count =
                                                                                                      scratch.totals + counted.parts();
    ForEachCounted(counted, scratch.totals, l.stream, BeginsGroup{slices, order}, WriteGroup{scratch, order});
    if (!sorted) ForEachCounted(counted, scratch.totals, l.stream, IsFirst{scratch}, WriteNumber{scratch});
    int64_t *const first = operands.Out<int64_t>(l, 0), *const counts = operands.Out<int64_t>(l, 2);
    WriteGroups(n, scratch, count, first, operands.Out<int64_t>(l, 1), counts, l.stream);
    for (int64_t* padded : {first, counts}) {
      if (padded != nullptr) PadRows(1, n, count, padded, l.stream);
    }
    Write(count, operands.Out<int64_t>(l, 3), l.stream);
  });
}

void Compare(const int64_t* a, const int64_t* b, int64_t* out, const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      1, stream, GRADLOOM_ON_DEVICE(int64_t) {
        if (*a != *b) Report(fault.fault, fault.site, kUnequalExtents, *a, *b);
        *out = *a;
      });
}

std::unique_ptr<Kernel> MakeSameExtent(const KernelCall&, const KernelSite& site) {
  return MakeKernel(
      [fault = IndexFault(site)](const Launch& l) { Compare(l.In<int64_t>(0), l.In<int64_t>(1), l.Out<int64_t>(0), fault, l.stream); });
}

// A tensor of which only the elements below given extents are valid.
struct CountedShape {
  IndexCalculator full;
  AxisArray strides;
  const int64_t* extents = nullptr;

  explicit CountedShape(const Shape& shape) : full(shape), strides(shape.strides()) {}
  CountedShape With(const int64_t* below) const {
    CountedShape with = *this;
    with.extents = below;
    return with;
  }

  // The number of valid elements; -1 if an extent exceeds the tensor, which is reported.
  GRADLOOM_DEVICE int64_t Count(const IndexFault& fault) const {
    int64_t count = 1;
    for (int axis = 0; axis < full.rank; ++axis) {
      if (extents[axis] < 0 || extents[axis] > full.extents[axis]) {
        Report(fault.fault, fault.site, kCapacityExceeded, extents[axis], full.extents[axis]);
        return -1;
      }
      count *= extents[axis];
    }
    return count;
  }
  // The number of the element at `offset` among the valid ones, or -1 if it is not valid.
  GRADLOOM_DEVICE int64_t NumberOf(int64_t offset) const {
    int64_t index[kMaxAxes], number = 0;
    full(offset, index);
    for (int axis = 0; axis < full.rank; ++axis) {
      if (index[axis] >= extents[axis]) return -1;
      number = number * extents[axis] + index[axis];
    }
    return number;
  }
  GRADLOOM_DEVICE int64_t OffsetOf(int64_t number) const {
    int64_t offset = 0;
    for (int axis = full.rank - 1; axis >= 0; --axis) {
      const Quotient at = Divide(number, extents[axis]);
      offset += at.rest * strides[axis];
      number = at.quotient;
    }
    return offset;
  }
};

template <typename T>
void Repack(int64_t n, const CountedShape& from, const CountedShape& to, bool repeat, const T* x, T* y, const IndexFault& fault,
            cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t count = from.Count(fault), wanted = to.Count(fault);
        if (count < 0 || count != wanted) {
          Report(fault.fault, fault.site, kUnequalCounts, count, wanted);
          y[i] = T{0};
          return;
        }
        const int64_t number = to.NumberOf(i);
        y[i] = number >= 0 ? x[from.OffsetOf(number)] : repeat && count > 0 ? x[0] : T{0};
      });
}

std::unique_ptr<Kernel> MakeRepack(const KernelCall& call, const KernelSite& site) {
  const bool repeat = call.attributes.Int("repeat", 1) != 0;
  const int64_t n = call.outputs[0].shape.elements();
  return WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, from = CountedShape(call.inputs[0].shape), to = CountedShape(call.outputs[0].shape),
                       fault = IndexFault(site)](const Launch& l) {
      Repack(n, from.With(l.In<int64_t>(1)), to.With(l.In<int64_t>(2)), repeat, l.In<T>(0), l.Out<T>(0), fault, l.stream);
    });
  });
}

constexpr CudaKernel kExtentKernels[] = {
    {"cuda.gradloom.NonMaxSuppression", MakeNonMaxSuppression},
    {"cuda.gradloom.NonZero", MakeNonZero},
    {"cuda.gradloom.Repack", MakeRepack},
    {"cuda.gradloom.SameExtent", MakeSameExtent},
    {"cuda.gradloom.Unique", MakeUnique},
};

}  // namespace

std::span<const CudaKernel> ExtentKernels() { return kExtentKernels; }

}  // namespace gradloom::cuda
