// Partially written files are removed: when a signal ends the command, and those that previous commands have left.
#pragma once

#include <string>

namespace gradloom {

// Removes temporary files (AtomicFile) of `file` in a folder, or of all files if it is empty, whose writers are gone. A writer that is
// alive on another host, or in another container, has locked its file. On a file system without locks, this is only known of the files of a
// folder that belongs to this process, which is assumed for all files.
void RemoveLeftovers(const std::string& folder, const std::string& file = {});

// After this call, a signal that ends the process first removes the temporary file of `path` (AtomicFile). This is limited to a few paths.
// Also removes what previously killed commands have left.
void RemovePartialFileOnSignal(const std::string& path);

// To be called at the start of a command: lets signals end it if it is the first process of a container, for which the system drops signals
// that have no handler.
void EndOnSignals();

}  // namespace gradloom
