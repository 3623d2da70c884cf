// Files that a command was about to write when it was ended.
#pragma once

#include <string>

namespace gradloom {

// From here on a signal that ends the process removes what it has written of `path` under a temporary name (AtomicFile), before it ends as
// it would have. Of more than a few paths the rest is left. Removes at once what commands that were killed have left of it.
void RemoveHalfFileOnSignal(const std::string& path);

}  // namespace gradloom
