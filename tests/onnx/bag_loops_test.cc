// Loops over bags, the form in which exporters write nn.EmbeddingBag, are replaced by one vectorized computation: at the batch size of the
// file, at other batch sizes, and in a form that does not depend on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/onnx/import.h"
#include "compiler/oracle/interpreter.h"

namespace gradloom {
namespace {

constexpr int64_t kLength = 2;

// A model with three bags of two words and the given loop over bags.
std::string Bags(const std::string& inputs, const std::string& tensors, const std::string& before, const std::string& loop) {
  return "<ir_version: 10, opset_import: [\"\" : 18]>\ng (" + inputs +
         ") => (float[b, 2] y) <float[4, 2] w = {0.5, -1, 2, 3, -4, 0.25, 7, -2}, int64[1] all = {-1}, int64[1] first = {0}, bool yes = "
         "{1}, "
         "int64[4] cuts = {0, 2, 4, 6}, int64 one = {1}, int64 two = {2}, int64 three = {3}, int64 zero = {0}, int64 words = {4}, " +
         tensors + "> { " + before + loop + " }";
}

// The form of the older exporter: a fixed number of iterations, whose rows are gathered as scan outputs.
std::string Legacy(const std::string& made, const std::string& cuts = "cuts") {
  return Bags(
      "int64[3, 2] x", "int64[1] last = {9}",
      "i = Reshape (x, all) c = Identity (" + cuts +
          ") n = Identity (three) one_1 = Unsqueeze (one, first) ends = Slice (c, one_1, last, first) ",
      "y = Loop (n, yes) <body: graph = round (int64 t, bool going) => (bool on, float[2] row) { b = Gather (c, t) e = Gather (ends, t) "
      "f = Unsqueeze (b, first) u = Unsqueeze (e, first) s = Slice (i, f, u, first) v = Gather (w, s) " +
          made + " on = Cast <to: int = 9> (going) }>");
}

// The form of the default exporter: a carried integer ends the loop, rows are inserted into a sequence, and a bag may be empty. The last
// bag has its own branch.
std::string Default(const std::string& last, const std::string& other, const std::string& joined = "") {
  return Bags(
      "int64[3, 2] x", "float[1, 2] none = {0, 0}", "i = Reshape (x, all) rows = Gather (w, i) size = Shape (i) empty = SequenceEmpty () ",
      "k, r = Loop (\"\", yes, zero, empty) <body: graph = round (int64 t, bool going, int64 j, seq(float[1, 2]) had) => (bool on, int64 "
      "j2, seq(float[1, 2]) has) { p = Reshape (j, all) p1 = Add (p, one) p2 = Add (p1, one) b = Slice (cuts, p, p1) e = Slice (cuts, "
      "p1, p2) void = Equal (b, e) row = If (void) <then_branch: graph = n () => (float[1, 2] a) { a = Identity (none) }, "
      "else_branch: graph = m () => (float[1, 2] d) { at_end = Equal (j, two) d = If (at_end) <then_branch: graph = l () => (float[1, "
      "2] d1) { " +
          last + " }, else_branch: graph = o () => (float[1, 2] d2) { " + other +
          " }> }> has = SequenceInsert (had, row) j2 = Add (j, one) on = Less (j2, three) }> " +
          (joined.empty() ? "y = ConcatFromSequence <axis: int = 0> (r)" : joined));
}

// The default exporter's form with padding: an inner loop collects the positions of the words that are not padding.
std::string Padded(const std::string& made) {
  return Bags(
      "int64[3, 2] x", "float[1, 2] none = {0, 0}, int64[0] nothing = {}",
      "i = Reshape (x, all) rows = Gather (w, i) empty = SequenceEmpty () ",
      "k, r = Loop (\"\", yes, zero, empty) <body: graph = round (int64 t, bool going, int64 j, seq(float[1, 2]) had) => (bool on, int64 "
      "j2, "
      "seq(float[1, 2]) has) { b = Gather (cuts, j) j1 = Add (j, one) e = Gather (cuts, j1) goes = Less (b, e) list, end = Loop (\"\", "
      "goes, "
      "nothing, b) <body: graph = within (int64 t3, bool going3, int64[q] l, int64 p) => (bool on3, int64[q] l2, int64 p2) { at = Gather "
      "(i, "
      "p) low = Less (at, zero) word = If (low) <then_branch: graph = n3 () => (int64 a3) { a3 = Add (at, words) }, else_branch: graph = "
      "m3 "
      "() => (int64 d3) { d3 = Identity (at) }> is = Equal (word, zero) not = Not (is) l2 = If (not) <then_branch: graph = n4 () => "
      "(int64[q] a4) { p3 = Reshape (p, all) a4 = Concat <axis: int = 0> (l, p3) }, else_branch: graph = m4 () => (int64[q] d4) { d4 = "
      "Identity (l) }> p2 = Add (p, one) on3 = Less (p2, e) }> count = Size (list) void = Equal (count, zero) row = If (void) "
      "<then_branch: "
      "graph = n () => (float[1, 2] a) { a = Identity (none) }, else_branch: graph = m () => (float[1, 2] d) { v = Gather (rows, list) " +
          made +
          " }> has = SequenceInsert (had, row) j2 = Add (j, one) on = Less (j2, three) }> y = ConcatFromSequence <axis: int = 0> (r)");
}

Tensor Words(int64_t batch) {
  Tensor x(DType::kInt64, Shape{batch, kLength});
  // The first bag consists of padding alone. Padding may also be given as a negative index.
  for (int64_t i = 0; i < x.elements(); ++i) x.as<int64_t>()[static_cast<size_t>(i)] = i < kLength ? 0 : (i * 3 + 1) % 4 - (i == 3 ? 4 : 0);
  return x;
}

std::vector<float> Computed(const Graph& graph, const Tensor& x) {
  const std::vector<Tensor> made = Interpret(graph, {{graph.inputs.at(0), x}}, graph.outputs);
  const auto values = made.at(0).as<float>();
  return {values.begin(), values.end()};
}

constexpr float kTable[4][2] = {{0.5, -1}, {2, 3}, {-4, 0.25}, {7, -2}};

enum class By { kSum, kMean, kMax };

// The expected result, computed directly.
std::vector<float> Expected(const Tensor& x, By by, bool padded) {
  std::vector<float> rows;
  for (int64_t bag = 0; bag < x.shape()[0]; ++bag) {
    for (size_t column = 0; column < 2; ++column) {
      float made = 0;
      int count = 0;
      for (int64_t k = 0; k < kLength; ++k) {
        const int64_t word = (x.as<int64_t>()[static_cast<size_t>(bag * kLength + k)] + 4) % 4;
        if (padded && word == 0) continue;
        const float value = kTable[word][column];
        made = by != By::kMax ? made + value : count == 0 ? value : std::max(made, value);
        ++count;
      }
      rows.push_back(by == By::kMean && count > 0 ? made / static_cast<float>(count) : made);
    }
  }
  return rows;
}

// The same for bags that begin at `cuts`. Bags without words other than padding are zero. The last bag stops at `end`, and a mean divides
// it by the number of words up to `divided_to`.
std::vector<float> Expected(const Tensor& x, By by, bool padded, const std::vector<int64_t>& cuts, int64_t end, int64_t divided_to) {
  std::vector<float> rows;
  for (size_t bag = 0; bag < cuts.size(); ++bag) {
    const bool last = bag + 1 == cuts.size();
    for (size_t column = 0; column < 2; ++column) {
      float made = 0;
      int64_t count = 0;
      for (int64_t k = cuts[bag]; k < (last ? end : cuts[bag + 1]); ++k) {
        const int64_t word = (x.as<int64_t>()[static_cast<size_t>(k)] + 4) % 4;
        if (padded && word == 0) continue;
        const float value = kTable[word][column];
        made = by != By::kMax ? made + value : count == 0 ? value : std::max(made, value);
        ++count;
      }
      if (last && by == By::kMean && !padded) count = divided_to - cuts[bag];
      rows.push_back(by == By::kMean && count > 0 ? made / static_cast<float>(count) : made);
    }
  }
  return rows;
}

struct Form {
  const char* what;
  std::string text;
  By by;
  bool padded = false;
};

std::vector<Form> Forms() {
  const std::string part = "v = Slice (rows, b, e) ", to_end = "v = Slice (rows, b, size) ";
  const std::string sum = "ReduceSum (v, first)", mean = "ReduceMean (v, first)", max = "ReduceMax (v, first)";
  return {
      {"summed", Legacy("row = ReduceSum <keepdims = 0> (v, first)"), By::kSum},
      {"the mean", Legacy("row = ReduceMean <keepdims = 0> (v, first)"), By::kMean},
      {"the largest", Legacy("row = ReduceMax <keepdims = 0> (v, first)"), By::kMax},
      {"summed in both branches", Default(part + "d1 = " + sum, part + "d2 = " + sum), By::kSum},
      {"the mean by a division",
       Default(part + "s = " + sum + " n = Sub (size, b) f = Cast <to: int = 1> (n) d1 = Div (s, f)", part + "d2 = " + mean), By::kMean},
      {"the largest, up to the end", Default(to_end + "d1 = " + max, part + "d2 = " + max), By::kMax},
      {"summed but for padding", Padded("d = " + sum), By::kSum, true},
      {"the mean but for padding", Padded("d = " + mean), By::kMean, true},
      {"the largest but for padding", Padded("d = " + max), By::kMax, true},
  };
}

// The nodes are the same at each batch size, which data parallelism requires.
TEST(BagLoops, AreVectorizedAtAnyBatch) {
  for (const Form& form : Forms()) {
    SCOPED_TRACE(form.what);
    const Model model = Model::FromText(form.text);
    std::vector<std::string> nodes;
    for (const int64_t batch : {3, 5, 2, 1, 7}) {
      SCOPED_TRACE(batch);
      const ImportedGraph imported = Import(model, {.batch = batch, .any_batch = true});
      std::vector<std::string> now;
      for (const Node& node : imported.graph->nodes) now.push_back(node.op);
      EXPECT_EQ(std::count(now.begin(), now.end(), "Loop"), 0);
      if (nodes.empty()) nodes = now;
      EXPECT_EQ(now, nodes);
      const Tensor x = Words(batch);
      EXPECT_EQ(Computed(*imported.graph, x), Expected(x, form.by, form.padded));
    }
  }
}

// At the file's own batch size, without comparing with another one.
TEST(BagLoops, AreVectorizedAtTheirOwnBatch) {
  for (const Form& form : Forms()) {
    SCOPED_TRACE(form.what);
    const ImportedGraph imported = Import(Model::FromText(form.text));
    const Tensor x = Words(3);
    EXPECT_EQ(Computed(*imported.graph, x), Expected(x, form.by, form.padded));
  }
}

// Only one row of the sequence is read.
TEST(BagLoops, YieldASequenceIfOneIsRead) {
  const std::string sum = "v = Slice (rows, b, e) d1 = ReduceSum (v, first)", same = "v = Slice (rows, b, e) d2 = ReduceSum (v, first)";
  const ImportedGraph imported = Import(Model::FromText(Default(sum, same, "y = SequenceAt (r, one)")));
  const Tensor x = Words(3);
  const std::vector<float> all = Expected(x, By::kSum, false);
  EXPECT_EQ(Computed(*imported.graph, x), (std::vector<float>{all[2], all[3]}));
}

// A loop that only resembles this form is run as a loop, with the results that it specifies.
TEST(BagLoops, ExcludeUnevenBagsAndDifferingIterations) {
  const std::string uneven = Legacy("row = ReduceSum <keepdims = 0> (v, first)", "uneven");
  std::string cut = uneven;
  cut.replace(cut.find("int64[1] last"), 0, "int64[4] uneven = {0, 1, 4, 6}, ");
  const Tensor x = Words(3);
  const std::vector<float> made = Computed(*Import(Model::FromText(cut)).graph, x);
  // The words 0 | 0 -1 2 | 1 0, summed per bag.
  std::vector<float> expected(6, 0);
  for (int64_t i = 0; i < 6; ++i) {
    const size_t bag = i < 1 ? 0 : i < 4 ? 1 : 2, word = static_cast<size_t>((x.as<int64_t>()[static_cast<size_t>(i)] + 4) % 4);
    for (size_t column = 0; column < 2; ++column) expected[bag * 2 + column] += kTable[word][column];
  }
  EXPECT_EQ(made, expected);
  EXPECT_THROW(Import(Model::FromText(cut), {.batch = 5}), Error);
  // The last iteration computes something else.
  const std::string other = Default("v = Slice (rows, b, e) d1 = ReduceMax (v, first)", "v = Slice (rows, b, e) d2 = ReduceSum (v, first)");
  std::vector<float> mixed = Expected(x, By::kSum, false);
  const std::vector<float> largest = Expected(x, By::kMax, false);
  std::copy(largest.begin() + 4, largest.end(), mixed.begin() + 4);
  EXPECT_EQ(Computed(*Import(Model::FromText(other)).graph, x), mixed);
}

// Changes a model to bags that the data determine: `cuts` is fed, or is computed from the fed beginnings.
std::string ByData(std::string text, bool ends) {
  const auto replace = [&](const std::string& was, const std::string& now) {
    ASSERT_NE(text.find(was), std::string::npos) << was;
    text.replace(text.find(was), was.size(), now);
  };
  replace("int64[4] cuts = {0, 2, 4, 6}, ", "");
  replace("int64[3, 2] x", ends ? "int64[n, 2] x, int64[4] cuts" : "int64[n, 2] x, int64[3] begins");
  if (!ends)
    replace("i = Reshape (x, all) ",
            "i = Reshape (x, all) count = Size (i) counted = Reshape (count, all) cuts = Concat <axis = 0> (begins, counted) ");
  return text;
}

struct Bounds {
  std::vector<int64_t> begins;
  int64_t end;  // of the last bag
};

// Any number of words, empty bags, and words before the first and after the last bag.
TEST(BagLoops, AreVectorizedForOffsetsFromData) {
  for (const Form& form : Forms()) {
    for (const bool ends : {true, false}) {
      SCOPED_TRACE(std::string(form.what) + (ends ? ", with an end" : ""));
      const bool to_end = std::string(form.what).find("up to the end") != std::string::npos;
      const bool divides = std::string(form.what).find("by a division") != std::string::npos;
      for (const int64_t rows : {3, 5}) {
        const int64_t all = rows * kLength;
        const ImportedGraph imported = Import(Model::FromText(ByData(form.text, ends)), {.batch = rows});
        for (const Node& node : imported.graph->nodes) EXPECT_NE(node.op, "Loop");
        const Tensor x = Words(rows);
        for (const Bounds& bags : std::vector<Bounds>{{{0, 2, 4}, all}, {{0, 1, 1}, all}, {{1, 3, 3}, all - 1}, {{0, 0, all}, all}}) {
          std::vector<int64_t> fed = bags.begins;
          if (ends) fed.push_back(bags.end);
          const int64_t end = ends && !to_end ? bags.end : all;
          if (divides && bags.begins.back() == all) continue;  // 0 / 0 in this form
          const Tensor cuts = Tensor::From<int64_t>(fed, Shape{static_cast<int64_t>(fed.size())});
          const std::vector<Tensor> made = Interpret(
              *imported.graph, {{imported.graph->inputs.at(0), x}, {imported.graph->inputs.at(1), cuts}}, imported.graph->outputs);
          const auto values = made.at(0).as<float>();
          const std::vector<float> expected = Expected(x, form.by, form.padded, bags.begins, end, divides ? all : end);
          ASSERT_EQ(values.size(), expected.size());
          for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6) << i;
        }
      }
    }
  }
}

// If a bag does not end where the next one begins, the loop is run as it is.
TEST(BagLoops, ExcludeOverlappingBags) {
  std::string text = ByData(Legacy("row = ReduceSum <keepdims = 0> (v, first)"), true);
  const std::string was = "e = Gather (ends, t)";
  text.replace(text.find(was), was.size(), "e = Gather (cuts, three)");
  const ImportedGraph imported = Import(Model::FromText(text), {.batch = 3});
  const Tensor x = Words(3), cuts = Tensor::From<int64_t>({0, 2, 3, 5}, Shape{4});
  const std::vector<Tensor> made =
      Interpret(*imported.graph, {{imported.graph->inputs.at(0), x}, {imported.graph->inputs.at(1), cuts}}, imported.graph->outputs);
  std::vector<float> expected;
  for (const int64_t begin : {0, 2, 3}) {
    const std::vector<float> row = Expected(x, By::kSum, false, {begin}, 5, 5);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  const auto values = made.at(0).as<float>();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), expected);
}

// A deep body does not overflow the stack.
TEST(BagLoops, ImportDeepBodies) {
  const auto loop = [](const std::string& rounds, const std::string& nodes) {
    return Model::FromText(
        "<ir_version: 10, opset_import: [\"\" : 18]>\ng (float[2] x) => (float[n, 2] y) <bool yes = {1}, int64 rounds = {" + rounds +
        "}> { y = Loop (rounds, yes) <body: graph = round (int64 t, bool going) => (bool on, float[2] row) { " + nodes + " }> }");
  };
  std::string chain = "c0 = Not (going) ";
  for (int i = 1; i < 20000; ++i) chain += "c" + std::to_string(i) + " = Not (c" + std::to_string(i - 1) + ") ";
  const Tensor x = Tensor::From(std::vector<float>{1, 2}, {2});
  EXPECT_EQ(Computed(*Import(loop("2", chain + "on = Identity (c19999) row = Identity (x)")).graph, x), (std::vector<float>{1, 2, 1, 2}));
}

}  // namespace
}  // namespace gradloom
