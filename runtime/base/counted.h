// Numbers of things in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

// "1 batch", "2 batches".
inline std::string Counted(int64_t count, std::string_view one, std::string_view several) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : several);
}

// "1 device", "2 devices".
inline std::string Counted(int64_t count, std::string_view one) { return Counted(count, one, std::string(one) + "s"); }

}  // namespace gradloom
