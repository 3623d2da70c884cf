// Elements that are gathered and scattered by the index of their sample: in files for any batch size and for a fixed one, on one device and
// on several.
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Form {
  const char* name;
  // The graph has ids: int64[BATCH], the indices of the samples; h: float[BATCH, 4, 3]; n: int64[BATCH], each from 0 to 3. The nodes
  // compute z: float[BATCH, ...].
  const char* nodes;
  const char* out = "BATCH, 3";  // the shape of z
};

[[maybe_unused]] void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

const Form kForms[] = {
    {"tuples", R"(
  i = Unsqueeze (ids, last) k = Unsqueeze (n, last) at = Concat <axis = -1> (i, k)
  z = GatherND (h, at))"},
    {"time_first", R"(
  t = Transpose <perm = [1, 0, 2]> (h)
  i = Unsqueeze (ids, last) k = Unsqueeze (n, last) at = Concat <axis = 1> (k, i)
  z = GatherND (t, at))"},
    {"rows", R"(
  rows = Reshape (h, flat) first = Mul (ids, four) at = Add (first, n)
  z = Gather <axis = 0> (rows, at))"},
    {"rows_of_each", R"(
  rows = Reshape (h, flat) first = Mul (ids, four) column = Unsqueeze (first, last)
  scores = ReduceSum <keepdims = 0> (h, last) kept, k = TopK <axis = 1> (scores, two)
  at = Add (k, column) places = Reshape (at, all)
  r = Gather <axis = 0> (rows, places) z = Reshape (r, pairs))",
     "BATCH, 6"},
    {"written", R"(
  i = Unsqueeze (ids, last) k = Unsqueeze (n, last) at = Concat <axis = -1> (i, k)
  u = ReduceMax <axes = [1], keepdims = 0> (h) t = Tanh (h)
  z = ScatterND (t, at, u))",
     "BATCH, 4, 3"},
    {"added", R"(
  i = Unsqueeze (ids, last) k = Unsqueeze (n, last) at = Concat <axis = -1> (i, k)
  u = ReduceMax <axes = [1], keepdims = 0> (h) t = Tanh (h)
  z = ScatterND <reduction = "add"> (t, at, u))",
     "BATCH, 4, 3"},
    {"graphs", R"(
  column = Unsqueeze (ids, last) each = Tile (column, by_four) of_row = Reshape (each, all)
  rows = Reshape (h, flat) gates = ReduceMean <axes = [1], keepdims = 0> (h)
  gate = Gather <axis = 0> (gates, of_row) g = Mul (rows, gate) z = Reshape (g, fours))",
     "BATCH, 4, 3"},
    {"pooled", R"(
  column = Unsqueeze (ids, last) each = Tile (column, by_four) of_row = Reshape (each, column_of_all) wide = Tile (of_row, by_three)
  rows = Reshape (h, flat) r = Tanh (rows) some = ReduceMean <axes = [1], keepdims = 0> (h) none = Sub (some, some)
  z = ScatterElements <axis = 0, reduction = "add"> (none, wide, r))"},
    {"taken", R"(
  column = Unsqueeze (ids, last) wide = Tile (column, by_three) means = ReduceMean <axes = [1], keepdims = 0> (h)
  z = GatherElements <axis = 0> (means, wide))"},
};

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) text.replace(at, what.size(), by);
  return text;
}

// A batch of 0 leaves the batch size open.
std::string GraphOf(const Form& form, int64_t batch) {
  std::string numbers = "{";
  for (int64_t i = 0; i < batch; ++i) numbers += (i > 0 ? ", " : "") + std::to_string(i);
  std::string text = R"(
g (float[BATCH, 4, 5] x, int64[BATCH] n) => (float[OUT] z)
<float[5, 3] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8}, TABLE
 int64[1] last = {-1}, int64[1] all = {-1}, int64[2] flat = {-1, 3}, int64[2] by_four = {1, 4}, int64[2] by_three = {1, 3}, int64[2] column_of_all = {-1, 1},
 int64 four = {4}, int64[2] pairs = {-1, 6}, int64[3] fours = {-1, 4, 3}, int64[2] three = {0, 3}, int64 zero = {0}, int64 one = {1}, int64[1] two = {2}>
{
  IDS
  p = MatMul (x, w)
  h = Sigmoid (p)
  NODES
}
)";
  text = Replaced(text, "OUT", form.out);
  text = Replaced(text, "TABLE", batch == 0 ? "" : "int64[" + std::to_string(batch) + "] ids = " + numbers + "},");
  text = Replaced(text, "IDS", batch == 0 ? "s = Shape <start = 0, end = 1> (x) count = Squeeze (s) ids = Range (zero, count, one)" : "");
  text = Replaced(text, "NODES", form.nodes);
  text =
      Replaced(text, "TopK_FORM", "Identity (best) scores = ReduceSum <keepdims = 0> (h, last) kept, best = TopK <axis = 1> (scores, two)");
  return Replaced(text, "BATCH", batch == 0 ? "N" : std::to_string(batch));
}

Batch MakeBatch(std::mt19937& random, int64_t size) {
  Batch batch;
  batch.emplace("x", Random(random, Shape{size, 4, 5}));
  batch.emplace("n", Classes(random, size, 4));
  return batch;
}

const std::vector<LossTerm> kLoss = {{.type = "output", .output = "z"}};

class SampleNumbers : public ::testing::TestWithParam<Form> {};

TEST_P(SampleNumbers, AreCountedPerDevice) { ExpectDivides(GraphOf(GetParam(), 0), kLoss, {10, 10, 3, 1}, MakeBatch); }
TEST_P(SampleNumbers, AreCountedPerDeviceForAFixedBatch) { ExpectDivides(GraphOf(GetParam(), 6), kLoss, {6, 10, 3, 1}, MakeBatch); }

// The index of a single sample is 0, which could mean anything; with two samples there is one step between any two indices.
TEST_P(SampleNumbers, OfAFixedBatchExtendToOthers) {
  const std::vector<int64_t> sizes = {7, 2, 6, 1, 3};
  std::mt19937 random(3);
  std::vector<Batch> batches;
  for (int64_t size : sizes) batches.push_back(MakeBatch(random, size));
  const auto any = Train(ModelOf(GraphOf(GetParam(), 0)), OptionsFor(kLoss, 1, sizes), batches);
  for (int64_t declared : {6, 3, 2, 1}) {
    SCOPED_TRACE("made for " + std::to_string(declared));
    ExpectNear(any, Train(ModelOf(GraphOf(GetParam(), declared)), OptionsFor(kLoss, 1, sizes), batches), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, SampleNumbers, ::testing::ValuesIn(kForms),
                         [](const ::testing::TestParamInfo<Form>& info) { return std::string(info.param.name); });

// Other uses of the indices would differ between devices: the first device computes them for the whole batch, if it may.
void ExpectGathered(const Form& form, const std::string& why) {
  const std::string graph = GraphOf(form, 0);
  ExpectDivides(graph, kLoss, {10, 10, 5, 2}, MakeBatch);
  CompileOptions refused = OptionsFor(kLoss, 2, {4});
  refused.recipe.gather_related = false;
  try {
    Compile(ModelOf(graph), refused);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(SampleNumbersElsewhere, AreGathered) {
  ExpectGathered({"value", "f = Cast <to = 1> (ids) c = Unsqueeze (f, last) m = ReduceMean <axes = [1], keepdims = 0> (h) z = Mul (m, c)"},
                 "each device counts");
  // The rows of the sample at half the number.
  ExpectGathered({"other", "m = ReduceMean <axes = [1], keepdims = 0> (h) b = Add (ids, ids) k = Div (b, four) z = Gather (m, k)"},
                 "select among samples");
  ExpectGathered({"double", "rows = Reshape (h, flat) b = Add (ids, ids) z = Gather (rows, b)"}, "select among samples");
}

// The indices that MaxPool returns count through all samples.
TEST(SampleNumbersElsewhere, RejectFetchesOfMaxPoolIndices) {
  const std::string graph = R"(
g (float[N, 2, 6] x) => (float[N, 2, 3] z, int64[N, 2, 3] places)
<float[2] w = {1, -2}>
{
  a = Unsqueeze (w, one) b = Mul (x, a)
  z, places = MaxPool <kernel_shape = [2], strides = [2]> (b)
})";
  const Model model = ModelOf(Replaced(graph, "<float[2] w = {1, -2}>", "<float[2] w = {1, -2}, int64[1] one = {1}>"));
  std::mt19937 random(3);
  Batch batch;
  batch.emplace("x", Random(random, Shape{4, 2, 6}));
  EXPECT_NO_THROW(Train(model, OptionsFor(kLoss, 1, {4}), {batch}));
  try {
    Train(model, OptionsFor(kLoss, 2, {4}), {batch});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'places' depends on sample indices"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gradloom
