// Numeric operators of ai.onnx.ml and of the text operators: thresholds, columns, trees, n-gram counts.
#include "kernels/reference/traditional.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/reference/families.h"
#include "kernels/reference/numbers.h"
#include "kernels/reference/operands.h"

namespace gradloom {
namespace {

void Binarizer(const KernelCall& call, const void* const* in, void* const* out) {
  const double threshold = call.attributes.Float("threshold", 0);
  Numbers x = NumbersOf(call, in, 0);
  for (double& value : x) value = value > threshold ? 1 : 0;
  StoreNumbers(call, 0, x, out);
}

// Selects columns of the last axis.
void ArrayFeatureExtractor(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const std::vector<int64_t> columns = InputInts(call, in, 1);
  const int64_t extent = shape[shape.rank() - 1], rows = extent == 0 ? 0 : shape.elements() / extent;
  WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    T* y = Out<T>(out, 0);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column : columns) *y++ = In<T>(in, 0)[row * extent + CheckedIndex(call, column, extent)];
    }
  });
}

void TreeEnsemble(const KernelCall& call, const void* const* in, void* const* out) {
  const TreeTables tables(call);
  const TreeView trees = tables.view();
  const Shape& shape = call.inputs[0].shape;
  const int64_t count = call.outputs[0].shape[1];
  const Numbers x = NumbersOf(call, in, 0);
  Numbers y(static_cast<size_t>(shape[0] * count), trees.none);
  for (int64_t sample = 0; sample < shape[0]; ++sample) {
    const double* const features = x.data() + sample * shape[1];
    for (int64_t root : tables.roots) {
      const int64_t leaf = trees.LeafOf(root, [&](int64_t feature) { return features[feature]; });
      if (leaf < 0) throw Error(ErrorCode::kAttr, call.op + ": the nodes of a tree go in a circle");
      trees.Add(y[static_cast<size_t>(sample * count + trees.targets[leaf])], trees.weights[leaf]);
    }
  }
  StoreNumbers(call, 0, y, out);
}

// Counts the occurrences of each n-gram of the pool in a row, with up to max_skip_count items skipped between its items.
void TfIdfVectorizer(const KernelCall& call, const void* const* in, void* const* out) {
  const Attributes& a = call.attributes;
  const int64_t min_length = a.Int("min_gram_length", 1), max_length = a.Int("max_gram_length", 1), skips = a.Int("max_skip_count", 0);
  const std::map<std::vector<int64_t>, int64_t> place_of = NGramOutputIndices(call);
  const Shape& shape = call.inputs[0].shape;
  const int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1], size = call.outputs[0].shape[call.outputs[0].shape.rank() - 1];
  const std::vector<int64_t> x = IntValues(InputView(call, in, 0));
  Numbers y(static_cast<size_t>(call.outputs[0].shape.elements()), 0.0);
  // No n-gram with wider gaps fits into a row.
  const int64_t steps = std::min(skips, width) + 1;
  for (int64_t row = 0; row < (width == 0 ? 0 : static_cast<int64_t>(x.size()) / width); ++row) {
    for (int64_t step = 1; step <= steps; ++step) {
      // A single item has no gaps, so it is counted with one step only.
      const int64_t first = step > 1 ? std::max<int64_t>(min_length, 2) : min_length;
      for (int64_t start = 0; start < width; ++start) {
        std::vector<int64_t> items;
        for (int64_t at = start; at < width && static_cast<int64_t>(items.size()) < max_length; at += step) {
          items.push_back(x[static_cast<size_t>(row * width + at)]);
          if (static_cast<int64_t>(items.size()) < first) continue;
          if (const auto found = place_of.find(items); found != place_of.end())
            y.at(static_cast<size_t>(row * size + CheckedIndex(call, found->second, size))) += 1;
        }
      }
    }
  }
  const std::string mode = a.String("mode", "TF");
  const std::vector<double> weights = a.Floats("weights");
  for (size_t i = 0; mode != "TF" && i < y.size(); ++i) {
    const double weight = weights.empty() ? 1.0 : weights.at(i % static_cast<size_t>(size));
    y[i] = mode == "IDF" ? (y[i] > 0 ? weight : 0.0) : y[i] * weight;
  }
  StoreNumbers(call, 0, y, out);
}

constexpr std::string_view kMl = "ai.onnx.ml";
constexpr ReferenceKernel kKernels[] = {
    {"ArrayFeatureExtractor", kMl, ArrayFeatureExtractor},
    {"Binarizer", kMl, Binarizer},
    {"TfIdfVectorizer", "", TfIdfVectorizer},
    {"TreeEnsemble", kMl, TreeEnsemble},
};

}  // namespace

TreeTables::TreeTables(const KernelCall& call) {
  const Attributes& a = call.attributes;
  const auto numbers = [&](const char* name) {
    std::vector<double> list;
    const Tensor tensor = a.TensorOf(name);
    for (int64_t i = 0; tensor.defined() && i < tensor.elements(); ++i) list.push_back(ElementAsDouble(tensor.view(), i));
    return list;
  };
  modes = IntValues(a.TensorOf("nodes_modes").view());
  splits = numbers("nodes_splits");
  features = a.Ints("nodes_featureids");
  children[0] = a.Ints("nodes_falsenodeids"), children[1] = a.Ints("nodes_truenodeids");
  leaf[0] = a.Ints("nodes_falseleafs"), leaf[1] = a.Ints("nodes_trueleafs");
  missing = a.Ints("nodes_missing_value_tracks_true");
  weights = numbers("leaf_weights");
  targets = a.Ints("leaf_targetids");
  roots = a.Ints("tree_roots");
  aggregate = a.Int("aggregate_function", kSum);
  const size_t n = modes.size();
  bool equal = splits.size() == n && (missing.empty() || missing.size() == n) && targets.size() == weights.size();
  for (const auto* list : {&features, &children[0], &children[1], &leaf[0], &leaf[1]}) equal = equal && list->size() == n;
  if (!equal) throw Error(ErrorCode::kAttr, call.op + ": the lists of nodes or leaves differ in length");
  const auto check = [&](int64_t i, size_t count) {
    if (i < 0 || static_cast<size_t>(i) >= count)
      throw Error(ErrorCode::kAttr, call.op + ": an index " + std::to_string(i) + " among " + std::to_string(count));
  };
  for (size_t i = 0; i < n; ++i) {
    check(features[i], static_cast<size_t>(call.inputs[0].shape[1]));
    for (size_t taken : {0, 1}) check(children[taken][i], leaf[taken][i] != 0 ? weights.size() : n);
    if (modes[i] < 0 || modes[i] >= kModes) throw Error(ErrorCode::kAttr, call.op + ": there is no mode " + std::to_string(modes[i]));
  }
  for (int64_t root : roots) check(root, n);
  for (int64_t target : targets) check(target, static_cast<size_t>(call.outputs[0].shape[1]));
  // The sets are in the order of the nodes; each ends with a NaN.
  const std::vector<double> all = numbers("membership_values");
  size_t next = 0;
  for (size_t i = 0; i < n; ++i) {
    member_begin.push_back(static_cast<int64_t>(members.size()));
    if (modes[i] != kMember) continue;
    for (; next < all.size() && all[next] == all[next]; ++next) members.push_back(all[next]);
    if (next++ >= all.size()) throw Error(ErrorCode::kAttr, call.op + ": too few membership_values");
  }
  member_begin.push_back(static_cast<int64_t>(members.size()));
}

double TreeTables::none() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return aggregate == kMin ? kInfinity : aggregate == kMax ? -kInfinity : 0.0;
}

TreeView TreeTables::view() const {
  return {.modes = modes.data(),
          .features = features.data(),
          .children = {children[0].data(), children[1].data()},
          .leaf = {leaf[0].data(), leaf[1].data()},
          .missing = missing.empty() ? nullptr : missing.data(),
          .member_begin = member_begin.data(),
          .targets = targets.data(),
          .roots = roots.data(),
          .splits = splits.data(),
          .members = members.data(),
          .weights = weights.data(),
          .nodes = static_cast<int64_t>(modes.size()),
          .trees = static_cast<int64_t>(roots.size()),
          .aggregate = aggregate,
          .none = none()};
}

std::map<std::vector<int64_t>, int64_t> NGramOutputIndices(const KernelCall& call) {
  const Attributes& a = call.attributes;
  const int64_t min_length = a.Int("min_gram_length", 1), max_length = a.Int("max_gram_length", 1);
  const std::vector<int64_t> pool = a.Ints("pool_int64s"), counts = a.Ints("ngram_counts"), places = a.Ints("ngram_indexes");
  // In the order of the pool, which is sorted by length.
  std::map<std::vector<int64_t>, int64_t> place_of;
  const auto total = static_cast<int64_t>(pool.size());
  size_t gram = 0;
  for (size_t n = 1; n <= counts.size(); ++n) {
    const int64_t begin = counts[n - 1], end = n < counts.size() ? counts[n] : total;
    if (begin < 0 || end < begin || end > total) throw Error(ErrorCode::kAttr, call.op + ": ngram_counts are no places of the pool");
    for (int64_t at = begin; at + static_cast<int64_t>(n) <= end; at += static_cast<int64_t>(n), ++gram) {
      if (static_cast<int64_t>(n) >= min_length && static_cast<int64_t>(n) <= max_length)
        place_of.emplace(std::vector<int64_t>(pool.begin() + at, pool.begin() + at + static_cast<int64_t>(n)), places.at(gram));
    }
  }
  return place_of;
}

std::span<const ReferenceKernel> ReferenceTraditional() { return kKernels; }

}  // namespace gradloom
