#include "runtime/base/call_text.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace gradloom {

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> Pieces(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    pieces.push_back(Trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  return pieces;
}

CallText ParseCall(const std::string& text, const std::string& what, const std::string& form) {
  CallText call;
  const size_t open = text.find('(');
  call.name = Trimmed(text.substr(0, open));
  if (open == std::string::npos) return call;
  if (text.back() != ')') {
    throw Error(ErrorCode::kConfig, "'" + Escaped(text) + "' is not a " + what, "", "write it as '" + form + "'");
  }
  int operand = 0;
  for (const std::string& piece : Pieces(text.substr(open + 1, text.size() - open - 2), ',')) {
    const size_t equals = piece.find('=');
    if (equals != std::string::npos) {
      call.options.emplace_back(Trimmed(piece.substr(0, equals)), Trimmed(piece.substr(equals + 1)));
    } else if (operand < 2) {
      (operand++ == 0 ? call.output : call.target) = piece;
    } else {
      throw Error(ErrorCode::kConfig, "the " + what + " '" + Escaped(text) + "' has more than an output and a target", "",
                  "write it as '" + form + "'");
    }
  }
  return call;
}

}  // namespace gradloom
