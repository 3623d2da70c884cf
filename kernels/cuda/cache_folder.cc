#include "kernels/cuda/cache_folder.h"

#include <cstdlib>

namespace gradloom::cuda {

std::string CacheFolder() {
  if (const char* given = std::getenv("GRADLOOM_CACHE"); given != nullptr) return given;
  if (const char* given = std::getenv("XDG_CACHE_HOME"); given != nullptr && given[0] == '/') return std::string(given) + "/gradloom";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return std::string(home) + "/.cache/gradloom";
  return "";
}

}  // namespace gradloom::cuda
