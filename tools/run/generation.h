// Text from a trained language model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

struct GenerationOptions {
  int64_t count = 100;     // tokens to add
  std::string prompt;      // empty: token 0
  double temperature = 1;  // 0: always the most likely token
  int64_t seed = 0;
  std::string alphabet;  // a file whose characters (UTF-8) are the tokens in order; "": Alphabet::Default
};

// What a token stands for.
class Alphabet {
 public:
  // Of 96 tokens: the end of a line and the printable ASCII characters, as models/char_gpt has them; of 256: bytes. Throws
  // Error(kConfig) for another number.
  static Alphabet Default(int64_t tokens);

  // Throws Error(kConfig) naming `where` for bytes that are not UTF-8, a character that is there twice, or another number
  // of them than `tokens`.
  static Alphabet Parse(std::string_view text, int64_t tokens, const std::string& where);

  // Throws Error(kConfig) for a character that is no token.
  std::vector<int64_t> Encode(std::string_view text) const;
  const std::string& Decode(int64_t token) const { return symbols_.at(static_cast<size_t>(token)); }

 private:
  std::vector<std::string> symbols_;
};

// A token by its probability, which is the softmax of logits / temperature: drawn by `uniform` in [0, 1). With temperature
// 0 the most likely one, the first of equals. Throws Error(kDiverged) where a logit is NaN.
int64_t Sample(const std::vector<double>& logits, double temperature, double uniform);

}  // namespace gradloom
