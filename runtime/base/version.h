// The version of Gradloom, as screens and files show it.
#pragma once

namespace gradloom {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace gradloom
