// Rows that are added to, or otherwise combined with, rows selected by index: the gradients of gathers, and the scatters.
//
// Floating-point sums must not depend on timing, so updates are first sorted by target, stably: tiles of 256 by a block each, then 16
// sorted lists at a time into one, which takes two passes for 65,536 updates. Then each thread processes a run of 32 updates of a few
// columns in sorted order. If the updates of a target extend over several runs, the thread of the first run combines the partial sums. So
// each update is read once, however the updates are distributed.
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/merge_sort.cuh"
#include "kernels/cuda/rows/scattering.h"
#include "kernels/cuda/shared.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/reference/scatter_reduction.h"

namespace gradloom::cuda {
namespace {

// The target rows of updates, and the numbers of the updates. In a sorted list, targets are ascending, and so are the numbers of each
// target.
struct UpdateList {
  struct Item {
    int64_t target, number;
  };

  int64_t* targets = nullptr;
  int64_t* numbers = nullptr;

  GRADLOOM_DEVICE Item Get(int64_t position) const { return {targets[position], numbers[position]}; }
  GRADLOOM_DEVICE void Set(int64_t position, const Item& item) const {
    targets[position] = item.target;
    numbers[position] = item.number;
  }
};

struct ByTarget {
  GRADLOOM_DEVICE bool operator()(const UpdateList::Item& a, const UpdateList::Item& b) const { return a.target < b.target; }
};

// The scratch memory described in rows/scattering.h.
struct ScatterScratch {
  UpdateList lists[2];
  void* sums;

  ScatterScratch(const Scattering& s, void* scratch) {
    auto* at = static_cast<int64_t*>(scratch);
    for (UpdateList& list : lists) {
      list = {at, at + s.count};
      at += 2 * s.count;
    }
    sums = at;
  }
};

constexpr int kTile = Scattering::kTile;
static_assert(kTile == kThreads);

// Finds the targets of updates, and sorts them in tiles. Indices that are out of range get the target `extent`, which sorts last.
template <typename P>
void SortTiles(const Scattering& s, const Indices& indices, const P& indexer, const UpdateList& list, const IndexFault& fault,
               cudaStream_t stream) {
  const int64_t nowhere = s.extent, count = s.count;
  ForEachRow((count + kTile - 1) / kTile, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t tile) {
    int64_t* const targets = Shared<0, int64_t, kTile>();
    const int64_t begin = tile * kTile, left = count - begin;
    const int n = left < kTile ? static_cast<int>(left) : kTile, mine = block.thread();
    const int64_t found = mine < n ? indexer(indices, begin + mine, fault) : -1, target = found < 0 ? nowhere : found;
    block.Sync();  // the block's previous tile has been read
    targets[mine] = target;
    block.Sync();
    if (mine >= n) return;
    int rank = 0;
    for (int k = 0; k < n; ++k) rank += targets[k] < target + (k < mine ? 1 : 0) ? 1 : 0;
    list.Set(begin + rank, {target, begin + mine});
  });
}

template <typename A>
GRADLOOM_DEVICE A Combine(ScatterReduction reduction, A old, A update) {
  using Wide = std::conditional_t<std::is_integral_v<A>, uint64_t, A>;
  switch (reduction) {
    case ScatterReduction::kNone: return update;
    case ScatterReduction::kAdd: return static_cast<A>(static_cast<Wide>(old) + static_cast<Wide>(update));
    case ScatterReduction::kMul: return static_cast<A>(static_cast<Wide>(old) * static_cast<Wide>(update));
    case ScatterReduction::kMax: return old > update || old != old ? old : update;
    case ScatterReduction::kMin: return old < update || old != old ? old : update;
  }
  return update;
}

// Sorted updates, and the memory for their partial sums.
template <typename T>
struct SortedUpdates {
  using A = Arithmetic<T>;
  static constexpr int64_t kRun = Scattering::kRun;

  ScatterReduction reduction;
  bool adds_to_zeros;  // the output
  int64_t outer, count, extent, inner, runs;
  UpdateList list;
  const T* updates;
  T* out;
  A* sums;  // by part, run, whether the target's updates begin in the run, and column

  SortedUpdates(const Scattering& s, ScatterReduction by, bool to_zeros, const UpdateList& sorted, const void* from, void* to,
                void* unfinished)
      : reduction(by),
        adds_to_zeros(to_zeros),
        outer(s.outer),
        count(s.count),
        extent(s.extent),
        inner(s.inner),
        runs(s.Runs()),
        list(sorted),
        updates(static_cast<const T*>(from)),
        out(static_cast<T*>(to)),
        sums(static_cast<A*>(unfinished)) {}

  GRADLOOM_DEVICE A& Sum(int64_t part, int64_t run, int place_begins, int64_t column) const {
    return sums[((part * runs + run) * 2 + place_begins) * inner + column];
  }
  GRADLOOM_DEVICE void Finish(int64_t part, int64_t target, int64_t column, A total) const {
    if (target == extent) return;
    T& element = out[(part * extent + target) * inner + column];
    element = static_cast<T>(Combine(reduction, adds_to_zeros ? A(0) : static_cast<A>(element), total));
  }
  GRADLOOM_DEVICE int64_t End(int64_t run) const { return (run + 1) * kRun < count ? (run + 1) * kRun : count; }
  GRADLOOM_DEVICE bool BeginsAt(int64_t p) const { return p == 0 || list.targets[p - 1] != list.targets[p]; }

  // Neighboring columns of the combined updates of a target.
  template <int kWidth>
  struct Total {
    int64_t target;
    bool begins;  // in this run
    A at[kWidth];
  };

  // Stores the total of the updates in this run, which are all if the target also ends here.
  template <int kWidth>
  GRADLOOM_DEVICE void Store(int64_t part, int64_t run, int64_t column, const Total<kWidth>& total, bool ends) const {
    if (!total.begins || !ends) {
      for (int c = 0; c < kWidth; ++c) Sum(part, run, total.begins ? 1 : 0, column + c) = total.at[c];
    } else if (adds_to_zeros && total.target != extent) {
      AlignedVector<T, kWidth> results;
      for (int c = 0; c < kWidth; ++c) results.at[c] = static_cast<T>(Combine(reduction, A(0), total.at[c]));
      *reinterpret_cast<AlignedVector<T, kWidth>*>(out + (part * extent + total.target) * inner + column) = results;
    } else {
      for (int c = 0; c < kWidth; ++c) Finish(part, total.target, column + c, total.at[c]);
    }
  }

  // Combines the updates of a run, target by target, in kWidth columns. Several loads are in flight at a time.
  template <int kWidth>
  GRADLOOM_DEVICE void CombineRun(int64_t part, int64_t run, int64_t column) const {
    constexpr int kAtOnce = 4;
    static_assert(kRun % kAtOnce == 0);
    using Vector = AlignedVector<T, kWidth>;
    const int64_t begin = run * kRun, end = End(run);
    Total<kWidth> total{list.targets[begin], BeginsAt(begin), {}};
    for (int64_t first = begin; first < end; first += kAtOnce) {
      int64_t targets[kAtOnce];
      Vector loaded[kAtOnce];
      GRADLOOM_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t p = first + k < end ? first + k : end - 1;
        targets[k] = list.targets[p];
        loaded[k] = *reinterpret_cast<const Vector*>(updates + (part * count + list.numbers[p]) * inner + column);
      }
      GRADLOOM_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k >= end) continue;
        const bool starts = first + k == begin || targets[k] != total.target;
        if (starts && first + k != begin) {
          Store(part, run, column, total, true);
          total.target = targets[k];
          total.begins = true;
        }
        GRADLOOM_UNROLL
        for (int c = 0; c < kWidth; ++c) {
          const A update = static_cast<A>(loaded[k].at[c]);
          total.at[c] = starts ? update : Combine(reduction, total.at[c], update);
        }
      }
    }
    Store(part, run, column, total, end == count || list.targets[end] != total.target);
  }

  // Completes the target that begins in this run and continues in the next ones, if there is one.
  GRADLOOM_DEVICE void JoinRun(int64_t part, int64_t run, int64_t column) const {
    const int64_t end = End(run), target = list.targets[end - 1];
    if (end == count || list.targets[end] != target) return;
    if (list.targets[run * kRun] == target && !BeginsAt(run * kRun)) return;
    // The last update of the target is in [low, high).
    int64_t low = end, step = 1;
    for (; low + step < count && list.targets[low + step] == target; step *= 2) low += step;
    int64_t high = low + step < count ? low + step : count;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (list.targets[middle] == target ? low : high) = middle;
    }
    const int64_t last = Divide(low, kRun).quotient;
    A total = Sum(part, run, 1, column);
    for (int64_t next = run + 1; next <= last; ++next) total = Combine(reduction, total, Sum(part, next, 0, column));
    Finish(part, target, column, total);
  }
};

template <int kWidth, typename T>
void CombineRuns(const SortedUpdates<T>& sorted, cudaStream_t stream) {
  const int64_t vectors = sorted.inner / kWidth;
  ForEachElement(
      sorted.outer * sorted.runs * vectors, stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const Quotient at = Divide(e, vectors), part = Divide(at.quotient, sorted.runs);
        sorted.template CombineRun<kWidth>(part.quotient, part.rest, at.rest * kWidth);
      });
}

// Rows of the usual types of gradients are read 16 bytes at a time, if their length permits.
template <typename T>
void CombineRuns(const SortedUpdates<T>& sorted, cudaStream_t stream) {
  if constexpr (std::is_same_v<T, float> || kIsHalf<T>) {
    constexpr int kWidth = 16 / sizeof(T);
    if (sorted.inner % kWidth == 0) return CombineRuns<kWidth>(sorted, stream);
  }
  CombineRuns<1>(sorted, stream);
}

template <typename T>
void JoinRuns(const SortedUpdates<T>& sorted, cudaStream_t stream) {
  ForEachElement(
      sorted.outer * (sorted.runs - 1) * sorted.inner, stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const Quotient at = Divide(e, sorted.inner), part = Divide(at.quotient, sorted.runs - 1);
        sorted.JoinRun(part.quotient, part.rest, at.rest);
      });
}

// Elements that are only moved are handled as words of the same size.
template <typename F>
std::unique_ptr<Kernel> WithElement(DType dtype, ScatterReduction reduction, F&& f) {
  return reduction == ScatterReduction::kNone ? WithBytes(dtype, f) : WithType(dtype, f);
}

// Initializes the output with `data`, or with zeros if it is null.
void Begin(const void* data, void* out, int64_t bytes, cudaStream_t stream) {
  if (bytes == 0 || data == out) return;
  if (data == nullptr)
    GRADLOOM_CUDA(cudaMemsetAsync(out, 0, static_cast<size_t>(bytes), stream));
  else
    GRADLOOM_CUDA(cudaMemcpyAsync(out, data, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
}

// The indices of the inputs that a kernel reads; -1: none.
struct ScatterInputs {
  int data, indices, updates;
};

template <typename P>
std::unique_ptr<Kernel> MakeScatter(const KernelCall& call, const ScatterInputs& inputs, ScatterReduction reduction, const P& indexer,
                                    const KernelSite& site) {
  const Scattering s = ScatteringOf(call);
  const bool wide = IsWide(call.inputs[static_cast<size_t>(inputs.indices)]);
  const int64_t bytes = call.outputs[0].bytes();
  return WithElement(call.outputs[0].dtype, reduction, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, fault = IndexFault(site)](const Launch& l) {
      Begin(inputs.data < 0 ? nullptr : l.inputs[inputs.data], l.outputs[0], bytes, l.stream);
      if (s.count == 0) return;
      const ScatterScratch scratch(s, l.scratch);
      SortTiles(s, Indices{l.inputs[inputs.indices], wide}, indexer, scratch.lists[0], fault, l.stream);
      const UpdateList list =
          MergeSortedLists<Scattering::kWays>(s.count, s.count, kTile, scratch.lists[0], scratch.lists[1], l.stream, ByTarget());
      const SortedUpdates<T> sorted(s, reduction, inputs.data < 0, list, l.inputs[inputs.updates], l.outputs[0], scratch.sums);
      CombineRuns(sorted, l.stream);
      JoinRuns(sorted, l.stream);
    });
  });
}

// One thread per line of updates along the axis: no other line writes to the same line of the output.
template <typename T>
void ScatterLines(int64_t lines, ScatterReduction reduction, const Indices& indices, const T* updates, T* out,
                  const ElementIndexer& indexer, const IndexFault& fault, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      lines, stream, GRADLOOM_ON_DEVICE(int64_t line) {
        const int64_t first = indexer.FirstIndex(line);
        T* const data = out + indexer.FirstElement(line);
        for (int64_t k = 0; k < indexer.length; ++k) {
          const int64_t i = first + k * indexer.inner, at = fault.Checked(indices[i], indexer.extent);
          if (at < 0) continue;
          T& element = data[at * indexer.stride];
          element = static_cast<T>(Combine(reduction, static_cast<A>(element), static_cast<A>(updates[i])));
        }
      });
}

}  // namespace

std::unique_ptr<Kernel> MakeGatherGrad(const KernelCall& call, const KernelSite& site) {
  const Scattering s = ScatteringOf(call);
  return MakeScatter(call, {-1, 0, 1}, ScatterReduction::kAdd, AxisIndexer{s.extent}, site);
}

std::unique_ptr<Kernel> MakeGatherNdGrad(const KernelCall& call, const KernelSite& site) {
  const int batch_dims = static_cast<int>(call.attributes.Int("batch_dims", 0));
  return MakeScatter(call, {-1, 0, 1}, ScatterReduction::kAdd, TupleIndexer(call.outputs[0].shape, call.inputs[0].shape, batch_dims), site);
}

std::unique_ptr<Kernel> MakeScatterNd(const KernelCall& call, const KernelSite& site) {
  return MakeScatter(call, {0, 1, 2}, ScatterReductionOf(call), TupleIndexer(call.outputs[0].shape, call.inputs[1].shape, 0), site);
}

std::unique_ptr<Kernel> MakeScatterElements(const KernelCall& call, const KernelSite& site) {
  const Shape &data = call.inputs[0].shape, &indices = call.inputs[1].shape;
  const ElementIndexer indexer(data, indices, AxisOf(call, call.attributes.Int("axis", 0), data.rank()));
  const ScatterReduction reduction = ScatterReductionOf(call);
  if (!ScattersByLines(call)) return MakeScatter(call, {0, 1, 2}, reduction, indexer, site);
  const int64_t lines = indexer.length == 0 ? 0 : indices.elements() / indexer.length, bytes = call.outputs[0].bytes();
  return WithElement(call.outputs[0].dtype, reduction, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, wide = IsWide(call.inputs[1]), fault = IndexFault(site)](const Launch& l) {
      Begin(l.inputs[0], l.outputs[0], bytes, l.stream);
      ScatterLines(lines, reduction, Indices{l.inputs[1], wide}, l.In<T>(2), l.Out<T>(0), indexer, fault, l.stream);
    });
  });
}

}  // namespace gradloom::cuda
