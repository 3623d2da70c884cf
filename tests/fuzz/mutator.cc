#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cstring>

namespace gradloom {
namespace {

// Values at which counts, offsets and sizes tend to go wrong.
constexpr uint64_t kNumbers[] = {0,
                                 1,
                                 2,
                                 0x7F,
                                 0x80,
                                 0xFF,
                                 0x100,
                                 0x7FFF,
                                 0x8000,
                                 0xFFFF,
                                 0x10000,
                                 0x7FFFFFFF,
                                 0x80000000,
                                 0xFFFFFFFF,
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 40,
                                 uint64_t{1} << 62,
                                 INT64_MAX,
                                 uint64_t{1} << 63,
                                 UINT64_MAX - 63,
                                 UINT64_MAX};

constexpr const char* kTexts[] = {"-1", "0", "4294967296", "9223372036854775807", "9223372036854775808", "1e309", "nan", "[[[[", "}}",
                                  "\"", ",", "{"};

}  // namespace

void Mutator::Change(std::string& bytes, const std::string& other, size_t max_bytes) {
  for (size_t left = 1 + Below(5); left > 0; --left) ChangeOnce(bytes, other);
  if (bytes.size() > max_bytes) bytes.resize(max_bytes);
}

void Mutator::ChangeOnce(std::string& bytes, const std::string& other) {
  if (bytes.empty()) {
    bytes = other;
    return;
  }
  const size_t at = Below(bytes.size());
  // Short pieces are more likely than long ones.
  const size_t piece = 1 + Below(std::min(bytes.size() - at, size_t{1} << Below(12)));
  switch (Below(9)) {
    case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8))); break;
    case 1: bytes[at] = static_cast<char>(random_()); break;
    case 2: bytes.resize(at); break;
    case 3: bytes.erase(at, piece); break;
    case 4: bytes.insert(Below(bytes.size() + 1), bytes.substr(at, piece)); break;
    case 5: {
      std::string made(1 + Below(32), '\0');
      for (char& byte : made) byte = static_cast<char>(random_());
      bytes.insert(at, made);
      break;
    }
    case 6: PutNumber(bytes); break;
    case 7: PutDigits(bytes); break;
    default: {
      const size_t from = Below(other.size());
      const std::string part = other.substr(from, 1 + Below(std::max<size_t>(other.size() - from, 1)));
      if (Below(2) == 0) {
        bytes.insert(at, part);
      } else {
        bytes.replace(at, piece, part);
      }
    }
  }
}

// Overwrites bytes with a number, in either byte order.
void Mutator::PutNumber(std::string& bytes) {
  const size_t width = size_t{1} << Below(4);
  if (bytes.size() < width) return;
  uint64_t number = kNumbers[Below(std::size(kNumbers))];
  if (Below(4) == 0) number = bytes.size() + Below(5) - 2;
  char text[8];
  std::memcpy(text, &number, 8);
  if (Below(2) == 0) std::reverse(text, text + width);
  // Fields of binary formats are usually aligned.
  size_t at = Below(bytes.size() - width + 1);
  if (Below(2) == 0) at -= at % width;
  std::memcpy(bytes.data() + at, text, width);
}

// Overwrites a decimal number, or any position if there is none.
void Mutator::PutDigits(std::string& bytes) {
  const size_t from = Below(bytes.size());
  size_t at = bytes.find_first_of("0123456789", from);
  if (at == std::string::npos) at = from;
  const size_t end = bytes.find_first_not_of("0123456789.", at);
  bytes.replace(at, (end == std::string::npos ? bytes.size() : end) - at, kTexts[Below(std::size(kTexts))]);
}

}  // namespace gradloom
