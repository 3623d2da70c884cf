// Removes partially written files when a command is ended.
#pragma once

#include <string>

namespace gradloom {

// After this call, a signal that ends the process first removes the temporary file of `path` (AtomicFile). This is limited to a few paths.
// Also removes what previously killed commands have left.
void RemovePartialFileOnSignal(const std::string& path);

}  // namespace gradloom
