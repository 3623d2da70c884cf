// What the system and the standard library throw or report, as people are told of it.
#pragma once

#include <exception>

#include "runtime/base/error.h"

namespace gradloom {

// Of an exception that is not ours: std::bad_alloc and what the system has no more of are Error(kResource), a path that std::filesystem
// could not look at is Error(kIo), anything else is a bug, Error(kInternal).
Error ErrorFrom(const std::exception& thrown);
}  // namespace gradloom
