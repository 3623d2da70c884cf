// Files of tokens, for language models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/tensor.h"
#include "runtime/session/stored_array.h"

namespace gradloom {

// Tokens as uint16, little-endian: llm.c's files (a header of 256 int32: 20240520, version 1, the number of tokens), or
// nothing but tokens. Error(kData) for another version, a count that is not the file's, half a token.
std::vector<uint16_t> ReadTokens(const std::string& path, int64_t limit_bytes = kFileLimitBytes);

// The same of a file that stays open, as one axis. Errors as ReadTokens's.
StoredArray OpenTokens(const std::string& path, int64_t limit_bytes = kFileLimitBytes);

// llm.c's file.
void WriteTokens(const std::string& path, const std::vector<uint16_t>& tokens);

// What a language model is trained on: windows of `length` tokens, one after another, and for each token the one that
// follows it.
struct TokenWindows {
  Tensor tokens, next;  // int64[windows, length]
};

// How many windows so many tokens make. Error(kData) where that is none; `where` names the source.
int64_t CountWindows(int64_t tokens, int64_t length, const std::string& where);

// The tokens past the last whole window are left out. Errors as CountWindows's.
TokenWindows WindowsOf(const std::vector<uint16_t>& tokens, int64_t length, const std::string& where);

}  // namespace gradloom
