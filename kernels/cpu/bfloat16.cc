#include "kernels/cpu/bfloat16.h"

#include <cstdlib>
#include <dnnl.hpp>
#include <string_view>

#include "kernels/cpu/cpu_kernels.h"

namespace gradloom {
namespace {

bool Has(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

bool HasSlowDotProduct() {
#ifdef __x86_64__
  return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16");
#else
  return false;
#endif
}

}  // namespace

bool HasBfloat16() { return Has(dnnl::cpu_isa::avx512_core_bf16); }

bool HasAmx() { return Has(dnnl::cpu_isa::avx512_core_amx); }

bool HasFastBfloat16() {
  static const bool fast = [] {
    const char* const given = std::getenv("GRADLOOM_CPU_BFLOAT16");
    const std::string_view choice = given == nullptr ? "" : given;
    if (choice == "on" || choice == "off") return choice == "on" && HasBfloat16();
    return HasAmx() || (HasBfloat16() && !HasSlowDotProduct());
  }();
  return fast;
}

std::string_view FastBfloat16Instructions() { return !HasFastBfloat16() ? "" : HasAmx() ? "amx" : "avx512_bf16"; }

PairProduct BestPairProduct() {
  static const PairProduct best = [] {
    PairProduct product = HasAmx() ? PairProductByName("amx") : nullptr;
    if (product == nullptr && HasFastBfloat16()) product = PairProductByName("avx512_bf16");
    return product == nullptr ? BestLoops().multiply_pairs : product;
  }();
  return best;
}

}  // namespace gradloom
