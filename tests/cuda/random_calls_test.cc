// Calls of random sizes and contents on the CUDA device, compared with the reference kernel, for operators whose code paths depend on the
// data more than a few fixed cases can show. GRADLOOM_SEED=N draws different calls.
#include "tests/cuda/random_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/catalog/pointwise.h"
#include "kernels/catalog/pointwise_tensors.h"
#include "runtime/base/narrow.h"

namespace gradloom {
namespace {

using namespace random_calls;  // NOLINT: all of it

// More elements than a block counts at once, few or many of them zero.
TEST(CudaRandomCalls, NonZero) {
  ForEachSeed(12, [](Random& r) {
    Shape shape;
    for (int64_t axis = r.Int(0, 3); axis > 0; --axis) shape.push_back(r.Int(1, 24));
    const int64_t rows = std::max(shape.rank(), 1), n = shape.elements(), most = r.Int(0, 3);
    Tensor x = r.Wholes(shape, -most, most, r.Coin() ? DType::kFloat32 : DType::kInt16);
    const bool wants_places = r.Int(0, 3) > 0;
    Compare(Case("NonZero", "gradloom", {x}, {wants_places ? Out(DType::kInt64, {rows, n}) : OperandType{}, Out(DType::kInt64, {})}));
  });
}

// A NaN equals only NaN, and negative zero equals zero.
TEST(CudaRandomCalls, Unique) {
  ForEachSeed(12, [](Random& r) {
    const bool flat = r.Coin();
    const Shape shape = flat ? Shape{r.Int(1, 6000)} : Shape{r.Int(1, 3), r.Int(1, 40), r.Int(1, 3)};
    const int64_t axis = flat ? 0 : r.Int(0, 2), n = shape[static_cast<int>(axis)];
    Tensor x = r.Wholes(shape, 0, r.Int(0, 2) == 0 ? 3000 : 2, r.Coin() ? DType::kFloat32 : DType::kInt64);
    if (x.dtype() == DType::kFloat32) {
      for (float& value : x.as<float>())
        value = value == 2 ? std::numeric_limits<float>::quiet_NaN() : value == 1 && r.Coin() ? -0.0f : value - 1;
    }
    const auto wanted = [&](Shape of) { return r.Int(0, 4) > 0 ? Out(DType::kInt64, std::move(of)) : OperandType{}; };
    Attributes attributes{{"sorted", r.Int(0, 1)}};
    if (!flat || r.Coin()) attributes.set("axis", axis);
    Compare(Case("Unique", "gradloom", {x}, {wanted({n}), wanted({n}), wanted({n}), Out(DType::kInt64, {})}, attributes));
  });
}

// Rows handled by a thread, a warp or a block; results in float32 and 16 bits, and incoming gradients in 16 bits.
TEST(CudaRandomCalls, LayerNormOfTwoTypes) {
  ForEachSeed(12, [](Random& r) {
    const DType half = r.Coin() ? DType::kFloat16 : DType::kBfloat16;
    const int64_t n = r.Int(0, 2) == 0 ? 1 + 3 * r.Int(0, 1) : r.Int(0, 1) == 0 ? r.Int(5, 300) : r.Int(1025, 1100);
    const Shape shape{r.Int(1, 4), r.Int(1, 5), n}, row{n};
    const auto reals = [&](const Shape& of, DType dtype) { return r.Reals(of, -2, 2, dtype); };
    const Tensor x = reals(shape, DType::kFloat32), scale = reals(row, DType::kFloat32);
    const Tensor bias = r.Coin() ? reals(row, DType::kFloat32) : Tensor();
    const OperandType y = r.Coin() ? Out(DType::kFloat32, shape) : OperandType{};
    const double ulp = half == DType::kFloat16 ? 0x1p-8 : 0x1p-5;
    Compare(Case("LayerNormCast", "gradloom", {x, scale, bias}, {y, Out(half, shape)},
                 {{"axis", int64_t{-1}}, {"epsilon", 1e-5}, {"to", static_cast<int64_t>(half)}}),
            ulp);
    const auto wanted = [&](const Shape& of) { return r.Int(0, 3) > 0 ? Out(DType::kFloat32, of) : OperandType{}; };
    Compare(Case("LayerNormGrad", "gradloom", {reals(shape, half), x, scale}, {wanted(shape), wanted(row), wanted(row)},
                 {{"axis", int64_t{-1}}, {"epsilon", 1e-5}}),
            n == 1 ? 0.05 : 2e-2);
  });
}

TEST(CudaRandomCalls, NonMaxSuppression) {
  ForEachSeed(20, [](Random& r) {
    const int64_t images = r.Int(1, 2), classes = r.Int(1, 3), n = r.Int(0, 150);
    const Tensor boxes = r.Reals({images, n, 4}, 0, 1, DType::kFloat32), scores = r.Reals({images, classes, n}, 0, 1, DType::kFloat32);
    const Tensor most = r.Int(0, 4) > 0 ? Tensor::Scalar<int64_t>(r.Int(0, n)) : Tensor();
    const Tensor overlap = r.Coin() ? Tensor::Scalar<float>(static_cast<float>(r.Real(0, 0.8))) : Tensor();
    const Tensor least = r.Coin() ? Tensor::Scalar<float>(static_cast<float>(r.Real(0, 1))) : Tensor();
    const int64_t bound = images * classes * n;
    Compare(Case("NonMaxSuppression", "gradloom", {boxes, scores, most, overlap, least},
                 {Out(DType::kInt64, {bound, 3}), Out(DType::kInt64, {})}, {{"bound", bound}, {"center_point_box", r.Int(0, 1)}}));
  });
}

TEST(CudaRandomCalls, Repack) {
  ForEachSeed(20, [](Random& r) {
    // The same factors, grouped in two ways.
    const int64_t a = r.Int(0, 5), b = r.Int(1, 5), c = r.Int(1, 5);
    const Ints from{a, b * c}, to = r.Coin() ? Ints{a * b, c} : Ints{b, a, c};
    const auto roomy = [&](const Ints& extents) {
      Shape shape;
      for (int64_t extent : extents) shape.push_back(extent + r.Int(1, 4));
      return shape;
    };
    const Shape shape = roomy(to);
    const auto vector = [](const Ints& list) { return Tensor::From(list, Shape{static_cast<int64_t>(list.size())}); };
    Compare(Case("Repack", "gradloom", {r.Reals(roomy(from)), vector(from), vector(to)}, {Out(DType::kFloat64, shape)},
                 {{"shape", shape.dims()}, {"repeat", r.Int(0, 1)}}));
  });
}

// Boxes inside the images, across their edges, outside, and inverted.
TEST(CudaRandomCalls, RegionsOfInterest) {
  ForEachSeed(40, [](Random& r) {
    const Shape x{r.Int(1, 3), r.Int(1, 3), r.Int(1, 9), r.Int(1, 9)};
    const int64_t boxes = r.Int(0, 5), rows = r.Int(1, 4), columns = r.Int(1, 4);
    const Shape y{boxes, x[1], rows, columns};
    const Tensor images = r.Wholes({boxes}, 0, x[0] - 1);
    const bool aligned = r.Int(0, 2) > 0;
    Tensor rois = r.Reals({boxes, aligned ? 4 : 5}, -4, 14);
    if (!aligned) {
      for (int64_t k = 0; k < boxes; ++k)
        rois.as<double>()[static_cast<size_t>(5 * k)] = static_cast<double>(images.as<int64_t>()[static_cast<size_t>(k)]);
    }
    Attributes attributes{{"spatial_scale", r.Coin() ? 1.0 : 0.5}};
    std::vector<Tensor> inputs{r.Reals(x), rois};
    if (aligned) {
      attributes.set("mode", std::string(r.Coin() ? "avg" : "max"));
      attributes.set("coordinate_transformation_mode", std::string(r.Coin() ? "half_pixel" : "output_half_pixel"));
      attributes.set("sampling_ratio", r.Int(0, 3));
      inputs.push_back(images);
    } else {
      attributes.set("pooled_shape", Ints{rows, columns});
    }
    const std::string op = aligned ? "RoiAlign" : "MaxRoiPool";
    // Weights of at most 1 that sum to at most 1 over the points of a bin, for each bin of each box: a few roundings each.
    const double each = 1e-15 * 64;
    Compare(Case(op, "", inputs, {Out(DType::kFloat64, y)}, attributes), each);
    inputs.push_back(r.Reals(y));
    Compare(Case(op + "Grad", "gradloom", inputs, {Out(DType::kFloat64, x)}, attributes),
            each * static_cast<double>(1 + boxes * rows * columns));
  });
}

TEST(CudaRandomCalls, DeformConv) {
  ForEachSeed(20, [](Random& r) {
    const int64_t groups = r.Int(1, 2), offset_groups = r.Int(1, 2), channels = groups * offset_groups * r.Int(1, 2),
                  filters = groups * r.Int(1, 20);
    const Shape x{r.Int(1, 2), channels, r.Int(4, 9), r.Int(4, 9)}, w{filters, channels / groups, r.Int(1, 3), r.Int(1, 3)};
    const Ints strides{r.Int(1, 2), r.Int(1, 2)}, dilations{r.Int(1, 2), r.Int(1, 2)},
        pads{r.Int(1, 2), r.Int(1, 2), r.Int(1, 2), r.Int(1, 2)};
    Shape y{x[0], filters, 0, 0};
    for (int axis = 0; axis < 2; ++axis) {
      const auto a = static_cast<size_t>(axis);
      y[2 + axis] = (x[2 + axis] + pads[a] + pads[a + 2] - dilations[a] * (w[2 + axis] - 1) - 1) / strides[a] + 1;
    }
    const int64_t taps = w[2] * w[3];
    std::vector<Tensor> inputs{r.Reals(x), r.Reals(w), r.Reals({x[0], offset_groups * taps * 2, y[2], y[3]}, -3, 3)};
    inputs.push_back(r.Coin() ? r.Reals({filters}) : Tensor());
    inputs.push_back(r.Coin() ? r.Reals({x[0], offset_groups * taps, y[2], y[3]}) : Tensor());
    Attributes attributes{
        {"group", groups}, {"offset_group", offset_groups}, {"strides", strides}, {"dilations", dilations}, {"pads", pads}};
    // Products of numbers up to 2, for the largest possible number of terms in a sum.
    const double terms = static_cast<double>(channels * taps + x[0] * y[2] * y[3] * taps * filters);
    Compare(Case("DeformConv", "", inputs, {Out(DType::kFloat64, y)}, attributes), 1e-15 * 16 * terms);
    Ints wanted{0, 1, 2};
    for (int64_t optional : {3, 4}) {
      if (inputs[static_cast<size_t>(optional)].defined()) wanted.push_back(optional);
    }
    if (r.Coin()) wanted.erase(wanted.begin() + r.Int(0, 2));
    std::vector<OperandType> outputs;
    for (int64_t input : wanted) outputs.push_back(Out(DType::kFloat64, inputs[static_cast<size_t>(input)].shape()));
    inputs.push_back(r.Reals(y));
    attributes.set("wanted", wanted);
    Compare(Case("DeformConvGrad", "gradloom", inputs, outputs, attributes), 1e-15 * 16 * terms);
  });
}

// Sums of integers, and results that are rounded from them once, are exact.
TEST(CudaRandomCalls, QuantizedProducts) {
  ForEachSeed(30, [](Random& r) {
    const auto byte = [&] { return r.Coin() ? DType::kInt8 : DType::kUint8; };
    const auto bytes = [&](Shape shape, DType dtype) { return r.Wholes(std::move(shape), dtype == DType::kInt8 ? -128 : 0, 127, dtype); };
    const auto scale = [&](Shape shape) { return r.Reals(std::move(shape), 0.01, 0.2, DType::kFloat32); };
    const DType at = byte(), bt = byte(), yt = byte();
    const int64_t m = r.Int(1, 5), k = r.Int(1, 9), n = r.Int(1, 5), batch = r.Int(1, 3);
    const auto some = [&](int64_t count) { return r.Coin() ? Shape{count} : Shape{}; };
    const Shape rows = some(m), columns = some(n), results = some(m);
    Compare(Case("QLinearMatMul", "",
                 {bytes({batch, m, k}, at), scale(rows), bytes(rows, at), bytes({k, n}, bt), scale(columns), bytes(columns, bt),
                  scale(results), bytes(results, yt)},
                 {Out(yt, {batch, m, n})}));
    const int64_t groups = r.Int(1, 2), channels = groups * r.Int(1, 3), filters = groups * r.Int(1, 3), side = r.Int(3, 6);
    const Shape x{batch, channels, side, side}, w{filters, channels / groups, 3, 2}, of_filter = some(filters);
    const Shape y{batch, filters, side, side};
    const Attributes attributes{{"group", groups}, {"pads", Ints{1, 0, 1, 1}}};
    const Tensor bias = r.Coin() ? r.Wholes({filters}, -500, 500, DType::kInt32) : Tensor();
    Compare(
        Case("QLinearConv", "",
             {bytes(x, at), scale({}), bytes({}, at), bytes(w, bt), scale(of_filter), bytes(of_filter, bt), scale({}), bytes({}, yt), bias},
             {Out(yt, y)}, attributes));
    const Tensor x_zero = r.Coin() ? bytes({}, at) : Tensor(), w_zero = r.Coin() ? bytes(of_filter, bt) : Tensor();
    Compare(Case("ConvInteger", "", {bytes(x, at), bytes(w, bt), x_zero, w_zero}, {Out(DType::kInt32, y)}, attributes));
  });
}

TEST(CudaRandomCalls, Spectra) {
  ForEachSeed(30, [](Random& r) {
    // From 32 points on transforms are divided.
    const int64_t most = r.Coin() ? 14 : 90, n = r.Int(1, most), length = r.Int(1, most), parts = r.Int(1, 2), inner = r.Int(1, 3);
    const bool inverse = r.Coin(), onesided = (inverse ? parts == 2 : parts == 1) && r.Coin();
    const int64_t bins = onesided && !inverse ? length / 2 + 1 : length;
    const Attributes attributes{{"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}};
    const Shape y{2, bins, inner, onesided && inverse ? 1 : 2};
    // Sums of up to `length` products of numbers up to 1, with roots of unity that are rounded once.
    const double allowed = 1e-15 * 16 * static_cast<double>(length + 1);
    Compare(Case("DFT", "", {r.Reals({2, n, inner, parts}), Tensor::Scalar<int64_t>(length), Tensor::Scalar<int64_t>(1)},
                 {Out(DType::kFloat64, y)}, attributes)
                .Known(),
            allowed);
    const int64_t step = r.Int(1, 3), frames = r.Int(1, 4), samples = (frames - 1) * step + length + r.Int(0, step - 1);
    const bool has_window = r.Coin();
    Compare(Case("STFT", "",
                 {r.Reals({2, samples, parts}), Tensor::Scalar<int64_t>(step), has_window ? r.Reals({length}) : Tensor(),
                  Tensor::Scalar<int64_t>(length)},
                 {Out(DType::kFloat64, {2, frames, parts == 1 ? length / 2 + 1 : length, 2})}, {{"onesided", int64_t{parts == 1}}})
                .Known(),
            allowed);
  });
}

// More transforms than are computed at a time.
TEST(CudaRandomCalls, ManySpectra) {
  Random r(1);
  const int64_t lines = 30'000, length = 36;
  Compare(Case("DFT", "", {r.Reals({lines, length, 1}), Tensor::Scalar<int64_t>(length), Tensor::Scalar<int64_t>(1)},
               {Out(DType::kFloat64, {lines, length / 2 + 1, 2})}, {{"onesided", int64_t{1}}})
              .Known(),
          1e-15 * 16 * static_cast<double>(length + 1));
}

// Decision trees in the form of attributes, generated from their roots down.
class RandomTrees {
 public:
  RandomTrees(Random& random, int64_t features, int64_t targets) : random_(random), features_(features), targets_(targets) {}

  void AddTree(int depth) { roots_.push_back(AddNode(depth)); }

  Attributes ToAttributes(bool missing) const {
    const auto whole = [](const Ints& list) { return Tensor::From(list, Shape{static_cast<int64_t>(list.size())}); };
    const auto real = [](const std::vector<double>& list) { return Tensor::From(list, Shape{static_cast<int64_t>(list.size())}); };
    Attributes a{{"nodes_modes", whole(modes_)},
                 {"nodes_splits", real(splits_)},
                 {"nodes_featureids", feature_},
                 {"nodes_falsenodeids", children_[0]},
                 {"nodes_truenodeids", children_[1]},
                 {"nodes_falseleafs", leaf_[0]},
                 {"nodes_trueleafs", leaf_[1]},
                 {"leaf_weights", real(weights_)},
                 {"leaf_targetids", target_},
                 {"tree_roots", roots_},
                 {"n_targets", targets_},
                 {"membership_values", real(MembersInOrder())},
                 {"aggregate_function", random_.Int(0, 3)}};
    if (missing) a.set("nodes_missing_value_tracks_true", missing_);
    return a;
  }

 private:
  int64_t AddNode(int depth) {
    const auto node = static_cast<int64_t>(modes_.size()), at = node;
    modes_.push_back(random_.Int(0, 6));
    splits_.push_back(static_cast<double>(random_.Int(-2, 2)));
    feature_.push_back(random_.Int(0, features_ - 1));
    missing_.push_back(random_.Int(0, 1));
    members_.emplace_back();
    for (int64_t k = random_.Int(0, 3); k > 0; --k) members_.back().push_back(static_cast<double>(random_.Int(-2, 2)));
    for (size_t taken : {0, 1}) children_[taken].push_back(0), leaf_[taken].push_back(0);
    for (size_t taken : {0, 1}) {
      const bool ends = depth == 0 || random_.Int(0, 3) == 0;
      const int64_t child = ends ? static_cast<int64_t>(weights_.size()) : AddNode(depth - 1);
      children_[taken][static_cast<size_t>(at)] = child;
      leaf_[taken][static_cast<size_t>(at)] = ends ? 1 : 0;
      if (!ends) continue;
      weights_.push_back(random_.Real(-1, 1));
      target_.push_back(random_.Int(0, targets_ - 1));
    }
    return node;
  }

  // A NaN ends the member list of each node that tests membership.
  std::vector<double> MembersInOrder() const {
    std::vector<double> all;
    for (size_t i = 0; i < modes_.size(); ++i) {
      if (modes_[i] != 6) continue;
      all.insert(all.end(), members_[i].begin(), members_[i].end());
      all.push_back(std::numeric_limits<double>::quiet_NaN());
    }
    return all;
  }

  Random& random_;
  int64_t features_, targets_;
  Ints modes_, feature_, missing_, children_[2], leaf_[2], target_, roots_;
  std::vector<double> splits_, weights_;
  std::vector<std::vector<double>> members_;
};

TEST(CudaRandomCalls, Trees) {
  ForEachSeed(20, [](Random& r) {
    const int64_t samples = r.Int(0, 9), features = r.Int(1, 4), targets = r.Int(1, 3);
    RandomTrees trees(r, features, targets);
    for (int64_t k = r.Int(0, 4); k > 0; --k) trees.AddTree(static_cast<int>(r.Int(0, 4)));
    Tensor x = r.Wholes({samples, features}, -3, 3, DType::kFloat64);
    for (double& value : x.as<double>()) value = r.Int(0, 9) == 0 ? std::numeric_limits<double>::quiet_NaN() : value;
    Compare(Case("TreeEnsemble", "ai.onnx.ml", {x}, {Out(DType::kFloat64, {samples, targets})}, trees.ToAttributes(r.Coin())));
  });
}

// Few distinct items, so that n-grams occur, with and without other items in between.
TEST(CudaRandomCalls, NGrams) {
  ForEachSeed(20, [](Random& r) {
    const int64_t rows = r.Int(1, 4), width = r.Int(1, 12), longest = r.Int(1, 3), least = r.Int(1, longest);
    Ints pool, counts, places;
    for (int64_t n = 1; n <= longest; ++n) {
      counts.push_back(static_cast<int64_t>(pool.size()));
      for (int64_t k = r.Int(0, 4); k > 0; --k) {
        for (int64_t i = 0; i < n; ++i) pool.push_back(r.Int(0, 2));
        places.push_back(r.Int(0, 5));
      }
    }
    const char* const modes[] = {"TF", "IDF", "TFIDF"};
    Attributes attributes{{"pool_int64s", pool},
                          {"ngram_counts", counts},
                          {"ngram_indexes", places},
                          {"min_gram_length", least},
                          {"max_gram_length", longest},
                          {"max_skip_count", r.Int(0, 2)},
                          {"mode", std::string(modes[r.Int(0, 2)])}};
    if (r.Coin()) attributes.set("weights", std::vector<double>{0.5, 1, 2, 3, 0.25, 4});
    Compare(Case("TfIdfVectorizer", "", {r.Wholes({rows, width}, 0, 2, DType::kInt32)}, {Out(DType::kFloat32, {rows, 6})}, attributes));
  });
}

TEST(CudaRandomCalls, ThresholdsColumnsAndRows) {
  ForEachSeed(5, [](Random& r) {
    const int64_t rows = r.Int(1, 5), columns = r.Int(1, 6), chosen = r.Int(1, 8);
    const Tensor x = r.Wholes({rows, columns}, -3, 3, r.Coin() ? DType::kInt32 : DType::kFloat64);
    Compare(Case("Binarizer", "ai.onnx.ml", {x}, {Out(x.dtype(), x.shape())}, {{"threshold", r.Real(-2, 2)}}));
    Compare(Case("ArrayFeatureExtractor", "ai.onnx.ml", {x, r.Wholes({chosen}, 0, columns - 1)}, {Out(x.dtype(), {rows, chosen})}));
    Compare(Case("SetRow", "gradloom", {x, Tensor::Scalar(r.Int(0, rows - 1)), r.Wholes({columns}, -3, 3, x.dtype())},
                 {Out(x.dtype(), x.shape())}));
    Compare(Case("Copy", "gradloom", {x}, {Out(x.dtype(), x.shape())}));
  });
}

// Every narrow type, with inputs around all of its values, and all conversions of inputs that it cannot represent.
TEST(CudaRandomCalls, NarrowElements) {
  constexpr DType kNarrow[] = {DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2, DType::kFloat8E5M2Fnuz,
                               DType::kFloat8E8M0,   DType::kFloat6E2M3,     DType::kFloat6E3M2, DType::kFloat4E2M1,
                               DType::kInt4,         DType::kUint4,          DType::kInt2,       DType::kUint2};
  ForEachSeed(3, [&](Random& r) {
    for (const DType narrow : kNarrow) {
      const Shape shape{40, 8};
      Tensor x = r.Reals(shape, -1, 1, DType::kFloat32);
      for (float& value : x.as<float>()) value = std::ldexp(value, static_cast<int>(r.Int(-12, 20)));
      x.as<float>()[0] = std::numeric_limits<float>::infinity(), x.as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
      const Attributes attributes{{"saturate", r.Int(0, 1)}, {"round_mode", std::string(r.Coin() ? "up" : "nearest")}};
      const Case to("Cast", "", {x}, {Out(narrow, shape)}, attributes);
      Compare(to);
      const Tensor made = RunReference(to.call, to.inputs)[0];
      for (const DType back : {DType::kFloat32, DType::kBfloat16, DType::kInt32}) Compare(Case("Cast", "", {made}, {Out(back, shape)}));
      Tensor scale = r.Reals({8}, 0.1, 2, DType::kFloat32), zero = Converted(r.Wholes({8}, 0, 1, DType::kFloat32).view(), narrow);
      Compare(Case("DequantizeLinear", "", {made, scale, zero}, {Out(DType::kFloat32, shape)}));
      x.as<float>()[1] = 0;
      Compare(Case("QuantizeLinear", "", {x, scale, zero}, {Out(narrow, shape)}, {{"saturate", r.Int(0, 1)}}));
    }
  });
}

// Sums of up to k terms of at most 1, and sums of up to m of those, times a slope of at most 1.13: a few roundings of these.
TEST(CudaRandomCalls, ProductsWithEpilogues) {
  ForEachSeed(40, [](Random& r) {
    const std::pair<DType, double> types[] = {
        {DType::kFloat32, 1.2e-7}, {DType::kFloat16, 1e-3}, {DType::kBfloat16, 8e-3}, {DType::kFloat64, 2.3e-16}};
    const auto [dtype, epsilon] = types[r.Int(0, 3)];
    const int64_t m = r.Int(1, 40), n = r.Coin() ? 8 * r.Int(1, 6) : r.Int(1, 40), k = r.Int(1, 40), ta = r.Int(0, 1), tb = r.Int(0, 1);
    const Tensor a = r.Reals(ta ? Shape{k, m} : Shape{m, k}, -1, 1, dtype), b = r.Reals(tb ? Shape{n, k} : Shape{k, n}, -1, 1, dtype);
    Attributes attributes{{"transA", ta}, {"transB", tb}};
    const OperandType product = Out(dtype, {m, n});
    const double allowed = 4 * epsilon * static_cast<double>(k);
    const std::vector<Tensor> with_bias = r.Coin() ? std::vector{a, b, r.Reals({n}, -1, 1, dtype)} : std::vector{a, b};
    Compare(Case("GemmRelu", "gradloom", with_bias, {product}, attributes), allowed);
    Compare(Case("GemmGelu", "gradloom", with_bias, {product, product}, attributes), allowed);
    Compare(Case("GemmGeluGrad", "gradloom", {a, b, r.Reals({m, n}, -6, 6, dtype)}, {product, r.Coin() ? Out(dtype, {n}) : OperandType{}},
                 attributes),
            allowed * static_cast<double>(m));
    // Its pass divides the result by rows and columns.
    const int64_t rows = r.Int(30, 90), columns = r.Coin() ? 8 * r.Int(30, 70) : r.Int(30, 100);
    Compare(Case("GemmGeluGrad", "gradloom",
                 {r.Reals({rows, 2}, -1, 1, dtype), r.Reals({2, columns}, -1, 1, dtype), r.Reals({rows, columns}, -6, 6, dtype)},
                 {Out(dtype, {rows, columns}), Out(dtype, {columns})}),
            4 * epsilon * static_cast<double>(2 * rows));
    const int64_t summed = r.Int(0, 1);
    attributes.set("summed", summed);
    Compare(Case("GemmBiasGrad", "gradloom", {a, b}, {product, Out(dtype, {summed == 0 ? m : n})}, attributes), allowed);
  });
}

// Elements in groups of 8, 4 and 1, of which a thread computes one or two at a time; odd numbers of groups, and operands repeated along
// either axis. Differences are a rounding of a sum.
TEST(CudaRandomCalls, PointwiseGroups) {
  ForEachSeed(10, [](Random& r) {
    const bool functions = r.Coin();
    PointwiseProgram program{.num_inputs = 4, .constants = {0.25F}};
    const int sum = program.Emit(PointwiseOp::kAdd, 1, 2), other = functions ? program.Emit(PointwiseOp::kErf, 3) : 4;
    const int chosen = program.Emit(PointwiseOp::kWhere, 0, sum, other);
    const DType half = r.Coin() ? DType::kFloat16 : DType::kBfloat16, narrow = r.Int(0, 3) == 0 ? DType::kFloat32 : half;
    program.outputs = {program.Emit(half == DType::kFloat16 ? PointwiseOp::kToFloat16 : PointwiseOp::kToBfloat16, chosen)};
    std::vector<DType> types{half};
    if (r.Int(0, 2) == 0) {
      program.outputs.push_back(sum);
      types.push_back(DType::kFloat32);
    }
    Attributes attributes = program.ToAttributes();
    std::vector<int64_t> dtypes;
    for (DType type : types) dtypes.push_back(static_cast<int64_t>(type));
    attributes.set("dtypes", dtypes);
    const int64_t columns = std::vector<int64_t>{7, 12, 8, 24, 40}[static_cast<size_t>(r.Int(0, 4))];
    const Shape all{r.Int(1, 3), r.Int(1, 3), columns};
    std::vector<OperandType> outputs;
    for (DType type : types) outputs.push_back(Out(type, all));
    const Shape shapes[] = {all, {columns}, {all[0], 1, columns}, {all[1], 1}, {}};
    const auto shape = [&] { return shapes[r.Int(0, 4)]; };
    Compare(Case("Fused", "gradloom",
                 {r.Wholes(shape(), 0, 1, DType::kBool), r.Reals(all, -1, 1, narrow), r.Reals(shape(), -1, 1, r.Coin() ? half : narrow),
                  r.Reals(shape(), -1, 1, DType::kFloat32)},
                 outputs, attributes),
            0.02);
  });
}

// Groups of tensors in one launch, and each in its own, give the same bits.
TEST(CudaRandomCalls, FusedTensors) {
  ForEachSeed(4, [](Random& r) {
    const int64_t inputs = r.Int(1, 5);
    PointwiseProgram program{.num_inputs = static_cast<int>(inputs), .constants = {0.3F}};
    int result = program.Emit(PointwiseOp::kMul, 0, program.num_inputs);
    for (int i = 1; i < program.num_inputs; ++i) result = program.Emit(r.Coin() ? PointwiseOp::kAdd : PointwiseOp::kMul, result, i);
    program.outputs = {result};
    const bool two = r.Coin();
    if (two) program.outputs.push_back(program.Emit(PointwiseOp::kTanh, result));
    Attributes attributes = program.ToAttributes();
    const DType half = r.Coin() ? DType::kFloat16 : DType::kBfloat16, last = r.Coin() ? DType::kFloat32 : half;
    std::vector<int64_t> dtypes{static_cast<int64_t>(DType::kFloat32)};
    if (two) dtypes.push_back(static_cast<int64_t>(last));
    attributes.set("dtypes", dtypes);
    const int64_t tensors = r.Int(1, MaxFusedTensors(static_cast<size_t>(inputs), dtypes.size()));
    attributes.set("tensors", tensors);
    std::vector<bool> shared;
    std::vector<DType> types;
    for (int64_t i = 0; i < inputs; ++i) {
      shared.push_back(i > 0 && r.Int(0, 3) == 0);
      types.push_back(r.Coin() ? DType::kFloat32 : half);
    }
    std::vector<Tensor> operands;
    std::vector<OperandType> outputs;
    for (int64_t tensor = 0; tensor < tensors; ++tensor) {
      const Shape shape = r.Coin() ? Shape{r.Int(1, 5000)} : Shape{r.Int(1, 9), r.Int(1, 9)};
      for (size_t i = 0; i < shared.size(); ++i) operands.push_back(r.Reals(shared[i] ? Shape{} : shape, -1, 1, types[i]));
      for (int64_t dtype : dtypes) outputs.push_back(Out(static_cast<DType>(dtype), shape));
    }
    const Case all("FusedTensors", "gradloom", operands, outputs, attributes);
    const KernelRow* const row = ChooseKernel(DeviceKind::kCuda, all.call);
    ASSERT_NE(row, nullptr);
    const std::vector<Tensor> got = RunKernel(*row, all.call, all.inputs), wanted = RunReference(all.call, all.inputs);
    for (size_t k = 0; k < got.size(); ++k) {
      for (int64_t i = 0; i < got[k].elements(); ++i)
        ASSERT_NEAR(ElementAsDouble(got[k].view(), i), ElementAsDouble(wanted[k].view(), i), 1e-2) << row->name;
    }
    // The code for each shape is compiled separately.
    for (int tensor : {0, static_cast<int>(tensors) - 1}) {
      const KernelCall one = FusedOf(all.call, tensor);
      const auto first = all.inputs.begin() + tensor * inputs;
      const std::vector<Tensor> single = RunKernel(*ChooseKernel(DeviceKind::kCuda, one), one, {first, first + inputs});
      for (size_t k = 0; k < single.size(); ++k) {
        const Tensor& same = got[static_cast<size_t>(tensor) * single.size() + k];
        ASSERT_EQ(std::memcmp(same.data(), single[k].data(), static_cast<size_t>(single[k].bytes())), 0) << row->name << " " << tensor;
      }
    }
  });
}

// One sorted tile, lists merged once and twice, and targets with many updates and none. Sums of small whole numbers are exact.
TEST(CudaRandomCalls, GradientsOfGathers) {
  ForEachSeed(16, [](Random& r) {
    const int64_t counts[] = {r.Int(1, 300), r.Int(257, 4096), r.Int(4097, 9000)}, count = counts[r.Int(0, 2)];
    const int64_t rows = r.Coin() ? r.Int(1, 5) : r.Int(100, 6000), inner = r.Coin() ? 4 * r.Int(1, 4) : r.Int(1, 9);
    const DType dtypes[] = {DType::kFloat32, DType::kBfloat16, DType::kFloat64, DType::kInt32};
    const DType dtype = dtypes[r.Int(0, 3)], index = r.Coin() ? DType::kInt64 : DType::kInt32;
    // Half of the updates go to few rows.
    Tensor indices = r.Wholes({count}, -rows, rows - 1);
    for (int64_t i = 0; i < count; i += r.Int(1, 3))
      indices.as<int64_t>()[static_cast<size_t>(i)] = r.Int(0, std::min<int64_t>(rows - 1, 2));
    indices = Converted(indices.view(), index);
    const bool front = r.Int(0, 2) == 0;
    const Shape updates = front ? Shape{2, count, inner} : Shape{count, inner}, table = front ? Shape{2, rows, inner} : Shape{rows, inner};
    Compare(Case("GatherGrad", "gradloom", {indices, r.Wholes(updates, -4, 4, dtype)}, {Out(dtype, table)}, {{"axis", int64_t{front}}}));
  });
}

}  // namespace
}  // namespace gradloom
