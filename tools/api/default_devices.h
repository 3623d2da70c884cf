// The devices to compile for if none are named.
#pragma once

#include <string>

namespace gradloom::api {

// The devices that the program has set for its process; "" if it has not.
std::string DefaultDevices();

}  // namespace gradloom::api
