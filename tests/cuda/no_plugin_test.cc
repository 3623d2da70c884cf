// A library that is not there, or is none of ours, is a sentence and no crash.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/device/device.h"

namespace gradloom {
namespace {

TEST(CudaPlugin, ALibraryThatIsNotThereIsSaid) {
  setenv("GRADLOOM_CUDA_LIBRARY", "/nowhere/libgradloom_cuda.so", 1);
  std::string why;
  EXPECT_EQ(CudaPlatform(&why), nullptr);
  EXPECT_NE(why.find("/nowhere/libgradloom_cuda.so"), std::string::npos) << why;
  // It is tried once.
  EXPECT_EQ(CudaPlatform(&why), nullptr);
}

}  // namespace
}  // namespace gradloom
