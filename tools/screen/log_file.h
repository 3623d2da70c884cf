// Files that lines are added to while a process runs.
#pragma once

#include <cstdio>
#include <string>

namespace gradloom {

// Open for writing at its end, made where it is not there yet; the caller closes it. Waits for nobody: throws Error(kResource) for a FIFO
// that has no reader, as for all else that cannot be opened.
std::FILE* OpenLogFile(const std::string& path);

}  // namespace gradloom
