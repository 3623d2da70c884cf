#pragma once

namespace gradloom::emulated {

// Sets whether the emulated cuDNN has an algorithm for every problem (the default), or for none.
void SetDnnHasAlgorithms(bool all);

}  // namespace gradloom::emulated
