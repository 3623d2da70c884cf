#include "runtime/data/open_file_budget.h"

#include <sys/resource.h>

#include <filesystem>
#include <system_error>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Reserve for connections, checkpoints and other files that the process opens later.
constexpr int64_t kReservedDescriptors = 64;

// The number of open files; 0 if the system does not tell.
int64_t CountOpenFiles() {
  std::error_code error;
  int64_t count = 0;
  std::filesystem::directory_iterator it("/proc/self/fd", error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) ++count;
  return count;
}

}  // namespace

OpenFileBudget::OpenFileBudget() : before_(CountOpenFiles()) {}

void OpenFileBudget::CheckAllFit(const std::string& path, int64_t files) const {
  const int64_t each = CountOpenFiles() - before_;
  rlimit limit{};
  if (each <= 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const int64_t needed = before_ + kReservedDescriptors + each * files, allowed = static_cast<int64_t>(limit.rlim_cur);
  if (needed <= allowed) return;
  // The soft limit is often far below the hard limit.
  rlimit more = limit;
  more.rlim_cur = static_cast<rlim_t>(needed);
  if ((limit.rlim_max == RLIM_INFINITY || more.rlim_cur <= limit.rlim_max) && setrlimit(RLIMIT_NOFILE, &more) == 0) return;
  throw Error(ErrorCode::kResource,
              std::to_string(files) + " data files must stay open while each process reads its rows, which needs " +
                  std::to_string(needed) + " descriptors; the limit of a process is " + std::to_string(limit.rlim_max),
              Escaped(path, 4096), "raise the limit with ulimit -n " + std::to_string(needed) + ", or use fewer and larger files");
}

}  // namespace gradloom
