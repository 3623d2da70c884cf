// The hash that files carry: XXH3 with 64 bits. It finds damage, not forgery.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gradloom {

// Of bytes that come piece by piece.
class Hash {
 public:
  Hash();
  ~Hash();

  void Add(const void* data, int64_t bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t HashOf(std::string_view bytes);

// 16 hexadecimal digits.
std::string HashText(uint64_t hash);

}  // namespace gradloom
