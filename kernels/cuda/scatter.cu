// Rows that are added to, or otherwise combined with, rows selected by index: the gradients of gathers, and the scatters.
//
// Floating-point sums must not depend on timing, so updates are first sorted by target with a stable radix sort, which takes two passes for
// a table of 50,000 rows. Then each thread processes a run of 32 updates of one column in sorted order. If the updates of a target extend
// over several runs, the thread of the first run combines the partial sums. So each update is read once, however the updates are
// distributed.
#include "kernels/cuda/block_scan.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/rows/scattering.h"
#include "kernels/reference/scatter_reduction.h"

namespace gradloom::cuda {
namespace {

// The target rows of updates, and the numbers of the updates. In a sorted list, targets are ascending, and so are the numbers of each
// target.
struct UpdateList {
  int64_t* targets = nullptr;
  int64_t* numbers = nullptr;
};

// The scratch memory described in rows/scattering.h.
struct ScatterScratch {
  UpdateList lists[2];
  int64_t* counts;  // by digit, then by thread
  int64_t* digits;  // totals by digit
  void* sums;

  ScatterScratch(const Scattering& s, void* scratch) {
    auto* at = static_cast<int64_t*>(scratch);
    for (UpdateList& list : lists) {
      list = {at, at + s.count};
      at += 2 * s.count;
    }
    sums = at + s.CountBytes() / 8;
    digits = at;
    counts = at + (int64_t{1} << s.DigitBits());
  }
};

// Indices that are out of range get the target `extent`, which sorts last.
template <typename P>
void FindTargets(const Scattering& s, const Indices& indices, const P& indexer, const UpdateList& list, const IndexFault& fault,
                 cudaStream_t stream) {
  const int64_t nowhere = s.extent;
  ForEachElement(
      s.count, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t target = indexer(indices, i, fault);
        list.targets[i] = target < 0 ? nowhere : target;
        list.numbers[i] = i;
      });
}

void SortFew(int64_t count, const UpdateList& from, const UpdateList& to, cudaStream_t stream) {
  ForEachElement(
      count, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const int64_t target = from.targets[i];
        int64_t rank = 0;
        for (int64_t k = 0; k < count; ++k) rank += from.targets[k] < target || (from.targets[k] == target && k < i) ? 1 : 0;
        to.targets[rank] = target;
        to.numbers[rank] = from.numbers[i];
      });
}

// A pass of the radix sort: thread c processes updates [c * chunk, (c + 1) * chunk).
struct Pass {
  int64_t count, chunk, chunks;
  int shift, digits;
  GRADLOOM_DEVICE int64_t Digit(int64_t target) const { return (target >> shift) & (digits - 1); }
  GRADLOOM_DEVICE int64_t End(int64_t c) const { return (c + 1) * chunk < count ? (c + 1) * chunk : count; }
};

void CountDigits(const Pass& pass, const UpdateList& list, int64_t* counts, cudaStream_t stream) {
  ForEachElement(
      pass.chunks, stream, GRADLOOM_ON_DEVICE(int64_t c) {
        for (int64_t d = 0; d < pass.digits; ++d) counts[d * pass.chunks + c] = 0;
        const int64_t end = pass.End(c);
        for (int64_t i = c * pass.chunk; i < end; ++i) ++counts[pass.Digit(list.targets[i]) * pass.chunks + c];
      });
}

// Replaces each row of numbers by its exclusive prefix sums; `totals` is set to the sums of the rows.
void SumRows(int64_t rows, int64_t length, int64_t* numbers, int64_t* totals, cudaStream_t stream) {
  ForEachRow(
      rows, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t row) {
        const int64_t sum = ExclusiveScanInPlace(block, length, numbers + row * length);
        if (totals != nullptr && block.thread() == 0) totals[row] = sum;
      });
}

void Distribute(const Pass& pass, const UpdateList& from, const UpdateList& to, const int64_t* digits, int64_t* counts,
                cudaStream_t stream) {
  ForEachElement(
      pass.chunks, stream, GRADLOOM_ON_DEVICE(int64_t c) {
        const int64_t end = pass.End(c);
        for (int64_t i = c * pass.chunk; i < end; ++i) {
          const int64_t target = from.targets[i], d = pass.Digit(target);
          const int64_t at = digits[d] + counts[d * pass.chunks + c]++;
          to.targets[at] = target;
          to.numbers[at] = from.numbers[i];
        }
      });
}

// Sorts list 0, and returns the list with the result.
const UpdateList& Sort(const Scattering& s, const ScatterScratch& scratch, cudaStream_t stream) {
  if (s.count <= Scattering::kFew) {
    SortFew(s.count, scratch.lists[0], scratch.lists[1], stream);
    return scratch.lists[1];
  }
  for (int k = 0; k < s.Passes(); ++k) {
    const Pass pass{s.count, s.Chunk(), s.Chunks(), k * s.DigitBits(), 1 << s.DigitBits()};
    const UpdateList &from = scratch.lists[k % 2], &to = scratch.lists[(k + 1) % 2];
    CountDigits(pass, from, scratch.counts, stream);
    SumRows(pass.digits, pass.chunks, scratch.counts, scratch.digits, stream);
    SumRows(1, pass.digits, scratch.digits, nullptr, stream);
    Distribute(pass, from, to, scratch.digits, scratch.counts, stream);
  }
  return scratch.lists[s.Passes() % 2];
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
  int64_t outer, count, extent, inner, runs;
  UpdateList list;
  const T* updates;
  T* out;
  A* sums;  // by part, run, whether the target's updates begin in the run, and column

  SortedUpdates(const Scattering& s, ScatterReduction by, const UpdateList& sorted, const void* from, void* to, void* unfinished)
      : reduction(by),
        outer(s.outer),
        count(s.count),
        extent(s.extent),
        inner(s.inner),
        runs(s.Runs()),
        list(sorted),
        updates(static_cast<const T*>(from)),
        out(static_cast<T*>(to)),
        sums(static_cast<A*>(unfinished)) {}

  GRADLOOM_DEVICE A Update(int64_t part, int64_t p, int64_t column) const {
    return static_cast<A>(updates[(part * count + list.numbers[p]) * inner + column]);
  }
  GRADLOOM_DEVICE A& Sum(int64_t part, int64_t run, int place_begins, int64_t column) const {
    return sums[((part * runs + run) * 2 + place_begins) * inner + column];
  }
  GRADLOOM_DEVICE void Finish(int64_t part, int64_t target, int64_t column, A total) const {
    if (target == extent) return;
    T& element = out[(part * extent + target) * inner + column];
    element = static_cast<T>(Combine(reduction, static_cast<A>(element), total));
  }
  GRADLOOM_DEVICE int64_t End(int64_t run) const { return (run + 1) * kRun < count ? (run + 1) * kRun : count; }
  GRADLOOM_DEVICE bool BeginsAt(int64_t p) const { return p == 0 || list.targets[p - 1] != list.targets[p]; }

  // Combines the updates of a run, target by target.
  GRADLOOM_DEVICE void CombineRun(int64_t part, int64_t run, int64_t column) const {
    const int64_t end = End(run);
    int64_t p = run * kRun;
    while (p < end) {
      const int64_t first = p, target = list.targets[p];
      A total = Update(part, p, column);
      for (++p; p < end && list.targets[p] == target; ++p) total = Combine(reduction, total, Update(part, p, column));
      const bool begins = BeginsAt(first), ends = p == count || list.targets[p] != target;
      if (begins && ends)
        Finish(part, target, column, total);
      else
        Sum(part, run, begins ? 1 : 0, column) = total;
    }
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

template <typename T>
void CombineRuns(const SortedUpdates<T>& sorted, cudaStream_t stream) {
  ForEachElement(
      sorted.outer * sorted.runs * sorted.inner, stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const Quotient at = Divide(e, sorted.inner), part = Divide(at.quotient, sorted.runs);
        sorted.CombineRun(part.quotient, part.rest, at.rest);
      });
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
      FindTargets(s, Indices{l.inputs[inputs.indices], wide}, indexer, scratch.lists[0], fault, l.stream);
      const UpdateList& list = Sort(s, scratch, l.stream);
      const SortedUpdates<T> sorted(s, reduction, list, l.inputs[inputs.updates], l.outputs[0], scratch.sums);
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
