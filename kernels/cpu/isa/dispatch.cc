#include <strings.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "kernels/cpu/isa/loops.h"

namespace gradloom {

namespace baseline {
extern const Loops kLoops;
}
#ifdef __x86_64__
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}
#endif

const Loops* LoopsByName(const char* name) {
#ifdef __x86_64__
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (std::strcmp(name, "avx512") == 0) return has_avx512 ? &avx512::kLoops : nullptr;
  if (std::strcmp(name, "avx2") == 0) return has_avx2 ? &avx2::kLoops : nullptr;
#endif
  return std::strcmp(name, "baseline") == 0 ? &baseline::kLoops : nullptr;
}

namespace {

// Uses oneDNN's variable with oneDNN's semantics, so that one setting limits both the library and our own kernels.
bool IsaIsAllowed(std::string_view name) {
  const char* given = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (given == nullptr) given = std::getenv("DNNL_MAX_CPU_ISA");
  if (given == nullptr) return true;
  if (strcasecmp(given, "SSE41") == 0 || strcasecmp(given, "AVX") == 0) return name == "baseline";
  return strncasecmp(given, "AVX2", 4) != 0 || name != "avx512";
}

}  // namespace

const Loops& BestLoops() {
  static const Loops* const best = [] {
    for (const char* name : {"avx512", "avx2"}) {
      if (const Loops* loops = LoopsByName(name); loops != nullptr && IsaIsAllowed(name)) return loops;
    }
    return &baseline::kLoops;
  }();
  return *best;
}

}  // namespace gradloom
