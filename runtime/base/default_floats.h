// How a thread computes with floating-point numbers: rounding, subnormal numbers, traps.
#pragma once

#include <fenv.h>

namespace gradloom {

// While one exists, the thread computes as C++ programs do by default: rounded to nearest, with subnormal numbers, without traps. A program
// may have set something else for itself, and a library that was linked with -ffast-math does so when it is loaded. Threads that are
// started meanwhile begin with the default, too.
class DefaultFloats {
 public:
  DefaultFloats();
  ~DefaultFloats();
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

  // Whether one of the calling thread's objects has found something else. The thread's OpenMP team may then compute in that way.
  static bool Replaced();

 private:
  bool replaces_ = false;
  bool outer_ = false;  // what Replaced said before
  fenv_t before_;       // if it replaces
};

}  // namespace gradloom
