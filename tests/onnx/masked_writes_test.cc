// `x[mask] = value` as PyTorch's default exporter writes it trains like a Where.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/philox.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

struct Written {
  const char* what;
  const char* value;  // declaration of v, with its elements
  int rank;           // of the mask
};

const Written kWritten[] = {
    {"a token", "float[2] v = {0.5, -1}", 2},
    {"a row of tokens", "float[1, 2] v = {0.5, -1}", 2},
    {"one number for all", "float[1] v = {0.7}", 2},
    {"whole samples", "float[3, 2] v = {0.5, -1, 2, 0.25, 1, -0.5}", 1},
    {"a token in samples", "float[2] v = {0.5, -1}", 1},
    {"single elements", "float v = {0.7}", 3},
};

std::string ModelOf(const Written& written, const std::string& n, bool scattered) {
  const char* kExtents[] = {"", ", 3", ", 3, 2"};
  std::string body = "h = MatMul (x, w) u0 = Identity (m) ", mask = "u0";
  for (int i = written.rank; i < 3; ++i) {
    const std::string next = "u" + std::to_string(i);
    body += next + "x = Unsqueeze (" + mask + ", minus) ";
    mask = next + "x";
  }
  if (scattered) {
    body += "s = Shape (h) e = Expand (" + mask +
            ", s) p = NonZero (e) t = Transpose <perm = [1, 0]> (p) f = Reshape (m, minus) "
            "c = Cast <to = 7> (f) k = ReduceSum <keepdims = 1> (c) r = Slice (s, from, three, zero) g = Concat <axis = 0> (k, r) "
            "y = Expand (v, g) z = Reshape (y, minus) a = ScatterND (h, t, z) ";
  } else {
    body += "a = Where (" + mask + ", v, h) ";
  }
  return "<ir_version: 10, opset_import: [\"\" : 18]>\ng (float[" + n + ", 3, 2] x, bool[" + n + kExtents[written.rank - 1] +
         "] m) => (float[" + n + ", 3, 2] out) <float[2, 2] w = {0.5, -1, 0.25, 2}, " + written.value +
         ", int64[1] minus = {-1}, int64[1] zero = {0}, int64[1] three = {3}, int64[1] from = {" + std::to_string(written.rank) + "}> { " +
         body + "q = Mul (a, a) out = Sub (q, h) }";
}

std::vector<double> Losses(const std::string& text, const Written& written, int64_t batch, int devices) {
  CompileOptions options;
  options.recipe.losses = {{.type = "mse", .output = "out", .target = "target"}};
  options.recipe.trainable = {"w", "v"};
  options.recipe.schedule.lr = 0.05;
  options.recipe.devices = devices;
  options.entries.push_back({EntryKind::kStep, batch});
  Session session(std::make_shared<const Plan>(Compile(Model::FromText(text), options)));
  Shape shape{batch};
  if (written.rank > 1) shape.push_back(3);
  if (written.rank > 2) shape.push_back(2);
  Tensor x(DType::kFloat32, {batch, 3, 2}), y(DType::kFloat32, {batch, 3, 2}), m(DType::kBool, shape);
  const auto draw = [](int64_t i, uint64_t seed) { return Philox({static_cast<uint32_t>(i), 0, 0, 0}, NodeKey(seed, 0, 0))[0]; };
  for (int64_t i = 0; i < x.elements(); ++i) {
    x.as<float>()[static_cast<size_t>(i)] = static_cast<float>(draw(i, 1)) * 0x1p-31f - 1;
    y.as<float>()[static_cast<size_t>(i)] = static_cast<float>(draw(i, 2)) * 0x1p-31f - 1;
  }
  for (int64_t i = 0; i < m.elements(); ++i) m.as<bool>()[static_cast<size_t>(i)] = draw(i, 3) % 2 == 0;
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) losses.push_back(session.Step({{"x", x.view()}, {"m", m.view()}, {"target", y.view()}}).loss);
  return losses;
}

TEST(MaskedWrites, TrainLikeWhere) {
  for (const Written& written : kWritten) {
    const std::vector<double> expected = Losses(ModelOf(written, "N", false), written, 5, 1);
    for (const char* declared : {"N", "1", "4"}) {
      for (const int devices : {1, 2}) {
        SCOPED_TRACE(std::string(written.what) + ", file for " + declared + ", devices " + std::to_string(devices));
        const std::vector<double> losses = Losses(ModelOf(written, declared, true), written, 5, devices);
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6) << "step " << i;
      }
    }
  }
}

// Rows that the mask selects are computed and written back; they are counted, so on one device.
TEST(MaskedWrites, SelectedRows) {
  for (const Written& written :
       {Written{"steps", "float[2, 2] v = {1, 0.5, -0.5, 2}", 2}, Written{"samples", "float[2, 2] v = {1, 0.5, -0.5, 2}", 1}}) {
    SCOPED_TRACE(written.what);
    std::string scattered = ModelOf(written, "N", true), chosen = ModelOf(written, "N", false);
    const auto replace = [](std::string& text, const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    replace(scattered, "y = Expand (v, g)",
            "b = NonZero (m) i = Transpose <perm = [1, 0]> (b) rows = GatherND (h, i) new = MatMul (rows, v) y = Expand (new, g)");
    replace(chosen, "a = Where", "new = MatMul (h, v) a = Where");
    replace(chosen, ", v, h)", ", new, h)");
    const std::vector<double> expected = Losses(chosen, written, 5, 1), losses = Losses(scattered, written, 5, 1);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6) << "step " << i;
  }
}

// Three rows fit only a mask with three true elements, which are not known.
TEST(MaskedWrites, RowsAreNotRepeated) {
  const Written rows{"rows", "float[3, 2] v = {0.5, -1, 2, 0.25, 1, -0.5}", 2};
  try {
    Losses(ModelOf(rows, "N", true), rows, 5, 1);
    FAIL() << "rows were written into positions that are chosen by the data";
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kShape) << error.Describe();
  }
}

// A hostile file, in which the nodes that are looked through follow from themselves.
TEST(MaskedWrites, ACycleIsAnError) {
  const Written& token = kWritten[0];
  std::string text = ModelOf(token, "N", true);
  const std::string node = "f = Reshape (m, minus)";
  text.replace(text.find(node), node.size(), "f = Reshape (again, minus) again = Reshape (f, minus)");
  EXPECT_THROW(Losses(text, token, 5, 1), Error);
}

}  // namespace
}  // namespace gradloom
