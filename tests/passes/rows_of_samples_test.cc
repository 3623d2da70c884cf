// Inputs that have several rows for each sample, or the samples under a name of their own, are divided over devices with the samples.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kRows = 3;

TEST(RowsOfSamples, ExtentsWithNamesOfTheirOwnAreDivided) {
  std::mt19937 random(11);
  const std::string graph = "net (float[N, 4] x, float[M, 4] others, float[K, 2] more) => (float[N, 3] z) <" +
                            Weights(random, "w", Shape{4, 5}) + ", " + Weights(random, "v", Shape{2, 3}) +
                            R"(, int64[3] each = {-1, 3, 5}, int64[1] last = {2}> {
  a = MatMul(x, w)
  o = MatMul(others, w)
  n = Reshape(o, each)
  t = Unsqueeze(a, last)
  s = MatMul(n, t)
  q = Squeeze(s, last)
  b = MatMul(more, v)
  z = Add(q, b)
})";
  const auto make = [](std::mt19937& r, int64_t size) {
    return Batch{{"x", Random(r, Shape{size, 4})},
                 {"others", Random(r, Shape{kRows * size, 4})},
                 {"more", Random(r, Shape{size, 2})},
                 {"target", Classes(r, size, 3)}};
  };
  const auto name = [](CompileOptions& options) {
    for (EntryRequest& entry : options.entries) entry.shapes = {{"M", kRows * entry.batch}, {"K", entry.batch}};
  };
  ExpectDivides(graph, {{.type = "cross_entropy", .output = "z", .target = "target"}}, {6, 4, 6}, make, name);
}

// A length that is a multiple of the batch by chance has nothing to do with the samples.
TEST(RowsOfSamples, LengthsAreNot) {
  std::mt19937 random(12);
  const std::string graph = "net (float[N, T, 4] x) => (float[N, 3] z) <" + Weights(random, "w", Shape{4, 3}) + R"(> {
  h = MatMul(x, w)
  z = ReduceMean <axes = [1], keepdims = 0> (h)
})";
  const auto make = [](std::mt19937& r, int64_t size) {
    return Batch{{"x", Random(r, Shape{size, 12, 4})}, {"target", Classes(r, size, 3)}};
  };
  const auto name = [](CompileOptions& options) {
    for (EntryRequest& entry : options.entries) entry.shapes = {{"T", 12}};
  };
  ExpectDivides(graph, {{.type = "cross_entropy", .output = "z", .target = "target"}}, {6, 4}, make, name);
}

}  // namespace
}  // namespace gradloom
