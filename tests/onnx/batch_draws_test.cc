// Random numbers in files for one batch size: at another one, each sample has its own, as in a file for that batch size.
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

struct Drawn {
  const char* what;
  const char* body;  // from h [N,2] to a [N,2]; N is the file's batch size
};

const Drawn kDrawn[] = {
    {"a mask like zeros", "c = ConstantOfShape (s1) r = RandomUniformLike (c) k = Add (r, half) m = Floor (k) a = Mul (h, m)"},
    {"noise of a shape", "r = RandomNormal <shape = [N, 2]> () a = Add (h, r)"},
    {"a mask of a shape", "r = RandomUniform <shape = [N, 1]> () b = Less (r, half) a = Where (b, h, half)"},
    {"probabilities", "c = ConstantOfShape <value = float[1] {0.5}> (s1) m = Bernoulli (c) d = Div (m, half) a = Mul (d, h)"},
    {"a view", "c = ConstantOfShape (s) r = RandomUniformLike (c) b = Less (r, half) u = Unsqueeze (b, one) a = Where (u, h, half)"},
    {"a transposed draw", "r = RandomNormal <shape = [2, N]> () t = Transpose <perm = [1, 0]> (r) a = Add (t, h)"},
    {"noise with a constant per sample", "r = RandomNormal <shape = [N, 2]> () c = ConstantOfShape (s1) n = Sub (r, c) a = Add (n, h)"},
    {"a noisy column", "r = RandomNormal <shape = [N, 1]> () j = Concat <axis = 1> (h, r) m = MatMul (j, w) a = Tanh (m)"},
};

std::string ModelFor(const Drawn& drawn, int64_t batch) {
  const std::string n = std::to_string(batch);
  std::string body = drawn.body;
  for (size_t at = body.find('N'); at != std::string::npos; at = body.find('N', at + 1)) {
    if (body[at - 1] == '[' || body[at + 1] == ']') body.replace(at, 1, n);
  }
  return "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[" + n + ", 3] x) => (float[" + n +
         ", 2] out) <float[3, 2] w = {0.5, -1, 0.25, 2, 1, -0.5}, float half = {0.5}, int64[1] one = {1}, int64[1] s = {" + n +
         "}, int64[2] s1 = {" + n + ", 1}> { p = MatMul (x, w) h = Tanh (p) " + body + " q = Mul (a, a) out = Sub (q, p) }";
}

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const PhiloxBlock block = Philox({static_cast<uint32_t>(i), 0, 0, 0}, NodeKey(seed, 0, 0));
    tensor.as<float>()[static_cast<size_t>(i)] = static_cast<float>(block[0]) * 0x1p-31f - 1;
  }
  return tensor;
}

std::vector<double> Losses(const std::string& text, int64_t batch, int devices) {
  CompileOptions options;
  options.recipe.losses = {{.type = "mse", .output = "out", .target = "y"}};
  options.recipe.schedule.lr = 0.2;
  options.recipe.devices = devices;
  options.entries.push_back({EntryKind::kStep, batch});
  Session session(std::make_shared<const Plan>(Compile(Model::FromText(text), options)));
  const Tensor x = Random({batch, 3}, 1), y = Random({batch, 2}, 2);
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) losses.push_back(session.Step({{"x", x.view()}, {"y", y.view()}}).loss);
  return losses;
}

TEST(BatchDraws, FollowTheBatch) {
  for (const Drawn& drawn : kDrawn) {
    for (const int64_t batch : {2, 5, 7}) {
      const std::vector<double> expected = Losses(ModelFor(drawn, batch), batch, 1);
      for (const int64_t declared : {1, 4}) {
        for (const int devices : {1, 2}) {
          SCOPED_TRACE(std::string(drawn.what) + ", file for " + std::to_string(declared) + ", batch " + std::to_string(batch) +
                       ", devices " + std::to_string(devices));
          const std::vector<double> losses = Losses(ModelFor(drawn, declared), batch, devices);
          for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
        }
      }
    }
  }
}

// What all samples share is drawn once, in a file for one sample, too.
TEST(BatchDraws, NoiseOfWeightsIsShared) {
  const Drawn shared{"noise of weights", "r = RandomNormal <shape = [3, 2]> () n = Add (r, w) p2 = MatMul (x, n) a = Add (p2, h)"};
  const std::vector<double> expected = Losses(ModelFor(shared, 5), 5, 1);
  for (const int64_t declared : {1, 3}) {
    const std::vector<double> losses = Losses(ModelFor(shared, declared), 5, 1);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "file for " << declared << ", step " << i;
  }
}

}  // namespace
}  // namespace gradloom
