// Extents that the data of a step decides: a model that is fed its masks gives the loss, the outputs and the gradients of the same model
// with the masks known at import, where every shape is a number.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "runtime/exec/host_executor.h"
#include "runtime/plan/verify_plan.h"

namespace gradloom {
namespace {

constexpr int64_t kRows = 6;

// What every case sees: x float[6,4], the masks m and k over its rows, c over its elements, ids and labels of its rows; weights w, v.
// A case makes y of them.
struct ExtentCase {
  std::string name;
  std::string body;
};

std::string Numbers(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.2, 1.2);
  std::string text;
  for (int i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + std::to_string(uniform(random) * (random() % 4 == 0 ? -1 : 1));
  return text;
}

Model ModelOf(const ExtentCase& test) {
  // rows: those of h = x w + v that m keeps, [n,3]; others: those that k keeps, [p,3].
  const std::string text = R"(<ir_version: 10, opset_import: ["": 21]>
  g (float[6,4] x, bool[6] m, bool[6] k, bool[6,4] c, int64[6] ids, int64[6] labels) => (float y)
    <float[4,3] w = {)" + Numbers(12, 1) +
                           "}, float[3] v = {" + Numbers(3, 2) + "}, float[2,3] table = {" + Numbers(6, 3) + R"(},
     int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] minus_one = {-1}, int64[1] minus_two = {-2},
     int64[1] many = {9223372036854775807}, int64 zero_scalar = {0}, int64 one_scalar = {1}, float none = {0.0}> {
    xw = MatMul(x, w)
    h = Add(xw, v)
    places = NonZero(m)
    indices = Transpose(places)
    rows = GatherND(h, indices)
    k_places = NonZero(k)
    k_flat = Squeeze(k_places, zero)
    others = Gather<axis = 0>(h, k_flat)
)" + test.body + "\n  }";
  return Model::FromText(text, test.name);
}

std::vector<ExtentCase> Cases() {
  return {
      {"rows", "y = Tanh(rows)"},
      {"columns", "y = Transpose(rows)"},
      {"compress", "y = Compress<axis = 0>(h, m)"},
      {"compress columns", "t = Transpose(h)\n y = Compress<axis = -1>(t, m)"},
      {"compress flat", "f = Flatten<axis = 1>(h)\n o = Squeeze(zero)\n e = Gather<axis = 1>(f, o)\n y = Compress(e, m)"},
      {"elements",
       "p = NonZero(c)\n t = Transpose(p)\n e = GatherND(x, t)\n q = Exp(e)\n s = ReduceSum<keepdims = 0>(q)\n r = ReduceMean(h)\n y = "
       "Mul(s, r)"},
      {"sum", "y = ReduceSum<keepdims = 0>(rows, zero)"},
      {"mean", "y = ReduceMean<keepdims = 1>(rows, zero)"},
      {"mean of all", "y = ReduceMean<keepdims = 0>(rows)"},
      {"mean of rows", "y = ReduceMean<keepdims = 0>(rows, one)"},
      {"max", "y = ReduceMax<keepdims = 0>(rows, zero)"},
      {"min", "y = ReduceMin<keepdims = 0>(rows, zero)"},
      {"product", "y = ReduceProd<keepdims = 0>(rows, zero)"},
      {"norm", "y = ReduceL2<keepdims = 0>(rows, zero)"},
      {"absolute", "y = ReduceL1<keepdims = 0>(rows, zero)"},
      {"squares", "y = ReduceSumSquare<keepdims = 0>(rows, zero)"},
      {"logarithms", "y = ReduceLogSumExp<keepdims = 0>(rows, zero)"},
      {"softmax", "y = Softmax<axis = 0>(rows)"},
      {"softmax of rows", "y = LogSoftmax<axis = 1>(rows)"},
      {"log softmax", "s = LogSoftmax<axis = 0>(rows)\n y = Mul(s, s)"},
      {"cumulated", "y = CumSum(rows, zero_scalar)"},
      {"cumulated from behind", "y = CumSum<reverse = 1, exclusive = 1>(rows, zero_scalar)"},
      {"largest", "s = CumSum(others, zero_scalar)\n a, i = TopK<axis = 0>(s, one)\n y = Exp(a)"},
      {"as many of the largest", "s = Shape<start = 0, end = 1>(rows)\n n = Min(s, two)\n a, i = TopK<axis = 0>(rows, n)\n y = Exp(a)"},
      {"argument", "i = ArgMax<axis = 0, keepdims = 0>(rows)\n d = Gather<axis = 0>(rows, i)\n y = Mul(d, d)"},
      {"normalised", "y = LayerNormalization<axis = -1>(rows, v)"},
      {"product over n", "t = Transpose(rows)\n y = MatMul(t, rows)"},
      {"gemm over n", "y = Gemm<transA = 1>(rows, rows)"},
      {"gemm of rows", "t = Transpose(w)\n y = Gemm(rows, t)"},
      {"einsum", "y = Einsum<equation = \"ni,nj->ij\">(rows, rows)"},
      {"einsum of rows", "t = Transpose(table)\n y = Einsum<equation = \"ni,ij->nj\">(rows, t)"},
      {"attention", "t = Transpose(others)\n s = MatMul(rows, t)\n p = Softmax<axis = -1>(s)\n y = MatMul(p, others)"},
      {"scatter", "t = Tanh(rows)\n y = ScatterND(h, indices, t)"},
      {"scatter add", "t = Tanh(rows)\n y = ScatterND<reduction = \"add\">(h, indices, t)"},
      {"scatter max", "t = Mul(rows, rows)\n y = ScatterND<reduction = \"max\">(h, indices, t)"},
      {"scatter elements", "s = Shape(rows)\n e = Expand(indices, s)\n t = Tanh(rows)\n y = ScatterElements<axis = 0>(h, e, t)"},
      {"scatter elements add",
       "s = Shape(rows)\n e = Expand(indices, s)\n t = Tanh(rows)\n y = ScatterElements<axis = 0, reduction = \"add\">(h, e, t)"},
      {"assign one number",
       "s = Shape(indices)\n n = Slice(s, zero, one)\n f = Unsqueeze(none, zero)\n e = Expand(f, n)\n q = ReduceSum<keepdims = 0>(h, one)\n"
       " y = ScatterND(q, indices, e)"},
      {"gather elements", "s = Shape(rows)\n e = Expand(indices, s)\n y = GatherElements<axis = 0>(h, e)"},
      {"shape arithmetic",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n d = Gather(s, one_scalar)\n p = Mul(n, d)\n u = Unsqueeze(p, zero)\n"
       " r = Reshape(rows, u)\n y = Tanh(r)"},
      {"reshaped open", "r = Reshape(rows, minus_one)\n y = Mul(r, r)"},
      {"reshaped across", "t = Transpose(rows)\n r = Reshape(t, minus_one)\n q = CumSum(r, zero_scalar)\n y = Mul(q, r)"},
      {"flattened", "u = Unsqueeze(rows, one)\n f = Flatten<axis = 1>(u)\n y = Squeeze(u, one)"},
      {"rows twice", "y = Concat<axis = 0>(rows, rows)"},
      {"rows and others", "a = Concat<axis = 0>(rows, h, others)\n b = CumSum(a, zero_scalar)\n y = Mul(a, b)"},
      {"side by side", "e = Exp(rows)\n y = Concat<axis = 1>(rows, e)"},
      {"front", "a = Concat<axis = 0>(rows, h)\n y = Slice(a, zero, two, zero)"},
      {"from the second", "y = Slice(rows, one, many, zero)"},
      {"every second", "y = Slice(rows, zero, many, zero, two)"},
      {"the last two", "y = Slice(rows, minus_two, many, zero)"},
      {"without the last", "y = Slice(rows, zero, minus_one, zero)"},
      {"backwards",
       "l = Constant<value_ints = [-9223372036854775807]>()\n r = Slice(rows, minus_one, l, zero, minus_one)\n q = CumSum(r, "
       "zero_scalar)\n y = Mul(q, r)"},
      {"as many of another", "s = Shape<start = 0, end = 1>(rows)\n y = Slice(h, zero, s, zero)"},
      {"the last row", "y = Gather<axis = 0>(rows, minus_one)"},
      {"counted",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n r = Range(zero_scalar, n, one_scalar)\n f = Cast<to = 1>(r)\n"
       " u = Unsqueeze(f, one)\n y = Mul(u, rows)"},
      {"counted from one",
       "s = Shape(rows)\n n = Gather(s, zero_scalar)\n l = Add(n, one_scalar)\n r = Range(one_scalar, l, one_scalar)\n"
       " f = Cast<to = 1>(r)\n u = Unsqueeze(f, one)\n y = Div(rows, u)"},
      {"filled", "s = Shape(rows)\n f = ConstantOfShape<value = float[1] {2.0}>(s)\n y = Mul(rows, f)"},
      {"divided by the size", "n = Size(rows)\n f = Cast<to = 1>(n)\n s = ReduceSum<keepdims = 0>(rows)\n y = Div(s, f)"},
      {"padded", "p = Constant<value_ints = [1, 0, 2, 0]>()\n q = Pad(rows, p)\n s = CumSum(q, zero_scalar)\n y = Mul(q, s)"},
      {"split", "p = Constant<value_ints = [1, 2]>()\n a, b = Split<axis = 1>(rows, p)\n y = Mul(a, b)"},
      {"tiled", "t = Constant<value_ints = [1, 2]>()\n y = Tile(rows, t)"},
      {"expanded", "s = Shape(rows)\n e = Expand(v, s)\n y = Mul(e, rows)"},
      {"convolved",
       "t = Constant<value_ints = [-1, 1, 3]>()\n r = Reshape(rows, t)\n f = Constant<value = float[2,1,2] {0.5, -1.0, 2.0, 0.25}>()\n"
       " o = Conv(r, f)\n y = Tanh(o)"},
      {"distinct",
       "u, f, i, n = Unique(ids)\n e = Gather<axis = 0>(table, u)\n g = Cast<to = 1>(n)\n s = Unsqueeze(g, one)\n y = Mul(e, s)"},
      {"first of each", "u, f, i, n = Unique<sorted = 0>(ids)\n e = Gather<axis = 0>(h, f)\n y = Exp(e)"},
      {"group of each", "u, f, i, n = Unique(ids)\n e = Gather<axis = 0>(h, f)\n y = Gather<axis = 0>(e, i)"},
      {"one hot",
       "flat = Squeeze(places, zero)\n i = Gather<axis = 0>(ids, flat)\n d = Constant<value_ints = [2]>()\n o = Constant<value_floats = "
       "[0.0, 1.0]>()\n"
       " e = OneHot<axis = -1>(i, d, o)\n y = MatMul(e, table)"},
      {"classes",
       "flat = Squeeze(places, zero)\n l = Gather<axis = 0>(labels, flat)\n y = SoftmaxCrossEntropyLoss<reduction = \"mean\">(rows, l)"},
      {"classes of each",
       "flat = Squeeze(places, zero)\n l = Gather<axis = 0>(labels, flat)\n y = SoftmaxCrossEntropyLoss<reduction = \"none\">(rows, l)"},
      {"experts",
       "a = Equal(ids, zero_scalar)\n b = Equal(ids, one_scalar)\n ap = NonZero(a)\n bp = NonZero(b)\n ai = Squeeze(ap, zero)\n bi = "
       "Squeeze(bp, zero)\n"
       " ar = Gather<axis = 0>(h, ai)\n br = Gather<axis = 0>(h, bi)\n ae = Tanh(ar)\n be = Softplus(br)\n z = Sub(h, h)\n at = "
       "Transpose(ap)\n"
       " bt = Transpose(bp)\n za = ScatterND<reduction = \"add\">(z, at, ae)\n y = ScatterND<reduction = \"add\">(za, bt, be)"},
      {"boxes",
       "b = Constant<value = float[1,3,4] {0,0,1,1, 0,0.1,1,1.1, 2,2,3,3}>()\n f = Cast<to = 1>(ids)\n q = Constant<value_ints = [1, 1, "
       "6]>()\n"
       " r = Reshape(f, q)\n g = Slice(r, zero, three, two)\n t = Constant<value_floats = [0.5]>()\n s = NonMaxSuppression(b, g, three, "
       "t)\n"
       " i = Gather<axis = 1>(s, two)\n j = Squeeze(i, one)\n y = Gather<axis = 0>(h, j)"},
  };
}

struct Made {
  std::map<std::string, Tensor> fetched;
};

Made Trained(const Model& model, const std::map<std::string, Tensor>& feeds, const ImportOptions& import, int streams = 1) {
  CompileOptions options;
  options.import = import;
  options.recipe.mode = GraphMode::kGraph;
  options.recipe.losses = {LossTerm{.type = "output"}};
  options.recipe.fetch_gradients = true;
  options.recipe.fetch_outputs = true;
  options.recipe.streams = streams;
  options.entries.push_back({EntryKind::kStep, 0});
  const auto plan = std::make_shared<const Plan>(Compile(model, options));
  HostExecutor executor(plan);
  const Entry& entry = plan->entries[0];
  std::vector<TensorView> bound;
  for (const Feed& feed : entry.feeds) bound.push_back(feeds.at(feed.name).view());
  Made made;
  // Memory that another step has used is what padding finds.
  for (int step = 0; step < 2; ++step) executor.Run(0, bound, {});
  for (size_t i = 0; i < entry.fetches.size(); ++i) {
    if (!SaysExtent(entry, i)) made.fetched.emplace(entry.fetches[i].name, Tensor::Copy(executor.Fetched(0, static_cast<int>(i))));
  }
  return made;
}

void ExpectSame(const Made& a, const Made& b) {
  for (const auto& [name, want] : b.fetched) {
    if (!a.fetched.contains(name)) {
      ADD_FAILURE() << name << " is missing";
      continue;
    }
    const Tensor& got = a.fetched.at(name);
    EXPECT_EQ(got.shape(), want.shape()) << name << " " << got.shape().ToString() << " not " << want.shape().ToString();
    if (got.shape() != want.shape()) continue;
    for (int64_t i = 0; i < want.elements(); ++i) {
      const double p = ElementAsDouble(got.view(), i), q = ElementAsDouble(want.view(), i);
      EXPECT_TRUE(std::abs(p - q) <= 2e-5 * (1 + std::abs(q)) || (std::isnan(p) && std::isnan(q)))
          << name << " element " << i << ": " << p << " and " << q;
    }
  }
}

std::vector<bool> Mask(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<bool> mask(count);
  for (size_t i = 0; i < count; ++i) mask[i] = random() % 2 == 0;
  mask[random() % count] = true;
  return mask;
}

class Extents : public testing::TestWithParam<ExtentCase> {};

TEST_P(Extents, AsWithKnownMasks) {
  const Model model = ModelOf(GetParam());
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int64_t i = 0; i < kRows * 4; ++i) x.push_back(normal(random));
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<int64_t> ids, labels;
    for (int64_t i = 0; i < kRows; ++i) {
      ids.push_back(static_cast<int64_t>(random() % 2));
      labels.push_back(static_cast<int64_t>(random() % 3));
    }
    std::map<std::string, Tensor> feeds{{"x", Tensor::From(x, Shape{kRows, 4})},
                                        {"ids", Tensor::From(ids, Shape{kRows})},
                                        {"labels", Tensor::From(labels, Shape{kRows})},
                                        {"c", Tensor::From(Mask(kRows * 4, seed + 100), Shape{kRows, 4})},
                                        {"m", Tensor::From(seed == 0 ? std::vector<bool>(kRows, true) : Mask(kRows, seed), Shape{kRows})},
                                        {"k", Tensor::From(Mask(kRows, seed + 50), Shape{kRows})}};
    ImportOptions known;
    for (const char* name : {"m", "k", "c", "ids", "labels"}) known.values[name].tensor = feeds.at(name);
    const Made want = Trained(model, feeds, known), got = Trained(model, feeds, {});
    ExpectSame(got, want);
    if (seed == 1) ExpectSame(Trained(model, feeds, {}, 3), want);
  }
}

// With nothing kept all is padding, which is no error; what is put into places of another tensor leaves that as it is.
TEST_P(Extents, NothingKept) {
  const std::vector<bool> none(kRows, false);
  const Tensor zeros(DType::kInt64, Shape{kRows});
  std::vector<float> x(kRows * 4, 0.5f);
  const std::map<std::string, Tensor> feeds{{"x", Tensor::From(x, Shape{kRows, 4})},
                                            {"ids", zeros},
                                            {"labels", zeros},
                                            {"c", Tensor(DType::kBool, Shape{kRows, 4})},
                                            {"m", Tensor::From(none, Shape{kRows})},
                                            {"k", Tensor::From(none, Shape{kRows})}};
  const Made made = Trained(ModelOf(GetParam()), feeds, {});
  for (const auto& [name, tensor] : made.fetched) {
    for (int64_t i = 0; GetParam().name.starts_with("scatter") && i < tensor.elements(); ++i) {
      EXPECT_TRUE(std::isfinite(ElementAsDouble(tensor.view(), i))) << name << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Extents, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
});

Plan Compiled(const std::string& body) {
  CompileOptions options;
  options.entries.push_back({EntryKind::kPredict, 0});
  return Compile(ModelOf({"model", body}), options);
}

TEST(DataExtents, WhatIsNotTakenIsSaid) {
  const std::pair<const char*, const char*> refused[] = {
      {"t = Transpose(rows)\n y = LayerNormalization<axis = -1>(t, one_scale)", "LayerNormalization"},
      {"u = Unsqueeze(rows, zero)\n y = InstanceNormalization(u, v, v)", "InstanceNormalization"},
      {"i = Constant<value_ints = [2, 2]>()\n a, b = Split<axis = 0>(rows, i)\n y = Add(a, b)", "Split"},
      {"y = Add(rows, h)", "Add"},
      {"t = Constant<value_ints = [2, 1]>()\n y = Tile(rows, t)", "Tile"},
      {"b = Squeeze(one)\n g = Cast<to = 9>(b)\n y = If (g) < then_branch = t () => (float p) { p = Exp (rows) },"
       " else_branch = e () => (float q) { q = Tanh (rows) } >",
       ""},
  };
  for (const auto& [body, op] : refused) {
    const std::string text = std::string("one_scale = ConstantOfShape<value = float[1] {1.0}>(three)\n") + body;
    try {
      Compiled(text);
      // A branch that is known is none.
      EXPECT_EQ(std::string(op), "");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      EXPECT_NE((error.message() + error.where()).find(op), std::string::npos) << error.what();
      EXPECT_NE(error.message().find("axis"), std::string::npos) << error.what();
    }
  }
}

TEST(DataExtents, ThePlanSaysThem) {
  const Plan plan = Compiled("t = Transpose(rows)\n y = Exp(t)");
  ASSERT_EQ(plan.entries[0].fetches.size(), 2u);
  EXPECT_TRUE(SaysExtent(plan.entries[0], 1));
  const auto broken = [&](const std::function<void(Entry&)>& change) {
    Plan changed = plan;
    change(changed.entries[0]);
    EXPECT_THROW(VerifyOrThrow(changed), Error);
  };
  broken([](Entry& entry) { entry.fetches[0].extents[0].axis = 2; });
  broken([](Entry& entry) { entry.fetches[0].extents[0].axis = -1; });
  broken([](Entry& entry) { entry.fetches[0].extents[0].fetch = 2; });
  broken([](Entry& entry) { entry.fetches[0].extents[0].fetch = 0; });
  broken([](Entry& entry) { entry.fetches[0].extents.push_back(entry.fetches[0].extents[0]); });
  broken([](Entry& entry) { entry.fetches[0].batch_axis = 0; });
}

}  // namespace
}  // namespace gradloom
