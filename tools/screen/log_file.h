// Log files that a process appends to.
#pragma once

#include <cstdio>
#include <string>

namespace gradloom {

// Opens a file for appending, and creates it if necessary; the caller closes it. Does not block: throws Error(kResource) for a FIFO without
// a reader, and for any other file that cannot be opened.
std::FILE* OpenLogFile(const std::string& path);

}  // namespace gradloom
