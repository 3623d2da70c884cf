// The seed of randomized tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

namespace gradloom {

// GRADLOOM_SEED, where it is set.
inline std::optional<uint64_t> SeedFromEnvironment() {
  const char* const given = std::getenv("GRADLOOM_SEED");
  return given == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(given, nullptr, 10));
}

// The given seed, or a random one, the same for the whole process. It is printed, so that a failure can be reproduced.
inline uint64_t TestSeed() {
  static const uint64_t seed = [] {
    const uint64_t chosen = SeedFromEnvironment().value_or(std::random_device()());
    std::printf("GRADLOOM_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

}  // namespace gradloom
