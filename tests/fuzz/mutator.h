// Mutates the bytes of a file, as disk errors or an attacker would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace gradloom {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // A number in [0, bound); 0 for the bound 0.
  size_t Below(size_t bound) { return bound == 0 ? 0 : static_cast<size_t>(random_() % bound); }

  // Makes one to five changes, which may splice in pieces of `other`. The result has at most `max_bytes` bytes.
  void Change(std::string& bytes, const std::string& other, size_t max_bytes);

 private:
  void ChangeOnce(std::string& bytes, const std::string& other);
  void PutNumber(std::string& bytes);
  void PutDigits(std::string& bytes);

  std::mt19937_64 random_;
};

}  // namespace gradloom
