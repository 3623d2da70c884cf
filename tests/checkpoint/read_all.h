// All tensors of a safetensors file.
#pragma once

#include <map>
#include <string>

#include "runtime/checkpoint/safetensors.h"

namespace gradloom {

inline std::map<std::string, Tensor> ReadAll(const SafetensorsFile& file) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : file.entries()) tensors.emplace(name, file.Read(name));
  return tensors;
}

}  // namespace gradloom
