#include "runtime/base/confined_folder.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <system_error>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr size_t kMaxNameBytes = 4096;

[[noreturn]] void Refuse(const std::string& why, const std::string& name, const NamedBy& by, ErrorCode code = ErrorCode::kPath) {
  throw Error(code, by.subject + " names a file " + why, by.where + "  file \"" + Escaped(name) + "\"", by.help);
}

// Empty if it has none.
std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
  return resolved ? resolved.get() : "";
}

std::string PathOf(const Descriptor& open) { return "/proc/self/fd/" + std::to_string(open.get()); }

// Fails with EXDEV if the name, or a link on its way, leaves the folder.
Descriptor OpenBeneath(const Descriptor& folder, const std::string& name) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return Descriptor(static_cast<int>(::syscall(SYS_openat2, folder.get(), name.c_str(), &how, sizeof how)));
}

}  // namespace

void CheckFileName(const std::string& name, const NamedBy& by) {
  if (name.empty()) Refuse("without a name", name, by);
  if (name.size() > kMaxNameBytes) Refuse("with a name longer than 4,096 bytes", name, by);
  if (name.find('\0') != std::string::npos) Refuse("with a NUL byte in its name", name, by);
  if (name.find("://") != std::string::npos) Refuse("by a URL; only files are read", name, by);
  if (name.front() == '/') Refuse("by an absolute path", name, by);
  if (name.find('\\') != std::string::npos || (name.size() > 1 && name[1] == ':')) Refuse("by a Windows path", name, by);
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (std::string_view(name).substr(begin, end - begin) == "..") Refuse("outside of the folder", name, by);
    begin = end + 1;
  }
}

ConfinedFolder::ConfinedFolder(const std::string& folder, const std::string& naming_file)
    : path_(folder), folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_.get() < 0) {
    error_ = errno;
    return;
  }
  may_lead_.push_back(RealPath(PathOf(folder_)));
  if (!naming_file.empty()) may_lead_.push_back(FolderOf(RealPath(naming_file)));
}

// To the system an absolute link leaves the folder, wherever it leads. So the file is found, and its place is compared before it is opened
// for reading. Also used where openat2 is missing or forbidden.
Descriptor ConfinedFolder::OpenThroughLinks(const std::string& name) const {
  const Descriptor found(::openat(folder_.get(), name.c_str(), O_PATH | O_CLOEXEC));
  if (found.get() < 0) return Descriptor();
  const std::string target = RealPath(PathOf(found));
  const auto leads_into = [&](const std::string& folder) {
    return folder.starts_with('/') && target.starts_with(folder.ends_with('/') ? folder : folder + "/");
  };
  if (std::none_of(may_lead_.begin(), may_lead_.end(), leads_into)) {
    errno = EXDEV;
    return Descriptor();
  }
  return Descriptor(::open(PathOf(found).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

InputFile ConfinedFolder::Open(const std::string& name, const NamedBy& by, int64_t limit_bytes) const {
  CheckFileName(name, by);
  Descriptor file;
  int error = error_;
  if (error == 0) {
    file = OpenBeneath(folder_, name);
    if (file.get() < 0 && (errno == EXDEV || errno == ELOOP || errno == ENOSYS || errno == EPERM)) file = OpenThroughLinks(name);
    error = file.get() < 0 ? errno : 0;
  }
  if (error == EXDEV) Refuse("outside of the folder, through a link", name, by);
  struct stat status;
  // ENXIO: a socket.
  if (error == ENXIO || (error == 0 && ::fstat(file.get(), &status) == 0 && !S_ISREG(status.st_mode)))
    Refuse("that is not a regular file", name, by);
  if (error == ENOENT) Refuse("that is missing", name, by, ErrorCode::kIo);
  if (error != 0) Refuse("that cannot be opened: " + std::generic_category().message(error), name, by, ErrorCode::kIo);
  return InputFile(file.Release(), path_ + "/" + name, limit_bytes);
}

}  // namespace gradloom
