// Generates text with a trained language model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

struct GenerationOptions {
  int64_t count = 100;     // number of tokens to generate
  std::string prompt;      // empty: token 0
  double temperature = 1;  // 0: always the most likely token
  int64_t seed = 0;
  std::string alphabet;  // a file for Alphabet::Parse; "": Alphabet::Default
};

// The meaning of each token.
class Alphabet {
 public:
  // For 96 tokens: newline and the printable ASCII characters, as in models/char_gpt; for 256: bytes. For another number, as a tokenizer
  // has: their numbers, separated by spaces or commas.
  static Alphabet Default(int64_t tokens);

  // Throws Error(kConfig) naming `where` for text that is not UTF-8, a character that occurs twice, or a number of characters other than
  // `tokens`.
  static Alphabet Parse(std::string_view text, int64_t tokens, const std::string& where);

  // Throws Error(kConfig) for what is not a token.
  std::vector<int64_t> Encode(std::string_view text) const;
  // A number begins with the space that separates it from what precedes it.
  std::string Decode(int64_t token) const;

 private:
  std::vector<int64_t> EncodeNumbers(std::string_view text) const;

  std::vector<std::string> symbols_;
  int64_t numbers_ = 0;  // the number of tokens, if they have no symbols
};

// Samples a token from softmax(logits / temperature), using `uniform` in [0, 1). With temperature 0 returns the most likely token, the
// first one of equals. Throws Error(kDiverged) if a logit is NaN.
int64_t Sample(const std::vector<double>& logits, double temperature, double uniform);

}  // namespace gradloom
