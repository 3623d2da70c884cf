// The file in which a process of a job reports its error to its launcher, in torchrun's format; the launcher shows it as the cause.
#pragma once

#include <string>

namespace gradloom {

// Writes {"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": "1763779200"}}} to the path in
// TORCHELASTIC_ERROR_FILE; does nothing if it is not set. Failure to write is ignored.
void WriteErrorFile(const std::string& message) noexcept;

// The message in such a file, also in one written by Python; "" if there is none. Reads at most 1 MiB.
std::string ReadErrorFile(const std::string& path);

}  // namespace gradloom
