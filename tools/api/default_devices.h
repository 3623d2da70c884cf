// What is compiled for where nothing names devices.
#pragma once

#include <string>

namespace gradloom::api {

// As a program has set it for its process; "" where none has.
std::string DefaultDevices();

}  // namespace gradloom::api
