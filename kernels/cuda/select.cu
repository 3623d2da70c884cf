// Elements selected by value: extremes along an axis, the k largest, nonzero elements, elements selected by a condition.
#include <algorithm>

#include "kernels/cuda/block_scan.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {
namespace {

// An element and its index along a line; index -1: none.
template <typename A>
struct Candidate {
  A value;
  int64_t index;
};

// The first of two candidates in the order of ArgMax or ArgMin: NaN precedes all else; of equal elements, the first (or the last) wins.
template <typename A>
struct MoreExtreme {
  bool largest, last;

  GRADLOOM_DEVICE Candidate<A> operator()(const Candidate<A>& a, const Candidate<A>& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) return a_nan && (!b_nan || a.index < b.index) ? a : b;
    if (a.value == b.value) return (a.index < b.index) != last ? a : b;
    return (a.value > b.value) == largest ? a : b;
  }
};

template <typename T>
void FindExtremes(const Lines& lines, const T* in, int64_t* out, const MoreExtreme<Arithmetic<T>>& more, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachRowOf(
      lines.count, lines.extent, lines.step, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t line) {
        const T* const x = in + lines.start(line);
        Candidate<A> best{A{}, -1};
        for (int64_t k = block.thread(); k < lines.extent; k += block.threads()) {
          best = more(best, Candidate<A>{static_cast<A>(x[k * lines.step]), k});
        }
        best = block.Reduce(best, more);
        if (block.thread() == 0) out[line] = best.index;
      });
}

std::unique_ptr<Kernel> MakeArgExtreme(const KernelCall& call, bool largest) {
  const Lines lines(call, call.inputs[0].shape, call.attributes.Int("axis", 0));
  const bool last = call.attributes.Int("select_last_index", 0) != 0;
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      FindExtremes(lines, l.In<T>(0), l.Out<int64_t>(0), MoreExtreme<Arithmetic<T>>{largest, last}, l.stream);
    });
  });
}

// The order of TopK: NaN counts as the largest; of equal elements, the first wins.
template <typename A>
struct Ranking {
  bool largest;

  GRADLOOM_DEVICE bool Before(const Candidate<A>& a, const Candidate<A>& b) const {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool greater = (a_nan && !b_nan) || a.value > b.value, less = (b_nan && !a_nan) || a.value < b.value;
    return largest ? greater || (!less && a.index < b.index) : less || (!greater && a.index < b.index);
  }
  GRADLOOM_DEVICE Candidate<A> operator()(const Candidate<A>& a, const Candidate<A>& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    return Before(a, b) ? a : b;
  }
};

// The k best elements of each line; either output may be null.
template <typename T>
struct TopResult {
  T* values;
  int64_t* indices;
  int64_t k;

  GRADLOOM_DEVICE void Set(const Lines& lines, int64_t line, int64_t rank, T value, int64_t index) const {
    const Quotient q = Divide(line, lines.step);
    const int64_t at = (q.quotient * k + rank) * lines.step + q.rest;
    if (values != nullptr) values[at] = value;
    if (indices != nullptr) indices[at] = index;
  }
};

// One block per line finds its elements one by one: the best of those ranked after the previous one.
template <typename T>
void SelectTop(const Lines& lines, const T* in, const TopResult<T>& result, const Ranking<Arithmetic<T>>& ranking, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachRow(
      lines.count, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t line) {
        const T* const x = in + lines.start(line);
        Candidate<A> previous{A{}, -1};
        for (int64_t rank = 0; rank < result.k; ++rank) {
          Candidate<A> best{A{}, -1};
          for (int64_t j = block.thread(); j < lines.extent; j += block.threads()) {
            const Candidate<A> candidate{static_cast<A>(x[j * lines.step]), j};
            if (previous.index < 0 || ranking.Before(previous, candidate)) best = ranking(best, candidate);
          }
          previous = best = block.Reduce(best, ranking);
          if (block.thread() == 0) result.Set(lines, line, rank, x[best.index * lines.step], best.index);
        }
      });
}

// One thread per element counts the elements ranked before it.
template <typename T>
void RankAll(const Lines& lines, const T* in, const TopResult<T>& result, const Ranking<Arithmetic<T>>& ranking, cudaStream_t stream) {
  using A = Arithmetic<T>;
  ForEachElement(
      lines.count * lines.extent, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, lines.step), part = Divide(at.quotient, lines.extent);
        const T* const x = in + part.quotient * lines.extent * lines.step + at.rest;
        const Candidate<A> own{static_cast<A>(in[i]), part.rest};
        int64_t rank = 0;
        for (int64_t j = 0; j < lines.extent && rank < result.k; ++j) {
          rank += ranking.Before({static_cast<A>(x[j * lines.step]), j}, own) ? 1 : 0;
        }
        if (rank < result.k) result.Set(lines, part.quotient * lines.step + at.rest, rank, in[i], part.rest);
      });
}

// Whether selecting elements one by one is faster than comparing all pairs, estimated in thread steps on a GPU with 2^18 resident threads.
bool SelectsTop(const Lines& lines, int64_t k) {
  constexpr double kThreadsHeld = 1 << 18, kReduction = 4;
  const double n = static_cast<double>(lines.extent), count = static_cast<double>(lines.count);
  const double select = std::max(1.0, count * kThreads / kThreadsHeld) * static_cast<double>(k) * (n / kThreads + kReduction);
  return select < std::max(1.0, count * n / kThreadsHeld) * n;
}

// Calls put(position, i) for all i in [0, n) with keep(i), numbered in order. All threads of the block must call it; returns the number of
// such i.
template <typename Keep, typename Put>
GRADLOOM_DEVICE int64_t SelectInOrder(const Block& block, int64_t n, const Keep& keep, const Put& put) {
  int64_t found = 0;
  for (int64_t begin = 0; begin < n; begin += block.threads()) {
    const int64_t i = begin + block.thread();
    const bool kept = i < n && keep(i);
    int64_t total;
    const int64_t position = found + ExclusiveScan(block, kept ? 1 : 0, &total);
    if (kept) put(position, i);
    found += total;
  }
  return found;
}

template <typename T>
struct IsNotZero {
  const T* x;
  GRADLOOM_DEVICE bool operator()(int64_t i) const { return static_cast<Arithmetic<T>>(x[i]) != 0; }
};

// Writes the indices of an element as a column of `out`, as long as there is room.
struct WriteIndices {
  IndexCalculator index_of;
  int64_t room;
  int64_t* out;

  GRADLOOM_DEVICE void operator()(int64_t position, int64_t i) const {
    if (position >= room) return;
    int64_t index[kMaxAxes] = {};
    index_of(i, index);
    for (int axis = 0; axis < index_of.rank || axis == 0; ++axis) out[axis * room + position] = index[axis];
  }
};

struct WriteNumber {
  int64_t room;
  int64_t* out;
  GRADLOOM_DEVICE void operator()(int64_t position, int64_t i) const {
    if (position < room) out[position] = i;
  }
};

// Uses a single block: output shapes depend on the values, so the operands are constants and small. If there are fewer elements than room,
// the rest is zero.
template <typename T, typename Put>
void Select(int64_t n, const T* in, const Put& put, int64_t rows, const IndexFault& fault, cudaStream_t stream) {
  ForEachRow(
      1, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t) {
        const int64_t found = SelectInOrder(block, n, IsNotZero<T>{in}, put);
        for (int64_t position = found + block.thread(); position < put.room; position += block.threads()) {
          for (int64_t row = 0; row < rows; ++row) put.out[row * put.room + position] = 0;
        }
        if (found != put.room && block.thread() == 0) Report(fault.fault, fault.site, kUnequalCounts, found, put.room);
      });
}

// Row i of each part is row positions[i] of the same part of the input, as words. Positions past the end are reported.
template <typename T>
void TakeRows(int64_t outer, int64_t count, int64_t extent, int64_t words, const T* in, const int64_t* positions, T* out,
              const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      outer * count * words, stream, GRADLOOM_ON_DEVICE(int64_t e) {
        const Quotient at = Divide(e, words), part = Divide(at.quotient, count);
        const int64_t position = fault.Checked(positions[part.rest], extent);
        out[e] = position < 0 ? T{} : in[(part.quotient * extent + position) * words + at.rest];
      });
}

}  // namespace

std::unique_ptr<Kernel> MakeArgMax(const KernelCall& call, const KernelSite&) { return MakeArgExtreme(call, true); }
std::unique_ptr<Kernel> MakeArgMin(const KernelCall& call, const KernelSite&) { return MakeArgExtreme(call, false); }

std::unique_ptr<Kernel> MakeTopK(const KernelCall& call, const KernelSite&) {
  const Lines lines(call, call.inputs[0].shape, call.attributes.Int("axis", -1));
  const bool largest = call.attributes.Int("largest", 1) != 0;
  const int64_t k = call.ConstantInts(1).at(0);
  if (k < 0 || k > lines.extent) {
    throw Error(ErrorCode::kValue, "TopK: k " + std::to_string(k) + " of " + std::to_string(lines.extent) + " elements");
  }
  const bool has_values = Has(call.outputs, 0), has_indices = Has(call.outputs, 1), selects = SelectsTop(lines, k);
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) {
      const TopResult<T> result{has_values ? l.Out<T>(0) : nullptr, has_indices ? l.Out<int64_t>(1) : nullptr, k};
      const Ranking<Arithmetic<T>> ranking{largest};
      if (selects)
        SelectTop(lines, l.In<T>(0), result, ranking, l.stream);
      else
        RankAll(lines, l.In<T>(0), result, ranking, l.stream);
    });
  });
}

// The indices of nonzero elements, one row per axis.
std::unique_ptr<Kernel> MakeNonZero(const KernelCall& call, const KernelSite& site) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t n = shape.elements(), rows = call.outputs[0].shape[0], room = call.outputs[0].shape[1];
  return WithType(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, index_of = IndexCalculator(shape), fault = IndexFault(site)](const Launch& l) {
      Select(n, l.In<T>(0), WriteIndices{index_of, room, l.Out<int64_t>(0)}, rows, fault, l.stream);
    });
  });
}

// Writes the positions selected by the condition to scratch memory, then copies the rows at these positions.
std::unique_ptr<Kernel> MakeCompress(const KernelCall& call, const KernelSite& site) {
  const OperandType& in = call.inputs[0];
  const bool flat = !call.attributes.has("axis");
  const int rank = in.shape.rank(), axis = flat ? 0 : AxisOf(call, call.attributes.Int("axis", 0), rank);
  const int64_t outer = flat ? 1 : Product(in.shape, 0, axis), extent = flat ? in.shape.elements() : in.shape[axis];
  const int64_t row_bytes = (flat ? 1 : Product(in.shape, axis + 1, rank)) * DTypeBytes(in.dtype);
  const int64_t conditions = call.inputs[1].shape.elements(), count = call.outputs[0].shape[axis], word = WordBytesOf(row_bytes);
  return WithWord(word, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, words = row_bytes / word, fault = IndexFault(site)](const Launch& l) {
      auto* const positions = static_cast<int64_t*>(l.scratch);
      Select(conditions, l.In<bool>(1), WriteNumber{count, positions}, 1, fault, l.stream);
      TakeRows(outer, count, extent, words, l.In<T>(0), positions, l.Out<T>(0), fault, l.stream);
    });
  });
}

}  // namespace gradloom::cuda
