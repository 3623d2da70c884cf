// The names of the states of a loss scale. See compiler/passes/loss/loss_scale.h.
#pragma once

#include <string_view>

namespace gradloom {

inline constexpr std::string_view kLossScaleState = "gradloom/loss_scale";                       // float32 []
inline constexpr std::string_view kGoodUpdatesState = "gradloom/loss_scale/good_updates";        // int64 [], in a row
inline constexpr std::string_view kSkippedUpdatesState = "gradloom/loss_scale/skipped_updates";  // int64 [], in total

}  // namespace gradloom
