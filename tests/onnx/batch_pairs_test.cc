// Files for one batch size whose inputs or constants relate the samples to each other: adjacency matrices, tables over pairs of samples,
// the inverse of an order of the samples. At any batch size they must compute what a file for that batch size computes.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/error.h"
#include "runtime/session/session.h"
#include "tests/onnx/baked_training.h"

namespace gradloom {
namespace {

// A file for n samples, as text; "{n}" and "{2n}" stand for the numbers, "{eye}" and so on for the elements of tables.
struct File {
  const char* what;
  const char* inputs;
  std::string constants;
  const char* nodes;
  std::vector<int64_t> declared = {3, 4};
};

std::string Table(int64_t extent, const std::function<bool(int64_t, int64_t)>& is_one) {
  std::string list;
  for (int64_t i = 0; i < extent * extent; ++i) list += (i == 0 ? "" : ", ") + std::to_string(is_one(i / extent, i % extent) ? 1 : 0);
  return list;
}

std::string TextOf(const File& file, int64_t n) {
  std::string text = "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[{n}, 3] x" + std::string(file.inputs) +
                     ") => (float[{n}, 2] out) <float[3, 2] w = {0.5, -1, 0.25, 2, 1, -0.5}" + file.constants + "> { " + file.nodes + " }";
  std::string numbers, zeros;
  for (int64_t i = 0; i < n; ++i) {
    numbers += (i == 0 ? "" : ", ") + std::to_string(i);
    zeros += i == 0 ? "0" : ", 0";
  }
  const std::pair<std::string, std::string> parts[] = {
      {"{n}", std::to_string(n)},
      {"{2n}", std::to_string(2 * n)},
      {"{zeros}", "{" + zeros + "}"},
      {"{numbers}", "{" + numbers + "}"},
      {"{eye}", "{" + Table(n, [](int64_t i, int64_t j) { return i == j; }) + "}"},
      {"{below}", "{" + Table(n, [](int64_t i, int64_t j) { return i > j; }) + "}"},
      {"{others}", "{" + Table(2 * n, [](int64_t i, int64_t j) { return i != j; }) + "}"},
      {"{views}", "{" + Table(2 * n, [n](int64_t i, int64_t j) { return i != j && i % n == j % n; }) + "}"},
      {"{band}", "{" + Table(n, [](int64_t i, int64_t j) { return i - j <= 1 && j - i <= 1; }) + "}"}};
  for (const auto& [name, value] : parts) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name)) text.replace(at, name.size(), value);
  }
  return text;
}

std::vector<double> Losses(const std::string& text, int64_t batch, int devices, const Shape& out) {
  CompileOptions options;
  options.recipe.losses = {{.type = "mse", .output = "out", .target = "y"}};
  options.recipe.schedule.lr = 0.05;
  options.recipe.devices = devices;
  options.entries.push_back({EntryKind::kStep, batch});
  Session session(std::make_shared<const Plan>(Compile(Model::FromText(text), options)));
  const Tensor x = Random({batch, 3}, 1), pairs = Random({batch, batch}, 2), lengths = Random({batch}, 3), y = Random(out, 4);
  Feeds feeds{{"x", x.view()}, {"y", y.view()}};
  if (text.find(" pairs") != std::string::npos) feeds.emplace("pairs", pairs.view());
  if (text.find(" lengths") != std::string::npos) feeds.emplace("lengths", lengths.view());
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) losses.push_back(session.Step(feeds).loss);
  return losses;
}

const File kFiles[] = {
    {"an adjacency matrix", ", float[{n}, {n}] pairs", "", "m = MatMul (x, w) a = MatMul (pairs, m) out = Tanh (a)"},
    {"one with added loops", ", float[{n}, {n}] pairs", ", int64[{n}, {n}] flags = {eye}",
     "m = MatMul (x, w) table = Cast <to = 1> (flags) s = Add (pairs, table) a = MatMul (s, m) out = Tanh (a)"},
    {"a mask of earlier samples", "", ", int64[{n}, {n}] flags = {below}",
     "m = MatMul (x, w) t = Transpose (m) p = MatMul (m, t) table = Cast <to = 1> (flags) q = Mul (p, table) a = MatMul (q, m) out = Tanh "
     "(a)"},
    {"a mask of the samples themselves in two views", "", ", int64[{2n}, {2n}] flags = {others}, int64[2] sizes = {{n}, {n}}",
     "o = Neg (x) j = Concat <axis = 0> (x, o) m = MatMul (j, w) t = Transpose (m) p = MatMul (m, t) table = Cast <to = 1> (flags) q = Mul "
     "(p, table) "
     "s = MatMul (q, m) a, b = Split <axis = 0> (s, sizes) c = Tanh (a) d = Tanh (b) out = Mul (c, d)"},
    {"a mask of the other view", "", ", int64[{2n}, {2n}] flags = {views}, int64[2] sizes = {{n}, {n}}",
     "o = Sin (x) j = Concat <axis = 0> (x, o) m = MatMul (j, w) t = Transpose (m) p = MatMul (m, t) table = Cast <to = 1> (flags) q = Mul "
     "(p, table) "
     "s = MatMul (q, m) a, b = Split <axis = 0> (s, sizes) c = Tanh (a) d = Tanh (b) out = Mul (c, d)"},
    {"an order and its inverse",
     ", float[{n}] lengths",
     ", int64[{n}] zeros = {zeros}, int64[{n}] numbers = {numbers}",
     "count = Shape (lengths) v, order = TopK <axis = 0> (lengths, count) h = Gather <axis = 0> (x, order) "
     "back = ScatterElements <axis = 0> (zeros, order, numbers) m = MatMul (h, w) r = Gather <axis = 0> (m, back) out = Tanh (r)",
     {1, 2, 4}},
};

TEST(BatchPairs, FollowTheBatch) {
  for (const File& file : kFiles) {
    for (const int64_t batch : {5, 2, 4}) {
      const std::vector<double> expected = Losses(TextOf(file, batch), batch, 1, {batch, 2});
      for (const int64_t declared : file.declared) {
        for (const int devices : {1, 2}) {
          SCOPED_TRACE(std::string(file.what) + ", file for " + std::to_string(declared) + ", batch " + std::to_string(batch) +
                       ", devices " + std::to_string(devices));
          const std::vector<double> losses = Losses(TextOf(file, declared), batch, devices, {batch, 2});
          for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
        }
      }
    }
  }
}

// What a larger batch has in such a table does not follow from it.
TEST(BatchPairs, OtherTablesAreRefused) {
  const char* const nodes =
      "m = MatMul (x, w) t = Transpose (m) p = MatMul (m, t) table = Cast <to = 1> (flags) q = Mul (p, table) a = MatMul (q, m) out = Tanh "
      "(a)";
  const File neighbours{"neighbours", "", ", int64[{n}, {n}] flags = {band}", nodes};
  const File trained{"a table that may be trained", "", ", float[{n}, {n}] table = {eye}",
                     "m = MatMul (x, w) t = Transpose (m) p = MatMul (m, t) q = Add (p, table) a = MatMul (q, m) out = Tanh (a)"};
  const File two{"two samples", "", ", int64[{n}, {n}] flags = {eye}", nodes};
  for (const auto& [file, declared] : {std::pair(neighbours, 4), std::pair(trained, 4), std::pair(two, 2)}) {
    EXPECT_NO_THROW(Losses(TextOf(file, declared), declared, 1, {declared, 2})) << file.what;
    try {
      Losses(TextOf(file, declared), 5, 1, {5, 2});
      ADD_FAILURE() << file.what << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kShape) << error.what();
    }
  }
}

// A Squeeze without axes, of PyTorch's `squeeze()`, keeps the batch axis where a device has a single sample.
TEST(BatchPairs, SqueezeKeepsASingleSample) {
  const std::string text =
      "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[N, 3] x) => (float[N] out) <float[3, 1] w = {0.5, -1, 0.25}> "
      "{ m = MatMul (x, w) s = Squeeze (m) out = Tanh (s) }";
  for (const int64_t batch : {2, 4}) {
    const std::vector<double> expected = Losses(text, batch, 1, {batch});
    for (const int devices : {2, 3}) {
      const std::vector<double> losses = Losses(text, batch, devices, {batch});
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[i], 1e-5) << batch << " samples, " << devices << " devices";
    }
  }
}

}  // namespace
}  // namespace gradloom
