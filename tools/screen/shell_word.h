// Quotes paths in commands that users may paste.
#pragma once

#include <string>
#include <string_view>

namespace gradloom {

// `text` as one word of a shell, quoted if necessary ('my runs/exp1'). Escaped like everything that is printed, so a name with control
// characters does not survive as a usable shell word.
std::string ShellWord(std::string_view text);

}  // namespace gradloom
