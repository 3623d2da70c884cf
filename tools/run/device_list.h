// The devices of this machine, for programs.
#pragma once

#include <string>

namespace gradloom {

// One JSON object: {"devices": [{"id": "cpu", ...}, {"id": "cuda:0", ...}], ...}, with "no_cuda" saying why where there are no GPUs.
std::string DevicesJson();

}  // namespace gradloom
