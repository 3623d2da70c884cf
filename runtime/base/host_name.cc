#include "runtime/base/host_name.h"

#include <unistd.h>

namespace gradloom {

std::string HostName() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) != 0 || *name == '\0' ? "localhost" : name;
}

}  // namespace gradloom
