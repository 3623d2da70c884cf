// What `gradloom explain` says about each class of errors.
#pragma once

#include <span>

#include "runtime/base/error.h"

namespace gradloom {

struct ErrorText {
  ErrorCode code;
  const char* meaning;
  const char* causes;  // one a line
  const char* remedy;
};

// One for every class, in their order.
std::span<const ErrorText> ErrorTexts();

}  // namespace gradloom
