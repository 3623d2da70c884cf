// The version of Gradloom.
#pragma once

namespace gradloom {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace gradloom
