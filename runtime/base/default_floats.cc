#include "runtime/base/default_floats.h"

#include <utility>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace gradloom {
namespace {

thread_local bool replaced = false;

#ifdef __x86_64__
// Reading the register takes a nanosecond, fegetenv thirty times as long. glibc's functions set it together with that of the x87.
bool IsDefault() {
  constexpr unsigned kHappened = 0x3f, kDefault = 0x1f80;
  return (_mm_getcsr() & ~kHappened) == kDefault;
}
#else
bool IsDefault() { return fegetround() == FE_TONEAREST; }
#endif

}  // namespace

DefaultFloats::DefaultFloats() {
  if (IsDefault()) return;
  fegetenv(&before_);
  fesetenv(FE_DFL_ENV);
  replaces_ = true;
  outer_ = std::exchange(replaced, true);
}

DefaultFloats::~DefaultFloats() {
  if (!replaces_) return;
  replaced = outer_;
  fesetenv(&before_);
}

bool DefaultFloats::Replaced() { return replaced; }

}  // namespace gradloom
