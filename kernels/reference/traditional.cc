// Of ai.onnx.ml and of text, what works on numbers: thresholds, columns, trees, counts of n-grams.
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

// Columns of the last axis.
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

// Trees over the features of a sample, as attributes write them; leaves add up by target.
class Trees {
 public:
  explicit Trees(const KernelCall& call) : call_(call), attributes_(call.attributes) {
    modes_ = IntValues(attributes_.TensorOf("nodes_modes").view());
    splits_ = Numbers(attributes_.TensorOf("nodes_splits"));
    weights_ = Numbers(attributes_.TensorOf("leaf_weights"));
    for (const char* name : {"nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs"}) {
      if (attributes_.Ints(name).size() != modes_.size() || splits_.size() != modes_.size())
        throw Error(ErrorCode::kAttr, call.op + ": the lists of nodes differ in length");
    }
    feature_ = attributes_.Ints("nodes_featureids");
    next_[0] = attributes_.Ints("nodes_falsenodeids"), next_[1] = attributes_.Ints("nodes_truenodeids");
    leaf_[0] = attributes_.Ints("nodes_falseleafs"), leaf_[1] = attributes_.Ints("nodes_trueleafs");
    missing_ = attributes_.Ints("nodes_missing_value_tracks_true");
    if (!missing_.empty() && missing_.size() != modes_.size())
      throw Error(ErrorCode::kAttr, call.op + ": the lists of nodes differ in length");
    ReadMembers();
  }

  // The leaf that tree `root` leads a sample to.
  size_t LeafOf(int64_t root, const double* x, int64_t features) const {
    int64_t node = root;
    // A path has at most as many nodes as there are, or it goes in a circle.
    for (size_t steps = 0; steps < modes_.size(); ++steps) {
      const size_t at = Checked(node, modes_.size());
      const size_t taken = Holds(at, x[Checked(feature_[at], static_cast<size_t>(features))]) ? 1 : 0;
      node = next_[taken][at];
      if (leaf_[taken][at] != 0) return Checked(node, weights_.size());
    }
    throw Error(ErrorCode::kAttr, call_.op + ": the nodes of a tree go in a circle");
  }

  double weight(size_t leaf) const { return weights_[leaf]; }

 private:
  static gradloom::Numbers Numbers(const Tensor& tensor) {
    gradloom::Numbers numbers;
    for (int64_t i = 0; tensor.defined() && i < tensor.elements(); ++i) numbers.push_back(ElementAsDouble(tensor.view(), i));
    return numbers;
  }

  // The sets of the nodes that ask for membership, in the order of the nodes; a NaN ends each.
  void ReadMembers() {
    members_.resize(modes_.size());
    const gradloom::Numbers all = Numbers(attributes_.TensorOf("membership_values"));
    size_t next = 0;
    for (size_t i = 0; i < modes_.size(); ++i) {
      if (modes_[i] != kMember) continue;
      for (; next < all.size() && all[next] == all[next]; ++next) members_[i].push_back(all[next]);
      if (next++ >= all.size()) throw Error(ErrorCode::kAttr, call_.op + ": too few membership_values");
    }
  }

  size_t Checked(int64_t i, size_t count) const {
    if (i < 0 || static_cast<size_t>(i) >= count)
      throw Error(ErrorCode::kAttr, call_.op + ": an index " + std::to_string(i) + " among " + std::to_string(count));
    return static_cast<size_t>(i);
  }

  bool Holds(size_t at, double x) const {
    if (x != x && !missing_.empty() && missing_[at] != 0) return true;
    switch (modes_[at]) {
      case 0: return x <= splits_[at];
      case 1: return x < splits_[at];
      case 2: return x >= splits_[at];
      case 3: return x > splits_[at];
      case 4: return x == splits_[at];
      case 5: return x != splits_[at];
      case kMember: return std::find(members_[at].begin(), members_[at].end(), x) != members_[at].end();
      default: throw Error(ErrorCode::kAttr, call_.op + ": there is no mode " + std::to_string(modes_[at]));
    }
  }

  static constexpr int64_t kMember = 6;

  const KernelCall& call_;
  const Attributes& attributes_;
  std::vector<int64_t> modes_, feature_, missing_, next_[2], leaf_[2];
  gradloom::Numbers splits_, weights_;
  std::vector<gradloom::Numbers> members_;
};

void TreeEnsemble(const KernelCall& call, const void* const* in, void* const* out) {
  const Trees trees(call);
  const Shape& shape = call.inputs[0].shape;
  const std::vector<int64_t> roots = call.attributes.Ints("tree_roots"), targets = call.attributes.Ints("leaf_targetids");
  const int64_t count = call.outputs[0].shape[1];
  enum { kAverage, kSum, kLeast, kMost };
  const int64_t aggregate = call.attributes.Int("aggregate_function", kSum);
  const double none = aggregate == kLeast  ? std::numeric_limits<double>::infinity()
                      : aggregate == kMost ? -std::numeric_limits<double>::infinity()
                                           : 0.0;
  const Numbers x = NumbersOf(call, in, 0);
  Numbers y(static_cast<size_t>(shape[0] * count), none);
  for (int64_t sample = 0; sample < shape[0]; ++sample) {
    for (int64_t root : roots) {
      const size_t leaf = trees.LeafOf(root, x.data() + sample * shape[1], shape[1]);
      double& total = y.at(static_cast<size_t>(sample * count + CheckedIndex(call, targets.at(leaf), count)));
      const double weight = trees.weight(leaf);
      if (aggregate == kLeast) total = std::min(total, weight);
      if (aggregate == kMost) total = std::max(total, weight);
      if (aggregate == kSum) total += weight;
      if (aggregate == kAverage) total += weight / static_cast<double>(roots.size());
    }
  }
  StoreNumbers(call, 0, y, out);
}

// How often each n-gram of the pool occurs in a row, its items up to max_skip_count others apart.
void TfIdfVectorizer(const KernelCall& call, const void* const* in, void* const* out) {
  const Attributes& a = call.attributes;
  const int64_t least = a.Int("min_gram_length", 1), most = a.Int("max_gram_length", 1), skips = a.Int("max_skip_count", 0);
  const std::vector<int64_t> pool = a.Ints("pool_int64s"), counts = a.Ints("ngram_counts"), places = a.Ints("ngram_indexes");
  // Where to count each n-gram, in the order of the pool, which is by length.
  std::map<std::vector<int64_t>, int64_t> place_of;
  const auto total = static_cast<int64_t>(pool.size());
  size_t gram = 0;
  for (size_t n = 1; n <= counts.size(); ++n) {
    const int64_t begin = counts[n - 1], end = n < counts.size() ? counts[n] : total;
    if (begin < 0 || end < begin || end > total) throw Error(ErrorCode::kAttr, call.op + ": ngram_counts are no places of the pool");
    for (int64_t at = begin; at + static_cast<int64_t>(n) <= end; at += static_cast<int64_t>(n), ++gram) {
      if (static_cast<int64_t>(n) >= least && static_cast<int64_t>(n) <= most)
        place_of.emplace(std::vector<int64_t>(pool.begin() + at, pool.begin() + at + static_cast<int64_t>(n)), places.at(gram));
    }
  }
  const Shape& shape = call.inputs[0].shape;
  const int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1], size = call.outputs[0].shape[call.outputs[0].shape.rank() - 1];
  const std::vector<int64_t> x = IntValues(InputView(call, in, 0));
  Numbers y(static_cast<size_t>(call.outputs[0].shape.elements()), 0.0);
  for (int64_t row = 0; row < (width == 0 ? 0 : static_cast<int64_t>(x.size()) / width); ++row) {
    for (int64_t step = 1; step <= skips + 1; ++step) {
      // A single item is not skipped over: it counts once.
      const int64_t first = step > 1 ? std::max<int64_t>(least, 2) : least;
      for (int64_t start = 0; start < width; ++start) {
        std::vector<int64_t> items;
        for (int64_t at = start; at < width && static_cast<int64_t>(items.size()) < most; at += step) {
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

std::span<const ReferenceKernel> ReferenceTraditional() { return kKernels; }

}  // namespace gradloom
