// What classification losses have in common: labels, rows of scores, and sums over rows in an order that depends only on their number.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/operands.cuh"
#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/rows/scratch.h"
#include "kernels/cuda/words.cuh"

namespace gradloom::cuda {

inline constexpr int64_t kIgnored = -100;  // unless an attribute says otherwise

struct Terms {
  double loss = 0, weight = 0;
};
static_assert(sizeof(Terms) == cuda_rows::kLossTermBytes);

struct AddTerms {
  GRADLOOM_DEVICE Terms operator()(const Terms& a, const Terms& b) const { return {a.loss + b.loss, a.weight + b.weight}; }
};

// The properties of the labels that are known before a step.
struct LabelRule {
  int64_t classes = 0, ignored = 0;
  bool wide = true, weighted = false;  // int64 labels; class weights
  DataFault* fault = nullptr;
  int site = 0;

  LabelRule(const KernelCall& call, const KernelSite& where, size_t labels, int64_t num_classes, int64_t ignored_unless_stated)
      : classes(num_classes),
        ignored(call.attributes.Int("ignore_index", ignored_unless_stated)),
        wide(call.inputs[labels].dtype == DType::kInt64),
        weighted(Has(call.inputs, labels + 1)),
        fault(where.fault),
        site(where.id) {}
};

// The labels of a step and the weights of their classes, which are the operand after the labels.
template <typename T>
struct Labels {
  LabelRule rule;
  const void* labels;
  const T* weights;

  Labels(const LabelRule& r, const Launch& l, size_t operand)
      : rule(r), labels(l.inputs[operand]), weights(r.weighted ? l.In<T>(operand + 1) : nullptr) {}

  // The label of a row, or -1 if the row is ignored or its label is invalid; `reports` says whether this thread reports an invalid label.
  GRADLOOM_DEVICE int64_t At(int64_t row, bool reports) const {
    const int64_t label = rule.wide ? static_cast<const int64_t*>(labels)[row] : static_cast<const int32_t*>(labels)[row];
    if (label == rule.ignored) return -1;
    if (label >= 0 && label < rule.classes) return label;
    if (reports) Report(rule.fault, rule.site, kIndexOutOfRange, label, rule.classes);
    return -1;
  }
  GRADLOOM_DEVICE Arithmetic<T> Weight(int64_t label) const {
    return weights == nullptr ? Arithmetic<T>(1) : static_cast<Arithmetic<T>>(weights[label]);
  }
};

// The destination of a row's loss: a term of the sum, or its own element of the output.
template <typename T>
struct RowLosses {
  Terms* terms;
  T* each;

  GRADLOOM_DEVICE void Set(int64_t row, double loss, double weight) const {
    if (terms != nullptr) terms[row] = {loss, weight};
    if (each != nullptr) each[row] = static_cast<T>(static_cast<Arithmetic<T>>(loss));
  }
};

// Stores whole vectors of 16 bytes as one word: the compiler divides some assignments of AlignedVector into elements.
template <typename T, int kSize>
GRADLOOM_DEVICE void StoreWhole(const AlignedVector<T, kSize>& vector, T* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(vector) == sizeof(uint4)) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&vector);
    return;
  }
#endif
  *reinterpret_cast<AlignedVector<T, kSize>*>(to) = vector;
}

// The scores of a row, or a gradient over them. With vectors, rows are padded to whole ones.
template <typename T, bool kVectors>
struct ScoreRows {
  static constexpr int kSize = kVectors ? static_cast<int>(kRowAlignmentBytes / sizeof(T)) : 1;
  int64_t classes, stride;

  // Calls f(first) for all of this thread's parts of a row, whose elements begin at class `first`.
  template <typename Group, typename F>
  GRADLOOM_DEVICE void ForEachPlace(const Group& group, const F& f) const {
    const int64_t step = int64_t{kSize} * group.threads();
    for (int64_t c = int64_t{kSize} * group.thread(); c < classes; c += step) f(c);
  }

  // Calls f(first, vector) for all of this thread's parts of a row.
  template <typename Group, typename F>
  GRADLOOM_DEVICE void ForEach(const Group& group, const T* row, const F& f) const {
    const int64_t step = int64_t{kSize} * group.threads();
    ForPairs(int64_t{kSize} * group.thread(), classes, step, row, f);
  }

  // The same, the last ones first: what was read last is most likely still in the cache.
  template <typename Group, typename F>
  GRADLOOM_DEVICE void ForEachBackwards(const Group& group, const T* row, const F& f) const {
    const int64_t step = int64_t{kSize} * group.threads(), begin = int64_t{kSize} * group.thread();
    if (begin < classes) ForPairs(begin + (classes - 1 - begin) / step * step, -1, -step, row, f);
  }

 private:
  using Vector = AlignedVector<T, kSize>;

  // From class `first` up to `end`, which is not included. Two loads are in flight together.
  template <typename F>
  GRADLOOM_DEVICE static void ForPairs(int64_t first, int64_t end, int64_t step, const T* row, const F& f) {
    const auto inside = [&](int64_t c) { return step > 0 ? c < end : c > end; };
    const auto load = [&](int64_t c) { return *reinterpret_cast<const Vector*>(row + c); };
    for (; inside(first + step); first += 2 * step) {
      const Vector one = load(first), next = load(first + step);
      f(first, one);
      f(first + step, next);
    }
    if (inside(first)) f(first, load(first));
  }
};

// The sum of terms(i) for begin <= i < end.
template <typename TermsOf>
GRADLOOM_DEVICE Terms SumOf(const Block& block, const TermsOf& terms, int64_t begin, int64_t end) {
  Terms sum;
  for (int64_t i = begin + block.thread(); i < end; i += block.threads()) sum = AddTerms{}(sum, terms(i));
  return block.Reduce(sum, AddTerms{});
}

struct StoredTerms {
  const Terms* terms;
  GRADLOOM_DEVICE Terms operator()(int64_t i) const { return terms[i]; }
};

// Where the sums go; null: a sum is not wanted.
template <typename T>
struct LossSums {
  bool mean;
  T *loss, *weights;

  GRADLOOM_DEVICE void operator()(const Terms& sum) const {
    if (loss != nullptr) *loss = static_cast<T>(static_cast<Arithmetic<T>>(mean ? sum.loss / sum.weight : sum.loss));
    if (weights != nullptr) *weights = static_cast<T>(static_cast<Arithmetic<T>>(sum.weight));
  }
};

// Sums terms(i) for i < n, if there are many in parts, for which there is room for kMaxLossParts sums. Calls store(sum) on the device.
template <typename TermsOf, typename Store>
void SumTermsOf(int64_t n, const TermsOf& terms, Terms* parts, const Store& store, cudaStream_t stream) {
  constexpr int64_t kTermsOfPart = 2048;
  const int64_t wanted = (n + kTermsOfPart - 1) / kTermsOfPart;
  const int64_t count = wanted < cuda_rows::kMaxLossParts ? wanted : cuda_rows::kMaxLossParts;
  if (count <= 1) {
    ForEachRow(
        1, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t) {
          const Terms sum = SumOf(block, terms, 0, n);
          if (block.thread() == 0) store(sum);
        });
    return;
  }
  const int64_t length = (n + count - 1) / count;
  ForEachRow(
      count, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t part) {
        const int64_t begin = part * length, left = n - begin;
        const Terms sum = SumOf(block, terms, begin, left < length ? n : begin + length);
        if (block.thread() == 0) parts[part] = sum;
      });
  SumTermsOf(count, StoredTerms{parts}, parts, store, stream);
}

// Sums the terms of the rows, after which there is room for the sums of parts.
template <typename T>
void SumTerms(int64_t rows, Terms* terms, bool mean, T* loss, T* weights, cudaStream_t stream) {
  SumTermsOf(rows, StoredTerms{terms}, terms + rows, LossSums<T>{mean, loss, weights}, stream);
}

// The sum of the weights of all classes.
template <typename T>
void SumWeights(int64_t classes, const T* weights, double* sum, cudaStream_t stream) {
  ForEachRow(
      1, stream, GRADLOOM_ON_DEVICE(const Block& block, int64_t) {
        double own = 0;
        for (int64_t c = block.thread(); c < classes; c += block.threads()) own += static_cast<double>(weights[c]);
        own = block.Reduce(own, Sum{});
        if (block.thread() == 0) *sum = own;
      });
}

// Calls f with the type of the scores, and whether their rows are read in vectors.
template <typename F>
std::unique_ptr<Kernel> WithScores(const OperandType& scores, const F& f) {
  const bool vectors = *RowStrideOf(scores) * DTypeBytes(scores.dtype) % kRowAlignmentBytes == 0;
  return WithFloating(scores.dtype, [&]<typename T>(std::type_identity<T> type) {
    return vectors ? f(type, std::bool_constant<true>()) : f(type, std::bool_constant<false>());
  });
}

}  // namespace gradloom::cuda
