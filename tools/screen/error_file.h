// The file in which a process of a job tells its launcher why it failed, as torchrun has it: the launcher shows it as the cause.
#pragma once

#include <string>

namespace gradloom {

// Writes {"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": "1763779200"}}} to the path in
// TORCHELASTIC_ERROR_FILE; without one does nothing. A file that cannot be written is no further error.
void WriteErrorFile(const std::string& message) noexcept;

// The message of such a file, also of one that Python has written; "" where there is none. Reads at most 1 MiB.
std::string ReadErrorFile(const std::string& path);

}  // namespace gradloom
