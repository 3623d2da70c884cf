// Replaces families.cc and all families, so that the reference kernels serve every call.
#include "kernels/cpu/families.h"

namespace gradloom {

std::span<const CpuFamily> CpuFamilies() { return {}; }

std::string_view FastBfloat16Instructions() { return ""; }

}  // namespace gradloom
