// The JSON header of a safetensors file; the lower half of safetensors.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/checkpoint/safetensors.h"

namespace gradloom {

struct SafetensorsHeader {
  std::map<std::string, SafetensorsFile::Entry> entries;  // ranges relative to the data
  std::map<std::string, std::string> metadata;
};

// The name of a dtype in the header ("F32"), or empty if it has none.
std::string_view SafetensorsTypeName(DType dtype);

// Parses the header and checks each entry's range against its dtype and shape, but not the entries against each other. `where` names the
// file in errors. Throws like SafetensorsFile.
SafetensorsHeader ParseSafetensorsHeader(std::string_view text, int64_t max_tensors, const std::string& where);

// The inverse, without padding, with the entries in this order. Throws Error(kCheckpoint) for text that is not UTF-8 and for a tensor named
// "__metadata__".
std::string SafetensorsHeaderText(const std::vector<std::pair<std::string, SafetensorsFile::Entry>>& entries,
                                  const std::map<std::string, std::string>& metadata);

}  // namespace gradloom
