// Numeric operators of ai.onnx.ml and of the text operators: thresholds, columns, trees, n-gram counts.
#include <algorithm>
#include <memory>

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/device_table.h"
#include "kernels/cuda/index.cuh"
#include "kernels/reference/traditional.h"

namespace gradloom::cuda {
namespace {

// Element and threshold are compared in double, as in the reference.
template <typename T>
void Binarize(int64_t n, const T* in, T* out, double threshold, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) { out[i] = Convert<T>(Convert<double>(in[i]) > threshold ? 1.0f : 0.0f); });
}

std::unique_ptr<Kernel> MakeBinarizer(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.inputs[0].shape.elements();
  const double threshold = call.attributes.Float("threshold", 0);
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { Binarize(n, l.In<T>(0), l.Out<T>(0), threshold, l.stream); });
  });
}

// Selects columns of the last axis.
template <typename T>
void Extract(int64_t n, int64_t count, int64_t extent, const T* in, const Indices& columns, T* out, const IndexFault& fault,
             cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, count);
        const int64_t column = fault.Checked(columns[at.rest], extent);
        out[i] = column < 0 ? T{} : in[at.quotient * extent + column];
      });
}

std::unique_ptr<Kernel> MakeArrayFeatureExtractor(const KernelCall& call, const KernelSite& site) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t extent = shape[shape.rank() - 1], count = call.inputs[1].shape.elements();
  const int64_t n = Product(shape, 0, shape.rank() - 1) * count;
  return WithBytes(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=, wide = IsWide(call.inputs[1]), fault = IndexFault(site)](const Launch& l) {
      Extract(n, count, extent, l.In<T>(0), {l.inputs[1], wide}, l.Out<T>(0), fault, l.stream);
    });
  });
}

// Owns the tables of a kernel in device memory.
struct DeviceTrees {
  std::vector<std::shared_ptr<const int64_t>> whole;
  std::vector<std::shared_ptr<const double>> real;
  TreeView trees{};

  explicit DeviceTrees(const KernelCall& call) {
    const TreeTables tables(call);
    trees = tables.view();
    const auto put = [&](const std::vector<int64_t>& list) { return whole.emplace_back(OnDevice(list)).get(); };
    const auto put_real = [&](const std::vector<double>& list) { return real.emplace_back(OnDevice(list)).get(); };
    trees.modes = put(tables.modes);
    trees.features = put(tables.features);
    for (size_t taken : {0, 1}) {
      trees.children[taken] = put(tables.children[taken]);
      trees.leaf[taken] = put(tables.leaf[taken]);
    }
    if (!tables.missing.empty()) trees.missing = put(tables.missing);
    trees.member_begin = put(tables.member_begin);
    trees.targets = put(tables.targets);
    trees.roots = put(tables.roots);
    trees.splits = put_real(tables.splits);
    trees.members = put_real(tables.members);
    trees.weights = put_real(tables.weights);
  }
};

// One thread per sample. Its totals are double, in scratch memory.
template <typename T>
void AddTrees(int64_t samples, int64_t features, int64_t outputs, const TreeView& trees, const T* x, double* totals, T* y,
              const IndexFault& fault, cudaStream_t stream) {
  ForEachElement(
      samples, stream, GRADLOOM_ON_DEVICE(int64_t sample) {
        double* const own = totals + sample * outputs;
        for (int64_t k = 0; k < outputs; ++k) own[k] = trees.none;
        for (int64_t tree = 0; tree < trees.trees; ++tree) {
          const int64_t leaf =
              trees.LeafOf(trees.roots[tree], [&](int64_t feature) { return Convert<double>(x[sample * features + feature]); });
          if (leaf < 0)
            Report(fault.fault, fault.site, kTreeCycle, 0, 0);
          else
            trees.Add(own[trees.targets[leaf]], trees.weights[leaf]);
        }
        for (int64_t k = 0; k < outputs; ++k) y[sample * outputs + k] = Convert<T>(own[k]);
      });
}

std::unique_ptr<Kernel> MakeTreeEnsemble(const KernelCall& call, const KernelSite& site) {
  const Shape& shape = call.inputs[0].shape;
  return WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([kept = DeviceTrees(call), samples = shape[0], features = shape[1], outputs = call.outputs[0].shape[1],
                       fault = IndexFault(site)](const Launch& l) {
      AddTrees(samples, features, outputs, kept.trees, l.In<T>(0), static_cast<double*>(l.scratch), l.Out<T>(0), fault, l.stream);
    });
  });
}

// The n-grams that are counted at each place of a row: grams [begin[p], begin[p + 1]), each with `length` items from `first` on.
struct DeviceGrams {
  const int64_t *begin, *first, *length, *items;
  const double* weights;  // by place; null: 1
  int64_t places, width, steps;
  bool counts, weighs;  // mode: TF has counts, IDF weights, TFIDF both

  // The number of occurrences of gram g in a row, with items up to `steps` apart.
  template <typename Row>
  GRADLOOM_DEVICE int64_t CountOf(int64_t g, const Row& x) const {
    int64_t count = 0;
    const int64_t n = length[g];
    // A single item has no gaps, so it is counted with one step only.
    for (int64_t step = 1; step <= (n > 1 ? steps : 1); ++step) {
      for (int64_t start = 0; start + (n - 1) * step < width; ++start) {
        bool same = true;
        for (int64_t k = 0; same && k < n; ++k) same = x(start + k * step) == items[first[g] + k];
        count += same ? 1 : 0;
      }
    }
    return count;
  }
};

struct DeviceGramTables {
  std::vector<std::shared_ptr<const int64_t>> whole;
  std::shared_ptr<const double> weights;
  DeviceGrams grams{};

  explicit DeviceGramTables(const KernelCall& call) {
    const Attributes& a = call.attributes;
    const Shape &x = call.inputs[0].shape, &y = call.outputs[0].shape;
    grams.places = y[y.rank() - 1];
    grams.width = x.rank() == 0 ? 1 : x[x.rank() - 1];
    // No n-gram with wider gaps fits into a row.
    grams.steps = std::min(a.Int("max_skip_count", 0), grams.width) + 1;
    const std::string mode = a.String("mode", "TF");
    grams.counts = mode != "IDF";
    grams.weighs = mode != "TF";
    std::vector<std::vector<const std::vector<int64_t>*>> at(static_cast<size_t>(grams.places));
    const std::map<std::vector<int64_t>, int64_t> place_of = NGramOutputIndices(call);
    for (const auto& [gram, place] : place_of) at.at(static_cast<size_t>(place)).push_back(&gram);
    std::vector<int64_t> begin{0}, first, length, items;
    for (const auto& of_place : at) {
      for (const std::vector<int64_t>* gram : of_place) {
        first.push_back(static_cast<int64_t>(items.size()));
        length.push_back(static_cast<int64_t>(gram->size()));
        items.insert(items.end(), gram->begin(), gram->end());
      }
      begin.push_back(static_cast<int64_t>(first.size()));
    }
    const auto put = [&](const std::vector<int64_t>& list) { return whole.emplace_back(OnDevice(list)).get(); };
    grams.begin = put(begin);
    grams.first = put(first);
    grams.length = put(length);
    grams.items = put(items);
    if (const std::vector<double> given = a.Floats("weights"); !given.empty()) {
      weights = OnDevice(given);
      grams.weights = weights.get();
    }
  }
};

// One thread per place of each row.
void CountGrams(int64_t n, const DeviceGrams& grams, const void* x, DType dtype, float* y, cudaStream_t stream) {
  ForEachElement(
      n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, grams.places);
        int64_t count = 0;
        for (int64_t g = grams.begin[at.rest]; g < grams.begin[at.rest + 1]; ++g) {
          count += grams.CountOf(g, [&](int64_t k) { return LoadAs<int64_t>(x, dtype, at.quotient * grams.width + k); });
        }
        const double weight = grams.weighs && grams.weights != nullptr ? grams.weights[at.rest] : 1.0;
        y[i] = static_cast<float>(grams.counts ? static_cast<double>(count) * weight : count > 0 ? weight : 0.0);
      });
}

std::unique_ptr<Kernel> MakeTfIdf(const KernelCall& call, const KernelSite&) {
  const int64_t n = call.outputs[0].shape.elements();
  return MakeKernel([kept = DeviceGramTables(call), n, dtype = call.inputs[0].dtype](const Launch& l) {
    CountGrams(n, kept.grams, l.inputs[0], dtype, l.Out<float>(0), l.stream);
  });
}

constexpr CudaKernel kTraditionalKernels[] = {
    {"cuda.TfIdfVectorizer", MakeTfIdf},
    {"cuda.ml.ArrayFeatureExtractor", MakeArrayFeatureExtractor},
    {"cuda.ml.Binarizer", MakeBinarizer},
    {"cuda.ml.TreeEnsemble", MakeTreeEnsemble},
};

}  // namespace

std::span<const CudaKernel> TraditionalKernels() { return kTraditionalKernels; }

}  // namespace gradloom::cuda
