#include "runtime/data/tokens.h"

#include <bit>
#include <cstring>
#include <memory>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr int32_t kMagic = 20240520;
constexpr int32_t kWideMagic = 20240801;  // llm.c's files for larger vocabularies, with 32-bit tokens
constexpr int32_t kVersion = 1;
constexpr int64_t kHeaderBytes = 256 * 4;

// The offset and number of the tokens in a file.
struct Place {
  int64_t start = 0, tokens = 0;
};

Place FindTokens(const InputFile& file) {
  const std::string where = Escaped(file.path(), 4096);
  int64_t start = 0, bytes = file.bytes();
  int32_t head[3] = {};
  if (bytes >= kHeaderBytes) file.ReadAt(0, head, sizeof head);
  if (head[0] == kWideMagic) {
    throw Error(ErrorCode::kData, "32-bit tokens, llm.c's format for Llama 3, are not supported; expected 16-bit tokens", where,
                "write them to an .npz as int64 windows, with the next tokens as the target");
  }
  if (head[0] == kMagic) {
    if (head[1] != kVersion) {
      throw Error(ErrorCode::kData, "unsupported version " + std::to_string(head[1]) + " of llm.c's token files; expected version 1",
                  where);
    }
    start = kHeaderBytes;
    bytes -= start;
    if (head[2] < 0 || bytes != int64_t{head[2]} * 2) {
      throw Error(ErrorCode::kData,
                  "the header counts " + std::to_string(head[2]) + " tokens, but is followed by " + std::to_string(bytes) + " bytes", where,
                  "download or copy it again");
    }
  }
  if (bytes % 2 != 0) {
    throw Error(ErrorCode::kData, std::to_string(bytes) + " bytes are not a whole number of 16-bit tokens", where,
                "tokens are uint16, two bytes each");
  }
  return {start, bytes / 2};
}

}  // namespace

std::vector<uint16_t> ReadTokens(const std::string& path, int64_t limit_bytes) {
  const InputFile file(path, limit_bytes);
  const Place place = FindTokens(file);
  std::vector<uint16_t> tokens(static_cast<size_t>(place.tokens));
  if (place.tokens > 0) file.ReadAt(place.start, tokens.data(), place.tokens * 2);
  return tokens;
}

StoredArray OpenTokens(const std::string& path) {
  const auto file = std::make_shared<const InputFile>(path, kDataLimitBytes);
  const Place place = FindTokens(*file);
  return {DType::kUint16, false, Shape{place.tokens},
          [file, start = place.start](int64_t offset, void* out, int64_t bytes) { file->ReadAt(start + offset, out, bytes); }};
}

int64_t CountWindows(int64_t tokens, int64_t length, const std::string& where) {
  // The last token of a window needs a successor.
  const int64_t windows = length < 1 ? 0 : (tokens - 1) / length;
  if (windows < 1) {
    throw Error(ErrorCode::kData,
                std::to_string(tokens) + " tokens are too few for a window of " + std::to_string(length) + " and the token after it",
                where);
  }
  return windows;
}

TokenWindows WindowsOf(const std::vector<uint16_t>& tokens, int64_t length, const std::string& where) {
  const int64_t windows = CountWindows(static_cast<int64_t>(tokens.size()), length, where);
  TokenWindows made{Tensor(DType::kInt64, {windows, length}), Tensor(DType::kInt64, {windows, length})};
  for (int64_t i = 0; i < windows * length; ++i) {
    made.tokens.as<int64_t>()[static_cast<size_t>(i)] = tokens[static_cast<size_t>(i)];
    made.next.as<int64_t>()[static_cast<size_t>(i)] = tokens[static_cast<size_t>(i) + 1];
  }
  return made;
}

}  // namespace gradloom
