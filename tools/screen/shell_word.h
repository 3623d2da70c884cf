// A path within a command that people may paste.
#pragma once

#include <string>
#include <string_view>

namespace gradloom {

// `text` as one word of a shell: within quotes where it needs them ('my runs/exp1'), else as it is. Escaped as all that is shown, so that a
// name with control characters is no word that a shell would understand.
std::string ShellWord(std::string_view text);

}  // namespace gradloom
