// Tensors [rows, channels], such as channels-last ones: a thread keeps some neighboring channels, which it loads and stores as one word,
// while it walks over rows. So numbers per channel stay in registers, and nothing is divided in the loop.
#pragma once

#include <type_traits>

#include "kernels/cuda/float_operand.cuh"
#include "kernels/cuda/rows/slices.h"
#include "kernels/cuda/shared.cuh"
#include "kernels/cuda/sums.cuh"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {

template <typename T>
inline constexpr int kWide = static_cast<int>(kMaxWordBytes / sizeof(T));  // elements of the widest word

// Calls f(std::integral_constant<int, width>{}) with the number of neighbors that a thread loads at once, if `extent` elements are
// adjacent.
template <typename T, typename F>
void WithWidth(int64_t extent, F f) {
  if (extent % kWide<T> == 0)
    f(std::integral_constant<int, kWide<T>>{});
  else
    f(std::integral_constant<int, 1>{});
}

template <int kWidth, typename T>
GRADLOOM_DEVICE const AlignedVector<T, kWidth>& WordAt(const T* from) {
  return *reinterpret_cast<const AlignedVector<T, kWidth>*>(from);
}

// Loads `kWidth` numbers in words of at most 16 bytes.
template <int kWidth, typename R>
GRADLOOM_DEVICE void LoadNumbers(const R* from, R (&to)[kWidth]) {
  constexpr int kWord = kWidth < kWide<R> ? kWidth : kWide<R>;
  for (int k = 0; k < kWidth; k += kWord) {
    const AlignedVector<R, kWord> word = WordAt<kWord>(from + k);
    for (int v = 0; v < kWord; ++v) to[k + v] = word.at[v];
  }
}

// Calls use(load(i), i) for i = first, first + step, ... below `end`. kAtOnce loads are issued before the first of them is used, because
// a memory that is kept waiting for one load per thread is far from its bandwidth.
template <int kAtOnce, typename Load, typename Use>
GRADLOOM_DEVICE void ForEachStep(int64_t first, int64_t end, int64_t step, Load load, Use use) {
  int64_t i = first;
  for (; i + (kAtOnce - 1) * step < end; i += kAtOnce * step) {
    decltype(load(i)) loaded[kAtOnce];
    for (int k = 0; k < kAtOnce; ++k) loaded[k] = load(i + k * step);
    for (int k = 0; k < kAtOnce; ++k) use(loaded[k], i + k * step);
  }
  for (; i < end; i += step) use(load(i), i);
}

// The tiles of channels and the parts of rows of Slices, of which each block takes one, and their division among the block's threads.
template <int kWidth>
struct RowTiles {
  int64_t rows, channels, tile, tiles, part, parts;
  int lanes, height;  // threads beside each other, which share a row of the tile, and rows at a time

  explicit RowTiles(const Slices& s)
      : rows(s.images), channels(s.slices), tile(s.tile()), tiles(s.tiles()), part(s.part()), parts(s.parts()) {
    lanes = static_cast<int>(CeilDiv(tile, kWidth));
    height = lanes == 0 ? 0 : kThreads / lanes;
  }

  int64_t blocks() const { return tiles * parts; }

  // The elements of a thread: `first`, `first` + `step`, ... below `end`, each with kWidth - 1 neighbors.
  struct Walk {
    int64_t channel, first, end, step;
    GRADLOOM_DEVICE bool empty() const { return first >= end; }
  };
  GRADLOOM_DEVICE Walk WalkOf(int thread, int64_t i) const {
    const Quotient at = Divide(i, tiles);
    const int row = thread / lanes;
    const int64_t channel = at.rest * tile + (thread - row * lanes) * kWidth, start = at.quotient * part;
    const int64_t past = start + part < rows ? start + part : rows;
    if (row >= height || channel >= channels) return {0, 0, 0, 1};
    return {channel, (start + row) * channels + channel, past * channels, height * channels};
  }

  // Calls f(channel, row count, vector element, lane, number of its record) in one thread for each channel of block i.
  template <typename F>
  GRADLOOM_DEVICE void ForEachChannel(const Block& block, int64_t i, F f) const {
    const Quotient at = Divide(i, tiles);
    const int64_t start = at.quotient * part;
    const int count = static_cast<int>(start + part < rows ? part : rows - start);
    // Neighboring threads take neighboring lanes, whose numbers are in different banks of shared memory.
    for (int k = block.thread(); k < lanes * kWidth; k += block.threads()) {
      const int v = k / lanes, lane = k - v * lanes;
      const int64_t channel = at.rest * tile + lane * kWidth + v;
      if (channel < channels) f(count, v, lane, at.quotient * channels + channel);
    }
  }

  // The number of rows, of `count`, of the threads with this first row.
  GRADLOOM_DEVICE int RowsFrom(int row, int count) const { return row < count ? (count - row + height - 1) / height : 0; }
};

// `kNumbers` numbers of each thread for each of its channels, in shared memory.
template <int kWidth, int kNumbers, typename R>
struct ThreadNumbers {
  R* all;
  GRADLOOM_DEVICE ThreadNumbers() : all(Shared<0, R, kNumbers * kWidth * kThreads>()) {}
  GRADLOOM_DEVICE R& at(int number, int v, int thread) const { return all[(number * kWidth + v) * kThreads + thread]; }
};

template <typename T>
GRADLOOM_DEVICE T Median(T a, T b, T c) {
  const T low = b < a ? b : a, high = b < a ? a : b;
  return c < low ? low : high < c ? high : c;
}

// Sums about one of the numbers themselves. So their cancellation costs at most the factor n: with n numbers at distances from the pivot,
// the squares about the pivot are at most n + 1 times those about the mean, because the pivot's own distance from the mean is among them.
// The median of three numbers is seldom that far from the others.
template <typename R>
struct PivotSums {
  R pivot, sum, squares;

  GRADLOOM_DEVICE void Add(R x) {
    const R distance = x - pivot;
    sum += distance;
    squares += distance * distance;
  }
  GRADLOOM_DEVICE double MeanOf(double n) const { return static_cast<double>(pivot) + static_cast<double>(sum) / n; }
  // The sum of squared distances from the mean.
  GRADLOOM_DEVICE double SquaresOf(double n) const {
    const double total = static_cast<double>(sum);
    return static_cast<double>(squares) - total * total / n;
  }
};

// Writes the mean of each part of each slice and the sum of squared distances from it.
template <int kWidth, typename T>
void RecordRowMoments(const Slices& s, const T* x, double* records, cudaStream_t stream) {
  using R = Arithmetic<T>;
  const RowTiles<kWidth> tiles(s);
  ForEachRow(
      tiles.blocks(), stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t i) {
        const auto walk = tiles.WalkOf(block.thread(), i);
        PivotSums<R> own[kWidth] = {};
        if (!walk.empty()) {
          AlignedVector<T, kWidth> words[3];
          for (int k = 0; k < 3; ++k)
            words[k] = WordAt<kWidth>(x + (walk.first + k * walk.step < walk.end ? walk.first + k * walk.step : walk.first));
          for (int v = 0; v < kWidth; ++v)
            own[v].pivot = Median(static_cast<R>(words[0].at[v]), static_cast<R>(words[1].at[v]), static_cast<R>(words[2].at[v]));
        }
        ForEachStep<4>(
            walk.first, walk.end, walk.step, [&](int64_t at) { return WordAt<kWidth>(x + at); },
            [&](const AlignedVector<T, kWidth>& word, int64_t) {
              for (int v = 0; v < kWidth; ++v) own[v].Add(static_cast<R>(word.at[v]));
            });
        const ThreadNumbers<kWidth, 3, R> numbers;
        for (int v = 0; v < kWidth; ++v) {
          numbers.at(0, v, block.thread()) = own[v].pivot;
          numbers.at(1, v, block.thread()) = own[v].sum;
          numbers.at(2, v, block.thread()) = own[v].squares;
        }
        block.Sync();
        tiles.ForEachChannel(block, i, [&](int count, int v, int lane, int64_t record) {
          // By the formula of MomentsOfSlices, with distances of means from the first thread's mean.
          double pivot = 0, sum = 0, squares = 0;
          for (int row = 0; row < tiles.height; ++row) {
            const int thread = row * tiles.lanes + lane, rows = tiles.RowsFrom(row, count);
            if (rows == 0) break;
            const PivotSums<R> part{numbers.at(0, v, thread), numbers.at(1, v, thread), numbers.at(2, v, thread)};
            const double n = rows, mean = part.MeanOf(n);
            if (row == 0) pivot = mean;
            sum += n * (mean - pivot);
            squares += part.SquaresOf(n) + n * (mean - pivot) * (mean - pivot);
          }
          const double n = count;
          records[2 * record] = pivot + sum / n;
          records[2 * record + 1] = squares - sum * sum / n;
        });
        block.Sync();
      });
}

// The gradient that arrives at a normalization, as it is in memory. Other sources (batch_norm.cu) have the same members.
template <typename T>
struct StoredGradient {
  const T* dy;

  // What the gradient's elements depend on besides their words: numbers of their channel.
  struct Channel {};
  GRADLOOM_DEVICE Channel ChannelOf(int64_t) const { return {}; }

  template <int kWidth>
  struct Words {
    AlignedVector<T, kWidth> dy;
  };
  template <int kWidth>
  GRADLOOM_DEVICE Words<kWidth> Load(int64_t at) const {
    return {WordAt<kWidth>(dy + at)};
  }
  // Element v of the words, whose x is given.
  template <int kWidth>
  GRADLOOM_DEVICE T Of(const Words<kWidth>& words, int v, T, const Channel&) const {
    return words.dy.at[v];
  }
  // Called with the elements at `at` once they are computed.
  template <int kWidth>
  GRADLOOM_DEVICE void Keep(int64_t, const AlignedVector<T, kWidth>&) const {}
};

// Writes the sums of dy and dy (x - mean) of each part of each slice.
template <int kWidth, typename T, typename Source>
void RecordRowGradients(const Slices& s, const Source& gradient, const T* x, FloatOperand mean, double* records, cudaStream_t stream) {
  using R = Arithmetic<T>;
  struct Words {
    typename Source::template Words<kWidth> dy;
    AlignedVector<T, kWidth> x;
  };
  const RowTiles<kWidth> tiles(s);
  ForEachRow(
      tiles.blocks(), stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t i) {
        const auto walk = tiles.WalkOf(block.thread(), i);
        R means[kWidth] = {};
        typename Source::Channel channels[kWidth] = {};
        Pair<R> own[kWidth] = {};
        if (!walk.empty()) {
          for (int v = 0; v < kWidth; ++v) {
            means[v] = static_cast<R>(mean[walk.channel + v]);
            channels[v] = gradient.ChannelOf(walk.channel + v);
          }
        }
        ForEachStep<2>(
            walk.first, walk.end, walk.step,
            [&](int64_t at) {
              return Words{gradient.template Load<kWidth>(at), WordAt<kWidth>(x + at)};
            },
            [&](const Words& words, int64_t at) {
              AlignedVector<T, kWidth> made;
              for (int v = 0; v < kWidth; ++v) {
                made.at[v] = gradient.Of(words.dy, v, words.x.at[v], channels[v]);
                const R g = static_cast<R>(made.at[v]);
                own[v] = own[v] + Pair<R>{g, g * (static_cast<R>(words.x.at[v]) - means[v])};
              }
              gradient.Keep(at, made);
            });
        const ThreadNumbers<kWidth, 2, R> numbers;
        for (int v = 0; v < kWidth; ++v) {
          numbers.at(0, v, block.thread()) = own[v].first;
          numbers.at(1, v, block.thread()) = own[v].second;
        }
        block.Sync();
        tiles.ForEachChannel(block, i, [&](int, int v, int lane, int64_t record) {
          Pair<double> sums{};
          for (int thread = lane; thread < tiles.height * tiles.lanes; thread += tiles.lanes)
            sums = sums + InDouble(Pair<R>{numbers.at(0, v, thread), numbers.at(1, v, thread)});
          records[2 * record] = sums.first;
          records[2 * record + 1] = sums.second;
        });
        block.Sync();
      });
}

// The operands of a function of each element.
template <typename T, int kInputs>
struct ElementInputs {
  const T* at[kInputs];
};

// to = map.Of(numbers of the channel, elements of the inputs) for elements in the arithmetic type; `map.numbers` is
// [Map::kNumbers, channels]. `to` may be one of the inputs. Blocks start with the end of the tensor, which a pass over it has just left in
// the L2 cache.
template <int kWidth, typename T, int kInputs, typename Map>
void MapRows(const Slices& s, const Map& map, const ElementInputs<T, kInputs>& from, T* to, cudaStream_t stream) {
  using R = Arithmetic<T>;
  struct Words {
    AlignedVector<T, kWidth> input[kInputs];
  };
  const RowTiles<kWidth> tiles(s);
  const int64_t last = tiles.blocks() - 1;
  ForEachRow(
      tiles.blocks(), stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t i) {
        const auto walk = tiles.WalkOf(block.thread(), last - i);
        if (walk.empty()) return;
        R numbers[Map::kNumbers][kWidth];
        for (int k = 0; k < Map::kNumbers; ++k) LoadNumbers(map.numbers + k * tiles.channels + walk.channel, numbers[k]);
        ForEachStep<4 / kInputs>(
            walk.first, walk.end, walk.step,
            [&](int64_t at) {
              Words words;
              for (int k = 0; k < kInputs; ++k) words.input[k] = WordAt<kWidth>(from.at[k] + at);
              return words;
            },
            [&](const Words& words, int64_t at) {
              AlignedVector<T, kWidth> result;
              for (int v = 0; v < kWidth; ++v) {
                R own[Map::kNumbers], elements[kInputs];
                for (int k = 0; k < Map::kNumbers; ++k) own[k] = numbers[k][v];
                for (int k = 0; k < kInputs; ++k) elements[k] = static_cast<R>(words.input[k].at[v]);
                result.at[v] = static_cast<T>(map.Of(own, elements));
              }
              *reinterpret_cast<AlignedVector<T, kWidth>*>(to + at) = result;
            });
      });
}

}  // namespace gradloom::cuda
