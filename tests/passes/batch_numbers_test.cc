// The batch size as a number that meets values of the data: on several devices it is that of the whole batch, not of a device's share.
#include <gtest/gtest.h>

#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Form {
  const char* name;
  // The graph has h: float[N, 4, 3]; m: float[N, 3]; n: int64[N], each from 0 to 3; many: int64[N], three times n; s: int64[1] and count:
  // int64, the batch size; end: int64, one less; ids: int64[N], the indices of the samples. The nodes compute z: float[N, 3], or
  // k: int64[N], whose product with m is z.
  const char* nodes;
};

[[maybe_unused]] void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

const Form kForms[] = {
    {"product", "k = Mul (n, count)"},
    {"sum", "k = Add (n, count)"},
    {"comparison", "less = Less (many, end) k = Cast <to = 7> (less)"},
    {"bound", "k = Min (many, end)"},
    {"choice", "odd = Mod (n, two) is = Equal (odd, one) k = Where (is, count, n)"},
    {"extent_too", R"(
  k1 = Mul (n, s) mean = ReduceMean <keepdims = 0> (w) each = Expand (mean, s) f1 = Cast <to = 1> (k1) g = Mul (f1, each)
  c1 = Unsqueeze (g, last) z = Mul (m, c1))"},
    {"halves", R"(
  both = Concat <axis = 0> (m, m) two_s = Add (s, s) a = Slice (both, zeros, s, zeros) t = Tanh (both) b = Slice (t, s, two_s, zeros)
  z = Mul (a, b))"},
    {"range_of_a_table", R"(
  at = Mod (s, two) to = Add (at, two) some = Slice (table, at, to, zeros) r = ReduceSum <keepdims = 0> (some, zeros) z = Mul (m, r))"},
    {"last_row_of_a_table", "r = Gather <axis = 0> (table, end) z = Mul (m, r)"},
    {"row_of_a_table", "at = Min (many, end) r = Gather <axis = 0> (table, at) z = Mul (m, r)"},
    {"reversed_rows_of_a_table", "from_end = Sub (end, ids) r = Gather <axis = 0> (table, from_end) z = Mul (m, r)"},
    {"rows_by_time", R"(
  t = Transpose <perm = [1, 0, 2]> (h) rows = Reshape (t, flat) first = Mul (n, count) at = Add (first, ids)
  z = Gather <axis = 0> (rows, at))"},
};

std::string GraphOf(const Form& form) {
  const std::string nodes = form.nodes;
  const bool has_factor = nodes.find("z = ") == std::string::npos;
  std::mt19937 random(5);
  return R"(
g (float[N, 4, 5] x, int64[N] n) => (float[N, 3] z)
<float[5, 3] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9, 1.1, -0.6, 0.8}, )" +
         Weights(random, "table", {12, 3}) + R"(,
 int64[1] last = {-1}, int64[2] flat = {-1, 3}, int64[1] zeros = {0}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 three = {3}>
{
  p = MatMul (x, w) h = Sigmoid (p) m = ReduceMean <axes = [1], keepdims = 0> (h)
  s = Shape <start = 0, end = 1> (x) count = Squeeze (s) end = Sub (count, one) ids = Range (zero, count, one) many = Mul (n, three)
  )" + nodes +
         (has_factor ? " f = Cast <to = 1> (k) c = Unsqueeze (f, last) z = Mul (m, c)" : "") + "\n}\n";
}

Batch MakeBatch(std::mt19937& random, int64_t size) {
  Batch batch;
  batch.emplace("x", Random(random, Shape{size, 4, 5}));
  batch.emplace("n", Classes(random, size, 4));
  return batch;
}

class BatchNumbersTest : public ::testing::TestWithParam<Form> {};

TEST_P(BatchNumbersTest, AreThoseOfTheWholeBatch) {
  ExpectDivides(GraphOf(GetParam()), {{.type = "output", .output = "z"}}, {10, 10, 5, 3, 1}, MakeBatch);
}

INSTANTIATE_TEST_SUITE_P(Forms, BatchNumbersTest, ::testing::ValuesIn(kForms),
                         [](const ::testing::TestParamInfo<Form>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradloom
