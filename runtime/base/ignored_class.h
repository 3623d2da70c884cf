// The class that losses and metrics leave out.
#pragma once

#include <cstdint>

#include "runtime/base/attributes.h"

namespace gradloom {

// The class that losses and metrics ignore by default, as in PyTorch.
inline constexpr int64_t kIgnoredClass = -100;

// The one that a loss of these attributes ignores, an ONNX operator or one of ours.
inline int64_t IgnoredClassOf(const Attributes& attributes) { return attributes.Int("ignore_index", kIgnoredClass); }

}  // namespace gradloom
