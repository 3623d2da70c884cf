#include "tools/run/serve/generation.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/philox.h"
#include "runtime/base/read_number.h"
#include "runtime/base/utf8.h"
#include "tools/run/serve/trained_model.h"

namespace gradloom {
namespace {

// The random stream of sampling, separate from all others.
constexpr uint64_t kSampleStream = 0x73616D706C65;

double Uniform(PhiloxKey key, int64_t index) {
  const PhiloxBlock block = Philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, key);
  return static_cast<double>(((static_cast<uint64_t>(block[0]) << 32) | block[1]) >> 11) * 0x1p-53;
}

}  // namespace

Alphabet Alphabet::Default(int64_t tokens) {
  constexpr int64_t kPrintable = 96, kBytes = 256;
  Alphabet alphabet;
  if (tokens == kPrintable) {
    alphabet.symbols_.emplace_back("\n");
    for (char c = ' '; c <= '~'; ++c) alphabet.symbols_.emplace_back(1, c);
    return alphabet;
  }
  if (tokens == kBytes) {
    for (int c = 0; c < kBytes; ++c) alphabet.symbols_.emplace_back(1, static_cast<char>(c));
    return alphabet;
  }
  alphabet.numbers_ = tokens;
  return alphabet;
}

Alphabet Alphabet::Parse(std::string_view text, int64_t tokens, const std::string& where) {
  Alphabet alphabet;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t bytes = Utf8Length(rest);
    if (bytes == 0) throw Error(ErrorCode::kConfig, "byte " + std::to_string(text.size() - rest.size()) + " is not UTF-8", where);
    const std::string symbol(rest.substr(0, bytes));
    if (std::find(alphabet.symbols_.begin(), alphabet.symbols_.end(), symbol) != alphabet.symbols_.end()) {
      throw Error(ErrorCode::kConfig, "the character '" + Escaped(symbol) + "' occurs twice", where);
    }
    alphabet.symbols_.push_back(symbol);
    rest.remove_prefix(bytes);
    // Too many symbols are an error, whatever they are.
    if (static_cast<int64_t>(alphabet.symbols_.size()) > tokens) break;
  }
  if (static_cast<int64_t>(alphabet.symbols_.size()) == tokens) return alphabet;
  throw Error(ErrorCode::kConfig,
              "the alphabet does not have one character for each of the " + std::to_string(tokens) + " tokens of the model", where,
              "every line break counts as a character, including the last");
}

std::string Alphabet::Decode(int64_t token) const {
  return numbers_ > 0 ? " " + std::to_string(token) : symbols_.at(static_cast<size_t>(token));
}

std::vector<int64_t> Alphabet::EncodeNumbers(std::string_view text) const {
  constexpr std::string_view kBetween = " ,\t\n";
  std::vector<int64_t> tokens;
  for (size_t at = text.find_first_not_of(kBetween); at < text.size(); at = text.find_first_not_of(kBetween, at)) {
    const std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
    const int64_t token = ReadNumber<int64_t>(word).value_or(-1);
    if (token < 0 || token >= numbers_) {
      throw Error(ErrorCode::kConfig, "'" + Escaped(word, 40) + "' of the prompt is not a token of the model", "--prompt",
                  "write the numbers of its tokens, from 0 to " + std::to_string(numbers_ - 1) +
                      "; if tokens are characters, name them in order in a file: --alphabet FILE");
    }
    tokens.push_back(token);
    at += word.size();
  }
  return tokens;
}

std::vector<int64_t> Alphabet::Encode(std::string_view text) const {
  if (numbers_ > 0) return EncodeNumbers(text);
  std::vector<int64_t> tokens;
  while (!text.empty()) {
    // Bytes match as they are, characters as a whole.
    const auto found = std::find_if(symbols_.begin(), symbols_.end(), [&](const std::string& symbol) { return text.starts_with(symbol); });
    if (found == symbols_.end()) {
      const size_t bytes = std::max<size_t>(1, Utf8Length(text));
      throw Error(ErrorCode::kConfig, "'" + Escaped(text.substr(0, bytes)) + "' of the prompt is not a token of the model", "--prompt",
                  "remove it, or pass the model's characters with --alphabet FILE");
    }
    tokens.push_back(found - symbols_.begin());
    text.remove_prefix(found->size());
  }
  return tokens;
}

int64_t Sample(const std::vector<double>& logits, double temperature, double uniform) {
  for (const double logit : logits) {
    if (std::isnan(logit)) throw Error(ErrorCode::kDiverged, "the model outputs NaN", "", "train it with a smaller --lr");
  }
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return largest - logits.begin();
  std::vector<double> weights;
  double sum = 0;
  for (const double logit : logits) {
    weights.push_back(std::exp((logit - *largest) / temperature));
    sum += weights.back();
  }
  double left = uniform * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int64_t>(i);
  }
  return largest - logits.begin();
}

TrainedModel::Generated TrainedModel::Generate(const GenerationOptions& options) const {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    throw Error(ErrorCode::kConfig, "the temperature must be finite and at least 0", "--temperature", "for example --temperature 0.8");
  }
  if (options.count < 0)
    throw Error(ErrorCode::kConfig, "the number of tokens must be at least 0", "--generate", "for example --generate 200");
  LanguageModel model = StartLanguageModel();
  const Alphabet alphabet = options.alphabet.empty()
                                ? Alphabet::Default(model.tokens)
                                : Alphabet::Parse(ReadWholeFile(options.alphabet), model.tokens, Escaped(options.alphabet, 4096));
  std::vector<int64_t> all = alphabet.Encode(options.prompt);
  if (all.empty()) all.push_back(0);
  const PhiloxKey key = NodeKey(static_cast<uint64_t>(options.seed), 0, kSampleStream);
  Generated made;
  Tensor window(DType::kInt64, {1, model.window});
  for (int64_t i = 0; i < options.count; ++i) {
    // A causal model ignores what comes after the text.
    const auto size = static_cast<int64_t>(all.size()), used = std::min(size, model.window);
    const std::span<int64_t> row = window.as<int64_t>();
    std::fill(row.begin(), row.end(), 0);
    std::copy(all.end() - used, all.end(), row.begin());
    const std::map<std::string, Tensor> outputs = model.session.Predict({{model.input, window.view()}});
    const TensorView scores = outputs.at(model.output).view();
    std::vector<double> logits;
    for (int64_t t = 0; t < model.tokens; ++t) logits.push_back(ElementAsDouble(scores, (used - 1) * model.tokens + t));
    const int64_t token = Sample(logits, options.temperature, Uniform(key, i));
    all.push_back(token);
    made.tokens.push_back(token);
    made.text += alphabet.Decode(token);
  }
  return made;
}

}  // namespace gradloom
