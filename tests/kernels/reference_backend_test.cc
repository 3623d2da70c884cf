// The CPU device of programs that must be small (--define=cpu=reference): the reference kernels alone, without oneDNN.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_kernels.h"

namespace gradloom {
namespace {

// That this links is half of it: every family that cpu_kernels.cc lists has its empty stand-in.
TEST(ReferenceBackend, HasNoOtherKernels) { EXPECT_TRUE(CpuKernels().empty()); }

}  // namespace
}  // namespace gradloom
