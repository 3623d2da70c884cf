#pragma once

namespace gradloom::emulated {

// Whether the emulated cuDNN has an algorithm for every problem (as at first), or for none.
void SetDnnHasAlgorithms(bool all);

}  // namespace gradloom::emulated
