// Texts that name something with its operands, like losses and metrics: "name(output, target, option=value)".
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gradloom {

struct CallText {
  std::string name, output, target;
  std::vector<std::pair<std::string, std::string>> options;
};

// Operands and options are optional. Throws Error(kConfig) for a text that is not a `what`, whose syntax is `form`.
CallText ParseCall(const std::string& text, const std::string& what, const std::string& form);

// Without spaces at both ends.
std::string Trimmed(const std::string& text);

// The parts between the separators, trimmed.
std::vector<std::string> Pieces(const std::string& text, char separator);

}  // namespace gradloom
