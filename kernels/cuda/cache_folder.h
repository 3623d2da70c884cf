// What is kept between processes: compiled programs, and choices of algorithms that were measured.
#pragma once

#include <string>

namespace gradloom::cuda {

// The folder where this user's compiled programs and measured choices are cached; "" if there is none.
std::string CacheFolder();

}  // namespace gradloom::cuda
