// How the emulated device is set up in a program that opens it as a library: GRADLOOM_EMULATED_DEVICES says how many GPUs there are,
// GRADLOOM_EMULATED_OLDER how many of them are of an older kind, GRADLOOM_EMULATED_KERNEL_US how many microseconds each kernel takes
// besides, GRADLOOM_EMULATED_NO_ALGORITHMS=1 that cuBLASLt and cuDNN have nothing for any problem.
#include <cstdlib>

#include "tests/cuda/emulated_dnn.h"
#include "tests/cuda/emulated_runtime.h"

namespace gradloom::emulated {
namespace {

const bool kSetUp = [] {
  const auto number = [](const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  Reset({.devices = number("GRADLOOM_EMULATED_DEVICES", 1),
         .older = number("GRADLOOM_EMULATED_OLDER", 0),
         .kernel_us = number("GRADLOOM_EMULATED_KERNEL_US", 0)});
  if (number("GRADLOOM_EMULATED_NO_ALGORITHMS", 0) != 0) {
    SetBlasHasAlgorithms(false);
    SetDnnHasAlgorithms(false);
  }
  return true;
}();

}  // namespace
}  // namespace gradloom::emulated
