// Recurrent networks if cuBLASLt has no algorithm for their products.
#include <gtest/gtest.h>

#include "tests/cuda/emulated_runtime.h"
#include "tests/cuda/recurrent_calls.h"

namespace gradloom {
namespace {

using namespace recurrent_calls;  // NOLINT: all of it

TEST(CudaRecurrent, OwnProductsGiveTheSameResults) {
  std::mt19937_64 random(8);
  for (const Kind& kind : kKinds) {
    for (const Case& c : kCases) {
      // The emulation is slow.
      if (c.hidden > 20) continue;
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
        const Drawn drawn = InType(DrawGradient(c, kind, random), dtype);
        const std::string row = "cublas.gradloom." + kind.gradient;
        const std::vector<Tensor> library = OnDevice(drawn, row);
        TheLibraries().TakeNotes();
        emulated::SetBlasHasAlgorithms(false);
        const std::vector<Tensor> ours = OnDevice(drawn, row);
        emulated::SetBlasHasAlgorithms(true);
        ExpectNear(ours, library, ToleranceOf(dtype));
        const std::vector<std::string> notes = TheLibraries().TakeNotes();
        // W, the steps, their gradient, and the gradients of X, W and R; three more with a reset gate.
        const bool resets = kind.op == "GRU" && c.linear == 0;
        ASSERT_EQ(notes.size(), resets ? 9U : 6U);
        EXPECT_TRUE(notes[0].starts_with("cuBLASLt has nothing for a product of a " + kind.gradient + " of")) << notes[0];
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
