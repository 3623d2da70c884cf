#include "tools/launch/file_limit.h"

#include <sys/resource.h>

namespace gradloom {
namespace {

rlimit before{};
bool raised = false;

}  // namespace

void RaiseFileLimit() {
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) return;
  rlimit limit = before;
  limit.rlim_cur = limit.rlim_max;
  raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void RestoreFileLimit() {
  if (raised) ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace gradloom
