#pragma once

#include <string>

namespace gradloom::cuda {

// Where this user's compiled programs and measured choices are kept; empty: nowhere.
std::string CacheFolder();

}  // namespace gradloom::cuda
