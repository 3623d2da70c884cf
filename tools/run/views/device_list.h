// The devices of this machine, as JSON.
#pragma once

#include <string>

namespace gradloom {

// One JSON object: {"devices": [{"id": "cpu", ...}, {"id": "cuda:0", ...}], ...}, with the reason in "no_cuda" if there are no GPUs.
std::string DevicesJson();

}  // namespace gradloom
