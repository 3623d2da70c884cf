// The end of a command by a signal: partially written files are removed.
#pragma once

#include <string>

namespace gradloom {

// After this call, a signal that ends the process first removes the temporary file of `path` (AtomicFile). This is limited to a few paths.
// Also removes what previously killed commands have left.
void RemovePartialFileOnSignal(const std::string& path);

// To be called at the start of a command: lets signals end it if it is the first process of a container, for which the system drops signals
// that have no handler.
void EndOnSignals();

}  // namespace gradloom
