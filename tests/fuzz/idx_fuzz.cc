// Fuzzes IDX files, also compressed, and token files. Each input is read as both.
#include <cstring>

#include "runtime/data/idx.h"
#include "runtime/data/tokens.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradloom {
namespace {

constexpr int64_t kLimitBytes = int64_t{16} << 20;

std::string Idx(char type, std::initializer_list<int> extents, size_t data_bytes) {
  std::string file = {0, 0, type, static_cast<char>(extents.size())};
  for (int extent : extents) file += {0, 0, static_cast<char>(extent >> 8), static_cast<char>(extent)};
  return file + std::string(data_bytes, '\7');
}

std::string Tokens(int32_t count, size_t data_bytes) {
  const int32_t head[3] = {20240520, 1, count};
  std::string file(1024 + data_bytes, '\1');
  std::memcpy(file.data(), head, sizeof head);
  return file;
}

// A gzip file with stored (uncompressed) contents, which single-byte changes can reach.
std::string Stored(const std::string& data) {
  std::string file("\x1f\x8b\x08\0\0\0\0\0\0\xff\x01", 11);
  const auto size = static_cast<uint16_t>(data.size());
  for (const uint16_t word : {size, static_cast<uint16_t>(~size)}) file += {static_cast<char>(word), static_cast<char>(word >> 8)};
  // The checksum at the end is wrong, but it is checked last.
  return file + data + std::string(8, '\0');
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {Idx(0x08, {10, 4, 4}, 160),         Idx(0x0D, {6, 2}, 48), Idx(0x0E, {3}, 24), Idx(0x09, {}, 1),     Idx(0x0B, {2, 0, 300}, 0),
          Stored(Idx(0x08, {10, 4, 4}, 160)), Tokens(40, 80),        Tokens(0, 0),       std::string(64, '\2')};
}

}  // namespace gradloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradloom;
  const FileInMemory file({reinterpret_cast<const char*>(data), size});
  MayRefuse([&] { ReadIdx(file.path(), kLimitBytes); });
  MayRefuse([&] {
    const auto tokens = ReadTokens(file.path(), kLimitBytes);
    for (const int64_t length : {int64_t{0}, int64_t{1}, int64_t{7}, INT64_MAX}) {
      MayRefuse([&] { WindowsOf(tokens, length, "fuzz"); });
    }
  });
  return 0;
}
