// Means and variances. Variances are sums of squared distances from a mean computed first, or from one of the numbers: sums of plain
// squares lose digits if the mean is larger than the deviation.
#pragma once

#include <cmath>

#include "kernels/cuda/channel_rows.cuh"
#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/rows/slices.h"
#include "kernels/cuda/sums.cuh"

namespace gradloom::cuda {

// Sums over elements of their distances from `pivot`, and of the squares of these. `pivot` is their mean up to rounding.
template <typename R>
struct ShiftedMoments {
  R pivot, sum, squares;
};

// Of n numbers; sum(term) adds term(x) over all of them.
template <typename R, typename SumOfNumbers>
GRADLOOM_DEVICE ShiftedMoments<R> ShiftedMomentsBy(const SumOfNumbers& sum, R n) {
  const R pivot = sum([](R x) { return x; }) / n;
  const auto sums = sum([=](R x) {
    const R distance = x - pivot;
    return Pair<R>{distance, distance * distance};
  });
  return {pivot, sums.first, sums.second};
}

// Sums over the numbers at(k), k < n, by a Block, a Warp or a SingleThread, whose threads all get them.
template <typename Threads, typename At>
struct SumOfNumbersAt {
  const Threads& threads;
  int64_t n;
  const At& at;

  template <typename Term>
  GRADLOOM_DEVICE auto operator()(const Term& term) const {
    return SumOf<decltype(term(at(0)))>(threads, n, [&](int64_t k) { return term(at(k)); });
  }
};

// For the numbers at(k), k < n; every thread of `block` (a Block, a Warp or a SingleThread) gets the result.
template <typename R, typename Threads, typename At>
GRADLOOM_DEVICE ShiftedMoments<R> ShiftedMomentsOf(const Threads& block, int64_t n, At at) {
  return ShiftedMomentsBy<R>(SumOfNumbersAt<Threads, At>{block, n, at}, static_cast<R>(n));
}

// x -> (x - mean) inv_std. `rest` is the part of the mean that rounding to `pivot` lost.
template <typename R>
struct Normalizer {
  R pivot, rest, inv_std;

  GRADLOOM_DEVICE R mean() const { return pivot + rest; }
  GRADLOOM_DEVICE R operator()(R x) const { return ((x - pivot) - rest) * inv_std; }
};

template <typename R>
GRADLOOM_DEVICE R Variance(const ShiftedMoments<R>& d, R n) {
  const R squares = d.squares - d.sum * (d.sum / n);
  return squares > 0 ? squares / n : squares * 0;  // NaN stays NaN
}

template <typename R>
GRADLOOM_DEVICE Normalizer<R> NormalizerOf(const ShiftedMoments<R>& d, R n, R epsilon) {
  return {d.pivot, d.sum / n, R(1) / static_cast<R>(::sqrt(Variance(d, n) + epsilon))};
}

// The number of element k of a slice in [images, slices, points].
GRADLOOM_DEVICE int64_t ElementOf(const Slices& s, int64_t slice, int64_t k) {
  if (s.images == 1) return slice * s.points + k;
  const Quotient image = Divide(k, s.points);
  return (image.quotient * s.slices + slice) * s.points + image.rest;
}

// Calls f(element, plane) for all elements of [images, slices, points]. The plane is image * slices + slice.
template <typename F>
void ForEachInPlanes(const Slices& s, cudaStream_t stream, const F& f) {
  if (s.points >= kThreads && s.planes() >= 1024) {
    ForEachRow(
        s.planes(), stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t plane) {
          for (int64_t k = block.thread(); k < s.points; k += block.threads()) f(plane * s.points + k, plane);
        });
  } else {
    ForEachElement(
        s.elements(), stream, GRADLOOM_ON_DEVICE(int64_t i) { f(i, Divide(i, s.points).quotient); });
  }
}

// [images, slices, points] in words of `width` neighboring points. Its parts are those of `s`, if its points are a multiple of that.
struct WordsOfSlices {
  Slices words;
  int width;

  WordsOfSlices(const Slices& s, int elements) : words{s.images, s.slices, s.points / elements}, width(elements) {}
  // The first element of word k of a slice.
  GRADLOOM_DEVICE int64_t operator()(int64_t slice, int64_t k) const { return ElementOf(words, slice, k) * width; }
};

// The lengths of parts.
struct PartLengths {
  int64_t count, part;

  explicit PartLengths(const Slices& s) : count(s.count()), part(s.part()) {}
  GRADLOOM_DEVICE int64_t operator()(int64_t i) const { return count - i * part < part ? count - i * part : part; }
};

// record(block, slice, first element, elements) returns two numbers for a part, which are written to `records`.
template <typename F>
void RecordParts(const Slices& s, double* records, cudaStream_t stream, const F& record) {
  const int64_t step = s.points < 8 ? s.slices * s.points : 1;
  const PartLengths lengths(s);
  ForEachRowOf(
      s.parts() * s.slices, s.work(), step, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t i) {
        const Quotient at = Divide(i, s.slices);
        const Pair<double> made = record(block, at.rest, at.quotient * lengths.part, lengths(at.quotient));
        if (block.thread() != 0) return;
        records[2 * i] = made.first;
        records[2 * i + 1] = made.second;
      });
}

// Calls finish(slice, first, second) in one thread per slice with the sums of the records of its parts.
template <typename Finish>
void SumRecords(const Slices& s, const double* records, cudaStream_t stream, const Finish& finish) {
  const int64_t parts = s.parts();
  ForEachRowOf(
      s.slices, parts, s.slices, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t slice) {
        const auto sums = SumOf<Pair<double>>(block, parts, [=](int64_t part) {
          const double* record = records + 2 * (part * s.slices + slice);
          return Pair<double>{record[0], record[1]};
        });
        if (block.thread() == 0) finish(slice, sums.first, sums.second);
      });
}

// Calls finish(slice, first, second) in one thread per slice with the sums over the slice of term(slice, element), a Pair<R>. `records` has
// s.records() elements.
template <typename R, typename Term, typename Finish>
void SumSlices(const Slices& s, double* records, cudaStream_t stream, const Term& term, const Finish& finish) {
  RecordParts(
      s, records, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t slice, int64_t first, int64_t n) {
        return InDouble(SumOf<Pair<R>>(block, n, [=](int64_t k) { return term(slice, ElementOf(s, slice, first + k)); }));
      });
  SumRecords(s, records, stream, finish);
}

// RecordRowMoments for slices that are not rows.
template <int kWidth, typename T>
void RecordPlaneMoments(const Slices& s, const T* x, double* records, cudaStream_t stream) {
  using R = Arithmetic<T>;
  const WordsOfSlices word(s, kWidth);
  RecordParts(
      s, records, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t slice, int64_t first, int64_t elements) {
        const int64_t n = elements / kWidth, start = first / kWidth;
        PivotSums<R> own = {};
        if (block.thread() < n) {
          R numbers[3];
          for (int k = 0; k < 3; ++k) {
            const int64_t at = block.thread() + k * block.threads();
            numbers[k] = static_cast<R>(x[word(slice, start + (at < n ? at : block.thread()))]);
          }
          own.pivot = Median(numbers[0], numbers[1], numbers[2]);
        }
        int64_t words = 0;
        ForEachStep<4>(
            block.thread(), n, block.threads(), [&](int64_t k) { return WordAt<kWidth>(x + word(slice, start + k)); },
            [&](const AlignedVector<T, kWidth>& loaded, int64_t) {
              ++words;
              for (int v = 0; v < kWidth; ++v) own.Add(static_cast<R>(loaded.at[v]));
            });
        const double count = static_cast<double>(elements), mine = static_cast<double>(words * kWidth);
        const double own_mean = words > 0 ? own.MeanOf(mine) : 0, mean = block.Reduce(mine * own_mean, Sum{}) / count;
        const double squares = words > 0 ? own.SquaresOf(mine) + mine * (own_mean - mean) * (own_mean - mean) : 0;
        return Pair<double>{mean, block.Reduce(squares, Sum{})};
      });
}

// Calls finish(slice, mean, sum of squared distances from the mean) for each slice of x. All parts are combined at once by the formula of
// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
template <typename T, typename Finish>
void MomentsOfSlices(const Slices& s, const T* x, double* records, cudaStream_t stream, const Finish& finish) {
  WithWidth<T>(s.is_rows() ? s.slices : s.points, [&]<int kWidth>(std::integral_constant<int, kWidth>) {
    if (s.is_rows())
      RecordRowMoments<kWidth>(s, x, records, stream);
    else
      RecordPlaneMoments<kWidth>(s, x, records, stream);
  });
  const int64_t parts = s.parts();
  const PartLengths lengths(s);
  ForEachRowOf(
      s.slices, parts, s.slices, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t slice) {
        const auto record = [=](int64_t part) { return records + 2 * (part * s.slices + slice); };
        const auto count = [=](int64_t part) { return static_cast<double>(lengths(part)); };
        const double mean =
            SumOf<double>(block, parts, [=](int64_t part) { return count(part) * record(part)[0]; }) / static_cast<double>(lengths.count);
        const double squares = SumOf<double>(block, parts, [=](int64_t part) {
          const double distance = record(part)[0] - mean;
          return record(part)[1] + count(part) * distance * distance;
        });
        if (block.thread() == 0) finish(slice, mean, squares > 0 ? squares : squares * 0);
      });
}

// A FloatOperand to write to. Set does nothing if `data` is null.
struct FloatResults {
  DType dtype;
  void* data;

  GRADLOOM_DEVICE void Set(int64_t i, double value) const {
    if (data == nullptr) return;
    switch (dtype) {
      case DType::kFloat64: static_cast<double*>(data)[i] = value; return;
      case DType::kFloat16: static_cast<Half*>(data)[i] = static_cast<float>(value); return;
      case DType::kBfloat16: static_cast<Bfloat16*>(data)[i] = static_cast<float>(value); return;
      default: static_cast<float*>(data)[i] = static_cast<float>(value);
    }
  }

  // The value that Set would store.
  GRADLOOM_DEVICE double Rounded(double value) const {
    switch (dtype) {
      case DType::kFloat64: return value;
      case DType::kFloat16: return static_cast<double>(static_cast<float>(Half(static_cast<float>(value))));
      case DType::kBfloat16: return static_cast<double>(static_cast<float>(Bfloat16(static_cast<float>(value))));
      default: return static_cast<double>(static_cast<float>(value));
    }
  }
};

// The types of a call's operands, to access them as FloatOperand and FloatResults.
struct FloatVectors {
  static constexpr size_t kMost = 7;
  DType in[kMost] = {}, out[kMost] = {};

  explicit FloatVectors(const KernelCall& call) {
    for (size_t i = 0; i < kMost && i < call.inputs.size(); ++i) in[i] = call.inputs[i].dtype;
    for (size_t i = 0; i < kMost && i < call.outputs.size(); ++i) out[i] = call.outputs[i].dtype;
  }
  FloatOperand In(const Launch& l, size_t i) const { return {l.inputs[i], in[i]}; }
  FloatResults Out(const Launch& l, size_t i) const { return {out[i], out[i] == DType::kUndefined ? nullptr : l.outputs[i]}; }
};

}  // namespace gradloom::cuda
