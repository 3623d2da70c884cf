// Configures the emulated device in a program that loads it as a library. GRADLOOM_EMULATED_DEVICES is the number of GPUs,
// GRADLOOM_EMULATED_OLDER the number of those with an older architecture, GRADLOOM_EMULATED_KERNEL_US an additional time in microseconds
// for each kernel. GRADLOOM_EMULATED_NO_ALGORITHMS=1 means that cuBLASLt and cuDNN have no algorithm for any problem,
// GRADLOOM_EMULATED_NO_PINNING=1 that the system refuses pinned memory.
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
         .pinning_fails = number("GRADLOOM_EMULATED_NO_PINNING", 0) != 0,
         .kernel_us = number("GRADLOOM_EMULATED_KERNEL_US", 0)});
  if (number("GRADLOOM_EMULATED_NO_ALGORITHMS", 0) != 0) {
    SetBlasHasAlgorithms(false);
    SetDnnHasAlgorithms(false);
  }
  return true;
}();

}  // namespace
}  // namespace gradloom::emulated
