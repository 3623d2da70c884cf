// Extents that the data of a step determine: a model whose masks are fed gives the same loss, outputs and gradients as the same model with
// the masks known at import, where all shapes are static.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx_loss.h"
#include "gtest/gtest.h"
#include "runtime/exec/host_executor.h"
#include "runtime/plan/verify_plan.h"
#include "tests/extents/cases.h"

namespace gradloom {
namespace {

struct Made {
  std::map<std::string, Tensor> fetched;
};

Made Trained(const Model& model, const std::map<std::string, Tensor>& feeds, const ImportOptions& import, int streams = 1,
             const LossTerm& loss = {.type = "output"}) {
  CompileOptions options;
  options.import = import;
  options.recipe.mode = GraphMode::kGraph;
  options.recipe.losses = {loss};
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
  // The second step finds memory that the first has used, which is what padding then contains.
  for (int step = 0; step < 2; ++step) executor.Run(0, bound, {});
  for (size_t i = 0; i < entry.fetches.size(); ++i) {
    if (!IsOnlyExtent(entry, i)) made.fetched.emplace(entry.fetches[i].name, Tensor::Copy(executor.Fetched(0, static_cast<int>(i))));
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

TEST_P(Extents, MatchKnownMasks) {
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

// If no row is selected, everything is padding, which is not an error, and scattering the rows into another tensor leaves that unchanged.
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

// The sum and, of more elements, the count exceed what 16 bits hold. The mean does not.
TEST(DataExtents, MeansIn16Bits) {
  const Model model = ModelOf({"model",
                               "f = Sigmoid(rows)\n most = Constant<value_float = 30000.0>()\n g = Mul(f, most)\n q = Cast<to = 10>(g)\n"
                               " m1 = ReduceMean<keepdims = 0>(q)\n y = Cast<to = 1>(m1)"});
  const std::map<std::string, Tensor> feeds{{"x", Tensor::From(std::vector<float>(kRows * 4, 0.5F), Shape{kRows, 4})},
                                            {"m", Tensor::From(std::vector<bool>(kRows, true), Shape{kRows})},
                                            {"k", Tensor::From(std::vector<bool>(kRows, true), Shape{kRows})},
                                            {"c", Tensor(DType::kBool, Shape{kRows, 4})},
                                            {"ids", Tensor(DType::kInt64, Shape{kRows})},
                                            {"labels", Tensor(DType::kInt64, Shape{kRows})}};
  ImportOptions known;
  for (const char* name : {"m", "k", "c", "ids", "labels"}) known.values[name].tensor = feeds.at(name);
  const auto mean = [&](const ImportOptions& import) { return ElementAsDouble(Trained(model, feeds, import).fetched.at("y").view(), 0); };
  const double want = mean(known);
  EXPECT_GT(want, 65504 / 18.0);
  EXPECT_NEAR(mean({}), want, 1e-3 * want);
}

// The variance of nothing has no gradient, so the weights stay finite.
TEST(DataExtents, VarianceOfNothing) {
  const Model model = ModelOf({"model",
                               "mean = ReduceMean<keepdims = 1>(rows)\n d = Sub(rows, mean)\n q = Mul(d, d)\n"
                               " e = ReduceMean<keepdims = 0>(q)\n a = ReduceSum<keepdims = 0>(h)\n y = Add(e, a)"});
  const std::map<std::string, Tensor> feeds{{"x", Tensor::From(std::vector<float>(kRows * 4, 0.5F), Shape{kRows, 4})},
                                            {"m", Tensor(DType::kBool, Shape{kRows})},
                                            {"k", Tensor(DType::kBool, Shape{kRows})},
                                            {"c", Tensor(DType::kBool, Shape{kRows, 4})},
                                            {"ids", Tensor(DType::kInt64, Shape{kRows})},
                                            {"labels", Tensor(DType::kInt64, Shape{kRows})}};
  const Made made = Trained(model, feeds, {});
  EXPECT_TRUE(std::isfinite(ElementAsDouble(made.fetched.at("y").view(), 0)));
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(ElementAsDouble(made.fetched.at("grad/w").view(), i), 0.5 * kRows);
}

// A loss graph sees the valid part of an output, and the same part of targets that share the output's extent.
TEST(DataExtents, LossGraphSeesTheValidPart) {
  LossTerm loss{.type = "graph"};
  loss.graph = std::make_shared<const OnnxLoss>(Model::FromText(R"(<ir_version: 10, opset_import: ["": 21]>
  l (float[n,3] y, int64[n] t, float[n,n] between) => (float loss) {
    s = SoftmaxCrossEntropyLoss(y, t)
    p = Transpose(y)
    pairs = MatMul(y, p)
    far = Sub(pairs, between)
    q = Mul(far, far)
    r = ReduceMean<keepdims = 0>(q)
    loss = Add(s, r)
  })"));
  const Model model = ModelOf({"model", "y = Tanh(rows)"});
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  for (const std::vector<bool>& mask : {std::vector<bool>{true, false, true, true, false, false}, std::vector<bool>(kRows, true)}) {
    const auto n = std::count(mask.begin(), mask.end(), true);
    std::map<std::string, Tensor> feeds{{"m", Tensor::From(mask, Shape{kRows})},
                                        {"k", Tensor::From(mask, Shape{kRows})},
                                        {"c", Tensor(DType::kBool, Shape{kRows, 4})},
                                        {"ids", Tensor(DType::kInt64, Shape{kRows})},
                                        {"labels", Tensor(DType::kInt64, Shape{kRows})}};
    std::vector<float> x, between, some;
    std::vector<int64_t> labels{2, 0, 1, 1, 2, 0};
    for (int64_t i = 0; i < kRows * 4; ++i) x.push_back(normal(random));
    for (int64_t i = 0; i < kRows * kRows; ++i) between.push_back(normal(random));
    for (int64_t i = 0; i < n * n; ++i) some.push_back(between[static_cast<size_t>(i / n * kRows + i % n)]);
    feeds.emplace("x", Tensor::From(x, Shape{kRows, 4}));
    feeds.emplace("t", Tensor::From(labels, Shape{kRows}));
    feeds.emplace("between", Tensor::From(between, Shape{kRows, kRows}));
    const Made got = Trained(model, feeds, {}, 1, loss);
    ImportOptions known;
    for (const char* name : {"m", "k", "c", "ids", "labels"}) known.values[name].tensor = feeds.at(name);
    labels.resize(static_cast<size_t>(n));
    feeds["t"] = Tensor::From(labels, Shape{n});
    feeds["between"] = Tensor::From(some, Shape{n, n});
    ExpectSame(got, Trained(model, feeds, known, 1, loss));
  }
}

Plan Compiled(const std::string& body) {
  CompileOptions options;
  options.entries.push_back({EntryKind::kPredict, 0});
  return Compile(ModelOf({"model", body}), options);
}

TEST(DataExtents, ReportsUnsupportedOperators) {
  const std::pair<const char*, const char*> refused[] = {
      {"t = Transpose(rows)\n y = LayerNormalization<axis = -1>(t, one_scale)", "LayerNormalization"},
      {"u = Unsqueeze(rows, zero)\n y = InstanceNormalization(u, v, v)", "InstanceNormalization"},
      {"t = Transpose(rows)\n y = BatchNormalization(t, v, v, v, v)", "BatchNormalization"},
      {"y = Add(rows, h)", "Add"},
      {"l = ReduceMax<keepdims = 0>(ids)\n g = Constant<value = bool {1}>()\n y = Loop(l, g, rows) < body = b (int64 i, bool on, float[n, "
       "3] a) =>"
       " (bool more, float[p, 3] next) { more = Identity(on) next = Compress<axis = 0>(a, k) } >",
       "Loop"},
      {"b = Squeeze(one)\n g = Cast<to = 9>(b)\n y = If (g) < then_branch = t () => (float p) { p = Exp (rows) },"
       " else_branch = e () => (float q) { q = Tanh (rows) } >",
       ""},
  };
  for (const auto& [body, op] : refused) {
    const std::string text = std::string("one_scale = ConstantOfShape<value = float[1] {1.0}>(three)\n") + body;
    try {
      Compiled(text);
      // A branch with a known condition is no branch.
      EXPECT_EQ(std::string(op), "");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      EXPECT_NE((error.message() + error.where()).find(op), std::string::npos) << error.what();
      EXPECT_NE(error.message().find("axis"), std::string::npos) << error.what();
    }
  }
}

TEST(DataExtents, RejectsWrongOperands) {
  const std::pair<const char*, ErrorCode> wrong[] = {
      {"t = Constant<value_ints = [2]>()\n y = Tile(rows, t)", ErrorCode::kShape},
      {"p = Constant<value_ints = [0, 1]>()\n y = Slice(rows, zero, one, p)", ErrorCode::kShape},
      {"s = Shape<start = 0, end = 1>(rows)\n p = Concat<axis = 0>(s, zero)\n y = Slice(rows, zero, p, zero)", ErrorCode::kShape},
      {"y, e = Split<axis = 0, num_outputs = 0>(rows)", ErrorCode::kAttr},
      {"s = Shape<start = 0, end = 1>(rows)\n y, e = Split<axis = 0>(rows, s)", ErrorCode::kArity},
      {"y, a, b = LSTM<hidden_size = 2>(rows, w, w)", ErrorCode::kShape},
      {"y = Attention(rows, rows, rows)", ErrorCode::kShape},
      {"o = Constant<value_ints = [6, 3, 0]>()\n y = Reshape(rows, o)", ErrorCode::kShape},
      {"o = Constant<value_ints = [1, 2]>()\n y, i = TopK<axis = 0>(rows, o)", ErrorCode::kShape},
      {"s = Shape(rows)\n o = Constant<value_ints = [6, 3, 3]>()\n q = Equal(s, o)\n y = Cast<to = 1>(q)", ErrorCode::kShape},
      {"p = Constant<value_ints = [-1, 7]>()\n y, e = Split<axis = 0>(rows, p)", ErrorCode::kShape},
      {"t = Constant<value_floats = [0.5]>()\n y = NonMaxSuppression(rows, rows, three, t)", ErrorCode::kShape},
  };
  for (const auto& [body, code] : wrong) {
    try {
      Compiled(body);
      ADD_FAILURE() << "accepted: " << body;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << body << "\n" << error.what();
    }
  }
}

// Lists that are too long for shape arithmetic are sizes all the same.
TEST(DataExtents, ReadsLongListsOfSizes) {
  std::string sizes = "6";
  for (int i = 1; i < 65; ++i) sizes += ", 0";
  EXPECT_EQ(Compiled("p = Constant<value_ints = [" + sizes + "]>()\n y = Split<axis = 0>(rows, p)").entries.size(), 1u);
}

TEST(DataExtents, PlanRecordsThem) {
  const Plan plan = Compiled("t = Transpose(rows)\n y = Exp(t)");
  ASSERT_EQ(plan.entries[0].fetches.size(), 2u);
  EXPECT_TRUE(IsOnlyExtent(plan.entries[0], 1));
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
