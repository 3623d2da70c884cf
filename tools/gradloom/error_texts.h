// The texts of `gradloom explain` for each error class.
#pragma once

#include <span>

#include "runtime/base/error.h"

namespace gradloom {

struct ErrorText {
  ErrorCode code;
  const char* meaning;
  const char* causes;  // one per line
  const char* remedy;
};

// One for every class, in the order of ErrorCode.
std::span<const ErrorText> ErrorTexts();

}  // namespace gradloom
