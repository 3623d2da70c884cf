// Errors of the system that are not the fault of what was asked for.
#pragma once

#include <cerrno>

namespace gradloom {

// Whether errno says that a resource of the system or of the process is exhausted: the file or the peer is not at fault, and a retry may
// succeed.
inline bool IsShortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN; }

}  // namespace gradloom
