// The name of this host.
#pragma once

#include <string>

namespace gradloom {

// The system's name for it, not escaped; "localhost" if it has none.
std::string HostName();

}  // namespace gradloom
