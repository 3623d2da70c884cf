// The files in which a model keeps tensors.
#pragma once

#include <set>
#include <string>

#include "compiler/onnx/import.h"

namespace gradloom {

// The paths of the files with the external data of a model, in the folder where Model::Load would look for them. They are not opened, and
// need not exist. Throws what Model::Load throws before it reads tensors.
std::set<std::string> ExternalFilesOf(const std::string& path, const LoadOptions& options);

}  // namespace gradloom
