// The index of weights that are divided over several safetensors files, the shards (Hugging Face's model.safetensors.index.json): a JSON
// object whose "weight_map" names the file of each tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/confined_folder.h"

namespace gradloom {

// Whether a path names an index rather than a safetensors file: "model.safetensors.index.json", also "model.safetensors.index.fp16.json".
bool IsShardIndex(const std::string& path);

// The shard of each tensor: a path that CheckFileName accepts, relative to the folder of the index. Everything else in the file is ignored.
using ShardIndex = std::map<std::string, std::string>;

// Throws Error(kCheckpoint) for text that is not JSON of this form, for a tensor that occurs twice and for one without a file name,
// Error(kPath) for a file name that CheckFileName refuses, and Error(kLimit) for more than `max_tensors` tensors. `where` names the
// index in errors.
ShardIndex ParseShardIndex(std::string_view text, int64_t max_tensors, const std::string& where);

// For errors about the file of a tensor.
NamedBy NamedByIndex(const std::string& where, const std::string& tensor);

}  // namespace gradloom
