// kernels/scalar/math.h and the types of elements as text, for code that is compiled at run time.
#pragma once

#include <string>

namespace gradloom::cuda {

// What every such source begins with. The functions are in scope.
const std::string& ScalarText();

}  // namespace gradloom::cuda
