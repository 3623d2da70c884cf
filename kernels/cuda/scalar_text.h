// The text of kernels/scalar/math.h and of the element types, for kernels compiled at run time.
#pragma once

#include <string>

namespace gradloom::cuda {

// The prefix of every such source. Brings the functions into scope.
const std::string& ScalarText();

}  // namespace gradloom::cuda
