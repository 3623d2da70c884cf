// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As
// Easy as 1, 2, 3", SC 2011). The same counter and key give the same numbers on every device, so a run
// saves no generator state.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace gradloom {

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxBlock Philox(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A uniform number in [0, 1) with 24 bits.
constexpr float UniformFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// SplitMix64 of `x`: a good hash of small integers (Steele, Lea, Flood, OOPSLA 2014).
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The seed that a model states as a floating-point number. Seeds that are not integers of 64 bits (negative, infinite, NaN) are distinct,
// too.
constexpr uint64_t StatedSeed(double seed) {
  return seed >= 0 && seed < 0x1p64 ? static_cast<uint64_t>(seed) : Mix64(std::bit_cast<uint64_t>(seed));
}

// The key of the random numbers of one node in one batch (counted over all batches, including accumulated ones). `origin` is a hash of the
// node's name at import with its call path.
constexpr PhiloxKey NodeKey(uint64_t seed, uint64_t batch, uint64_t origin) {
  const uint64_t mixed = Mix64(Mix64(Mix64(seed) ^ batch) ^ origin);
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

// The random word of element `index` in row-major order of the unsplit tensor: four elements share a block.
constexpr uint32_t ElementBits(uint64_t index, PhiloxKey key) {
  const uint64_t block = index / 4;
  return Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, key)[index % 4];
}

}  // namespace gradloom
