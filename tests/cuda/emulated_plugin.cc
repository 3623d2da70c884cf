// How the emulated device is set up in a program that opens it as a library: GRADLOOM_EMULATED_DEVICES says how many GPUs there are.
#include <cstdlib>

#include "tests/cuda/emulated_runtime.h"

namespace gradloom::emulated {
namespace {

const bool kSetUp = [] {
  const char* const devices = std::getenv("GRADLOOM_EMULATED_DEVICES");
  Reset({.devices = devices == nullptr ? 1 : std::atoi(devices)});
  return true;
}();

}  // namespace
}  // namespace gradloom::emulated
