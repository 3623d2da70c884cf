#include <strings.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
namespace avx512_bf16 {
void MultiplyPairs(const PairArgs& args);
}
namespace amx {
void MultiplyPairs(const PairArgs& args);
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

#ifdef __x86_64__
// A process must ask Linux for the tiles' registers, which enlarge its threads' saved state.
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA in asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool HasAmx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  static const bool granted = RequestTiles();
  return granted;
}
#endif

// Uses oneDNN's variable with oneDNN's semantics, so that one setting limits both the library and our own kernels.
bool IsaIsAllowed(std::string_view name) {
  const char* given = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (given == nullptr) given = std::getenv("DNNL_MAX_CPU_ISA");
  if (given == nullptr) return true;
  if (strcasecmp(given, "SSE41") == 0 || strcasecmp(given, "AVX") == 0) return name == "baseline";
  return strncasecmp(given, "AVX2", 4) != 0 || name != "avx512";
}

}  // namespace

PairProduct PairProductByName([[maybe_unused]] const char* name) {
#ifdef __x86_64__
  if (std::strcmp(name, "avx512_bf16") == 0) {
    return LoopsByName("avx512") != nullptr && __builtin_cpu_supports("avx512bf16") ? avx512_bf16::MultiplyPairs : nullptr;
  }
  if (std::strcmp(name, "amx") == 0) return HasAmx() ? amx::MultiplyPairs : nullptr;
#endif
  return nullptr;
}

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
