// Converts exceptions of the system and the standard library to Gradloom's errors.
#pragma once

#include <exception>

#include "runtime/base/error.h"

namespace gradloom {

// Converts an exception of another type: std::bad_alloc and exhausted system resources become Error(kResource), a path that std::filesystem
// could not access Error(kIo), and anything else is a bug, Error(kInternal).
Error ErrorFrom(const std::exception& thrown);
}  // namespace gradloom
