// The CPU backend for programs that must be small (--define=cpu=reference): reference kernels only, without oneDNN.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_kernels.h"

namespace gradloom {
namespace {

// Linking is half of the test: the library contains no other kernels.
TEST(ReferenceBackend, HasNoOtherKernels) { EXPECT_TRUE(CpuKernels().empty()); }

}  // namespace
}  // namespace gradloom
