// What this host is called.
#pragma once

#include <string>

namespace gradloom {

// As the system has it, not escaped; "localhost" where it has none.
std::string HostName();

}  // namespace gradloom
