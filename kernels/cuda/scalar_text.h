// The text of kernels/scalar's headers and of the element types, for kernels compiled at run time.
#pragma once

#include <string>

namespace gradloom::cuda {

// The prefix of every such source. Brings the functions of math.h into scope.
const std::string& ScalarText();

}  // namespace gradloom::cuda
