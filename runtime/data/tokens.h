// Files of tokens, for language models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/data_limits.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

// Reads tokens as uint16, little-endian: llm.c's files (a header of 256 int32: 20240520, version 1, the number of tokens), or only tokens.
// Throws Error(kData) for another version, a count that does not fit the file, half a token.
std::vector<uint16_t> ReadTokens(const std::string& path, int64_t limit_bytes = kDataLimitBytes);

// The same for a file that stays open, as one axis. Throws like ReadTokens.
StoredArray OpenTokens(const std::string& path);

// Training data for a language model: windows of `length` tokens, one after another, and for each token the one that follows it.
struct TokenWindows {
  Tensor tokens, next;  // int64[windows, length]
};

// The number of windows of this number of tokens. Throws Error(kData) if there are none; `where` names the source.
int64_t CountWindows(int64_t tokens, int64_t length, const std::string& where);

// Tokens after the last whole window are left out. Throws like CountWindows.
TokenWindows WindowsOf(const std::vector<uint16_t>& tokens, int64_t length, const std::string& where);

}  // namespace gradloom
