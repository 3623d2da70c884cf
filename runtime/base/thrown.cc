#include "runtime/base/thrown.h"

#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "runtime/base/shortage.h"

namespace gradloom {

Error ErrorFrom(const std::exception& thrown) {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return Error(ErrorCode::kResource, "out of memory", "", "use a smaller --batch, or a machine with more memory");
  if (const auto* system = dynamic_cast<const std::system_error*>(&thrown)) {
    const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&thrown);
    const std::string where = file == nullptr ? "" : Escaped(file->path1().string(), 4096);
    const std::string reason = system->code().message();
    if (IsShortage(system->code().value()))
      return Error(ErrorCode::kResource, "a limit of the system was reached: " + reason, where,
                   "check the process's limits with ulimit -a");
    if (file != nullptr)
      return Error(ErrorCode::kIo, "cannot access the path: " + reason, where, "check the path and the permissions of its folders");
  }
  return Error(ErrorCode::kInternal, Escaped(thrown.what()), "", "report it with the command that shows it");
}

}  // namespace gradloom
