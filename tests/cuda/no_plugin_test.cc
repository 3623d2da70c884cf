// A plugin library that is missing, or is not Gradloom's, is reported as an error and does not crash.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/device/device.h"

namespace gradloom {
namespace {

TEST(CudaPlugin, ReportsAMissingLibrary) {
  setenv("GRADLOOM_CUDA_LIBRARY", "/nowhere/libgradloom_cuda.so", 1);
  std::string why;
  EXPECT_EQ(CudaPlatform(&why), nullptr);
  EXPECT_NE(why.find("/nowhere/libgradloom_cuda.so"), std::string::npos) << why;
  // Loading is tried once.
  EXPECT_EQ(CudaPlatform(&why), nullptr);
}

}  // namespace
}  // namespace gradloom
