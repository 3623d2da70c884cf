// Folds of many operands.
#pragma once

namespace gradloom::cuda_rows {

// The number of operands of one launch. With more, the totals of 16-bit numbers pass through scratch memory as float32.
inline constexpr int kFoldedAtOnce = 16;

}  // namespace gradloom::cuda_rows
