// The hashes in files: XXH3 with 64 and with 128 bits. They detect damage, not forgery.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gradloom {

// Hashes bytes piece by piece.
class Hash {
 public:
  Hash();
  ~Hash();

  void Add(const void* data, int64_t bytes);
  uint64_t value() const;

 private:
  friend class WideHash;
  struct State;
  std::unique_ptr<State> state_;
};

// The same with 128 bits, for data that is identified by its hash alone.
class WideHash {
 public:
  WideHash();
  ~WideHash();

  void Add(const void* data, int64_t bytes);
  // 32 hexadecimal digits.
  std::string text() const;

 private:
  std::unique_ptr<Hash::State> state_;
};

uint64_t HashOf(std::string_view bytes);

// 16 hexadecimal digits.
std::string HashText(uint64_t hash);

}  // namespace gradloom
